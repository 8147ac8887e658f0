"""Files of saved models and of prediction sets."""
