"""The steps of the proofs in docs/theory.md, one by one, also with extreme numbers."""

from __future__ import annotations

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_definitions import COMP_SUM, LOSSES, losses_with, with_exponents
from mpmath import mpf
from numpy.typing import NDArray
from reference import infimum, minimal_regret, phi, top

from shortlist.losses import get_loss
from shortlist.theory import cost_sensitive_bound, surrogate_error, surrogate_infimum, top_k_bound
from shortlist.theory.proof_steps import pool, pooling, power_mean, published_gce, two_point

few = settings(deadline=None, max_examples=30, derandomize=True)
LOW_Q = st.one_of(st.floats(1e-6, 0.5), st.sampled_from([0.01, 0.3, 0.5]))
ANY_Q = st.floats(1e-6, 0.999)
UNIT = st.one_of(
    st.floats(0, 1),
    st.floats(-300, 0).map(lambda x: 10**x),
    st.floats(-12, 0).map(lambda x: 1 - 10**x),
)
DIGITS = 700  # Numbers of 1e-300 are squared.


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(DIGITS):
        yield


def power_mean_of(a: mpf, b: mpf, s: mpf) -> mpf:
    return ((a**s + b**s) / 2) ** (1 / s)


def random_case(
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Draw probabilities, scores and the labels with the highest scores."""
    n = int(rng.integers(2, 7))
    p = rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 5.0]))) + 1e-6
    scores = rng.normal(size=n) * rng.choice([0.1, 1.0, 4.0])
    if rng.random() < 0.2:
        scores = np.round(scores)
    k = int(rng.integers(1, n + 1))
    return p / p.sum(), scores, np.array(top(list(scores), k))


# Pooling


@pytest.mark.parametrize("loss", LOSSES)
def test_a_label_with_a_higher_score_has_a_smaller_loss(loss) -> None:
    """The only property of a loss that pooling uses."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        _, scores, _ = random_case(rng)
        one_hot = np.eye(len(scores))
        of_label = [surrogate_error(loss, p, scores) for p in one_hot]
        for x, y in itertools.permutations(range(len(scores)), 2):
            if scores[y] >= scores[x]:
                assert of_label[y] <= of_label[x] * (1 + 1e-12) + 1e-12


@pytest.mark.parametrize(("loss", "q"), with_exponents(losses_with("infimum"), (0.3, 0.7)))
def test_pooling_reduces_the_error_to_no_less_than_the_infimum(loss, q) -> None:
    rng = np.random.default_rng(1)
    pooled_cases = 0
    for _ in range(200):
        p, scores, kept = random_case(rng)
        pooled = pool(p, kept)
        inside = np.isin(np.arange(len(p)), kept)
        assert pooled.sum() == pytest.approx(1)
        assert pooled[inside].min() >= pooled[~inside].max(initial=0) - 1e-12
        before, after = (surrogate_error(loss, x, scores, q=q) for x in (p, pooled))
        assert before >= after - 1e-12 >= surrogate_infimum(loss, pooled, q=q) - 2e-12
        pooled_cases += not np.array_equal(p, pooled)
    assert pooled_cases > 50


@pytest.mark.parametrize(("loss", "q"), with_exponents(losses_with("infimum"), (0.3, 0.7)))
def test_pooling_of_pairs_reduces_the_error_to_no_less_than_the_infimum(loss, q) -> None:
    """Pair each missed label with a wrongly kept one, in any order."""
    rng = np.random.default_rng(2)
    pairs_seen = 0
    for _ in range(300):
        p, scores, kept = random_case(rng)
        best = top(list(p), len(kept))
        missed = [y for y in best if y not in kept]
        added = rng.permutation([y for y in kept if y not in best])
        pooled = p.copy()
        for x, y in zip(missed, added, strict=True):
            assert p[x] >= p[y]
            assert scores[y] >= scores[x]
            pooled[[x, y]] = (p[x] + p[y]) / 2
        gaps = sum(p[x] - p[y] for x, y in zip(missed, added, strict=True))
        assert gaps == pytest.approx(p[best].sum() - p[kept].sum(), abs=1e-12)
        before, after = (surrogate_error(loss, x, scores, q=q) for x in (p, pooled))
        assert before >= after - 1e-12 >= surrogate_infimum(loss, pooled, q=q) - 2e-12
        pairs_seen += len(missed)
    assert pairs_seen > 100


@pytest.mark.parametrize(
    ("loss", "q"),
    [pair for pair in with_exponents(losses_with("infimum"), (0.3,)) if pair[0] != "margin"],
)
def test_no_other_scores_have_a_smaller_regret_than_the_pooled_weights(loss, q) -> None:
    """The infimum of the pooled weights is attained by scores that keep the set."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        w = rng.uniform(1e-3, 1, size=int(rng.integers(2, 5)))
        kept = rng.permutation(len(w)) < int(rng.integers(1, len(w)))
        weights = [mpf(x) for x in w]
        least = minimal_regret(loss, weights, kept, q)
        # For a constrained loss, labels with small weights are good, so that the roles change.
        upper = np.flatnonzero(kept if loss in COMP_SUM else ~kept)
        pooled = [mpf(x) for x in pool(w / w.sum(), upper) * w.sum()]
        assert float(infimum(loss, pooled, q) - infimum(loss, weights, q)) == pytest.approx(
            float(least), abs=1e-12
        )


def test_pooled_probabilities_of_labels_in_the_right_order_are_unchanged() -> None:
    p = np.array([0.5, 0.4, 0.1])
    for kept in ([0], [0, 1], [1, 0], [0, 1, 2]):
        assert pool(p, np.array(kept)).tolist() == p.tolist()
    assert pool(p, np.array([2])) == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert pool(p, np.array([1])) == pytest.approx([0.45, 0.45, 0.1])


# The inequality between a power mean and the mean


@few
@given(LOW_Q, UNIT, UNIT)
def test_the_two_point_inequality(q, a, b) -> None:
    s, a, b = 1 / (1 - mpf(q)), mpf(a), mpf(b)
    mean, half = (a + b) / 2, (a - b) / 2
    below = mpmath.sqrt(mean**2 + (s - 1) * half**2)
    assert power_mean_of(a, b, s) >= below * (1 - mpf(10) ** -600)


@few
@given(st.floats(1.000001, 2), UNIT)
def test_the_steps_to_the_two_point_inequality(s, t) -> None:
    """`((1+t)^s + (1-t)^s) / 2 >= 1 + s (s-1) t^2 / 2 >= (1 + (s-1) t^2)^(s/2)`."""
    s, t = mpf(s), mpf(t)
    middle, slack = 1 + s * (s - 1) / 2 * t**2, mpf(10) ** -690
    assert ((1 + t) ** s + (1 - t) ** s) / 2 >= middle - slack
    assert middle >= (1 + (s - 1) * t**2) ** (s / 2) - slack


@pytest.mark.parametrize("s", ["1.0001", "1.3", "1.5", "1.999", "2"])
def test_the_binomial_coefficients_are_not_negative_and_decrease(s) -> None:
    """They are `binomial(s, 2 j)`, the coefficients of `((1+t)^s + (1-t)^s) / 2`."""
    values = [mpmath.binomial(mpf(s), 2 * j) for j in range(1, 40)]
    assert all(x >= 0 for x in values)
    assert all(b <= a for a, b in itertools.pairwise(values))
    for j, (a, b) in enumerate(itertools.pairwise(values[:6]), start=1):
        s_ = mpf(s)
        ratio = (2 * j - s_) * (2 * j + 1 - s_) / ((2 * j + 1) * (2 * j + 2))
        assert abs(b - a * ratio) < mpf(10) ** -600


@few
@given(ANY_Q, UNIT, UNIT)
def test_the_power_mean_exceeds_the_mean_by_a_multiple_of_the_squared_difference(q, a, b) -> None:
    q, a, b = mpf(q), mpf(a), mpf(b)
    excess = power_mean_of(a, b, 1 / (1 - q)) - (a + b) / 2
    constant = min(1, q / (1 - q)) / 8
    assert excess >= constant * (a - b) ** 2 - mpf(10) ** -690
    assert constant >= q / 8


@pytest.mark.parametrize("q", ["1e-6", "0.1", "0.3", "0.5"])
def test_the_constant_is_the_best_one_for_small_exponents(q) -> None:
    q, e = mpf(q), mpf(10) ** -30
    excess = power_mean_of(mpf(1), 1 - e, 1 / (1 - q)) - (1 - e / 2)
    assert abs(excess / (q / (1 - q) / 8 * e**2) - 1) < 1e-25


def test_the_inequality_as_used_in_the_paper_fails_and_holds_for_smaller_sums() -> None:
    q, a = mpf("0.1"), mpf(1)
    for b, holds in ((mpf("0.9"), False), (mpf(0), True)):  # The sums are 1.9 and 1.
        excess = power_mean_of(a, b, 1 / (1 - q)) - (a + b) / 2
        assert (excess >= q / 4 * (a - b) ** 2) is holds


# The cost-sensitive bounds


def cost_case(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw expected costs of two to six members, and their scores."""
    members = int(rng.integers(2, 7))
    v = rng.uniform(size=members) ** rng.choice([0.05, 1.0, 3.0])
    return v, rng.normal(size=members) * rng.choice([0.05, 0.5, 3.0])


@pytest.mark.parametrize("q", [0.05, 0.3, 0.5, 0.7, 0.95])
def test_regret_of_the_cost_sensitive_gce_exceeds_a_power_mean(q) -> None:
    """`R >= 2 / (q |K|^q) (M_s(a, b) - (a + b) / 2)`, for the best and the chosen member."""
    rng = np.random.default_rng(4)
    closest = np.inf
    for _ in range(300):
        v, scores = cost_case(rng)
        w, chosen = 1 - v, top(list(scores), 1)[0]
        regret = phi("gce", scores, q) @ w - get_loss("gce", q=q).infimum(w)
        a, b = float(w.max()), float(w[chosen])
        mean = float(power_mean_of(mpf(a), mpf(b), 1 / (1 - mpf(q))) - (mpf(a) + mpf(b)) / 2)
        required = 2 / (q * len(w) ** q) * mean
        assert regret >= required - 1e-12
        if required > 1e-6:
            closest = min(closest, regret / required)
    assert closest < 2


def test_regret_of_the_cost_sensitive_squared_hinge_exceeds_a_square() -> None:
    """`R >= D^2 / (a + b)`, for the best and the chosen member."""
    rng = np.random.default_rng(5)
    closest = np.inf
    for _ in range(600):
        v, scores = cost_case(rng)
        chosen = top(list(scores), 1)[0]
        v = v + 1e-9
        regret = phi("squared_hinge", scores) @ v - get_loss("squared_hinge").infimum(v)
        required = (v[chosen] - v.min()) ** 2 / (v[chosen] + v.min())
        assert regret >= required - 1e-12
        if required > 1e-6:
            closest = min(closest, regret / required)
    assert closest < 2


@pytest.mark.parametrize("members", [2, 3, 10])
@pytest.mark.parametrize(
    ("loss", "q"), [("gce", 0.05), ("gce", 0.3), ("gce", 0.5), ("squared_hinge", 0.7)]
)
def test_sharper_cost_sensitive_bounds_are_tight(loss, q, members) -> None:
    """The best member is better by e than the chosen one, and the others lie between them."""
    e = mpf("1e-40")
    w = [mpf(1), 1 - e, *[1 - e / 2] * (members - 2)]
    kept = [y == (1 if loss in COMP_SUM else 0) for y in range(members)]
    regret = float(minimal_regret(loss, w, kept, q))
    bound = cost_sensitive_bound(loss, regret, members=members, q=q)
    assert float(e) / bound == pytest.approx(1, rel=1e-9)
    published = cost_sensitive_bound(loss, regret, members=members, q=q, published=True)
    assert published > 1.4 * bound or (loss == "gce" and published > 1.02 * bound)


@pytest.mark.parametrize("q", [0.6, 0.7, 0.9])
def test_the_cost_sensitive_bound_of_gce_with_one_minus_q_fails_for_large_exponents(q) -> None:
    """For q > 1/2 the factor is sqrt(q): close to q = 1, sqrt(1 - q) would be too small."""
    w, kept = [mpf(1), mpf(0)], [False, True]
    regret = float(minimal_regret("gce", w, kept, q))
    assert cost_sensitive_bound("gce", regret, members=2, q=q) >= 1
    smaller = 2 * np.sqrt((1 - q) * 2**q * regret)
    assert (smaller < 1) == (q > 0.72)


# The published top-k bound of gce


@few
@given(st.floats(1.000001, 2), st.floats(-300, -0.30103).map(lambda x: 10**x))
def test_the_power_mean_of_a_small_share(a, t) -> None:
    """`M_a(1 + t, 1 - t) - 1 <= (2/3) (a - 1) t^2` for t <= 1/2."""
    a, t = mpf(a), mpf(t)
    assert power_mean_of(1 + t, 1 - t, a) - 1 <= 2 * (a - 1) * t**2 / 3


@few
@given(LOW_Q, st.integers(2, 10**6), st.integers(1, 10**6))
def test_the_factor_of_the_published_bound_of_gce(q, k, more) -> None:
    """`k^2 n^q / (2 m)^(a - 1) >= k^1.5 / sqrt(2) >= 2` for k >= 2 and q <= 1/2."""
    q, n, m = mpf(q), k + more, min(k, more)
    factor = k**2 * mpf(n) ** q / mpf(2 * m) ** (q / (1 - q))
    assert factor >= mpf(k) ** 1.5 / mpmath.sqrt(2) * (1 - mpf(10) ** -600)
    assert mpf(k) ** 1.5 / mpmath.sqrt(2) >= 2 - mpf(10) ** -600


@few
@given(LOW_Q, st.integers(2, 40), st.integers(1, 400), UNIT.filter(lambda x: x > 0))
def test_the_published_bound_of_gce_follows_from_the_corrected_one(q, k, more, target) -> None:
    """At the regret that the corrected bound requires, the published bound requires less."""
    q, d, n, m = mpf(q), mpf(target), k + more, min(k, more)
    a = 1 / (1 - q)
    corrected = d**2 / ((1 - q) * 2**a * mpf(m) ** (a - 1))
    psi = (power_mean_of(1 + d / k, 1 - d / k, a) - 1) / (q * mpf(n) ** q)
    assert psi <= 2 * corrected / 3


@few
@given(LOW_Q, st.integers(2, 40), st.integers(1, 400), st.floats(-30, 0).map(lambda x: 10**x))
def test_the_corrected_bound_of_gce_is_at_most_the_published_one(q, k, more, regret) -> None:
    arguments = {"n": k + more, "k": k, "q": q}
    corrected = top_k_bound("gce", regret, **arguments)
    assert corrected <= top_k_bound("gce", regret, published=True, **arguments) * (1 + 1e-9)


# The steps as statements of `verify`


@pytest.mark.parametrize("step", [pooling, two_point, published_gce, power_mean(lambda q: q / 8)])
def test_the_steps_hold_in_all_cases(step) -> None:
    ratios = [ratio for ratio, _ in step(np.random.default_rng(0), 100)]
    assert len(ratios) >= 100
    assert 0.5 < max(ratios) <= 1 + 1e-9


def test_wrong_steps_fail(monkeypatch) -> None:
    cases = power_mean(lambda q: Fraction(1, 7) * min(Fraction(1), q / (1 - q)))
    assert max(ratio for ratio, _ in cases(np.random.default_rng(0), 1)) > 1.1
    monkeypatch.setattr("shortlist.theory.proof_steps.pool", lambda p, kept: np.sort(p)[::-1])
    assert max(ratio for ratio, _ in pooling(np.random.default_rng(0), 200)) > 1.1
