"""Sizes of the paper's selectors relative to another method, at equal accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.paper.panels import Curve
from shortlist.paper.reading import reason
from shortlist.paper.results import Results
from shortlist.paper.tasks import MEAN, SINGLE


@dataclass(frozen=True)
class Comparison:
    """A curve and a reference at one accuracy.

    Parameters
    ----------
    name : str
        Name of the data set.
    curve, reference : Curve
        The curve, and that of the reference.
    accuracy : float
        The accuracy.
    size, reference_size : array of shape (n_seeds,)
        Mean sizes for each seed; NaN where they cannot be read.
    problem : str
        Why there is no ratio: "not reached", "gap" or "capped"; empty if there is one.
    """

    name: str
    curve: Curve
    reference: Curve
    accuracy: float
    size: NDArray[np.float64]
    reference_size: NDArray[np.float64]
    problem: str

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Size of the curve divided by that of the reference, for each seed."""
        quotient: NDArray[np.float64] = self.size / self.reference_size
        return quotient

    def describe(self) -> str:
        """Return the sizes and their ratio as text."""
        start = f"{self.name}, {self.describe_curve()}"
        at = f"{100 * self.accuracy:.4g}%"
        if self.problem == "not reached":
            return f"{start}: {at} is not reached"
        if self.problem == "gap":
            return f"{start}: no size at {at}, where the points of the curve are far apart"
        sizes = (
            f"{self.size.mean():.2f} labels at {at}, {self.reference.label} "
            f"{self.reference_size.mean():.2f}, ratio {spread(self.ratio)}"
        )
        stopped = " (the maximum number of epochs ended training)" if self.problem else ""
        return f"{start}: {sizes}{stopped}"

    def describe_curve(self) -> str:
        """Return the label of the curve with the sets that it chooses from."""
        task = self.curve.task
        if task.family == "threshold" or not task.members:
            return self.curve.label
        sizes = [f"{k:g}" for k in task.members]
        shown = sizes if len(sizes) <= 4 else [*sizes[:3], "…", sizes[-1]]
        return f"{self.curve.label}, K = {{{', '.join(shown)}}}"


def compare(
    results: Results, name: str, curve: Curve, reference: Curve, accuracy: float
) -> Comparison:
    """Return a comparison of two curves at an accuracy."""
    reasons = {
        reason(frontier, accuracy) for c in (curve, reference) for frontier in results.curves(c)
    }
    problem = next((text for text in ("not reached", "gap") if text in reasons), "")
    if not problem and (results.capped(curve) or results.capped(reference)):
        problem = "capped"
    size, reference_size = (results.sizes_at(c, accuracy) for c in (curve, reference))
    return Comparison(name, curve, reference, accuracy, size, reference_size, problem)


@dataclass(frozen=True)
class Case:
    """A data set, and the curves that a claim is about.

    Parameters
    ----------
    name : str
        Name of the data set.
    curves : sequence of Curve
        Curves to compare with the reference.
    reference : Curve
        The reference.
    others : sequence of Curve, default=()
        Curves that are shown as evidence, but do not count.
    """

    name: str
    curves: Sequence[Curve]
    reference: Curve
    others: Sequence[Curve] = ()


@dataclass(frozen=True)
class Best:
    """The best curves of a case at one accuracy, and whether a claim holds.

    Parameters
    ----------
    comparison : Comparison or None
        The comparison with the lowest ratio; None if there is no ratio.
    holds : bool or None
        Whether the ratio is within the bound; None if no verdict can be given.
    text : str
        The ratio with its spread over seeds, or why there is none.
    """

    comparison: Comparison | None
    holds: bool | None
    text: str


def best_of(comparisons: Sequence[Comparison], bound: float) -> Best:
    """Return the comparison with the lowest mean ratio, and whether it is within a bound.

    A curve that does not reach the accuracy does not satisfy a claim about it. A curve with a gap
    or with capped training leaves the claim open, unless another curve is within the bound.
    """
    readable = [c for c in comparisons if not c.problem]
    best = min(readable, key=lambda c: float(c.ratio.mean()), default=None)
    if best is not None and float(best.ratio.mean()) <= bound:
        return Best(best, True, spread(best.ratio))
    unknown = [c.problem for c in comparisons if c.problem in ("gap", "capped")]
    if unknown or not comparisons:
        text = "-" if not unknown else {"gap": "no point near", "capped": "capped"}[unknown[0]]
        return Best(best, None, text if best is None else spread(best.ratio))
    if best is None:
        return Best(None, False, "not reached")
    return Best(best, False, spread(best.ratio))


def of_average(comparisons: Sequence[Comparison], average: str) -> list[Comparison]:
    """Return the comparisons of single selectors, or those of averaged scores."""
    return [c for c in comparisons if c.curve.average == average]


def compare_cases(
    results: Results, cases: Sequence[Case], accuracies: Sequence[float]
) -> Iterator[tuple[Case, float, list[Comparison], list[Comparison]]]:
    """Yield, for each case and accuracy, the comparisons that count, and the others."""
    for case in cases:
        for at in accuracies:
            name = case.name
            counted = [compare(results, name, c, case.reference, at) for c in case.curves]
            others = [compare(results, name, c, case.reference, at) for c in case.others]
            yield case, at, counted, others


def spread(values: NDArray[np.float64], digits: int = 2) -> str:
    """Return the mean ± standard deviation over seeds."""
    std = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{std}"


AVERAGES = (SINGLE, MEAN)
