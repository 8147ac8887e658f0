"""The comparison of methods on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.progress import Show, track
from shortlist.comparison.measure import measure_at
from shortlist.comparison.measurements import Measurement
from shortlist.comparison.methods import default_methods
from shortlist.comparison.plan import Plan, plan_comparison
from shortlist.comparison.result import MAIN_METHOD, Comparison, FittedMethod, MethodResult
from shortlist.comparison.rows import LabeledRows, TestRows
from shortlist.predictors import SetPredictor
from shortlist.ranking import Ranking

__all__ = [
    "ACCURACIES",
    "MAIN_METHOD",
    "Comparison",
    "FittedMethod",
    "LabeledRows",
    "Measurement",
    "MethodResult",
    "Plan",
    "TestRows",
    "compare",
    "default_methods",
    "measure_at",
    "plan_comparison",
]

ACCURACIES = (0.9, 0.95, 0.98, 0.99)


def compare(
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None = None,
    *,
    test: TestRows = 0.3,
    accuracies: Sequence[float] = ACCURACIES,
    methods: Mapping[str, SetPredictor] | None = None,
    calibration: float | None = 0.25,
    stages: bool = False,
    max_epochs: int | None = None,
    classes: ArrayLike | None = None,
    extra_features: ArrayLike | None = None,
    extra_y: ArrayLike | None = None,
    progress: Show = "auto",
    random_state: object = 0,
) -> Comparison:
    """Compare methods on the same rows, with the same calibration rows.

    Parameters
    ----------
    scores : array-like of shape (n_rows, n_classes) or Ranking
        Scores of rows that the classifier was not trained on.
    y : array-like of shape (n_rows,)
        Labels.
    features : array-like of shape (n_rows, n_features), optional
        Features of the rows.
    test : float or tuple (scores, y, features), default=0.3
        Fraction of the rows to use as test rows, or the test rows themselves. A tuple
        (scores, y) is enough if the other rows have no features.
    accuracies : sequence of float, default=(0.9, 0.95, 0.98, 0.99)
        Accuracies to measure at.
    methods : mapping of str to SetPredictor, optional
        Methods by name. By default: the Shortlister, networks and logistic regression retrained
        on the features (if there are any), fixed top-k, LAC, APS, RAPS and SAPS (randomized, with
        the temperature that makes their sets shortest), the plug-in rule with logarithmic cost,
        the paper's path of selectors (which see the features alone, and a variant that also sees
        the scores), and LAC on re-scored probabilities.
    calibration : float or None, default=0.25
        Fraction of the rows to calibrate with. All methods use the same calibration rows. With
        None, all rows are used to fit, no accuracy is guaranteed, and only sizes at equal accuracy
        are measured.
    stages : bool, default=False
        Whether to add methods that show what each stage of the Shortlister contributes: the
        Shortlister without re-scoring, and LAC, RAPS and SAPS on re-scored probabilities.
    max_epochs : int, optional
        Maximum number of epochs for every method that trains networks.
    classes : array-like, optional
        Names of the score columns, in their order.
    extra_features : array-like of shape (n_extra, n_features), optional
        Features of labeled rows without honest scores, such as the rows that the classifier was
        trained on. The Shortlister and the retrained classifiers learn from them, too; the other
        methods need scores.
    extra_y : array-like of shape (n_extra,), optional
        Labels of the same rows, which must be among the classes.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. With "auto" it is shown on a terminal.
    random_state : int, RandomState instance or None, default=0
        Seed of the splits and of the default methods.

    Returns
    -------
    Comparison
        Measurements, curves and fitted models. The comparison prints as a table.

    Raises
    ------
    ValueError
        If an argument is invalid. Arguments are validated before any method is fitted.

    Notes
    -----
    A method that is tuned for an accuracy, such as APS, RAPS and SAPS with
    ``temperature="size"``, is fitted once for each accuracy. It is tuned on rows that are not used
    for calibration.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(4000)
    >>> methods = {"top-k": sl.SplitConformal("topk"), "LAC": sl.SplitConformal("lac")}
    >>> comparison = sl.compare(data.posterior, data.y, methods=methods, accuracies=[0.9])
    >>> [measurement.method for measurement in comparison.measurements]
    ['top-k', 'LAC']
    >>> comparison.at("LAC", 0.9).size < comparison.at("top-k", 0.9).size
    True
    """
    plan = plan_comparison(
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
        extra_features=extra_features,
        extra_y=extra_y,
        random_state=random_state,
    )
    with track("methods", len(plan.methods), progress) as step:
        for name in plan.methods:
            plan.comparison.add(plan.measure(name))
            step(name)
    return plan.finish()
