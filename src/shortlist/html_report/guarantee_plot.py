"""Plot the measured accuracy against the guaranteed accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import betabinom, binom

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.extras import require
from shortlist._utils.validation import check_probability
from shortlist.conformal import quantile_rank
from shortlist.guarantee import Guarantee
from shortlist.html_report.operating_points import TARGETS
from shortlist.html_report.single_model import labeled_rows
from shortlist.predictors import SetPredictor
from shortlist.ranking import Ranking

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIMITS = (0.025, 0.975)
"""Quantiles of the accuracy between which the shaded area lies."""


def plot_guarantee(
    model: SetPredictor,
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None = None,
    *,
    accuracies: Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the accuracy on labeled rows against the guaranteed accuracy.

    If the guarantee is tight, the measured accuracy lies in the shaded area for 95% of all draws of
    calibration and test rows. Points above the area mean that sets are larger than necessary, at
    low accuracies because no set is empty, or because scores tie.

    Parameters
    ----------
    model : SetPredictor
        Fitted and calibrated model.
    scores : array-like of shape (n_rows, n_classes) or Ranking
        Scores of rows that are used neither to fit nor to calibrate.
    y : array-like of shape (n_rows,)
        True labels.
    features : array-like of shape (n_rows, n_features), optional
        Features, if the model uses them.
    accuracies : sequence of float, optional
        Accuracies to guarantee. By default values from 0.5 to 0.999, denser near 1. Accuracies
        that cannot be guaranteed are left out.
    ax : matplotlib.axes.Axes, optional
        Axes to plot on. By default new ones.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ValueError
        If the model is not calibrated, or can guarantee none of the accuracies.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(3000)
    >>> model = sl.SplitConformal("lac").fit(data.posterior[:2000], data.y[:2000])
    >>> plot_guarantee(model, data.posterior[2000:], data.y[2000:]).get_xlabel()
    'guaranteed accuracy'
    """
    require("matplotlib", "plot_guarantee")
    from matplotlib import pyplot as plt

    chosen = TARGETS if accuracies is None else accuracies
    asked = [check_probability(a, "each of accuracies") for a in chosen]
    rows = labeled_rows(model, scores, y, features)
    if not model.is_calibrated:
        raise ValueError(
            "this model is not calibrated and guarantees no accuracy; call calibrate "
            "first, with rows that were not used to fit"
        )
    outcomes = model.evaluate(*rows, accuracies=asked)
    reached = [(a, one) for a, one in zip(asked, outcomes, strict=True) if one is not None]
    if not reached:
        raise ValueError(
            f"none of the accuracies, {min(asked)} to {max(asked)}, can be guaranteed; calibrate "
            "with more rows"
        )
    levels = np.array([accuracy for accuracy, _ in reached])
    measured = np.array([one.hits.mean() for _, one in reached])
    n_rows, first = len(rows.ranking), rows.take(np.arange(1))
    sets = model.predict_if_reachable(first.ranking, first.features, accuracy=reached[0][0])
    assert sets is not None
    low, high = expected_limits(sets.guarantee, levels, n_rows)
    axes: Axes = plt.subplots()[1] if ax is None else ax
    axes.fill_between(levels, low, high, alpha=0.2, lw=0, label="95% of draws, if tight")
    axes.plot(levels, levels, color="black", lw=0.8, ls="--", label="guaranteed")
    axes.plot(levels, measured, marker=".", ms=3.5, lw=1.2, label=f"on {n_rows:,} test rows")
    axes.set_xlabel("guaranteed accuracy")
    axes.set_ylabel("accuracy (label in the set)")
    axes.legend(loc="upper left", frameon=False)
    return axes


def expected_limits(
    guarantee: Guarantee, accuracies: NDArray[np.float64], n_rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return limits between which the measured accuracy lies in 95% of all draws.

    With n calibration rows and the r-th lowest level as threshold, the accuracy on all new rows
    has the distribution Beta(n + 1 - r, r) if no levels tie, and the number of hits among some of
    them is beta-binomial. For other guarantees the limits are binomial.
    """
    if guarantee.kind != "marginal" or guarantee.conditional_on is not None:
        low, high = (binom.ppf(limit, n_rows, accuracies) / n_rows for limit in LIMITS)
        return low, high
    n = guarantee.n_calibration
    ranks = np.array([quantile_rank(n, float(a)) for a in accuracies]).clip(1)
    low, high = (betabinom.ppf(limit, n_rows, n + 1 - ranks, ranks) / n_rows for limit in LIMITS)
    return low, high
