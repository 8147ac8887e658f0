"""Every method on the same rows of a table, on a cluster: a task for each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shortlist._arrays import ArrayLike, check_count
from shortlist._settings import seed_of
from shortlist._warnings import warn
from shortlist.comparison import ACCURACIES, Comparison, Part, Plan, planned
from shortlist.ray._cluster import connect, spread
from shortlist.ray._table import Drawn, Paths, Piece, Table
from shortlist.rows import Rows
from shortlist.selectors import SetPredictor

SAMPLE = 200_000
"""So many rows tell methods apart: sizes at 99% differ by less than 1% from draw to draw."""


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
        How many rows are drawn from it; of fewer, all are taken.
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
    seed = seed_of(random_state)
    names = None if classes is None else np.asarray(classes)
    drawn = draw(table, check_count(rows, "rows"), names, seed, workers, threads)
    drawn = replace(drawn, n_classes=n_classes)
    assert drawn.y is not None
    plan = planned(
        drawn.given(names),
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
    parts = dict(spread(MeasureMethod(plan), order, workers=workers, threads=threads))
    for at in range(len(order)):
        part = parts[at]
        plan.found.add(replace(part, fitted=replace(part.fitted, judged=plan.judged)))
    return plan.finished()


@dataclass(frozen=True)
class MeasureMethod:
    """The work of one task: fit a method and measure it."""

    plan: Plan

    def __call__(self, name: str) -> Part:
        part = self.plan.measure(name)
        # The rows to judge by are where this came from.
        return replace(part, fitted=replace(part.fitted, judged=None))  # type: ignore[arg-type]


def draw(
    table: Table,
    rows: int,
    classes: NDArray[np.generic] | None,
    seed: int,
    workers: int | None,
    threads: int,
    *,
    without: Drawn | None = None,
) -> Rows:
    """About so many rows of a table, at random, in its order; all, if there are no more. Those
    that are drawn for another purpose, `without`, are not among them."""
    left = table.rows * (1.0 if without is None else 1 - without.share)
    drawn = Drawn(min(1.0, rows / left), seed + 2000)
    work = TakeRows(table, drawn, without, classes)
    found = dict(spread(work, table.pieces, workers=workers, threads=threads))
    skipped = sum(left_out for _, left_out in found.values())
    if skipped:
        warn(f"{skipped:,} bad rows were left out")
    parts = [found[at][0] for at in sorted(found) if found[at][0] is not None]
    if not parts:
        raise ValueError("no row is left to learn from")
    return Rows.together(parts)


@dataclass(frozen=True)
class TakeRows:
    """The work of one task: rows of a piece that are drawn, and how many were bad."""

    table: Table
    drawn: Drawn
    without: Drawn | None
    classes: NDArray[np.generic] | None

    def __call__(self, piece: Piece) -> tuple[Rows | None, int]:
        found, skipped = [], 0
        for block in self.table.read(piece, self.classes):
            skipped += block.skipped
            numbers = block.numbers - piece.first + piece.start
            mask = self.drawn.of(numbers)
            if self.without is not None:
                mask &= ~self.without.of(numbers)
            if mask.any():
                found.append(block.rows[mask])
        return (Rows.together(found) if found else None), skipped
