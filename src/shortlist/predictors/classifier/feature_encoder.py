"""Features from the columns of a table: numbers, and categories as one column for each value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.frames import frame_columns
from shortlist._utils.labels import format_label
from shortlist._utils.sklearn_inputs import as_numeric_matrix, column_means, fill_missing

MIN_ROWS = 5
"""Smallest number of rows of a value that gets a column of its own."""
MAX_VALUES = 64
"""Largest number of values of a column that get a column of their own: the most frequent ones."""
MIN_SHARE = 0.5
"""Smallest share of the rows that these values must have. Otherwise the column is free text."""
MIN_NUMBERS = 0.9
"""Smallest share of the values of a column of numbers that must be numbers, or their text."""
CATEGORY_TYPES = ("category", "Categorical", "Enum", "dictionary<")
"""How the names of categorical types of pandas, Polars and Arrow begin."""
MAX_NAMES = 8
"""Largest number of columns that a message names."""
LARGEST = 1e300
"""Bound on a mean, so that it can be saved and computed with."""
KINDS = {
    "category": "a category",
    "date": "dates",
    "text": "free text",
    "other": "no numbers or categories",
}
"""Kinds of columns that are not numbers, in words."""


@dataclass(frozen=True)
class Column:
    """A column of a table that does not hold numbers.

    Parameters
    ----------
    name : str
        Name of the column, or its position.
    kind : {"category", "date", "text", "other"}
        What the column holds. Only categories are used.
    values : sequence of str or None
        Values that get a column of their own, as text. None is a missing value.
    n_distinct : int
        Number of different values in the rows of `fit`.
    """

    name: str
    kind: str
    values: Sequence[str | None] = ()
    n_distinct: int = 0

    def describe(self) -> str:
        """Return the name of the column, and what it holds."""
        count = f" with {self.n_distinct:,} different values" if self.kind == "text" else ""
        return f"{format_label(self.name)} ({KINDS[self.kind]}{count})"

    def encode(self, column: object) -> NDArray[np.float64]:
        """Return a column for each value, with 1 in its rows; unknown values are 0 everywhere."""
        place = {value: i for i, value in enumerate(self.values)}
        codes = [place.get(_as_text(value), -1) for value in _objects(column)]
        result = np.zeros((len(codes), len(place)))
        known = np.array(codes, dtype=np.int64)[:, None] == np.arange(len(place))
        result[known] = 1.0
        return result


class FeatureEncoder:
    """Turn tables of numbers, categories and other columns into a matrix of features.

    Numbers stay as they are, with the mean of their column in place of missing values. A category
    becomes one column for each of its most frequent values. Dates and free text are left out.

    Parameters
    ----------
    means : array of shape (n_columns,)
        Mean of each column of numbers; 0 for other columns.
    others : mapping of int to Column
        The columns that are not numbers, by position.

    Examples
    --------
    >>> import pandas as pd
    >>> x = pd.DataFrame({"size": [1.0, None, 3.0] * 5, "color": ["red", "blue", "red"] * 5})
    >>> encoder = FeatureEncoder.fit(x)
    >>> encoder.transform(x[:3])
    array([[1., 0., 1.],
           [2., 1., 0.],
           [3., 0., 1.]])
    >>> encoder.describe()
    "1 number, 1 category ('color')"
    """

    def __init__(self, means: NDArray[np.floating], others: Mapping[int, Column]) -> None:
        self.means, self.others = means, dict(others)

    @classmethod
    def fit(cls, X: object) -> FeatureEncoder | None:
        """Return an encoder for tables such as X, or None if X is not a table with columns.

        Parameters
        ----------
        X : table with n_rows rows
            Rows to learn from. Nothing else is used, so that the guarantee holds exactly if they
            are not calibration rows.
        """
        matrix = None if _has_categories(X) else as_numeric_matrix(X)
        if matrix is not None:
            means = column_means(matrix)
            assert means is not None
            return cls(np.clip(means, -LARGEST, LARGEST), {})
        columns = _columns(X)
        if columns is None:
            return None
        names = frame_columns(X) or [f"column {i}" for i in range(len(columns))]
        means, others = np.zeros(len(columns)), {}
        for i, (name, column) in enumerate(zip(names, columns, strict=True)):
            mean = _mean_of_numbers(column)
            if mean is None:
                others[i] = _fit_column(str(name), column)
            else:
                means[i] = mean
        return cls(means, others)

    @property
    def n_columns(self) -> int:
        """Number of columns of the tables."""
        return len(self.means)

    @property
    def used(self) -> list[Column]:
        """Categories, in the order of the table."""
        return [one for one in self.others.values() if one.kind == "category"]

    @property
    def left_out(self) -> list[Column]:
        """Columns that are not used, in the order of the table."""
        return [one for one in self.others.values() if one.kind != "category"]

    def transform(self, X: object) -> NDArray[np.generic] | None:
        """Return the features of a table, or None if none of its columns is used.

        Parameters
        ----------
        X : table with n_rows rows
            The columns of `fit`, in the same order.

        Returns
        -------
        array of shape (n_rows, n_features) or None
        """
        matrix = None if self.others else as_numeric_matrix(X)
        if matrix is not None:
            return np.asarray(fill_missing(matrix, self.means))
        columns = _columns(X) or []
        if len(columns) != self.n_columns:
            raise ValueError(
                f"X has {len(columns)} columns, but fit saw {self.n_columns}; give the same "
                "columns in the same order"
            )
        parts = [self._transform_column(i, column) for i, column in enumerate(columns)]
        used = [part for part in parts if part is not None]
        return np.concatenate(used, axis=1) if used else None

    def _transform_column(self, i: int, column: object) -> NDArray[np.float64] | None:
        """Return the features of one column, or None if it is not used."""
        if i not in self.others:
            numbers = _numbers(column)
            return np.where(np.isfinite(numbers), numbers, self.means[i])[:, None]
        other = self.others[i]
        return other.encode(column) if other.kind == "category" else None

    def describe(self) -> str:
        """Return what is used, and what is not."""
        n_numbers, used = self.n_columns - len(self.others), self.used
        parts = [f"{n_numbers:,} number{'' if n_numbers == 1 else 's'}"] if n_numbers else []
        if used:
            plural = "category" if len(used) == 1 else "categories"
            names = _enumerate(format_label(one.name) for one in used)
            parts.append(f"{len(used):,} {plural} ({names})")
        summary = ", ".join(parts) or "none"
        left_out = _enumerate(one.describe() for one in self.left_out)
        return f"{summary}; left out: {left_out}" if left_out else summary


def _enumerate(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - MAX_NAMES
    return ", ".join(every[:MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _has_categories(X: object) -> bool:
    """Return whether a frame declares a column as a category, even one of numbers."""
    types = getattr(X, "dtypes", None)  # pandas and Polars
    types = getattr(getattr(X, "schema", None), "types", None) if types is None else types  # Arrow
    return types is not None and any(map(_is_category, types))


def _is_category(dtype: object) -> bool:
    """Return whether a type of pandas, Polars or Arrow is that of a category."""
    return str(dtype).startswith(CATEGORY_TYPES)


def _columns(X: object) -> list[object] | None:
    """Return the columns of a table, or None if it has none, as a sparse matrix or texts."""
    if hasattr(X, "tocsr"):
        return None
    names = frame_columns(X)
    if names is not None:
        if hasattr(X, "iloc"):
            return [X.iloc[:, i] for i in range(len(names))]
        if callable(getattr(X, "column", None)):  # Arrow
            return [X.column(i) for i in range(len(names))]  # type: ignore[attr-defined]
        return [X[name] for name in names]  # type: ignore[index]
    try:
        # As an array of one type, a list with a text would have texts in place of its numbers.
        array = np.array(X, dtype=object) if isinstance(X, list | tuple) else np.asarray(X)
    except ValueError:
        return None
    return list(array.T) if array.ndim == 2 else None


def _objects(column: object) -> list[object]:
    """Return the values of a column as Python objects."""
    values: list[object] = np.asarray(column).tolist()
    return values


def _is_missing(value: object) -> bool:
    """Return whether a value is missing: None, NaN, or NA of pandas."""
    return value is None or type(value).__name__ == "NAType" or _is_nan(value)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _as_text(value: object) -> str | None:
    """Return the text that stands for a value, or None if it is missing."""
    if _is_missing(value):
        return None
    # A column of whole numbers with a missing value has floats in place of integers.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _numbers(column: object) -> NDArray[np.float64]:
    """Return the values of a column as numbers; NaN for a value that is none."""
    array = np.asarray(column)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    return np.array([_as_number(value) for value in array.tolist()], dtype=np.float64)


def _as_number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _mean_of_numbers(column: object) -> float | None:
    """Return the mean of a column of numbers, or None for other columns."""
    array = np.asarray(column)
    if (
        _is_category(getattr(column, "dtype", getattr(column, "type", "")))
        or array.dtype.kind in "mMcV"
    ):
        return None
    numbers = _numbers(column)
    if array.dtype.kind not in "biuf":
        present = np.array([not _is_missing(value) for value in array.tolist()], dtype=bool)
        share = np.isfinite(numbers[present]).mean() if present.any() else 0.0
        if share < MIN_NUMBERS:
            return None
    means = column_means(numbers[:, None])
    assert means is not None
    return float(np.clip(means[0], -LARGEST, LARGEST))


def _fit_column(name: str, column: object) -> Column:
    """Return what a column of a table that has no numbers holds."""
    array = np.asarray(column)
    values = _objects(column)
    present = [value for value in values if not _is_missing(value)]
    is_time = array.dtype.kind in "mM"
    if is_time or (present and all(isinstance(v, date | time | timedelta) for v in present)):
        return Column(name, "date")
    if not present or array.dtype.kind in "cV" or not all(map(_is_plain, present)):
        return Column(name, "other")
    counts = Counter(map(_as_text, values))
    frequent = [(value, n) for value, n in counts.items() if n >= MIN_ROWS]
    frequent.sort(key=lambda item: (-item[1], item[0] or ""))
    kept = frequent[:MAX_VALUES]
    if sum(n for _, n in kept) < MIN_SHARE * len(values):
        return Column(name, "text", n_distinct=len(counts))
    order = sorted((value for value, _ in kept), key=lambda value: (value is None, value or ""))
    return Column(name, "category", tuple(order), len(counts))


def _is_plain(value: object) -> bool:
    return isinstance(value, str | bool | int | float)
