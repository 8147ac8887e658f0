"""Rows of data: scores or candidates, true labels and features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.out_of_core import copy_rows
from shortlist.ranking import Ranking
from shortlist.ranking.candidates import PADDING

RowValues: TypeAlias = "NDArray[np.generic] | Sequence[Sequence[object]]"

MAX_CLASSES = 10_000_000
"""Maximum number of classes. Memory is allocated for each class, so a wrong label costs much."""
BLOCK_ROWS = 50_000
"""Maximum number of rows in a block."""


@dataclass(frozen=True)
class Rows:
    """Rows with scores or ranked candidates, and their labels and features where known.

    Arrays are in memory or memory-mapped. Only the requested rows of a memory-mapped array are
    read.

    Parameters
    ----------
    scores : array of shape (n_rows, n_classes) or (n_rows, depth), or nested lists, optional
        A score for each class or, with `labels`, for each candidate. Rows without scores have
        features only.
    labels : array of shape (n_rows, depth) or nested lists, optional
        Labels of the candidates: indices of classes, or names. -1 (in lists also None) is padding,
        which can occur anywhere in a row. The score of padding is ignored.
    y : array of shape (n_rows,), optional
        The true label of each row.
    features : array of shape (n_rows, n_features), optional
        Features of each row.
    classes : array of shape (n_classes,), optional
        Names of the score columns or, for candidates, of all classes.
    n_classes : int, optional
        Number of classes, for candidates without names.
    name : str, default=""
        Name of the file, for error messages.
    feature_names : list of str, optional
        Names of the columns of `features`.
    groups : array of shape (n_rows,), optional
        Group of each row.
    extra : mapping of str to array of shape (n_rows,), optional
        Other columns of the file that were asked for, such as an identifier.
    numbers : array of int of shape (n_rows,), optional
        Number of each row in its file, if bad rows were left out.

    Examples
    --------
    >>> rows = Rows([[0.1, 0.9], [0.7, 0.3]], y=np.array([1, 1]))
    >>> rows.ranking().rank(rows.y).tolist()
    [0.0, 1.0]
    >>> rows = Rows([[0.8, 0.1], [0.5, 0.4]], [["cat", "ant"], ["bee", "eel"]])
    >>> rows.ranking(["ant", "bee", "cat", "dog", "eel"]).rank(["ant", "dog"]).tolist()
    [1.0, inf]
    """

    scores: RowValues | None = None
    labels: RowValues | None = None
    y: NDArray[np.generic] | None = None
    features: NDArray[np.generic] | None = None
    classes: NDArray[np.generic] | None = None
    n_classes: int | None = None
    name: str = ""
    feature_names: list[str] | None = None
    groups: NDArray[np.generic] | None = None
    extra: Mapping[str, NDArray[np.generic]] | None = None
    numbers: NDArray[np.generic] | None = None

    def __len__(self) -> int:
        values = self.features if self.scores is None else self.scores
        return 0 if values is None else len(values)

    def __getitem__(self, index: slice | NDArray[np.generic]) -> Rows:
        """Return the rows at a slice, a boolean mask or an array of row numbers."""
        values = {key: _take(getattr(self, key), index) for key in BY_ROW}
        if self.extra is not None:
            values["extra"] = {key: _take(value, index) for key, value in self.extra.items()}
        return replace(self, **values)

    def __repr__(self) -> str:
        parts = [f"{len(self):,} rows"]
        if self.labels is not None:
            parts.append("candidates")
        elif self.scores is not None:
            parts.append(f"{np.asarray(self.scores).shape[1]:,} classes")
        if self.features is not None:
            parts.append(f"{self.features.shape[1]:,} features")
        return f"Rows({', '.join(parts)})"

    @staticmethod
    def concatenate(parts: Sequence[Rows]) -> Rows:
        """Concatenate rows.

        Parameters
        ----------
        parts : sequence of Rows
            Rows with the same columns, at least one.

        Returns
        -------
        Rows
            The rows of all parts, in order.
        """
        values = {key: _concatenate([getattr(part, key) for part in parts]) for key in BY_ROW}
        if parts[0].extra is not None:
            values["extra"] = {
                key: _concatenate([(part.extra or {})[key] for part in parts])
                for key in parts[0].extra
            }
        return replace(parts[0], **values)

    def blocks(self, block_rows: int | None = None) -> Iterator[Rows]:
        """Yield consecutive blocks of the rows.

        Parameters
        ----------
        block_rows : int, optional
            Maximum number of rows in a block; by default 50,000.

        Yields
        ------
        Rows
            The next block.
        """
        step = block_rows or BLOCK_ROWS
        for start in range(0, len(self), step):
            yield self[slice(start, start + step)]

    def ranking(self, classes: Sequence[object] | NDArray[np.generic] | None = None) -> Ranking:
        """Rank the scores or the candidates.

        Parameters
        ----------
        classes : array-like of shape (n_classes,), optional
            All classes of candidates, in order. It is used if the rows do not have `classes`. By
            default the classes are the labels that occur. Ignored for scores of all classes.

        Returns
        -------
        Ranking
            The ranking, with the names of the classes if they are known.

        Raises
        ------
        ValueError
            If the rows have no scores, or a score or a candidate is not valid.
        """
        if self.scores is None:
            raise ValueError(f"{self.name or 'the rows'} has features, but no scores")
        try:
            if self.labels is None:
                return Ranking.from_scores(np.asarray(self.scores), classes=self.classes)
            names = None if classes is None else np.asarray(classes)
            return self._rank_candidates(self.labels, self.scores, names)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}" if self.name else str(error)) from error

    def _rank_candidates(
        self, labels: RowValues, scores: RowValues, classes: NDArray[np.generic] | None
    ) -> Ranking:
        """Rank candidates; `classes` are used if the rows do not have their own."""
        names = classes if self.classes is None else self.classes
        if names is None and not is_numbered(labels):
            names = np.array(self._occurring_names())
        if names is not None and not are_indices(names):
            return Ranking.from_candidates(labels, scores, classes=names)
        count = self._count_classes() if names is None else len(names)
        return Ranking.from_candidates(labels, scores, count)

    def _occurring_names(self) -> list[str]:
        """Return the names of all candidates and true labels, sorted."""
        names = {str(label) for label in _present_labels(self.labels)}
        return sorted(names if self.y is None else names | {str(label) for label in self.y})

    def _count_classes(self) -> int:
        """Return `n_classes`, or one more than the largest label if it is not given."""
        if self.n_classes is not None:
            return self.n_classes
        numbers = [int(label) for label in _present_labels(self.labels)]  # type: ignore[call-overload]
        largest: int = max([*numbers, -1 if self.y is None else int(np.max(self.y))])
        if largest >= MAX_CLASSES:
            raise ValueError(
                f"a label is {largest}, above the maximum of {MAX_CLASSES:,} classes; give labels "
                "counted from 0, or names"
            )
        return 1 + largest

    def match_columns(
        self, classes: NDArray[np.generic], feature_names: list[str] | None = None
    ) -> Rows:
        """Order score columns and features by name as a model expects them.

        Columns without names keep their order.

        Parameters
        ----------
        classes : array of shape (n_classes,)
            Classes of the model, in order.
        feature_names : list of str, optional
            Names of the model's features, in order.

        Returns
        -------
        Rows
            The rows, with columns in the order of the model.

        Raises
        ------
        ValueError
            If a column of the model is missing, or the model does not have a column.
        """
        matched = self
        if self.labels is None and self.scores is not None and self.classes is not None:
            order = self._column_order(self.classes.tolist(), classes.tolist(), "classes")
            scores = self.scores if order is None else np.asarray(self.scores)[:, order]
            matched = replace(matched, scores=scores, classes=np.asarray(classes))
        if self.features is not None and self.feature_names and feature_names:
            order = self._column_order(self.feature_names, feature_names, "features")
            if order is not None:
                x = self.features[:, order]
                matched = replace(matched, features=x, feature_names=feature_names)
        return matched

    def _column_order(
        self, own: Sequence[object], model: Sequence[object], field: str
    ) -> list[int] | None:
        """Return the position of each of the model's columns in these rows; None if identical."""
        if own == model:
            return None
        missing = [name for name in model if name not in own]
        unknown = [name for name in own if name not in model]
        if missing or unknown:
            which = f"no {missing[0]!r}" if missing else f"{unknown[0]!r}, unknown to the model"
            raise ValueError(
                f"{self.name} has {len(own)} {field}, and the model {len(model)}: there is {which}"
                + (f", but {unknown[0]!r}" if missing and unknown else "")
            )
        position = {name: i for i, name in enumerate(own)}
        return [position[name] for name in model]


BY_ROW = ("scores", "labels", "y", "features", "groups", "numbers")
"""Fields with one value for each row."""


def are_indices(classes: NDArray[np.generic]) -> bool:
    """Return whether the names of classes are the integers 0, 1, 2 and so on."""
    return classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(len(classes)))


def is_numbered(labels: RowValues | None) -> bool:
    """Return whether the labels of candidates are integers rather than names."""
    if isinstance(labels, np.ndarray) and labels.dtype != object:
        return labels.dtype.kind in "iu"
    return isinstance(next(_present_labels(labels), 0), int | np.integer)


def _present_labels(labels: RowValues | None) -> Iterator[object]:
    """Yield all labels of candidates that are not padding."""
    if labels is not None:
        yield from (label for row in labels for label in row if label not in PADDING)


def _take(values: Any, index: slice | NDArray[np.generic]) -> Any:
    """Return rows of an array or of a list. A large copy of an array is memory-mapped."""
    if values is None or isinstance(index, slice):
        return None if values is None else values[index]
    numbers = np.flatnonzero(index) if index.dtype == bool else index.astype(np.intp)
    if isinstance(values, np.ndarray):
        return copy_rows(values, numbers)
    return [values[i] for i in numbers.tolist()]


def _concatenate(parts: list[Any]) -> Any:
    """Concatenate arrays, or matrices and nested lists whose rows can differ in length."""
    if parts[0] is None:
        return None
    if all(isinstance(p, np.ndarray) for p in parts) and len({p.shape[1:] for p in parts}) == 1:
        return np.concatenate(parts)
    return [row for p in parts for row in (p.tolist() if isinstance(p, np.ndarray) else p)]
