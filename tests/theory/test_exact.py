"""Intervals of fractions: they contain the exact results, and their roots are tight."""

from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.theory.exact import DIGITS, Interval, _floor_root

few = settings(deadline=None, max_examples=50, derandomize=True)
fractions = st.fractions(min_value=-10, max_value=10, max_denominator=10**6)
positive = st.builds(
    lambda x, zeros: x / 10**zeros,
    st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=10**4),
    st.integers(0, 30),
)
exponents = st.fractions(min_value=Fraction(1, 20), max_value=4, max_denominator=20)


@st.composite
def intervals(draw: st.DrawFn) -> tuple[Interval, Fraction]:
    """Draw an interval and a number in it."""
    ends = sorted((draw(fractions), draw(fractions)))
    share = draw(st.fractions(min_value=0, max_value=1, max_denominator=100))
    return Interval(*ends), ends[0] + share * (ends[1] - ends[0])


def contains(interval: Interval, x: Fraction) -> bool:
    return interval.low <= x <= interval.high


def power_in_decimals(x: Fraction, exponent: Fraction) -> Fraction:
    """Return x^exponent in two hundred digits."""
    with decimal.localcontext(prec=200, Emin=-(10**6), Emax=10**6):
        base = Decimal(x.numerator) / Decimal(x.denominator)
        power = Decimal(exponent.numerator) / Decimal(exponent.denominator)
        return Fraction((power * base.ln()).exp())


@few
@given(intervals(), intervals())
def test_sums_differences_and_products_contain_those_of_their_members(one, other) -> None:
    (a, x), (b, y) = one, other
    assert contains(a + b, x + y)
    assert contains(a - b, x - y)
    assert contains(a * b, x * y)
    assert contains(-a, -x)
    assert contains(a + y, x + y)
    assert contains(a - y, x - y)
    assert contains(a * y, x * y)


@few
@given(intervals(), intervals())
def test_sums_differences_and_products_are_tight(one, other) -> None:
    a, b = one[0], other[0]
    ends = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    for interval, values in (
        (a + b, [x + y for x, y in ends]),
        (a - b, [x - y for x, y in ends]),
        (a * b, [x * y for x, y in ends]),
    ):
        assert (interval.low, interval.high) == (min(values), max(values))


@few
@given(positive, exponents)
def test_powers_contain_the_exact_power_and_are_tight(x, exponent) -> None:
    result = Interval.of(x).power(exponent)
    exact = power_in_decimals(x, exponent)
    slack = exact / 10**180  # Error of the decimal number.
    assert result.low <= exact + slack
    assert result.high >= exact - slack
    assert result.high - result.low <= exact / 10 ** (DIGITS - 2)


@few
@given(positive, positive, exponents)
def test_powers_of_an_interval_contain_those_of_its_members(x, y, exponent) -> None:
    low, high = sorted((x, y))
    result = Interval(low, high).power(exponent)
    for inner in (low, (low + high) / 2, high):
        exact = power_in_decimals(inner, exponent)
        assert result.low <= exact * (1 + Fraction(1, 10**180))
        assert result.high >= exact * (1 - Fraction(1, 10**180))


@few
@given(positive, st.integers(1, 6))
def test_integer_powers_are_exact(x, exponent) -> None:
    assert Interval.of(x).power(Fraction(exponent)) == Interval.of(x**exponent)


@few
@given(positive, st.integers(2, 7))
def test_a_root_of_a_power_contains_the_number(x, degree) -> None:
    assert contains(Interval.of(x**degree).power(Fraction(1, degree)), x)
    assert contains(Interval.of(x).power(Fraction(1, degree)).power(Fraction(degree)), x)


def test_powers_of_zero_are_zero() -> None:
    assert Interval.of(0).power(Fraction(1, 3)) == Interval.of(0)


def test_negative_intervals_and_exponents_are_rejected() -> None:
    for interval, exponent in (
        (Interval(Fraction(-1), Fraction(1)), Fraction(1, 2)),
        (Interval.of(2), Fraction(0)),
        (Interval.of(2), Fraction(-1)),
    ):
        with pytest.raises(ValueError, match="to the power"):
            interval.power(exponent)


@few
@given(intervals(), intervals())
def test_an_interval_is_less_if_all_its_numbers_are_less(one, other) -> None:
    a, b = one[0], other[0]
    assert (a < b) == (max(a.low, a.high) < min(b.low, b.high))
    assert not a < a


@few
@given(st.integers(0, 10**60), st.integers(1, 12))
def test_floor_root_is_the_largest_integer_root(x, degree) -> None:
    root = _floor_root(x, degree)
    assert root**degree <= x < (root + 1) ** degree


@pytest.mark.parametrize("degree", [2, 3, 49, 100])
def test_floor_root_of_powers_and_of_powers_minus_one(degree) -> None:
    for base in (1, 2, 3, 10, 12345):
        assert _floor_root(base**degree, degree) == base
        assert _floor_root(base**degree - 1, degree) == base - 1
