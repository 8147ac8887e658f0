"""Every method is fitted, calibrated and tested on the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from compared_methods import ComparedMethods
from recorded_calls import Call, RecordingConformal, select_calls
from small_methods import (
    GUARANTEED_FIELDS,
    Part,
    assert_same_results,
    conformal,
    draw_rows,
    path,
    shortlister,
    two_methods,
)

import shortlist as sl
from shortlist.comparison import ACCURACIES


@pytest.mark.parametrize("test", [0.3, draw_rows(80, 2)], ids=["fraction", "given"])
@pytest.mark.parametrize("calibration", [0.25, 0.4])
def test_all_methods_get_the_same_disjoint_rows(
    calls: list[Call], test: float | Part, calibration: float
) -> None:
    known = draw_rows(200, 1)
    scores = ["lac", "topk", "aps", "margin"]
    methods: dict[str, sl.SetPredictor] = {score: RecordingConformal(score) for score in scores}
    sl.compare(*known, test=test, methods=methods, calibration=calibration)
    row_numbers = {
        method: {score: select_calls(calls, method, score)[0].row_numbers for score in scores}
        for method in ("fit", "calibrate", "frontier", "predict_set")
    }
    for by_score in row_numbers.values():
        for score in scores:
            np.testing.assert_array_equal(by_score[score], by_score["lac"])
    train, calibration_rows, test_rows, predicted = (
        set(by_score["lac"].tolist()) for by_score in row_numbers.values()
    )
    assert test_rows == predicted
    assert not train & calibration_rows
    assert not (train | calibration_rows) & test_rows
    all_known = set(known[2][:, 0].astype(int).tolist())
    if isinstance(test, float):
        assert train | calibration_rows | test_rows == all_known
        assert len(test_rows) == 60
    else:
        assert train | calibration_rows == all_known
        assert test_rows == set(test[2][:, 0].astype(int).tolist())
    assert len(calibration_rows) == round(calibration * len(train | calibration_rows))


def test_scores_labels_and_features_stay_aligned(calls: list[Call]) -> None:
    scores, y, x = draw_rows(200, 1)
    sl.compare(scores, y, x, methods={"recording": RecordingConformal()})
    for call in calls:
        index = call.row_numbers // 2
        np.testing.assert_array_equal(call.ranking.scores_of(slice(None)), scores[index])
        np.testing.assert_array_equal(call.features, x[index])
        if call.y is not None:
            np.testing.assert_array_equal(call.y, y[index])


def test_rows_are_split_at_random(calls: list[Call]) -> None:
    sl.compare(*draw_rows(1000, 1), methods={"recording": RecordingConformal()})
    for method in ("fit", "calibrate", "frontier"):
        (call,) = select_calls(calls, method)
        assert abs((call.row_numbers // 2).mean() - 500) < 60


def test_without_calibration_all_rows_fit_and_nothing_is_guaranteed(calls: list[Call]) -> None:
    methods = {
        "recording": RecordingConformal(),
        "fixed": sl.FixedSelector(),
        "RAPS": conformal("raps"),
    }
    known, test = draw_rows(120, 1), draw_rows(60, 2)
    comparison = sl.compare(*known, test=test, methods=methods, calibration=None)
    (fit,) = select_calls(calls, "fit")
    np.testing.assert_array_equal(fit.row_numbers, 2 * np.arange(120))
    assert not select_calls(calls, "calibrate")
    assert not select_calls(calls, "predict_set")
    frame = comparison.to_frame()
    assert frame[GUARANTEED_FIELDS].isna().all(axis=None)
    assert frame["size"].notna().all()
    assert comparison.summary == "120 rows to fit, 60 test rows, 5 classes"
    assert "guaranteed" not in repr(comparison)


def test_only_tuned_methods_are_fitted_for_each_accuracy(calls: list[Call]) -> None:
    methods = {"LAC": RecordingConformal(), "RAPS": RecordingConformal("raps")}
    sl.compare(*draw_rows(200, 1), methods=methods)
    for score, count in (("lac", 1), ("raps", len(ACCURACIES))):
        assert len(select_calls(calls, "fit", score)) == count
        assert len(select_calls(calls, "calibrate", score)) == count
        assert len(select_calls(calls, "frontier", score)) == count


def test_the_same_seed_gives_the_same_result() -> None:
    methods = two_methods() | {"path": path(), "topk": conformal("topk", randomized=True)}
    rows = draw_rows(450, 1)
    first = sl.compare(*rows, methods=methods, random_state=5, stages=True)
    second = sl.compare(*rows, methods=methods, random_state=5, stages=True)
    assert_same_results(first, second)


@pytest.mark.parametrize("test", [0.3, draw_rows(50, 2)], ids=["fraction", "given"])
def test_another_seed_gives_other_calibration_rows(calls: list[Call], test: float | Part) -> None:
    for seed in (5, 6):
        methods = {"recording": RecordingConformal()}
        sl.compare(*draw_rows(450, 1), test=test, methods=methods, random_state=seed)
    first, second = (set(call.row_numbers.tolist()) for call in select_calls(calls, "calibrate"))
    assert first != second


def test_the_given_methods_stay_unfitted(compared: ComparedMethods) -> None:
    for name, method in compared.methods.items():
        model = compared.comparison.models[name]
        assert model is not method
        assert type(model) is type(method)
        assert not [key for key in vars(method) if key.endswith("_") or key.startswith("_")]
    unchanged = {
        "Shortlister": shortlister(),
        "RAPS": conformal("raps", randomized=True, accuracy=0.5),
        "path": path(),
    }
    for name, method in unchanged.items():
        assert compared.methods[name].get_params() == method.get_params()
