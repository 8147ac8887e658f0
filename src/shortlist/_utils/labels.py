"""Encode labels as column indices, and decode them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.validation import check_choice, check_present, check_tensor
from shortlist._utils.warnings import warn

Label = object
MAX_LABEL_CHARS = 40
"""Characters of a label that are repeated in a message."""
MAX_LABELS_SHOWN = 3
"""Maximum number of unknown labels that a warning names."""


def label_array(y: object, name: str = "y") -> NDArray[np.generic]:
    """Return labels as a one-dimensional array of integers, strings or other hashable objects.

    Parameters
    ----------
    y : object
        One label for each row.
    name : str, default="y"
        Name of the argument, for error messages.

    Returns
    -------
    ndarray of shape (n_rows,)
        Labels.

    Raises
    ------
    ValueError
        If there is not one label for each row, a label is missing, or labels are floats, complex
        numbers, records or times that Python cannot represent.
    """
    if isinstance(y, Tensor):
        check_tensor(y, name)
        # NumPy has no bfloat16. Floats are rejected below.
        plain = y.detach().float() if y.is_floating_point() else y.detach()
        array: NDArray[np.generic] = plain.cpu().numpy()
    elif isinstance(y, list | tuple) and _needs_objects(y):
        array = np.empty(len(y), dtype=object)
        array[:] = y
    else:
        check_present(y, name)
        try:
            array = np.asarray(y)
        except ValueError as error:
            raise ValueError(f"{name} must be one label for each row: {error}") from error
    if array.shape == (0,):
        return np.empty(0, dtype=np.int64)  # No value tells the type of the labels.
    if array.ndim != 1:
        raise _shape_error(name, array.shape)
    if array.dtype.kind == "f":
        numbers = array.astype(np.float64)
        whole = bool((np.isfinite(numbers) & (numbers == np.round(numbers))).all())
        raise ValueError(
            f"{name} holds floats (first: {array[0]}, dtype {array.dtype}); labels must be "
            "integers, strings or other hashable objects"
            + (f". Convert them with {name}.astype(int)" if whole else "")
        )
    # NumPy converts times in nanoseconds to integers, because Python's times are coarser.
    is_nanoseconds = array.dtype.kind in "mM" and isinstance(array[0].item(), int)
    if array.dtype.kind in "cV" or is_nanoseconds:
        hint = f". Convert them with {name}.astype(str)" if is_nanoseconds else ""
        fields = array.dtype.names
        content = array.dtype if fields is None else f"records with the fields {', '.join(fields)}"
        raise ValueError(
            f"{name} holds {content} (first: {array[0]}); labels must be integers, strings or "
            f"other hashable objects{hint}"
        )
    return array


def _shape_error(name: str, shape: tuple[int, ...]) -> ValueError:
    """Return the error for labels that are not a vector."""
    hint = ""
    if len(shape) == 2:
        call = f"np.ravel({name})" if shape[1] == 1 else f"np.argmax({name}, axis=1)"
        hint = f". Convert it with {call}"
    return ValueError(
        f"{name} must be one label for each row, of shape (rows,); got shape {shape}{hint}"
    )


def _needs_objects(y: Sequence[object]) -> bool:
    """Return whether NumPy would change labels: (1, 2) to an axis, or 1 beside "a" to "1"."""
    strings = sum(isinstance(v, str) for v in y)
    return 0 < strings < len(y) or any(isinstance(v, tuple) for v in y)


def _plain(label: object) -> object:
    """Convert a NumPy scalar to a Python object, so that messages show 'a', not np.str_('a')."""
    return label.item() if isinstance(label, np.generic) else label


def format_label(label: object) -> str:
    """Return a label for a message, truncated if it is long.

    Examples
    --------
    >>> format_label("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…"
    """
    text = repr(label)
    return text if len(text) <= MAX_LABEL_CHARS else f"{text[:MAX_LABEL_CHARS]}…"


class UnknownLabels:
    """Labels of test rows whose classes a model does not know, counted over many rows.

    Attributes
    ----------
    n_unknown : int
        Number of unknown labels.

    Examples
    --------
    >>> unknown = UnknownLabels()
    >>> unknown.add(["emu", "gnu", "emu"])
    >>> print(unknown.describe(10))
    3 of 10 labels ('emu', 'gnu') are of classes that the model does not know; they count as \
misses, since no set can contain them
    """

    def __init__(self) -> None:
        self.n_unknown = 0
        self._first: dict[object, None] = {}

    def add(self, labels: Sequence[object]) -> None:
        """Count unknown labels."""
        self.n_unknown += len(labels)
        for label in labels:
            if len(self._first) > MAX_LABELS_SHOWN:
                break
            self._first[label] = None

    def describe(self, n_rows: int) -> str:
        """Return how many of the labels of `n_rows` rows are unknown, and the first of them."""
        first = list(map(format_label, self._first))
        names = ", ".join([*first[:MAX_LABELS_SHOWN], *["…"] * (len(first) > MAX_LABELS_SHOWN)])
        return (
            f"{self.n_unknown:,} of {n_rows:,} labels ({names}) are of classes that the model "
            "does not know; they count as misses, since no set can contain them"
        )


_counting: ContextVar[UnknownLabels | None] = ContextVar("counting", default=None)


@contextmanager
def count_unknown_labels() -> Iterator[UnknownLabels]:
    """Count unknown labels inside the context, instead of a warning each time they are encoded."""
    counted = UnknownLabels()
    token = _counting.set(counted)
    try:
        yield counted
    finally:
        _counting.reset(token)


def _report_unknown(labels: Sequence[object], n_rows: int) -> None:
    """Count unknown labels inside of `count_unknown_labels`, and warn about them elsewhere."""
    counting = _counting.get()
    if counting is not None:
        counting.add(labels)
        return
    unknown = UnknownLabels()
    unknown.add(labels)
    warn(unknown.describe(n_rows))


class Classes:
    """The classes of a problem, in the order of the score columns.

    Parameters
    ----------
    n : int
        Number of classes.
    values : array-like of shape (n,), optional
        Labels of the classes. The default is 0 to n - 1.

    Examples
    --------
    >>> c = Classes(3, ["cat", "dog", "eel"])
    >>> c.encode(["eel", "cat"]).tolist(), c.decode([1, 1]).tolist()
    ([2, 0], ['dog', 'dog'])
    """

    def __init__(self, n: int, values: ArrayLike | None = None) -> None:
        self.n = n
        self.values: NDArray[np.generic] | None = None
        if values is None:
            return
        array = label_array(values, "classes")
        if len(array) != n:
            raise ValueError(f"classes has {len(array)} names, but there are {n} classes")
        label, times = Counter(array.tolist()).most_common(1)[0]
        if times > 1:
            raise ValueError(f"classes must be distinct; {label!r} occurs {times} times")
        if not (array.dtype.kind in "iu" and np.array_equal(array, np.arange(n))):
            self.values = array

    @classmethod
    def infer(cls, y: object, n: int, classes: ArrayLike | None = None) -> Classes:
        """Return the classes of `n` score columns, given labels `y`.

        Integers are column indices. Other labels must all occur, and are taken in sorted order,
        the order of the columns of every scikit-learn classifier.
        """
        if classes is not None:
            return cls(n, classes)
        array = label_array(y)
        if array.dtype.kind in "iub":
            return cls(n)
        distinct = set(array.tolist())
        if len(distinct) != n:
            raise ValueError(
                f"y holds {len(distinct)} distinct labels (first: {_plain(array[0])!r}), but the "
                f"scores have {n} columns; name the columns with classes=[...]"
            )
        try:
            return cls(n, sorted(distinct))
        except TypeError:
            raise ValueError(
                f"y holds labels that cannot be sorted (first: {_plain(array[0])!r}); "
                "name the columns with classes=[...]"
            ) from None

    def array(self) -> NDArray[np.generic]:
        """Return the classes as an array."""
        return np.arange(self.n) if self.values is None else self.values

    def encode(
        self,
        y: object,
        *,
        rows: int | None = None,
        device: torch.device | str = "cpu",
        name: str = "y",
        unknown: str = "raise",
    ) -> Tensor:
        """Return the column indices of labels.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            Labels.
        rows : int, optional
            Number of labels that there must be.
        device : torch.device or str, default="cpu"
            Device of the result.
        name : str, default="y"
            Name of the argument, for error messages.
        unknown : {"raise", "some", "any"}, default="raise"
            What to do about unknown labels: raise, or warn and encode them as -1. With "some", an
            error is raised if all labels are unknown; with "any", only if all are unknown and
            their type shows that they can be no class.

        Returns
        -------
        Tensor of shape (n_rows,)
            Column indices, int64.

        Raises
        ------
        ValueError
            If a label is unknown, or the number of labels is wrong.
        """
        if isinstance(y, Tensor) and self.values is None and not y.is_floating_point():
            check_tensor(y, name)
            index = y.detach().to(device=device, dtype=torch.int64)
            if index.ndim != 1:
                raise _shape_error(name, tuple(index.shape))
        else:
            codes = self.codes(label_array(y, name), name, strict=unknown != "any")
            index = torch.from_numpy(codes).to(device)
        if rows is not None and len(index) != rows:
            is_transposed = len(index) == self.n != rows
            raise ValueError(
                f"{name} has {len(index)} labels, but the scores have {rows} rows"
                + (f" and {self.n} columns; did you mean scores.T?" if is_transposed else "")
            )
        check_choice(unknown, "unknown", ("raise", "some", "any"))
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= self.n):
            outside = (index < 0) | (index >= self.n)
            labels = label_array(y, name)[outside.cpu().numpy()].tolist()
            are_all = len(labels) == len(index)
            if unknown == "raise" or (are_all and (unknown == "some" or self._other_type(labels))):
                at, first = int(outside.nonzero()[0]), format_label(labels[0])
                known = self.describe()
                if unknown != "raise":  # The names of classes are given to `fit`.
                    known = known.split(";")[0]
                raise ValueError(f"{name}[{at}] = {first} is not one of the {known}")
            _report_unknown(labels, len(index))
            index = torch.where(outside, -1, index)
        return index

    def _other_type(self, labels: Sequence[object]) -> bool:
        """Return whether no label has the type of a class."""
        known = {int} if self.values is None else {type(label) for label in self.values.tolist()}
        return known.isdisjoint(map(type, labels))

    def codes(
        self, array: NDArray[np.generic], name: str, *, strict: bool = True
    ) -> NDArray[np.int64]:
        """Return column indices of labels, and numbers outside 0 to n - 1 for unknown ones.

        If the classes are integers, a label of another type is an error, or if `strict` is False,
        only if all labels are.
        """
        if self.values is not None:
            column = {label: i for i, label in enumerate(self.values.tolist())}
            return np.fromiter((column.get(v, -1) for v in array.tolist()), np.int64, len(array))
        if array.dtype.kind in "iub":
            return array.astype(np.int64)
        whole = [isinstance(v, int | np.integer | np.bool) for v in array]
        if not all(whole):
            other = _plain(array[whole.index(False)])
            if any(whole) and not strict:
                codes = [v if known else -1 for v, known in zip(array, whole, strict=True)]
                return np.array(codes, dtype=np.int64)
            raise ValueError(
                f"{name} holds {type(other).__name__} labels (first: {other!r}), but the classes "
                f"are the integers 0 to {self.n - 1}; name the columns with classes=[...]"
            )
        return array.astype(np.int64)

    def describe(self) -> str:
        """Return a short description of the classes, for messages."""
        if self.values is None:
            return f"classes 0 to {self.n - 1}; if the columns have names, pass classes=[...]"
        few: Sequence[object] = self.values[:5].tolist()
        return f"{self.n} classes: {', '.join(map(format_label, few))}{', …' if self.n > 5 else ''}"

    def decode(self, indices: Iterable[int] | NDArray[np.integer]) -> NDArray[np.generic]:
        """Return the labels of column indices."""
        index = np.asarray(indices, dtype=np.int64)
        return index if self.values is None else self.values[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Classes) and self.array().tolist() == other.array().tolist()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Classes({self.describe().split(';')[0]})"
