"""Calibrators: from the levels of calibration rows to thresholds and guarantees."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.labels import label_array
from shortlist._utils.validation import check_choice, check_probability
from shortlist._utils.warnings import warn
from shortlist.conformal.quantiles import (
    LISTING_ERROR,
    UnreachableError,
    min_calibration_size,
    threshold,
)
from shortlist.guarantee import Guarantee

EVERY_LABEL = "every label, since no smaller set can be guaranteed"


@dataclass(frozen=True)
class Thresholds:
    """Thresholds on levels, with what they guarantee.

    Parameters
    ----------
    values : Tensor
        One threshold (shape ()), one for each class, or one for each group and a last one for
        unknown groups. Minus infinity stands for the set of all classes.
    guarantee : Guarantee
        What the sets at these thresholds guarantee.
    per : {"set", "class", "group"}, default="set"
        What has a threshold of its own.
    groups : sequence, default=()
        Names of the groups, if `per` is "group".
    """

    values: Tensor
    guarantee: Guarantee
    per: Literal["set", "class", "group"] = "set"
    groups: Sequence[object] = ()

    def for_rows(self, n_rows: int, groups: ArrayLike | None = None) -> tuple[Tensor, Guarantee]:
        """Return the thresholds of rows, and the guarantee for these rows.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        groups : array-like of shape (n_rows,), optional
            Group of each row; needed if `per` is "group", an error otherwise.

        Returns
        -------
        thresholds : Tensor of shape (n_rows,), or (n_classes,) if `per` is "class"
        guarantee : Guarantee
        """
        if groups is not None and self.per != "group":
            raise ValueError(
                'groups were given, but the guarantee is not conditional on groups; say by="group"'
            )
        if self.per == "set":
            return self.values.expand(n_rows), self.guarantee
        if self.per == "class":
            return self.values, self.guarantee
        if groups is None:
            raise ValueError('by = "group" needs the group of each row: groups=...')
        known = {name: code for code, name in enumerate(self.groups)}
        asked = label_array(groups, "groups").tolist()
        if len(asked) != n_rows:
            raise ValueError(f"groups has {len(asked)} entries, but the scores have {n_rows} rows")
        unseen = list(dict.fromkeys(name for name in asked if name not in known))
        guarantee = self.guarantee
        if unseen:
            warn(
                f"no calibration row is of group {_first_few(unseen)}: nothing is guaranteed for "
                "such groups; they get the threshold of all calibration rows, or of the groups "
                "that share one"
            )
            guarantee = guarantee.with_note(_nothing_for(unseen))
        return self.values[[known.get(name, len(known)) for name in asked]], guarantee


class Calibrator(BaseEstimator, ABC):
    """A rule that turns the levels of calibration rows into thresholds.

    To write a calibrator, subclass and implement `threshold`, which reads what `fit` stored.

    Parameters
    ----------
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed: raise an error, or return minus
        infinity, which stands for the set of all classes.

    Attributes
    ----------
    levels_ : array of shape (n_rows,)
        Levels of the right labels; minus infinity for labels that no set can contain.
    y_ : array of shape (n_rows,)
        Label indices; -1 for labels of unknown classes.
    groups_, group_names_
        Group of each row as an index, or None, and the names of the groups.
    weights_, features_
        As given to `fit`.
    classes_ : list
        Names of the classes.
    exhaustive_ : bool
        Whether a set can contain every label.
    """

    conditional_on: ClassVar[str | None] = None

    def __init__(self, *, on_unreachable: str = "raise") -> None:
        self.on_unreachable = on_unreachable

    def fit(
        self,
        levels: NDArray[np.float64],
        y: NDArray[np.int64],
        *,
        groups: NDArray[np.int64] | None = None,
        group_names: Sequence[object] = (),
        weights: ArrayLike | None = None,
        features: ArrayLike | None = None,
        classes: Sequence[object] = (),
        exhaustive: bool = True,
    ) -> Self:
        """Store the calibration rows.

        Parameters
        ----------
        levels : array of shape (n_rows,)
            Level of each row's right label.
        y : array of shape (n_rows,)
            Label indices; -1 for labels of unknown classes.
        groups : array of shape (n_rows,), optional
            Group of each row, as an index into `group_names`.
        group_names : sequence, default=()
            Names of the groups.
        weights, features : array-like, optional
            Weights and features of the rows, for calibrators that use them.
        classes : sequence, default=()
            Names of the classes.
        exhaustive : bool, default=True
            Whether a set can contain every label. Not so for candidates.

        Returns
        -------
        self
        """
        self.levels_, self.y_ = np.asarray(levels, dtype=np.float64), np.asarray(y)
        self.groups_, self.group_names_ = groups, list(group_names)
        self.weights_, self.features_ = weights, features
        self.classes_ = list(classes)
        # Labels outside the sets were seen, so they can occur in any part of the rows.
        self.exhaustive_ = exhaustive and not bool(np.isneginf(self.levels_).any())
        return self

    @abstractmethod
    def threshold(self, accuracy: float, delta: float | None = None) -> Thresholds:
        """Return thresholds that guarantee an accuracy.

        Parameters
        ----------
        accuracy : float
            Accuracy to guarantee.
        delta : float, optional
            Probability, over the draw of the calibration rows, that the guarantee may fail. By
            default the guarantee is on average over that draw.

        Returns
        -------
        Thresholds

        Raises
        ------
        UnreachableError
            If the accuracy cannot be guaranteed with these rows.
        """

    def quantile(
        self, accuracy: float, delta: float | None, rows: NDArray[np.bool_] | None = None
    ) -> float:
        """Return the threshold that guarantees an accuracy for some of the calibration rows."""
        some = slice(None) if rows is None else rows
        return threshold(
            np.sort(self.levels_[some]),
            accuracy,
            delta=delta,
            on_unreachable=self.on_unreachable,
            exhaustive=self.exhaustive_,
            unknown=int((self.y_[some] < 0).sum()),
        )

    def guarantee(self, accuracy: float, delta: float | None) -> Guarantee:
        """Return the guarantee of an accuracy by these rows."""
        return Guarantee(
            "marginal" if delta is None else "confidence",
            accuracy=accuracy,
            delta=delta,
            n_calibration=len(self.levels_),
            conditional_on=self.conditional_on,
        )


AnyCalibrator = TypeVar("AnyCalibrator", bound=type[Calibrator])

REGISTERED_CALIBRATORS: dict[str, type[Calibrator]] = {}
"""Calibrators that models can be saved with, by the name of their class."""


def register_calibrator(calibrator: AnyCalibrator) -> AnyCalibrator:
    """Register a calibrator, so that models that use it can be saved and loaded.

    Parameters
    ----------
    calibrator : type
        Subclass of `Calibrator`.

    Returns
    -------
    type
        The same class.
    """
    REGISTERED_CALIBRATORS[calibrator.__name__] = calibrator
    return calibrator


@register_calibrator
class Marginal(Calibrator):
    """One threshold for all rows: the accuracy is guaranteed on average over all rows.

    Parameters
    ----------
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed.

    Examples
    --------
    >>> levels = np.array([0.1, 0.2, 0.5, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9])
    >>> at = Marginal().fit(levels, np.zeros(9, dtype=int)).threshold(0.8)
    >>> float(at.values), str(at.guarantee)
    (0.2, 'accuracy >= 0.8 guaranteed by 9 calibration rows')
    """

    def threshold(self, accuracy: float, delta: float | None = None) -> Thresholds:
        """Return the threshold that guarantees an accuracy; see `Calibrator.threshold`."""
        q = self.quantile(accuracy, delta)
        guarantee = self.guarantee(accuracy, delta)
        # With "all", only labels of unknown classes have to be tested for.
        tested = self.on_unreachable == "raise" or bool((self.y_ < 0).any())
        if not self.exhaustive_ and delta is None and tested:
            guarantee = guarantee.with_note(
                f"a test showed, with confidence {1 - LISTING_ERROR:g}, that it can be reached"
            )
        if q == -math.inf:
            guarantee = guarantee.with_note(EVERY_LABEL)
        return Thresholds(torch.tensor(q, dtype=torch.float64), guarantee)


class _Conditional(Calibrator):
    """A threshold for each class or group.

    Classes with too few calibration rows share one threshold; see `pooling_limits`. With `delta`
    they do not, since it is not known well enough how often each of them occurs: they are refused,
    or get every label.
    """

    plural: ClassVar[str]
    per: ClassVar[Literal["class", "group"]]

    @abstractmethod
    def _codes(self) -> tuple[NDArray[np.int64], list[object]]:
        """Return the class or group of each row, and the names of all of them."""

    def threshold(self, accuracy: float, delta: float | None = None) -> Thresholds:
        """Return a threshold for each class or group; see `Calibrator.threshold`."""
        codes, names = self._codes()
        counts = np.bincount(codes[codes >= 0], minlength=len(names))
        needed = min_calibration_size(accuracy, delta, exhaustive=self.exhaustive_)
        few = (counts < needed) & (delta is None)
        limits = pooling_limits(counts, needed) if few.any() else np.zeros(len(counts))

        def quantile(rows: NDArray[np.bool_], whose: str) -> float:
            try:
                return self.quantile(accuracy, delta, rows)
            except UnreachableError as error:
                raise UnreachableError(f"by {self.per}, {whose}: {error}") from None

        @cache
        def pooled(limit: float) -> float:
            whose = "those with too few rows of their own together"
            return quantile(np.append(counts < limit, False)[codes], whose)

        def of_one(k: int, name: object) -> float:
            if few[k]:
                return pooled(limits[k])
            own = quantile(codes == k, repr(name))
            # Its rows make up for those that others lack: both guarantees hold for it.
            return min(own, pooled(limits[k])) if limits[k] else own

        values = [of_one(k, name) for k, name in enumerate(names)]
        guarantee = self._describe(accuracy, delta, names, counts, few, needed, values)
        # Rows of unknown groups get the threshold of the groups with few rows, or of all rows.
        limit = limits[few].min() if few.any() else math.inf
        values += [] if self.per == "class" else [pooled(limit)]
        return Thresholds(torch.tensor(values, dtype=torch.float64), guarantee, self.per, names)

    def _describe(
        self,
        accuracy: float,
        delta: float | None,
        names: list[object],
        counts: NDArray[np.int64],
        few: NDArray[np.bool_],
        needed: int,
        values: list[float],
    ) -> Guarantee:
        """Return the guarantee, with a note on classes that share a threshold or have no rows."""
        guarantee = self.guarantee(accuracy, delta)
        if few.any():
            if few.all():
                guarantee = Guarantee(
                    "marginal", accuracy=accuracy, n_calibration=guarantee.n_calibration
                )
                note = (
                    f"all {len(names)} {self.plural} share one threshold, since too few have the "
                    f"{needed:,} rows that one of their own needs"
                )
            else:
                note = (
                    f"{int(few.sum())} of {len(names)} {self.plural} have fewer than {needed:,} "
                    "rows and share one threshold, with the next smallest if needed; for them "
                    "the guarantee holds together"
                )
            warn(f"accuracy = {accuracy} by {self.per}: {note}")
            guarantee = guarantee.with_note(note)
        absent = [name for k, name in enumerate(names) if not counts[k]]
        guarantee = guarantee.with_note(_nothing_for(absent) if absent else "")
        unbounded = sum(q == -math.inf for q in values)
        if unbounded:
            guarantee = guarantee.with_note(
                f"{unbounded} of {len(names)} {self.plural} get {EVERY_LABEL}"
            )
        return guarantee


@register_calibrator
class ClassConditional(_Conditional):
    """A threshold for each class: the accuracy is guaranteed for each class.

    Classes with too few calibration rows share one threshold, and the guarantee holds for them
    together.

    Parameters
    ----------
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed.
    """

    conditional_on = "class"
    per = "class"
    plural = "classes"

    def _codes(self) -> tuple[NDArray[np.int64], list[object]]:
        return self.y_, self.classes_


@register_calibrator
class GroupConditional(_Conditional):
    """A threshold for each group of rows: the accuracy is guaranteed for each group.

    Groups with too few calibration rows share one threshold, and the guarantee holds for them
    together.

    Parameters
    ----------
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed.
    """

    conditional_on = "group"
    per = "group"
    plural = "groups"

    def _codes(self) -> tuple[NDArray[np.int64], list[object]]:
        if self.groups_ is None:
            raise ValueError(
                'by = "group", but the calibration rows have no groups; give them: '
                "fit(..., groups=...) or calibrate(..., groups=...)"
            )
        return self.groups_, self.group_names_


CALIBRATORS: dict[str | None, Callable[..., Calibrator]] = {
    None: Marginal,
    "class": ClassConditional,
    "group": GroupConditional,
}
"""Calibrators that the parameter `by` names."""


def check_by(by: str | None) -> None:
    """Raise if `by` names no calibrator."""
    if by is not None:
        check_choice(by, "by", [name for name in CALIBRATORS if name is not None])


def check_delta(delta: float | None) -> None:
    """Raise if `delta` is given and is no probability."""
    if delta is not None:
        check_probability(delta, "delta")


def pooling_limits(counts: NDArray[np.int64], needed: int) -> NDArray[np.float64]:
    """Return which classes share a threshold, and with which others.

    Count the new row with its class k. Classes with at most `needed` rows, and further ones,
    smallest first, until they have more than `needed` rows together, share a threshold made of all
    their calibration rows. The counts with the new row are the same whichever of the rows is the
    new one. So, given that the new row is of one of these classes, its level is equally likely to
    have any rank among theirs, and the guarantee holds for these classes together. With the counts
    of the calibration rows alone it would not: the class of a new row would be pooled more often
    than that of a calibration row.

    Parameters
    ----------
    counts : array of shape (n_classes,)
        Calibration rows of each class.
    needed : int
        Number of rows that a threshold needs.

    Returns
    -------
    array of shape (n_classes,)
        The class shares a threshold with all classes of fewer rows than this; 0 if it does not.

    Examples
    --------
    >>> pooling_limits(np.array([50, 9, 3, 8]), 9).tolist()
    [0.0, 0.0, 10.0, 10.0]
    """
    limits = np.zeros(len(counts))
    for count in np.unique(counts):
        together = np.append(counts, count + 1)  # The class with the new row replaces …
        together = np.delete(together, int(np.argmax(counts == count)))  # … the one without it.
        if together.min() > needed:
            continue
        sizes = np.unique([needed, *together[together > needed]])
        enough = [n for n in sizes.tolist() if together[together <= n].sum() > needed]
        limit = enough[0] + 1 if enough else math.inf
        limits[counts == count] = limit if count + 1 < limit else 0
    return limits


def group_codes(groups: ArrayLike, n_rows: int) -> tuple[NDArray[np.int64], list[object]]:
    """Return groups as indices, and their names."""
    array = label_array(groups, "groups")
    if len(array) != n_rows:
        raise ValueError(f"groups has {len(array)} entries, but the scores have {n_rows} rows")
    names = list(dict.fromkeys(array.tolist()))
    code = {name: i for i, name in enumerate(names)}
    return np.array([code[v] for v in array.tolist()], dtype=np.int64), names


def _nothing_for(names: list[object]) -> str:
    return f"nothing for {_first_few(names)}, of which there is no calibration row"


def _first_few(names: list[object]) -> str:
    return ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
