"""Types of input that `compare` accepts, and errors about other input."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from small_methods import (
    Part,
    assert_same_results,
    conformal,
    draw_candidates,
    draw_rows,
    only_lac,
    path,
    two_methods,
)

import shortlist as sl

NAMES = np.array(["eel", "ant", "dog", "cat", "bee"])
"""Class names that are not sorted."""


@pytest.fixture
def known() -> Part:
    return draw_rows(400, 1)


@pytest.fixture
def test() -> Part:
    return draw_rows(100, 2)


def test_features_are_optional(known: Part, test: Part, reference: sl.Comparison) -> None:
    methods = two_methods()
    without = sl.compare(*known[:2], test=(*test[:2], None), methods=methods)
    assert_same_results(sl.compare(*known[:2], test=test[:2], methods=methods), without)
    assert_same_results(sl.compare(*known[:2], test=list(test[:2]), methods=methods), without)
    assert reference.models["Shortlister"].rescored_
    assert reference.at("Shortlister", 0.9).size < without.at("Shortlister", 0.9).size
    assert reference.summary == "300 rows to fit, 100 calibration rows, 100 test rows, 5 classes"


@pytest.mark.parametrize(
    "convert",
    [torch.from_numpy, pd.DataFrame, np.ndarray.tolist],
    ids=["tensors", "frames", "lists"],
)
def test_tensors_frames_and_lists(
    convert: Callable[[NDArray[np.generic]], object],
    known: Part,
    test: Part,
    reference: sl.Comparison,
) -> None:
    convert_y = torch.from_numpy if convert is torch.from_numpy else np.ndarray.tolist
    (scores, y, x), converted_test = (
        (convert(part[0]), convert_y(part[1]), convert(part[2])) for part in (known, test)
    )
    comparison = sl.compare(scores, y, x, test=converted_test, methods=two_methods())
    assert_same_results(comparison, reference)


def test_class_names(known: Part, test: Part, reference: sl.Comparison) -> None:
    (scores, y, x), (test_scores, test_y, test_x) = known, test
    named_test = (test_scores, NAMES[test_y], test_x)
    comparison = sl.compare(
        scores, NAMES[y], x, test=named_test, methods=two_methods(), classes=NAMES
    )
    assert_same_results(comparison, reference)
    ranking = sl.Ranking.from_scores(scores, classes=NAMES)
    comparison = sl.compare(ranking, NAMES[y], x, test=named_test, methods=two_methods())
    assert_same_results(comparison, reference)


def test_names_of_frame_columns(known: Part, test: Part, reference: sl.Comparison) -> None:
    frame, test_frame = (pd.DataFrame(part[0], columns=NAMES) for part in (known, test))
    named_test = (test_frame, NAMES[test[1]], test[2])
    comparison = sl.compare(
        frame, NAMES[known[1]], known[2], test=named_test, methods=two_methods()
    )
    assert_same_results(comparison, reference)
    sets = comparison.models["RAPS"].predict_set(frame[:1], accuracy=0.9)
    assert set(sets.labels()[0]) <= set(NAMES.tolist())


def test_candidates() -> None:
    candidates, y = draw_candidates(500, depth=4)
    known, test, known_y, test_y = candidates[:400], candidates[400:], y[:400], y[400:]
    methods = {"LAC": conformal(calibration=None), "path": path().set_params(inputs="scores")}
    comparison = sl.compare(
        known, known_y, test=(test, test_y), methods=methods, accuracies=[0.7], calibration=None
    )
    for name, method in methods.items():
        curve = method.fit(known, known_y).frontier(test, test_y)
        assert comparison.at(name, 0.7).size == curve.size_at(0.7) > 1
    comparison = sl.compare(candidates, y, methods=only_lac(), accuracies=[0.7])
    assert comparison.summary == "262 rows to fit, 88 calibration rows, 150 test rows, 8 classes"
    assert 0.6 < comparison.measurements[0].guaranteed_accuracy < 0.8


SCORES, Y, X = draw_rows(60, 1)
LETTERS = np.array(list("abcde"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sl.compare(SCORES, Y[:5]), "y has 5 labels, but the scores have 60 rows"),
        (lambda: sl.compare(SCORES, Y, X[:7]), "features have 7 rows, but the scores have 60"),
        (
            lambda: sl.compare(SCORES, Y, X, test=(SCORES, Y)),
            "the fit rows have features, but the test rows have none",
        ),
        (
            lambda: sl.compare(SCORES, Y, test=(SCORES, Y, X)),
            "the test rows have features, but the fit rows have none",
        ),
        (
            lambda: sl.compare(SCORES, Y, test=(SCORES, Y[:5])),
            "test: y has 5 labels, but the scores have 60 rows",
        ),
        (
            lambda: sl.compare(SCORES, Y, X, test=(SCORES, Y, X[:7])),
            "test: features have 7 rows, but the scores have 60",
        ),
        (
            lambda: sl.compare(SCORES, Y, X, test=(SCORES, Y, X[:, :2])),
            "test: features have 2 columns, but fit saw 4",
        ),
        (
            lambda: sl.compare(SCORES, Y, test=(SCORES[:, :4], Y)),
            "test: scores have 4 classes, but fit saw 5",
        ),
        (lambda: sl.compare(SCORES, Y, test=(SCORES,)), "(scores, y, features); got 1 parts"),
        (lambda: sl.compare(SCORES, Y, test=1.5), "test must lie strictly between 0 and 1; got"),
        (lambda: sl.compare(SCORES, Y, calibration=0), "calibration must lie strictly between"),
        (lambda: sl.compare(SCORES, Y, accuracies=[0.9, 95]), "each of accuracies must lie"),
        (lambda: sl.compare(SCORES, Y, accuracies=[]), "a list of at least one; got []"),
        (lambda: sl.compare(SCORES, Y, accuracies=0.9), "a list of at least one; got 0.9"),
        (lambda: sl.compare(SCORES, Y, methods={}), "at least one set predictor; got {}"),
        (
            lambda: sl.compare(SCORES, LETTERS[Y % 4], methods=only_lac()),
            "y holds 4 distinct labels",
        ),
        (
            lambda: sl.compare(
                sl.Ranking.from_scores(SCORES, classes=LETTERS), LETTERS[Y], classes=LETTERS[::-1]
            ),
            "the ranking names its columns ['a', 'b', 'c', 'd', 'e'], but the classes are ['e'",
        ),
        (
            lambda: sl.compare(
                pd.DataFrame(SCORES, columns=LETTERS),
                LETTERS[Y],
                test=(pd.DataFrame(SCORES, columns=list("edcbz")), LETTERS[Y]),
            ),
            "test: scores lack 'a', which fit saw, and have 'z', which fit did not see",
        ),
    ],
)
def test_wrong_input_raises_before_any_fit(
    call: Callable[[], object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("a method was fitted")

    monkeypatch.setattr("shortlist.comparison.plan.measure", fail)
    pattern = ".*".join(map(re.escape, message.split(".*")))
    with pytest.raises(ValueError, match=pattern):
        call()
