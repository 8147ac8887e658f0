"""The smallest surrogate regret of a decision, against a minimizer and 400-digit arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from loss_definitions import COMP_SUM, definition, losses_with, with_exponents
from numpy.typing import NDArray
from reference import minimal_error, minimal_regret, suboptimal_set
from torch import Tensor

from shortlist.losses import get_loss
from shortlist.losses.pooled import Pooled
from shortlist.theory import surrogate_regret
from shortlist.theory.pooling import (
    comp_sum_regret,
    constrained_regret,
    log_complement,
    out_of_order,
    top_k_constrained_regret,
)

few = settings(deadline=None, max_examples=25, derandomize=True)
EXPONENTS = (0.3, 0.5, 0.7, 0.9)
LOSSES = losses_with("pooled_regret")
CONSTRAINED = losses_with("pooled_regret", family="constrained")
WITH_EXPONENTS = with_exponents(LOSSES, EXPONENTS)
DIGITS = 400


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(DIGITS):
        yield


def row(values: Sequence[float]) -> Tensor:
    return torch.tensor([list(values)], dtype=torch.float64)


def mask(kept: Sequence[bool]) -> Tensor:
    return torch.tensor([[bool(x) for x in kept]])


def log_regret(loss: str, log_w: Sequence[float], kept: Sequence[bool], q: float = 0.7) -> float:
    """Return the log-regret for weights w of a comp-sum loss, or v of a constrained loss."""
    if loss in COMP_SUM:
        return float(comp_sum_regret(get_loss(loss, q=q), row(log_w), mask(kept)))
    return float(constrained_regret(get_loss(loss), row(log_w), mask(kept)))


def top_k_log_regret(
    loss: str, log_p: Sequence[float], kept: Sequence[bool], q: float = 0.7
) -> float:
    """Return the log-regret for a distribution."""
    if loss in COMP_SUM:
        return log_regret(loss, log_p, kept, q)
    return float(top_k_constrained_regret(get_loss(loss), row(log_p), mask(kept)))


def cases(seed: int, count: int) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Draw distributions over three to five labels, each with a suboptimal set."""
    rng = np.random.default_rng(seed)
    pairs = []
    for i in range(count):
        n = 3 + i % 3
        p = rng.dirichlet(np.ones(n)) + 0.03
        p /= p.sum()
        pairs.append((p, suboptimal_set(rng, p, int(rng.integers(1, n)))))
    return pairs


# Against a numerical minimizer


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
def test_top_k_regret_agrees_with_a_minimizer(loss, q) -> None:
    for p, kept in cases(seed=1, count=9):
        if loss == "margin" and len(p) == 5:
            continue  # It needs 243 programs.
        w = p if loss in COMP_SUM else 1 - p
        least = minimal_error(loss, w, kept, q) - minimal_error(loss, w, q=q)
        result = math.exp(top_k_log_regret(loss, np.log(p), kept, q))
        assert result == pytest.approx(least, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
def test_cost_sensitive_regret_agrees_with_a_minimizer(loss, q) -> None:
    rng = np.random.default_rng(2)
    for i in range(9):
        w = rng.uniform(0.05, 1.0, size=3 + i % (2 if loss == "margin" else 3))
        benefit = w if loss in COMP_SUM else -w
        chosen = suboptimal_set(rng, benefit, 1)
        least = minimal_error(loss, w, chosen, q) - minimal_error(loss, w, q=q)
        result = math.exp(log_regret(loss, np.log(w), chosen, q))
        assert result == pytest.approx(least, rel=1e-6, abs=1e-9)


# Against scores that keep the set


def scores_that_keep(rng: np.random.Generator, kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Draw scores that rank the kept labels first, in random order."""
    values = np.sort(rng.normal(size=len(kept)) * rng.choice([0.1, 1.0, 4.0]))[::-1]
    order = np.r_[
        rng.permutation(np.flatnonzero(kept)), rng.permutation(np.flatnonzero(~kept))
    ].astype(int)
    scores = np.empty(len(kept))
    scores[order] = values
    return scores


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
def test_no_scores_that_keep_a_set_have_a_smaller_regret(loss, q) -> None:
    rng = np.random.default_rng(3)
    for p, kept in cases(seed=3, count=30):
        least = math.exp(top_k_log_regret(loss, np.log(p), kept, q))
        for _ in range(10):
            scores = scores_that_keep(rng, kept)
            assert surrogate_regret(loss, p, scores, q=q) >= least - 1e-12


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
def test_no_scores_that_choose_a_member_have_a_smaller_regret(loss, q) -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        costs = rng.uniform(0.01, 0.99, size=(int(rng.integers(2, 6)), 3))
        p = rng.dirichlet(np.ones(3))
        expected = costs @ p
        w = 1 - expected if loss in COMP_SUM else expected
        chosen = suboptimal_set(rng, -expected, 1)
        least = math.exp(log_regret(loss, np.log(w), chosen, q))
        for _ in range(10):
            scores = scores_that_keep(rng, chosen)
            assert surrogate_regret(loss, p, scores, costs=costs, q=q) >= least - 1e-12


@pytest.mark.parametrize(("loss", "q"), [x for x in WITH_EXPONENTS if x[0] not in ("mae", "hinge")])
def test_the_best_scores_of_the_pooled_weights_have_the_smallest_regret(loss, q) -> None:
    for p, kept in cases(seed=5, count=12):
        after = Pooled(row(np.log(p)), out_of_order(row(np.log(p)), mask(kept))).after.exp()[0]
        t = after.numpy()
        best = definition(loss).best_scores(t, 100.0, q)
        if loss == "margin":  # One kept label is far above the others.
            best = np.where(p == p[kept].max(), 100.0, np.where(kept, -20.0, -30.0))
        least = math.exp(top_k_log_regret(loss, np.log(p), kept, q))
        assert surrogate_regret(loss, p, best, q=q) == pytest.approx(least, rel=1e-6, abs=1e-12)
        assert min(best[kept]) >= max(best[~kept]) - 1e-12


# Against 400-digit arithmetic


@st.composite
def logarithms(draw: st.DrawFn, least: float, gap: float) -> tuple[list[float], list[bool]]:
    """Draw log-weights of at least `least`, of which some differ by `gap`, and a kept set."""
    n = draw(st.integers(2, 5))
    base = draw(st.lists(st.floats(least, 0.0), min_size=n, max_size=n))
    near = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    steps = draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n))
    log_w = [
        base[0] + step * gap if close else x
        for x, close, step in zip(base, near, steps, strict=True)
    ]
    kept = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    assume(any(kept) and not all(kept))
    return log_w, kept


def agree(log_regret: float, exact: mpmath.mpf, smallest: float = -850.0) -> bool:
    """Compare the logarithms of two regrets. Regrets below e^smallest count as zero."""
    if exact <= 0 or mpmath.log(exact) < smallest:
        return log_regret < smallest + 50
    return abs(log_regret - float(mpmath.log(exact))) < 1e-7


def resolved(log_w: Sequence[float]) -> bool:
    """Return whether all weights are equal or differ by more than rounding."""
    gaps = [abs(a - b) for a in log_w for b in log_w if a != b]
    return min(gaps, default=1.0) >= 0.9e-5


def is_suboptimal(log_w: Sequence[float], kept: Sequence[bool], low_is_good: bool = False) -> bool:
    """Return whether a kept label has a smaller weight than another label."""
    worth = [-x if low_is_good else x for x in log_w]
    inside, outside = (
        [w for w, k in zip(worth, kept, strict=True) if k is b] for b in (True, False)
    )
    return min(inside) < max(outside)


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
@pytest.mark.parametrize("gap", [1e-5, 0.3])
@few
@given(data=st.data())
def test_regret_of_weights_agrees_with_exact_arithmetic(loss, q, gap, data) -> None:
    log_w, kept = data.draw(logarithms(-69.0, gap))
    assume(resolved(log_w) and is_suboptimal(log_w, kept, loss in CONSTRAINED))
    exact = minimal_regret(loss, [mpmath.exp(mpmath.mpf(x)) for x in log_w], kept, q)
    assert agree(log_regret(loss, log_w, kept, q), exact)


@pytest.mark.parametrize("loss", CONSTRAINED)
@pytest.mark.parametrize("gap", [1e-5, 0.3])
@few
@given(data=st.data())
def test_regret_of_a_distribution_agrees_with_exact_arithmetic(loss, gap, data) -> None:
    log_p, kept = data.draw(logarithms(-69.0, gap))
    assume(resolved(log_p) and is_suboptimal(log_p, kept))
    p = [mpmath.exp(mpmath.mpf(x)) for x in log_p]
    others = [mpmath.fsum(x for j, x in enumerate(p) if j != i) for i in range(len(p))]
    exact = minimal_regret(loss, others, kept)
    assert agree(top_k_log_regret(loss, log_p, kept), exact)


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
@pytest.mark.parametrize("log_e", [-1.0, -20.0, -69.0, -300.0, -500.0])
def test_the_regret_of_a_rare_missed_label_is_precise(loss, q, log_e) -> None:
    # p is proportional to (1, .9 e, .1 e), and the second label is missed.
    log_p, kept = [0.0, log_e + math.log(0.9), log_e + math.log(0.1)], [True, False, True]
    with mpmath.workdps(2500):
        w = [mpmath.exp(mpmath.mpf(x)) for x in log_p]
        if loss in CONSTRAINED:
            w = [w[1] + w[2], w[0] + w[2], w[0] + w[1]]
        exact = minimal_regret(loss, w, kept, q)
    result = top_k_log_regret(loss, log_p, kept, q)
    if exact == 0:  # The regret of mae, hinge and margin is zero.
        assert result == -math.inf
    else:
        assert result == pytest.approx(float(mpmath.log(exact)), abs=1e-9)


# Properties


@pytest.mark.parametrize("regret", [log_regret, top_k_log_regret])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_order_of_labels_does_not_matter(loss, regret) -> None:
    rng = np.random.default_rng(6)
    for p, kept in cases(seed=6, count=20):
        order = rng.permutation(len(p))
        again = regret(loss, np.log(p)[order], kept[order])
        assert again == pytest.approx(regret(loss, np.log(p), kept), abs=1e-9)


@pytest.mark.parametrize("regret", [log_regret, top_k_log_regret])
@pytest.mark.parametrize("loss", LOSSES)
def test_absent_labels_do_not_change_the_regret(loss, regret) -> None:
    for p, kept in cases(seed=7, count=20):
        with_more = [-math.inf, *np.log(p), -math.inf, -math.inf]
        again = regret(loss, with_more, [False, *kept, False, False])
        assert again == pytest.approx(regret(loss, np.log(p), kept), abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_regret_is_homogeneous_in_the_weights(loss) -> None:
    for p, kept in cases(seed=8, count=10):
        again = log_regret(loss, np.log(p) - 50.0, kept)
        assert again == pytest.approx(log_regret(loss, np.log(p), kept) - 50.0, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_do_not_affect_each_other(loss) -> None:
    pairs = [case for case in cases(seed=9, count=30) if len(case[0]) == 4]
    log_p = torch.tensor(np.log([p for p, _ in pairs]))
    kept = torch.tensor(np.array([kept for _, kept in pairs]))
    function = comp_sum_regret if loss in COMP_SUM else top_k_constrained_regret
    batch = function(get_loss(loss), log_p, kept).tolist()
    single = [top_k_log_regret(loss, np.log(p), k) for p, k in pairs]
    assert batch == pytest.approx(single, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("regret", [log_regret, top_k_log_regret])
def test_exchanging_labels_with_equal_weights_has_no_regret(loss, regret) -> None:
    log_p = np.log([0.5, 0.25, 0.25])
    for kept in ([True, True, False], [True, False, True]):
        # For a constrained loss, the label with the largest weight is the worst.
        if regret is log_regret and loss in CONSTRAINED:
            kept = [not x for x in kept]
        assert regret(loss, log_p, kept) < -60


def test_pooled_weights_are_in_order_and_have_the_same_sum() -> None:
    for p, kept in cases(seed=11, count=40):
        block = out_of_order(row(np.log(p)), mask(kept))
        after = Pooled(row(np.log(p)), block).after.exp()[0].numpy()
        assert after.sum() == pytest.approx(1)
        assert after[kept].min() >= after[~kept].max() - 1e-12
        inside = block[0].numpy()
        assert after[~inside] == pytest.approx(p[~inside])
        level = after[inside][0]
        assert np.where(kept, np.maximum(p, level), np.minimum(p, level)) == pytest.approx(after)


def test_weights_whose_ratio_overflows_are_pooled() -> None:
    log_w = row([0.0, -400.0, -800.0, -801.0, -math.inf])
    block = out_of_order(log_w, mask([True, False, True, True, False]))
    assert block[0].tolist() == [False, True, True, True, False]
    block = out_of_order(log_w, mask([False, True, False, True, False]))
    assert block[0].tolist() == [True, True, False, True, False]


def test_complements_are_log_sums_of_the_others() -> None:
    log_p = row([0.0, -100.0, -101.0, -math.inf])
    result = log_complement(log_p)[0].tolist()
    assert result[0] == pytest.approx(-100 + math.log1p(math.exp(-1)))
    assert result[1:3] == [0.0, 0.0]
    assert result[3] == -math.inf


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
def test_gradients_of_the_regret_agree_with_finite_differences(loss, q) -> None:
    """The search uses these gradients."""
    for p, kept in cases(seed=12, count=6):
        log_p = row(np.log(p)).requires_grad_()
        if loss in COMP_SUM:
            value = comp_sum_regret(get_loss(loss, q=q), log_p, mask(kept))
        else:
            value = top_k_constrained_regret(get_loss(loss), log_p, mask(kept))
        if not bool(value.isfinite()):
            continue
        (slope,) = torch.autograd.grad(value.sum(), log_p)
        for y in range(len(p)):
            ends = []
            for step in (1e-6, -1e-6):
                moved = np.log(p)
                moved[y] += step
                ends.append(top_k_log_regret(loss, moved, kept, q))
            assert float(slope[0, y]) == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-5)
