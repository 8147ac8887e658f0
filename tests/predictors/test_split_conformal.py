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
from registered_scores import VARIANTS, brute
from sklearn.base import clone
from split_predictors import EASY, LEVELS, threshold_of
from synthetic import SCORE_TYPES, as_score_type, draw, in_64ths, ragged

import shortlist as sl
from shortlist.conformal.quantiles import UnreachableError
from shortlist.conformal.ranks import quantile_rank

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
