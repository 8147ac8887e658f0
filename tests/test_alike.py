"""Rows at prediction must be like those at fit and at calibration; what is not is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from synthetic import draw

import shortlist as sl

SCORES, Y = draw(900, 8, seed=3)
P = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
X = np.random.default_rng(0).standard_normal((900, 4)) + np.eye(8)[Y][:, :4]
FIT, KEPT, NEW = slice(0, 400), slice(400, 600), slice(600, 900)
SMALL = {"width": 8, "rank_width": 8, "max_epochs": 2, "folds": 2, "progress": False}


def top(rows: slice, k: int) -> sl.Ranking:
    order = np.argsort(-P[rows], axis=1)[:, :k]
    scores = np.take_along_axis(P[rows], order, axis=1)
    return sl.Ranking.from_candidates(order, scores, n_classes=8)


# Scores of every class, or lists


@pytest.mark.parametrize("method", [sl.SplitConformal("lac"), sl.Shortlister(**SMALL)])
def test_a_guarantee_is_for_the_kind_of_scores_that_made_it(method: sl.SetPredictor) -> None:
    dense = method.fit(P[FIT], Y[FIT])
    for call in (
        lambda m, r: m.predict_set(r, accuracy=0.8),
        lambda m, r: m.predict_set(r, mean_size=2),
        lambda m, r: m.p_values(r),
    ):
        with pytest.raises(
            ValueError, match="had a score for every class, but these have ranked candidates"
        ):
            call(dense, top(NEW, 5))
        with pytest.raises(ValueError, match="ranked to depth 8, but these to 3"):
            call(dense, sl.Ranking.from_scores(P[NEW], depth=3))
        call(dense, P[NEW])
    if isinstance(method, sl.SplitConformal):
        dense.calibrate(top(KEPT, 5), Y[KEPT])
        assert dense.predict_set(top(NEW, 5), accuracy=0.7).accuracy(Y[NEW]) > 0.6
        with pytest.raises(ValueError, match="had ranked candidates, but these have a score"):
            dense.predict_set(P[NEW], accuracy=0.7)


def test_without_a_guarantee_other_lists_will_do() -> None:
    model = sl.Shortlister(**SMALL, learn_sizes=False).fit(P[FIT], Y[FIT])
    assert len(model.predict_set(top(NEW, 5), cost_weight=0.05)) == 300


def test_lists_of_other_lengths_are_remarked_upon() -> None:
    model = sl.SplitConformal("lac", temperature=None).fit(top(FIT, 5), Y[FIT])
    with pytest.warns(UserWarning, match="had 5 to 5 candidates, but these have 3 to 3"):
        model.predict_set(top(NEW, 3), accuracy=0.5)
    some = [[0, 1], [0, 1, 2, 3, 4]]
    ragged = sl.Ranking.from_candidates(some, [[0.4, 0.2], [0.4, 0.3, 0.1, 0.1, 0.1]], n_classes=8)
    model.calibrate(ragged[[0, 1] * 20], np.arange(40) % 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_set(ragged[:1], accuracy=0.5)  # lists differ in length, and did before


@pytest.mark.parametrize("with_features", [True, False])
def test_what_was_learned_from_one_kind_is_of_no_use_for_the_other(with_features: bool) -> None:
    x = X if with_features else None
    take = (lambda rows: X[rows]) if with_features else (lambda rows: None)
    model = sl.Shortlister(rescore=with_features, learn_sizes=True, calibration=None, **SMALL)
    model.fit(P[FIT], Y[FIT], take(FIT))
    with pytest.raises(ValueError, match="learned from rows with a score for every class, but"):
        model.calibrate(top(KEPT, 5), Y[KEPT], take(KEPT))
    model.fit(top(FIT, 5), Y[FIT], take(FIT))
    with pytest.raises(ValueError, match="learned from rows with ranked candidates, but these"):
        model.predict_set(P[NEW], take(NEW), cost_weight=0.1)
    assert x is None or x.shape == (900, 4)


# Columns of features


@pytest.mark.parametrize(
    "method",
    [sl.Shortlister(**SMALL), sl.CardinalitySelector(max_epochs=2, width=8, progress=False)],
)
def test_columns_of_features_are_checked_by_name(method: sl.SetPredictor) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    model = method.fit(P[FIT], Y[FIT], frame.iloc[FIT])
    same = model.predict_set(P[NEW], frame.iloc[NEW])
    assert same == model.predict_set(P[NEW], X[NEW])  # without names there is nothing to check
    assert same == model.predict_set(P[NEW], frame.iloc[NEW, ::-1])
    with pytest.raises(ValueError, match="features lack 'c', which fit saw, and have 'z'"):
        model.frontier(P[NEW], Y[NEW], frame.iloc[NEW].rename(columns={"c": "z"}))
    with pytest.raises(ValueError, match="features lack 'd', which fit saw"):
        model.predict_set(P[NEW], frame.iloc[NEW, :3])
    with pytest.raises(ValueError, match="features have 3 columns, but fit saw 4"):
        model.predict_set(P[NEW], X[NEW, :3])


def test_frames_of_numbers_and_booleans_are_numbers() -> None:
    mixed = pd.get_dummies(pd.DataFrame({"n": X[:, 0], "k": np.where(X[:, 1] > 0, "a", "b")}))
    assert {str(dtype) for dtype in mixed.dtypes} == {"float64", "bool"}
    plain = mixed.astype(float).to_numpy()
    method = sl.Shortlister(**SMALL)
    by_frame = method.fit(P[FIT], Y[FIT], mixed.iloc[FIT]).predict_set(P[NEW], mixed.iloc[NEW])
    assert by_frame == method.fit(P[FIT], Y[FIT], plain[FIT]).predict_set(P[NEW], plain[NEW])
    wide = pd.DataFrame(P[FIT]).astype("Float64")
    assert sl.SplitConformal("lac").fit(wide, Y[FIT]).score_type_ == "proba"
    wide.iloc[3, 2] = pd.NA
    with pytest.raises(ValueError, match="scores holds nan at row 3, column 2"):
        sl.SplitConformal("lac").fit(wide, Y[FIT])


def test_classes_must_not_contradict_the_columns() -> None:
    names = [f"c{i}" for i in range(8)]
    frame, y = pd.DataFrame(P[FIT], columns=names), np.array(names)[Y[FIT]]
    with pytest.raises(ValueError, match="leave classes out, or give it in that order"):
        sl.SplitConformal("lac").fit(frame, y, classes=names[::-1])
    assert sl.SplitConformal("lac").fit(frame, y, classes=names).classes_.tolist() == names


# Rows that were seen before


def test_a_path_is_not_calibrated_with_its_own_rows_in_silence() -> None:
    path = sl.CardinalityPath(
        sl.TopK([1, 2, 4]), cost_weights=[0.1, 0.01], inputs="both", max_epochs=2, width=8
    )
    path.fit(P[FIT], Y[FIT], X[FIT])
    with pytest.warns(UserWarning, match="400 of 400 calibration rows are among those"):
        path.calibrate(P[FIT], Y[FIT], X[FIT])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path.calibrate(P[KEPT], Y[KEPT], X[KEPT])


def test_a_part_of_the_rows_is_enough_for_a_word() -> None:
    model = sl.SplitConformal("lac", calibration=None).fit(P[FIT], Y[FIT])
    with pytest.warns(UserWarning, match="20 of 200 calibration rows"):
        model.calibrate(P[380:580], Y[380:580])


def test_judging_by_the_rows_to_learn_from_is_remarked_upon() -> None:
    methods = {"LAC": sl.SplitConformal("lac")}
    with pytest.warns(UserWarning, match="400 of 400 test rows are also rows to fit or calibrate"):
        sl.compare(P[FIT], Y[FIT], test=(P[FIT], Y[FIT]), methods=methods, accuracies=[0.8])


# Groups and classes


def test_groups_belong_to_a_guarantee_by_group() -> None:
    groups = np.where(X[:, 0] > 0, "a", "b")
    model = sl.SplitConformal("lac").fit(P[FIT], Y[FIT], groups=groups[FIT])
    with pytest.raises(ValueError, match="groups were given, but the guarantee is not conditional"):
        model.predict_set(P[NEW], accuracy=0.8, groups=groups[NEW])
    with pytest.raises(
        ValueError, match=r'by = "group" needs the group of each row: fit\(\.\.\., g'
    ):
        sl.Shortlister(by="group", **SMALL).fit(P[FIT], Y[FIT])


def test_a_class_without_calibration_rows_is_guaranteed_nothing() -> None:
    some = Y[FIT] != 3
    model = sl.SplitConformal("lac", by="class").fit(P[FIT][some], Y[FIT][some])
    with pytest.warns(UserWarning, match="share one threshold"):
        guarantee = str(model.predict_set(P[NEW], accuracy=0.7).guarantee)
    assert guarantee.endswith("; nothing is guaranteed for 3 (no calibration rows)")


# Scores that are not what they seem


@pytest.mark.parametrize("scores", [P.round(2), np.clip(P, 0.01, 0.99)])
def test_what_is_almost_a_probability_is_remarked_upon(scores: np.ndarray) -> None:
    with pytest.warns(UserWarning, match='rows sum to .* set score_type="proba"'):
        assert sl.SplitConformal("lac").fit(scores, Y).score_type_ == "logits"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sl.SplitConformal("lac", score_type="proba").fit(scores, Y)
        sl.SplitConformal("lac").fit(SCORES, Y)
        sl.SplitConformal("lac").fit(P / 2, Y)


def test_percentages_are_to_be_divided() -> None:
    with pytest.raises(ValueError, match="Divide percentages by 100"):
        sl.SplitConformal("lac", score_type="proba").fit(100 * P, Y)


def test_scores_that_contradict_the_labels_are_remarked_upon() -> None:
    with pytest.warns(UserWarning, match="carry almost no information about the labels"):
        sl.SplitConformal("lac").fit(-4 * np.eye(8)[Y] + 0.01 * SCORES, Y)


# What compare is given


def test_compare_says_what_it_takes() -> None:
    for methods in ([sl.Shortlister()], {"a": LogisticRegression()}, {"a": sl.Shortlister}):
        with pytest.raises(ValueError, match="set predictor"):
            sl.compare(P, Y, methods=methods)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"or \(scores, y, features\); got a ndarray"):
        sl.compare(P[FIT], Y[FIT], test=P[NEW])  # type: ignore[arg-type]


def test_compare_says_why_nothing_is_guaranteed() -> None:
    methods = {"LAC": sl.SplitConformal("lac")}
    found = sl.compare(P[:30], Y[:30], methods=methods, accuracies=[0.99])
    assert "There are too few calibration rows to guarantee any of these accuracies." in repr(found)
