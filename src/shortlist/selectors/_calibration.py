"""What held-out rows said, and the thresholds that follow: for all rows, by class or by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._arrays import ArrayLike
from shortlist._labels import Classes, label_array
from shortlist._warnings import warn
from shortlist.guarantee import UnreachableError, fewest_rows, threshold
from shortlist.ranking import Ranking

EVERY_LABEL = "every label, as nothing less can be promised"


@dataclass(frozen=True)
class Shape:
    """What kind of rows made a promise: it holds for others of the same kind."""

    dense: bool
    depth: int
    lengths: tuple[int, int]
    """Of the shortest and of the longest list of candidates."""

    @classmethod
    def of(cls, ranking: Ranking) -> Shape:
        listed = ranking.listed()
        return cls(ranking.is_dense, ranking.depth, (int(listed.min()), int(listed.max())))

    def check(self, ranking: Ranking) -> None:
        """Raise, or warn, if these rows are of another kind."""
        kinds = {True: "a score for every class", False: "lists of candidates"}
        again = "calibrate with rows such as these"
        if ranking.is_dense != self.dense:
            raise ValueError(
                f"the calibration rows had {kinds[self.dense]}, but these have "
                f"{kinds[ranking.is_dense]}, for which nothing is promised; {again}"
            )
        if self.dense and ranking.depth != self.depth:
            raise ValueError(
                f"the calibration rows were ranked to depth {self.depth}, but these to "
                f"{ranking.depth}, for which nothing is promised; {again}"
            )
        found, (shortest, longest) = Shape.of(ranking).lengths, self.lengths
        if not self.dense and (found[0] < shortest or found[1] > longest):
            warn(
                f"the calibration rows had lists of {shortest} to {longest} candidates, but these "
                f"have {found[0]} to {found[1]}: where the lists are made otherwise, the accuracy "
                f"promised may not be kept; {again}"
            )


@dataclass(frozen=True)
class Calibration:
    """Levels of the right labels of held-out rows, in random order; what promises are made of."""

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
    shape: Shape
    """What kind of rows they were."""
    out_of: int | None = None
    """How many rows `fit` was given, if it kept these of them."""
    choosing: int | None = None
    """How many rows, the first ones, choose a threshold by mean size; None: half of them."""
    chose_apart: int = 0
    """How many others did, if these are none of them."""

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

        Those with too few rows share one threshold, made of all their rows; if even these are too
        few, those of the next smallest class join them.
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
        pooled = _pool(np.bincount(codes, minlength=len(names)), fewest_rows(accuracy, delta))

        def of_rows(rows: NDArray[np.bool_], whose: str) -> float:
            try:
                return threshold(
                    np.sort(kept.levels[rows]),
                    accuracy,
                    delta=delta,
                    on_unreachable=on_unreachable,
                )
            except UnreachableError as error:
                raise UnreachableError(f"by {by}, {whose}: {error}") from None

        shared = pooled[codes]
        few = "those with too few rows of their own together"
        common = of_rows(shared if shared.any() else np.ones_like(shared), few)
        found = [
            common if pooled[k] else of_rows(codes == k, repr(name)) for k, name in enumerate(names)
        ]
        plural = "classes" if by == "class" else "groups"
        words = f"for each {by} by {counted(len(kept))}"
        if pooled.any():
            needed = fewest_rows(accuracy, delta)
            if pooled.all():
                words = f"for all {plural} together by {counted(len(kept))}"
                few = (
                    f"for no {by} of its own, as too few have the {needed:,} rows that it takes; "
                    f"all {len(names)} {plural} share one threshold"
                )
            else:
                few = (
                    f"{int(pooled.sum())} of {len(names)} {plural}, with too few rows of their own "
                    f"(fewer than {needed:,}, or needed to make up for those), share one "
                    "threshold, and the promise holds for them together"
                )
            words += f"; {few}"
            warn(f"accuracy = {accuracy} by {by}: {few}")
        absent = [name for k, name in enumerate(names) if not (codes == k).any()]
        if absent:
            words += f"; nothing for {_few(absent)}, of which there is no calibration row"
        lost = sum(q == -np.inf for q in found)
        if lost:
            words += f"; for {lost} of {len(names)} {plural} {EVERY_LABEL}"
        return cls(by, torch.tensor([*found, common], dtype=torch.float64), list(names), words)

    def of_rows(self, groups: ArrayLike, rows: int) -> tuple[Tensor, str]:
        """The threshold of each row's group, and what the promise leaves out, in words."""
        known = {name: code for code, name in enumerate(self.group_names)}
        asked = label_array(groups, "groups").tolist()
        if len(asked) != rows:
            raise ValueError(f"groups has {len(asked)} entries, but the scores have {rows} rows")
        unseen = list(dict.fromkeys(name for name in asked if name not in known))
        words = ""
        if unseen:
            warn(
                f"no calibration row is of group {_few(unseen)}: nothing is promised for such "
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


def _pool(counts: NDArray[np.int64], needed: int) -> NDArray[np.bool_]:
    """Which classes share a threshold: those with too few rows, and as many as they need."""
    pooled = counts < needed
    if pooled.any():
        for k in np.argsort(counts, kind="stable"):
            if counts[pooled].sum() >= needed:
                break
            pooled[k] = True
    return pooled


def group_codes(groups: ArrayLike, rows: int) -> tuple[NDArray[np.int64], list[object]]:
    """Groups as numbers, and their names."""
    array = label_array(groups, "groups")
    if len(array) != rows:
        raise ValueError(f"groups has {len(array)} entries, but the scores have {rows} rows")
    names = list(dict.fromkeys(array.tolist()))
    code = {name: i for i, name in enumerate(names)}
    return np.array([code[v] for v in array.tolist()], dtype=np.int64), names
