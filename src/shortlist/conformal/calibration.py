"""What held-out rows said, and the thresholds that follow: for all rows, by class or by group."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.labels import Classes, label_array
from shortlist._utils.warnings import warn
from shortlist.conformal.quantiles import UnreachableError, min_calibration_size, threshold
from shortlist.ranking import Ranking

EVERY_LABEL = "every label, as nothing less can be guaranteed"


@dataclass(frozen=True)
class RowSchema:
    """What kind of rows made a guarantee: it holds for others of the same kind."""

    dense: bool
    depth: int
    lengths: tuple[int, int]
    """Of the shortest and of the longest list of candidates."""
    precision: str = "float32"
    """Type of the scores, as `Ranking.precision` has it."""

    @classmethod
    def of(cls, ranking: Ranking) -> RowSchema:
        listed = ranking.listed()
        lengths = int(listed.min()), int(listed.max())
        return cls(ranking.is_dense, ranking.depth, lengths, ranking.precision)

    def matched(self, ranking: Ranking) -> Ranking:
        """Return the rows as those of the calibration were; raise, or warn, if they cannot be."""
        kinds = {True: "a score for every class", False: "lists of candidates"}
        again = "calibrate with rows such as these"
        if ranking.is_dense != self.dense:
            raise ValueError(
                f"the calibration rows had {kinds[self.dense]}, but these have "
                f"{kinds[ranking.is_dense]}, for which nothing is guaranteed; {again}"
            )
        if self.dense and ranking.depth != self.depth:
            raise ValueError(
                f"the calibration rows were ranked to depth {self.depth}, but these to "
                f"{ranking.depth}, for which nothing is guaranteed; {again}"
            )
        found, (shortest, longest) = RowSchema.of(ranking).lengths, self.lengths
        if not self.dense and (found[0] < shortest or found[1] > longest):
            warn(
                f"the calibration rows had lists of {shortest} to {longest} candidates, but these "
                f"have {found[0]} to {found[1]}: where the lists are made otherwise, the accuracy "
                f"guaranteed may not be kept; {again}"
            )
        if ranking.precision == self.precision:
            return ranking
        if ranking.precision == "float32":  # rounded as the calibration rows were
            return ranking.with_precision(self.precision)
        warn(
            f"the calibration rows had {self.precision} scores, but these are {ranking.precision}: "
            "scores that differ by rounding may be on the other side of the threshold, and the "
            f"accuracy guaranteed may not be kept; {again}"
        )
        return ranking


@dataclass(frozen=True)
class Calibration:
    """Levels of the right labels of held-out rows, in random order; what guarantees are made of."""

    levels: NDArray[np.float64]
    labels: NDArray[np.int64]
    groups: NDArray[np.int64] | None
    group_names: list[object]
    candidates: NDArray[np.float64]
    """Thresholds, decreasing, …"""
    mean_sizes: NDArray[np.float64]
    """… and the mean sizes that they give on the rows that choose."""
    made_for: dict[str, Any]
    """Parameters that the levels depend on, as they were."""
    shape: RowSchema
    """What kind of rows they were."""
    out_of: int | None = None
    """How many rows `fit` was given, if it kept these of them."""
    choosing: int | None = None
    """How many rows, the first ones, choose a threshold by mean size; None: half of them."""
    chose_apart: int = 0
    """How many others did, if these are none of them."""
    exhaustive: bool = True
    """Whether a set can contain any label; not so for lists of candidates."""

    def __len__(self) -> int:
        return len(self.levels)

    @property
    def chose(self) -> int:
        """How many rows, the first ones, choose a threshold by mean size; the others certify."""
        return (len(self) + 1) // 2 if self.choosing is None else self.choosing


@dataclass(frozen=True)
class Conditional:
    """A threshold for each class or group."""

    by: str
    thresholds: Tensor
    """One for each class or known group, and a last one for groups never seen."""
    group_names: list[object]
    words: str

    @classmethod
    def of(
        cls,
        kept: Calibration,
        by: str,
        classes: Classes,
        accuracy: float,
        delta: float | None,
        on_unreachable: str,
    ) -> Conditional:
        """Thresholds from the calibration rows of each class or group.

        Those with too few rows share one threshold, see `shared_below`. With `delta` they do not,
        as how often each of them occurs is not known well enough: they are refused, or get every
        label.
        """
        if by == "class" and kept.chose_apart:
            raise ValueError(
                'by = "class", but of the calibration rows only counts are known, not their '
                "classes; calibrate with exact=True"
            )
        codes = kept.labels if by == "class" else kept.groups
        if codes is None:
            raise ValueError(
                'by = "group", but the calibration rows have no groups; give them: '
                "fit(..., groups=...) or calibrate(..., groups=...)"
            )
        names = classes.array().tolist() if by == "class" else kept.group_names
        counts = np.bincount(codes[codes >= 0], minlength=len(names))

        def of_rows(rows: NDArray[np.bool_], whose: str) -> float:
            try:
                return threshold(
                    np.sort(kept.levels[rows]),
                    accuracy,
                    delta=delta,
                    on_unreachable=on_unreachable,
                    exhaustive=kept.exhaustive,
                )
            except UnreachableError as error:
                raise UnreachableError(f"by {by}, {whose}: {error}") from None

        needed = min_calibration_size(accuracy, delta, exhaustive=kept.exhaustive)
        few_rows = (counts < needed) & (delta is None)
        below = shared_below(counts, needed) if few_rows.any() else np.zeros(len(counts))

        @cache
        def common(limit: float) -> float:
            few = "those with too few rows of their own together"
            return of_rows(np.append(counts < limit, False)[codes], few)

        def of_one(k: int, name: object) -> float:
            if few_rows[k]:
                return common(below[k])
            own = of_rows(codes == k, repr(name))
            # Its rows make up for those that others lack: both guarantees hold for it.
            return min(own, common(below[k])) if below[k] else own

        found = [of_one(k, name) for k, name in enumerate(names)]
        plural = "classes" if by == "class" else "groups"
        words = f"for each {by} by {counted(len(kept))}"
        if few_rows.any():
            if few_rows.all():
                words = f"for all {plural} together by {counted(len(kept))}"
                few = (
                    f"for no {by} of its own, as too few have the {needed:,} rows that it takes; "
                    f"all {len(names)} {plural} share one threshold"
                )
            else:
                few = (
                    f"{int(few_rows.sum())} of {len(names)} {plural}, with fewer than the "
                    f"{needed:,} rows that it takes, share one threshold, and the guarantee holds "
                    "for them together with the next smallest, if these are needed to make up for "
                    "what they lack"
                )
            words += f"; {few}"
            warn(f"accuracy = {accuracy} by {by}: {few}")
        absent = [name for k, name in enumerate(names) if not counts[k]]
        if absent:
            words += f"; nothing for {_few(absent)}, of which there is no calibration row"
        lost = sum(q == -np.inf for q in found)
        if lost:
            words += f"; for {lost} of {len(names)} {plural} {EVERY_LABEL}"
        # Groups that no calibration row is of get the threshold of those with few rows, or of all.
        limit = below[few_rows].min() if few_rows.any() else math.inf
        unseen = math.inf if by == "class" else common(limit)
        return cls(by, torch.tensor([*found, unseen], dtype=torch.float64), list(names), words)

    def of_rows(self, groups: ArrayLike, rows: int) -> tuple[Tensor, str]:
        """The threshold of each row's group, and what the guarantee leaves out, in words."""
        known = {name: code for code, name in enumerate(self.group_names)}
        asked = label_array(groups, "groups").tolist()
        if len(asked) != rows:
            raise ValueError(f"groups has {len(asked)} entries, but the scores have {rows} rows")
        unseen = list(dict.fromkeys(name for name in asked if name not in known))
        words = ""
        if unseen:
            warn(
                f"no calibration row is of group {_few(unseen)}: nothing is guaranteed for such "
                "groups, and they get the threshold of all calibration rows, or of those groups "
                "that share one"
            )
            words = f"; nothing for {_few(unseen)}, of which there is no calibration row"
        return self.thresholds[[known.get(name, len(known)) for name in asked]], words


def _few(names: list[object]) -> str:
    """The first of some names."""
    return ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")


def counted(rows: int) -> str:
    """
    >>> counted(1), counted(1000)
    ('1 calibration row', '1,000 calibration rows')
    """
    return f"{rows:,} calibration row{'' if rows == 1 else 's'}"


def shared_below(counts: NDArray[np.int64], needed: int) -> NDArray[np.float64]:
    """Return which classes share a threshold, and with which others.

    For a new row of class k, count this row too. Classes with at most `needed` rows, and further
    ones, smallest first, until they have more than `needed` rows together, share a threshold made
    of all their calibration rows. The count with the new row is the same whichever of the rows is
    the new one. So, given that the new row is of one of these classes, its score is equally likely
    to have any rank among theirs, and the guarantee holds for these classes together. (By the
    counts of the calibration rows alone it would not: the class of a new row would then be pooled
    more often than that of a calibration row.)

    Parameters
    ----------
    counts : (classes,)
        Calibration rows of each class.
    needed : int
        How many rows a threshold takes.

    Returns
    -------
    (classes,)
        The threshold of all classes with fewer rows than this holds for the class too; 0: none
        does.

    Examples
    --------
    >>> shared_below(np.array([50, 9, 3, 8]), 9).tolist()
    [0.0, 0.0, 10.0, 10.0]
    """
    below = np.zeros(len(counts))
    for count in np.unique(counts):
        together = np.append(counts, count + 1)  # the class with the new row, and …
        together = np.delete(together, int(np.argmax(counts == count)))  # … not without it
        if together.min() > needed:
            continue  # every class has rows enough
        sizes = np.unique([needed, *together[together > needed]])
        enough = [n for n in sizes.tolist() if together[together <= n].sum() > needed]
        limit = enough[0] + 1 if enough else math.inf
        below[counts == count] = limit if count + 1 < limit else 0
    return below


def group_codes(groups: ArrayLike, rows: int) -> tuple[NDArray[np.int64], list[object]]:
    """Groups as numbers, and their names."""
    array = label_array(groups, "groups")
    if len(array) != rows:
        raise ValueError(f"groups has {len(array)} entries, but the scores have {rows} rows")
    names = list(dict.fromkeys(array.tolist()))
    code = {name: i for i, name in enumerate(names)}
    return np.array([code[v] for v in array.tolist()], dtype=np.int64), names
