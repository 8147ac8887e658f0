"""Index and impute the input X of a scikit-learn estimator, whatever its type."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.arrays import ArrayLike


def take_table_rows(X: object, rows: NDArray[np.intp]) -> object:
    """Return some rows of an array, a sparse matrix, a frame (pandas, Polars, Arrow) or a list.

    Examples
    --------
    >>> take_table_rows(["a", "b", "c"], np.array([2, 0]))
    ['c', 'a']
    """
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    if isinstance(X, list | tuple):
        return [X[i] for i in rows]
    if hasattr(X, "take") and hasattr(X, "schema"):  # Arrow, where X[i] is a column
        return X.take(rows)
    return X[rows] if hasattr(X, "__getitem__") else np.asarray(X)[rows]


def as_numeric_matrix(X: object) -> NDArray[np.generic] | None:
    """Return X as a dense matrix of numbers, or None if it is not one."""
    if hasattr(X, "tocsr"):
        return None
    try:
        array = np.asarray(X)
    except ValueError:  # Rows of different lengths.
        return None
    if array.ndim != 2:
        return None
    if array.dtype.kind in "bO":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            return None
    return array if array.dtype.kind in "iuf" else None


def column_means(features: ArrayLike | None) -> NDArray[np.floating] | None:
    """Return the mean of the finite values of each column; 0 for a column without any."""
    if features is None:
        return None
    finite = np.ma.masked_invalid(np.asarray(features, dtype=np.float64))
    means: NDArray[np.floating] = np.ma.filled(finite.mean(axis=0), 0.0)
    return means


def fill_missing(
    features: ArrayLike | None, means: NDArray[np.floating] | None
) -> ArrayLike | None:
    """Return features with the mean of its column in place of each NaN or infinity.

    Examples
    --------
    >>> fill_missing(np.array([[1.0, np.nan]]), np.array([5.0, 7.0])).tolist()
    [[1.0, 7.0]]
    """
    if features is None or means is None:
        return features
    array = np.asarray(features)
    missing = ~np.isfinite(array)
    if not missing.any() or array.shape[1] != len(means):
        return array
    return np.where(missing, means.astype(array.dtype), array)
