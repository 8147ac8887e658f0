"""Utilities that do not depend on prediction sets: arrays, validation, labels, files, progress."""
