"""Compare methods on rows of a table, with one task for each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.validation import check_count
from shortlist.comparison import ACCURACIES, Comparison, MethodResult, Plan, plan_comparison
from shortlist.learning.settings import resolve_seed
from shortlist.predictors import SetPredictor
from shortlist.ray.cluster import connect, run_tasks
from shortlist.ray.parquet_files import Paths
from shortlist.ray.sampling import SAMPLE_ROWS, sample_rows
from shortlist.ray.table import Table


def compare(
    dataset: Paths,
    *,
    rows: int = SAMPLE_ROWS,
    test: float = 0.3,
    accuracies: Sequence[float] = ACCURACIES,
    methods: Mapping[str, SetPredictor] | None = None,
    calibration: float | None = 0.25,
    stages: bool = False,
    max_epochs: int | None = None,
    classes: ArrayLike | None = None,
    n_classes: int | None = None,
    extra_features: ArrayLike | None = None,
    extra_y: ArrayLike | None = None,
    on_bad_rows: str = "raise",
    workers: int | None = None,
    threads: int = 1,
    address: str | None = None,
    random_state: object = 0,
) -> Comparison:
    """Compare methods on rows that are sampled from a table, on a Ray cluster.

    The methods are fitted side by side. Except for run times, the result is that of
    :func:`shortlist.compare` for the same rows.

    Parameters
    ----------
    dataset : path-like or sequence of path-like
        Parquet files or folders of them, with labels `y`. See :func:`shortlist.ray.predict_set`
        for the columns.
    rows : int, default=200,000
        Approximate number of rows to sample. A table with fewer rows is used completely.
    test : float, default=0.3
        Share of the rows that are test rows.
    accuracies : sequence of float, default=(0.9, 0.95, 0.98, 0.99)
        Accuracies to compare at.
    methods : mapping of str to SetPredictor, optional
        Methods, by their names. By default those of :func:`shortlist.compare`.
    calibration : float or None, default=0.25
        Share of the other rows that are calibration rows.
    stages : bool, default=False
        Whether to compare the stages of the Shortlister too. See :func:`shortlist.compare`.
    max_epochs : int, optional
        Maximum number of epochs of methods that train networks.
    classes : array-like, optional
        Names of all classes, in the order of the scores.
    n_classes : int, optional
        Number of classes, for candidates that are integers. By default one more than the largest
        label.
    extra_features : array-like of shape (n_extra, n_features), optional
        Features of labeled rows without honest scores. See :func:`shortlist.compare`.
    extra_y : array-like of shape (n_extra,), optional
        Labels of the same rows.
    on_bad_rows : {"raise", "skip"}, default="raise"
        What to do about rows that cannot be used. See :func:`shortlist.ray.predict_set`.
    workers : int, optional
        Number of processes. By default as many as the cores of the cluster allow.
    threads : int, default=1
        Number of threads of each process.
    address : str, optional
        Address of the cluster. See :func:`shortlist.ray.predict_set`.
    random_state : int, RandomState or None, default=0
        Seed of the sample, the splits and the methods.

    Returns
    -------
    Comparison
        The table of results, and the fitted models.
    """
    table = Table.open(dataset, needs_y=True, on_bad_rows=on_bad_rows)
    connect(address)
    seed = resolve_seed(random_state)
    names = None if classes is None else np.asarray(classes)
    sample = sample_rows(table, check_count(rows, "rows"), names, seed, workers, threads)
    sample = replace(sample, n_classes=n_classes)
    assert sample.y is not None
    plan = plan_comparison(
        sample.ranking(names),
        sample.y,
        sample.features,
        test=test,
        accuracies=accuracies,
        methods=methods,
        calibration=calibration,
        stages=stages,
        max_epochs=max_epochs,
        classes=classes if table.is_dense else None,
        extra_features=extra_features,
        extra_y=extra_y,
        random_state=random_state,
    )
    order = list(plan.methods)
    task = MethodTask(plan)
    results = dict(run_tasks(task, order, "methods", workers=workers, threads=threads))
    for i in range(len(order)):
        result = results[i]
        plan.comparison.add(replace(result, fitted=replace(result.fitted, test=plan.test)))
    return plan.finish()


@dataclass(frozen=True)
class MethodTask:
    """Fit and measure one method of a comparison."""

    plan: Plan

    def __call__(self, name: str) -> MethodResult:
        """Return the result of the method with this name."""
        result = self.plan.measure(name)
        # The test rows are not sent back: the calling process has them.
        return replace(result, fitted=replace(result.fitted, test=None))  # type: ignore[arg-type]
