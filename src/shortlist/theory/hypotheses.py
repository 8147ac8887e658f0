"""The assumptions of the theorems, in words that can be checked."""

from __future__ import annotations

from collections.abc import Sequence


def hypothesis_words() -> dict[str, str]:
    """Return what the theorems assume of a hypothesis set or a distribution.

    Returns
    -------
    dict of str
        The definition of each term.

    Examples
    --------
    >>> sorted(hypothesis_words())
    ['closed under scaling', 'complete', 'realizable', 'regular', 'symmetric']
    """
    return dict(_DEFINITIONS)


_DEFINITIONS: Sequence[tuple[str, str]] = (
    (
        "regular",
        "At every x, every order of the first k labels is that of some hypothesis. Linear models "
        "with a constant feature, networks and all functions are; a model that never ranks some "
        "label first is not. Symmetric and complete sets are regular.",
    ),
    (
        "symmetric",
        "The labels' scoring functions come from one and the same family: exchanging the weights "
        "of two labels gives another hypothesis of the set. Not so if some labels have features "
        "of their own.",
    ),
    (
        "complete",
        "At every x, the score of a label can be any real number. Linear models with unbounded "
        "weights are, where x is not zero; with a bounded norm, as every regularised or clipped "
        "model has, they are not.",
    ),
    (
        "closed under scaling",
        "With h, every multiple of it by a positive number is in the set. Linear models and "
        "networks with a free last layer are; a bounded norm, or a fixed temperature, prevents it.",
    ),
    (
        "realizable",
        "Some hypothesis of the set scores the right label above the label of rank k + 1, with "
        "probability one (top-k-H-realizable). For k = 1: the data can be separated.",
    ),
)
