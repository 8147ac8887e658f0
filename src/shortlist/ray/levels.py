"""Levels of the true labels of a table, computed by tasks and collected to calibrate a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist._utils.arrays import as_features
from shortlist._utils.warnings import warn
from shortlist.conformal.calibration import Calibration
from shortlist.conformal.row_schema import RowSchema
from shortlist.datasets import Rows
from shortlist.datasets.bad_rows import warn_if_skipped
from shortlist.learning.settings import resolve_seed
from shortlist.predictors import SetPredictor
from shortlist.predictors.conformal import CHOOSING_VALUES, ConformalPredictor
from shortlist.ranking import Ranking
from shortlist.ray.sampling import ListedRows, RandomRows, RowSelection, select_rows
from shortlist.ray.sketch import Sketch
from shortlist.ray.table import Block, Piece, Table


@dataclass(frozen=True)
class NumberedRows:
    """Rows, and their numbers in the table."""

    numbers: NDArray[np.int64]
    rows: Rows


@dataclass
class PieceLevels:
    """Levels of the true labels of a piece, and what kind of rows they belong to.

    Attributes
    ----------
    numbers, levels, labels : list of array
        Row number, level and label index of each row, block by block, if levels are kept exactly.
    sketch : Sketch or None
        Counts of the levels otherwise, without those of the choosing rows.
    choosing : list of NumberedRows
        The choosing rows, whose mean set sizes choose a threshold.
    lengths : list of int
        Smallest and largest number of candidates of a row, of each block.
    depth : int
        Number of ranked labels.
    precision : str
        Floating type of the scores.
    exhaustive : bool
        Whether a set can contain every label.
    n_skipped, n_unknown : int
        Number of bad rows, and of rows whose label is of an unknown class.
    """

    numbers: list[NDArray[np.int64]] = field(default_factory=list)
    levels: list[NDArray[np.float64]] = field(default_factory=list)
    labels: list[NDArray[np.int32]] = field(default_factory=list)
    sketch: Sketch | None = None
    choosing: list[NumberedRows] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    depth: int = 1
    precision: str = "float32"
    exhaustive: bool = True
    n_skipped: int = 0
    n_unknown: int = 0


@dataclass(frozen=True)
class LevelsTask:
    """Compute the levels of the true labels of a piece.

    Attributes
    ----------
    table : Table
        Table of the piece.
    model : ConformalPredictor
        Fitted model.
    held_out : RandomRows or None
        Rows to calibrate with; None for all.
    exact : bool
        Whether to keep the level of each row. Otherwise they are counted.
    choosing : RowSelection
        Rows to return with their scores and features.
    choosing_only : bool, default=False
        Whether to return these rows only, without levels.
    """

    table: Table
    model: ConformalPredictor
    held_out: RandomRows | None
    exact: bool
    choosing: RowSelection
    choosing_only: bool = False

    def __call__(self, piece: Piece) -> PieceLevels:
        """Return the levels and the choosing rows of the piece."""
        result = PieceLevels()
        for block in self.table.read(piece, self.model.classes_, check_y=False):
            result.n_skipped += block.n_skipped
            self._add(block, result)
        return result

    def _add(self, block: Block, result: PieceLevels) -> None:
        numbers, rows = select_rows(block, self.held_out)
        if not len(numbers):
            return
        is_choosing = self.choosing.contains(numbers)
        if is_choosing.any():
            result.choosing.append(NumberedRows(numbers[is_choosing], rows[is_choosing]))
        if self.choosing_only:
            return
        ranking, index, x = validate_rows(self.model, rows)
        levels = self.model._level_function().lowest_levels(ranking, index, x)
        lengths = ranking.lengths()
        result.lengths += [int(lengths.min()), int(lengths.max())]
        result.depth = max(result.depth, ranking.depth)
        result.precision = ranking.precision
        result.exhaustive &= self.model._level_function().is_exhaustive(ranking)
        result.n_unknown += int((index < 0).sum())
        if self.exact:
            result.numbers.append(numbers)
            result.levels.append(levels)
            result.labels.append(index.cpu().numpy().astype(np.int32))
        else:
            part = Sketch.of(levels[~is_choosing])
            result.sketch = part if result.sketch is None else result.sketch + part


class LevelCollector:
    """The results of all tasks.

    Parameters
    ----------
    model : ConformalPredictor
        Fitted model.
    table : Table
        Table with the calibration rows.
    exact : bool
        Whether the level of each row is kept.
    held_out : RandomRows or None
        Rows to calibrate with; None for all.
    """

    def __init__(
        self, model: ConformalPredictor, table: Table, exact: bool, held_out: RandomRows | None
    ) -> None:
        self.model, self.table, self.exact, self.held_out = model, table, exact, held_out
        self.parts: dict[int, PieceLevels] = {}
        self.sketch: Sketch | None = None
        self.choosing: list[NumberedRows] = []

    def add(self, piece: int, part: PieceLevels) -> None:
        """Add the result of a task."""
        self.choosing += part.choosing
        if part.sketch is not None:
            self.sketch = part.sketch if self.sketch is None else self.sketch + part.sketch
            part.sketch = None  # Its memory is released: the collected sketch contains it.
        self.parts[piece] = part

    @property
    def n_rows(self) -> int:
        """Number of rows whose levels are known."""
        if self.sketch is not None:
            return self.sketch.n_rows
        return sum(len(levels) for part in self.parts.values() for levels in part.levels)

    def check(self) -> None:
        """Raise if there are no rows, and warn of those that are skipped or certain misses."""
        if not self.n_rows:
            raise ValueError("no rows are left to calibrate with")
        warn_if_skipped(sum(part.n_skipped for part in self.parts.values()))
        n_unknown = sum(part.n_unknown for part in self.parts.values())
        if n_unknown:
            warn(
                f"{n_unknown:,} calibration rows have a label that is not one of the model's "
                "classes; they count as misses, since no set can contain it"
            )

    def choose_in_advance(self) -> RowSelection:
        """Return which rows choose a threshold by mean size; none if that is not known yet."""
        table = self.table
        if not self.exact:
            wanted = max(1000, CHOOSING_VALUES // (table.width or 64))
            share = 1.0 if self.held_out is None else self.held_out.share
            chance = min(0.5, wanted / (table.n_rows * share))
            return RandomRows(chance, resolve_seed(self.model.random_state) + 1000)
        if table.on_bad_rows == "raise" and table.width is not None and self.held_out is None:
            order, n_choosing = self.model._calibration_order(table.n_rows, table.width)
            return ListedRows(order[:n_choosing].astype(np.int64))
        return ListedRows(np.empty(0, dtype=np.int64))

    def choosing_numbers(self) -> NDArray[np.int64]:
        """Return the numbers of the choosing rows, after all levels have been collected."""
        order, n_choosing = self.model._calibration_order(self.n_rows, self._depth())
        return np.asarray(self._concatenate("numbers")[order[:n_choosing]])

    def has_choosing_rows(self) -> bool:
        """Return whether all choosing rows have been collected.

        Their number depends on the longest list of candidates, which may be shorter than the
        schema of the table allows.
        """
        collected = {number for part in self.choosing for number in part.numbers.tolist()}
        return collected >= set(self.choosing_numbers().tolist())

    def calibration(self) -> Calibration:
        """Return the calibration of the model by the collected rows."""
        own_fields = self._exact_fields() if self.exact else self._counted_fields()
        return Calibration(
            groups=None,
            group_names=[],
            schema=self._schema(),
            n_given=None if self.held_out is None else self.table.n_rows,
            exhaustive=all(part.exhaustive for part in self.parts.values()),
            parameters=self.model._level_parameters(),
            **own_fields,
        )

    def _exact_fields(self) -> dict[str, Any]:
        levels, labels, numbers = map(self._concatenate, ("levels", "labels", "numbers"))
        # The order is the same as in a single process.
        order, n_choosing = self.model._calibration_order(len(levels), self._depth())
        choosing = order[:n_choosing]
        ranking, _, x = validate_rows(self.model, self._choosing_rows(numbers[choosing]))
        self.model._warn_if_trained_on(ranking)
        return {
            "levels": levels[order],
            "y": labels.astype(np.int64)[order],
            "n_choosing": n_choosing,
            **self.model._level_function().size_table(levels[choosing], ranking, x),
        }

    def _counted_fields(self) -> dict[str, Any]:
        assert self.sketch is not None
        numbers = np.sort(np.concatenate([part.numbers for part in self.choosing]))
        ranking, index, x = validate_rows(self.model, self._choosing_rows(numbers))
        self.model._warn_if_trained_on(ranking)
        levels = self.sketch.representatives()
        function = self.model._level_function()
        return {
            "levels": levels,
            # Labels are not known. One that no set can contain may be of an unknown class.
            "y": np.where(np.isneginf(levels), -1, 0),
            "n_choosing": 0,
            "n_chosen_elsewhere": len(numbers),
            **function.size_table(function.lowest_levels(ranking, index, x), ranking, x),
        }

    def _concatenate(self, name: str) -> NDArray[Any]:
        """Return an attribute of all parts, in the order of the table."""
        return np.concatenate([x for i in sorted(self.parts) for x in getattr(self.parts[i], name)])

    def _depth(self) -> int:
        return max(part.depth for part in self.parts.values())

    def _schema(self) -> RowSchema:
        parts = [part for part in self.parts.values() if part.lengths]
        lengths = [length for part in parts for length in part.lengths]
        return RowSchema(
            self.table.is_dense, self._depth(), (min(lengths), max(lengths)), parts[0].precision
        )

    def _choosing_rows(self, numbers: NDArray[np.int64]) -> Rows:
        """Return the choosing rows in the order of these numbers."""
        collected = np.concatenate([part.numbers for part in self.choosing])
        rows = Rows.concatenate([part.rows for part in self.choosing])
        place = np.argsort(collected)
        return rows[place[np.searchsorted(collected[place], numbers)]]


def validate_rows(
    model: SetPredictor, rows: Rows
) -> tuple[Ranking, torch.Tensor, torch.Tensor | None]:
    """Return the ranking, the label indices and the features of rows, validated by a model."""
    matched = rows.match_columns(model.classes_, model.feature_names)
    assert matched.y is not None
    ranking, index = model._validate_labeled(
        matched.ranking(model.classes_), matched.y, unknown="some"
    )
    x = None if matched.features is None else as_features(matched.features, rows=len(ranking))
    return ranking, index, x
