"""Curves of accuracy against size: the envelope by brute force, and reading off it."""

from __future__ import annotations

import math
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.frontier import Frontier

mpl.use("Agg")

# Few distinct values, so that points tie in one coordinate or in both.
points = st.lists(
    st.tuples(st.integers(0, 8).map(lambda v: v / 8), st.integers(2, 12).map(lambda v: v / 2)),
    min_size=1,
    max_size=12,
)


def frontier(rows) -> Frontier:
    return Frontier([a for a, _ in rows], [s for _, s in rows], range(len(rows)), "size", "some")


def undominated(rows) -> set[tuple[float, float]]:
    """Points that no other point beats in one coordinate without losing in the other."""
    return {
        (a, s)
        for a, s in rows
        if not any((b >= a and t <= s) and (b > a or t < s) for b, t in rows)
    }


@given(points)
@settings(max_examples=100, deadline=None)
def test_the_envelope_by_brute_force(rows):
    envelope = frontier(rows).envelope()
    got = list(zip(envelope.accuracy.tolist(), envelope.mean_size.tolist(), strict=True))
    assert set(got) == undominated(rows)
    assert len(got) == len(set(got))
    assert (np.diff(envelope.accuracy) > 0).all()
    assert (np.diff(envelope.mean_size) > 0).all()
    for at, point in zip(envelope.parameter, got, strict=True):
        assert rows[int(at)] == point  # the parameter still belongs to its point
    assert (envelope.name, envelope.parameter_name) == ("some", "size")


@given(points, st.lists(st.floats(0, 1), min_size=2, max_size=6))
@settings(max_examples=80, deadline=None)
def test_size_at_is_reached_attained_and_monotone(rows, asked):
    curve = frontier(rows)
    best = sorted(undominated(rows))
    for a in asked:
        size = curve.size_at(a)
        if a > best[-1][0]:
            assert math.isnan(size)
        elif a <= best[0][0]:
            assert size == best[0][1]
        else:
            (a0, s0), (a1, s1) = next(
                pair for pair in pairwise(best) if pair[0][0] < a <= pair[1][0]
            )
            assert size == pytest.approx(s0 + (a - a0) / (a1 - a0) * (s1 - s0))
    for a, s in rows:
        assert curve.size_at(a) <= s  # never worse than a point that is there
        assert curve.accuracy_at(s) >= a
    together = curve.size_at(asked)
    np.testing.assert_array_equal(together, [curve.size_at(a) for a in asked])
    known = np.sort(asked)[np.sort(asked) <= best[-1][0]]
    assert (np.diff(curve.size_at(known)) >= 0).all()


@given(points, st.floats(0, 8))
@settings(max_examples=60, deadline=None)
def test_accuracy_at_undoes_size_at(rows, size):
    curve = frontier(rows)
    best = sorted(undominated(rows))
    accuracy = curve.accuracy_at(size)
    if size < best[0][1]:
        assert math.isnan(accuracy)
    elif size >= best[-1][1]:
        assert accuracy == best[-1][0]
    else:
        assert curve.size_at(accuracy) == pytest.approx(size)


def test_one_number_gives_one_number_and_many_an_array():
    curve = frontier([(0.5, 1.0), (1.0, 3.0)])
    assert curve.size_at(0.75) == 2.0
    assert type(curve.size_at(0.75)) is type(curve.accuracy_at(2.0)) is float
    assert curve.size_at([0.5, 0.75]).tolist() == [1.0, 2.0]
    assert curve.accuracy_at(np.array([1.0, 2.0, 9.0])).tolist() == [0.5, 0.75, 1.0]


def test_points_stay_as_they_were_measured():
    accuracy = np.array([0.9, 0.5, 0.7])
    curve = Frontier(accuracy, [3.0, 1.0, 4.0], [0.1, 1.0, 0.5])
    accuracy[0] = 0.0
    assert curve.accuracy.tolist() == [0.9, 0.5, 0.7]
    assert len(curve) == 3
    frame = curve.to_frame()
    assert frame.columns.tolist() == ["cost_weight", "accuracy", "mean_size"]
    assert frame["mean_size"].tolist() == [3.0, 1.0, 4.0]


def test_repr_says_what_is_there():
    assert repr(frontier([(0.5, 1.0), (1.0, 3.0)])) == (
        "Frontier(some: 2 points over size, accuracy 0.5000 to 1.0000, mean size 1.000 to 3.000)"
    )


def test_plot_draws_points_and_envelope_on_labelled_axes():
    from matplotlib import pyplot as plt

    rows = [(0.5, 1.0), (0.25, 2.0), (1.0, 3.0)]
    axes = frontier(rows).plot()
    assert axes.get_xlabel() == "mean size of the set"
    assert axes.get_ylabel() == "accuracy (right label in the set)"
    curve, dots = axes.get_lines()
    assert curve.get_label() == "some"
    assert curve.get_xydata().tolist() == [[1.0, 0.5], [3.0, 1.0]]
    assert dots.get_xydata().tolist() == [[s, a] for a, s in rows]
    same = frontier([(0.75, 1.5)]).plot(axes, color="red", label="other")
    assert same is axes
    assert axes.get_lines()[2].get_color() == "red"
    assert axes.get_legend_handles_labels()[1] == ["some", "other"]
    plt.close("all")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([0.5, 0.6], [1.0], [1, 2]), "as many accuracies (2) as mean sizes (1)"),
        (([0.5], [1.0], [1, 2]), "parameters (2)"),
        (([], [], []), "accuracy of a Frontier must be a list of numbers; got []"),
        (([0.5, math.nan], [1.0, 2.0], [1, 2]), "got [0.5, nan]"),
        (([0.5], [math.inf], [1]), "mean_size of a Frontier must be a list of numbers; got [inf]"),
        (
            ([0.5], [1.0], [math.nan]),
            "parameter of a Frontier must be a list of numbers",
        ),
        (([[0.5]], [1.0], [1]), "got [[0.5]]"),
    ],
)
def test_points_that_are_refused(arguments, said):
    with pytest.raises(ValueError, match="Frontier") as error:
        Frontier(*arguments)
    assert said in str(error.value)
