"""Calibration by a table, on a cluster: conformal scores of its rows, or their counts."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist._utils.arrays import as_features
from shortlist._utils.warnings import warn
from shortlist.conformal.calibration import Calibration, RowSchema
from shortlist.conformal.path_calibration import PathCalibration
from shortlist.datasets import Rows
from shortlist.learning.settings import resolve_seed
from shortlist.predictors import CardinalityPath, SetPredictor
from shortlist.predictors.cardinality.inputs import feature_names_of
from shortlist.predictors.conformal import CHOOSING_VALUES, ConformalPredictor
from shortlist.ranking import Ranking
from shortlist.ray.bad_rows import warn_of_bad_rows
from shortlist.ray.cluster import connect, spread
from shortlist.ray.prediction import check_model
from shortlist.ray.sampling import Drawn
from shortlist.ray.sketch import Sketch
from shortlist.ray.table import Paths, Piece, Table

EXACT_ROWS = 1 << 25
"""Maximum number of rows whose levels are kept exactly; beyond it, they are counted."""


def calibrate(
    dataset: Paths,
    model: SetPredictor,
    *,
    exact: bool | None = None,
    on_bad_rows: str = "raise",
    workers: int | None = None,
    threads: int = 1,
    address: str | None = None,
) -> SetPredictor:
    """Make guarantees by the rows of a table, in place of those that the fit kept, on a cluster.

    The guarantees are those that `model.calibrate` would make of the same rows, to the last digit,
    up to 33 million of them. Of more, scores are rounded down and counted: guarantees hold as well,
    and sets are longer by no more than 0.0002% of accuracy takes.

    Parameters
    ----------
    dataset : path, or several
        Parquet files, or folders of them, with labels `y`; see `shortlist.ray.predict_set`.
    model : a fitted set predictor
        It is changed, and returned.
    exact : bool, optional
        Whether each row's score is kept, or they are counted. Default: by the number of rows.
        Guarantees by class need it.
    on_bad_rows, workers, threads, address
        See `shortlist.ray.predict_set`.

    Returns
    -------
    The model.
    """
    check_model(model)
    table = Table.open(dataset, needs_y=True, on_bad_rows=on_bad_rows)
    return calibrate_table(
        table, model, exact=exact, workers=workers, threads=threads, address=address
    )


def calibrate_table(
    table: Table,
    model: SetPredictor,
    *,
    kept: Drawn | None = None,
    exact: bool | None = None,
    workers: int | None,
    threads: int,
    address: str | None,
) -> SetPredictor:
    """The same of a table that is open; by those of its rows that a fit kept, perhaps."""
    if not hasattr(model, "calibrate"):
        raise ValueError(
            f"a {type(model).__name__} makes no guarantees; there is nothing to calibrate"
        )
    connect(address)
    if model.has_additive_calibration:
        parts = [
            part
            for _, part in spread(
                JudgePiece(table, model, kept),
                table.pieces,
                "calibrating",
                workers=workers,
                threads=threads,
            )
            if part is not None
        ]
        model._path_calibration = _together(parts)
        return model
    model._check_parameters()
    share = 1.0 if kept is None else kept.share
    if exact is None:
        exact = table.rows * share <= EXACT_ROWS
    found = _Levels(model, table, exact, kept)
    chosen = found.chosen_beforehand()
    work = LevelsOfPiece(table, model, kept, exact, chosen)
    for at, part in spread(work, table.pieces, "calibrating", workers=workers, threads=threads):
        found.add(at, part)
    found.check()
    if exact and not found.have_all_chosen():
        again = LevelsOfPiece(table, model, kept, exact, found.chosen(), chosen_only=True)
        found.raw = []
        for _, part in spread(
            again, table.pieces, "rows that choose", workers=workers, threads=threads
        ):
            found.raw += part["chosen"]
    model._calibration = found.calibration()
    return model


@dataclass(frozen=True)
class _Chosen:
    """Raw rows that choose a threshold by mean size, and their numbers in the table."""

    numbers: NDArray[np.int64]
    rows: Rows


@dataclass(frozen=True)
class LevelsOfPiece:
    """The work of one task: the conformal scores of a piece's right labels."""

    table: Table
    model: ConformalPredictor
    kept: Drawn | None
    exact: bool
    chosen: NDArray[np.int64] | Drawn | None
    """Numbers, in the table, of the rows that choose; None: they are not known yet."""
    chosen_only: bool = False

    def __call__(self, piece: Piece) -> dict[str, Any]:
        found: dict[str, list[Any]] = {"numbers": [], "levels": [], "labels": [], "chosen": []}
        lengths, depth, skipped, unknown = [], 1, 0, 0
        exhaustive, precision = True, "float32"
        sketch: Sketch | None = None
        for block in self.table.read(piece, self.model.classes_, check_y=False):
            skipped += block.skipped
            numbers = block.numbers - piece.first + piece.start
            rows = block.rows
            if self.kept is not None and len(numbers):
                held = self.kept.of(numbers)
                numbers, rows = numbers[held], rows[held]
            if not len(numbers):
                continue
            mine = self._choosing(numbers)
            if mine.any():
                found["chosen"].append(_Chosen(numbers[mine], rows[mine]))
            if self.chosen_only:
                continue
            ranking, index, x = opened(self.model, rows)
            levels = self.model._lowest_levels(ranking, index, x)
            unknown += int((index < 0).sum())
            exhaustive &= self.model._is_exhaustive(ranking)
            precision = ranking.precision
            listed = ranking.listed()
            lengths += [int(listed.min()), int(listed.max())]
            depth = max(depth, ranking.depth)
            if self.exact:
                found["numbers"].append(numbers)
                found["levels"].append(levels)
                found["labels"].append(index.cpu().numpy().astype(np.int32))
            else:
                part = Sketch.of(levels[~mine])
                sketch = part if sketch is None else sketch + part
        return {
            **{k: _joined(v) for k, v in found.items() if k != "chosen"},
            "chosen": found["chosen"],
            "sketch": sketch,
            "lengths": (min(lengths), max(lengths)) if lengths else None,
            "depth": depth,
            "skipped": skipped,
            "unknown": unknown,
            "exhaustive": exhaustive,
            "precision": precision,
        }

    def _choosing(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows choose, so far as it is known."""
        if isinstance(self.chosen, Drawn):
            return self.chosen.of(numbers)
        nobody = np.empty(0, dtype=np.int64)
        return np.isin(numbers, nobody if self.chosen is None else self.chosen)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any] | None:
    return np.concatenate(parts) if parts else None


class _Levels:
    """What the tasks found, put together."""

    def __init__(
        self, model: ConformalPredictor, table: Table, exact: bool, kept: Drawn | None
    ) -> None:
        self.model, self.table, self.exact, self.kept = model, table, exact, kept
        self.parts: dict[int, dict[str, Any]] = {}
        self.sketch: Sketch | None = None
        self.lengths: list[int] = []
        self.depth, self.skipped, self.unknown = 1, 0, 0
        self.exhaustive, self.precision = True, "float32"
        self.raw: list[_Chosen] = []

    def add(self, at: int, part: dict[str, Any]) -> None:
        self.raw += part.pop("chosen")
        self.depth = max(self.depth, part["depth"])
        self.lengths += part["lengths"] or ()
        self.skipped += part["skipped"]
        self.unknown += part["unknown"]
        self.exhaustive &= part["exhaustive"]
        self.precision = part["precision"] if part["lengths"] else self.precision
        if self.exact and part["levels"] is not None:
            self.parts[at] = part
        elif part["sketch"] is not None:
            found = part["sketch"]
            self.sketch = found if self.sketch is None else self.sketch + found

    def check(self) -> None:
        if not self.parts and self.sketch is None:
            raise ValueError("no row is left to calibrate with")
        warn_of_bad_rows(self.skipped)
        if self.unknown:
            warn(
                f"{self.unknown:,} calibration rows have a label of no class that the model knows; "
                "they count as misses, since no set can contain it"
            )

    @property
    def rows(self) -> int:
        if self.sketch is not None:
            return self.sketch.rows
        return sum(len(part["levels"]) for part in self.parts.values())

    def _all(self, name: str) -> NDArray[Any]:
        """Of all rows, in the order of the table."""
        return np.concatenate([self.parts[at][name] for at in sorted(self.parts)])

    def chosen_beforehand(self) -> NDArray[np.int64] | Drawn | None:
        """Which rows choose a threshold by mean size; None: that depends on what is found."""
        table = self.table
        if not self.exact:
            wanted = max(1000, CHOOSING_VALUES // (table.width or 64))
            share = 1.0 if self.kept is None else self.kept.share
            chance = min(0.5, wanted / (table.rows * share))
            return Drawn(chance, resolve_seed(self.model.random_state) + 1000)
        if table.on_bad_rows == "raise" and table.width is not None and self.kept is None:
            order, chose = self.model._calibration_order(table.rows, table.width)
            return order[:chose].astype(np.int64)
        return None

    def chosen(self) -> NDArray[np.int64]:
        """The same, when everything else is found: numbers in the table."""
        order, chose = self.model._calibration_order(self.rows, self.depth)
        return np.asarray(self._all("numbers")[order[:chose]])

    def have_all_chosen(self) -> bool:
        """Whether the rows that choose are here. How many there are depends on the longest list,
        which may be shorter than the schema has room for."""
        here = {number for one in self.raw for number in one.numbers.tolist()}
        return here >= set(self.chosen().tolist())

    def calibration(self) -> Calibration:
        model = self.model
        lengths = min(self.lengths), max(self.lengths)
        shape = RowSchema(self.table.dense, self.depth, lengths, self.precision)
        if not self.exact:
            return self._counted(shape)
        levels, labels, numbers = (self._all(n) for n in ("levels", "labels", "numbers"))
        # In the very order that one process would have them in.
        order, chose = model._calibration_order(len(levels), self.depth)
        chosen = order[:chose]
        ranking, _, x = opened(model, self._chosen_rows(numbers[chosen]))
        model._warn_if_trained_on(ranking)
        return Calibration(
            levels=levels[order],
            y=labels.astype(np.int64)[order],
            groups=None,
            group_names=[],
            schema=shape,
            n_given=None if self.kept is None else self.table.rows,
            n_choosing=chose,
            exhaustive=self.exhaustive,
            parameters=model._level_parameters(),
            **model._size_table(levels[chosen], ranking, x),
        )

    def _chosen_rows(self, numbers: NDArray[np.int64]) -> Rows:
        """The raw rows that choose, in this order."""
        found = np.concatenate([one.numbers for one in self.raw])
        whole = Rows.concatenate([one.rows for one in self.raw])
        place = np.argsort(found)
        return whole[place[np.searchsorted(found[place], numbers)]]

    def _counted(self, shape: RowSchema) -> Calibration:
        model = self.model
        assert self.sketch is not None
        numbers = np.sort(np.concatenate([one.numbers for one in self.raw]))
        ranking, index, x = opened(model, self._chosen_rows(numbers))
        model._warn_if_trained_on(ranking)
        own = model._lowest_levels(ranking, index, x)
        levels = self.sketch.stand_ins()
        return Calibration(
            levels=levels,
            # Labels are not known. One that no set can contain may be of an unknown class.
            y=np.where(np.isneginf(levels), -1, 0),
            groups=None,
            group_names=[],
            schema=shape,
            n_given=None if self.kept is None else self.table.rows,
            n_choosing=0,
            n_chosen_elsewhere=len(numbers),
            exhaustive=self.exhaustive,
            parameters=model._level_parameters(),
            **model._size_table(own, ranking, x),
        )


def opened(model: SetPredictor, rows: Rows) -> tuple[Ranking, torch.Tensor, torch.Tensor | None]:
    """The ranking, the label indices and the features of some rows, as a model takes them."""
    part = rows.match_columns(model.classes_, feature_names_of(model))
    assert part.y is not None
    given = part.ranking(model.classes_)
    ranking, index = model._validate_labelled(given, part.y, unknown="miss")
    x = None if part.features is None else as_features(part.features, rows=len(ranking))
    return ranking, index, x


@dataclass(frozen=True)
class JudgePiece:
    """The work of one task: how the members of a path fare on a piece."""

    table: Table
    model: CardinalityPath
    kept: Drawn | None

    def __call__(self, piece: Piece) -> PathCalibration | None:
        found: list[PathCalibration] = []
        for block in self.table.read(piece, self.model.classes_, check_y=False):
            rows, numbers = block.rows, block.numbers - piece.first + piece.start
            if self.kept is not None and len(numbers):
                held = self.kept.of(numbers)
                numbers, rows = numbers[held], rows[held]
            if len(numbers):
                model = copy.copy(self.model)
                ranking, _, x = opened(model, rows)
                assert rows.y is not None
                model.calibrate(ranking, rows.y, x)
                assert model._path_calibration is not None
                found.append(model._path_calibration)
        return _together(found) if found else None


def _together(parts: list[PathCalibration]) -> PathCalibration:
    if not parts:
        raise ValueError("no row is left to calibrate with")

    def added(name: str) -> list[int]:
        return np.sum([getattr(part, name) for part in parts], axis=0).tolist()  # type: ignore[no-any-return]

    return PathCalibration(
        parts[0].weights, sum(part.rows for part in parts), added("hits"), added("labels")
    )
