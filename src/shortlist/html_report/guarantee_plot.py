"""Guaranteed against kept: whether a model's guarantees are reliable, in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import betabinom, binom

from shortlist._utils.arrays import ArrayLike, as_features, check_probability
from shortlist._utils.frames import match_columns
from shortlist.conformal.quantiles import quantile_rank
from shortlist.html_report.operating_points import TARGETS, can_guarantee, guaranteed
from shortlist.predictors import SetPredictor
from shortlist.predictors.cardinality.inputs import feature_names_of
from shortlist.predictors.nested import NestedSelector
from shortlist.ranking import Ranking

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIMITS = (0.025, 0.975)


def plot_guarantee(
    model: SetPredictor,
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None = None,
    *,
    accuracies: Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the accuracy that was kept on these labelled rows against the one guaranteed, over
    many accuracies, and between which limits it falls 19 times in 20 if guarantees are kept
    exactly. The rows must be others than those of `fit` and `calibrate`.

    The limits count in that both these rows and the calibration rows are a draw (hits are
    beta-binomial; binomial where a guarantee holds with a probability). Above them, lists are
    longer than need be: at low accuracies as none is empty, or where scores tie.

    Parameters
    ----------
    accuracies : sequence of float, optional
        Default: from 0.5 to 0.999, denser near 1; those that cannot be guaranteed are left out.
    ax : matplotlib axes, optional

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(3000)
    >>> model = sl.SplitConformal("lac").fit(data.posterior[:2000], data.y[:2000])
    >>> plot_guarantee(model, data.posterior[2000:], data.y[2000:]).get_xlabel() != ""
    True
    """
    from matplotlib import pyplot as plt

    asked = [
        check_probability(a, "each of accuracies")
        for a in (TARGETS if accuracies is None else accuracies)
    ]
    ranking, index = model._labelled(scores, y)
    if not can_guarantee(model):
        raise ValueError(
            f"this {type(model).__name__} is not calibrated, and guarantees no accuracy that could "
            "be drawn; call calibrate(scores, y) first, with rows of their own"
        )
    matched = match_columns(features, feature_names_of(model), "features")
    x = None if matched is None else as_features(matched, rows=len(ranking))
    found = guaranteed(model, ranking, index, x, asked)
    levels = np.array([a for a, one in zip(asked, found, strict=True) if one is not None])
    if not len(levels):
        raise ValueError(
            f"none of the accuracies, {min(asked)} to {max(asked)}, can be guaranteed; calibrate "
            "with more rows"
        )
    kept = np.array([one[0].mean() for one in found if one is not None])
    low, high = expected_limits(model, levels, len(ranking))
    axes: Axes = plt.subplots()[1] if ax is None else ax
    axes.fill_between(levels, low, high, alpha=0.2, lw=0, label="19 times in 20, if kept exactly")
    axes.plot(levels, levels, color="black", lw=0.8, ls="--", label="guaranteed")
    axes.plot(levels, kept, marker=".", ms=3.5, lw=1.2, label=f"kept on {len(ranking):,} rows")
    axes.set_xlabel("accuracy guaranteed")
    axes.set_ylabel("accuracy (right label in the set)")
    axes.legend(loc="upper left", frameon=False)
    return axes


def expected_limits(
    model: SetPredictor, accuracies: NDArray[np.float64], rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Between which accuracies new rows fall 19 times in 20, if what is guaranteed is kept exactly.

    With n calibration rows, of which the r-th lowest level is the threshold, the accuracy on all
    new rows is Beta(n + 1 - r, r) if no levels tie, and hits among some of them beta-binomial.
    """
    calibration = getattr(model, "_calibration", None)
    if not isinstance(model, NestedSelector) or calibration is None or model.by is not None:
        low, high = (binom.ppf(limit, rows, accuracies) / rows for limit in LIMITS)
        return low, high
    n = len(calibration)
    ranks = np.array([quantile_rank(n, float(a)) for a in accuracies]).clip(1)
    low, high = (betabinom.ppf(limit, rows, n + 1 - ranks, ranks) / rows for limit in LIMITS)
    return low, high
