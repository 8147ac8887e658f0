"""Plots for notebooks: bars, and measured against guaranteed accuracy."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from scipy.stats import betabinom, binom
from synthetic import draw

import shortlist as sl
from shortlist.conformal.quantiles import UnreachableError
from shortlist.html_report.guarantee_plot import expected_limits
from shortlist.html_report.operating_points import TARGETS
from shortlist.metrics import class_accuracy
from shortlist.sets import PredictionSets

mpl.use("Agg")


def axes() -> Axes:
    new: Axes = Figure().subplots()
    return new


SETS = PredictionSets.from_lists(
    [["cat"], ["dog", "cat"], ["eel", "dog"], ["eel", "cat", "dog"]], classes=["cat", "dog", "eel"]
)


def test_sizes() -> None:
    ax = SETS.plot_sizes(axes())
    assert [(round(p.get_center()[0]), p.get_height()) for p in ax.patches] == [  # type: ignore[attr-defined]
        (1, 0.25),
        (2, 0.5),
        (3, 0.25),
    ]
    assert ax.get_xlabel() == "labels in a set (mean 2)"
    empty = PredictionSets.from_lists([[], [0, 1, 2, 3]], n_classes=5).plot_sizes(color="red")
    assert [p.get_height() for p in empty.patches] == [0.5, 0, 0, 0, 0.5]  # type: ignore[attr-defined]
    assert {p.get_facecolor() for p in empty.patches} == {(1.0, 0.0, 0.0, 1.0)}
    with pytest.raises(ValueError, match="there are no rows"):
        SETS[:0].plot_sizes()


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_a_single_size_does_not_fill_the_axes(size: int) -> None:
    sets = PredictionSets.from_lists([list(range(size))] * 9, n_classes=10)
    ax = sets.plot_sizes(axes())
    (bar,) = (p for p in ax.patches if p.get_height())  # type: ignore[attr-defined]
    low, high = ax.get_xlim()
    assert bar.get_width() < (high - low) / 2  # type: ignore[attr-defined]
    assert low < size < high
    ticks = [tick for tick in ax.get_xticks() if low <= tick <= high]
    assert size in ticks
    assert min(ticks) >= 0


def test_an_accuracy_of_100_percent_has_a_standard_error() -> None:
    sets = PredictionSets.from_lists([[0]] * 98 + [[0, 1]] * 198, n_classes=2)
    ax = sets.plot_classes([0] * 98 + [1] * 198, axes())
    (bars,) = (c for c in ax.containers if isinstance(c, BarContainer))
    segments = bars.errorbar[2][0].get_segments()  # type: ignore[union-attr]
    halves = [float(end[0] - start[0]) / 2 for start, end in segments]
    assert halves == pytest.approx([0.01 * 0.99**0.5 / 0.98**0.5, 0.005 * 0.995**0.5 / 0.99**0.5])


def test_classes() -> None:
    y = ["dog", "dog", "eel", "eel"]
    ax = SETS.plot_classes(y, axes())
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["dog", "eel"]  # No row is a cat.
    assert [p.get_width() for p in ax.patches] == [0.5, 1.0]  # type: ignore[attr-defined]
    assert ax.yaxis_inverted()  # The lowest accuracy is on top.
    assert ax.lines[-1].get_xdata()[0] == SETS.accuracy(y)  # type: ignore[index]


def test_of_many_classes_the_lowest_accuracies_are_plotted() -> None:
    scores, y = draw(2000, n=60)
    sets = sl.SplitConformal().fit(scores[:1000], y[:1000]).predict_set(scores[1000:])
    ax = sets.plot_classes(y[1000:], axes(), max_classes=7)
    shares = np.sort(class_accuracy(sets, y[1000:]))[:7]
    np.testing.assert_allclose([p.get_width() for p in ax.patches], shares)  # type: ignore[attr-defined]
    assert "the 7 lowest of 60" in ax.get_xlabel()
    with pytest.raises(ValueError, match="max_classes must be an integer of at least 1; got 0"):
        sets.plot_classes(y[1000:], max_classes=0)


def model(**given: object) -> tuple[sl.SplitConformal, np.ndarray, np.ndarray]:
    scores, y = draw(1600, n=8)
    fitted = sl.SplitConformal("lac", temperature=None, **given)  # type: ignore[arg-type]
    return fitted.fit(scores[:600], y[:600]), scores[600:], y[600:]


def guarantee(fitted: sl.SplitConformal, scores: np.ndarray) -> sl.Guarantee:
    return fitted.predict_set(scores[:1], accuracy=0.9).guarantee


def test_measured_against_guaranteed_accuracy() -> None:
    lac, scores, y = model()
    ax = lac.plot_guarantee(scores, y, ax=axes())
    guaranteed, measured = ax.lines
    levels = np.asarray(measured.get_xdata())
    np.testing.assert_array_equal(guaranteed.get_xdata(), guaranteed.get_ydata())
    expected = []
    for accuracy in TARGETS:
        try:
            expected.append((accuracy, lac.predict_set(scores, accuracy=accuracy).accuracy(y)))
        except UnreachableError:
            assert accuracy == 0.999  # 600 rows are too few.
    np.testing.assert_array_equal(np.column_stack([levels, measured.get_ydata()]), expected)
    low, high = expected_limits(guarantee(lac, scores), levels, 1000)
    inside = (low <= measured.get_ydata()) & (measured.get_ydata() <= high)
    assert inside[levels > 0.8].all()
    assert ax.get_legend() is not None
    assert len(ax.collections) == 1


def test_the_limits_are_quantiles_of_the_exact_distribution() -> None:
    lac, scores, _ = model()
    (low,), (high,) = expected_limits(guarantee(lac, scores), np.array([0.9]), 1000)
    distribution = betabinom(1000, 601 - 60, 60)  # 60 = floor(0.1 * 601).
    assert distribution.cdf(1000 * low - 1) < 0.025 <= distribution.cdf(1000 * low)
    assert distribution.cdf(1000 * high - 1) < 0.975 <= distribution.cdf(1000 * high)
    assert low < binom(1000, 0.9).ppf(0.025) / 1000  # The calibration rows vary too.


def test_the_accuracy_is_between_the_limits_in_95_percent_of_draws() -> None:
    outside = []
    for seed in range(60):
        scores, y = draw(700, n=4, seed=seed)
        lac = sl.SplitConformal("lac", temperature=None).fit(scores[:300], y[:300])
        (low,), (high,) = expected_limits(guarantee(lac, scores), np.array([0.9]), 400)
        kept = lac.predict_set(scores[300:], accuracy=0.9).accuracy(y[300:])
        outside.append(not low <= kept <= high)
    assert sum(outside) <= 8  # 3 are expected; the probability of more than 8 is about 1 / 300.


def test_a_path_guarantees_with_a_probability() -> None:
    scores, y = draw(900, n=6)
    path = sl.CardinalityPath(
        cost_weights=[0.5, 0.05, 0.005], inputs="scores", width=8, max_epochs=2, progress=False
    ).fit(scores[:300], y[:300])
    with pytest.raises(ValueError, match="is not calibrated and guarantees no accuracy"):
        path.plot_guarantee(scores[600:], y[600:])
    path.calibrate(scores[300:600], y[300:600])
    ax = path.plot_guarantee(scores[600:], y[600:], accuracies=[0.6, 0.7], ax=axes())
    for accuracy, kept in zip([0.6, 0.7], ax.lines[1].get_ydata(), strict=True):  # type: ignore[arg-type]
        assert kept == path.predict_set(scores[600:], accuracy=accuracy).accuracy(y[600:])


def test_invalid_input() -> None:
    lac, scores, y = model()
    with pytest.raises(ValueError, match=r"none of the accuracies, 0\.9999 to 0\.9999, can be"):
        lac.plot_guarantee(scores, y, accuracies=[0.9999])
    with pytest.raises(ValueError, match="each of accuracies must lie strictly between 0 and 1"):
        lac.plot_guarantee(scores, y, accuracies=[90])
    with pytest.raises(ValueError, match="is not calibrated"):
        sl.FixedSelector().fit(scores, y).plot_guarantee(scores, y)
