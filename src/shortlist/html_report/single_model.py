"""One fitted model, judged by labelled rows, in the form of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, as_features, check_probability
from shortlist._utils.frames import match_columns
from shortlist._utils.labels import label_array
from shortlist.comparison import ACCURACIES, Comparison, Fitted, Rows, measured_at
from shortlist.families import TopK
from shortlist.html_report.operating_points import can_guarantee
from shortlist.predictors import FixedSelector, SetPredictor
from shortlist.predictors.cardinality.inputs import feature_names_of
from shortlist.ranking import Ranking

FIXED = "lists of one length"
LENGTHS = 60
"""So many of the lengths that lists of one length can have are tried."""


def judge(
    model: SetPredictor,
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None = None,
    *,
    accuracies: Sequence[float] = ACCURACIES,
) -> Comparison:
    """What a fitted model does on these rows; and beside it, as a yardstick that nothing is
    learned for, lists that are all of one length (top-k).

    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(3000)
    >>> select, test = data.split(2000)
    >>> model = sl.SplitConformal("lac").fit(select.posterior, select.y)
    >>> found = judge(model, test.posterior, test.y)
    >>> list(found.curves), found.words
    (['lac', 'lists of one length'], '1,500 rows to calibrate, 1,000 to test, 10 classes')
    """
    if getattr(model, "by", None) == "group":
        raise ValueError(
            'by = "group": a report is about all rows alike; for one about the guarantee over all '
            "rows, set_params(by=None)"
        )
    levels = tuple(check_probability(a, "each of accuracies") for a in accuracies)
    ranking, _ = model._labelled(scores, y)
    x: Tensor | None = None
    if features is not None:
        matched = match_columns(features, feature_names_of(model), "features")
        x = as_features(matched, rows=len(ranking))
    rows: Rows = (ranking, label_array(y), x)
    calibrated = getattr(model, "_calibration", None)
    kept = f"{len(calibrated):,} rows to calibrate, " if calibrated is not None else ""
    n = f"{len(ranking):,}{'' if kept else ' rows'}"
    words = f"{kept}{n} to test, {ranking.n_classes} classes"
    found = Comparison(levels, words, len(ranking))
    _add(found, "", model, rows)
    if not isinstance(model, FixedSelector):
        sizes = np.unique(np.geomspace(1, ranking.depth, LENGTHS).round().astype(int)).tolist()
        fixed = FixedSelector(TopK(sizes)).fit(ranking, rows[1])
        _add(found, FIXED, fixed, rows)
    return found


def _add(found: Comparison, name: str, model: SetPredictor, rows: Rows) -> None:
    curve = model.frontier(*rows)
    name = name or curve.name or type(model).__name__
    for accuracy in found.accuracies:
        guaranteed = can_guarantee(model)
        found.measured.append(measured_at(name, model, accuracy, curve, rows, guaranteed, math.nan))
    found.models[name], found.curves[name] = model, curve
    of_all = found.accuracies
    found._fitted[name] = Fitted(dict.fromkeys(of_all, model), dict.fromkeys(of_all, curve), rows)
