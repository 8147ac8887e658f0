"""Every method on the same rows of a table, on a cluster: a task for each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.validation import check_count
from shortlist.comparison import ACCURACIES, Comparison, MethodResult, Plan, plan_comparison
from shortlist.learning.settings import resolve_seed
from shortlist.predictors import SetPredictor
from shortlist.ray.cluster import connect, spread
from shortlist.ray.sampling import SAMPLE, draw
from shortlist.ray.table import Paths, Table


def compare(
    dataset: Paths,
    *,
    rows: int = SAMPLE,
    test: float = 0.3,
    accuracies: Sequence[float] = ACCURACIES,
    methods: Mapping[str, SetPredictor] | None = None,
    calibration: float | None = 0.25,
    stages: bool = False,
    max_epochs: int | None = None,
    classes: ArrayLike | None = None,
    n_classes: int | None = None,
    on_bad_rows: str = "raise",
    workers: int | None = None,
    threads: int = 1,
    address: str | None = None,
    random_state: object = 0,
) -> Comparison:
    """`shortlist.compare` by rows drawn from a table, with methods fitted side by side.

    The table of results is that of `shortlist.compare` of the same rows (times apart).

    Parameters
    ----------
    dataset : path, or several
        Parquet files, or folders of them, with labels `y`; see `shortlist.ray.predict_set`.
    rows : int
        About how many rows are drawn from it; of fewer, all are taken.
    test, accuracies, methods, calibration, stages, max_epochs, classes, random_state
        See `shortlist.compare`.
    n_classes : int, optional
        How many classes there are, for candidates that are numbers; default: as occur.
    on_bad_rows, workers, threads, address
        See `shortlist.ray.predict_set`.

    Returns
    -------
    Comparison
    """
    table = Table.open(dataset, needs_y=True, on_bad_rows=on_bad_rows)
    connect(address)
    seed = resolve_seed(random_state)
    names = None if classes is None else np.asarray(classes)
    drawn = draw(table, check_count(rows, "rows"), names, seed, workers, threads)
    drawn = replace(drawn, n_classes=n_classes)
    assert drawn.y is not None
    plan = plan_comparison(
        drawn.ranking(names),
        drawn.y,
        drawn.features,
        test=test,
        accuracies=accuracies,
        methods=methods,
        calibration=calibration,
        stages=stages,
        max_epochs=max_epochs,
        classes=None if not table.dense else classes,
        random_state=random_state,
    )
    order = list(plan.methods)
    parts = dict(spread(MeasureMethod(plan), order, "methods", workers=workers, threads=threads))
    for at in range(len(order)):
        part = parts[at]
        plan.comparison.add(replace(part, fitted=replace(part.fitted, test=plan.test)))
    return plan.finish()


@dataclass(frozen=True)
class MeasureMethod:
    """The work of one task: fit a method and measure it."""

    plan: Plan

    def __call__(self, name: str) -> MethodResult:
        part = self.plan.measure(name)
        # The caller has the test rows.
        return replace(part, fitted=replace(part.fitted, test=None))  # type: ignore[arg-type]
