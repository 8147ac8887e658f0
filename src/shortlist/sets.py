"""Prediction sets: ragged lists of labels, stored one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import Array, ArrayLike, ArrayType, row_index, to_array_type, to_tensor
from shortlist._utils.labels import Classes
from shortlist._utils.validation import check_count
from shortlist.guarantee import NO_GUARANTEE, Guarantee
from shortlist.ranking import Ranking

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def check_distinct(flat: Tensor, sizes: Tensor, classes: Classes) -> None:
    """Raise if a row holds a label (a column index, one row after the other) twice."""
    rows = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    pairs = (rows * classes.n + flat).sort().values
    twice = pairs[1:] == pairs[:-1]
    if bool(twice.any()):
        row, column = divmod(int(pairs[1:][twice][0]), classes.n)
        label = classes.decode([column]).tolist()[0]
        raise ValueError(f"a set holds a label once; row {row} holds {label!r} twice")


def _places(begin: Tensor, sizes: Tensor) -> Tensor:
    """`begin[i]`, `begin[i] + 1`, …: `sizes[i]` places of every row i, one row after the other."""
    shift = torch.repeat_interleave(begin - (sizes.cumsum(0) - sizes), sizes)
    return shift.add_(torch.arange(len(shift), device=shift.device))


class PredictionSets:
    """For each row a list of labels, best first.

    Compact: two bytes for each label (four above 32,767 classes) and eight for each row.

    Attributes
    ----------
    sizes : (rows,)
        How many labels each row's list holds.
    mean_size : float
    guarantee : Guarantee
        What is known about the accuracy of these sets. It prints as a sentence.

    Examples
    --------
    >>> sets = PredictionSets.from_lists([["cat"], ["dog", "cat"]], classes=["cat", "dog", "eel"])
    >>> sets
    PredictionSets: 2 rows, 3 classes, mean size 1.5, sizes 1 to 2 (no accuracy is guaranteed)
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
        within: Tensor | None = None,
    ) -> None:
        labels = flat.to(torch.int16 if classes.n <= 2**15 - 1 else torch.int32)
        self._lists = (labels, within)
        """The labels of longer lists and the sizes of these, or None if they are cut already.
        One attribute, so that every thread sees both as they belong together."""
        self._ends = sizes.cumsum(0, dtype=torch.int64)
        came = sizes if within is None else within
        if int(came.sum()) != len(flat):
            raise ValueError(f"sizes add up to {int(came.sum())}, but {len(flat)} labels came")
        self._classes = classes
        self._array_type: ArrayType = array_type
        self.guarantee = guarantee

    @classmethod
    def from_ranking(
        cls, ranking: Ranking, sizes: ArrayLike, *, guarantee: Guarantee = NO_GUARANTEE
    ) -> PredictionSets:
        """The first `sizes[i]` labels of each row i of a ranking."""
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
        longest = int(lengths.max())
        ranking.check_depth(longest, f"a set of {longest} labels is asked for")
        listed = ranking.lengths()
        if bool((lengths > listed).any()):
            row = int((lengths > listed).nonzero()[0])
            raise ValueError(
                f"a set of {int(lengths[row])} labels is asked for, but row {row} lists only "
                f"{int(listed[row])}"
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
        """Any lists of labels, for sets that are not a prefix of a ranking."""
        if n_classes is None and classes is None:
            raise ValueError("from_lists needs n_classes or classes")
        n = len(classes) if n_classes is None and classes is not None else n_classes
        known = Classes(check_count(n, "n_classes"), classes)
        for at, row in enumerate(lists):
            if isinstance(row, str):
                raise ValueError(f"each set is a list of labels; row {at} is the string {row!r}")
        labels = np.empty(sum(map(len, lists)), dtype=object)
        labels[:] = [label for row in lists for label in row]
        codes = torch.from_numpy(known.codes(labels, "lists"))
        sizes = torch.tensor([len(row) for row in lists], dtype=torch.int64)
        unknown = (codes < 0) | (codes >= known.n)
        if bool(unknown.any()):
            at = int(unknown.nonzero()[0])
            row_at = int(torch.searchsorted(sizes.cumsum(0), at, right=True))
            raise ValueError(
                f"row {row_at} holds {labels[at]!r}, which is not one of the {known.describe()}"
            )
        check_distinct(codes, sizes, known)
        return cls(codes, sizes, known, guarantee=guarantee)

    @property
    def n_classes(self) -> int:
        return self._classes.n

    @property
    def classes(self) -> NDArray[np.generic]:
        return self._classes.array()

    @property
    def _flat(self) -> Tensor:
        """All labels. Those of lists that several sets share are cut when they are first used."""
        labels, longer = self._lists
        if longer is not None:
            begin = longer.cumsum(0) - longer
            labels = labels[_places(begin, self._sizes)]
            self._lists = (labels, None)
        return labels

    @property
    def _sizes(self) -> Tensor:
        return torch.diff(self._ends, prepend=self._ends.new_zeros(1))

    @property
    def sizes(self) -> Array:
        return to_array_type(self._sizes, self._array_type)

    @property
    def indices(self) -> Array:
        """All rows' label indices, one row after the other; row i has `sizes[i]` of them."""
        return to_array_type(self._flat, self._array_type)

    @property
    def mean_size(self) -> float:
        return int(self._ends[-1]) / len(self) if len(self) else float("nan")

    @property
    def nbytes(self) -> int:
        """Bytes that the sets occupy."""
        return self._flat.nbytes + self._ends.nbytes

    def labels(self) -> list[list[object]]:
        """The sets as lists of the user's own classes, best first."""
        flat = self._classes.decode(self._flat.cpu().numpy()).tolist()
        ends = self._ends.tolist()
        return [flat[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def mask(self) -> Array:
        """Membership as a boolean matrix (rows, classes)."""
        mask = torch.zeros((len(self), self.n_classes), dtype=torch.bool, device=self._flat.device)
        mask[self._rows(), self._flat.to(torch.int64)] = True
        return to_array_type(mask, self._array_type)

    def contains(self, y: ArrayLike) -> Array:
        """Whether each row's set holds the label `y` of that row."""
        index = self._classes.encode(y, rows=len(self), device=self._flat.device)
        rows = self._rows()
        held = torch.zeros(len(self), dtype=torch.bool, device=self._flat.device)
        held[rows[self._flat == index[rows]]] = True
        return to_array_type(held, self._array_type)

    def accuracy(self, y: ArrayLike) -> float:
        """The share of rows whose set holds the right label."""
        return float(to_tensor(self.contains(y), "hits").to(torch.float64).mean())

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame with columns `size` and `labels`, a row for each row."""
        import pandas as pd

        return pd.DataFrame({"size": self._sizes.cpu().numpy(), "labels": self.labels()})

    def plot_sizes(self, ax: Axes | None = None, **style: object) -> Axes:
        """Draw how long the lists are: a bar for each size, the share of rows that have it.

        Takes matplotlib axes, or makes some; `style` goes to the bars.
        """
        from matplotlib import pyplot as plt
        from matplotlib.ticker import MaxNLocator

        if not len(self):
            raise ValueError("there are no rows, and no sizes to draw")
        axes: Axes = plt.subplots()[1] if ax is None else ax
        counts = torch.bincount(self._sizes.cpu()).numpy()
        sizes = np.arange(0 if counts[0] else 1, len(counts))
        axes.bar(sizes, counts[sizes] / len(self), **{"width": 0.9, **style})  # type: ignore[arg-type]
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(f"labels in a set (mean {self.mean_size:.4g})")
        axes.set_ylabel("share of rows")
        return axes

    def class_accuracy(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return, for each of `classes`, the share of its rows whose set contains it.

        NaN for a class without rows.
        """
        index = self._classes.encode(y, rows=len(self)).numpy()
        inside = to_tensor(self.contains(y), "hits").cpu().numpy()
        rows = np.bincount(index, minlength=self.n_classes)
        hits = np.bincount(index[inside], minlength=self.n_classes)
        shares = np.full(self.n_classes, np.nan)
        np.divide(hits, rows, out=shares, where=rows > 0)
        return shares

    def plot_classes(
        self, y: ArrayLike, ax: Axes | None = None, *, most: int = 40, **style: object
    ) -> Axes:
        """Draw the accuracy of each class, lowest first: the share of its rows whose set holds it.

        Takes matplotlib axes, or makes some; `style` goes to the bars. Of more classes than
        `most`, the lowest are drawn. The dashed line is the accuracy over all rows, and the thin
        lines are the standard errors of the shares.
        """
        from matplotlib import pyplot as plt

        if not len(self):
            raise ValueError("there are no rows, and no accuracies to draw")
        shares = self.class_accuracy(y)
        rows = np.bincount(self._classes.encode(y, rows=len(self)).numpy(), minlength=len(shares))
        there = np.flatnonzero(rows)
        lowest = there[np.argsort(shares[there], kind="stable")][: check_count(most, "most")]
        axes: Axes = plt.subplots()[1] if ax is None else ax
        errors = np.sqrt(shares[lowest] * (1 - shares[lowest]) / rows[lowest])
        options = {"xerr": errors, "height": 0.8, "error_kw": {"elinewidth": 0.8}, **style}
        axes.barh([str(name) for name in self.classes[lowest]], shares[lowest], **options)  # type: ignore[arg-type]
        axes.axvline(self.accuracy(y), color="black", ls="--", lw=1)
        axes.invert_yaxis()
        few = f", the {len(lowest)} lowest of {len(there)}" if len(lowest) < len(there) else ""
        axes.set_xlabel(f"accuracy of each class{few}")
        return axes

    def _rows(self) -> Tensor:
        return torch.repeat_interleave(
            torch.arange(len(self), device=self._ends.device), self._sizes
        )

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
        """One row's list, or the sets of some rows (slice, indices or a boolean mask)."""
        if isinstance(rows, int | np.integer):
            return self[[int(rows)]].labels()[0]
        picked = row_index(rows, len(self), self._ends.device)
        sizes = self._sizes[picked]
        return PredictionSets(
            self._flat[_places((self._ends - self._sizes)[picked], sizes)],
            sizes,
            self._classes,
            array_type=self._array_type,
            guarantee=self.guarantee,
        )

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same lists, in the same order, of the same classes."""
        if not isinstance(other, PredictionSets):
            return NotImplemented
        return (
            self._classes == other._classes
            and torch.equal(self._ends.cpu(), other._ends.cpu())
            and torch.equal(self._flat.cpu(), other._flat.cpu())
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        rows = "row" if len(self) == 1 else "rows"
        head = f"PredictionSets: {len(self):,} {rows}, {self.n_classes:,} classes"
        if not len(self):
            return head
        sizes = self._sizes
        lines = [
            f"{head}, mean size {self.mean_size:.4g}, sizes {int(sizes.min())} to "
            f"{int(sizes.max())} ({self.guarantee})"
        ]
        for i, row in enumerate(self[:5].labels()):
            text = ", ".join(map(str, row[:8])) + (", …" if len(row) > 8 else "")
            lines.append(f"  [{i}] {text or '(empty)'}")
        return "\n".join([*lines, "  …"] if len(self) > 5 else lines)
