"""Curves of accuracy against size: the envelope by brute force, interpolation, and bands."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from shortlist._utils.blocks import row_blocks
from shortlist.frontier import Frontier

mpl.use("Agg")

# Few distinct values, so that points tie in one coordinate or in both.
points = st.lists(
    st.tuples(st.integers(0, 8).map(lambda v: v / 8), st.integers(2, 12).map(lambda v: v / 2)),
    min_size=1,
    max_size=12,
)


def frontier(rows) -> Frontier:
    """Return the frontier of pairs of accuracy and mean size."""
    return Frontier([a for a, _ in rows], [s for _, s in rows], range(len(rows)), "size", "some")


def pareto_points(rows) -> set[tuple[float, float]]:
    """Return the points that no other point dominates."""
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
    assert set(got) == pareto_points(rows)
    assert len(got) == len(set(got))
    assert (np.diff(envelope.accuracy) > 0).all()
    assert (np.diff(envelope.mean_size) > 0).all()
    for at, point in zip(envelope.parameter, got, strict=True):
        assert rows[int(at)] == point
    assert (envelope.name, envelope.parameter_name) == ("some", "size")


@given(points, st.lists(st.floats(0, 1), min_size=2, max_size=6))
@settings(max_examples=80, deadline=None)
def test_size_at_interpolates_the_envelope(rows, accuracies):
    curve = frontier(rows)
    best = sorted(pareto_points(rows))
    for a in accuracies:
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
        assert curve.size_at(a) <= s  # Never worse than a measured point.
        assert curve.accuracy_at(s) >= a
    single = [curve.size_at(a) for a in accuracies]
    np.testing.assert_array_equal(curve.size_at(accuracies), single)
    reached = np.sort(accuracies)[np.sort(accuracies) <= best[-1][0]]
    assert (np.diff(curve.size_at(reached)) >= 0).all()


@given(points, st.floats(0, 8))
@settings(max_examples=60, deadline=None)
def test_accuracy_at_is_the_inverse_of_size_at(rows, size):
    curve = frontier(rows)
    best = sorted(pareto_points(rows))
    accuracy = curve.accuracy_at(size)
    if size < best[0][1]:
        assert math.isnan(accuracy)
    elif size >= best[-1][1]:
        assert accuracy == best[-1][0]
    else:
        assert curve.size_at(accuracy) == pytest.approx(size)


def test_a_number_returns_a_number_and_a_list_an_array():
    curve = frontier([(0.5, 1.0), (1.0, 3.0)])
    assert curve.size_at(0.75) == 2.0
    assert type(curve.size_at(0.75)) is type(curve.accuracy_at(2.0)) is float
    assert curve.size_at([0.5, 0.75]).tolist() == [1.0, 2.0]
    assert curve.accuracy_at(np.array([1.0, 2.0, 9.0])).tolist() == [0.5, 0.75, 1.0]


def test_points_are_copied_and_keep_their_order():
    accuracy = np.array([0.9, 0.5, 0.7])
    curve = Frontier(accuracy, [3.0, 1.0, 4.0], [0.1, 1.0, 0.5])
    accuracy[0] = 0.0
    assert curve.accuracy.tolist() == [0.9, 0.5, 0.7]
    assert len(curve) == 3
    frame = curve.to_frame()
    assert frame.columns.tolist() == ["cost_weight", "accuracy", "mean_size"]
    assert frame["mean_size"].tolist() == [3.0, 1.0, 4.0]


def test_repr():
    assert repr(frontier([(0.5, 1.0), (1.0, 3.0)])).splitlines() == [
        "Frontier: some, 2 points over size",
        "accuracy 0.5000 to 1.0000, mean size 1.000 to 3.000",
        "accuracy     0.8    0.9   0.95   0.98   0.99",
        "mean size  2.200  2.600  2.800  2.920  2.960",
    ]


def test_plot_shows_the_points_and_the_envelope():
    from matplotlib import pyplot as plt

    rows = [(0.5, 1.0), (0.25, 2.0), (1.0, 3.0)]
    axes = frontier(rows).plot()
    assert axes.get_xlabel() == "mean set size"
    assert axes.get_ylabel() == "accuracy (label in the set)"
    curve, dots = axes.get_lines()
    assert curve.get_label() == "some"
    assert curve.get_xydata().tolist() == [[1.0, 0.5], [3.0, 1.0]]
    assert dots.get_xydata().tolist() == [[s, a] for a, s in rows]
    same = frontier([(0.75, 1.5)]).plot(axes, color="red", label="other")
    assert same is axes
    assert axes.get_lines()[2].get_color() == "red"
    assert axes.get_legend_handles_labels()[1] == ["some", "other"]
    plt.close("all")


# Bands

TRUE_ACCURACY = np.array([0.55, 0.7, 0.82, 0.9, 0.95])
TRUE_SIZE = np.array([1.5, 2.5, 3.5, 5.5, 7.5])


def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return hits and sizes of rows whose true curve is known."""
    hard = rng.random((rows, 1))
    sizes = np.floor(TRUE_SIZE) + (hard < 0.5)  # Half of the rows have one more label.
    return rng.random((rows, 1)) < TRUE_ACCURACY, sizes.astype(np.int64)


def with_rows(hits, sizes, **options) -> Frontier:
    """Return the frontier of rows, which it keeps."""
    return Frontier(
        hits.mean(axis=0), sizes.mean(axis=0), range(hits.shape[1]), rows=(hits, sizes), **options
    )


def test_the_band_covers_the_true_curve_at_its_confidence_level():
    rng = np.random.default_rng(0)
    targets = np.array([0.6, 0.75, 0.85, 0.9])
    truth = np.interp(targets, TRUE_ACCURACY, TRUE_SIZE)
    draws, level = 250, 0.8
    covered = np.zeros(len(targets))
    for _ in range(draws):
        _, low, high = with_rows(*draw(rng, 300)).band(targets, level=level, resamples=150)
        covered += (low <= truth) & (truth <= high)
    error = 4 * math.sqrt(level * (1 - level) / draws)
    assert (covered / draws > level - error).all(), covered / draws
    assert (covered / draws < level + error).all(), covered / draws


def test_the_band_by_brute_force():
    """Compare with the curves of bootstrap samples that are drawn with the same seed."""
    hits, sizes = draw(np.random.default_rng(1), 40)
    targets, resamples = [0.6, 0.8, 0.9], 30
    rng = np.random.default_rng(5)
    curves = []
    for _ in range(resamples):
        sample = rng.integers(40, size=40)
        curves.append(with_rows(hits[sample], sizes[sample]).size_at(targets))
    ascending = np.sort(np.nan_to_num(curves, nan=np.inf), axis=0)
    band = with_rows(hits, sizes).band(targets, level=0.8, resamples=resamples, seed=5)
    np.testing.assert_array_equal(band.accuracy, targets)
    np.testing.assert_allclose(band.low, ascending[2])  # 0.1 · 29 = 2.9, rounded down.
    expected = np.where(np.isinf(ascending[27]), np.nan, ascending[27])
    np.testing.assert_allclose(band.high, expected)


@pytest.mark.parametrize("seed", range(5))
def test_the_band_brackets_the_curve_and_shrinks(seed):
    rng = np.random.default_rng(seed)
    small, large = with_rows(*draw(rng, 1000)), with_rows(*draw(rng, 16_000))
    targets = np.array([0.62, 0.76, 0.86])
    widths = []
    for curve in (small, large):
        accuracy, low, high = curve.band(targets, seed=seed)
        np.testing.assert_array_equal(accuracy, targets)
        assert (low <= curve.size_at(targets)).all()
        assert (curve.size_at(targets) <= high).all()
        widths.append(high - low)
        narrow = curve.band(targets, seed=seed, level=0.5)
        assert (low <= narrow.low).all()
        assert (narrow.high <= high).all()
    # Sixteen times as many rows have a band of a quarter of the width.
    assert ((widths[0] / widths[1] > 2.5) & (widths[0] / widths[1] < 6.5)).all()


def test_the_band_depends_on_the_seed():
    curve = with_rows(*draw(np.random.default_rng(2), 200))
    first, again, other = curve.band(), curve.band(), curve.band(seed=1)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first.low, other.low)


def test_the_order_of_the_points_does_not_matter():
    hits, sizes = draw(np.random.default_rng(3), 100)
    order = [3, 0, 4, 2, 1]
    np.testing.assert_array_equal(
        with_rows(hits, sizes).band(), with_rows(hits[:, order], sizes[:, order]).band()
    )


def test_blocks_do_not_change_the_band(monkeypatch):
    curve = with_rows(*draw(np.random.default_rng(4), 90))
    whole = curve.band(resamples=25)
    for elements in (1, 200, 1000):

        def small(rows, width, elements=elements):
            return row_blocks(rows, width, elements=elements)

        monkeypatch.setattr("shortlist.frontier.row_blocks", small)
        np.testing.assert_array_equal(curve.band(resamples=25), whole)


def test_the_default_accuracies_span_the_envelope():
    curve = with_rows(*draw(np.random.default_rng(5), 300))
    accuracy, low, high = curve.band()
    assert accuracy.shape == low.shape == high.shape == (50,)
    assert (accuracy[0], accuracy[-1]) == (curve.accuracy[0], curve.accuracy[-1])
    assert np.isnan(high[-1])  # Half of the samples do not reach the last accuracy.
    assert not np.isnan(low).any()
    assert not np.isnan(high[:25]).any()


def test_accuracies_that_are_not_reached_have_no_band():
    hits, sizes = draw(np.random.default_rng(6), 300)
    curve = with_rows(hits, sizes)
    # The curve does not reach it, although almost half of the samples do.
    band = curve.band([0.7, curve.accuracy[-1] + 1e-6])
    assert np.isnan(band.low).tolist() == np.isnan(band.high).tolist() == [False, True]


def test_equal_rows_have_a_band_of_no_width():
    hits, sizes = np.tile([[False, True]], (20, 1)), np.tile([[1, 3]], (20, 1))
    accuracy, low, high = with_rows(hits, sizes).band(0.5)
    assert (accuracy.tolist(), low.tolist(), high.tolist()) == ([0.5], [2.0], [2.0])
    one = with_rows(hits[:1], sizes[:1]).band([0.0, 0.25, 1.0], resamples=1)
    assert one.low.tolist() == one.high.tolist() == [1.0, 1.5, 3.0]


def test_the_band_of_one_point():
    rng = np.random.default_rng(7)
    hits, sizes = rng.random((80, 1)) < 0.8, rng.integers(1, 5, size=(80, 1))
    curve = with_rows(hits, sizes)
    _, low, high = curve.band([0.1, curve.accuracy[0]])
    # Every sample reaches the first accuracy.
    assert low[0] < curve.mean_size[0] < high[0]
    assert np.isnan(high[1])


def test_the_envelope_keeps_its_rows():
    hits, sizes = draw(np.random.default_rng(8), 120)
    wide = np.insert(sizes, 1, 90, axis=1)  # This point is dominated.
    curve = with_rows(np.insert(hits, 1, hits[:, 0], axis=1), wide)
    envelope = curve.envelope()
    assert len(envelope) == 5
    np.testing.assert_array_equal(envelope.rows[0], hits)
    np.testing.assert_array_equal(envelope.rows[1], sizes)
    np.testing.assert_array_equal(envelope.band(), with_rows(hits, sizes).band())
    assert frontier([(0.5, 1.0)]).envelope().rows is None


def test_rows_are_copied_in_types_that_need_little_memory():
    hits, sizes = draw(np.random.default_rng(9), 50)
    curve = with_rows(hits, sizes)
    assert [part.dtype for part in curve.rows] == [np.bool_, np.int16]
    before = curve.band()
    hits[:], sizes[:] = False, 1
    np.testing.assert_array_equal(curve.band(), before)
    assert with_rows(hits, sizes * 40_000).rows[1].dtype == np.int32
    assert with_rows(hits, sizes / 2).rows[1].dtype == np.float32


def test_plot_shades_the_band():
    from matplotlib import pyplot as plt

    curve = with_rows(*draw(np.random.default_rng(10), 200), name="some")
    axes = curve.plot(band=True, color="red")
    (shade,) = axes.collections
    (path,) = shade.get_paths()
    _, low, high = curve.band()
    inside = ~np.isnan(high)
    assert path.vertices[:, 0].min() == pytest.approx(low[inside].min())
    assert path.vertices[:, 0].max() == pytest.approx(np.nanmax(high))
    assert shade.get_facecolor()[0][:3].tolist() == [1.0, 0.0, 0.0]
    assert axes.get_legend_handles_labels()[1] == ["some"]  # The band has no entry.
    assert not curve.plot().collections
    plt.close("all")


def test_a_band_needs_rows():
    from matplotlib import pyplot as plt

    plain = frontier([(0.5, 1.0), (1.0, 3.0)])
    with pytest.raises(ValueError, match=r"has none; build it with rows=\(hits, sizes\)"):
        plain.band()
    with pytest.raises(ValueError, match="this Frontier has none"):
        plain.plot(band=True)
    assert not plt.get_fignums()  # No figure was created.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1}, "level must lie strictly between 0 and 1; got 1"),
        ({"level": 95}, "got 95"),
        ({"resamples": 0}, "resamples must be an integer of at least 1; got 0"),
        ({"accuracy": [0.5, 95]}, "an accuracy must be between 0 and 1; got [0.5, 95]"),
    ],
)
def test_invalid_bands_raise(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        with_rows(*draw(np.random.default_rng(0), 20)).band(**options)


@pytest.mark.parametrize(
    ("hits", "sizes", "message"),
    [
        ([[True]], [[1]], "each of shape (rows, 2 points); got shapes (1, 1) and (1, 1)"),
        ([[True, False]], [[1, 2], [1, 2]], "got shapes (1, 2) and (2, 2)"),
        ([True, False], [1, 2], "got shapes (2,) and (2,)"),
        ([[1, 0]], [[1, 2]], "hits of a Frontier must be booleans; got int64"),
        ([[True, False]], [[1, 2]], "the means of the 1 rows of a Frontier are not"),
        ([[False, True]], [[2, 1]], "the means of the 1 rows of a Frontier are not"),
        (np.empty((0, 2), bool), np.empty((0, 2)), "the means of the 0 rows"),
    ],
)
def test_invalid_rows_raise(hits, sizes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Frontier([0.0, 1.0], [1.0, 2.0], [1, 2], rows=(hits, sizes))


def test_the_frontier_of_a_predictor_has_rows():
    rng = np.random.default_rng(11)
    scores, y = rng.random((60, 5)), rng.integers(5, size=60)
    family = sl.TopK([1, 2, 5])
    curve = sl.FixedSelector(family).fit(scores, y).frontier(scores, y)
    np.testing.assert_array_equal(curve.rows[0], family.hits(scores, y))
    np.testing.assert_array_equal(curve.rows[1], family.sizes(scores))
    assert curve.accuracy.tolist() == [hits.sum() / 60 for hits in curve.rows[0].T]
    assert curve.mean_size.tolist() == [1.0, 2.0, 5.0]
    _, low, high = curve.band([curve.accuracy[1]])
    assert low[0] < 2 < high[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
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
def test_invalid_points_raise(arguments, message):
    with pytest.raises(ValueError, match="Frontier") as error:
        Frontier(*arguments)
    assert message in str(error.value)
