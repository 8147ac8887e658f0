"""The theorems as functions: their values and limits, and tests that they are bounds."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_definitions import COMP_SUM, CONSTRAINED, definition, losses_with, with_exponents
from numpy.typing import NDArray

from shortlist.losses import NO_BOUND, UnknownFactError, from_name, get_loss
from shortlist.theory import (
    cardinality_regret,
    cost_sensitive_bound,
    gamma,
    generalization_bound,
    lipschitz,
    loss_bound,
    psi,
    psi_inverse,
    rademacher_linear,
    rate,
    realizable_bound,
    selector_generalization_bound,
    surrogate_regret,
    top_k_bound,
    top_k_regret,
)

few = settings(deadline=None, max_examples=25, derandomize=True)
EXPONENTS = (0.05, 0.3, 0.5, 0.7, 0.9)
SOME = (0.3, 0.5, 0.7, 0.9)
WITH_PSI = with_exponents(losses_with("psi"), EXPONENTS)
WITH_COST_BOUND = with_exponents(losses_with("cost_sensitive_bound", "infimum"), SOME)
WITH_TOP_K_BOUND = with_exponents(losses_with("top_k_bound", "infimum"), SOME)
PAPER = (*COMP_SUM[:4], *CONSTRAINED[:4])
PUBLISHED = with_exponents(losses_with("published_top_k_bound"), SOME)
NOT_CONSISTENT = [x for x in losses_with("top_k_bound") if get_loss(x).top_k_bound is NO_BOUND]
ROUNDING = 1e-14
"""Rounding error of a surrogate regret, which is the difference of two numbers of about one."""
CONSISTENT = [pair for pair in WITH_TOP_K_BOUND if pair[0] not in NOT_CONSISTENT]


def approx(value: float, rel: float) -> object:
    """Compare with a relative tolerance only, because values can be 1e-200."""
    return pytest.approx(value, rel=rel, abs=0)


def exact_psi(loss: str, t: float, n: int, q: float) -> float:
    """Evaluate the definition of psi in a hundred digits."""
    with mpmath.workdps(100):
        return float(definition(loss).psi(mpmath.mpf(t), n, mpmath.mpf(q)))


def test_the_losses_that_are_not_consistent() -> None:
    assert {"mae", "hinge", "margin"} <= set(NOT_CONSISTENT)
    assert not {loss for loss, _ in CONSISTENT} & {"mae", "hinge", "margin"}


# psi and its inverse


@pytest.mark.parametrize(("loss", "q"), WITH_PSI)
@few
@given(st.one_of(st.floats(1e-9, 1), st.floats(-30, 0).map(lambda x: 10**x)), st.integers(2, 100))
def test_psi_is_the_papers(loss, q, t, n) -> None:
    assert psi(loss, t, n=n, q=q) == approx(exact_psi(loss, t, n, q), 1e-8)


@pytest.mark.parametrize(("loss", "q"), WITH_PSI)
def test_psi_starts_at_zero_and_is_increasing_and_convex(loss, q) -> None:
    t = np.linspace(0, 1, 401)
    values = np.array([psi(loss, x, n=5, q=q) for x in t])
    steps = np.diff(values)
    assert values[0] == 0
    assert (steps > 0).all()
    assert (np.diff(steps) >= -1e-15).all()


@pytest.mark.parametrize(("loss", "q"), WITH_PSI)
@few
@given(st.floats(-250, -0.01), st.integers(2, 100))
def test_psi_inverse_is_the_inverse(loss, q, power, n) -> None:
    regret = 10**power * psi(loss, 1.0, n=n, q=q)
    t = psi_inverse(loss, regret, n=n, q=q)
    assert 0 < t <= 1
    assert psi(loss, t, n=n, q=q) == approx(regret, 1e-10)


@pytest.mark.parametrize(("loss", "q"), WITH_PSI)
@pytest.mark.parametrize("regret", [1e-200, 1e-12, 1e-3])
def test_psi_inverse_at_tiny_regrets(loss, q, regret) -> None:
    t = psi_inverse(loss, regret, n=7, q=q)
    assert psi(loss, t, n=7, q=q) == approx(regret, 1e-10)
    assert psi_inverse(loss, 2 * regret, n=7, q=q) > t


@pytest.mark.parametrize(("loss", "q"), WITH_PSI)
def test_psi_inverse_at_its_ends(loss, q) -> None:
    assert psi_inverse(loss, 0.0, n=3, q=q) == 0
    assert psi_inverse(loss, psi(loss, 1.0, n=3, q=q), n=3, q=q) == 1
    assert psi_inverse(loss, 1e6, n=3, q=q) == 1


@pytest.mark.parametrize("t", [0.05, 0.3, 0.9, 1.0])
def test_gce_goes_from_log_to_mae(t) -> None:
    assert psi("gce", t, n=4, q=1e-6) == pytest.approx(psi("log", t), rel=1e-4)
    assert psi("gce", t, n=4, q=0.9999) == pytest.approx(psi("mae", t, n=4), rel=3e-3)


def test_psi_rejects_invalid_arguments() -> None:
    for t in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="t must lie in"):
            psi("log", t)
    with pytest.raises(ValueError, match=r"loss must be one of.*'log'.*got 'nothing'"):
        psi("nothing", 0.5)
    for function in (psi, psi_inverse):
        with pytest.raises(UnknownFactError, match=r"'psi.*' of the loss 'hinge' is not known"):
            function("hinge", 0.5)
    for q in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            psi("gce", 0.5, q=q)
    with pytest.raises(ValueError, match="n must be"):
        psi("mae", 0.5, n=1)
    for regret in (-1e-9, math.inf, math.nan):
        with pytest.raises(ValueError, match="regret must be"):
            psi_inverse("log", regret)


# gamma and the cost-sensitive bound


@few
@given(st.floats(0, 2), st.integers(1, 30), st.floats(0.01, 0.99))
def test_gamma_is_the_papers(t, members, q) -> None:
    root = 2 * math.sqrt(t)
    for loss in ("log", "exp", "constrained_exp", "squared_hinge"):
        assert gamma(loss, t, members=members) == root
    assert gamma("gce", t, members=members, q=q) == pytest.approx(root * members ** (q / 2))
    assert gamma("mae", t, members=members) == pytest.approx(members * t)
    assert gamma("hinge", t, members=members) == gamma("margin", t, members=members) == t


def random_scores(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Draw scores with small or large differences, some with ties."""
    h = rng.normal(size=size) * rng.choice([0.05, 0.5, 2.0, 6.0])
    return np.round(h) if rng.random() < 0.2 else h


@pytest.mark.parametrize(("loss", "q"), WITH_COST_BOUND)
def test_cost_sensitive_bound_is_a_bound(loss, q) -> None:
    rng = np.random.default_rng(0)
    for _ in range(400):
        members, n = int(rng.integers(2, 6)), int(rng.integers(2, 5))
        p, costs = rng.dirichlet(np.ones(n)), rng.random((members, n))
        scores = random_scores(rng, members)
        choice = max(range(members), key=lambda k, s=scores: (s[k], k))
        regret = max(0.0, surrogate_regret(loss, p, scores, costs=costs, q=q)) + ROUNDING
        bound = cost_sensitive_bound(loss, regret, members=members, q=q)
        assert cardinality_regret(p, costs, choice) <= bound
        published = cost_sensitive_bound(loss, regret, members=members, q=q, published=True)
        assert bound <= published == min(1, gamma(loss, regret, members=members, q=q))


@few
@given(st.floats(1e-12, 1e-3), st.integers(1, 30), st.floats(0.01, 0.99))
def test_which_cost_sensitive_bounds_are_sharper_than_the_published_ones(t, members, q) -> None:
    for loss in PAPER:
        published = gamma(loss, t, members=members, q=q)
        factor = {"gce": math.sqrt(max(q, 1 - q)), "squared_hinge": math.sqrt(0.5)}.get(loss, 1.0)
        bound = cost_sensitive_bound(loss, t, members=members, q=q)
        assert bound == pytest.approx(min(1, factor * published))


def test_the_cost_sensitive_bound_of_gce_for_small_exponents() -> None:
    bound = cost_sensitive_bound("gce", 1e-4, members=8, q=0.4)
    assert bound == pytest.approx(2 * math.sqrt(0.6 * 8**0.4 * 1e-4))


@pytest.mark.parametrize("loss", ["nothing", "cost"])
def test_cost_sensitive_bound_rejects_unknown_losses(loss) -> None:
    for published in (False, True):
        with pytest.raises(ValueError, match="loss must be one of"):
            cost_sensitive_bound(loss, 0.1, members=3, published=published)


# The top-k bound


def best_scores(loss: str, p: NDArray[np.float64], q: float) -> NDArray[np.float64]:
    return definition(loss).best_scores(p, 100.0, q)


@pytest.mark.parametrize(("loss", "q"), WITH_TOP_K_BOUND)
def test_top_k_bound_is_a_bound_at_random_scores(loss, q) -> None:
    rng = np.random.default_rng(1)
    for _ in range(600):
        n = int(rng.integers(2, 7))
        k = 1 if loss in NOT_CONSISTENT else int(rng.integers(1, n + 1))
        p = rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 5.0])))
        scores = random_scores(rng, n)
        regret = max(0.0, surrogate_regret(loss, p, scores, q=q)) + ROUNDING
        assert top_k_regret(p, scores, k) <= top_k_bound(loss, regret, n=n, k=k, q=q) + ROUNDING


@pytest.mark.parametrize(("loss", "q"), CONSISTENT)
def test_top_k_bound_is_a_bound_where_labels_of_different_probability_tie(loss, q) -> None:
    rng = np.random.default_rng(2)
    closest = 0.0
    for _ in range(600):
        n = int(rng.integers(2, 7))
        k = int(rng.integers(1, n))
        p = np.sort(rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 5.0]))) + 1e-6)[::-1]
        p = p / p.sum()
        scores = best_scores(loss, p, q)
        swaps = int(rng.integers(1, min(k, n - k) + 1))
        tied = np.r_[
            k - swaps : k, k : k + swaps
        ]  # Labels are in descending order, so that ties go to the less probable.
        pooled = p.copy()
        pooled[tied] = p[tied].mean()
        scores[tied] = best_scores(loss, pooled, q)[tied][0]
        regret = max(0.0, surrogate_regret(loss, p, scores, q=q)) + ROUNDING
        target, bound = top_k_regret(p, scores, k), top_k_bound(loss, regret, n=n, k=k, q=q)
        assert target <= bound
        closest = max(closest, target / bound)
    assert closest > 0.5


@pytest.mark.parametrize("loss", ["log", "exp"])
@pytest.mark.parametrize("gap", [1e-3, 0.1, 0.7, 1.0])
def test_the_bound_of_log_and_exp_is_tight_for_two_labels(loss, gap) -> None:
    p = [(1 + gap) / 2, (1 - gap) / 2]
    regret = surrogate_regret(loss, p, [0.0, 0.0])
    assert top_k_regret(p, [0.0, 0.0], 1) == pytest.approx(gap)
    assert top_k_bound(loss, regret, n=2, k=1) == pytest.approx(gap, rel=1e-6)


def test_the_bound_of_log_is_tight_for_many_pairs() -> None:
    p = np.array([0.15] * 4 + [0.1] * 4)
    scores = np.zeros(8)  # Keeps the last four labels.
    regret = surrogate_regret("log", p, scores)
    assert top_k_bound("log", regret, n=8, k=4) == pytest.approx(top_k_regret(p, scores, 4))


@pytest.mark.parametrize("q", [0.5, 0.6, 0.7, 0.9])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_bound_of_gce_is_tight_for_rare_labels(q, m) -> None:
    # One label is almost certain. Of the others, m labels of probability e are missed, and m
    # labels of probability 0 are kept.
    e = 1e-12
    with mpmath.workdps(300):
        x, a = mpmath.mpf(e), 1 / (1 - mpmath.mpf(q))
        first = (1 - m * x) ** a
        before, after = first + m * x**a, first + 2 * m * (x / 2) ** a
        regret = float((before ** (1 / a) - after ** (1 / a)) / mpmath.mpf(q))
    bound = top_k_bound("gce", regret, n=2 * m + 1, k=m + 1, q=q)
    assert bound == approx(m * e, 1e-6)
    assert bound >= m * e * (1 - 1e-12)


@few
@given(st.floats(-12, 0.5), st.integers(2, 30), st.data(), st.sampled_from(["log", "exp"]))
def test_log_and_exp_need_no_factor_k(power, n, data, loss) -> None:
    k = data.draw(st.integers(1, n - 1))
    corrected = top_k_bound(loss, 10**power, n=n, k=k)
    published = top_k_bound(loss, 10**power, n=n, k=k, published=True)
    assert corrected * k == pytest.approx(published)
    assert corrected <= published


@few
@given(st.floats(-12, 0.5), st.integers(2, 30), st.sampled_from(PUBLISHED))
def test_for_one_label_the_smaller_of_both_bounds_is_returned(power, n, pair) -> None:
    loss, q = pair
    result = top_k_bound(loss, 10**power, n=n, k=1, q=q)
    published = top_k_bound(loss, 10**power, n=n, k=1, q=q, published=True)
    assert result <= min(1, published)
    if loss in ("log", "exp", *NOT_CONSISTENT):
        assert result == min(1, published)


@pytest.mark.parametrize(("loss", "q"), PUBLISHED)
def test_published_bound_is_k_times_psi_inverse_or_gamma(loss, q) -> None:
    for regret in (0.0, 1e-5, 0.01):
        for n, k in ((3, 2), (10, 7)):
            one = psi_inverse(loss, regret, n=n, q=q) if loss in COMP_SUM else gamma(loss, regret)
            result = top_k_bound(loss, regret, n=n, k=k, q=q, published=True)
            assert result == pytest.approx(k * one)


@pytest.mark.parametrize("loss", NOT_CONSISTENT)
def test_losses_that_are_not_consistent_have_no_bound_between_one_and_all(loss) -> None:
    for n, k in ((3, 2), (10, 2), (10, 9)):
        assert top_k_bound(loss, 0.0, n=n, k=k) == math.inf
        assert rate(loss, n=n, k=k) == (math.inf, 0.0)
    assert top_k_bound(loss, 0.0, n=10, k=1) == 0


@pytest.mark.parametrize(("loss", "q"), WITH_TOP_K_BOUND)
def test_the_set_of_all_labels_has_no_regret(loss, q) -> None:
    assert top_k_bound(loss, 5.0, n=4, k=4, q=q) == 0


@pytest.mark.parametrize(("loss", "q"), CONSISTENT)
def test_top_k_bound_increases_with_the_regret_from_zero_to_one(loss, q) -> None:
    regrets = [0.0, 1e-300, 1e-100, 1e-8, 1e-3, 0.05, 0.5, 50.0, 1e9]
    for n, k in ((3, 1), (3, 2), (9, 4)):
        result = [top_k_bound(loss, r, n=n, k=k, q=q) for r in regrets]
        assert result == sorted(result)
        assert (result[0], result[-1]) == (0, 1)
        assert result[1] > 0


@pytest.mark.parametrize(("loss", "q"), CONSISTENT)
def test_top_k_bound_is_the_same_for_k_and_n_minus_k(loss, q) -> None:
    for k in (2, 3):
        one, other = (top_k_bound(loss, 1e-6, n=8, k=j, q=q) for j in (k, 8 - k))
        assert one == other
    few_swaps, many = (top_k_bound(loss, 1e-6, n=8, k=k, q=q) for k in (2, 4))
    assert few_swaps <= many


def test_the_bound_of_gce_is_continuous_at_one_half() -> None:
    exponents = (0.5 - 1e-9, 0.5, 0.5 + 1e-9)
    below, at, above = (top_k_bound("gce", 1e-4, n=6, k=3, q=q) for q in exponents)
    assert below == pytest.approx(at, rel=1e-6)
    assert above == pytest.approx(at, rel=1e-6)


def test_top_k_bound_rejects_invalid_arguments() -> None:
    with pytest.raises(ValueError, match="k = 4 is more than n = 3"):
        top_k_bound("log", 0.1, n=3, k=4)
    with pytest.raises(ValueError, match="did you mean 'hinge'"):
        top_k_bound("hing", 0.1, n=3, k=2)
    for bad in (-0.1, math.nan, "much"):
        with pytest.raises(ValueError, match="regret"):
            top_k_bound("log", bad, n=3, k=2)
    with pytest.raises(ValueError, match="k must be"):
        top_k_bound("log", 0.1, n=3, k=0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        top_k_bound("gce", 0.1, n=3, k=2, q=1.0)


# Rates


@pytest.mark.parametrize(
    ("loss", "q", "k", "published"),
    [
        (loss, q, k, published)
        for loss, q in PUBLISHED
        for k in (1, 2, 4, 8)
        for published in (True, False)
        if published or k > 1 or loss != "gce" or q > 0.5
    ],
)
def test_rates_agree_with_the_bounds_at_small_regrets(loss, q, k, published) -> None:
    n = 10
    constant, exponent = rate(loss, n=n, k=k, q=q, published=published)
    for e in (1e-60, 1e-90):
        bound = top_k_bound(loss, e, n=n, k=k, q=q, published=published)
        assert bound == approx(constant * e**exponent, 1e-6)


# The realizable case


@few
@given(
    st.one_of(st.just(0.0), st.floats(1e-300, 5)),
    st.integers(2, 50),
    st.sampled_from(WITH_PSI),
)
def test_realizable_bound_is_psi_inverse(error, n, pair) -> None:
    loss, q = pair
    assert realizable_bound(loss, error, n=n, q=q) == psi_inverse(loss, error, n=n, q=q)


def test_realizable_bound_is_a_bound_for_a_certain_label() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        n = int(rng.integers(2, 6))
        scores = random_scores(rng, n)
        miss = float(max(range(n), key=lambda y, s=scores: (s[y], y)) != 0)
        for loss in losses_with("psi"):
            module = from_name(loss, cost_sensitive=False)
            error = float(module(torch.tensor(scores[None]), torch.tensor([0])))
            assert miss <= realizable_bound(loss, error, n=n) + 1e-9


def test_realizable_bound_is_for_comp_sum_losses() -> None:
    with pytest.raises(UnknownFactError, match="of the loss 'hinge' is not known"):
        realizable_bound("hinge", 0.1, n=3)
    with pytest.raises(ValueError, match="error must be"):
        realizable_bound("log", -0.1, n=3)


# Largest values and Lipschitz constants


@pytest.mark.parametrize("loss", losses_with("largest_value", "lipschitz"))
@few
@given(st.integers(2, 6), st.floats(0.0, 4.0), st.floats(0.05, 0.95), st.floats(0.2, 3), st.data())
def test_values_and_gradients_are_within_their_bounds(loss, n, largest, q, rho, data) -> None:
    each = st.one_of(st.floats(-largest, largest), st.sampled_from([-largest, largest]))
    scores = torch.tensor(
        [data.draw(st.lists(each, min_size=n, max_size=n))], dtype=torch.float64
    ).requires_grad_()
    module = from_name(loss, q=q, rho=rho, cost_sensitive=False)
    value = module(scores, torch.tensor([data.draw(st.integers(0, n - 1))]))
    (slope,) = torch.autograd.grad(value, scores)
    at_most = {"n": n, "largest": largest, "q": q, "rho": rho}
    assert value.item() <= loss_bound(loss, **at_most) * (1 + 1e-12)
    assert slope.norm().item() <= lipschitz(loss, **at_most) * (1 + 1e-12)


@pytest.mark.parametrize("loss", ["log", "exp", "margin"])
@pytest.mark.parametrize("n", [2, 5])
def test_the_largest_value_is_attained(loss, n) -> None:
    scores = torch.full((1, n), 2.0, dtype=torch.float64)
    scores[0, 0] = -2.0
    value = from_name(loss, cost_sensitive=False)(scores, torch.tensor([0])).item()
    assert loss_bound(loss, n=n, largest=2.0) == pytest.approx(value)


@pytest.mark.parametrize("loss", losses_with("largest_value"))
def test_the_largest_value_is_attained_for_two_labels(loss) -> None:
    scores = torch.tensor([[-30.0, 30.0]], dtype=torch.float64)
    value = from_name(loss, cost_sensitive=False)(scores, torch.tensor([0])).item()
    assert loss_bound(loss, n=2, largest=30.0) == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("loss", ["log", "exp"])
def test_the_lipschitz_constant_is_attained_for_two_labels(loss) -> None:
    scores = torch.tensor([[-9.0, 9.0]], dtype=torch.float64, requires_grad=True)
    value = from_name(loss, cost_sensitive=False)(scores, torch.tensor([0]))
    (slope,) = torch.autograd.grad(value, scores)
    assert lipschitz(loss, n=2, largest=9.0) == pytest.approx(slope.norm().item(), rel=1e-6)


def test_some_losses_and_gradients_are_bounded_for_all_scores() -> None:
    bounded = {loss for loss in PAPER if loss_bound(loss, n=5) < math.inf}
    assert bounded == {"mae", "gce", "margin"}
    unbounded_gradient = {loss for loss in PAPER if lipschitz(loss, n=5) == math.inf}
    assert unbounded_gradient == {"exp", "constrained_exp", "squared_hinge"}


@pytest.mark.parametrize("loss", losses_with("lipschitz"))
def test_bounded_gradient_agrees_with_the_lipschitz_constant(loss) -> None:
    assert get_loss(loss).bounded_gradient == (lipschitz(loss, n=5) < math.inf)


# Generalization


def example_bound(loss: str = "log", **changes: float) -> float:
    arguments = {"m": 10**7, "rademacher": 1e-4, "loss_bound": 2.0, "n": 10, "k": 3, "delta": 0.05}
    return generalization_bound(loss, **(arguments | changes))


@pytest.mark.parametrize("loss", dict.fromkeys(loss for loss, _ in CONSISTENT))
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("m", [10**5, 10**6, 10**7, 10**8]),
        ("rademacher", [0.01, 1e-3, 1e-4, 0.0]),
        ("loss_bound", [8.0, 4.0, 2.0, 0.0]),
        ("delta", [0.001, 0.01, 0.05, 0.5]),
        ("gap", [0.1, 0.01, 0.001, 0.0]),
    ],
)
def test_generalization_bound_decreases(loss, name, values) -> None:
    result = [example_bound(loss, **{name: value}) for value in values]
    assert result == sorted(result, reverse=True)
    assert result[0] > result[-1]


@few
@given(
    st.integers(1, 10**9),
    st.floats(0, 0.1),
    st.floats(0, 10),
    st.floats(0.001, 0.999),
    st.floats(0, 0.1),
)
def test_generalization_bound_is_the_top_k_bound_of_the_estimation_error(m, r, b, delta, gap):
    regret = 4 * r + 2 * b * math.sqrt(math.log(2 / delta) / (2 * m)) + gap
    arguments = {"m": m, "rademacher": r, "loss_bound": b, "delta": delta, "gap": gap}
    for published in (False, True):
        expected = top_k_bound("gce", regret, n=10, k=3, q=0.6, published=published)
        result = generalization_bound("gce", n=10, k=3, q=0.6, published=published, **arguments)
        assert result == pytest.approx(expected)


def test_an_infinite_loss_bound_gives_a_trivial_bound() -> None:
    assert example_bound("log", loss_bound=math.inf) == 1
    assert example_bound("hinge", loss_bound=math.inf) == math.inf
    assert example_bound("mae") == math.inf  # It is not consistent.


@pytest.mark.parametrize(
    "change", [{"delta": 0.0}, {"delta": 1.0}, {"m": 0}, {"rademacher": -1.0}, {"gap": -0.1}]
)
def test_generalization_bound_rejects_invalid_arguments(change) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        example_bound(**change)


@few
@given(
    st.integers(1, 10**9),
    st.floats(0, 0.1),
    st.floats(0, 10),
    st.floats(0.001, 0.999),
    st.floats(0, 0.1),
    st.integers(1, 20),
)
def test_generalization_bound_of_a_selector_is_the_cost_sensitive_bound(m, r, b, delta, gap, n):
    regret = 4 * r + 2 * b * math.sqrt(math.log(2 / delta) / (2 * m)) + gap
    arguments = {"m": m, "rademacher": r, "loss_bound": b, "delta": delta, "gap": gap}
    for loss in PAPER:
        for published in (False, True):
            expected = cost_sensitive_bound(loss, regret, members=n, q=0.4, published=published)
            result = selector_generalization_bound(
                loss, members=n, q=0.4, published=published, **arguments
            )
            assert result == pytest.approx(expected)


def test_a_complete_set_of_selectors_has_a_bound_for_bounded_losses_only() -> None:
    """The scores of a complete set are unbounded, and so are the values of most losses."""
    for loss in PAPER:
        bound = loss_bound(loss, n=4, cost_sensitive=True)
        result = selector_generalization_bound(
            loss, m=10**8, rademacher=0.0, loss_bound=bound, members=4
        )
        assert (result < 1) == (bound < math.inf) == (loss in ("mae", "gce", "margin"))


@pytest.mark.parametrize(
    "change",
    [{"delta": 0.0}, {"m": 0}, {"rademacher": -1.0}, {"gap": -0.1}, {"members": 0}],
)
def test_generalization_bound_of_a_selector_rejects_invalid_arguments(change) -> None:
    arguments = {"m": 100, "rademacher": 0.1, "loss_bound": 1.0, "members": 4}
    with pytest.raises(ValueError, match=next(iter(change))):
        selector_generalization_bound("log", **(arguments | change))


@pytest.mark.parametrize("loss", losses_with("largest_value", "lipschitz"))
@few
@given(st.integers(2, 6), st.floats(0.0, 4.0), st.floats(0.05, 0.95), st.floats(0.2, 3), st.data())
def test_cost_sensitive_values_and_gradients_are_within_their_bounds(
    loss, n, largest, q, rho, data
) -> None:
    each = st.one_of(st.floats(-largest, largest), st.sampled_from([-largest, largest]))
    cost = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0]))
    scores, costs = (
        torch.tensor([data.draw(st.lists(x, min_size=n, max_size=n))], dtype=torch.float64)
        for x in (each, cost)
    )
    module = from_name(loss, q=q, rho=rho, cost_sensitive=True)
    value = module(scores.requires_grad_(), costs)
    (slope,) = torch.autograd.grad(value, scores)
    at_most = {"n": n, "largest": largest, "q": q, "rho": rho, "cost_sensitive": True}
    assert value.item() <= loss_bound(loss, **at_most) * (1 + 1e-12)
    assert slope.norm().item() <= lipschitz(loss, **at_most) * (1 + 1e-12)


@pytest.mark.parametrize("loss", losses_with("lipschitz"))
def test_rademacher_complexity_of_a_cost_sensitive_loss(loss) -> None:
    one, many = (
        rademacher_linear(loss, m=100, n=5, norm=1.0, radius=1.0, cost_sensitive=c)
        for c in (False, True)
    )
    assert many == pytest.approx(5 * one)


@pytest.mark.parametrize("loss", losses_with("lipschitz"))
def test_rademacher_complexity_decreases_with_the_root_of_the_sample_size(loss) -> None:
    one, four = (
        rademacher_linear(loss, m=m, n=5, norm=2.0, radius=0.5, rho=0.5) for m in (100, 400)
    )
    constant = lipschitz(loss, n=5, largest=1.0, rho=0.5)
    assert one == pytest.approx(2 * four)
    assert one == pytest.approx(math.sqrt(2) * constant * 5 * 1.0 / 10)


def test_rademacher_linear_is_a_bound() -> None:
    """The complexity is estimated by definition, for mae, two labels and weights on a circle."""
    rng = np.random.default_rng(4)
    m, norm = 40, 1.0
    x = rng.normal(size=(m, 2))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = rng.integers(2, size=m)
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    directions = norm * np.c_[np.cos(angles), np.sin(angles)]
    module = from_name("mae", cost_sensitive=False, reduction="none")
    losses = np.stack(
        [
            module(torch.tensor(np.c_[x @ a, x @ b]), torch.tensor(y)).numpy()
            for a in directions
            for b in directions
        ]
    )
    signs = rng.choice([-1.0, 1.0], size=(200, m))
    estimate = float((signs @ losses.T / m).max(axis=1).mean())
    assert 0 < estimate <= rademacher_linear("mae", m=m, n=2, norm=norm, radius=1.0)
