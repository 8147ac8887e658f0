"""Split conformal prediction: by brute force, and invariance of its sets."""

from __future__ import annotations

import math
import pickle
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from registered_scores import VARIANTS, brute
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from synthetic import SCORE_TYPES, as_score_type, draw, in_64ths, ragged

import shortlist as sl
from shortlist.conformal.quantiles import UnreachableError
from shortlist.conformal.ranks import quantile_rank
from shortlist.predictors.splitting import hold_out

EASY = {"temperature": None, "penalty": 0.125, "k_reg": 1}  # nothing to learn
LEVELS = [0.5, 0.8, 0.9, 0.95]


def threshold_of(model: sl.SplitConformal, accuracy: float) -> float:
    levels = np.sort(model._calibration.levels)
    return float(levels[quantile_rank(len(levels), accuracy) - 1])


def near(model: sl.SplitConformal, scores: NDArray, accuracy: float, gap: float) -> NDArray:
    """Return which rows have a label whose level is within `gap` of the threshold."""
    levels = model.score_.levels(sl.Ranking.from_scores(scores)).numpy()
    return (np.abs(levels - threshold_of(model, accuracy)) < gap).any(axis=1)


def where_sets_differ(a: sl.PredictionSets, b: sl.PredictionSets) -> NDArray:
    return np.array([set(x) != set(y) for x, y in zip(a, b, strict=True)])


# By brute force


@pytest.mark.parametrize("allow_empty", [True, False])
@pytest.mark.parametrize("name", [name for name, randomized in VARIANTS if not randomized])
@given(st.integers(2, 7), st.integers(19, 60), st.sampled_from(LEVELS), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_sets_by_brute_force(name, allow_empty, n, m, accuracy, seed):
    """Sums of multiples of 1/64 are exact, so that ties are exact too."""
    p, y = in_64ths(m + 10, n, seed)

    def scored(row: list[float]) -> dict[int, float]:
        order = sorted(range(n), key=lambda label: (-row[label], -label))
        result = brute(name, sorted(row, reverse=True), 1.0, 0.125, 1)
        if not allow_empty:
            result[0] = math.inf
        return dict(zip(order, result, strict=True))

    own = sorted(scored(row)[label] for row, label in zip(p[:m].tolist(), y[:m], strict=True))
    q = own[math.floor((1 - Fraction(str(accuracy))) * (m + 1)) - 1]
    model = sl.SplitConformal(name, allow_empty=allow_empty, **EASY).fit(p[:m], y[:m])
    sets = model.predict_set(p[m:], accuracy=accuracy)
    assert [set(labels) for labels in sets] == [
        {label for label, score in scored(row).items() if score >= q} for row in p[m:].tolist()
    ]
    assert str(sets.guarantee) == f"accuracy >= {accuracy} guaranteed by {m} calibration rows"


@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_calibration_and_prediction_call_the_same_function(name, randomized):
    """Of the calibration rows, exactly the number given by the rank are hits."""
    scores, y = draw(400, seed=1)
    model = sl.SplitConformal(name, randomized=randomized, allow_empty=True, **EASY)
    model.fit(scores, y)
    blocks = model._level_function().blocks(sl.Ranking.from_scores(scores), None)
    own = blocks.label_levels(torch.from_numpy(y)).numpy()
    for accuracy in LEVELS:
        held = model.predict_set(scores, accuracy=accuracy).contains(y)
        assert np.array_equal(held, own >= threshold_of(model, accuracy))
        missed = quantile_rank(400, accuracy) - 1
        assert (~held).sum() == missed or name == "topk"
        assert (~held).sum() <= missed


def test_levels_that_differ_by_rounding_are_one_level():
    """Scores that are equal in float32 have equal levels; a difference of 0.01% is kept."""
    p = np.array([[0.75, 0.25]] * 9 + [[0.75 + 2**-40, 0.25 - 2**-40], [0.7499, 0.2501]])
    model = sl.SplitConformal("lac", allow_empty=True, **EASY).fit(p[-2:-1].repeat(9, 0), [0] * 9)
    assert model.predict_set(p, accuracy=0.8).sizes.tolist() == [1] * 10 + [0]


@pytest.mark.parametrize("accuracy", [0.5, 0.7, 0.9, 0.95])
@pytest.mark.parametrize("allow_empty", [True, False])
@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_p_values_select_the_labels_of_the_sets(name, randomized, allow_empty, accuracy):
    scores, y = draw(300, 6, seed=2)
    tied, tied_y = in_64ths(300, 6, seed=3)
    for given_, labels in ((scores, y), (tied, tied_y), (scores.astype(np.float32), y)):
        model = sl.SplitConformal(name, randomized=randomized, allow_empty=allow_empty)
        model.fit(given_[:200], labels[:200])
        p = model.p_values(given_[200:])
        assert p.shape == (100, 6)
        sets = model.predict_set(given_[200:], accuracy=accuracy)
        alpha = 1 - Fraction(str(accuracy))
        inside = np.array([[label in s for label in range(6)] for s in map(set, sets)])
        np.testing.assert_array_equal(p > float(alpha), inside)


def test_p_values_of_candidates():
    scores, y = draw(200, 12, seed=4)
    ranking = sl.Ranking.from_candidates(**ragged(as_score_type(scores, "proba"), depth=6))
    model = sl.SplitConformal("lac", **EASY, on_unreachable="all").fit(ranking[:150], y[:150])
    lost = int(np.isinf(ranking[:150].rank(y[:150])).sum())
    assert lost > 20
    p = model.p_values(ranking[150:])
    for accuracy in (0.3, 0.6, 0.8, 0.99):
        sets = model.predict_set(ranking[150:], accuracy=accuracy)
        inside = np.array([[label in s for label in range(12)] for s in map(set, sets)])
        np.testing.assert_array_equal(p > float(1 - Fraction(str(accuracy))), inside)
    listed = np.stack([np.isin(np.arange(12), row) for row in ranking[150:].labels])
    assert set(p[~listed].tolist()) == {(1 + lost) / 151}


# Invariance of the sets


@pytest.mark.parametrize("kind", SCORE_TYPES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_sets_do_not_depend_on_batch_or_order(name, randomized, dtype, kind):
    scores, y = draw(260, 6, seed=5)
    scores[130:] = scores[130:].round()  # exact ties
    scores = as_score_type(scores, kind).astype(dtype)
    model = sl.SplitConformal(name, randomized=randomized, accuracy=0.8, score_type=kind)
    model.fit(scores[:240], y[:240])
    new = scores[225:]
    batch = model.predict_set(new)
    assert len(set(batch.sizes.tolist())) > (name != "topk")
    for i in range(len(new)):
        assert model.predict_set(new[i : i + 1]).labels() == [batch.labels()[i]]
    order = np.random.default_rng(0).permutation(len(new))
    assert model.predict_set(new[order]).labels() == [batch.labels()[i] for i in order]


def test_a_threshold_that_ties_with_many_rows():
    p, y = in_64ths(400, 5, seed=6)
    for name, randomized in VARIANTS:
        model = sl.SplitConformal(name, randomized=randomized, **EASY).fit(p[:200], y[:200])
        for accuracy in LEVELS:
            batch = model.predict_set(p[200:], accuracy=accuracy).labels()
            for i in range(200, 400, 7):
                alone = model.predict_set(p[i : i + 1], accuracy=accuracy)
                assert alone.labels() == [batch[i - 200]]


@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_the_order_of_the_calibration_rows_does_not_matter(name, randomized):
    scores, y = draw(400, seed=7)
    model = sl.SplitConformal(name, randomized=randomized, **EASY).fit(scores[:300], y[:300])
    again = clone(model).fit(scores[299::-1], y[299::-1])
    for accuracy in LEVELS:
        assert model.predict_set(scores, accuracy=accuracy) == again.predict_set(
            scores, accuracy=accuracy
        )


@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_classes_in_another_order(name, randomized):
    scores, y = draw(500, seed=8)
    columns = np.random.default_rng(1).permutation(8)
    place = np.argsort(columns)
    model = sl.SplitConformal(name, randomized=randomized).fit(scores[:400], y[:400])
    other = clone(model).fit(scores[:400, columns], place[y[:400]])
    assert vars(other.score_) == vars(model.score_)
    for accuracy in LEVELS:
        expected = model.predict_set(scores[400:], accuracy=accuracy)
        got = other.predict_set(scores[400:, columns], accuracy=accuracy)
        moved = np.array(
            [set(columns[a]) != set(b) for a, b in zip(got.labels(), expected, strict=True)]
        )
        assert not (moved & ~near(model, scores[400:], accuracy, 1e-5)).any()
        assert moved.mean() < 0.02


@pytest.mark.parametrize("name", [name for name, randomized in VARIANTS if not randomized])
def test_logits_may_be_shifted_row_by_row(name):
    scores, y = draw(500, seed=9)
    moved = scores + np.random.default_rng(0).normal(size=(500, 1)) * 100
    model = sl.SplitConformal(name).fit(scores[:400], y[:400])
    other = clone(model).fit(moved[:400], y[:400])
    for accuracy in LEVELS:
        differ = where_sets_differ(
            model.predict_set(scores[400:], accuracy=accuracy),
            other.predict_set(moved[400:], accuracy=accuracy),
        )
        assert not (differ & ~near(model, scores[400:], accuracy, 1e-5)).any()
        assert differ.mean() < 0.03


@pytest.mark.parametrize("factor", [0.05, 6.0, 40.0])
@pytest.mark.parametrize("name", [name for name, randomized in VARIANTS if not randomized])
def test_the_scale_of_logits_goes_into_the_temperature(name, factor):
    scores, y = draw(800, seed=10)
    model = sl.SplitConformal(name).fit(scores[:600], y[:600])
    other = clone(model).fit(factor * scores[:600], y[:600])
    assert model.temperature_ * factor == pytest.approx(other.temperature_, rel=1e-3)
    for accuracy in LEVELS:
        differ = where_sets_differ(
            model.predict_set(scores[600:], accuracy=accuracy),
            other.predict_set(factor * scores[600:], accuracy=accuracy),
        )
        assert not (differ & ~near(model, scores[600:], accuracy, 1e-3)).any()
        assert differ.mean() < 0.05
    if name != "topk":  # Without a temperature, the scale matters.
        fixed = sl.SplitConformal(name, temperature=1.0, penalty=0.1, k_reg=1).fit(scores, y).score_
        plain, scaled = (
            fixed.levels(sl.Ranking.from_scores(f * scores)).numpy() for f in (1.0, factor)
        )
        assert np.abs(plain - scaled).max() > 0.1


@pytest.mark.parametrize("name", [name for name, randomized in VARIANTS if not randomized])
def test_logits_probabilities_and_their_logarithms(name):
    scores, y = draw(500, seed=11, temperature=2.0)
    models = {
        k: sl.SplitConformal(name).fit(as_score_type(scores[:400], k), y[:400]) for k in SCORE_TYPES
    }
    assert [m.score_type_ for m in models.values()] == SCORE_TYPES
    first = models["logits"]
    for accuracy in LEVELS:
        expected = first.predict_set(scores[400:], accuracy=accuracy)
        for kind, model in models.items():
            got = model.predict_set(as_score_type(scores[400:], kind), accuracy=accuracy)
            differ = where_sets_differ(expected, got)
            assert not (differ & ~near(first, scores[400:], accuracy, 1e-5)).any()


# Class names, array types, candidates


def test_classes_have_the_users_names():
    scores, y = draw(300, 4, seed=12)
    names = np.array(["cod", "ant", "bee", "dog"])
    plain = sl.SplitConformal("aps", **EASY).fit(scores[:200], y[:200])
    expected = plain.predict_set(scores[200:], accuracy=0.8)
    named = clone(plain).fit(scores[:200], names[y[:200]], classes=names)
    sets = named.predict_set(scores[200:], accuracy=0.8)
    assert sets.labels() == [names[row].tolist() for row in expected.labels()]
    assert sets.accuracy(names[y[200:]]) == expected.accuracy(y[200:])
    assert named.classes_.tolist() == names.tolist()
    frame = pd.DataFrame(scores, columns=names)
    framed = clone(plain).fit(frame[:200], names[y[:200]])
    assert framed.predict_set(frame[200:], accuracy=0.8).labels() == sets.labels()
    moved = frame[["ant", "bee", "cod", "dog"]]
    assert framed.predict_set(moved[200:], accuracy=0.8).labels() == sets.labels()
    by_class = named.predict_set(scores[200:], accuracy=0.5, by="class")
    assert by_class.labels() == [
        names[row].tolist()
        for row in plain.predict_set(scores[200:], accuracy=0.5, by="class").labels()
    ]


def test_torch_in_torch_out():
    scores, y = draw(300, seed=13)
    model = sl.SplitConformal("raps").fit(scores[:200], y[:200])
    twin = clone(model).fit(torch.from_numpy(scores[:200]), torch.from_numpy(y[:200]))
    sets = twin.predict_set(torch.from_numpy(scores[200:]), accuracy=0.9)
    assert isinstance(sets.sizes, torch.Tensor)
    assert isinstance(twin.p_values(torch.from_numpy(scores[200:])), torch.Tensor)
    assert sets.labels() == model.predict_set(scores[200:], accuracy=0.9).labels()
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_set(scores, accuracy=0.9) == model.predict_set(scores, accuracy=0.9)


@pytest.mark.parametrize("kind", SCORE_TYPES)
@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_candidates(name, randomized, kind):
    scores, y = draw(400, 20, seed=14)
    ranking = sl.Ranking.from_candidates(**ragged(as_score_type(scores, kind), depth=6))
    model = sl.SplitConformal(name, randomized=randomized, score_type=kind, allow_empty=True)
    model.fit(ranking[:300], y[:300])
    new, listed = ranking[300:], ranking[300:].lengths().numpy()
    for accuracy in (0.3, 0.65):
        sets = model.predict_set(new, accuracy=accuracy)
        assert (sets.sizes <= listed).all()
        assert sets.labels() == [
            row[:size].tolist() for row, size in zip(new.labels, sets.sizes, strict=True)
        ]
        for i in range(100):
            assert model.predict_set(new[[i]], accuracy=accuracy).labels() == [sets.labels()[i]]
    if name == "lac":
        assert len(set(sets.sizes.tolist())) > 2


def test_unreachable_accuracies_of_candidates_raise():
    scores, y = draw(400, 20, seed=14)
    ranking = sl.Ranking.from_candidates(**ragged(as_score_type(scores, "proba"), depth=6))
    lost = int(np.isinf(ranking.rank(y)).sum())
    assert 40 < lost < 300
    model = sl.SplitConformal("lac", **EASY).fit(ranking, y)
    with pytest.raises(UnreachableError) as error:
        model.predict_set(ranking, accuracy=0.99)
    message = str(error.value)
    assert (
        f"{lost} of the 400 ({100 * lost / 400:.3g}%) have a label that no set can contain"
        in message
    )
    most = float(re.search(r"At most (\S+) can be", message)[1])
    assert (400 - lost) / 401 - 0.06 < most < (400 - lost) / 401
    kept = model.predict_set(ranking, accuracy=most)
    assert np.array_equal(kept.contains(y), np.isfinite(ranking.rank(y)))
    with pytest.raises(UnreachableError):
        model.predict_set(ranking, accuracy=most + 1e-3)


def test_frontiers_and_mean_sizes_ignore_padding():
    scores, y = draw(400, 20, seed=15)
    ranking = sl.Ranking.from_candidates(**ragged(as_score_type(scores, "proba"), depth=6))
    for name, randomized in VARIANTS:
        model = sl.SplitConformal(
            name, randomized=randomized, allow_empty=True, on_unreachable="all", **EASY
        )
        curve = model.fit(ranking, y).frontier(ranking, y)
        for accuracy in (0.3, 0.5, 0.65):
            at = int((curve.parameter >= threshold_of(model, accuracy)).sum()) - 1
            sets = model.predict_set(ranking, accuracy=accuracy)
            assert curve.mean_size[at] == pytest.approx(sets.mean_size)
            assert curve.accuracy[at] == sets.accuracy(y)
        most = ranking.lengths().numpy().mean()
        assert curve.mean_size.max() <= most
        assert model._calibration.mean_sizes.max() < most + 0.2  # of one half of the rows


def test_lists_of_one_candidate_each():
    ranking = sl.Ranking.from_candidates([[2]] * 40, [[0.5]] * 40, n_classes=5)
    y = [2] * 30 + [1] * 10
    for name in ("lac", "aps", "margin", "saps", "topk"):
        model = sl.SplitConformal(name, **EASY).fit(ranking, y)
        assert model.predict_set(ranking[:2], accuracy=0.55).labels() == [[2], [2]]
        for accuracy in (0.7, 0.9):  # 75% of the rows contain their label, but 40 rows are few.
            with pytest.raises(UnreachableError, match=r"10 of the 40 \(25%\)"):
                model.predict_set(ranking, accuracy=accuracy)


# Sets of all classes


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("by", [None, "class", "group"])
@pytest.mark.filterwarnings("ignore:accuracy = ")
def test_sets_of_all_classes_contain_unranked_labels(by, lists):
    """The set of all classes is not limited to the candidates of a batch."""
    scores, y = draw(60, 9, seed=16)
    ranking = sl.Ranking.from_scores(scores)
    if lists:
        ranking = sl.Ranking.from_candidates(**ragged(scores, depth=3))
    groups = ["a", "b"] * 30
    model = sl.SplitConformal("lac", on_unreachable="all", **EASY, score_type="logits")
    model.fit(ranking, y, groups=groups)
    given = groups[:5] if by == "group" else None
    sets = model.predict_set(ranking[:5], accuracy=0.999, by=by, groups=given)
    assert [sorted(row) for row in sets.labels()] == [list(range(9))] * 5
    for row, order in zip(sets.labels(), ranking.labels, strict=False):
        listed = order[order >= 0].tolist()
        assert row[: len(listed)] == listed  # best first
    assert "every label, since no smaller set can be guaranteed" in str(sets.guarantee)
    assert str(sets.guarantee).startswith("accuracy >= 0.999 guaranteed ")
    strict = clone(model).set_params(on_unreachable="raise").fit(ranking, y, groups=groups)
    with pytest.raises(UnreachableError, match=r"\d+ are needed"):
        strict.predict_set(ranking[:5], accuracy=0.999, by=by, groups=given)


def test_one_group_with_every_label_and_one_without():
    scores, y = draw(400, 9, seed=17)
    groups = np.array(["hard", "easy"])[(np.arange(400) < 200).astype(int)]
    lists = ragged(scores, depth=5)
    lists["labels"][:200, 0] = y[:200]  # all of the easy ones are listed
    lists["labels"][:200, 1:] = -1
    ranking = sl.Ranking.from_candidates(**lists)
    model = sl.SplitConformal("topk", on_unreachable="all", **EASY, score_type="logits")
    model.fit(ranking, y, groups=groups)
    sets = model.predict_set(ranking[190:210], accuracy=0.95, by="group", groups=groups[190:210])
    assert sets.sizes.tolist() == [1] * 10 + [9] * 10
    assert sets.labels()[0] == [y[190]]
    assert "1 of 2 groups get every label" in str(sets.guarantee)


def test_one_class_in_every_set():
    """A class that is often missing among the candidates is in every set."""
    labels = [[0, 1]] * 50 + [[1, 0]] * 50 + [[0, 1]] * 50
    y = [0] * 50 + [1] * 50 + [2] * 50
    ranking = sl.Ranking.from_candidates(labels, [[0.75, 0.25]] * 150, n_classes=3)
    model = sl.SplitConformal("lac", on_unreachable="all", by="class", **EASY).fit(ranking, y)
    sets = model.predict_set(ranking[[0, 60]], accuracy=0.9)
    assert sets.labels() == [[0, 2], [1, 2]]
    assert "1 of 3 classes get every label" in str(sets.guarantee)


# Learning


@pytest.mark.parametrize("name", ["lac", "raps", "saps"])
def test_learning_does_not_use_the_calibration_rows(name):
    scores, y = draw(600, 12, seed=18, temperature=3.0)
    model = sl.SplitConformal(name, accuracy=0.9, random_state=4).fit(scores, y)
    learning, kept = hold_out(600, 0.75, seed=4)
    assert len(kept) == 450
    rng = np.random.default_rng(0)
    other_scores, other_y = scores.copy(), y.copy()
    other_scores[kept] = rng.normal(size=(450, 12)) * 9
    other_y[kept] = rng.integers(12, size=450)
    other = clone(model).fit(other_scores, other_y)
    assert vars(other.score_) == vars(model.score_)
    assert other.temperature_ == model.temperature_
    assert threshold_of(other, 0.9) != threshold_of(model, 0.9)
    # The thresholds depend on the calibration rows alone.
    expected = clone(model).fit(scores[learning], y[learning]).set_params(calibration=None)
    expected.fit(scores[learning], y[learning]).calibrate(scores[kept], y[kept])
    assert vars(expected.score_) == vars(model.score_)
    assert np.array_equal(np.sort(expected._calibration.levels), np.sort(model._calibration.levels))
    other_y = y.copy()
    other_y[learning] = rng.integers(12, size=150)
    assert clone(model).fit(scores, other_y).score_ != model.score_


def test_tuning_shortens_the_sets():
    """Sets are nearly as short as those of the best of a few settings on other rows."""
    scores, y = draw(6000, 30, seed=19)
    for name in ("raps", "saps"):
        sizes = []
        for penalty in ("auto", 0.001, 0.05, 1.0):
            model = sl.SplitConformal(name, penalty=penalty, k_reg="auto", accuracy=0.9)
            sizes.append(model.fit(scores[:4000], y[:4000]).predict_set(scores[4000:]).mean_size)
        assert sizes[0] < 1.03 * min(sizes[1:])
        assert max(sizes[1:]) > 1.1 * min(sizes[1:])


def test_tuning_uses_rows_from_all_parts_of_the_data(monkeypatch):
    """Rows may be sorted by difficulty."""
    monkeypatch.setattr("shortlist.conformal.scores.tuning.TUNING_ROWS", 100)
    scores, y = draw(2000, 12, seed=20)
    order = np.argsort(scores.max(axis=1))
    model = sl.SplitConformal("saps", temperature=None, calibration=None)
    in_order = model.fit(scores[order], y[order]).score_.penalty_
    first = clone(model).fit(scores[order][:100], y[order][:100]).score_.penalty_
    every = clone(model).fit(scores[order][::20], y[order][::20]).score_.penalty_
    assert in_order == every
    assert in_order != first


@pytest.mark.parametrize(
    ("parameters", "rows"),
    [
        ({"score": "lac", "temperature": None}, 200),
        ({"score": "lac", "temperature": 2.0}, 200),
        ({"score": "raps", **EASY}, 200),
        ({"score": "saps", "temperature": None, "penalty": 0.1}, 200),
        ({"score": "lac"}, 150),
        ({"score": "raps", "temperature": None, "penalty": 0.1}, 150),
        ({"score": "saps", "temperature": 1.0}, 150),
        ({"score": "lac", "calibration": 0.5}, 100),
    ],
)
def test_if_nothing_is_learned_all_rows_calibrate(parameters, rows):
    scores, y = draw(200, seed=21)
    sets = sl.SplitConformal(**parameters).fit(scores, y).predict_set(scores, accuracy=0.9)
    assert str(sets.guarantee) == f"accuracy >= 0.9 guaranteed by {rows} calibration rows"


def test_a_given_temperature_is_used():
    scores, y = draw(300, seed=22)
    model = sl.SplitConformal("lac", temperature=2.0).fit(scores[:200], y[:200])
    halved = sl.SplitConformal("lac", temperature=None).fit(scores[:200] / 2, y[:200])
    assert model.predict_set(scores, accuracy=0.9) == halved.predict_set(scores / 2, accuracy=0.9)
    assert model.temperature_ == 2


def test_a_calibration_is_replaced():
    scores, y = draw(500, seed=23)
    model = sl.SplitConformal("aps").fit(scores[:200], y[:200])
    before = model.score_
    new = scores[400:]
    first = model.predict_set(new, accuracy=0.9)
    assert model.calibrate(scores[200:400], np.roll(y[200:400], 1)) is model  # Wrong labels.
    second = model.predict_set(new, accuracy=0.9)
    assert model.score_ == before
    assert str(second.guarantee) == "accuracy >= 0.9 guaranteed by 200 calibration rows"
    assert second.mean_size > first.mean_size + 1
    with pytest.raises(ValueError, match="labels, but the scores"):
        model.calibrate(scores[:10], y[:9])
    assert model.predict_set(new, accuracy=0.9) == second  # A failed calibration changes nothing.
    model.fit(scores[:200], y[:200])
    assert model.predict_set(new, accuracy=0.9) == first


def test_the_default_accuracy_is_the_parameter():
    scores, y = draw(300, seed=24)
    model = sl.SplitConformal("lac", accuracy=0.75, **EASY).fit(scores, y)
    assert model.predict_set(scores) == model.predict_set(scores, accuracy=0.75)
    assert "accuracy >= 0.75 guaranteed" in str(model.predict_set(scores).guarantee)


@pytest.mark.parametrize(
    ("accuracy", "delta", "message"),
    [
        (0.9, 0.05, "accuracy >= 0.9 guaranteed with probability 0.95 by 3,000 calibration rows"),
        (0.999, 0.1, "accuracy >= 0.999 guaranteed with probability 0.9 by 3,000"),
        (0.9990001, None, "accuracy >= 0.9990001 guaranteed by"),
    ],
)
def test_the_text_of_guarantees(accuracy, delta, message):
    scores, y = draw(3000, 4, seed=25)
    model = sl.SplitConformal("lac", **EASY).fit(scores, y)
    assert message in str(model.predict_set(scores[:3], accuracy=accuracy, delta=delta).guarantee)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"score": "aps2"}, "got 'aps2'; did you mean 'aps'?"),
        ({"score": "lac", "randomized": True}, "score = 'lac' cannot be randomized"),
        ({"accuracy": 95}, "accuracy must lie strictly between 0 and 1; got 95"),
        ({"temperature": "warm"}, "temperature must be one of 'auto', 'size'; got 'warm'"),
        ({"temperature": 0.0}, "temperature must be positive; got 0"),
        ({"temperature": -1.0}, "temperature must be finite and not negative; got -1.0"),
        ({"score": "raps", "penalty": "best"}, "penalty must be one of 'auto'; got 'best'"),
        ({"score": "raps", "penalty": -1.0}, "penalty must be finite and not negative"),
        ({"score": "raps", "k_reg": 1.5}, "k_reg must be an integer of at least 0; got 1.5"),
        ({"calibration": 1.5}, "calibration must lie strictly between 0 and 1; got 1.5"),
        ({"calibration": 1.5, "temperature": None}, "calibration must lie strictly"),
        ({"by": "row"}, "by must be one of 'class', 'group', 'marginal'; got 'row'"),
        ({"on_unreachable": "any"}, "on_unreachable must be one of 'raise', 'all'; got 'any'"),
        ({"score_type": "odds"}, "got 'odds'"),
    ],
)
def test_invalid_parameters_raise(parameters, message):
    scores, y = draw(50)
    model = sl.SplitConformal(**parameters)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(scores, y)
    with pytest.raises(NotFittedError, match="this SplitConformal is not fitted yet"):
        model.predict_set(scores)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"accuracy": 0.9, "mean_size": 2}, "accuracy = 0.9 and mean_size = 2 were given"),
        ({"accuracy": 0.0}, "accuracy must lie strictly between 0 and 1; got 0.0"),
        ({"accuracy": 0.9, "delta": 1}, "delta must lie strictly between 0 and 1; got 1"),
        ({"mean_size": 2, "by": "class"}, "mean_size = 2 cannot be combined with by = 'class'"),
        ({"mean_size": 0.5}, "mean_size = 0.5 is less than the smallest mean size, 1"),
        ({"mean_size": "two"}, "mean_size must be a number; got 'two'"),
        ({"mean_size": 2, "delta": 0}, "delta must lie strictly between 0 and 1; got 0"),
        ({"accuracy": 0.5, "by": "row"}, "by must be one of 'class', 'group', 'marginal'; got 'r"),
        ({"accuracy": 0.5, "by": "group"}, "but the calibration rows have no groups"),
        ({"accuracy": 0.999}, "with 200 calibration rows: 999 are needed. At most 0.99502 can"),
    ],
)
def test_invalid_requests_raise(point, message):
    scores, y = draw(200)
    model = sl.SplitConformal("lac", **EASY).fit(scores, y)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.predict_set(scores, **point)


def test_a_predictor_without_calibration_guarantees_nothing():
    scores, y = draw(200)
    model = sl.SplitConformal("lac", calibration=None).fit(scores, y)
    for point in ({"accuracy": 0.9}, {"mean_size": 2}, {"accuracy": 0.9, "by": "class"}):
        with pytest.raises(ValueError, match="is not calibrated and cannot guarantee an accuracy"):
            model.predict_set(scores, **point)
    with pytest.raises(ValueError, match="is not calibrated"):
        model.p_values(scores)
    assert len(model.frontier(scores, y)) > 10
    assert model.calibrate(scores, y).predict_set(scores, accuracy=0.9).accuracy(y) >= 0.9


def test_changing_allow_empty_needs_a_new_calibration():
    scores, y = draw(200)
    model = sl.SplitConformal("lac", **EASY).fit(scores, y)
    model.set_params(allow_empty=True)
    with pytest.raises(ValueError, match="it was False at calibration; call calibrate"):
        model.predict_set(scores, accuracy=0.5)
    sets = model.calibrate(scores, y).predict_set(scores, accuracy=0.3)
    assert sets.sizes.min() == 0
    full = model.set_params(allow_empty=False).calibrate(scores, y)
    assert full.predict_set(scores, accuracy=0.3).sizes.tolist() == [1] * 200


def test_all_sets_may_be_empty():
    p = np.array([[0.75, 0.25]] * 9 + [[0.5, 0.5]] * 2)
    model = sl.SplitConformal("lac", allow_empty=True, **EASY).fit(p[:9], [0] * 9)
    assert model.predict_set(p[9:], accuracy=0.5).labels() == [[], []]
