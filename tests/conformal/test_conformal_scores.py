"""The scores' formulas by brute force, their order, and the random number of a row."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from registered_scores import VARIANTS, brute, make_score
from scipy.stats import kstest
from synthetic import SCORE_TYPES, as_score_type, draw, in_64ths, ragged

import shortlist as sl
from shortlist.conformal.scores.probability import row_noise
from shortlist.ranking import Ranking

DTYPES = [np.float16, np.float32, np.float64]


def probabilities(row: list[float], kind: str, scale: float) -> list[float]:
    """Sorted probabilities after temperature scaling, in plain Python."""
    logs = [math.log(v) for v in row] if kind == "proba" else row
    masses = [math.exp((v - max(logs)) * scale) for v in logs]
    return sorted((m / math.fsum(masses) for m in masses), reverse=True)


@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
@given(
    st.sampled_from(SCORE_TYPES),
    st.sampled_from([1.0, 0.5, 1.75]),
    st.integers(2, 9),
    st.sampled_from([0.0, 0.01, 0.3]),
    st.integers(0, 4),
    st.integers(0, 1000),
)
@settings(max_examples=30, deadline=None)
def test_formulas_by_brute_force(name, randomized, kind, scale, n, penalty, k_reg, seed):
    scores = as_score_type(draw(3, n, seed=seed)[0], kind)
    ranking = Ranking.from_scores(scores).with_scale(kind, scale)
    score = make_score(name, penalty, k_reg, randomized, seed)
    u = row_noise(ranking, seed).tolist() if randomized else [1.0] * 3
    exact = [probabilities(row, kind, scale) for row in scores.tolist()]
    single = Ranking.from_scores(scores.astype(np.float32)).with_scale(kind, scale)
    for rows, tolerance in ((ranking, 3e-7), (single, 2e-5)):
        # Probabilities are float32 numbers, so that they are the same on every device. A formula
        # may amplify their rounding errors, so that its input is compared first.
        p = rows.sorted_proba()
        np.testing.assert_allclose(p, exact, rtol=1e-6, atol=tolerance)
        expected = [
            brute(name, row, u_row, penalty, k_reg)
            for row, u_row in zip(p.tolist(), u, strict=True)
        ]
        np.testing.assert_allclose(
            score.levels(rows),
            expected,
            rtol=1e-6,
            atol=3e-7,
            err_msg=f"levels differ from brute({name!r}, ...) in tests/registered_scores.py",
        )


@pytest.mark.parametrize("kind", ["proba", "log_proba"])
@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_formulas_for_candidates(name, randomized, kind):
    """Labels that are not candidates have no influence on the levels."""
    scores = as_score_type(draw(20, 12, seed=1)[0], kind)
    ranking = Ranking.from_candidates(**ragged(scores, depth=5), score_type=kind)
    got = make_score(name, 0.1, 2, randomized, seed=3).levels(ranking)
    u = row_noise(ranking, 3).tolist() if randomized else [1.0] * 20
    for row, levels, u_row, listed in zip(scores.tolist(), got, u, ranking.lengths(), strict=True):
        p = sorted(math.exp(v) if kind == "log_proba" else v for v in row)[::-1][: int(listed)]
        if len(p) == 1 and name == "margin":
            p.append(0.0)
        expected = brute(name, p, u_row, 0.1, 2)[: int(listed)]
        np.testing.assert_allclose(levels[: int(listed)], expected, rtol=1e-6, atol=3e-7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_levels_never_increase_along_the_ranking(name, randomized, dtype):
    for scores in (in_64ths(200, 9, seed=0)[0], as_score_type(draw(200, 40)[0], "proba")):
        for kind in SCORE_TYPES:
            given_ = np.log(np.maximum(scores, 1e-6)) if kind != "proba" else scores
            for scale in (1.0, 0.3):
                score = make_score(name, 0.05, 2, randomized)
                ranking = Ranking.from_scores(given_.astype(dtype)).with_scale(kind, scale)
                levels = score.levels(ranking)
                assert bool((levels[:, 1:] <= levels[:, :-1]).all())
                assert bool((levels[:, -1] < levels[:, 0]).any())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", SCORE_TYPES)
@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_levels_do_not_depend_on_the_batch(name, randomized, kind, dtype):
    """Probabilities are equal to the last bit, and levels differ by no more than `rounding`."""
    score = make_score(name, 0.05, 2, randomized)

    def assert_same(one, rows, i):
        n = int(rows.lengths()[i])
        assert torch.equal(one.sorted_proba()[0, :n], rows.sorted_proba()[i, :n])
        alone, in_batch = score.levels(one)[0, :n], score.levels(rows)[i, :n]
        bound = score.rounding * in_batch.abs().clamp(min=1)
        assert bool(((alone == in_batch) | ((alone - in_batch).abs() <= bound)).all()), (
            f"the levels of a row depend on its batch by more than rounding = {score.rounding} of "
            f"{type(score).__name__}; compute them from the row alone, or give the class a larger "
            "rounding"
        )

    def dense(rows):
        return Ranking.from_scores(rows).with_scale(kind, 0.7)

    def listed_rows(rows):
        return Ranking.from_candidates(**rows).with_scale(kind, 0.7)

    tied = np.maximum(in_64ths(15, 37, seed=2)[0], 2**-10)
    scores = np.concatenate(
        [as_score_type(draw(15, 37)[0], kind), tied if kind == "proba" else tied - 2]
    )
    scores = scores.astype(dtype)
    batch = dense(scores)
    for i in range(len(scores)):
        assert_same(dense(scores[i : i + 1]), batch, i)
    lists = ragged(scores, depth=20)
    batch = listed_rows(lists)
    for i in range(len(scores)):
        one = lists | {name: lists[name][i : i + 1] for name in ("labels", "scores")}
        assert_same(listed_rows(one), batch, i)


# The random number


def python_hash(row: list[float], seed: int) -> float:
    """Return splitmix64 of the bits of the eight best scores, in unbounded integers."""
    state, wrap = seed, (1 << 64) - 1
    for value in sorted(row, reverse=True)[:8]:
        bits = int(np.float32(value).view(np.int32)) & wrap
        x = ((state ^ bits) + 0x9E3779B97F4A7C15) & wrap
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & wrap
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & wrap
        state = x ^ (x >> 31)
    return ((state >> 11) + 1) / 2**53


@pytest.mark.parametrize("n", [2, 8, 20])
@pytest.mark.parametrize("seed", [0, 12345, 2**32 - 1])
def test_the_random_number_is_a_known_hash(n, seed):
    scores, _ = draw(50, n)
    got = row_noise(Ranking.from_scores(scores), seed).tolist()
    assert got == [python_hash(row, seed) for row in scores.tolist()]


def test_random_numbers_are_uniform_and_depend_on_the_seed():
    ranking = Ranking.from_scores(draw(20_000, 10)[0])
    first, second = (row_noise(ranking, seed).numpy() for seed in (0, 1))
    for u in (first, second):
        assert u.min() > 0
        assert u.max() <= 1
        assert kstest(u, "uniform").pvalue > 0.01
        assert len(np.unique(u)) == 20_000
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03
    # Similar rows do not have similar numbers.
    near = Ranking.from_scores([[0.5 + i * 2**-20, 0.25] for i in range(5000)])
    assert kstest(row_noise(near, 0).numpy(), "uniform").pvalue > 0.01


def test_random_numbers_depend_on_the_row_alone():
    scores, _ = draw(40, 12)
    expected = row_noise(Ranking.from_scores(scores), 7)
    order = np.random.default_rng(0).permutation(40)
    assert torch.equal(row_noise(Ranking.from_scores(scores[order]), 7), expected[order])
    columns = np.random.default_rng(1).permutation(12)
    assert torch.equal(row_noise(Ranking.from_scores(scores[:, columns]), 7), expected)
    assert torch.equal(row_noise(Ranking.from_scores(scores, depth=2), 7), expected)
    single = scores.astype(np.float32)
    for dtype in (np.float32, np.float64):
        assert torch.equal(row_noise(Ranking.from_scores(single.astype(dtype)), 7), expected)
    lists = ragged(scores, depth=6)
    batch = row_noise(Ranking.from_candidates(**lists), 7)
    for i in range(40):
        one = lists | {name: lists[name][i : i + 1] for name in ("labels", "scores")}
        assert torch.equal(row_noise(Ranking.from_candidates(**one), 7), batch[i : i + 1])


def test_the_sign_of_zero_does_not_matter():
    plus, minus = ([[1.0, zero, -1.0]] for zero in (0.0, -0.0))
    assert row_noise(Ranking.from_scores(plus), 0) == row_noise(Ranking.from_scores(minus), 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"score": "lak"}, "got 'lak'; did you mean 'lac'?"),
        ({"score": sl.conformal.APS()}, "write ConformalPredictor(APS())"),
        ({"score": "lac", "randomized": True}, "score = 'lac' cannot be randomized"),
        ({"score": "margin", "randomized": True}, "score = 'margin' cannot be randomized"),
        ({"score": "raps", "penalty": -0.1}, "penalty must be finite and not negative; got -0.1"),
        ({"score": "raps", "k_reg": -1}, "k_reg must be an integer of at least 0; got -1"),
    ],
)
def test_invalid_parameters_raise(parameters, message):
    scores, y = draw(50, 5)
    with pytest.raises(ValueError, match=re.escape(message)):
        sl.SplitConformal(**parameters).fit(scores, y)
