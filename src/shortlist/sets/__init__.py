"""Prediction sets: the labels that are predicted for each row."""

from shortlist.sets.prediction_sets import PredictionSets, check_no_repeats

__all__ = ["PredictionSets", "check_no_repeats"]
