"""Efforts of the Shortlister: which networks stage 1 trains, depending on the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shortlist._utils.validation import check_choice
from shortlist.predictors.shortlister.opinions import Architecture

SOME_ROWS = 5_000
"""With fewer rows, the largest networks of the effort "best" take minutes and gain nothing."""
MANY_ROWS = 40_000
"""With more rows, a network of the default effort that is twice as wide has smaller sets."""


@dataclass(frozen=True)
class NetworkPlan:
    """A network of an effort.

    Parameters
    ----------
    name : str
        Name of the network.
    width : int
        Factor of the given width.
    hidden : int
        Number of hidden layers.
    dropout, input_dropout : float
        Fraction of the units, and of the inputs, that are dropped.
    residual : bool, default=False
        Whether the outputs are added to the given scores.
    above, up_to : float
        The network is trained with more than `above` rows, and with `up_to` rows or fewer.
    """

    name: str
    width: int
    hidden: int
    dropout: float
    input_dropout: float
    residual: bool = False
    above: float = 0
    up_to: float = math.inf


RESIDUAL = NetworkPlan("residual", 1, 1, 0.5, 0.2, residual=True)

EFFORTS: dict[str, tuple[NetworkPlan, ...]] = {
    "fast": (),
    "standard": (
        RESIDUAL,
        NetworkPlan("wide", 1, 1, 0.5, 0.2, up_to=MANY_ROWS),
        NetworkPlan("wide", 2, 1, 0.5, 0.2, above=MANY_ROWS),
    ),
    "best": (
        RESIDUAL,
        NetworkPlan("wide", 1, 1, 0.5, 0.2),
        NetworkPlan("two-layer", 2, 2, 0.5, 0.3),
        NetworkPlan("large two-layer", 4, 2, 0.6, 0.3),
        NetworkPlan("three-layer", 2, 3, 0.4, 0.2),
        NetworkPlan("large", 4, 1, 0.7, 0.4, above=SOME_ROWS),
        NetworkPlan("largest", 8, 1, 0.6, 0.2, above=SOME_ROWS),
    ),
}
"""Networks of stage 1 for each effort."""


def check_effort(effort: object) -> str:
    """Return an effort, or raise a ValueError if there is none of this name."""
    return check_choice(effort, "effort", tuple(EFFORTS))


def effort_architectures(effort: str, width: int, n_rows: int) -> list[Architecture]:
    """Return the networks of an effort.

    Parameters
    ----------
    effort : {"fast", "standard", "best"}
        How much to learn.
    width : int
        Number of hidden units of a network with the factor 1.
    n_rows : int
        Number of rows to learn from.

    Returns
    -------
    list of Architecture

    Examples
    --------
    >>> [network.width for network in effort_architectures("standard", 512, n_rows=1_000_000)]
    [512, 1024]
    """
    return [
        Architecture(
            f"{plan.name} network",
            plan.width * width,
            plan.hidden,
            plan.dropout,
            plan.input_dropout,
            plan.residual,
        )
        for plan in EFFORTS[check_effort(effort)]
        if plan.above < n_rows <= plan.up_to
    ]
