"""How each class of a saved model is written, what its fields may contain, and what must agree."""
