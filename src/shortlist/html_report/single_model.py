"""Evaluate one fitted model on labeled rows, as a comparison with sets of one size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shortlist._utils.arrays import ArrayLike, as_features
from shortlist._utils.frames import match_columns
from shortlist._utils.labels import count_unknown_labels, label_array
from shortlist._utils.validation import check_probability
from shortlist.comparison import (
    ACCURACIES,
    Comparison,
    FittedMethod,
    LabeledRows,
    MethodResult,
    measure_at,
)
from shortlist.families import TopK
from shortlist.frontier import Frontier
from shortlist.predictors import FixedSelector, SetPredictor
from shortlist.ranking import Ranking

REFERENCE = "sets of one size"
REFERENCE_SIZES = 60
"""Maximum number of sizes of the reference method."""


def evaluate_model(
    model: SetPredictor,
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None = None,
    *,
    accuracies: Sequence[float] = ACCURACIES,
) -> Comparison:
    """Compare a fitted model with sets that all have one size (top-k).

    Parameters
    ----------
    model : SetPredictor
        Fitted model.
    scores : array-like of shape (n_rows, n_classes) or Ranking
        Scores of rows that are used neither to fit nor to calibrate.
    y : array-like of shape (n_rows,)
        True labels.
    features : array-like of shape (n_rows, n_features), optional
        Features, if the model uses them.
    accuracies : sequence of float, default=(0.9, 0.95, 0.98, 0.99)
        Accuracies to measure at.

    Returns
    -------
    Comparison
        The results of the model, and of top-k unless the sets of the model all have one size.

    Raises
    ------
    ValueError
        If the guarantee of the model is conditional on groups.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(3000)
    >>> select, test = data.split(2000)
    >>> model = sl.SplitConformal("lac").fit(select.posterior, select.y)
    >>> comparison = evaluate_model(model, test.posterior, test.y)
    >>> list(comparison.curves), comparison.summary
    (['lac', 'sets of one size'], '1,500 calibration rows, 1,000 test rows, 10 classes')
    """
    if model.conditional_on == "group":
        raise ValueError(
            "the guarantee of this model is conditional on groups, but a report is about all rows "
            "together; report on a model without groups, such as one with by=None"
        )
    levels = tuple(check_probability(a, "each of accuracies") for a in accuracies)
    rows = labeled_rows(model, scores, y, features)
    ranking = rows.ranking
    summary = f"{len(ranking):,} test rows, {ranking.n_classes} classes"
    if model.is_calibrated:
        summary = f"{model.n_calibration:,} calibration rows, {summary}"
    comparison = Comparison(levels, summary, len(ranking), model.n_calibration)
    with count_unknown_labels():  # The validation of the rows has warned about them.
        curve = model.frontier(*rows)
    _add(comparison, curve.name or type(model).__name__, model, curve, rows)
    if not _has_one_size(curve):
        sizes = np.unique(np.geomspace(1, ranking.depth, REFERENCE_SIZES).round().astype(int))
        # It learns nothing from labels, and those of unknown classes cannot be given to `fit`.
        labels = np.repeat(ranking.classes.array()[:1], len(ranking))
        reference = FixedSelector(TopK(sizes.tolist())).fit(ranking, labels)
        with count_unknown_labels():
            curve = reference.frontier(*rows)
        _add(comparison, REFERENCE, reference, curve, rows)
    return comparison


def labeled_rows(
    model: SetPredictor,
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None,
) -> LabeledRows:
    """Return labeled rows after their validation by the model."""
    ranking, _ = model._validate_labeled(scores, y)
    x = None
    if features is not None:
        matched = match_columns(features, model.feature_names, "features")
        x = as_features(matched, rows=len(ranking))
    return LabeledRows(ranking, label_array(y), x)


def _has_one_size(curve: Frontier) -> bool:
    """Return whether all rows have sets of the same size at every point."""
    return curve.rows is not None and bool((curve.rows[1] == curve.rows[1][:1]).all())


def _add(
    comparison: Comparison, name: str, model: SetPredictor, curve: Frontier, rows: LabeledRows
) -> None:
    """Measure a fitted model and add it to a comparison."""
    accuracies = comparison.accuracies
    measurements = [measure_at(name, model, a, curve, rows, math.nan) for a in accuracies]
    models, curves = dict.fromkeys(accuracies, model), dict.fromkeys(accuracies, curve)
    fitted = FittedMethod(models, curves, rows)
    comparison.add(MethodResult(name, measurements, model, curve, fitted))
