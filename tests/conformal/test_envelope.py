"""Slopes, compared with the argmin for every cost weight in exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shortlist.conformal.envelope import _slopes_by_pairs, _slopes_by_pooling, slopes

sixteenths = st.integers(0, 8).map(lambda n: n / 16)
prices = st.integers(0, 3).map(float)


def choice(gains: list[float], costs: list[float], weight: Fraction) -> int:
    """Return argmin_k of miss_k + cost_weight * cost_k, the largest one among ties."""
    best, at, total, cost = None, 0, Fraction(0), Fraction(0)
    for k, (gain, price) in enumerate(zip(gains, costs, strict=True)):
        total, cost = total + Fraction(gain), cost + Fraction(price)
        loss = weight * cost - total
        if best is None or loss <= best:
            best, at = loss, k
    return at


rows_of_gains = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(sixteenths, min_size=n, max_size=n), min_size=1, max_size=4),
        st.lists(prices, min_size=n, max_size=n),
    )
)


@given(rows_of_gains, st.integers(0, 40))
@example(([[0.5, 0.125, 0.25, 0.125]], [1.0, 1.0, 1.0, 1.0]), 3)
@example(([[0.5, 0.25, 0.25]], [0.0, 0.0, 1.0]), 4)
@example(([[0.5, 0.0, 0.0]], [1.0, 1.0, 0.0]), 0)
@settings(max_examples=300, deadline=None)
def test_the_choice_by_brute_force(problem, weight):
    """Slopes reach the cost weight exactly up to the chosen member, with ties and zero prices."""
    gains, costs = problem
    # The cost weight is a possible slope of these problems, or lies between two of them.
    for exact in (Fraction(weight, 16), Fraction(weight, 16) + Fraction(1, 997)):
        result = slopes(torch.tensor(gains), torch.tensor(costs))
        assert result.dtype == torch.float64
        for row, gain in zip(result, gains, strict=True):
            chosen = int((row[1:] >= float(exact)).sum())
            assert chosen == choice(gain, costs, exact)


@given(rows_of_gains)
@settings(max_examples=100, deadline=None)
def test_slopes_never_increase(problem):
    gains, costs = problem
    result = slopes(torch.tensor(gains), torch.tensor(costs))
    assert bool((result[:, 1:] <= result[:, :-1]).all())
    assert not bool(result.isnan().any())


@given(st.integers(1, 40), st.integers(2, 60), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_slopes_of_any_numbers_never_increase(rows, members, seed):
    generator = torch.Generator().manual_seed(seed)
    gains = torch.rand((rows, members), generator=generator, dtype=torch.float64) ** 6
    costs = torch.rand((rows, members), generator=generator, dtype=torch.float64)
    result = slopes(gains, costs)
    assert bool((result[:, 1:] <= result[:, :-1]).all())
    # The envelope is on or above every member, and meets the last one.
    height = (result[:, 1:] * costs[:, 1:]).cumsum(dim=1)
    reached = gains[:, 1:].cumsum(dim=1)
    assert bool((height >= reached * (1 - 1e-9)).all())
    torch.testing.assert_close(height[:, -1], reached[:, -1])


@given(rows_of_gains)
@settings(max_examples=100, deadline=None)
def test_both_algorithms_give_the_same_slopes(problem):
    gains = torch.tensor(problem[0], dtype=torch.float64)
    costs = torch.tensor(problem[1], dtype=torch.float64).expand_as(gains)
    torch.testing.assert_close(
        _slopes_by_pairs(gains, costs), _slopes_by_pooling(gains, costs), rtol=1e-12, atol=0
    )


@given(st.integers(1, 40), st.integers(2, 60), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_both_algorithms_agree_on_random_numbers(rows, members, seed):
    generator = torch.Generator().manual_seed(seed)
    gains = torch.rand((rows, members), generator=generator, dtype=torch.float64) ** 20
    costs = torch.rand((rows, members), generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        _slopes_by_pairs(gains, costs), _slopes_by_pooling(gains, costs), rtol=1e-12, atol=0
    )


def test_prices_by_row():
    gains = torch.tensor([[0.5, 0.125, 0.25], [0.5, 0.25, 0.125]])
    costs = torch.tensor([[1.0, 1.0, 1.0], [1.0, 2.0, 1.0]])
    assert slopes(gains, costs).tolist() == [[0.5, 0.1875, 0.1875], [0.5, 0.125, 0.125]]
    alone = [slopes(gains[[i]], costs[[i]]).tolist()[0] for i in range(2)]
    assert slopes(gains, costs).tolist() == alone


def test_a_member_without_additional_cost_is_chosen_with_the_one_before():
    gains = torch.tensor([[0.5, 0.25, 0.25, 0.0]])
    assert slopes(gains, torch.tensor([1.0, 1.0, 0.0, 0.0])).tolist() == [[0.5, 0.5, 0.5, 0.5]]
    free = slopes(gains, torch.zeros(4))
    assert free.tolist() == [[torch.inf] * 4]


@pytest.mark.parametrize("not_concave", [False, True])
def test_tiny_probabilities_stay_in_order(not_concave):
    tail = [1e-28, 1e-30, 1e-32, 1e-34]
    gains = [0.5, 0.25, 0.125, *tail]
    if not_concave:  # The second and third member need pooling.
        gains[1:3] = gains[2], gains[1]
    result = slopes(torch.tensor([gains], dtype=torch.float64), torch.ones(7))[0].tolist()
    assert result[3:] == tail
    assert result[1:3] == ([0.1875, 0.1875] if not_concave else [0.25, 0.125])
    pooled = [0.5, 0.25, 1e-32, 3e-32]
    result = slopes(torch.tensor([pooled], dtype=torch.float64), torch.ones(4))[0].tolist()
    assert result[2:] == pytest.approx([2e-32, 2e-32])


def test_one_member():
    assert slopes(torch.tensor([[0.5], [0.25]]), torch.tensor([2.0])).tolist() == [[0.25], [0.125]]
