"""The least surrogate regret of a wrong decision: by a minimiser, and in four hundred digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
import torch
from by_hand import least_error, least_regret, wrong_set
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from loss_definitions import COMP_SUM, definition, losses_with, with_exponents
from numpy.typing import NDArray
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

few = settings(deadline=None, max_examples=60, derandomize=True)
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
    """Of weights as they are: w of a comp-sum loss, v of a constrained one."""
    if loss in COMP_SUM:
        return float(comp_sum_regret(get_loss(loss, q=q), row(log_w), mask(kept)))
    return float(constrained_regret(get_loss(loss), row(log_w), mask(kept)))


def top_k_log_regret(
    loss: str, log_p: Sequence[float], kept: Sequence[bool], q: float = 0.7
) -> float:
    """Of a distribution."""
    if loss in COMP_SUM:
        return log_regret(loss, log_p, kept, q)
    return float(top_k_constrained_regret(get_loss(loss), row(log_p), mask(kept)))


def cases(seed: int, count: int) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Distributions over three to five labels and k of them, not the best."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        n = 3 + i % 3
        p = rng.dirichlet(np.ones(n)) + 0.03
        p /= p.sum()
        found.append((p, wrong_set(rng, p, int(rng.integers(1, n)))))
    return found


# Against a numerical minimiser


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
def test_top_k_regret_is_what_a_minimiser_finds(loss, q) -> None:
    for p, kept in cases(seed=1, count=9):
        if loss == "margin" and len(p) == 5:
            continue  # 243 programmes
        w = p if loss in COMP_SUM else 1 - p
        least = least_error(loss, w, kept, q) - least_error(loss, w, q=q)
        found = math.exp(top_k_log_regret(loss, np.log(p), kept, q))
        assert found == pytest.approx(least, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
def test_cost_sensitive_regret_is_what_a_minimiser_finds(loss, q) -> None:
    rng = np.random.default_rng(2)
    for i in range(9):
        w = rng.uniform(0.05, 1.0, size=3 + i % (2 if loss == "margin" else 3))
        good = w if loss in COMP_SUM else -w
        chosen = wrong_set(rng, good, 1)
        least = least_error(loss, w, chosen, q) - least_error(loss, w, q=q)
        found = math.exp(log_regret(loss, np.log(w), chosen, q))
        assert found == pytest.approx(least, rel=1e-6, abs=1e-9)


# Against scores that keep the set


def scores_that_keep(rng: np.random.Generator, kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """In any order among the kept, and among the others."""
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
        chosen = wrong_set(rng, -expected, 1)
        least = math.exp(log_regret(loss, np.log(w), chosen, q))
        for _ in range(10):
            scores = scores_that_keep(rng, chosen)
            assert surrogate_regret(loss, p, scores, costs=costs, q=q) >= least - 1e-12


@pytest.mark.parametrize(("loss", "q"), [x for x in WITH_EXPONENTS if x[0] not in ("mae", "hinge")])
def test_the_least_regret_is_that_of_the_pooled_weights_best_scores(loss, q) -> None:
    for p, kept in cases(seed=5, count=12):
        after = Pooled(row(np.log(p)), out_of_order(row(np.log(p)), mask(kept))).after.exp()[0]
        t = after.numpy()
        best = definition(loss).best_scores(t, 100.0, q)
        if loss == "margin":  # one kept label far above, the others far below, kept ones first
            best = np.where(p == p[kept].max(), 100.0, np.where(kept, -20.0, -30.0))
        least = math.exp(top_k_log_regret(loss, np.log(p), kept, q))
        assert surrogate_regret(loss, p, best, q=q) == pytest.approx(least, rel=1e-6, abs=1e-12)
        assert min(best[kept]) >= max(best[~kept]) - 1e-12


# In four hundred digits


@st.composite
def logarithms(draw: st.DrawFn, least: float, gap: float) -> tuple[list[float], list[bool]]:
    """Logarithms of weights down to e^least, some of them `gap` apart, and some of them kept."""
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


def agree(found: float, exact: mpmath.mpf, smallest: float = -850.0) -> bool:
    """Logarithms of a regret, which counts as none where it is below all precision."""
    if exact <= 0 or mpmath.log(exact) < smallest:
        return found < smallest + 50
    return abs(found - float(mpmath.log(exact))) < 1e-7


def resolved(log_w: Sequence[float]) -> bool:
    """Whether two weights are equal, or apart by what floating point can tell."""
    gaps = [abs(a - b) for a in log_w for b in log_w if a != b]
    return min(gaps, default=1.0) >= 0.9e-5


def is_wrong(log_w: Sequence[float], kept: Sequence[bool], low_is_good: bool = False) -> bool:
    """Whether some label is kept that has less weight than one that is not."""
    worth = [-x if low_is_good else x for x in log_w]
    inside, outside = (
        [w for w, k in zip(worth, kept, strict=True) if k is b] for b in (True, False)
    )
    return min(inside) < max(outside)


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
@pytest.mark.parametrize("gap", [1e-5, 0.3])
@few
@given(data=st.data())
def test_regret_of_weights_in_four_hundred_digits(loss, q, gap, data) -> None:
    log_w, kept = data.draw(logarithms(-69.0, gap))
    assume(resolved(log_w) and is_wrong(log_w, kept, loss in CONSTRAINED))
    exact = least_regret(loss, [mpmath.exp(mpmath.mpf(x)) for x in log_w], kept, q)
    assert agree(log_regret(loss, log_w, kept, q), exact)


@pytest.mark.parametrize("loss", CONSTRAINED)
@pytest.mark.parametrize("gap", [1e-5, 0.3])
@few
@given(data=st.data())
def test_regret_of_a_distribution_in_four_hundred_digits(loss, gap, data) -> None:
    log_p, kept = data.draw(logarithms(-69.0, gap))
    assume(resolved(log_p) and is_wrong(log_p, kept))
    p = [mpmath.exp(mpmath.mpf(x)) for x in log_p]
    others = [mpmath.fsum(x for j, x in enumerate(p) if j != i) for i in range(len(p))]
    exact = least_regret(loss, others, kept)
    assert agree(top_k_log_regret(loss, log_p, kept), exact)


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
@pytest.mark.parametrize("log_e", [-1.0, -20.0, -69.0, -300.0, -500.0])
def test_a_wrong_label_of_three_however_rare(loss, q, log_e) -> None:
    # p = (1, .9 e, .1 e), but for a factor, and the second label lost
    log_p, kept = [0.0, log_e + math.log(0.9), log_e + math.log(0.1)], [True, False, True]
    with mpmath.workdps(2500):
        w = [mpmath.exp(mpmath.mpf(x)) for x in log_p]
        if loss in CONSTRAINED:
            w = [w[1] + w[2], w[0] + w[2], w[0] + w[1]]
        exact = least_regret(loss, w, kept, q)
    found = top_k_log_regret(loss, log_p, kept, q)
    if exact == 0:  # mae, hinge and margin do not see it
        assert found == -math.inf
    else:
        assert found == pytest.approx(float(mpmath.log(exact)), abs=1e-9)


# Laws


@pytest.mark.parametrize("regret", [log_regret, top_k_log_regret])
@pytest.mark.parametrize("loss", LOSSES)
def test_names_of_labels_do_not_matter(loss, regret) -> None:
    rng = np.random.default_rng(6)
    for p, kept in cases(seed=6, count=20):
        order = rng.permutation(len(p))
        again = regret(loss, np.log(p)[order], kept[order])
        assert again == pytest.approx(regret(loss, np.log(p), kept), abs=1e-9)


@pytest.mark.parametrize("regret", [log_regret, top_k_log_regret])
@pytest.mark.parametrize("loss", LOSSES)
def test_absent_labels_change_nothing(loss, regret) -> None:
    for p, kept in cases(seed=7, count=20):
        with_more = [-math.inf, *np.log(p), -math.inf, -math.inf]
        again = regret(loss, with_more, [False, *kept, False, False])
        assert again == pytest.approx(regret(loss, np.log(p), kept), abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_factor_on_all_weights_is_a_factor_on_the_regret(loss) -> None:
    for p, kept in cases(seed=8, count=10):
        again = log_regret(loss, np.log(p) - 50.0, kept)
        assert again == pytest.approx(log_regret(loss, np.log(p), kept) - 50.0, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_do_not_know_of_each_other(loss) -> None:
    some = [case for case in cases(seed=9, count=30) if len(case[0]) == 4]
    log_p = torch.tensor(np.log([p for p, _ in some]))
    kept = torch.tensor(np.array([kept for _, kept in some]))
    function = comp_sum_regret if loss in COMP_SUM else top_k_constrained_regret
    together = function(get_loss(loss), log_p, kept).tolist()
    alone = [top_k_log_regret(loss, np.log(p), k) for p, k in some]
    assert together == pytest.approx(alone, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("regret", [log_regret, top_k_log_regret])
def test_labels_that_tie_can_be_exchanged_for_nothing(loss, regret) -> None:
    log_p = np.log([0.5, 0.25, 0.25])
    for kept in ([True, True, False], [True, False, True]):
        # v of the first is the largest: as weights of a constrained loss that is the wrong one
        if regret is log_regret and loss in CONSTRAINED:
            kept = [not x for x in kept]
        assert regret(loss, log_p, kept) < -60


def test_pooled_weights_are_in_order_and_keep_their_sum() -> None:
    for p, kept in cases(seed=11, count=40):
        block = out_of_order(row(np.log(p)), mask(kept))
        after = Pooled(row(np.log(p)), block).after.exp()[0].numpy()
        assert after.sum() == pytest.approx(1)
        assert after[kept].min() >= after[~kept].max() - 1e-12
        inside = block[0].numpy()
        assert after[~inside] == pytest.approx(p[~inside])
        level = after[inside][0]
        assert np.where(kept, np.maximum(p, level), np.minimum(p, level)) == pytest.approx(after)


def test_weights_whose_ratio_overflows_are_pooled_as_any_others() -> None:
    log_w = row([0.0, -400.0, -800.0, -801.0, -math.inf])
    block = out_of_order(log_w, mask([True, False, True, True, False]))
    assert block[0].tolist() == [False, True, True, True, False]
    block = out_of_order(log_w, mask([False, True, False, True, False]))
    assert block[0].tolist() == [True, True, False, True, False]


def test_complements_are_sums_of_the_others() -> None:
    log_p = row([0.0, -100.0, -101.0, -math.inf])
    found = log_complement(log_p)[0].tolist()
    assert found[0] == pytest.approx(-100 + math.log1p(math.exp(-1)))
    assert found[1:3] == [0.0, 0.0]
    assert found[3] == -math.inf


@pytest.mark.parametrize(("loss", "q"), WITH_EXPONENTS)
def test_slopes_of_the_regret_are_those_of_its_differences(loss, q) -> None:
    """The search climbs by them."""
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
