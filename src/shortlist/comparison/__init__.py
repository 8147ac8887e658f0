"""Every method on the same rows: a table and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.progress import Show, track
from shortlist.comparison.measure import measured_at
from shortlist.comparison.plan import Plan, default_methods, planned
from shortlist.comparison.result import Comparison, Fitted, Measured, Part, Rows
from shortlist.predictors import SetPredictor
from shortlist.ranking import Ranking

__all__ = [
    "ACCURACIES",
    "Comparison",
    "Fitted",
    "Measured",
    "Part",
    "Plan",
    "Rows",
    "compare",
    "default_methods",
    "measured_at",
    "planned",
]

ACCURACIES = (0.9, 0.95, 0.98, 0.99)


def compare(
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None = None,
    *,
    test: float | tuple[ArrayLike | Ranking, ArrayLike, ArrayLike | None] = 0.3,
    accuracies: Sequence[float] = ACCURACIES,
    methods: Mapping[str, SetPredictor] | None = None,
    calibration: float | None = 0.25,
    stages: bool = False,
    max_epochs: int | None = None,
    classes: ArrayLike | None = None,
    progress: Show = "auto",
    random_state: object = 0,
) -> Comparison:
    """Every method on the same data, with the same calibration rows and the same temperature.

    Parameters
    ----------
    scores, y, features : arrays, or a Ranking in place of scores
        Scores of rows that the classifier did not train on, labels, and features if there are any.
    test : (scores, y, features) or float
        The rows to judge by (without features if the others have none), or the share of the rows
        given that is kept for it.
    accuracies : sequence of float
        At which sizes are compared, and which are guaranteed.
    methods : mapping of names to set predictors, optional
        Default: the Shortlister, fixed top-k, LAC, APS, RAPS, SAPS, the plug-in rule with
        logarithmic cost, the paper's path of selectors, and LAC on re-scored probabilities.
    calibration : float or None
        Share of the rows kept to make guarantees, the same for every method. None: all rows are
        learned from, and only sizes at equal accuracy are measured.
    stages : bool
        Whether to add what each stage of the Shortlister brings: it without stage 1, and RAPS and
        SAPS on re-scored probabilities.
    max_epochs : int, optional
        Train no method longer.
    classes : array-like, optional
        Names of the columns, in their order.
    progress : bool or "auto"
    random_state : int, RandomState or None

    Notes
    -----
    RAPS and SAPS are tuned for each accuracy anew, on rows that are not used for calibration.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(4000)
    >>> methods = {"top-k": sl.SplitConformal("topk"), "LAC": sl.SplitConformal("lac")}
    >>> found = sl.compare(data.posterior, data.y, methods=methods, accuracies=[0.9])
    >>> [one.method for one in found.measured]
    ['top-k', 'LAC']
    >>> found.measured[1].size < found.measured[0].size
    True
    """
    plan = planned(
        scores,
        y,
        features,
        test=test,
        accuracies=accuracies,
        methods=methods,
        calibration=calibration,
        stages=stages,
        max_epochs=max_epochs,
        classes=classes,
        random_state=random_state,
    )
    with track("methods", len(plan.methods), progress) as step:
        for name in plan.methods:
            plan.found.add(plan.measure(name))
            step(name)
    return plan.finished()
