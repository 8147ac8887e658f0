"""Definitions of the assumptions of the theorems."""

from __future__ import annotations

from collections.abc import Sequence


def hypothesis_definitions() -> dict[str, str]:
    """Return the definitions of the terms in the assumptions of the theorems.

    Returns
    -------
    dict of str
        Definition of each term.

    Examples
    --------
    >>> sorted(hypothesis_definitions())
    ['closed under scaling', 'complete', 'realizable', 'regular', 'symmetric']
    """
    return dict(_DEFINITIONS)


_DEFINITIONS: Sequence[tuple[str, str]] = (
    (
        "regular",
        "At every x, every choice and order of the first k labels is produced by some hypothesis. "
        "Linear models with a constant feature, networks, and the set of all functions are "
        "regular. A set in which no hypothesis ranks a certain label first is not. Symmetric and "
        "complete sets are regular.",
    ),
    (
        "symmetric",
        "The scoring functions of all labels come from the same family, so that exchanging the "
        "weights of two labels gives another hypothesis of the set. Sets in which some labels "
        "have their own features are not symmetric.",
    ),
    (
        "complete",
        "At every x, the score of a label can be any real number. Linear models with unbounded "
        "weights are complete for x other than zero. Models whose norm is bounded, for example "
        "by regularization or clipping, are not complete.",
    ),
    (
        "closed under scaling",
        "Every positive multiple of a hypothesis is in the set. Linear models, and networks with "
        "an unconstrained last layer, are closed under scaling. Sets with a bounded norm or a "
        "fixed temperature are not.",
    ),
    (
        "realizable",
        "With probability one, some hypothesis of the set scores the true label above the label "
        "of rank k + 1 (top-k-H-realizable). For k = 1, the data are separable.",
    ),
)
