"""The rank of the true label: the grid of sizes, buckets of ranks, and levels of every rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist.learning.settings import TrainingSettings
from shortlist.predictors.shortlister.folds import draw_folds
from shortlist.predictors.shortlister.rank_model import (
    LARGEST_CONSECUTIVE_SIZE,
    MAX_SPACED_SIZES,
    Buckets,
    RankModel,
    rank_inputs,
    size_grid,
)
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import MIN_LOG_PROBA, sorted_log_proba


def log_probabilities(rows: int, depth: int, n_classes: int, seed: int = 0) -> Tensor:
    """Sorted log-probabilities, with the mass of all other labels in the last column."""
    scores = torch.randn(rows, n_classes, generator=torch.Generator().manual_seed(seed))
    ranking = Ranking.from_scores(3 * scores.double())
    return sorted_log_proba(ranking, "logits", depth)


# The grid


@given(depth=st.integers(1, 5000))
@settings(max_examples=60, deadline=None)
def test_the_grid_increases_from_one_to_the_depth(depth: int) -> None:
    grid = size_grid(depth)
    assert grid[0] == 1
    assert grid[-1] == depth
    assert (np.diff(grid) > 0).all()
    assert set(range(1, min(depth, LARGEST_CONSECUTIVE_SIZE) + 1)) <= set(grid)
    assert len(grid) <= LARGEST_CONSECUTIVE_SIZE + MAX_SPACED_SIZES


# Buckets


@given(
    depth=st.integers(1, 60),
    unlisted=st.integers(0, 20),
    seed=st.integers(0, 100),
)
@settings(max_examples=40, deadline=None)
def test_masses_sum_to_one_with_that_of_unlisted_labels(
    depth: int, unlisted: int, seed: int
) -> None:
    n_classes = max(2, depth + unlisted)
    depth = min(depth, n_classes)
    log_p = log_probabilities(5, depth, n_classes, seed)
    outside = depth < n_classes
    buckets = Buckets(size_grid(depth), outside=outside)
    masses = buckets.masses(log_p)
    assert masses.shape == (5, len(buckets.sizes) + outside)
    assert masses.dtype == torch.float64
    torch.testing.assert_close(masses.sum(dim=1), torch.ones(5).double(), rtol=0, atol=1e-9)
    p = log_p.exp()
    start = 0
    for k, size in enumerate(buckets.sizes):
        torch.testing.assert_close(masses[:, k], p[:, start:size].sum(dim=1), rtol=1e-9, atol=0)
        start = size


def test_the_bucket_of_a_rank_at_the_edges() -> None:
    buckets = Buckets([1, 2, 5, 9], outside=True)
    ranks = torch.tensor([0, 1, 2, 4, 5, 8, 9, 50, np.inf], dtype=torch.float64)
    assert buckets.of_rank(ranks).tolist() == [0, 1, 2, 2, 3, 3, 4, 4, 4]


@given(depth=st.integers(1, 200))
@settings(max_examples=30, deadline=None)
def test_the_bucket_of_a_rank_is_that_of_the_smallest_set_that_contains_it(depth: int) -> None:
    sizes = size_grid(depth)
    ranks = torch.arange(depth, dtype=torch.float64)
    buckets = Buckets(sizes, outside=False).of_rank(ranks).tolist()
    assert buckets == [next(k for k, s in enumerate(sizes) if s > r) for r in range(depth)]


def non_increasing_levels(rows: int, n_sizes: int, seed: int) -> Tensor:
    """Levels that never increase, with equal values and with large steps."""
    rng = np.random.default_rng(seed)
    steps = rng.choice([0.0, 0.01, 1.0, 5.0], size=(rows, n_sizes)) * rng.random((rows, n_sizes))
    return torch.from_numpy(np.exp(-steps.cumsum(axis=1)))


@given(depth=st.integers(17, 150), scale=st.floats(0.1, 8.0), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_levels_of_ranks_never_increase_and_stay_between_the_buckets(
    depth: int, scale: float, seed: int
) -> None:
    buckets = Buckets(size_grid(depth), outside=True)
    log_p = torch.log_softmax(scale * log_probabilities(8, depth, depth + 3, seed), dim=1)
    log_p[:, :-1] = log_p[:, :-1].sort(dim=1, descending=True).values
    levels = non_increasing_levels(8, len(buckets.sizes), seed)
    spread = buckets.spread(levels, log_p)
    assert spread.shape == (8, depth)
    assert (spread.diff(dim=1) <= 0).all()
    padded = torch.nn.functional.pad(levels, (1, 1))
    padded[:, 0] = torch.inf
    start = 0
    for k, size in enumerate(buckets.sizes):
        inside = spread[:, start:size]
        assert (inside <= padded[:, k, None]).all()
        assert (inside >= padded[:, k + 2, None]).all()
        if size == start + 1:
            assert torch.equal(inside[:, 0], levels[:, k])
        start = size


def test_levels_within_a_bucket_are_proportional_to_the_probabilities() -> None:
    buckets = Buckets([1, 3, 5], outside=False)
    p = torch.tensor([[0.5, 0.22, 0.18, 0.06, 0.04, 1e-12]], dtype=torch.float64)
    levels = torch.tensor([[0.5, 0.2, 0.05]], dtype=torch.float64)
    expected = [[0.5, 0.22, 0.18, 0.06, 0.04]]
    np.testing.assert_allclose(buckets.spread(levels, p.log()).numpy(), expected)


def test_levels_of_a_bucket_are_at_least_those_of_the_next_one() -> None:
    buckets = Buckets([1, 3, 5], outside=False)
    p = torch.tensor([[0.5, 0.45, 0.02, 0.02, 0.001, 1e-12]], dtype=torch.float64)
    levels = torch.tensor([[0.6, 0.2, 0.19]], dtype=torch.float64)
    spread = buckets.spread(levels, p.log())
    assert spread[0, 2] == spread[0, 3] == 0.19


def test_infinite_levels_stay_infinite() -> None:
    buckets = Buckets([1, 3, 5], outside=False)
    levels = torch.tensor([[torch.inf, torch.inf, 0.1]], dtype=torch.float64)
    spread = buckets.spread(levels, log_probabilities(1, 5, 5))
    assert torch.isposinf(spread[0, :3]).all()
    assert torch.isfinite(spread[0, 3:]).all()


# Inputs of the model


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_inputs_are_log_probabilities_tails_and_features(depth: int) -> None:
    log_p = log_probabilities(6, 8, 10)
    features = torch.randn(6, 4)
    x = rank_inputs(log_p, depth, features)
    assert x.dtype == torch.float32
    assert x.shape == (6, 4 + 2 * depth)
    assert torch.equal(x[:, :4], features)
    torch.testing.assert_close(x[:, 4 : 4 + depth], log_p[:, :depth].float())
    p = log_p.exp()
    tails = torch.stack([p[:, k + 1 :].sum(dim=1).log() for k in range(depth)], dim=1)
    torch.testing.assert_close(
        x[:, 4 + depth :], tails.clamp(MIN_LOG_PROBA, 0).float(), rtol=1e-5, atol=1e-5
    )
    assert torch.equal(rank_inputs(log_p, depth, None), x[:, 4:])


def test_float64_features_are_not_rounded_before_they_are_standardized() -> None:
    log_p = log_probabilities(6, 8, 10)
    seconds = torch.arange(6, dtype=torch.float64)[:, None] + 1.7e9
    assert torch.equal(rank_inputs(log_p, 3, seconds)[:, :1], seconds)
    huge = torch.full((6, 1), 1e300, dtype=torch.float64)
    assert torch.isfinite(rank_inputs(log_p, 3, huge)).all()


# The model

SETTINGS = TrainingSettings(
    learning_rate=0.01,
    batch_size=128,
    max_epochs=6,
    min_steps_per_epoch=20,
    ema_decay=0.9,
    decoupled_weight_decay=True,
)


def fit(
    rank: Tensor, log_p: Tensor, buckets: Buckets, **options: object
) -> tuple[RankModel, Tensor]:
    return RankModel.fit(
        log_p,
        rank,
        buckets,
        **{  # type: ignore[arg-type]
            "features": None,
            "settings": SETTINGS,
            "members": 3,
            "width": 16,
            "depth": 4,
            "device": torch.device("cpu"),
            "progress": False,
        }
        | options,
    )


def test_the_model_corrects_wrong_masses_and_learns_that_of_unlisted_labels() -> None:
    """Half of the labels are unlisted, but the probabilities say a tenth."""
    rng = np.random.default_rng(0)
    p = torch.tensor([0.5, 0.3, 0.1, 0.1], dtype=torch.float64).expand(600, -1)
    rank = torch.from_numpy(rng.choice([0, 1, 2, np.inf], p=[0.2, 0.2, 0.1, 0.5], size=600))
    buckets = Buckets([1, 2, 3], outside=True)
    model, out_of_fold = fit(rank, p.log(), buckets, depth=3)
    masses = model(p[:1].log(), None)
    assert masses.shape == (1, 4)
    frequencies = torch.bincount(buckets.of_rank(rank), minlength=4) / 600
    np.testing.assert_allclose(masses[0].numpy(), frequencies, atol=0.05)
    torch.testing.assert_close(out_of_fold.sum(dim=1), torch.ones(600).double())
    assert out_of_fold.shape == (600, 4)


def test_masses_do_not_depend_on_the_batch() -> None:
    log_p = log_probabilities(300, 6, 6)
    rank = torch.from_numpy(np.random.default_rng(0).integers(6, size=300).astype(float))
    model, _ = fit(rank, log_p, Buckets(size_grid(6), outside=False))
    masses = model(log_p, None)
    one_by_one = torch.cat([model(log_p[i : i + 1], None) for i in range(20)])
    torch.testing.assert_close(masses[:20], one_by_one, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(masses.sum(dim=1), torch.ones(300).double())


def test_out_of_fold_masses_do_not_depend_on_the_own_rank() -> None:
    """A change of the ranks in one fold changes the masses of all rows outside that fold."""
    log_p = log_probabilities(300, 6, 6)
    rng = np.random.default_rng(0)
    buckets = Buckets(size_grid(6), outside=False)
    rank = torch.from_numpy(rng.integers(6, size=300).astype(float))
    once = TrainingSettings(learning_rate=0.01, batch_size=64, max_epochs=1, min_steps_per_epoch=20)
    own = draw_folds(300, 3, once.seed + 1) == 1
    other = rank.clone()
    other[own] = 5 - other[own]
    _, before = fit(rank, log_p, buckets, settings=once)
    _, after = fit(other, log_p, buckets, settings=once)
    assert torch.equal(before[own], after[own])
    assert not torch.isclose(before[~own], after[~own]).all(dim=1).any()
