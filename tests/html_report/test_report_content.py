"""The content of a report agrees with what the models predict."""

from __future__ import annotations

import dataclasses
import math
import warnings
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from reported import HOSTILE, NAMES, N, compared, content, plain, rows
from synthetic import draw, ragged

import shortlist as sl
from shortlist.conformal.quantiles import UnreachableError
from shortlist.html_report import content as content_module
from shortlist.html_report import method_content
from shortlist.html_report.confusion import confused_groups, hardest_classes
from shortlist.html_report.content import Content, make_content
from shortlist.html_report.examples import EXAMPLE_LABELS, example_rows
from shortlist.html_report.method_content import Method, Point, size_bins
from shortlist.html_report.operating_points import TARGETS
from shortlist.html_report.prose import guarantee_basis
from shortlist.html_report.single_model import evaluate_model
from shortlist.metrics import class_accuracy
from shortlist.sets import PredictionSets


def methods_of(report: Content) -> list[tuple[str, Method]]:
    return list(zip(report.comparison.fitted, report.methods, strict=True))


def guaranteed_sets(comparison: sl.Comparison, name: str, accuracy: float) -> PredictionSets | None:
    """Return the sets of `predict_set`; None if the accuracy cannot be guaranteed."""
    fitted = comparison.fitted[name]
    ranking, _, x = fitted.test
    model = fitted.model(accuracy)
    if not model.is_calibrated:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return model.predict_set(ranking, x, accuracy=accuracy)  # type: ignore[call-arg]
        except UnreachableError:
            return None


def test_accuracies_of_the_slider() -> None:
    assert 90 <= len(TARGETS) <= 110
    steps = np.diff(TARGETS)
    assert (steps > 0).all()
    assert (np.diff(steps) < 1e-9).all()  # Denser near 1.
    assert (TARGETS[0], TARGETS[-1]) == (0.5, 0.999)
    assert {0.8, 0.9, 0.95, 0.98, 0.99} < set(TARGETS)
    report = content()
    assert list(report.comparison.fitted) == NAMES
    assert report.accuracies == sorted({*TARGETS, 0.75, 0.95})
    assert report.accuracies[report.start] == 0.95
    assert report.methods[report.main].name == "Shortlister"


@pytest.mark.parametrize("name", NAMES)
def test_every_point_agrees_with_predict_set(name: str) -> None:
    comparison, report = compared(), content()
    method = dict(methods_of(report))[name]
    y = comparison.fitted[name].test[1]
    n_points = 0
    for accuracy, at in zip(report.accuracies, method.at, strict=True):
        sets = guaranteed_sets(comparison, name, accuracy)
        point = method.points[at] if at >= 0 else None
        assert (sets is not None) == (point is not None and point.guaranteed)
        if sets is None or point is None:
            continue
        n_points += 1
        sizes = np.asarray(sets.sizes)
        assert point.hits / report.n_test == sets.accuracy(y)
        assert point.labels / report.n_test == sets.mean_size
        assert point.largest == sizes.max()
        expected = [int(((sizes >= a) & (sizes <= b)).sum()) for a, b in report.bins]
        assert list(point.counts) == expected
        shares = class_accuracy(sets, y)
        for k, label in enumerate(report.classes):
            assert 1 - point.missed[k] / report.class_rows[k] == pytest.approx(shares[label])
    assert (n_points > 0) == bool(method.guarantee) == (name != "fixed")


def test_without_a_guarantee_the_smallest_sets_that_reach_the_accuracy_are_shown() -> None:
    report = content()
    n_points = 0
    for name, method in methods_of(report):
        fitted = report.comparison.fitted[name]
        for accuracy, at in zip(report.accuracies, method.at, strict=True):
            curve = fitted.curves[fitted.nearest(accuracy)]
            reached = curve.accuracy >= accuracy
            if at < 0:
                assert not reached.any()
            elif not method.points[at].guaranteed:
                point = method.points[at]
                n_points += 1
                assert point.hits / report.n_test >= accuracy
                assert point.labels / report.n_test == pytest.approx(curve.mean_size[reached].min())
    assert n_points > 50


@pytest.mark.parametrize("which", ["compared", "plain"])
def test_the_counts_of_each_point_are_complete(which: str) -> None:
    report = content(which)
    assert sum(report.class_rows) == report.n_test
    for method in report.methods:
        assert len(method.at) == len(report.accuracies)
        assert set(method.at) - {-1} == set(range(len(method.points)))
        for point in method.points:
            assert sum(point.counts) == report.n_test
            assert sum(point.missed) == report.n_test - point.hits
            assert all(0 <= m <= n for m, n in zip(point.missed, report.class_rows, strict=True))
            assert len(point.missed) == len(report.classes) + 1
            lowest = sum(low * n for (low, _), n in zip(report.bins, point.counts, strict=True))
            highest = sum(high * n for (_, high), n in zip(report.bins, point.counts, strict=True))
            assert lowest <= point.labels <= highest


def test_content_agrees_with_the_table() -> None:
    report = content()
    for name, method in methods_of(report):
        for accuracy in report.comparison.accuracies:
            one, i = report.comparison.at(name, accuracy), report.accuracies.index(accuracy)
            assert method.size[i] == pytest.approx(one.size, nan_ok=True)
            if math.isnan(one.guaranteed_accuracy):
                continue
            point = method.points[method.at[i]]
            assert point.guaranteed
            assert point.hits / report.n_test == one.guaranteed_accuracy
            assert point.labels / report.n_test == one.guaranteed_size
            assert point.counts[report.bins.index((1, 1))] / report.n_test == one.single_share
            shares = [1 - m / n for m, n in zip(point.missed, report.class_rows, strict=True) if n]
            assert min(shares) == pytest.approx(one.worst_class)


def test_sizes_and_bands_are_the_curves() -> None:
    report = content()
    for name, method in methods_of(report):
        fitted = report.comparison.fitted[name]
        split = {a: fitted.curves[fitted.nearest(a)] for a in report.accuracies}
        expected = [curve.size_at(a) for a, curve in split.items()]
        np.testing.assert_array_equal(method.size, expected)
        bands = {
            id(c): c.band(report.accuracies, resamples=method_content.RESAMPLES)
            for c in {id(c): c for c in split.values()}.values()
        }
        for i, curve in enumerate(split.values()):
            band = bands[id(curve)]
            np.testing.assert_array_equal(method.low[i], band.low[i])
            np.testing.assert_array_equal(method.high[i], band.high[i])
        sizes, accuracies = map(np.array, method.curve)
        assert (np.diff(accuracies) > 0).all()
        if name.startswith(("RAPS", "SAPS")):  # Several models were tuned.
            first = fitted.curves[0.75].envelope()
            assert (sizes[0], accuracies[0]) == (first.mean_size[0], first.accuracy[0])
            drawn = dict(zip(accuracies, sizes, strict=True))
            for accuracy, size in zip(report.accuracies, method.size, strict=True):
                shown = accuracy > first.accuracy[0] and not math.isnan(size)
                assert drawn.get(accuracy) == (size if shown else None)
            continue
        assert (np.diff(sizes) > 0).all()
        best = report.comparison.curves[name].envelope()
        assert set(sizes) <= set(best.mean_size.tolist())
        assert accuracies[-1] == best.accuracy[-1]


def test_the_basis_of_guarantees() -> None:
    by = {name: guarantee_basis(method.guarantee) for name, method in methods_of(content())}
    assert by["LAC"] == by["Shortlister"] == "by 150 calibration rows"
    assert by["<b>path</b>"] == "with probability 0.95 by 150 calibration rows"
    assert by["by class"] == "for each class by 150 calibration rows"
    assert by["fixed"] == ""


def test_a_tuned_method_uses_the_model_of_the_nearest_accuracy() -> None:
    fitted = compared().fitted["RAPS"]
    low, high = fitted.models[0.75], fitted.models[0.95]
    assert low is not high
    assert high is compared().models["RAPS"]
    assert [fitted.model(a) for a in (0.5, 0.8499, 0.8501, 0.999)] == [low, low, high, high]
    lac = compared().fitted["LAC"]
    assert lac.model(0.5) is lac.model(0.99)


# Classes


def test_of_many_classes_the_others_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = content()
    monkeypatch.setattr(content_module, "MAX_CLASSES", 2)
    few = make_content(compared())
    assert few.classes == whole.classes[:2]
    for a, b in zip(whole.methods, few.methods, strict=True):
        for p, q in zip(a.points, b.points, strict=True):
            assert q.missed == (*p.missed[:2], sum(p.missed[2:]))
    assert few.class_rows == [*whole.class_rows[:2], sum(whole.class_rows[2:])]


def test_classes_without_test_rows_are_left_out() -> None:
    scores, y = draw(300, n=6, seed=1)
    keep = y[200:] != 4
    test = scores[200:][keep], y[200:][keep]
    comparison = sl.compare(
        *(scores[:200], y[:200]), test=test, methods={"LAC": sl.SplitConformal()}
    )
    report = make_content(comparison)
    assert sorted(report.classes) == [0, 1, 2, 3, 5]
    assert all(report.class_rows[:-1])
    assert 4 not in {one.label for one in report.hardest}


@st.composite
def sets_and_labels(draw: st.DrawFn) -> tuple[PredictionSets, NDArray[np.int64]]:
    n = draw(st.integers(2, 7))
    label = st.integers(0, n - 1)
    lists = draw(st.lists(st.lists(label, unique=True, max_size=n), min_size=1, max_size=25))
    y = draw(st.lists(label, min_size=len(lists), max_size=len(lists)))
    return PredictionSets.from_lists(lists, n_classes=n), np.array(y)


@given(sets_and_labels())
def test_hardest_classes_by_brute_force(case: tuple[PredictionSets, NDArray[np.int64]]) -> None:
    sets, y = case
    lists = sets.labels()
    hard = hardest_classes(sets, y, most=100)
    assert {one.label for one in hard} == set(y.tolist())
    assert [one.mean_size for one in hard] == sorted((h.mean_size for h in hard), reverse=True)
    for one in hard:
        own = [row for row, label in zip(lists, y, strict=True) if label == one.label]
        assert one.n_rows == len(own)
        assert one.mean_size == pytest.approx(np.mean([len(row) for row in own]))
        assert one.accuracy == pytest.approx(np.mean([one.label in row for row in own]))
        assert one.first_accuracy == pytest.approx(np.mean([row[:1] == [one.label] for row in own]))


@given(sets_and_labels())
def test_groups_by_brute_force(case: tuple[PredictionSets, NDArray[np.int64]]) -> None:
    sets, y = case
    lists = sets.labels()

    def share(a: int, b: int) -> float:
        of = [(row, label) for row, label in zip(lists, y, strict=True) if label in (a, b)]
        return sum((b if label == a else a) in row for row, label in of) / max(len(of), 1)

    groups = confused_groups(sets, y, most=100)
    members = [label for group in groups for label in group.labels]
    assert len(members) == len(set(members))
    assert [g.share for g in groups] == sorted((g.share for g in groups), reverse=True)
    for group in groups:
        assert len(group.labels) >= 2
        expected = np.mean([share(a, b) for a, b in combinations(group.labels, 2)])
        assert group.share == pytest.approx(expected)
        assert group.share >= 0.02
        mistakes = [
            (label, row[0])
            for row, label in zip(lists, y, strict=True)
            if row and row[0] != label and {row[0], label} <= set(group.labels)
        ]
        if group.mistake is None:
            assert not mistakes
        else:
            *pair, times = group.mistake
            assert times == mistakes.count(tuple(pair)) == max(map(mistakes.count, mistakes))
    strongest = max((share(a, b) for a, b in combinations(range(sets.n_classes), 2)), default=0)
    if strongest >= 0.02:
        assert groups
        assert any(share(a, b) == strongest for g in groups for a, b in combinations(g.labels, 2))


def test_planted_groups_are_found() -> None:
    rng = np.random.default_rng(0)
    planted = [(0, 5), (1, 2, 7), (3, 8)]
    lists, y = [], []
    for group in planted:
        for label in group:
            for _ in range(20):
                lists.append(rng.permutation(group).tolist() + ([9] if rng.random() < 0.1 else []))
                y.append(label)
    lists += [[4], [6], [9]] * 20
    y += [4, 6, 9] * 20
    groups = confused_groups(PredictionSets.from_lists(lists, n_classes=10), np.array(y), most=9)
    assert {group.labels for group in groups} == set(planted)


# Examples


@pytest.mark.parametrize("name", NAMES)
def test_examples_have_the_sets_of_predict_set(name: str) -> None:
    report = content()
    method = dict(methods_of(report))[name]
    ranking, y, _x = report.comparison.fitted[name].test
    shown = [int(label.split()[1]) for label, _ in report.examples]
    assert len(shown) == 12
    index = ranking.classes.encode(y).numpy()
    assert [label for _, label in report.examples] == index[shown].tolist()
    for i in range(0, len(report.accuracies), 7):
        sets = guaranteed_sets(report.comparison, name, report.accuracies[i])
        if sets is None:
            continue
        point = method.points[method.at[i]]
        codes = ranking.classes.encode([v for row in sets[shown].labels() for v in row]).tolist()
        ends = np.cumsum([0, *point.sizes])
        assert ends[-1] == len(codes)
        for e, (a, b) in enumerate(pairwise(ends)):
            labels = point.sets[e] if point.sets else method.order[e][: point.sizes[e]]  # type: ignore[index]
            assert list(labels) == codes[a:b][:EXAMPLE_LABELS]
            assert point.contained[e] == (index[shown[e]] in codes[a:b])


def test_examples_of_methods_without_a_guarantee_are_prefixes_too() -> None:
    report = content()
    method = dict(methods_of(report))["fixed"]
    ranking = report.comparison.fitted["fixed"].test[0]
    shown = [int(label.split()[1]) for label, _ in report.examples]
    assert method.order == np.asarray(ranking.labels)[shown].tolist()


@given(st.integers(1, 60), st.integers(0, 10_000))
def test_example_rows_are_of_every_kind(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hits, sizes = rng.random(n) < 0.8, rng.integers(1, 5, size=n)
    first = hits & (rng.random(n) < 0.7) | (hits & (sizes == 1))
    chosen = example_rows(hits, sizes, first)
    assert len(chosen) == len(set(chosen)) == min(n, 12)
    for kind in (hits & (sizes == 1), hits & ~first & (sizes > 1), ~hits):
        assert not kind.any() or kind[chosen].any()


def test_names_of_examples() -> None:
    comparison = plain()
    assert comparison.test_index is not None
    every = [f"text {k}" for k in range(300)]
    numbers = comparison.test_index.tolist()
    report = make_content(comparison)
    shown = [int(name.split()[1]) for name, _ in report.examples]
    assert set(shown) <= set(numbers)
    for given_names in (every, [every[k] for k in numbers]):
        names = [name for name, _ in make_content(comparison, given_names).examples]
        assert names == [f"text {k}" for k in shown]
    with pytest.raises(ValueError, match="examples has 7 entries, but there are 90 test rows"):
        make_content(comparison, ["x"] * 7)
    with pytest.raises(ValueError, match="a sequence of texts; got one string, 'x'"):
        make_content(comparison, "x")
    with pytest.raises(ValueError, match="examples has 300 entries, but there are 150 test rows"):
        make_content(compared(), every)


# Other rows, other models


def test_candidates() -> None:
    scores, y = draw(600, n=8)
    p = np.exp(scores) / np.exp(scores).sum(1)[:, None]
    candidates = sl.Ranking.from_candidates(**ragged(p, 3))  # type: ignore[arg-type]
    methods = {"LAC": sl.SplitConformal("lac", on_unreachable="all"), "path": sl.FixedSelector()}
    report = make_content(sl.compare(candidates, y, methods=methods))
    method = report.methods[0]
    last = method.points[method.at[-1]]
    assert last.guaranteed
    assert last.labels == 8 * report.n_test  # All labels, also those that are not candidates.
    assert last.hits == report.n_test
    assert report.methods[1].at[-1] == -1  # The true labels of some rows are not candidates.


def test_torch_rows() -> None:
    scores, y = (torch.tensor(part) for part in draw(300, n=6, seed=3))
    methods = {"LAC": sl.SplitConformal("lac"), "top-k": sl.SplitConformal("topk")}
    report, same = make_content(sl.compare(scores, y, methods=methods)), content("plain")
    assert report.methods == same.methods
    assert (report.hardest, report.groups) == (same.hardest, same.groups)


def test_with_too_many_rows_for_bands_only_guaranteed_sets_are_known() -> None:
    comparison = sl.compare(
        *draw(300, n=6, seed=3), methods={"LAC": sl.SplitConformal(), "fixed": sl.FixedSelector()}
    )
    for fitted in comparison.fitted.values():
        for curve in fitted.curves.values():
            curve.rows = None  # As in a curve of very many rows.
    report, whole = make_content(comparison), content("plain")
    lac, fixed = report.methods
    assert fixed.points == []
    assert set(fixed.at) == {-1}
    assert all(point.guaranteed for point in lac.points)
    expected = [(p.hits, p.labels, p.counts) for p in whole.methods[0].points if p.guaranteed]
    assert [(p.hits, p.labels, p.counts) for p in lac.points] == expected
    assert np.isnan(lac.low).all()
    np.testing.assert_array_equal(lac.size, whole.methods[0].size)


def test_nothing_calibrated() -> None:
    scores, y = draw(300, n=6)
    report = make_content(
        sl.compare(scores, y, methods={"LAC": sl.SplitConformal()}, calibration=None)
    )
    assert not report.methods[0].guarantee
    assert not any(point.guaranteed for point in report.methods[0].points)
    assert report.hardest
    assert report.methods[0].order


def test_a_model_by_itself() -> None:
    (scores, y, x), (test_scores, test_y, test_x) = rows(400, 1), rows(100, 2)
    model = sl.SplitConformal("aps", random_state=1).fit(scores, y, x, classes=HOSTILE)
    comparison = evaluate_model(model, test_scores, test_y, test_x, accuracies=[0.8, 0.9])
    assert list(comparison.curves) == ["aps", "sets of one size"]
    assert comparison.summary == "300 calibration rows, 100 test rows, 5 classes"
    sets = model.predict_set(test_scores, test_x, accuracy=0.9)
    one = comparison.at("aps", 0.9)
    assert one.guaranteed_accuracy == sets.accuracy(test_y)
    assert one.guaranteed_size == sets.mean_size
    assert one.size == model.frontier(test_scores, test_y, test_x).size_at(0.9)
    assert math.isnan(one.fit_seconds)
    top_k = sl.FixedSelector().fit(test_scores, test_y, classes=HOSTILE)
    expected = top_k.frontier(test_scores, test_y).size_at([0.8, 0.9])
    fixed = [comparison.at("sets of one size", a).size for a in (0.8, 0.9)]
    np.testing.assert_allclose(fixed, expected)
    assert (
        guarantee_basis(make_content(comparison).methods[0].guarantee) == "by 300 calibration rows"
    )
    assert list(evaluate_model(top_k, test_scores, test_y).curves) == ["fixed"]


def test_wrong_input() -> None:
    curve = sl.Frontier([0.8, 0.95], [1.0, 2.0], [1, 2])
    with pytest.raises(ValueError, match="has no models and rows, which a report needs"):
        make_content(sl.Comparison((0.9,), "by hand", 3, curves={"by hand": curve}))
    scores, y, x = rows(100, 1)
    grouped = sl.SplitConformal(by="group").fit(scores, y, classes=HOSTILE, groups=["a", "b"] * 50)
    with pytest.raises(ValueError, match=r"conditional on groups, .* by=None"):
        evaluate_model(grouped, scores, y)
    model = sl.SplitConformal().fit(scores, y, classes=HOSTILE)
    with pytest.raises(ValueError, match="features have 100 rows, but the scores have 50"):
        evaluate_model(model, scores[:50], y[:50], x)
    with pytest.raises(ValueError, match="y has 49 labels, but the scores have 50 rows"):
        evaluate_model(model, scores[:50], y[:49])


@given(st.integers(1, 5000))
def test_bins_are_all_sizes_once(largest: int) -> None:
    bins = size_bins(largest)
    assert [k for low, high in bins for k in range(low, high + 1)] == list(range(1, largest + 1))
    assert len(bins) <= 25


def test_a_point_contains_plain_numbers_only() -> None:
    assert len(content().names) == N
    for method in content().methods:
        for point in method.points:
            assert {type(v) for v in dataclasses.astuple(point)} <= {bool, int, tuple, type(None)}
            assert isinstance(point, Point)
