"""Exact arithmetic with fractions. Roots are enclosed by intervals of fractions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

DIGITS = 40
"""Number of significant digits to which roots are enclosed."""


@dataclass(frozen=True)
class Interval:
    """The closed interval from `low` to `high`.

    Examples
    --------
    >>> x = Interval.of(2).power(Fraction(1, 2))
    >>> x.low**2 < 2 < x.high**2, float(x.high - x.low) < 1e-35
    (True, True)
    """

    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, value: Fraction | int) -> Interval:
        """Return the interval that contains one number."""
        return cls(Fraction(value), Fraction(value))

    def __add__(self, other: Interval | Fraction | int) -> Interval:
        other = other if isinstance(other, Interval) else Interval.of(other)
        return Interval(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __sub__(self, other: Interval | Fraction | int) -> Interval:
        return self + -(other if isinstance(other, Interval) else Interval.of(other))

    def __mul__(self, other: Interval | Fraction | int) -> Interval:
        other = other if isinstance(other, Interval) else Interval.of(other)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(ends), max(ends))

    def power(self, exponent: Fraction) -> Interval:
        """Raise a non-negative interval to a positive exponent."""
        if self.low < 0 or exponent <= 0:
            raise ValueError(
                f"{self} to the power {exponent} is not supported; the interval must not be "
                "negative, and the exponent must be positive"
            )
        return Interval(_power(self.low, exponent)[0], _power(self.high, exponent)[1])

    def __lt__(self, other: Interval) -> bool:
        """Return whether every number of this interval is below every number of the other."""
        return self.high < other.low


def _power(x: Fraction, exponent: Fraction) -> tuple[Fraction, Fraction]:
    """Return a lower and an upper bound of x^exponent, with `DIGITS` significant digits."""
    y, degree = x**exponent.numerator, exponent.denominator
    if degree == 1 or y == 0:
        return y, y
    # `places` decimals give at least `DIGITS` significant digits.
    bits = y.denominator.bit_length() - y.numerator.bit_length()
    places = DIGITS + max(0, int(bits * 0.30103) // degree + 2)
    root = _floor_root(y.numerator * 10 ** (degree * places) // y.denominator, degree)
    return Fraction(root, 10**places), Fraction(root + 1, 10**places)


def _floor_root(x: int, degree: int) -> int:
    """Return the largest integer r with r^degree <= x, by Newton's method from above."""
    if x == 0:
        return 0
    r = 1 << -(-x.bit_length() // degree)
    while True:
        smaller = ((degree - 1) * r + x // r ** (degree - 1)) // degree
        if smaller >= r:
            return r
        r = smaller
