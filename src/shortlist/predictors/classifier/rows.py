"""Labeled inputs of a classifier, with all that belongs to their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.labels import label_array
from shortlist._utils.sklearn_inputs import take_table_rows
from shortlist._utils.validation import check_present, check_unmasked

Rows: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True)
class LabeledInputs:
    """Rows to learn from, or to calibrate with.

    Parameters
    ----------
    x : table with n_rows rows
        Inputs of the classifier.
    y : array of shape (n_rows,)
        Labels, as the classifier takes them.
    weights : array of shape (n_rows,), optional
        Weights of the rows, for the classifier.
    groups : array of shape (n_rows,), optional
        Group of each row, for guarantees by group.
    features : table with n_rows rows, optional
        Features of the rows, for the set predictor.
    """

    x: object
    y: NDArray[np.generic]
    weights: NDArray[np.generic] | None = None
    groups: NDArray[np.generic] | None = None
    features: ArrayLike | None = None

    @classmethod
    def validate(
        cls,
        x: object,
        y: ArrayLike,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Return the rows of a fit, or raise if their labels, weights or groups are invalid."""
        check_unmasked(x, "X")
        check_present(y, "y")
        _check_objects(y)
        labels: NDArray[np.generic] = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        check_consistent_length(x, labels)
        distinct = np.unique(labels)
        if len(distinct) < 2:
            given = (
                f"one class only ({distinct[0]!r}, {len(labels)} times)" if len(labels) else "none"
            )
            raise ValueError(f"y must hold labels of at least two classes; it holds {given}")
        if groups is not None:
            check_consistent_length(x, groups)
        return cls(
            x,
            labels,
            None if weights is None else _check_weights(weights, len(labels)),
            None if groups is None else label_array(groups, "groups"),
        )

    @classmethod
    def validate_calibration(cls, x: object, y: ArrayLike, groups: ArrayLike | None) -> Self:
        """Return rows that calibrate a fitted model, which may be of one class."""
        check_present(y, "y")
        encoded = None if groups is None else label_array(groups, "groups")
        return cls(x, column_or_1d(y), groups=encoded)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def labels(self) -> NDArray[np.generic]:
        """The labels, as the set predictor takes them."""
        return integers_if_whole(self.y)

    def with_features(self, features: ArrayLike | None) -> Self:
        """Return the same rows with features."""
        if features is not None:
            check_consistent_length(self.x, features)
        return replace(self, features=features)

    @property
    def open_classes(self) -> bool:
        """Whether a class has a single row, so that new rows may have unknown classes."""
        return bool((np.unique(self.y, return_counts=True)[1] == 1).any())

    def take(self, rows: Rows) -> Self:
        """Return some of the rows, without a copy if they are all."""
        if self._are_all(rows):
            return self
        return type(self)(
            take_table_rows(self.x, rows),
            self.y[rows],
            None if self.weights is None else self.weights[rows],
            None if self.groups is None else self.groups[rows],
            self.features_of(rows),
        )

    def features_of(self, rows: Rows) -> ArrayLike | None:
        """Return the features of some of the rows."""
        if self.features is None or self._are_all(rows):
            return self.features
        return cast(ArrayLike, take_table_rows(self.features, rows))

    def _are_all(self, rows: Rows) -> bool:
        """Return whether these are all rows in their order."""
        return np.array_equal(rows, np.arange(len(self)))


def integers_if_whole(labels: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return floating-point labels as integers if they all are whole numbers.

    Examples
    --------
    >>> integers_if_whole(np.array([2.0, 0.0]))
    array([2, 0])
    """
    if labels.dtype.kind != "f":
        return labels
    whole = labels.astype(np.int64)
    return whole if np.array_equal(whole, labels) else labels


def _check_objects(y: ArrayLike) -> None:
    """Raise if labels that are Python objects are missing, or cannot be sorted.

    NumPy would turn a missing label in a list of texts into the text "nan".
    """
    is_list = isinstance(y, list | tuple)
    if not is_list and getattr(y, "dtype", None) != np.dtype(object):
        return
    objects = list(cast(list[object], y)) if is_list else np.asarray(y).ravel().tolist()
    for row, label in enumerate(objects):
        if label is None or (isinstance(label, float) and label != label):
            raise ValueError(f"y is missing in row {row}; leave such rows out")
    types = sorted({type(label).__name__ for label in objects})
    if len(types) > 1 and "str" in types:
        raise ValueError(
            f"y holds labels of types that cannot be sorted: {', '.join(types)}; convert them to "
            "one type"
        )


def _check_weights(weights: ArrayLike, n_rows: int) -> NDArray[np.generic]:
    """Return sample weights as an array, or raise if their shape is wrong."""
    check_present(weights, "sample_weight")
    array = np.asarray(weights)
    if array.shape != (n_rows,):
        raise ValueError(f"sample_weight must have shape ({n_rows},); got shape {array.shape}")
    return array
