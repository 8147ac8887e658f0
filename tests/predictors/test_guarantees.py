"""Guarantees, checked by simulation over many draws of the calibration rows.

Standard errors are computed from the variation over the draws. The study, `pytest -m study`,
repeats the first test with 300 draws.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from registered_scores import VARIANTS
from synthetic import draw, uneven

import shortlist as sl
from shortlist.conformal.quantiles import UnreachableError
from shortlist.conformal.ranks import min_calibration_size, quantile_rank

LEVELS = [0.5, 0.8, 0.9, 0.95, 0.98]
M = 150
"""Number of calibration rows; alpha (M + 1) is not an integer at any of the accuracies."""

Selector = sl.SplitConformal | sl.PlugInSelector


def draws(rows: int, m: int, times: int, seed: int = 0) -> Iterator[tuple[NDArray, NDArray]]:
    """Yield random parts of a pool, for calibration and for testing."""
    rng = np.random.default_rng(seed)
    for _ in range(times):
        order = rng.permutation(rows)
        yield order[:m], order[m:]


def fitted(model: Selector, n: int = 8) -> Selector:
    """Fit temperature and penalties on other rows, half as many as calibrate."""
    scores, y = draw(100, n, seed=99, temperature=1.5)
    return model.set_params(calibration=None).fit(scores, y)


def coverages(model: Selector, times: int, seed: int, temperature: float = 1.5) -> NDArray:
    """Return the accuracy on the test rows, of shape (draws, accuracies)."""
    scores, y = draw(M + 250, seed=seed, temperature=temperature)
    result = []
    for calibration, test in draws(len(y), M, times, seed):
        model.calibrate(scores[calibration], y[calibration])
        result.append(
            [model.predict_set(scores[test], accuracy=a).accuracy(y[test]) for a in LEVELS]
        )
    return np.array(result)


def check(result: NDArray, continuous: bool) -> None:
    """Check that accuracies are within three standard errors of the theory."""
    mean = result.mean(axis=0)
    error = 3 * result.std(axis=0, ddof=1) / math.sqrt(len(result))
    assert (error < 0.06).all()
    for accuracy, got, slack in zip(LEVELS, mean, error, strict=True):
        assert got >= accuracy - slack
        if continuous:
            assert got <= accuracy + 1 / (M + 1) + slack


# Over all rows


@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_marginal_accuracy(name, randomized):
    model = sl.SplitConformal(name, randomized=randomized, allow_empty=True)
    check(coverages(fitted(model), 25, seed=1), continuous=name != "topk" or randomized)


@pytest.mark.parametrize("cost", ["linear", "log"])
def test_marginal_accuracy_of_the_plug_in_rule(cost):
    """With cost "log" the first label costs nothing, so that its level is infinite."""
    model = sl.PlugInSelector(cost=cost, allow_empty=True)
    check(coverages(fitted(model), 25, seed=2), continuous=cost == "linear")


@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_sets_that_are_never_empty_only_add_accuracy(name, randomized):
    """At low requests, the accuracy is that of the first label."""
    free = fitted(sl.SplitConformal(name, randomized=randomized, allow_empty=True))
    full = fitted(sl.SplitConformal(name, randomized=randomized))
    with_empty, without = (coverages(m, 15, seed=3, temperature=0.7) for m in (free, full))
    check(without, continuous=False)
    scores, y = draw(M + 250, seed=3, temperature=0.7)
    first = (scores.argmax(axis=1) == y).mean()
    assert 0.6 < first < 0.78
    assert without[:, 0].mean() == pytest.approx(first, abs=0.02)
    assert with_empty[:, 0].mean() < 0.58 or (name, randomized) == ("topk", False)
    if name in ("lac", "margin", "topk"):  # Their first labels are removed last.
        assert without[:, -1].mean() == pytest.approx(with_empty[:, -1].mean(), abs=0.01)


def test_exact_ties_only_add_accuracy():
    """Probabilities have few values, so that many levels equal the threshold."""
    scores, y = draw(M + 250, 4, seed=4)
    p = np.exp(scores.round()) / np.exp(scores.round()).sum(axis=1, keepdims=True)
    model = sl.SplitConformal("lac", temperature=None, allow_empty=True).fit(p, y)
    result = []
    for calibration, test in draws(len(y), M, 30):
        model.calibrate(p[calibration], y[calibration])
        result.append([model.predict_set(p[test], accuracy=a).accuracy(y[test]) for a in LEVELS])
    check(np.array(result), continuous=False)


def test_the_ceiling_rank_is_too_high():
    """With the rank that the paper prints, the accuracy is too low for small m."""
    m, accuracy = 25, 0.9
    scores, y = draw(400, seed=5)
    model = sl.SplitConformal("lac", temperature=None, allow_empty=True).fit(scores, y)
    index = model._classes.encode(y)
    blocks = model._level_function().blocks(sl.Ranking.from_scores(scores), None)
    levels = blocks.label_levels(index)
    floor, ceiling = [], []
    for calibration, test in draws(400, m, 1500):
        own, new = np.sort(levels[calibration]), levels[test].numpy()
        rank = quantile_rank(m, accuracy)
        assert rank + 1 == math.ceil(0.1 * (m + 1))
        floor.append((new >= own[rank - 1]).mean())
        ceiling.append((new >= own[rank]).mean())
    error = 3 * np.std(ceiling) / math.sqrt(len(ceiling))
    assert np.mean(floor) > accuracy - error
    assert np.mean(ceiling) < accuracy - error


@pytest.mark.study
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "model",
    [
        *(sl.SplitConformal(name, randomized=r, allow_empty=True) for name, r in VARIANTS),
        *(sl.SplitConformal(name, randomized=r) for name, r in VARIANTS),
        sl.PlugInSelector(allow_empty=True),
        sl.PlugInSelector(cost="log", allow_empty=True),
        sl.PlugInSelector(sl.TopK([1, 2, 4, 8]), allow_empty=True),
    ],
    ids=str,
)
def test_marginal_accuracy_over_300_splits(model):
    discrete = not model.allow_empty
    if isinstance(model, sl.SplitConformal):
        discrete |= model.score == "topk" and not model.randomized
    else:
        discrete |= model.cost == "log" or model.family is not None
    check(coverages(fitted(model), 300, seed=11), continuous=not discrete)


# For each class, for each group


def by_part(model: Selector, by: str | None, accuracy: float, times: int = 25) -> NDArray:
    """Return the accuracy within each class or group, of shape (draws, parts)."""
    scores, y, groups = uneven(1600, seed=6)
    parts = groups if by == "group" else y
    result = []
    for calibration, test in draws(len(y), 600, times):
        model.calibrate(scores[calibration], y[calibration], groups=groups[calibration])
        request = {"by": by, "groups": groups[test] if by == "group" else None}
        held = model.predict_set(scores[test], accuracy=accuracy, **request).contains(y[test])
        result.append([held[parts[test] == k].mean() for k in np.unique(parts)])
    return np.array(result)


@pytest.mark.parametrize("accuracy", [0.8, 0.9])
@pytest.mark.parametrize("by", ["class", "group"])
@pytest.mark.parametrize("method", ["lac", "aps", "plug-in"])
def test_accuracy_within_each_class_or_group(method, by, accuracy):
    scores, y, groups = uneven(300, seed=7)
    settings = {"allow_empty": True, "calibration": None}
    model = sl.PlugInSelector(**settings) if method == "plug-in" else None
    model = model or sl.SplitConformal(method, randomized=method == "aps", **settings)
    model.fit(scores, y, groups=groups)
    result = by_part(model, by, accuracy)
    error = 3 * result.std(axis=0, ddof=1) / math.sqrt(len(result))
    assert (result.mean(axis=0) >= accuracy - error).all()
    assert (result.mean(axis=0) <= accuracy + 1 / 40 + error).all()  # no part has fewer rows
    # One threshold for all rows keeps the guarantee on average, but not for hard parts.
    if by == "class" or method != "aps":
        batch = by_part(model, None, accuracy, times=10)
        assert batch.mean(axis=0).min() < accuracy - 0.05 or by == "group"


def few_of_some(seed: int = 8) -> tuple[NDArray, NDArray]:
    """Draw 500 rows of classes 0 and 1, and few of classes 2 to 5."""
    scores, _ = draw(540, 6, seed=seed)
    y = np.repeat([0, 1, 2, 3, 4, 5], [250, 250, 15, 12, 9, 4])
    return scores + 2 * np.eye(6)[y], y


def test_if_no_class_has_enough_rows_the_guarantee_is_marginal():
    y = np.repeat(np.arange(6), 60)
    scores = draw(360, 6, seed=8)[0] + 2 * np.eye(6)[y]
    model = sl.SplitConformal("lac", temperature=None, by="class").fit(scores, y)
    with pytest.warns(UserWarning, match="all 6 classes share one threshold") as caught:
        sets = model.predict_set(scores, accuracy=0.99)
    assert caught[0].filename == __file__
    assert str(sets.guarantee) == (
        "accuracy >= 0.99 guaranteed by 360 calibration rows; all 6 classes share one threshold, "
        "since too few have the 99 rows that one of their own needs"
    )
    assert sets == model.set_params(by=None).predict_set(scores, accuracy=0.99)


def test_calibrating_with_training_rows_warns():
    scores, y = draw(400, 6, seed=8)
    model = sl.SplitConformal("lac", calibration=None).fit(scores[:200], y[:200])
    with pytest.warns(UserWarning, match="150 of 200 calibration rows are among those") as caught:
        model.calibrate(scores[50:250], y[50:250])
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.calibrate(scores[197:397], y[197:397])  # A few may coincide.
        # The rows that fit held out are not training rows.
        kept = sl.SplitConformal("lac", calibration=0.9, random_state=0).fit(scores, y)
        learning, held_out = kept._split(400)
        kept.calibrate(scores[held_out], y[held_out])
        # Nothing is learned in this case.
        sl.SplitConformal("lac", temperature=None).fit(scores, y).calibrate(scores, y)
        # Too few rows are distinct in this case.
        alike = np.tile(scores[:4], (100, 1))
        sl.SplitConformal("lac", calibration=None).fit(alike, y).calibrate(alike, y)
    with pytest.warns(UserWarning, match="40 of 40"):
        kept.calibrate(scores[learning], y[learning])


def test_probabilities_after_a_fit_on_logits_warn():
    scores, y = draw(400, 6, seed=8)
    model = sl.SplitConformal("lac").fit(scores, y)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    with pytest.warns(UserWarning, match="fit saw logits, but these scores look like") as caught:
        model.predict_set(p, accuracy=0.9)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_set(scores, accuracy=0.9)
        model.predict_set(np.abs(scores) + 1, accuracy=0.9)


def test_a_mean_size_above_the_number_of_classes_raises():
    scores, y = draw(400, 6, seed=8)
    model = sl.SplitConformal("lac").fit(scores, y)
    assert model.predict_set(scores, mean_size=6).mean_size <= 6
    with pytest.raises(ValueError, match=r"mean_size = 6\.5 is more than the 6 classes"):
        model.predict_set(scores, mean_size=6.5)


def test_an_unreachable_accuracy_states_how_many_rows_fit_held_out():
    scores, y = draw(400, 6, seed=8)
    model = sl.SplitConformal("lac", calibration=0.25).fit(scores, y)
    with pytest.raises(
        UnreachableError, match=r"with 100 calib.*999 are.*\(fit kept 100 of 400\);"
    ):
        model.predict_set(scores, accuracy=0.999)
    model.calibrate(scores[:1], y[:1])
    with pytest.raises(UnreachableError, match=r"with 1 calibration row: 9 are.*0\.5 can be; or"):
        model.predict_set(scores, accuracy=0.9)


def test_classes_with_too_few_rows_share_a_threshold():
    scores, y = few_of_some()
    model = sl.SplitConformal("lac", temperature=None, by="class").fit(scores, y)
    with pytest.warns(UserWarning, match=r"accuracy = 0\.9 by class: 1 of 6 classes") as caught:
        model.predict_set(scores, accuracy=0.9)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="share one threshold"):
        sets = model.predict_set(scores, accuracy=0.95)
    assert str(sets.guarantee) == (
        "accuracy >= 0.95 guaranteed for each class by 540 calibration rows; 4 of 6 classes have "
        "fewer than 19 rows; they share one threshold, with the next smallest if needed, and for "
        "them the guarantee holds on average"
    )
    held = sets.contains(y)
    rare = y >= 2
    assert held[rare].mean() >= 0.95
    for k in (0, 1):
        assert held[y == k].mean() >= 0.95
    # Their threshold depends on their rows alone.
    alone = sl.SplitConformal("lac", temperature=None).fit(scores[rare], y[rare])
    levels = np.sort(alone._calibration.levels)
    q = levels[quantile_rank(40, 0.95) - 1]
    p = model.score_.levels(sl.Ranking.from_scores(scores)).numpy()
    order = sl.Ranking.from_scores(scores).labels
    for i in range(0, 540, 9):
        inside = set(order[i][(p[i] >= q) & (order[i] >= 2)].tolist()) - {order[i][0]}
        assert inside == {k for k in sets.labels()[i] if k >= 2} - {order[i][0]}


def test_no_note_on_sharing_if_all_classes_have_enough_rows():
    scores, y = few_of_some()
    model = sl.SplitConformal("lac", temperature=None, by="class").fit(scores, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sets = model.predict_set(scores, accuracy=0.7)
    assert (
        str(sets.guarantee) == "accuracy >= 0.7 guaranteed for each class by 540 calibration rows"
    )


def test_the_next_smallest_classes_are_pooled_until_there_are_enough_rows():
    scores, y = few_of_some()
    model = sl.SplitConformal("lac", temperature=None, by="class").fit(scores, y)
    with pytest.warns(UserWarning, match="3 of 6 classes"):
        model.predict_set(scores, accuracy=0.93)  # 14 needed: 12, 9 and 4 are too few
    with pytest.warns(UserWarning, match="4 of 6 classes"):
        model.predict_set(scores, accuracy=0.98)  # 49 needed: 40 are too few, one more joins
    with pytest.raises(sl.conformal.UnreachableError, match=r"by class, classes .*, pooled: acc"):
        model.predict_set(scores, accuracy=0.999)


def test_classes_that_share_keep_the_accuracy_on_average():
    """Three of six classes have too few rows in every draw."""
    scores, y = draw(4000, 6, seed=9)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(4000) < 0.85, y % 3, y)  # classes 3 to 5 are rare
    scores = scores + 2 * np.eye(6)[y]
    model = sl.SplitConformal("lac", temperature=None, allow_empty=True).fit(scores, y)
    result = []
    for calibration, test in draws(4000, 300, 40):
        model.calibrate(scores[calibration], y[calibration])
        counts = np.bincount(y[calibration], minlength=6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sets = model.predict_set(scores[test], accuracy=0.95, by="class")
        assert (counts[:3] >= min_calibration_size(0.95)).all()
        rare = y[test] >= 3
        result.append([sets.contains(y[test])[rare].mean(), sets.contains(y[test])[~rare].mean()])
    error = 3 * np.std(result, axis=0, ddof=1) / math.sqrt(len(result))
    assert (np.mean(result, axis=0) >= 0.95 - error).all()


def test_unknown_groups():
    scores, y, groups = uneven(900, seed=10)
    names = np.array(["hard", "fair", "easy"])[groups]
    model = sl.SplitConformal("lac", temperature=None, by="group").fit(scores, y, groups=names)
    with pytest.warns(UserWarning, match=r"no calibration row is of group 'new', 'odd': nothing"):
        sets = model.predict_set(scores[:4], accuracy=0.9, groups=["new", "hard", "odd", "new"])
    assert str(sets.guarantee) == (
        "accuracy >= 0.9 guaranteed for each group by 900 calibration rows; nothing is "
        "guaranteed for 'new', 'odd' (no calibration rows)"
    )
    known = model.predict_set(scores[:4], accuracy=0.9, groups=["hard"] * 4)
    assert sets.labels()[1] == known.labels()[1]
    everywhere = sl.SplitConformal("lac", temperature=None).fit(scores, y)
    usual = everywhere.predict_set(scores[:4], accuracy=0.9)
    for i in (0, 2, 3):
        assert sets.labels()[i] == usual.labels()[i]
    with pytest.raises(ValueError, match='by = "group" needs the group of each row'):
        model.predict_set(scores[:4], accuracy=0.9)
    with pytest.raises(ValueError, match="groups has 3 entries, but the scores have 4 rows"):
        model.predict_set(scores[:4], accuracy=0.9, groups=["hard"] * 3)
    with pytest.raises(ValueError, match="groups has 2 entries, but the scores have 4 rows"):
        model.calibrate(scores[:4], y[:4], groups=["hard"] * 2)


# With probability 1 - delta over the calibration draw


@pytest.mark.parametrize("delta", [0.1, 0.3])
@pytest.mark.parametrize("name", ["lac", "aps", "plug-in"])
def test_delta_bounds_the_fraction_of_failing_draws(name, delta):
    scores, y = draw(3000, 5, seed=12)
    settings = {"temperature": None, "allow_empty": True}
    model = (
        sl.PlugInSelector(**settings)
        if name == "plug-in"
        else sl.SplitConformal(name, randomized=name == "aps", **settings)
    ).fit(scores, y)
    accuracy, times, m = 0.9, 100, 200
    rng, short, plain = np.random.default_rng(0), 0, 0
    for _ in range(times):
        drawn = rng.integers(
            len(y), size=m
        )  # With replacement, so that the exact accuracy is that on all rows.
        model.calibrate(scores[drawn], y[drawn])
        sets = model.predict_set(scores, accuracy=accuracy, delta=delta)
        short += sets.accuracy(y) < accuracy
        plain += model.predict_set(scores, accuracy=accuracy).accuracy(y) < accuracy
    assert f"with probability {1 - delta:g} by 200 calibration rows" in str(sets.guarantee)
    error = 3 * math.sqrt(delta * (1 - delta) / times)
    assert short / times <= delta + error
    assert short / times >= delta / 4  # The bound is not loose.
    assert plain / times > 0.35  # The marginal guarantee is weaker.


# For a mean size


@pytest.mark.parametrize("delta", [0.1, 0.3])
@pytest.mark.parametrize("size", [1.5, 2.5])
@pytest.mark.parametrize("name", ["lac", "aps", "plug-in"])
def test_mean_size_and_the_accuracy_that_is_certified(name, size, delta):
    scores, y = draw(4000, 6, seed=13)
    model = sl.PlugInSelector() if name == "plug-in" else sl.SplitConformal(name)
    model.set_params(temperature=None).fit(scores, y)
    rng, times, m = np.random.default_rng(0), 60, 201
    sizes, room = [], []
    for _ in range(times):
        drawn = rng.integers(
            len(y), size=m
        )  # With replacement, so that the exact accuracy is that on all rows.
        model.calibrate(scores[drawn], y[drawn])
        sets = model.predict_set(scores, mean_size=size, delta=delta)
        bound = sets.guarantee.accuracy
        sizes.append(sets.mean_size)
        room.append(sets.accuracy(y) - bound)
    assert str(sets.guarantee) == (
        f"accuracy >= {bound:g} certified with probability {1 - delta:g} by 100 calibration "
        f"rows; threshold chosen for mean size {size:g} by 101 other rows"
    )
    assert np.mean(sizes) <= size + 3 * np.std(sizes, ddof=1) / math.sqrt(times)
    assert np.mean(sizes) > 0.9 * size
    kept = np.mean(np.array(room) >= 0)
    assert kept >= 1 - delta - 3 * math.sqrt(delta * (1 - delta) / times)
    assert np.mean(room) < 0.1  # The bound is not loose.
    assert kept < 1


def test_the_rows_that_certify_have_no_part_in_the_choice():
    scores, y = draw(200, 6, seed=14)
    model = sl.SplitConformal("lac", temperature=None, random_state=3).fit(scores, y)
    order = np.random.default_rng([3, 200]).permutation(200)
    before = {size: model.predict_set(scores, mean_size=size) for size in (1.3, 2.0, 3.5)}
    other = y.copy()
    other[order[100:]] = np.random.default_rng(0).integers(6, size=100)
    model.calibrate(scores, other)
    for size, sets in before.items():
        after = model.predict_set(scores, mean_size=size)
        assert after.labels() == sets.labels()
        assert str(after.guarantee) != str(sets.guarantee)
    other = y.copy()
    other[order[:100]] = np.random.default_rng(0).integers(6, size=100)
    model.calibrate(scores, other)
    assert any(
        model.predict_set(scores, mean_size=size).labels() != sets.labels()
        for size, sets in before.items()
    )


@pytest.mark.parametrize("allow_empty", [True, False])
def test_the_smallest_and_the_largest_mean_size(allow_empty):
    scores, y = draw(300, 6, seed=15)
    model = sl.SplitConformal("lac", temperature=None, allow_empty=allow_empty).fit(scores, y)
    assert model.predict_set(scores, mean_size=1.0).mean_size <= 1.05
    assert model.predict_set(scores, mean_size=6).mean_size > 3
    if allow_empty:
        empty = model.predict_set(scores, mean_size=0.0)
        assert empty.mean_size == 0
        assert empty.guarantee.accuracy == 0
    else:
        assert model.predict_set(scores, mean_size=1.0).sizes.tolist() == [1] * 300
        with pytest.raises(ValueError, match=r"less than the smallest mean size, 1$"):
            model.predict_set(scores, mean_size=0.99)


def test_a_mean_size_where_every_first_label_is_right():
    scores, _ = draw(100, seed=16)
    y = scores.argmax(axis=1)
    model = sl.SplitConformal("lac", temperature=None).fit(scores, y)
    sets = model.predict_set(scores, mean_size=2)
    assert sets.accuracy(y) == 1
    assert sets.guarantee.accuracy == 0.9418  # 0.05 ** (1 / 50), rounded down
    assert sets.guarantee.delta == 0.05


def test_one_row_cannot_certify():
    model = sl.SplitConformal("lac", temperature=None).fit([[0.5, 0.25, 0.25]], [0])
    with pytest.raises(ValueError, match="mean_size needs at least two calibration rows"):
        model.predict_set([[0.5, 0.25, 0.25]], mean_size=2)


def test_every_level_after_one_calibration():
    """Sets at a higher accuracy contain those at a lower one."""
    scores, y = draw(600, seed=17)
    for name, randomized in VARIANTS:
        model = sl.SplitConformal(name, randomized=randomized).fit(scores[:300], y[:300])
        sets = [model.predict_set(scores[300:], accuracy=a).labels() for a in LEVELS]
        for low, high in itertools.pairwise(sets):
            assert all(b[: len(a)] == a for a, b in zip(low, high, strict=True))


@pytest.mark.parametrize("by", [None, "class"])
def test_the_advice_on_an_unreachable_accuracy_helps(by):
    scores, y = draw(30, 3, seed=1)
    model = sl.SplitConformal("lac", temperature=None).fit(scores, y)
    with pytest.raises(sl.conformal.UnreachableError) as error:
        model.predict_set(scores, accuracy=0.999, by=by)
    assert str(error.value).endswith('; or every label, with on_unreachable="all"')
    model.set_params(on_unreachable="all")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes that share a threshold
        assert model.predict_set(scores, accuracy=0.999, by=by).sizes.tolist() == [3] * 30
