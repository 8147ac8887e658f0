"""Labeled rows without scores: who learns from them, and what is checked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from recorded_calls import Call, RecordingConformal
from small_methods import draw_candidates, draw_rows, only_lac, shortlister

import shortlist as sl
from shortlist.comparison import default_methods

KNOWN, TEST, EXTRA = draw_rows(400, 1), draw_rows(150, 2), draw_rows(900, 3)
EXTRA_ROWS = {"extra_features": EXTRA[2], "extra_y": EXTRA[1]}


def logistic() -> sl.RetrainedClassifier:
    return sl.RetrainedClassifier("logistic")


class Taking(RecordingConformal):
    """Records extra rows, too."""

    takes_extra_rows = True
    extra: list[dict[str, object]] = []  # noqa: RUF012

    def fit(self, scores, y, features=None, **options):  # type: ignore[no-untyped-def]
        self.extra.append({k: options.pop(k) for k in ("extra_features", "extra_y")})
        return super().fit(scores, y, features, **options)


def test_methods_that_take_them_get_the_same_rows(calls: list[Call]) -> None:
    Taking.extra.clear()
    methods: dict[str, sl.SetPredictor] = {
        "first": Taking("lac"),
        "other": RecordingConformal("topk"),
        "second": Taking("margin"),
    }
    comparison = sl.compare(*KNOWN, test=TEST, methods=methods, **EXTRA_ROWS)
    assert len(Taking.extra) == 2
    for extra in Taking.extra:
        np.testing.assert_array_equal(extra["extra_features"], EXTRA[2])
        np.testing.assert_array_equal(extra["extra_y"], EXTRA[1])
    assert comparison.summary == (
        "300 rows to fit, 900 extra rows, 100 calibration rows, 150 test rows, 5 classes"
    )
    rows = {
        name: [c.row_numbers for c in calls if c.method == name] for name in ("fit", "calibrate")
    }
    assert len(rows["fit"]) == 3
    for row_numbers in rows["fit"] + rows["calibrate"]:
        assert (row_numbers % 2 == 0).all()
        assert row_numbers.max() < 800  # Extra rows are neither rows to fit nor to calibrate.


def test_by_default_the_shortlister_and_the_retrained_classifiers_take_them() -> None:
    taking = [name for name, m in default_methods(has_features=True).items() if m.takes_extra_rows]
    assert taking == ["Shortlister", "networks, retrained", "logistic, retrained"]


def test_the_methods_are_fitted_as_by_hand() -> None:
    methods = {"Shortlister": shortlister(effort="fast", rescore=True), "logistic": logistic()}
    comparison = sl.compare(
        *KNOWN, test=TEST, methods=methods, calibration=None, stages=True, **EXTRA_ROWS
    )
    for name, method in methods.items():
        by_hand = method.set_params(calibration=None).fit(*KNOWN, **EXTRA_ROWS)
        curve = by_hand.frontier(*TEST)
        assert comparison.at(name, 0.9).size == curve.size_at(0.9)
        without = sl.compare(*KNOWN, test=TEST, methods={name: method}, calibration=None)
        assert comparison.at(name, 0.9).size < without.at(name, 0.9).size
    model = comparison.models["Shortlister"]
    assert isinstance(model, sl.Shortlister)
    assert model.score_.rescorer_ is not None
    assert model.score_.rescorer_.n_extra == 900
    # Methods on re-scored probabilities are fitted to rows that are re-scored out of fold.
    assert comparison.at("LAC, re-scored", 0.9).size < 5


def test_names_of_columns_are_matched() -> None:
    names = ["number", "a", "b", "c"]
    frames = [pd.DataFrame(x, columns=names) for x in (KNOWN[2], TEST[2], EXTRA[2])]
    methods = {"logistic": logistic()}
    in_order, reversed_columns = (
        sl.compare(
            *KNOWN[:2],
            frames[0],
            test=(*TEST[:2], frames[1]),
            methods=methods,
            extra_features=extra,
            extra_y=EXTRA[1],
        )
        for extra in (frames[2], frames[2][names[::-1]])
    )
    assert in_order.at("logistic", 0.9).size == reversed_columns.at("logistic", 0.9).size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra_y": None}, "extra_y is missing"),
        ({"extra_features": None}, "extra_features is missing"),
        ({"extra_features": EXTRA[2][:, :3]}, "extra_features have 3 columns, but features have 4"),
        ({"extra_y": EXTRA[1][:-1]}, "extra_y has 899 labels for 900 rows"),
        ({"extra_y": EXTRA[1] + 1}, "extra_y"),
        ({"features": None}, "extra_features need features"),
        ({"methods": only_lac()}, r"none of the methods \['LAC'\] takes extra_features"),
    ],
)
def test_invalid_rows_raise_before_any_fit(change: dict[str, object], message: str) -> None:
    scores, y, x = KNOWN
    arguments = {"features": x, "methods": {"logistic": logistic()}, **EXTRA_ROWS, **change}
    with pytest.raises(ValueError, match=message):
        sl.compare(scores, y, **arguments)  # type: ignore[arg-type]


def test_candidates_with_extra_rows() -> None:
    ranking, y = draw_candidates(300, 4)
    x = np.random.default_rng(0).normal(size=(300, 3)) + y[:, None]
    methods: dict[str, sl.SetPredictor] = {"Shortlister": shortlister(effort="fast")}
    extra_y = np.tile(np.arange(8), 20)
    extra_x = np.random.default_rng(1).normal(size=(160, 3)) + extra_y[:, None]
    comparison = sl.compare(
        ranking, y, x, methods=methods, accuracies=[0.4], extra_features=extra_x, extra_y=extra_y
    )
    assert "160 extra rows" in comparison.summary
    assert comparison.at("Shortlister", 0.4).size >= 1
