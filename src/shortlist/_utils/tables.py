"""X as scikit-learn's users give it: any table's rows, and its numbers as features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.arrays import ArrayLike


def take(X: object, rows: NDArray[np.intp]) -> object:
    """Some rows of whatever X is: array, sparse matrix, frame or list.

    >>> take(["a", "b", "c"], np.array([2, 0]))
    ['c', 'a']
    """
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    if isinstance(X, list | tuple):
        return [X[i] for i in rows]
    return X[rows] if hasattr(X, "__getitem__") else np.asarray(X)[rows]


def dense_numbers(X: object) -> NDArray[np.generic] | None:
    """X as a dense matrix of numbers, or None if it is something else."""
    if hasattr(X, "tocsr"):
        return None
    array = np.asarray(X)
    if array.ndim != 2:
        return None
    if array.dtype.kind in "bO":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            return None
    return array if array.dtype.kind in "iuf" else None


def column_means(features: ArrayLike | None) -> NDArray[np.floating] | None:
    """The mean of each column's known values; 0 where none is known."""
    if features is None:
        return None
    known = np.ma.masked_invalid(np.asarray(features, dtype=np.float64))
    means: NDArray[np.floating] = np.ma.filled(known.mean(axis=0), 0.0)
    return means


def fill_missing(
    features: ArrayLike | None, means: NDArray[np.floating] | None
) -> ArrayLike | None:
    """Features with each NaN replaced by its column's mean.

    >>> fill_missing(np.array([[1.0, np.nan]]), np.array([5.0, 7.0])).tolist()
    [[1.0, 7.0]]
    """
    if features is None or means is None:
        return features
    array = np.asarray(features)
    missing = np.isnan(array)
    if not missing.any() or array.shape[1] != len(means):
        return array
    return np.where(missing, means.astype(array.dtype), array)
