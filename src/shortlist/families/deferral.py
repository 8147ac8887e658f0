"""Families that also have members without a set: experts, tools, or "abstain"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import to_tensor
from shortlist.families.base import Family
from shortlist.guarantee import NO_GUARANTEE, Guarantee
from shortlist.ranking import Ranking
from shortlist.ranking.score_types import ScoreType
from shortlist.sets import PredictionSets


class Deferral(Family):
    """The sets of a family, and other members that a row can be deferred to.

    The members are the sets of `family`, followed by `others`. A row that is deferred has the
    empty set, which does not contain its label. Only selectors that are given the costs of the
    other members can choose from this family: see :meth:`shortlist.CardinalitySelector.fit`.

    Parameters
    ----------
    family : Family
        Sets to choose from.
    others : sequence of str
        Names of the other members, such as ``["expert", "abstain"]``.

    Examples
    --------
    >>> from shortlist import TopK
    >>> family = Deferral(TopK([1, 2]), ["expert", "abstain"])
    >>> family.member_names
    ['set 0', 'set 1', 'expert', 'abstain']
    >>> family.sizes([[0.1, 0.6, 0.3]]).tolist()
    [[1, 2, 0, 0]]
    """

    nested = False

    def __init__(self, family: Family, others: Sequence[str]) -> None:
        if not isinstance(family, Family) or family.others:
            raise ValueError(
                f"Deferral needs a family of sets, such as TopK([1, 2, 4]); got {family!r}"
            )
        if isinstance(others, str) or not isinstance(others, Iterable):
            raise ValueError(
                f'the other members of Deferral are a list of names, such as ["expert", "abstain"]'
                f"; got {others!r}"
            )
        names = tuple(others)
        bad = [name for name in names if not isinstance(name, str) or not name]
        if bad or not names:
            raise ValueError(f"Deferral needs at least one name, as a string; got {list(names)!r}")
        taken = family.member_names
        repeated = [name for i, name in enumerate(names) if name in (*taken, *names[:i])]
        if repeated:
            raise ValueError(
                f"the members of Deferral need distinct names; {repeated[0]!r} occurs twice among "
                f"{[*taken, *names]}"
            )
        self.family = family
        self.others = names
        self.by_row = family.by_row

    def __len__(self) -> int:
        return len(self.family) + len(self.others)

    @property
    def member_names(self) -> list[str]:
        """Names of all members; see `Family.member_names`."""
        return [*self.family.member_names, *self.others]

    @property
    def needs_fit(self) -> bool:
        """Whether the sets depend on data; see `Family.needs_fit`."""
        return self.family.needs_fit

    def fit(self, ranking: Ranking, index: Tensor, score_type: ScoreType) -> Self:
        """Return the family with fitted sets; see `Family.fit`."""
        return type(self)(self.family.fit(ranking, index, score_type), self.others)

    def check(self, ranking: Ranking) -> None:
        """Raise if the sets do not fit the ranking; see `Family.check`."""
        self.family.check(ranking)

    def possible_sizes(self, ranking: Ranking) -> Iterable[int]:
        """Return the sizes that can occur; see `Family.possible_sizes`."""
        return {0, *self.family.possible_sizes(ranking)}

    def max_size(self, depth: int) -> int:
        """Return the largest possible size; see `Family.max_size`."""
        return self.family.max_size(depth)

    def sizes_of(self, ranking: Ranking) -> Tensor:
        """Return the sizes of the sets, and 0 for the other members; see `Family.sizes_of`."""
        return self._with_others(self.family.sizes_of(ranking))

    def hits_of(self, ranking: Ranking, index: Tensor) -> Tensor:
        """Return the hits of the sets, and False for the other members; see `Family.hits_of`."""
        return self._with_others(self.family.hits_of(ranking, index))

    def _with_others(self, table: Tensor) -> Tensor:
        """Return a table with columns of zeros for the other members."""
        return torch.cat([table, table.new_zeros(len(table), len(self.others))], dim=1)

    def select(
        self, ranking: Ranking, choice: Tensor, *, guarantee: Guarantee = NO_GUARANTEE
    ) -> PredictionSets:
        """Return the sets of the chosen members, empty for others; see `Family.select`."""
        n_sets = len(self.family)
        sets = self.family.select(ranking, choice.clamp(max=n_sets - 1))
        flat, sizes = to_tensor(sets.indices, "indices"), to_tensor(sets.sizes, "sizes")
        is_set = choice.to(sizes.device) < n_sets
        return PredictionSets(
            flat[torch.repeat_interleave(is_set, sizes)],
            sizes * is_set,
            ranking.classes,
            array_type=ranking.array_type,
            guarantee=guarantee,
        )

    def onnx_sizes(self, rows: Any) -> Any:
        """Return `sizes_of` as a value of an ONNX graph; see `Family.onnx_sizes`."""
        sizes = rows.sizes_of(self.family)
        if isinstance(sizes, np.ndarray):
            return np.concatenate([sizes, np.zeros(len(self.others), dtype=sizes.dtype)])
        return rows.ranked.graph.concat([sizes, *[sizes[:, :1] * 0] * len(self.others)])

    def __repr__(self) -> str:
        return f"Deferral({self.family!r}, {list(self.others)!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Deferral)
            and self.family == other.family
            and self.others == other.others
        )

    def __hash__(self) -> int:
        return hash(("Deferral", self.family, self.others))
