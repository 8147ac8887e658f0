"""Building blocks that know nothing of prediction sets: arrays, labels, files, progress."""
