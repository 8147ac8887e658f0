"""Scores of every type, dense and as candidates."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from synthetic import as_score_type

from shortlist.ranking import Ranking


def make_scores(
    score_type: str, rows: int = 30, n: int = 7, seed: int = 0, spread: float = 3.0
) -> np.ndarray:
    """Return random scores of a type."""
    logits = np.random.default_rng(seed).normal(0, spread, (rows, n))
    return as_score_type(logits, score_type)


def as_candidates(scores: np.ndarray, depth: int) -> Ranking:
    """Return a ranking of the `depth` best labels of each row alone."""
    dense = Ranking.from_scores(scores)
    return Ranking.from_candidates(
        dense.labels[:, :depth], dense.scores[:, :depth], n_classes=scores.shape[1]
    )


def tied_scores(rows: int, n: int, values: int, seed: int = 0) -> np.ndarray:
    """Return integer-valued scores, so that nearly every row has ties."""
    return np.random.default_rng(seed).integers(0, values, (rows, n)).astype(np.float64)


tie_heavy = st.tuples(
    st.integers(1, 12), st.integers(2, 60), st.integers(1, 8), st.integers(0, 2**32 - 1)
).map(lambda a: tied_scores(*a))
