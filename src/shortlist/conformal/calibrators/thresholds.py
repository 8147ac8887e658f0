"""Thresholds on levels, with their guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.frames import format_names
from shortlist._utils.validation import check_choice
from shortlist._utils.warnings import warn
from shortlist.conformal.groups import group_names, note_on_absent
from shortlist.guarantee import Guarantee

Unit: TypeAlias = Literal["set", "class", "group"]
"""What has a threshold of its own: all sets share one, or each class or group has one."""


@dataclass(frozen=True)
class Thresholds:
    """Thresholds on levels, with their guarantee.

    Parameters
    ----------
    values : Tensor of float64
        One threshold (shape ()), one for each class, or one for each group and a last one for
        unknown groups. Minus infinity stands for the set of all classes.
    guarantee : Guarantee
        Guarantee of the sets at these thresholds.
    per : {"set", "class", "group"}, default="set"
        What has a threshold of its own.
    groups : sequence, default=()
        Names of the groups, if `per` is "group".
    """

    values: Tensor
    guarantee: Guarantee
    per: Unit = "set"
    groups: Sequence[object] = ()

    def __post_init__(self) -> None:
        check_choice(self.per, "per", get_args(Unit))
        if self.values.dtype != torch.float64:
            raise ValueError(
                f"thresholds must be float64; got {self.values.dtype}. A rounded threshold can be "
                "higher than the level that it stands for, so that the guarantee does not hold"
            )

    def for_rows(self, n_rows: int, groups: ArrayLike | None = None) -> tuple[Tensor, Guarantee]:
        """Return the thresholds of rows, and the guarantee for these rows.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        groups : array-like of shape (n_rows,), optional
            Group of each row. Required if `per` is "group", an error otherwise.

        Returns
        -------
        thresholds : Tensor of shape (n_rows,), or (n_classes,) if `per` is "class"
            Threshold of each row, or of each class.
        guarantee : Guarantee
            Guarantee for these rows. A note names groups for which nothing is guaranteed.

        Raises
        ------
        ValueError
            If `groups` is missing, is not needed, or has another length.
        """
        if self.per == "group":
            if groups is None:
                raise ValueError('by = "group" needs the group of each row: groups=...')
            return self._for_groups(group_names(groups, n_rows))
        if groups is not None:
            raise ValueError(
                'groups were given, but the guarantee is not conditional on groups; say by="group"'
            )
        return self.values if self.per == "class" else self.values.expand(n_rows), self.guarantee

    def _for_groups(self, names: list[object]) -> tuple[Tensor, Guarantee]:
        """Return the threshold of each row's group."""
        index = {name: i for i, name in enumerate(self.groups)}
        guarantee = self.guarantee
        unknown = list(dict.fromkeys(name for name in names if name not in index))
        if unknown:
            warn(
                f"no calibration row is of group {format_names(unknown)}: nothing is guaranteed "
                "for such groups; they get the threshold of all calibration rows, or of the groups "
                "that share one"
            )
            guarantee = guarantee.with_note(note_on_absent(unknown))
        return self.values[[index.get(name, len(index)) for name in names]], guarantee
