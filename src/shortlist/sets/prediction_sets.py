"""Prediction sets of many rows, stored one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import Array, ArrayLike, ArrayType, row_index, to_array_type, to_tensor
from shortlist._utils.extras import require
from shortlist._utils.html import card, paragraph, table
from shortlist._utils.labels import Classes
from shortlist._utils.tables import WIDTH, shorten
from shortlist._utils.validation import check_count
from shortlist.guarantee import NO_GUARANTEE, Guarantee
from shortlist.ranking import Ranking
from shortlist.sets.plots import plot_classes, plot_sizes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

REPR_ROWS, REPR_LABELS = 5, 8
"""Rows, and labels of a row, that are printed."""
HTML_ROWS = 10
"""Rows that a notebook shows."""


class PredictionSets:
    """The labels that are predicted for each row, best first.

    They take two bytes for each label (four above 32,767 classes) and eight for each row.
    Predictors return them; :meth:`from_ranking` and :meth:`from_lists` build others.

    Parameters
    ----------
    flat : Tensor of shape (n_labels,)
        Label indices, one row after another.
    sizes : Tensor of shape (n_rows,)
        Number of labels of each row.
    classes : Classes
        Classes of the label indices.
    array_type : {"numpy", "torch"}, default="numpy"
        Type of the arrays that are returned.
    guarantee : Guarantee, optional
        Statement about the accuracy of the sets. None by default.
    stored_sizes : Tensor of shape (n_rows,), optional
        Number of labels of each row in `flat`, if it is larger than `sizes`: several objects can
        share one `flat`, of which each takes the first labels of every row.

    Attributes
    ----------
    sizes : array of shape (n_rows,)
        Number of labels in each set.
    mean_size : float
        Mean number of labels in a set.
    guarantee : Guarantee
        What is known about the accuracy of these sets. It prints as a sentence.

    Examples
    --------
    >>> sets = PredictionSets.from_lists([["cat"], ["dog", "cat"]], classes=["cat", "dog", "eel"])
    >>> sets
    PredictionSets: 2 rows, 3 classes, mean size 1.5, sizes 1 to 2
    no accuracy is guaranteed
      [0] cat
      [1] dog, cat
    >>> sets.contains(["cat", "eel"]).tolist(), sets.accuracy(["cat", "eel"])
    ([True, False], 0.5)
    """

    def __init__(
        self,
        flat: Tensor,
        sizes: Tensor,
        classes: Classes,
        *,
        array_type: ArrayType = "numpy",
        guarantee: Guarantee = NO_GUARANTEE,
        stored_sizes: Tensor | None = None,
    ) -> None:
        n_stored = int((sizes if stored_sizes is None else stored_sizes).sum())
        if n_stored != len(flat):
            raise ValueError(f"sizes add up to {n_stored}, but there are {len(flat)} labels")
        labels = flat.to(torch.int16 if classes.n <= 2**15 - 1 else torch.int32)
        # One attribute for both, so that another thread never sees labels with other sizes.
        self._stored = (labels, stored_sizes)
        self._ends = sizes.cumsum(0, dtype=torch.int64)
        self._classes = classes
        self._array_type: ArrayType = array_type
        self.guarantee = guarantee

    @classmethod
    def from_ranking(
        cls, ranking: Ranking, sizes: ArrayLike, *, guarantee: Guarantee = NO_GUARANTEE
    ) -> PredictionSets:
        """Return the sets of the first labels of each row of a ranking.

        Parameters
        ----------
        ranking : Ranking
            Rows.
        sizes : array-like of shape (n_rows,)
            Number of labels of each row.
        guarantee : Guarantee, optional
            Statement about the accuracy of the sets. None by default.

        Returns
        -------
        PredictionSets

        Raises
        ------
        ValueError
            If the sizes are not non-negative integers, or a row ranks too few labels.
        """
        lengths = to_tensor(sizes, "sizes").to(ranking.device)
        if lengths.shape != (len(ranking),):
            raise ValueError(
                f"one size for each of {len(ranking)} rows needed; got shape {tuple(lengths.shape)}"
            )
        if lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise ValueError(f"sizes must be integers; got {lengths.dtype}")
        lengths = lengths.to(torch.int64)
        if int(lengths.min()) < 0:
            raise ValueError(f"sizes must not be negative; got {int(lengths.min())}")
        largest = int(lengths.max())
        ranking.check_depth(largest, f"a set of {largest} labels is requested")
        available = ranking.lengths()
        if bool((lengths > available).any()):
            row = int((lengths > available).nonzero()[0])
            raise ValueError(
                f"a set of {int(lengths[row])} labels is requested, but row {row} lists only "
                f"{int(available[row])}"
            )
        return cls(
            ranking.prefix(lengths),
            lengths,
            ranking.classes,
            array_type=ranking.array_type,
            guarantee=guarantee,
        )

    @classmethod
    def from_lists(
        cls,
        lists: Sequence[Sequence[object]],
        *,
        n_classes: int | None = None,
        classes: ArrayLike | None = None,
        guarantee: Guarantee = NO_GUARANTEE,
    ) -> PredictionSets:
        """Return the sets of any labels, such as sets that are not a prefix of a ranking.

        Parameters
        ----------
        lists : sequence of sequences
            Labels of each row, best first.
        n_classes : int, optional
            Number of classes. Needed unless `classes` is given.
        classes : array-like, optional
            Names of the classes.
        guarantee : Guarantee, optional
            Statement about the accuracy of the sets. None by default.

        Returns
        -------
        PredictionSets

        Raises
        ------
        ValueError
            If a label is unknown or occurs twice in a row.
        """
        if n_classes is None and classes is None:
            raise ValueError("from_lists needs n_classes or classes")
        n = len(classes) if n_classes is None and classes is not None else n_classes
        known = Classes(check_count(n, "n_classes"), classes)
        for i, row in enumerate(lists):
            if isinstance(row, str):
                raise ValueError(f"each set is a list of labels; row {i} is the string {row!r}")
        labels = np.empty(sum(map(len, lists)), dtype=object)
        labels[:] = [label for row in lists for label in row]
        codes = torch.from_numpy(known.codes(labels, "lists"))
        sizes = torch.tensor([len(row) for row in lists], dtype=torch.int64)
        unknown = (codes < 0) | (codes >= known.n)
        if bool(unknown.any()):
            at = int(unknown.nonzero()[0])
            row_at = int(torch.searchsorted(sizes.cumsum(0), at, right=True))
            raise ValueError(
                f"row {row_at} contains {labels[at]!r}, which is not one of the {known.describe()}"
            )
        check_no_repeats(codes, sizes, known)
        return cls(codes, sizes, known, guarantee=guarantee)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self._classes.n

    @property
    def classes(self) -> NDArray[np.generic]:
        """Labels of the classes, in the order of the score columns."""
        return self._classes.array()

    @property
    def sizes(self) -> Array:
        """Number of labels in each set."""
        return to_array_type(self._sizes, self._array_type)

    @property
    def indices(self) -> Array:
        """Label indices of all rows, one row after another; row i has `sizes[i]` of them."""
        return to_array_type(self._flat, self._array_type)

    @property
    def mean_size(self) -> float:
        """Mean number of labels in a set; NaN if there are no rows."""
        return int(self._ends[-1]) / len(self) if len(self) else float("nan")

    @property
    def nbytes(self) -> int:
        """Memory that the sets occupy, in bytes."""
        return self._flat.nbytes + self._ends.nbytes

    @property
    def _flat(self) -> Tensor:
        """Label indices of all rows. Those of a shared tensor are copied when first used."""
        labels, stored_sizes = self._stored
        if stored_sizes is not None:
            begin = stored_sizes.cumsum(0) - stored_sizes
            labels = labels[_ranges(begin, self._sizes)]
            self._stored = (labels, None)
        return labels

    @property
    def _sizes(self) -> Tensor:
        return torch.diff(self._ends, prepend=self._ends.new_zeros(1))

    @property
    def _rows(self) -> Tensor:
        """Row of each label index."""
        return torch.repeat_interleave(
            torch.arange(len(self), device=self._ends.device), self._sizes
        )

    def labels(self) -> list[list[object]]:
        """Return the sets as lists of the user's labels, best first.

        Returns
        -------
        list of lists
        """
        flat = self._classes.decode(self._flat.cpu().numpy()).tolist()
        ends = self._ends.tolist()
        return [flat[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def mask(self) -> Array:
        """Return the sets as a boolean matrix.

        Returns
        -------
        bool array of shape (n_rows, n_classes)
            True for the labels in the set.
        """
        mask = torch.zeros((len(self), self.n_classes), dtype=torch.bool, device=self._flat.device)
        mask[self._rows, self._flat.to(torch.int64)] = True
        return to_array_type(mask, self._array_type)

    def contains(self, y: ArrayLike) -> Array:
        """Return whether each set contains the label of its row.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            Labels. No set contains a label that is not one of the classes.

        Returns
        -------
        bool array of shape (n_rows,)
        """
        return to_array_type(self._contained(self._encode(y)), self._array_type)

    def _encode(self, y: ArrayLike) -> Tensor:
        """Return the indices of labels; -1 for those of unknown classes, which no set contains."""
        device = self._flat.device
        return self._classes.encode(y, rows=len(self), device=device, unknown="any")

    def _contained(self, index: Tensor) -> Tensor:
        """Return whether each set contains the label index of its row."""
        rows = self._rows
        contained = torch.zeros(len(self), dtype=torch.bool, device=self._flat.device)
        contained[rows[self._flat == index[rows]]] = True
        return contained

    def accuracy(self, y: ArrayLike) -> float:
        """Return the fraction of sets that contain the label of their row.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            Labels.

        Returns
        -------
        float
            NaN if there are no rows.
        """
        return float(to_tensor(self.contains(y), "hits").to(torch.float64).mean())

    def class_accuracy(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the accuracy of each class.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            Labels.

        Returns
        -------
        ndarray of shape (n_classes,)
            Fraction of the rows of each class whose set contains it; NaN for classes without rows.
        """
        rows, hits = self._class_counts(y)
        accuracies = np.full(self.n_classes, np.nan)
        np.divide(hits, rows, out=accuracies, where=rows > 0)
        return accuracies

    def _class_counts(self, y: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of rows of each class, and how many of their sets contain it."""
        encoded = self._encode(y)
        contained, index = self._contained(encoded).cpu().numpy(), encoded.cpu().numpy()
        rows = np.bincount(index[index >= 0], minlength=self.n_classes)
        return rows, np.bincount(index[contained], minlength=self.n_classes)

    def to_frame(self) -> pd.DataFrame:
        """Return the sets as a pandas frame.

        Returns
        -------
        pandas.DataFrame
            Columns `size` and `labels`.
        """
        require("pandas", "to_frame")
        import pandas as pd

        return pd.DataFrame({"size": self._sizes.cpu().numpy(), "labels": self.labels()})

    def plot_sizes(self, ax: Axes | None = None, **style: object) -> Axes:
        """Plot the fraction of rows with each size, as bars.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to plot. New axes by default.
        **style
            Options of `matplotlib.axes.Axes.bar`.

        Returns
        -------
        matplotlib.axes.Axes
        """
        return plot_sizes(self._sizes.cpu().numpy(), ax, style)

    def plot_classes(
        self, y: ArrayLike, ax: Axes | None = None, *, max_classes: int = 40, **style: object
    ) -> Axes:
        """Plot the accuracy of each class, lowest first, as bars.

        The dashed line is the accuracy over all rows. The thin lines are standard errors.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            Labels.
        ax : matplotlib.axes.Axes, optional
            Where to plot. New axes by default.
        max_classes : int, default=40
            Maximum number of bars: of more classes, those with the lowest accuracies are shown.
        **style
            Options of `matplotlib.axes.Axes.barh`.

        Returns
        -------
        matplotlib.axes.Axes
        """
        count = check_count(max_classes, "max_classes")
        return plot_classes(self.classes, *self._class_counts(y), ax, count, style)

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[list[object]]:
        return iter(self.labels())

    @overload
    def __getitem__(self, rows: int) -> list[object]: ...
    @overload
    def __getitem__(self, rows: slice | Sequence[int] | Array) -> PredictionSets: ...
    def __getitem__(
        self, rows: int | slice | Sequence[int] | Array
    ) -> list[object] | PredictionSets:
        """Return one row's labels, or the sets of some rows (slice, indices or boolean mask)."""
        if isinstance(rows, int | np.integer):
            return self[[int(rows)]].labels()[0]
        index = row_index(rows, len(self), self._ends.device)
        sizes = self._sizes[index]
        return PredictionSets(
            self._flat[_ranges((self._ends - self._sizes)[index], sizes)],
            sizes,
            self._classes,
            array_type=self._array_type,
            guarantee=self.guarantee,
        )

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same labels, in the same order, and the same classes."""
        if not isinstance(other, PredictionSets):
            return NotImplemented
        return (
            self._classes == other._classes
            and torch.equal(self._ends.cpu(), other._ends.cpu())
            and torch.equal(self._flat.cpu(), other._flat.cpu())
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not len(self):
            return self._title()
        lines = [self._title(), *wrap(str(self.guarantee), WIDTH)]
        for i, row in enumerate(self[:REPR_ROWS].labels()):
            start = f"  [{i}] "
            lines.append(start + _join_labels(row, WIDTH - len(start)))
        return "\n".join([*lines, "  …"] if len(self) > REPR_ROWS else lines)

    def _repr_html_(self) -> str:
        """Return the first sets and the guarantee as HTML, for notebooks."""
        if not len(self):
            return card(self._title())
        rows = [
            [str(i), _join_labels(row, 2 * WIDTH), str(len(row))]
            for i, row in enumerate(self[:HTML_ROWS].labels())
        ]
        if len(self) > HTML_ROWS:
            rows.append(["…", f"{len(self) - HTML_ROWS:,} more", ""])
        return card(
            self._title(),
            paragraph(str(self.guarantee)),
            table(["row", "labels, best first", "size"], rows, n_text=2),
        )

    def _title(self) -> str:
        """Return the numbers of rows and classes, and the sizes."""
        rows = "row" if len(self) == 1 else "rows"
        head = f"PredictionSets: {len(self):,} {rows}, {self.n_classes:,} classes"
        if not len(self):
            return head
        low, high = int(self._sizes.min()), int(self._sizes.max())
        return f"{head}, mean size {self.mean_size:.4g}, sizes {low} to {high}"


def _join_labels(labels: list[object], width: int) -> str:
    """Return the first labels of a set as text of at most `width` characters."""
    if not labels:
        return "(empty)"
    text = shorten(str(labels[0]), width - 3)
    for i, label in enumerate(labels[1:], start=1):
        longer = f"{text}, {label}"
        # Three characters are kept for the ellipsis of the labels that are left out.
        if i == REPR_LABELS or len(longer) > width - 3 * (i + 1 < len(labels)):
            return f"{text}, …"
        text = longer
    return text


def check_no_repeats(flat: Tensor, sizes: Tensor, classes: Classes) -> None:
    """Raise if a set contains a label twice.

    Parameters
    ----------
    flat : Tensor of shape (n_labels,)
        Label indices, one row after another.
    sizes : Tensor of shape (n_rows,)
        Number of labels of each row.
    classes : Classes
        Classes of the label indices.

    Raises
    ------
    ValueError
        If a row contains a label twice. The message says which one.
    """
    rows = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    pairs = (rows * classes.n + flat).sort().values
    repeated = pairs[1:] == pairs[:-1]
    if bool(repeated.any()):
        row, column = divmod(int(pairs[1:][repeated][0]), classes.n)
        label = classes.decode([column]).tolist()[0]
        raise ValueError(f"a set contains a label once; row {row} contains {label!r} twice")


def _ranges(begin: Tensor, sizes: Tensor) -> Tensor:
    """Return `begin[i], begin[i] + 1, …`, `sizes[i]` of them for each i, concatenated."""
    shift = torch.repeat_interleave(begin - (sizes.cumsum(0) - sizes), sizes)
    return shift.add_(torch.arange(len(shift), device=shift.device))
