"""Hashes of rows depend on the row alone, and differ for rows that differ."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shortlist.ranking import Ranking
from shortlist.ranking.row_hashing import row_fingerprints, row_keys


def uniform(rows: int, classes: int) -> np.ndarray:
    """Return random scores."""
    return np.random.default_rng(0).random((rows, classes), dtype=np.float32)


def hashes(scores: object) -> torch.Tensor:
    return row_fingerprints(Ranking.from_scores(scores, score_type="logits"))


def test_equal_rows_have_the_same_hash_in_every_batch_and_order_of_the_classes():
    scores = uniform(700, 300)
    expected = hashes(scores)
    assert torch.equal(hashes(scores[5:6]), expected[5:6])
    assert torch.equal(hashes(scores[:, ::-1].copy()), expected)
    assert torch.equal(hashes(np.asfortranarray(scores)), expected)
    assert torch.equal(hashes(scores.astype(np.float64)), expected)
    ranking = Ranking.from_scores(scores)
    assert torch.equal(
        row_fingerprints(ranking.view(np.arange(700)[::-1].copy())), expected.flip(0)
    )


@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_different_rows_have_different_hashes(classes):
    scores = uniform(20_000, classes)
    assert len(torch.unique(hashes(scores))) > 0.999 * len(scores)


def test_coarse_probabilities_have_different_hashes():
    """Sums of the bits alone would be equal for many of them."""
    whole = np.array([[a, b, 1000 - a - b] for a in range(1, 500, 5) for b in range(a, 500, 5)])
    whole = whole[(np.diff(whole, axis=1) > 0).all(axis=1)]  # No row is a permutation of another.
    for dtype in (np.float16, np.float32):
        scores = np.unique((whole / 1000).astype(dtype), axis=0)
        assert len(torch.unique(hashes(scores))) > 0.99 * len(scores)


def test_the_smallest_score_and_not_the_sign_of_zero_matters():
    scores = uniform(2, 50)
    scores[1] = scores[0]
    scores[:, 7] = 0.0
    assert len(torch.unique(hashes(scores))) == 1
    scores[1, 7] = -0.0
    assert len(torch.unique(hashes(scores))) == 1
    scores[1, 7] = 1e-6
    assert len(torch.unique(hashes(scores))) == 2


def test_candidates_are_hashed_by_their_best_scores():
    ranking = Ranking.from_candidates([[2, 1], [0, 2]], [[0.5, 0.1], [0.7, 0.2]], n_classes=3)
    assert torch.equal(row_fingerprints(ranking), row_keys(ranking))
