"""Files: saved models, tables of rows, prediction sets."""
