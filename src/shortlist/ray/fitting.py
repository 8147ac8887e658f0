"""A fit on a cluster: workers that learn together, each from its part of a table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from shortlist._utils import out_of_core
from shortlist._utils.arrays import ArrayLike
from shortlist._utils.validation import check_count
from shortlist.datasets.rows import Rows, are_indices
from shortlist.learning.process_group import SingleProcess, use_process_group
from shortlist.learning.settings import resolve_seed
from shortlist.predictors import SetPredictor, Shortlister
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import infer_score_type
from shortlist.ray.calibration import calibrate_table
from shortlist.ray.cluster import check_room, connect, cores, spread
from shortlist.ray.sampling import SAMPLE, Drawn, draw
from shortlist.ray.table import Paths, Piece, Table
from shortlist.ray.training import trained


def fit(
    dataset: Paths,
    model: SetPredictor | None = None,
    *,
    classes: ArrayLike | None = None,
    n_classes: int | None = None,
    on_bad_rows: str = "raise",
    workers: int | None = None,
    threads: int = 1,
    use_gpu: bool = False,
    storage: str | os.PathLike[str] | None = None,
    max_failures: int = 10,
    address: str | None = None,
) -> SetPredictor:
    """Fit a method to the rows of a table, on a cluster.

    Networks are trained data-parallel, on Ray Train: each worker lays out its part of the rows on
    its own disk, and gradients are averaged over all. The batch is that of one process, shared out.
    State is kept from epoch to epoch, so that a worker that dies costs time and nothing else.
    Methods without networks learn their few parameters from 200,000 rows. Then all rows that were
    kept for it calibrate, as `shortlist.ray.calibrate` does.

    Parameters
    ----------
    dataset : path, or several
        Parquet files, or folders of them, with labels `y`; see `shortlist.ray.predict_set`.
    model : set predictor, optional
        Not fitted, and not changed; default: a `Shortlister`. `calibration` says which share of
        the rows is kept to make guarantees.
    classes : array-like, optional
        Names of all classes, in the order of the scores. Default: labels that are numbers count
        the classes from 0; of others, all that occur, sorted.
    n_classes : int, optional
        How many classes there are, for candidates that are numbers; default: as occur.
    on_bad_rows, threads, address
        See `shortlist.ray.predict_set`.
    workers : int, optional
        How many processes learn together; default: as many as the cluster has cores.
    use_gpu : bool
        A GPU for each of them.
    storage : path, optional
        Where checkpoints are kept: a folder that all workers see. Default: a temporary one, for a
        cluster of one machine.
    max_failures : int
        How often workers may die.

    Returns
    -------
    A fitted model of the same kind: to be saved, loaded and exported as any other.
    """
    chosen: SetPredictor = clone(Shortlister() if model is None else model)
    table = Table.open(dataset, needs_y=True, on_bad_rows=on_bad_rows)
    connect(address)
    workers = max(1, cores() // threads) if workers is None else check_count(workers, "workers")
    seed = resolve_seed(chosen.random_state) if hasattr(chosen, "random_state") else 0
    share = chosen.get_params().get("calibration")
    # A method that has nothing to learn calibrates with all rows.
    kept = None if share is None or not chosen._learns() else Drawn(float(share), seed)
    names = _names(table, classes, n_classes, workers, threads)
    sample = draw(table, SAMPLE, names.classes, seed, workers, threads, without=kept)
    ranking = names.ranking(sample)
    kind = infer_score_type(ranking, chosen.score_type)
    given = chosen.get_params(deep=False)
    chosen.set_params(score_type=kind)
    if "calibration" in given:
        chosen.set_params(calibration=None)
    if not chosen.trains_networks:
        assert sample.y is not None
        chosen.fit(ranking, sample.y, sample.features, classes=names.of_columns)
    else:
        check_room(workers, threads, use_gpu)
        work = LearnTogether(table, chosen, names, kept)
        chosen = trained(
            work,
            workers=workers,
            threads=threads,
            use_gpu=use_gpu,
            storage=storage,
            max_failures=max_failures,
        )
    chosen.set_params(**{n: given[n] for n in ("score_type", "calibration") if n in given})
    if share is not None:
        settings = {"workers": workers, "threads": threads, "address": address}
        calibrate_table(table, chosen, kept=kept, **settings)  # type: ignore[arg-type]
    return chosen


@dataclass(frozen=True)
class Names:
    """What the classes are called, and how many there are."""

    classes: NDArray[np.generic]
    """All labels there can be."""

    @property
    def of_columns(self) -> NDArray[np.generic] | None:
        """Names of the columns, where they have any."""
        return None if are_indices(self.classes) else self.classes

    def ranking(self, rows: Rows) -> Ranking:
        return rows.ranking(self.classes)


def _names(
    table: Table,
    classes: ArrayLike | None,
    n_classes: int | None,
    workers: int,
    threads: int,
) -> Names:
    """The classes of a table: as given, as its schema says, or as they occur."""
    if classes is not None:
        return Names(np.asarray(classes))
    if n_classes is not None:
        return Names(np.arange(check_count(n_classes, "n_classes")))
    if table.dense and table.width is not None and table.numbered:
        return Names(np.arange(table.width))
    found: set[Any] = set()
    work = OccurringLabels(table)
    for _, labels in spread(
        work, table.pieces, "labels that occur", workers=workers, threads=threads
    ):
        found |= labels
    if all(isinstance(label, int) for label in found):
        return Names(np.arange(max(found) + 1))
    return Names(np.array(sorted(map(str, found))))


@dataclass(frozen=True)
class OccurringLabels:
    """The work of one task: which labels there are in a piece."""

    table: Table

    def __call__(self, piece: Piece) -> set[Any]:
        found: set[Any] = set()
        for block in self.table.read(piece, None):
            if block.rows.y is not None:
                found |= set(np.unique(block.rows.y).tolist())
            if isinstance(block.rows.labels, np.ndarray):
                found |= set(np.unique(block.rows.labels).tolist())
            elif block.rows.labels is not None:
                found |= {label for row in block.rows.labels for label in row}
        return found - {-1, None}


@dataclass(frozen=True)
class LearnTogether:
    """The work of each of several processes."""

    table: Table
    model: SetPredictor
    names: Names
    kept: Drawn | None

    def __call__(self, group: SingleProcess) -> SetPredictor:
        with use_process_group(group):
            wrong, gathered = None, None
            try:
                gathered = self._gathered(group)
            except (ValueError, OSError) as error:
                wrong = str(error)
            for words in group.gather_objects(wrong):  # all of them end, or none
                if words is not None:
                    raise ValueError(words)
            rows = gathered
            assert rows is not None
            ranking = self.names.ranking(rows)
            if not ranking.is_dense:
                ranking = _deeper(ranking, group.max(ranking.depth))
            assert rows.y is not None
            self.model.fit(ranking, rows.y, rows.features, classes=self.names.of_columns)
        rescorer = getattr(self.model, "_rescorer", None)
        if rescorer is not None:  # of the rows of this process, for whose scores nobody will ask
            rescorer.folds = rescorer.folds[:0].clone()
            rescorer.index = rescorer.index[:0].clone()
        return self.model

    def _gathered(self, group: SingleProcess) -> Rows:
        """This process's part of the rows, large matrices in scratch files."""
        at = (group.rank, group.rank + 1)
        first, last = (i * self.table.rows // group.world_size for i in at)
        found = _Gathered(last - first)
        for piece in self.table.pieces:
            if piece.start + piece.rows <= first or piece.start >= last:
                continue
            for block in self.table.read(piece, self.names.classes):
                numbers = block.numbers - piece.first + piece.start
                mine = (numbers >= first) & (numbers < last)
                if self.kept is not None:
                    mine &= ~self.kept.of(numbers)
                if mine.any():
                    found.add(block.rows[mine])
        return found.rows()


class _Gathered:
    """Rows that come a block after the other, in tables as long as there can be any."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.tables: dict[str, out_of_core.TableBuilder] = {}
        self.y: list[NDArray[Any]] = []
        self.ragged: list[Rows] = []
        self.like: Rows | None = None

    def add(self, rows: Rows) -> None:
        self.like = rows
        assert rows.y is not None
        if not self._fits(rows.scores) or not isinstance(rows.labels, np.ndarray | None):
            self.ragged.append(rows)  # lists of any length
            return
        for name in ("scores", "labels", "features"):
            values = getattr(rows, name)
            if values is None:
                continue
            if name in self.tables:
                self.tables[name].append(values)
            else:
                self.tables[name] = out_of_core.TableBuilder(self.most, values)
        self.y.append(rows.y)

    def _fits(self, scores: object) -> bool:
        """Whether lists are as long as those that came first."""
        if not isinstance(scores, np.ndarray):
            return False
        return "scores" not in self.tables or self.tables["scores"].fits(scores)

    def rows(self) -> Rows:
        if self.like is None:
            raise ValueError("there are fewer rows to learn from than workers; take fewer workers")
        if not self.y:
            return Rows.concatenate(self.ragged)
        whole = {name: table.build() for name, table in self.tables.items()}
        y, names = np.concatenate(self.y), self.like.feature_names
        found = Rows(**whole, y=y, name=self.like.name, feature_names=names)  # type: ignore[arg-type]
        return Rows.concatenate([found, *self.ragged]) if self.ragged else found


def _deeper(ranking: Ranking, depth: int) -> Ranking:
    """A ranking of candidates with room for longer lists, which other processes have."""
    listed = ranking.top(depth)
    same = {"classes": ranking.classes, "array_type": ranking.array_type}
    return Ranking(depth=depth, listed=listed, **same)  # type: ignore[arg-type]
