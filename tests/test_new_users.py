"""Mistakes and questions of new users, with the result or the message that they should get."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

import shortlist as sl

RNG = np.random.default_rng(0)
SCORES = 3 * RNG.normal(size=(300, 5))
NAMES = list("edcba")  # Not in sorted order.
Y = SCORES.argmax(axis=1)
X = RNG.normal(size=(300, 4)) + Y[:, None]


def selector(**parameters: object) -> sl.CardinalitySelector:
    """Return a selector that is trained quickly."""
    return sl.CardinalitySelector(inputs="scores", max_epochs=5, **parameters)  # type: ignore[arg-type]


def test_the_columns_of_a_data_frame_are_the_classes() -> None:
    frame, labels = pd.DataFrame(SCORES, columns=NAMES), np.array(NAMES)[Y]
    model = selector().fit(frame, labels)
    assert model.classes_.tolist() == NAMES
    assert model.predict_set(frame).accuracy(labels) == 1.0  # The scores are perfect.
    assert model.predict_set(frame[sorted(NAMES)]).accuracy(labels) == 1.0  # Columns in any order.
    assert selector().fit(frame, Y).classes_.tolist() == [0, 1, 2, 3, 4]  # Integers index columns.
    with pytest.raises(ValueError, match=r"'gnu' is not one of the 5 classes: 'e'"):
        selector().fit(frame, ["gnu"] * 300)


def test_a_loss_that_is_not_cost_sensitive_raises_an_error() -> None:
    with pytest.raises(ValueError, match=r"CrossEntropyLoss.*prefers the set that costs more"):
        selector(loss=torch.nn.CrossEntropyLoss()).fit(SCORES, Y)
    with pytest.raises(ValueError, match=r"CompSumLoss.*takes \(scores, costs\)"):
        selector(loss=sl.losses.CompSumLoss("log")).fit(SCORES, Y)
    for loss in (
        sl.losses.CostSensitiveCompSumLoss("mae"),
        sl.losses.CostSensitiveConstrainedLoss("margin", reduction="none"),
    ):
        selector(loss=loss).fit(SCORES, Y)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: selector(family=[1, 2, 4]).fit(SCORES, Y), r"such as TopK.*got \[1, 2, 4\]"),
        (lambda: sl.FixedSelector([1, 2]).fit(SCORES, Y), r"such as TopK.*got \[1, 2\]"),  # type: ignore[arg-type]
        (lambda: selector(device="gpu").fit(SCORES, Y), "device = 'gpu' is not available"),
        (lambda: selector().fit(scipy.sparse.csr_array(SCORES), Y), r"sparse.*\.toarray\(\)"),
        (lambda: selector().fit([["car", "bus"]], [0]), "numbers.*Ranking.from_candidates"),
        (
            lambda: selector().fit(SCORES, Y[:, None]),
            r"\(300, 1\)\. Convert it with np\.ravel\(y\)",
        ),
        (lambda: selector().fit(SCORES, np.eye(3)[Y % 3]), r"np\.argmax\(y, axis=1\)"),
        (lambda: selector().fit(SCORES, torch.eye(3)[Y % 3]), r"np\.argmax\(y, axis=1\)"),
        (lambda: selector().fit(SCORES[0], Y[:1]), r"for a single row, give \[scores\]"),
        (lambda: selector().fit(SCORES.T, Y), r"300 columns; did you mean scores\.T\?"),
        (lambda: selector().fit(SCORES > 0, Y), "got dtype bool"),
        (lambda: sl.ShortlistClassifier(Ridge()).fit(X, Y), r"Ridge\(\) is a regressor"),  # type: ignore[arg-type]
        (lambda: sl.ShortlistClassifier(method="topk").fit(X, Y), "set predictor.*got 'topk'"),  # type: ignore[arg-type]
        (
            lambda: sl.ShortlistClassifier(method=sl.CardinalitySelector()).fit(
                scipy.sparse.csr_array(X), Y
            ),
            r"needs features, but .*not a dense table.*got csr_array.*features=\.\.\.",
        ),
        (lambda: sl.Ranking.from_candidates([["a"]], [[0.5]]), r"classes=\[\.\.\.\]"),
        (lambda: sl.Frontier([0.5], [1.0], [1]).size_at(95), "between 0 and 1; got 95"),
    ],
)
def test_error_messages(fit: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit()  # type: ignore[operator]


def test_features_may_have_missing_values_if_the_classifier_accepts_them() -> None:
    method = sl.CardinalitySelector(inputs="both", max_epochs=3)
    incomplete = X.copy()
    incomplete[::7, 1] = np.nan
    for classifier in (
        RandomForestClassifier(10, random_state=0),
        make_pipeline(SimpleImputer(), LogisticRegression(max_iter=1000)),
    ):
        model = sl.ShortlistClassifier(classifier, method=method).fit(X, Y)
        # The selector gets the mean of the column for a missing value.
        filled = np.where(np.isnan(incomplete), X.mean(axis=0), incomplete)
        scores = model.predict_proba(incomplete)
        assert model.predict_set(incomplete) == model.method_.predict_set(scores, filled)
        model = sl.ShortlistClassifier(classifier, method=method).fit(incomplete, Y)
        assert len(model.predict_set(X)) == 300
