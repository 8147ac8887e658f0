"""Sets that are chosen from a family: their hits, sizes and frontier."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shortlist.families import Family
from shortlist.frontier import Frontier
from shortlist.ranking import Ranking


def as_family(family: object, default: Family, *, sets_only: bool = True) -> Family:
    """Return the family to choose from, or the default for None; raise for anything else.

    With `sets_only`, raise also for a family with members whose costs are not known.
    """
    if family is None:
        return default
    if not isinstance(family, Family):
        raise ValueError(f"family must be a Family, such as TopK([1, 2, 4]); got {family!r}")
    if sets_only and family.others:
        names = ", ".join(map(repr, family.others))
        raise ValueError(
            f"the costs of {names}, members of {family}, are not known; use a "
            "CardinalitySelector or a CardinalityPath, and give fit(..., costs=...)"
        )
    return family


def check_depth(family: Family, ranking: Ranking) -> None:
    """Raise if a dense ranking is too shallow for the family. Candidates can be fewer."""
    if ranking.is_dense:
        family.check(ranking)


def hits_and_sizes(
    family: Family, ranking: Ranking, index: Tensor, choices: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return whether each chosen set contains its row's label, and its size.

    Parameters
    ----------
    family : Family
        Family that the sets are chosen from.
    ranking : Ranking
        Rows.
    index : Tensor of shape (n_rows,)
        Label indices; -1 for labels of unknown classes, which no set contains.
    choices : sequence of Tensor of shape (n_rows,)
        Chosen member for each row, in several ways.

    Returns
    -------
    hits, sizes : Tensor of shape (n_rows, n_choices)
        Hits and sizes of the chosen sets.
    """
    check_depth(family, ranking)
    sizes, hits = family.sizes_of(ranking), family.hits_of_known(ranking, index)
    columns = torch.stack([choice.to(torch.int64) for choice in choices], dim=1)
    return hits.gather(1, columns), sizes.gather(1, columns)


def frontier_of_choices(
    family: Family,
    ranking: Ranking,
    index: Tensor,
    choices: Sequence[Tensor],
    parameter: Sequence[float],
    *,
    parameter_name: str,
    name: str,
) -> Frontier:
    """Return the frontier of several choices from one family, with one point for each choice."""
    hits, sizes = hits_and_sizes(family, ranking, index, choices)
    return Frontier(
        (hits.sum(dim=0).to(torch.float64) / len(hits)).tolist(),
        (sizes.sum(dim=0).to(torch.float64) / len(sizes)).tolist(),
        parameter,
        parameter_name,
        name,
        rows=(hits.cpu().numpy(), sizes.cpu().numpy()),
    )
