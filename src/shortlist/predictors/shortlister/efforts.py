"""Efforts of the Shortlister: which networks stage 1 trains, depending on the number of rows."""

from __future__ import annotations

from dataclasses import dataclass

from shortlist._utils.validation import check_choice
from shortlist.predictors.shortlister.opinions import Architecture

MANY_ROWS = 40_000
"""More rows than this are many: larger networks then help."""


@dataclass(frozen=True)
class NetworkPlan:
    """A network of an effort.

    Parameters
    ----------
    name : str
        Name of the network.
    width : int or None
        Factor of the given width. None does not train the network, unless there are many rows.
    hidden : int
        Number of hidden layers.
    dropout, input_dropout : float
        Fraction of the units, and of the inputs, that are dropped.
    residual : bool, default=False
        Whether the outputs are added to the given scores.
    width_with_many_rows : int, optional
        Factor of the given width with more than `MANY_ROWS` rows. By default, it is `width`.
    """

    name: str
    width: int | None
    hidden: int
    dropout: float
    input_dropout: float
    residual: bool = False
    width_with_many_rows: int | None = None

    def width_factor(self, n_rows: int) -> int | None:
        """Return the factor of the width with this many rows; None to leave the network out."""
        is_wider = n_rows > MANY_ROWS and self.width_with_many_rows is not None
        return self.width_with_many_rows if is_wider else self.width


RESIDUAL = NetworkPlan("residual", 1, 1, 0.5, 0.2, residual=True)

EFFORTS: dict[str, tuple[NetworkPlan, ...]] = {
    "fast": (),
    "standard": (RESIDUAL, NetworkPlan("wide", 1, 1, 0.5, 0.2, width_with_many_rows=2)),
    "best": (
        RESIDUAL,
        NetworkPlan("wide", 1, 1, 0.5, 0.2),
        NetworkPlan("two-layer", 2, 2, 0.5, 0.3),
        NetworkPlan("large two-layer", 4, 2, 0.6, 0.3),
        NetworkPlan("three-layer", 2, 3, 0.4, 0.2),
        # With few rows, these two take minutes and gain nothing.
        NetworkPlan("large", None, 1, 0.7, 0.4, width_with_many_rows=4),
        NetworkPlan("largest", None, 1, 0.6, 0.2, width_with_many_rows=8),
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
            factor * width,
            plan.hidden,
            plan.dropout,
            plan.input_dropout,
            plan.residual,
        )
        for plan in EFFORTS[check_effort(effort)]
        if (factor := plan.width_factor(n_rows)) is not None
    ]
