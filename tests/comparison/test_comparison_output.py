"""A comparison as measurements, as a frame, as a table and as a plot."""

from __future__ import annotations

import math
import re
from dataclasses import fields

import matplotlib as mpl
import numpy as np
import pytest
from compared_methods import ComparedMethods
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from small_methods import conformal, draw_candidates, draw_rows, only_lac

import shortlist as sl
from shortlist.comparison import Measurement

mpl.use("Agg")


@pytest.fixture
def comparison(compared: ComparedMethods) -> sl.Comparison:
    result: sl.Comparison = compared.comparison
    return result


def test_at(comparison: sl.Comparison) -> None:
    for method in comparison.curves:
        for accuracy in (0.75, 0.95):
            measurement = comparison.at(method, accuracy)
            assert isinstance(measurement, Measurement)
            assert (measurement.method, measurement.accuracy) == (method, accuracy)


@pytest.mark.parametrize(("method", "accuracy"), [("lac", 0.95), ("LAC", 0.9)])
def test_at_names_what_is_available(
    method: str, accuracy: float, comparison: sl.Comparison
) -> None:
    message = re.escape(f"no measurement of {method!r} at {accuracy!r}; the methods are")
    with pytest.raises(ValueError, match=message + r" \['Shortlister', .*\[0.75, 0.95\]"):
        comparison.at(method, accuracy)


def test_every_field_is_measured(comparison: sl.Comparison) -> None:
    measurement = comparison.at("LAC", 0.75)
    method, accuracy, *values = (getattr(measurement, f.name) for f in fields(Measurement))
    assert (method, accuracy) == ("LAC", 0.75)
    assert all(isinstance(value, float) and math.isfinite(value) for value in values)


def test_to_frame(comparison: sl.Comparison) -> None:
    frame = comparison.to_frame()
    assert list(frame.columns) == [field.name for field in fields(Measurement)]
    assert frame["method"].tolist() == [
        name for name in comparison.curves for _ in comparison.accuracies
    ]
    assert frame["accuracy"].tolist() == [0.75, 0.95] * len(comparison.curves)
    for row, measurement in zip(
        frame.itertuples(index=False), comparison.measurements, strict=True
    ):
        assert row.size == measurement.size
        assert row.single_share == pytest.approx(measurement.single_share, nan_ok=True)


# The table


def _tables(comparison: sl.Comparison) -> list[list[str]]:
    """Return the lines of each table, after an assertion that all columns are aligned."""
    lines, height = repr(comparison).splitlines(), 1 + len(comparison.curves)
    tables = [lines[2 : 2 + height], lines[3 + height : 3 + 2 * height]]
    for head, *rows in tables:
        start = len(re.split("  ", head)[0])
        ends = [match.end() for match in re.finditer(r"\S+( \S+)*", head[start:])]
        for row in rows:
            assert [match.end() for match in re.finditer(r"\S+", row[start:])][-len(ends) :] == ends
    return tables


def _format(value: float, digits: int = 3) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def test_repr_is_two_tables(comparison: sl.Comparison) -> None:
    summary, empty, *lines = repr(comparison).splitlines()
    assert summary == comparison.summary
    assert summary == "300 rows to fit, 100 calibration rows, 150 test rows, 5 classes"
    legend = lines[3 + 2 * len(comparison.curves) :]
    assert empty == legend[0] == ""
    assert "standard error about 0.02)" in legend[3]  # (0.95 * 0.05 / 150) ** 0.5
    assert "violation:" in legend[4]
    sizes, guaranteed = _tables(comparison)
    assert sizes[0].split() == [
        "mean",
        "size",
        "at",
        "accuracy",
        "0.75",
        "0.95",
        "fit",
        "s",
        "predict",
        "s",
    ]
    titles = ["accuracy", "size", "violation", "worst", "class", "single"]
    assert guaranteed[0].split() == ["0.95", "guaranteed", *titles]
    for name, size, kept in zip(comparison.curves, sizes[1:], guaranteed[1:], strict=True):
        at_95 = comparison.at(name, 0.95)
        assert size.startswith(name)
        assert size[len(name) :].split() == [
            *(_format(comparison.at(name, accuracy).size) for accuracy in comparison.accuracies),
            _format(at_95.fit_seconds, 1),
            _format(at_95.predict_seconds),
        ]
        assert kept.startswith(name)
        assert kept[len(name) :].split() == [
            _format(at_95.guaranteed_accuracy),
            _format(at_95.guaranteed_size),
            _format(at_95.size_stratified_violation),
            _format(at_95.worst_class),
            _format(at_95.single_share),
        ]
    assert " -" in guaranteed[1 + list(comparison.curves).index("fixed")]


@pytest.mark.parametrize("accuracies", [[0.9], [0.8, 0.95, 0.99], [0.8, 0.9]])
def test_the_table_shows_the_guarantee_of_095_or_of_the_first_accuracy(
    accuracies: list[float],
) -> None:
    comparison = sl.compare(*draw_rows(400, 1), methods=only_lac(), accuracies=accuracies)
    accuracy = 0.95 if 0.95 in accuracies else accuracies[0]
    _, (head, line) = _tables(comparison)
    assert head.startswith(f"{accuracy:g} guaranteed ")
    assert f"{comparison.at('LAC', accuracy).guaranteed_size:.3f}" in line.split()


# The plot


def test_plot_draws_every_curve_with_its_name(comparison: sl.Comparison) -> None:
    ax = comparison.plot()
    lines = {line.get_label(): line for line in ax.get_lines()}
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == list(comparison.curves)
    for name, curve in comparison.curves.items():
        x, y = np.asarray(lines[name].get_data())
        envelope = curve.envelope()
        np.testing.assert_array_equal(x, envelope.mean_size)
        np.testing.assert_array_equal(y, envelope.accuracy)
        assert (to_hex(lines[name].get_color()) == "#000000") == (name == "Shortlister")
        assert (lines[name].get_linestyle() == "--") == name.endswith("re-scored")
        for accuracy in comparison.accuracies:
            size = curve.size_at(accuracy)
            assert math.isnan(size) or ax.get_xlim()[0] < size < ax.get_xlim()[1]
    assert ax.get_ylim() == pytest.approx((0.7, 1.002))
    assert not ax.collections


def test_plot_uses_given_axes_and_shades_only_the_shortlister(comparison: sl.Comparison) -> None:
    axes = Figure().subplots()
    assert comparison.plot(axes, band=True) is axes
    assert len(axes.collections) == 1


def test_plot_shows_undominated_points_only() -> None:
    curve = sl.Frontier([0.8, 0.85, 0.95], [1.0, 3.0, 2.0], [1, 2, 3])
    ax = sl.Comparison((0.9,), "one curve", 3, curves={"by hand": curve}).plot()
    lines = [np.asarray(line.get_data()).T.tolist() for line in ax.get_lines()]
    assert [[1.0, 0.8], [2.0, 0.95]] in lines
    assert [3.0, 0.85] not in [point for points in lines for point in points]
    assert ax.get_xlim() == pytest.approx((0.95 * 4 / 3, 1.05 * 5 / 3))


def test_plot_of_curves_that_do_not_reach_every_accuracy() -> None:
    candidates, y = draw_candidates(400, depth=3)
    curve = conformal(calibration=None).fit(candidates, y).frontier(candidates, y)
    highest = curve.accuracy.max()
    ax = sl.compare(candidates, y, methods=only_lac(), accuracies=[0.02, 0.99]).plot()
    assert ax.get_ylim()[0] == 0
    assert ax.get_xlim()[1] < 4
    ax = sl.compare(candidates, y, methods=only_lac(), accuracies=[0.99]).plot()
    assert ax.get_ylim()[0] < highest < 0.94
    assert ax.get_ylim()[1] > highest - 0.1
