"""Probabilities and log-probabilities against sums in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from score_samples import as_candidates, make_scores
from synthetic import SCORE_TYPES

from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import (
    MIN_LOG_PROBA,
    PADDING_LOG_PROBA,
    ProbaColumns,
    log_columns,
    proba_columns,
    sorted_log_proba,
    target_columns,
)
from shortlist.ranking.score_types import infer_score_type

DTYPES = [np.float16, np.float32, np.float64]

# Probabilities by column


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 0.7, 3.0])
@pytest.mark.parametrize("score_type", SCORE_TYPES)
def test_blocks_of_columns_are_the_same_numbers_in_every_batch(score_type, scale, dtype):
    """Calibration and prediction read blocks of different sizes, from views and from matrices."""
    scores = make_scores(score_type, rows=60, n=9, seed=1).astype(dtype)
    ranking = Ranking.from_scores(scores, score_type=score_type)
    expected = proba_columns(ranking.scores_of(slice(None)), score_type, scale)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    columns = ProbaColumns(ranking, score_type, scale)
    viewed = ProbaColumns(ranking.view(order), score_type, scale)
    assert columns.dtype == expected.dtype
    assert torch.equal(columns[:], expected)
    assert torch.equal(viewed[:], expected[order])
    for start, stop in [(0, 60), (3, 4), (10, 47)]:
        assert torch.equal(columns.block(slice(start, stop)), expected[start:stop])
        assert torch.equal(viewed.block(slice(start, stop)), expected[order[start:stop]])
    assert np.array_equal(ranking.scores_of(slice(None)).numpy(), scores)  # Not overwritten.


# Sorted log-probabilities


def brute_log_proba(
    row: list[float], score_type: str, depth: int, listed: int | None = None
) -> list[float]:
    """Return the logs of the first masses, then of all others; only `listed` candidates exist."""
    row = sorted(row, reverse=True)[:listed]
    if score_type == "logits":
        masses = [math.exp(v - row[0]) for v in row]
        masses = [v / math.fsum(masses) for v in masses]
    else:
        masses = [math.exp(v) for v in row] if score_type == "log_proba" else row
    rest = math.fsum(masses[depth:])
    if listed is not None and score_type != "logits":
        rest += 1 - math.fsum(masses)
    first = (masses + [0.0] * depth)[:depth]
    return [max(math.log(v), MIN_LOG_PROBA) if v > 0 else MIN_LOG_PROBA for v in [*first, rest]]


@given(
    st.sampled_from(SCORE_TYPES),
    st.integers(2, 9),
    st.integers(1, 9),
    st.sampled_from([0.5, 3.0, 12.0]),
    st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None)
def test_sorted_log_proba_by_brute_force(score_type, n, depth, spread, seed):
    scores = make_scores(score_type, rows=4, n=n, seed=seed, spread=spread)
    depth = min(depth, n)
    expected = [brute_log_proba(row, score_type, depth) for row in scores.tolist()]
    got = sorted_log_proba(Ranking.from_scores(scores), score_type, depth)
    assert got.shape == (4, depth + 1)
    np.testing.assert_allclose(got, expected, atol=1e-9)
    single = sorted_log_proba(Ranking.from_scores(scores.astype(np.float32)), score_type, depth)
    np.testing.assert_allclose(single, expected, atol=2e-4)
    listed = (n + 1) // 2
    expected = [brute_log_proba(row, score_type, depth, listed) for row in scores.tolist()]
    got = sorted_log_proba(as_candidates(scores, listed), score_type, depth)
    # The mass of unlisted labels is known as 1 minus the rest, so masses are compared, not logs.
    np.testing.assert_allclose(got[:, :-1], np.array(expected)[:, :-1], atol=1e-9)
    np.testing.assert_allclose(got[:, -1].exp(), np.exp(expected)[:, -1], atol=1e-12)


@pytest.mark.parametrize("score_type", SCORE_TYPES)
def test_a_small_tail_is_precise(score_type):
    """In float32, 1 - p is 0 for tails below 6e-8, while the sum of the tail is not."""
    logits = np.array([[0.0, -20.0, -21.0, -22.0], [0.0, -25.0, -25.0, -25.0]])
    log_proba = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    scores = {"logits": logits, "proba": np.exp(log_proba), "log_proba": log_proba}[score_type]
    got = sorted_log_proba(Ranking.from_scores(scores.astype(np.float32)), score_type, 1)
    np.testing.assert_allclose(got[:, 1], np.log(np.exp(log_proba)[:, 1:].sum(1)), rtol=1e-5)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_probabilities_of_zero_are_floored(depth):
    got = sorted_log_proba(Ranking.from_scores([[1.0, 0.0, 0.0]]), "proba", depth).tolist()
    assert got == [[0.0, *[MIN_LOG_PROBA] * depth]]


def test_no_mass_is_left_after_the_last_label():
    scores = make_scores("logits", rows=50)
    got = sorted_log_proba(Ranking.from_scores(scores), "logits", 7)
    assert (got[:, -1] == MIN_LOG_PROBA).all()
    np.testing.assert_allclose(got[:, :-1].exp().sum(dim=1), 1.0)


@given(
    st.lists(st.integers(-8, 8), min_size=2, max_size=6),
    st.sampled_from([-1e4, -100.0, 0.0, 64.0, 1e4]),
)
@settings(max_examples=40, deadline=None)
def test_shifting_logits_changes_nothing(row, shift):
    row = np.array([row], dtype=np.float32)
    plain = sorted_log_proba(Ranking.from_scores(row), "logits", 2)
    moved = sorted_log_proba(Ranking.from_scores(row + np.float32(shift)), "logits", 2)
    assert torch.equal(plain, moved)  # Integers of this size are exact in float32.


@pytest.mark.parametrize("score_type", SCORE_TYPES)
def test_the_three_score_types_agree(score_type):
    expected = sorted_log_proba(Ranking.from_scores(make_scores("logits")), "logits", 3)
    got = sorted_log_proba(Ranking.from_scores(make_scores(score_type)), score_type, 3)
    np.testing.assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize(("dtype", "wide"), [(np.float16, torch.float32), (np.float64, None)])
def test_half_precision_is_computed_in_single(dtype, wide):
    scores = make_scores("logits").astype(dtype)
    got = sorted_log_proba(Ranking.from_scores(scores), "logits", 3)
    assert got.dtype == (wide or torch.float64)
    np.testing.assert_allclose(
        got, [brute_log_proba(row, "logits", 3) for row in scores.tolist()], atol=1e-5
    )


@pytest.mark.parametrize("score_type", SCORE_TYPES)
def test_padding_has_the_minimum_log_proba(score_type):
    scores = make_scores(score_type, rows=1)
    ranking = as_candidates(scores, 2)
    got = sorted_log_proba(ranking, score_type, 4)[0].tolist()
    assert got[2:4] == [MIN_LOG_PROBA] * 2
    unlisted = 1 - math.exp(got[0]) - math.exp(got[1])
    assert math.exp(got[4]) == pytest.approx(0 if score_type == "logits" else unlisted, abs=1e-12)


@pytest.mark.parametrize("score_type", SCORE_TYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_does_not_depend_on_the_batch(score_type, dtype):
    scores = make_scores(score_type, rows=33, n=40).astype(dtype)
    expected = sorted_log_proba(Ranking.from_scores(scores), score_type, 5)
    for i in range(33):
        single = sorted_log_proba(Ranking.from_scores(scores[i : i + 1]), score_type, 5)
        assert torch.equal(single[0], expected[i])


@pytest.mark.parametrize("score_type", SCORE_TYPES)
def test_the_scores_are_not_changed(score_type):
    scores = make_scores(score_type)
    original = scores.copy()
    ranking = Ranking.from_scores(scores)
    ranking.top(7)
    before = ranking.scores.copy()
    sorted_log_proba(ranking, score_type, 7)
    infer_score_type(ranking)
    assert np.array_equal(scores, original)
    assert np.array_equal(ranking.scores, before)


# Temperatures


def brute_scaled(
    row: list[float], score_type: str, depth: int, scale: float, listed: int | None
) -> list[float]:
    """Return log masses to the power of `scale`, normalized; unlisted labels count as one label."""
    row = sorted(row, reverse=True)[:listed]
    if score_type == "logits":
        logs = [v - row[0] for v in row]
    else:
        logs = [max(math.log(v) if score_type == "proba" else v, MIN_LOG_PROBA) for v in row]
        if listed is not None:
            rest = 1 - math.fsum(math.exp(v) if score_type == "log_proba" else v for v in row)
            logs.append(max(math.log(rest) if rest > 0 else -math.inf, MIN_LOG_PROBA))
    masses = [math.exp(v * scale) for v in logs]
    total = math.fsum(masses)
    inside = [] if listed is None or score_type == "logits" else [masses.pop()]
    result = [*(masses + [0.0] * depth)[:depth], math.fsum(masses[depth:] + inside)]
    return [math.log(max(v / total, math.exp(MIN_LOG_PROBA))) for v in result]


@given(
    st.sampled_from(SCORE_TYPES),
    st.integers(2, 9),
    st.integers(1, 9),
    st.sampled_from([0.05, 0.5, 3.0]),
    st.sampled_from([0.5, 3.0, 12.0, 60.0]),
    st.integers(0, 1000),
)
@settings(max_examples=120, deadline=None)
def test_a_temperature_by_brute_force(score_type, n, depth, scale, spread, seed):
    scores = np.maximum(make_scores(score_type, rows=4, n=n, seed=seed, spread=spread), -1e3)
    if score_type == "proba":
        scores = np.maximum(scores, 1e-300)
    depth = min(depth, n)
    expected = [brute_scaled(row, score_type, depth, scale, None) for row in scores.tolist()]
    got = sorted_log_proba(Ranking.from_scores(scores), score_type, depth, scale)
    np.testing.assert_allclose(got, expected, atol=1e-9)
    listed = (n + 1) // 2
    expected = [brute_scaled(row, score_type, depth, scale, listed) for row in scores.tolist()]
    got = sorted_log_proba(as_candidates(scores, listed), score_type, depth, scale)
    np.testing.assert_allclose(got.exp(), np.exp(expected), atol=1e-3 if scale < 1 else 1e-9)


@pytest.mark.parametrize("scale", [1.0, 0.1])
@pytest.mark.parametrize("score_type", SCORE_TYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_candidates_does_not_depend_on_the_batch(score_type, dtype, scale):
    """The row with the most candidates determines the number of columns, and nothing else."""
    scores = make_scores(score_type, rows=33, n=40).astype(dtype)
    dense = Ranking.from_scores(scores)
    labels = np.where(np.arange(25) < 1 + np.arange(33)[:, None] % 25, dense.labels[:, :25], -1)
    batch = Ranking.from_candidates(labels, dense.scores[:, :25], n_classes=40)
    for depth in (3, 25):
        expected = sorted_log_proba(batch, score_type, depth, scale)
        for i in range(33):
            single = Ranking.from_candidates(labels[[i]], dense.scores[[i], :25], n_classes=40)
            assert torch.equal(sorted_log_proba(single, score_type, depth, scale)[0], expected[i])


# Columns


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("score_type", SCORE_TYPES)
def test_logarithms_by_column(score_type, dtype):
    scores = make_scores(score_type, spread=20).astype(dtype)
    got = log_columns(Ranking.from_scores(scores), slice(3, 9), score_type)
    assert got.dtype == (torch.float64 if dtype == np.float64 else torch.float32)
    for row, values in zip(scores[3:9].astype(float).tolist(), got.tolist(), strict=True):
        if score_type == "logits":
            expected = [v - max(row) for v in row]  # Without a floor.
        else:
            logs = [(math.log(v) if v else -math.inf) if score_type == "proba" else v for v in row]
            expected = [max(v, MIN_LOG_PROBA) for v in logs]
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)
    assert got.min() < (MIN_LOG_PROBA - 1 if score_type == "logits" else MIN_LOG_PROBA + 1)


@pytest.mark.parametrize("score_type", SCORE_TYPES)
def test_logarithms_of_candidates_by_position(score_type):
    scores = {"proba": [0.5, 0.25], "log_proba": np.log([0.5, 0.25]), "logits": [3.0, 1.0]}[
        score_type
    ]
    labels = [[4, 2], [1, -1]]
    ranking = Ranking.from_candidates(labels, [list(scores), [scores[0], 0.0]], n_classes=6)
    got = log_columns(ranking, slice(0, 2), score_type)
    if score_type == "logits":
        expected = [[0, -2, MIN_LOG_PROBA], [0, PADDING_LOG_PROBA, MIN_LOG_PROBA]]
    else:
        half, quarter = math.log(0.5), math.log(0.25)
        expected = [[half, quarter, quarter], [half, PADDING_LOG_PROBA, half]]
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_target_columns():
    scores = make_scores("logits")
    y = np.arange(30) % 7
    assert target_columns(Ranking.from_scores(scores), torch.from_numpy(y)).tolist() == y.tolist()
    ranking = as_candidates(scores, 3)
    got = target_columns(ranking, torch.from_numpy(y))
    assert got.dtype == torch.int64
    for row, label, column in zip(ranking.labels.tolist(), y, got.tolist(), strict=True):
        assert column == (row.index(label) if label in row else 3)
    assert 3 in got
    assert 0 in got


@pytest.mark.parametrize("offset", [0.0, 100.0, 10_000.0])
def test_probabilities_do_not_change_if_logits_are_shifted(offset):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(-40, 40, (50, 20), generator=generator) / 8 + offset  # Exact in float32.
    exact = torch.softmax(1.3 * (logits.double() - offset), dim=1)
    p = proba_columns(logits, "logits", 1.3).double()
    torch.testing.assert_close(p, exact, rtol=3e-6, atol=0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_of_any_range_cause_no_warning(dtype):
    """The caller's setting that NumPy raises on underflow has no effect."""
    most = torch.finfo(dtype).max
    logits = torch.tensor([[most, -most, 0.0], [0.0, -200.0, -200.0]], dtype=dtype)
    with np.errstate(all="raise"):
        p = proba_columns(logits, "logits", 1.5)
    torch.testing.assert_close(p, torch.tensor([[1.0, 0, 0], [1, 0, 0]], dtype=dtype))
    assert bool((p > 0).all())


@pytest.mark.parametrize("scale", [1.0, 0.7])
def test_probabilities_of_a_row_do_not_depend_on_the_batch(scale):
    """Nor on the block, the thread, or the order of the columns."""
    generator = torch.Generator().manual_seed(1)
    logits = 5 * torch.randn(3000, 101, generator=generator)
    expected = proba_columns(logits, "logits", scale)
    for rows in (slice(0, 1), slice(7, 1300), slice(1499, 1502), slice(2999, 3000)):
        assert torch.equal(proba_columns(logits[rows], "logits", scale), expected[rows])
    order = torch.randperm(101, generator=generator)
    assert torch.equal(proba_columns(logits[:, order], "logits", scale), expected[:, order])
