"""Rows in prediction must have the form of those in fit and calibration."""

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
FIT, CALIBRATION, NEW = slice(0, 400), slice(400, 600), slice(600, 900)
SMALL = {"width": 8, "rank_width": 8, "max_epochs": 2, "folds": 2, "progress": False}


def candidates(rows: slice, k: int) -> sl.Ranking:
    """Return the k best labels of some rows as candidates."""
    order = np.argsort(-P[rows], axis=1)[:, :k]
    scores = np.take_along_axis(P[rows], order, axis=1)
    return sl.Ranking.from_candidates(order, scores, n_classes=8)


# Dense scores or candidates


@pytest.mark.parametrize("method", [sl.SplitConformal("lac"), sl.Shortlister(**SMALL)])
def test_a_guarantee_holds_for_scores_of_the_same_form(method: sl.SetPredictor) -> None:
    dense = method.fit(P[FIT], Y[FIT])
    for call in (
        lambda m, r: m.predict_set(r, accuracy=0.8),
        lambda m, r: m.predict_set(r, mean_size=2),
        lambda m, r: m.p_values(r),
    ):
        with pytest.raises(
            ValueError, match="had a score for every class, but these have ranked candidates"
        ):
            call(dense, candidates(NEW, 5))
        with pytest.raises(ValueError, match="ranked to depth 8, but these to 3"):
            call(dense, sl.Ranking.from_scores(P[NEW], depth=3))
        call(dense, P[NEW])
    if isinstance(method, sl.SplitConformal):
        dense.calibrate(candidates(CALIBRATION, 5), Y[CALIBRATION])
        assert dense.predict_set(candidates(NEW, 5), accuracy=0.7).accuracy(Y[NEW]) > 0.6
        with pytest.raises(ValueError, match="had ranked candidates, but these have a score"):
            dense.predict_set(P[NEW], accuracy=0.7)


def test_without_a_guarantee_candidates_are_accepted() -> None:
    model = sl.Shortlister(**SMALL, learn_sizes=False).fit(P[FIT], Y[FIT])
    assert len(model.predict_set(candidates(NEW, 5), cost_weight=0.05)) == 300


def test_other_numbers_of_candidates_cause_a_warning() -> None:
    model = sl.SplitConformal("lac", temperature=None).fit(candidates(FIT, 5), Y[FIT])
    with pytest.warns(UserWarning, match="had 5 to 5 candidates, but these have 3 to 3"):
        model.predict_set(candidates(NEW, 3), accuracy=0.5)
    labels = [[0, 1], [0, 1, 2, 3, 4]]
    ragged = sl.Ranking.from_candidates(
        labels, [[0.4, 0.2], [0.4, 0.3, 0.1, 0.1, 0.1]], n_classes=8
    )
    model.calibrate(ragged[[0, 1] * 20], np.arange(40) % 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_set(ragged[:1], accuracy=0.5)  # Lengths differed in calibration too.


@pytest.mark.parametrize("with_features", [True, False])
def test_networks_accept_only_scores_of_the_form_of_fit(with_features: bool) -> None:
    features = (lambda rows: X[rows]) if with_features else (lambda rows: None)
    model = sl.Shortlister(rescore=with_features, learn_sizes=True, calibration=None, **SMALL)
    model.fit(P[FIT], Y[FIT], features(FIT))
    with pytest.raises(ValueError, match="learned from rows with a score for every class, but"):
        model.calibrate(candidates(CALIBRATION, 5), Y[CALIBRATION], features(CALIBRATION))
    model.fit(candidates(FIT, 5), Y[FIT], features(FIT))
    with pytest.raises(ValueError, match="learned from rows with ranked candidates, but these"):
        model.predict_set(P[NEW], features(NEW), cost_weight=0.1)


# Columns of features


@pytest.mark.parametrize(
    "method",
    [sl.Shortlister(**SMALL), sl.CardinalitySelector(max_epochs=2, width=8, progress=False)],
)
def test_columns_of_features_are_matched_by_name(method: sl.SetPredictor) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    model = method.fit(P[FIT], Y[FIT], frame.iloc[FIT])
    same = model.predict_set(P[NEW], frame.iloc[NEW])
    assert same == model.predict_set(P[NEW], X[NEW])  # An array has no names to check.
    assert same == model.predict_set(P[NEW], frame.iloc[NEW, ::-1])
    with pytest.raises(ValueError, match="features lack 'c', which fit saw, and have 'z'"):
        model.frontier(P[NEW], Y[NEW], frame.iloc[NEW].rename(columns={"c": "z"}))
    with pytest.raises(ValueError, match="features lack 'd', which fit saw"):
        model.predict_set(P[NEW], frame.iloc[NEW, :3])
    with pytest.raises(ValueError, match="features have 3 columns, but fit saw 4"):
        model.predict_set(P[NEW], X[NEW, :3])


def test_frames_of_numbers_and_booleans_are_accepted() -> None:
    mixed = pd.get_dummies(pd.DataFrame({"n": X[:, 0], "k": np.where(X[:, 1] > 0, "a", "b")}))
    assert {str(dtype) for dtype in mixed.dtypes} == {"float64", "bool"}
    array = mixed.astype(float).to_numpy()
    method = sl.Shortlister(**SMALL)
    by_frame = method.fit(P[FIT], Y[FIT], mixed.iloc[FIT]).predict_set(P[NEW], mixed.iloc[NEW])
    assert by_frame == method.fit(P[FIT], Y[FIT], array[FIT]).predict_set(P[NEW], array[NEW])
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


# Calibration and test rows that are rows of fit


def test_calibrating_a_path_with_rows_of_fit_causes_a_warning() -> None:
    path = sl.CardinalityPath(
        sl.TopK([1, 2, 4]), cost_weights=[0.1, 0.01], inputs="both", max_epochs=2, width=8
    )
    path.fit(P[FIT], Y[FIT], X[FIT])
    with pytest.warns(UserWarning, match="400 of 400 calibration rows are among those"):
        path.calibrate(P[FIT], Y[FIT], X[FIT])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path.calibrate(P[CALIBRATION], Y[CALIBRATION], X[CALIBRATION])


def test_some_calibration_rows_of_fit_cause_a_warning() -> None:
    model = sl.SplitConformal("lac", calibration=None).fit(P[FIT], Y[FIT])
    with pytest.warns(UserWarning, match="20 of 200 calibration rows"):
        model.calibrate(P[380:580], Y[380:580])


def test_comparing_on_rows_of_fit_causes_a_warning() -> None:
    methods = {"LAC": sl.SplitConformal("lac")}
    with pytest.warns(UserWarning, match="400 of 400 test rows are also rows to fit or calibrate"):
        sl.compare(P[FIT], Y[FIT], test=(P[FIT], Y[FIT]), methods=methods, accuracies=[0.8])


# Groups and classes


def test_groups_need_a_guarantee_by_group() -> None:
    groups = np.where(X[:, 0] > 0, "a", "b")
    model = sl.SplitConformal("lac").fit(P[FIT], Y[FIT], groups=groups[FIT])
    with pytest.raises(ValueError, match="groups were given, but the guarantee is not conditional"):
        model.predict_set(P[NEW], accuracy=0.8, groups=groups[NEW])
    with pytest.raises(
        ValueError, match=r'by = "group" needs the group of each row: fit\(\.\.\., g'
    ):
        sl.Shortlister(by="group", **SMALL).fit(P[FIT], Y[FIT])


def test_a_class_without_calibration_rows_has_no_guarantee() -> None:
    others = Y[FIT] != 3
    model = sl.SplitConformal("lac", by="class").fit(P[FIT][others], Y[FIT][others])
    with pytest.warns(UserWarning, match="share one threshold"):
        guarantee = str(model.predict_set(P[NEW], accuracy=0.7).guarantee)
    assert guarantee.endswith("; nothing is guaranteed for 3 (no calibration rows)")


# Scores that look like another type


@pytest.mark.parametrize("scores", [P.round(2), np.clip(P, 0.01, 0.99)])
def test_scores_that_are_almost_probabilities_cause_a_warning(scores: np.ndarray) -> None:
    with pytest.warns(UserWarning, match='rows sum to .* set score_type="proba"'):
        assert sl.SplitConformal("lac").fit(scores, Y).score_type_ == "logits"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sl.SplitConformal("lac", score_type="proba").fit(scores, Y)
        sl.SplitConformal("lac").fit(SCORES, Y)
        sl.SplitConformal("lac").fit(P / 2, Y)


def test_percentages_raise() -> None:
    with pytest.raises(ValueError, match="Divide percentages by 100"):
        sl.SplitConformal("lac", score_type="proba").fit(100 * P, Y)


def test_scores_that_contradict_the_labels_cause_a_warning() -> None:
    with pytest.warns(UserWarning, match="carry almost no information about the labels"):
        sl.SplitConformal("lac").fit(-4 * np.eye(8)[Y] + 0.01 * SCORES, Y)


# Arguments of compare


def test_invalid_arguments_of_compare_raise() -> None:
    for methods in ([sl.Shortlister()], {"a": LogisticRegression()}, {"a": sl.Shortlister}):
        with pytest.raises(ValueError, match="set predictor"):
            sl.compare(P, Y, methods=methods)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"or \(scores, y, features\); got a ndarray"):
        sl.compare(P[FIT], Y[FIT], test=P[NEW])  # type: ignore[arg-type]


def test_compare_explains_missing_guarantees() -> None:
    methods = {"LAC": sl.SplitConformal("lac")}
    comparison = sl.compare(P[:30], Y[:30], methods=methods, accuracies=[0.99])
    assert "There are too few calibration rows to guarantee any of these accuracies." in repr(
        comparison
    )
