"""What scores are, and their log-probabilities, against sums in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import (
    MIN_LOG_PROBA,
    PADDING_LOG_PROBA,
    log_columns,
    proba_columns,
    sorted_log_proba,
    target_columns,
)
from shortlist.ranking.score_types import infer_score_type

DTYPES = [np.float16, np.float32, np.float64]
KINDS = ["logits", "proba", "log_proba"]


def make(kind: str, rows: int = 30, n: int = 7, seed: int = 0, spread: float = 3.0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, spread, (rows, n))
    log_proba = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return {"logits": logits, "proba": np.exp(log_proba), "log_proba": log_proba}[kind]


def as_candidates(scores: np.ndarray, depth: int) -> Ranking:
    dense = Ranking.from_scores(scores)
    return Ranking.from_candidates(
        dense.labels[:, :depth], dense.scores[:, :depth], n_classes=scores.shape[1]
    )


# What they are


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 10, 1000])
def test_scores_are_recognised(kind, dtype, n):
    scores = make(kind, n=n).astype(dtype)
    assert infer_score_type(Ranking.from_scores(scores)) == kind
    assert infer_score_type(Ranking.from_scores(torch.from_numpy(scores))) == kind
    for depth in {1, min(5, n), n}:
        assert infer_score_type(as_candidates(scores, depth)) == kind


def test_one_row_that_does_not_fit_decides():
    proba = make("proba")
    proba[17] *= 1.5
    assert infer_score_type(Ranking.from_scores(proba)) == "logits"
    log_proba = make("log_proba")
    log_proba[17] += 1
    assert infer_score_type(Ranking.from_scores(log_proba)) == "logits"


def test_dense_scores_below_one_are_no_probabilities_unless_they_sum_to_one():
    half = make("proba") / 2
    assert infer_score_type(Ranking.from_scores(half)) == "logits"
    assert infer_score_type(as_candidates(half, 7)) == "proba"  # the rest is not listed


def test_negative_scores_are_no_log_probabilities_unless_their_masses_sum_to_one():
    low = make("log_proba") - 2
    assert infer_score_type(Ranking.from_scores(low)) == "logits"
    assert infer_score_type(as_candidates(low, 7)) == "log_proba"
    many = np.full((3, 7), -0.5)  # each a possible log-probability, but seven of them are too many
    assert (
        infer_score_type(Ranking.from_scores(many))
        == infer_score_type(as_candidates(many, 7))
        == "logits"
    )


def test_certainty_and_zeros_are_probabilities():
    assert infer_score_type(Ranking.from_scores(np.eye(4))) == "proba"


def test_padding_is_no_score():
    labels = np.array([[0, 1, 2], [3, -1, -1]])
    proba = np.array([[0.5, 0.25, 0.125], [0.75, 0, 0]])
    ranking = Ranking.from_candidates(labels, proba, n_classes=5)
    assert infer_score_type(ranking) == "proba"
    logs = np.where(labels >= 0, np.log(np.maximum(proba, 1e-9)), 0)
    assert infer_score_type(Ranking.from_candidates(labels, logs, n_classes=5)) == "log_proba"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_declared_is_believed(kind):
    assert infer_score_type(Ranking.from_scores(make(kind)), kind) == kind
    assert infer_score_type(as_candidates(make(kind), 3), kind) == kind
    assert infer_score_type(Ranking.from_scores(make("proba")), "logits") == "logits"


@pytest.mark.parametrize("source", [Ranking.from_scores, lambda s: as_candidates(s, 2)])
def test_what_cannot_be_is_not_believed(source):
    logits = np.array([[4.0, -1.5, 2.0]])
    with pytest.raises(ValueError, match=r"'proba', but the scores run from .* to 4; proba lies"):
        infer_score_type(source(logits), "proba")
    with pytest.raises(ValueError, match=r"'log_proba', but the scores run from .* to 4; "):
        infer_score_type(source(logits), "log_proba")
    with pytest.raises(ValueError, match="'proba', but the scores run from -2"):
        infer_score_type(source(np.array([[-1.0, -2.0]])), "proba")


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'auto', 'logits', 'proba', 'log_proba'; got 'odds'"):
        infer_score_type(Ranking.from_scores(make("logits")), "odds")


# Sorted log-probabilities


def brute(row: list[float], kind: str, depth: int, listed: int | None = None) -> list[float]:
    """Logs of the best masses, then of all that remains, floored; `listed` cuts the list."""
    row = sorted(row, reverse=True)[:listed]
    if kind == "logits":
        masses = [math.exp(v - row[0]) for v in row]
        masses = [v / math.fsum(masses) for v in masses]
    else:
        masses = [math.exp(v) for v in row] if kind == "log_proba" else row
    rest = math.fsum(masses[depth:])
    if listed is not None and kind != "logits":
        rest += 1 - math.fsum(masses)
    first = (masses + [0.0] * depth)[:depth]
    return [max(math.log(v), MIN_LOG_PROBA) if v > 0 else MIN_LOG_PROBA for v in [*first, rest]]


@given(
    st.sampled_from(KINDS),
    st.integers(2, 9),
    st.integers(1, 9),
    st.sampled_from([0.5, 3.0, 12.0]),
    st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None)
def test_sorted_log_proba_by_brute_force(kind, n, depth, spread, seed):
    scores = make(kind, rows=4, n=n, seed=seed, spread=spread)
    depth = min(depth, n)
    expected = [brute(row, kind, depth) for row in scores.tolist()]
    got = sorted_log_proba(Ranking.from_scores(scores), kind, depth)
    assert got.shape == (4, depth + 1)
    np.testing.assert_allclose(got, expected, atol=1e-9)
    single = sorted_log_proba(Ranking.from_scores(scores.astype(np.float32)), kind, depth)
    np.testing.assert_allclose(single, expected, atol=2e-4)
    listed = (n + 1) // 2
    expected = [brute(row, kind, depth, listed) for row in scores.tolist()]
    got = sorted_log_proba(as_candidates(scores, listed), kind, depth)
    # What a list leaves out is known only as 1 minus the rest, so it is compared as a mass.
    np.testing.assert_allclose(got[:, :-1], np.array(expected)[:, :-1], atol=1e-9)
    np.testing.assert_allclose(got[:, -1].exp(), np.exp(expected)[:, -1], atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_tail_is_more_than_rounding(kind):
    """1 - p is 0 in float32 where the classifier is surer than 6e-8; the sum of the rest is not."""
    logits = np.array([[0.0, -20.0, -21.0, -22.0], [0.0, -25.0, -25.0, -25.0]])
    log_proba = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    scores = {"logits": logits, "proba": np.exp(log_proba), "log_proba": log_proba}[kind]
    got = sorted_log_proba(Ranking.from_scores(scores.astype(np.float32)), kind, 1)
    np.testing.assert_allclose(got[:, 1], np.log(np.exp(log_proba)[:, 1:].sum(1)), rtol=1e-5)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_probabilities_of_zero_are_floored(depth):
    got = sorted_log_proba(Ranking.from_scores([[1.0, 0.0, 0.0]]), "proba", depth).tolist()
    assert got == [[0.0, *[MIN_LOG_PROBA] * depth]]


def test_nothing_is_left_after_the_last_label():
    scores = make("logits", rows=50)
    got = sorted_log_proba(Ranking.from_scores(scores), "logits", 7)
    assert (got[:, -1] == MIN_LOG_PROBA).all()
    np.testing.assert_allclose(got[:, :-1].exp().sum(dim=1), 1.0)


@given(
    st.lists(st.integers(-8, 8), min_size=2, max_size=6),
    st.sampled_from([-1e4, -100.0, 0.0, 64.0, 1e4]),
)
@settings(max_examples=40, deadline=None)
def test_logits_may_be_shifted(row, shift):
    row = np.array([row], dtype=np.float32)
    plain = sorted_log_proba(Ranking.from_scores(row), "logits", 2)
    moved = sorted_log_proba(Ranking.from_scores(row + np.float32(shift)), "logits", 2)
    assert torch.equal(plain, moved)  # integers of this size are exact in float32


@pytest.mark.parametrize("kind", KINDS)
def test_the_three_kinds_of_scores_agree(kind):
    expected = sorted_log_proba(Ranking.from_scores(make("logits")), "logits", 3)
    got = sorted_log_proba(Ranking.from_scores(make(kind)), kind, 3)
    np.testing.assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize(("dtype", "wide"), [(np.float16, torch.float32), (np.float64, None)])
def test_half_precision_is_computed_in_single(dtype, wide):
    scores = make("logits").astype(dtype)
    got = sorted_log_proba(Ranking.from_scores(scores), "logits", 3)
    assert got.dtype == (wide or torch.float64)
    np.testing.assert_allclose(got, [brute(row, "logits", 3) for row in scores.tolist()], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_short_lists_end_in_floors(kind):
    scores = make(kind, rows=1)
    ranking = as_candidates(scores, 2)
    got = sorted_log_proba(ranking, kind, 4)[0].tolist()
    assert got[2:4] == [MIN_LOG_PROBA] * 2
    unlisted = 1 - math.exp(got[0]) - math.exp(got[1])
    assert math.exp(got[4]) == pytest.approx(0 if kind == "logits" else unlisted, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_reads_alike_in_every_company(kind, dtype):
    scores = make(kind, rows=33, n=40).astype(dtype)
    together = sorted_log_proba(Ranking.from_scores(scores), kind, 5)
    for i in range(33):
        alone = sorted_log_proba(Ranking.from_scores(scores[i : i + 1]), kind, 5)
        assert torch.equal(alone[0], together[i])


@pytest.mark.parametrize("kind", KINDS)
def test_the_scores_are_not_changed(kind):
    scores = make(kind)
    kept = scores.copy()
    ranking = Ranking.from_scores(scores)
    ranking.top(7)
    before = ranking.scores.copy()
    sorted_log_proba(ranking, kind, 7)
    infer_score_type(ranking)
    assert np.array_equal(scores, kept)
    assert np.array_equal(ranking.scores, before)


# At a temperature


def scaled(
    row: list[float], kind: str, depth: int, scale: float, listed: int | None
) -> list[float]:
    """Sorted masses to the power of `scale`, normalised again; the rest of a list is one label."""
    row = sorted(row, reverse=True)[:listed]
    if kind == "logits":
        logs = [v - row[0] for v in row]
    else:
        logs = [max(math.log(v) if kind == "proba" else v, MIN_LOG_PROBA) for v in row]
        if listed is not None:
            rest = 1 - math.fsum(math.exp(v) if kind == "log_proba" else v for v in row)
            logs.append(max(math.log(rest) if rest > 0 else -math.inf, MIN_LOG_PROBA))
    masses = [math.exp(v * scale) for v in logs]
    total = math.fsum(masses)
    inside = [] if listed is None or kind == "logits" else [masses.pop()]
    found = [*(masses + [0.0] * depth)[:depth], math.fsum(masses[depth:] + inside)]
    return [math.log(max(v / total, math.exp(MIN_LOG_PROBA))) for v in found]


@given(
    st.sampled_from(KINDS),
    st.integers(2, 9),
    st.integers(1, 9),
    st.sampled_from([0.05, 0.5, 3.0]),
    st.sampled_from([0.5, 3.0, 12.0, 60.0]),
    st.integers(0, 1000),
)
@settings(max_examples=120, deadline=None)
def test_a_temperature_by_brute_force(kind, n, depth, scale, spread, seed):
    scores = np.maximum(make(kind, rows=4, n=n, seed=seed, spread=spread), -1e3)
    if kind == "proba":
        scores = np.maximum(scores, 1e-300)
    depth = min(depth, n)
    expected = [scaled(row, kind, depth, scale, None) for row in scores.tolist()]
    got = sorted_log_proba(Ranking.from_scores(scores), kind, depth, scale)
    np.testing.assert_allclose(got, expected, atol=1e-9)
    listed = (n + 1) // 2
    expected = [scaled(row, kind, depth, scale, listed) for row in scores.tolist()]
    got = sorted_log_proba(as_candidates(scores, listed), kind, depth, scale)
    np.testing.assert_allclose(got.exp(), np.exp(expected), atol=1e-3 if scale < 1 else 1e-9)


@pytest.mark.parametrize("scale", [1.0, 0.1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_list_reads_alike_in_every_company(kind, dtype, scale):
    """The longest list of the batch decides how many columns there are, and nothing else."""
    scores = make(kind, rows=33, n=40).astype(dtype)
    dense = Ranking.from_scores(scores)
    labels = np.where(np.arange(25) < 1 + np.arange(33)[:, None] % 25, dense.labels[:, :25], -1)
    together = Ranking.from_candidates(labels, dense.scores[:, :25], n_classes=40)
    for depth in (3, 25):
        expected = sorted_log_proba(together, kind, depth, scale)
        for i in range(33):
            alone = Ranking.from_candidates(labels[[i]], dense.scores[[i], :25], n_classes=40)
            assert torch.equal(sorted_log_proba(alone, kind, depth, scale)[0], expected[i])


# By column


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_logarithms_by_column(kind, dtype):
    scores = make(kind, spread=20).astype(dtype)
    got = log_columns(Ranking.from_scores(scores), slice(3, 9), kind)
    assert got.dtype == (torch.float64 if dtype == np.float64 else torch.float32)
    for row, found in zip(scores[3:9].astype(float).tolist(), got.tolist(), strict=True):
        if kind == "logits":
            expected = [v - max(row) for v in row]  # however low
        else:
            logs = [(math.log(v) if v else -math.inf) if kind == "proba" else v for v in row]
            expected = [max(v, MIN_LOG_PROBA) for v in logs]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert got.min() < (MIN_LOG_PROBA - 1 if kind == "logits" else MIN_LOG_PROBA + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_logarithms_of_candidates_by_place(kind):
    given_ = {"proba": [0.5, 0.25], "log_proba": np.log([0.5, 0.25]), "logits": [3.0, 1.0]}[kind]
    labels = [[4, 2], [1, -1]]
    ranking = Ranking.from_candidates(labels, [list(given_), [given_[0], 0.0]], n_classes=6)
    got = log_columns(ranking, slice(0, 2), kind)
    if kind == "logits":
        expected = [[0, -2, MIN_LOG_PROBA], [0, PADDING_LOG_PROBA, MIN_LOG_PROBA]]
    else:
        half, quarter = math.log(0.5), math.log(0.25)
        expected = [[half, quarter, quarter], [half, PADDING_LOG_PROBA, half]]
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_the_column_of_the_right_label():
    scores = make("logits")
    y = np.arange(30) % 7
    assert target_columns(Ranking.from_scores(scores), torch.from_numpy(y)).tolist() == y.tolist()
    ranking = as_candidates(scores, 3)
    got = target_columns(ranking, torch.from_numpy(y))
    assert got.dtype == torch.int64
    for row, label, column in zip(ranking.labels.tolist(), y, got.tolist(), strict=True):
        assert column == (row.index(label) if label in row else 3)
    assert 3 in got
    assert 0 in got


def test_other_scores_than_at_fit_are_refused() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 5))
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = rng.integers(5, size=300)
    for seen, other in ((proba, logits), (np.log(proba), logits), (np.log(proba), proba)):
        model = sl.SplitConformal("lac").fit(seen, y)
        model.predict_set(seen[:7], accuracy=0.9)
        with pytest.raises(ValueError, match=r"fit saw scores of type '.*proba', but these run"):
            model.predict_set(other, accuracy=0.9)


@pytest.mark.parametrize("offset", [0.0, 100.0, 10_000.0])
def test_probabilities_do_not_depend_on_what_is_added_to_all_logits(offset):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(-40, 40, (50, 20), generator=generator) / 8 + offset  # exact in float32
    exact = torch.softmax(1.3 * (logits.double() - offset), dim=1)
    found = proba_columns(logits, "logits", 1.3).double()
    torch.testing.assert_close(found, exact, rtol=3e-6, atol=0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_of_any_range_are_probabilities_without_a_word(dtype):
    """Also where the caller has NumPy raise at what is too small or too large."""
    most = torch.finfo(dtype).max
    logits = torch.tensor([[most, -most, 0.0], [0.0, -200.0, -200.0]], dtype=dtype)
    with np.errstate(all="raise"):
        found = proba_columns(logits, "logits", 1.5)
    torch.testing.assert_close(found, torch.tensor([[1.0, 0, 0], [1, 0, 0]], dtype=dtype))
    assert bool((found > 0).all())


@pytest.mark.parametrize("scale", [1.0, 0.7])
def test_probabilities_of_a_row_depend_on_that_row_alone(scale):
    """Whatever rows are beside it, in whatever block or thread, and whatever order columns have."""
    generator = torch.Generator().manual_seed(1)
    logits = 5 * torch.randn(3000, 101, generator=generator)
    found = proba_columns(logits, "logits", scale)
    for rows in (slice(0, 1), slice(7, 1300), slice(1499, 1502), slice(2999, 3000)):
        assert torch.equal(proba_columns(logits[rows], "logits", scale), found[rows])
    order = torch.randperm(101, generator=generator)
    assert torch.equal(proba_columns(logits[:, order], "logits", scale), found[:, order])
