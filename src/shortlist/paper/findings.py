"""Findings about the claims of the paper, and how verdicts are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.paper.panels import Panel
from shortlist.paper.results import Results

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not on these data"
OPEN = "no verdict"
ALMOST_ALL = 0.95
"""Share of points from which a claim about all points holds."""


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, and a verdict.

    Parameters
    ----------
    claim : str
        The claim.
    where : str
        Figures that show it.
    verdict : str
        The verdict, for the paper's recipe with a single selector.
    single : str
        The number that the verdict rests on, with its spread over seeds.
    mean : str
        The same number and verdict with the averaged scores of several selectors.
    sensitivity : str
        What the number is sensitive to.
    evidence : tuple of str
        All numbers.
    """

    claim: str
    where: str
    verdict: str
    single: str
    mean: str
    sensitivity: str
    evidence: tuple[str, ...]


def verdict_of(holds: Sequence[bool | None]) -> str:
    """Return "reproduced" if a claim holds in all cases, and "partly" if it does in some.

    A case without an answer leaves the verdict open, unless the others already differ.
    """
    if True in holds and False in holds:
        return PARTLY
    if None in holds or not holds:
        return OPEN
    return REPRODUCED if True in holds else NOT


def verdict_of_shares(shares: Sequence[float], enough: float = ALMOST_ALL) -> str:
    """Return "reproduced" if almost all points support a claim, and "partly" if most do."""
    if not shares:
        return OPEN
    return REPRODUCED if min(shares) >= enough else PARTLY if np.mean(shares) > 0.5 else NOT


def panels_with_curves(results: Results, figure: str) -> list[Panel]:
    """Return the panels of a figure that have curves."""
    definition = results.figure(figure)
    return [] if definition is None else [p for p in definition.panels if p.curves]
