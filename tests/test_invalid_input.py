"""Invalid input: each error message repeats the input and says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import shortlist as sl

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(40, 4))
Y = np.arange(40) % 4
X = RNG.normal(size=(40, 3))
NAMES = np.array(["ant", "bee", "cat", "dog"])


def with_value(array: NDArray[np.float64], value: float) -> NDArray[np.float64]:
    """Return an array with another value in row 3, column 1."""
    changed = array.copy()
    changed[3, 1] = value
    return changed


def selector(**parameters: object) -> sl.CardinalitySelector:
    defaults: dict[str, object] = {"inputs": "both", "max_epochs": 1, "width": 4}
    return sl.CardinalitySelector(**(defaults | parameters))  # type: ignore[arg-type]


def path(**parameters: object) -> sl.CardinalityPath:
    defaults: dict[str, object] = {"cost_weights": [0.1, 0.2], "inputs": "both", "max_epochs": 1}
    return sl.CardinalityPath(**(defaults | {"width": 4} | parameters))  # type: ignore[arg-type]


def fixed(**parameters: object) -> sl.FixedSelector:
    return sl.FixedSelector(**parameters)  # type: ignore[arg-type]


Make = Callable[..., sl.SetPredictor]
ALL_METHODS = pytest.mark.parametrize("make", [selector, path, fixed])
TRAINED_METHODS = pytest.mark.parametrize("make", [selector, path])


def assert_raises(
    call: Callable[[], object], *parts: str, error_type: type[Exception] = ValueError
) -> None:
    """Check that a call raises an error whose message matches all parts."""
    with pytest.raises(error_type) as error:
        call()
    message = str(error.value)
    for part in parts:
        assert re.search(part, message), f"{part!r} is not in: {message}"


# Values


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@ALL_METHODS
def test_scores_that_are_not_finite(make: Make, value: float) -> None:
    bad = with_value(SCORES, value)
    parts = ("scores", str(value), "row 3, column 1", "finite", "Remove such rows")
    assert_raises(lambda: make().fit(bad, Y, X), *parts)
    assert_raises(lambda: make().fit(torch.from_numpy(bad), Y, X), *parts)
    model = make().fit(SCORES, Y, X)
    assert_raises(lambda: model.predict_set(bad, X), *parts)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@TRAINED_METHODS
def test_features_that_are_not_finite(make: Make, value: float) -> None:
    bad = with_value(X, value)
    parts = ("features", str(value), "row 3, column 1", "finite")
    assert_raises(lambda: make().fit(SCORES, Y, bad), *parts)
    model = make(cost_weight=0.1).fit(SCORES, Y, X)
    assert_raises(lambda: model.predict_set(SCORES, bad), *parts)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_for_classifiers(value: float) -> None:
    bad = with_value(X, value)
    h = sl.LinearClassifier(max_epochs=1).fit(X, Y)
    for x in (bad, torch.from_numpy(bad)):
        assert_raises(lambda x=x: sl.LinearClassifier().fit(x, Y), "(?i)nan|inf")
        assert_raises(lambda x=x: h.predict(x), "(?i)nan|inf")
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed())
    assert_raises(lambda: wrapped.fit(bad, Y), "(?i)nan|inf")
    wrapped.fit(X, Y)
    assert_raises(lambda: wrapped.predict_set(bad), "(?i)nan|inf")


# Shapes


@ALL_METHODS
def test_empty_arrays(make: Make) -> None:
    assert_raises(lambda: make().fit(np.zeros((0, 4)), [], np.zeros((0, 3))), "empty", r"\(0, 4\)")
    assert_raises(lambda: make().fit(np.zeros((5, 0)), Y[:5], X[:5]), "empty", r"\(5, 0\)")
    model = make().fit(SCORES, Y, X)
    assert_raises(
        lambda: model.predict_set(np.zeros((0, 4)), np.zeros((0, 3))), "empty", r"\(0, 4\)"
    )


@TRAINED_METHODS
def test_no_features_at_all(make: Make) -> None:
    assert_raises(lambda: make().fit(SCORES, Y, np.zeros((40, 0))), "features", r"\(40, 0\)")


def test_empty_arrays_for_classifiers() -> None:
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed())
    for model in (sl.LinearClassifier(), wrapped):
        assert_raises(lambda m=model: m.fit(np.zeros((0, 3)), []), "0|none|empty")
    assert_raises(lambda: sl.LinearClassifier().fit(torch.zeros(0, 3), []), "empty", r"\(0, 3\)")


@ALL_METHODS
def test_scores_of_one_class(make: Make) -> None:
    assert_raises(
        lambda: make().fit(SCORES[:, :1], np.zeros(40, int), X), r"\(40, 1\)", "one class", "two"
    )


def test_labels_of_one_class() -> None:
    y = np.full(40, "cat")
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed())
    assert_raises(lambda: wrapped.fit(X, y), "one class only", "'cat'", "at least two")
    assert_raises(lambda: sl.LinearClassifier().fit(X, y), "only one class", "'cat'", "two")
    assert_raises(lambda: sl.LinearClassifier().fit(torch.from_numpy(X), y), "'cat'", "two")


@ALL_METHODS
def test_labels_of_another_length(make: Make) -> None:
    assert_raises(lambda: make().fit(SCORES, Y[:7], X), "7 labels", "40 rows")
    assert_raises(lambda: make().fit(SCORES, Y[:, None], X), "one label for each row", r"\(40, 1\)")
    model = make().fit(SCORES, Y, X)
    assert_raises(lambda: model.frontier(SCORES, Y[:7], X), "7 labels", "40 rows")


def test_labels_of_another_length_for_classifiers() -> None:
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed())
    for model in (wrapped, sl.LinearClassifier()):
        assert_raises(lambda m=model: m.fit(X, Y[:7]), "40", "7", "inconsistent")
    assert_raises(
        lambda: sl.LinearClassifier().fit(torch.from_numpy(X), Y[:7]), "40 rows", "7 labels"
    )
    assert_raises(
        lambda: wrapped.fit(X, Y, sample_weight=np.ones(7)), "sample_weight", r"\(40,\)", r"\(7,\)"
    )


@ALL_METHODS
def test_scores_of_another_shape(make: Make) -> None:
    assert_raises(lambda: make().fit(SCORES[0], Y, X), "scores", r"\(rows, classes\)", r"\(4,\)")
    assert_raises(lambda: make().fit(SCORES[None], Y, X), r"\(1, 40, 4\)")
    assert_raises(lambda: make().fit([["a", "b"]] * 40, Y, X), "scores must hold numbers")
    model = make().fit(SCORES, Y, X)
    assert_raises(lambda: model.predict_set(SCORES[:, :3], X), "3 classes", "fit saw 4", "each")


@TRAINED_METHODS
def test_features_of_another_shape(make: Make) -> None:
    assert_raises(lambda: make().fit(SCORES, Y, X[:9]), "features have 9 rows", "40")
    assert_raises(lambda: make().fit(SCORES, Y, X[:, 0]), "features", r"\(40,\)")
    model = make(cost_weight=0.1).fit(SCORES, Y, X)
    assert_raises(lambda: model.predict_set(SCORES, X[:9]), "features have 9 rows", "40")
    assert_raises(lambda: model.predict_set(SCORES, X[:, :2]), "2 columns", "fit saw 3", "same")
    assert_raises(lambda: model.frontier(SCORES, Y, X[:, :2]), "2 columns", "fit saw 3")


def test_features_of_another_shape_for_classifiers() -> None:
    h = sl.LinearClassifier(max_epochs=1).fit(X, Y)
    assert_raises(lambda: h.predict(X[:, :2]), "2 features", "expecting 3")
    assert_raises(lambda: h.predict(torch.from_numpy(X[:, :2])), "2 columns", "fit saw 3")
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed()).fit(X, Y)
    assert_raises(lambda: wrapped.predict_set(X[:, :2]), "2 features", "expecting 3")
    assert_raises(lambda: wrapped.predict_set(X[0]), "Reshape your data")


@TRAINED_METHODS
def test_features_that_are_missing(make: Make) -> None:
    assert_raises(lambda: make().fit(SCORES, Y), 'inputs = "both"', "features=X", 'inputs="scores"')
    model = make(cost_weight=0.1).fit(SCORES, Y, X)
    assert_raises(
        lambda: model.predict_set(SCORES), "features are missing", "3", r"features=\.\.\."
    )
    assert_raises(lambda: model.frontier(SCORES, Y), "features are missing")
    # A model without a network requires them too.
    constant = make(family=sl.TopK([1]), cost_weight=0.1).fit(SCORES, Y, X)
    assert_raises(lambda: constant.predict_set(SCORES), "features are missing")


@TRAINED_METHODS
def test_sparse_features(make: Make) -> None:
    sparse = scipy.sparse.csr_array(X)
    assert_raises(lambda: make().fit(SCORES, Y, sparse), "sparse", r"\(40, 3\)", "toarray")


# Labels


@ALL_METHODS
def test_float_labels(make: Make) -> None:
    assert_raises(lambda: make().fit(SCORES, Y + 0.5, X), "y holds floats", "0.5")
    whole = torch.from_numpy(Y).float()
    assert_raises(lambda: make().fit(SCORES, whole, X), "y holds floats", r"astype\(int\)")
    model = make().fit(SCORES, Y, X)
    assert_raises(lambda: model.frontier(SCORES, Y + 0.5, X), "y holds floats", "0.5")


def test_float_labels_for_classifiers() -> None:
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed())
    for model in (wrapped, sl.LinearClassifier()):
        assert_raises(lambda m=model: m.fit(X, Y + 0.5), "continuous")
    assert_raises(lambda: sl.LinearClassifier().fit(torch.from_numpy(X), Y + 0.5), "floats", "0.5")
    wrapped.fit(X, Y)
    assert_raises(lambda: wrapped.frontier(X, Y + 0.5), "floats", "0.5")


@pytest.mark.parametrize("label", [4, -1, 1000])
@ALL_METHODS
def test_labels_that_are_not_columns(make: Make, label: int) -> None:
    y = Y.copy()
    y[5] = label
    parts = (r"y\[5\]", str(label), "0 to 3", "classes=")
    assert_raises(lambda: make().fit(SCORES, y, X), *parts)


@ALL_METHODS
def test_labels_that_are_unknown(make: Make) -> None:
    unknown = np.where(np.arange(40) == 5, "emu", NAMES[Y])
    assert_raises(lambda: make().fit(SCORES, unknown, X), "5 distinct", "4 columns", "classes=")
    assert_raises(lambda: make().fit(SCORES, unknown, X, classes=NAMES), "'emu'", "'ant'")


@ALL_METHODS
def test_invalid_classes(make: Make) -> None:
    assert_raises(lambda: make().fit(SCORES, NAMES[Y], X, classes=NAMES[:3]), "classes.* 3 ", "4")
    repeated = ["ant", "bee", "ant", "dog"]
    assert_raises(
        lambda: make().fit(SCORES, NAMES[Y], X, classes=repeated), "'ant'", "distinct|twice"
    )


# Sizes, costs and cost weights


@ALL_METHODS
def test_sizes_above_the_number_of_classes(make: Make) -> None:
    assert_raises(lambda: make(family=sl.TopK([1, 2, 8])).fit(SCORES, Y, X), "size 8", "4 classes")


def test_sizes_that_do_not_increase() -> None:
    assert_raises(lambda: sl.TopK([2, 1, 4]), "increase", r"\[2, 1, 4\]")
    assert_raises(lambda: sl.TopK([]), "at least one")
    assert_raises(lambda: sl.TopK([0, 1]), "0")


@pytest.mark.parametrize("weight", [-0.1, np.nan, np.inf, "much", None])
def test_invalid_cost_weights(weight: object) -> None:
    assert_raises(
        lambda: selector(cost_weight=weight).fit(SCORES, Y, X), "cost_weight", str(weight)
    )
    assert_raises(
        lambda: path(cost_weights=[0.1, weight]).fit(SCORES, Y, X), "cost_weight", str(weight)
    )


@TRAINED_METHODS
def test_invalid_costs(make: Make) -> None:
    assert_raises(lambda: make(cost="cubic").fit(SCORES, Y, X), "'cubic'", "'log'", "'linear'")
    assert_raises(
        lambda: make(cost={1: 2.0, 2: 1.0, 4: 3.0}).fit(SCORES, Y, X), "decrease", "2", "1"
    )
    assert_raises(lambda: make(cost=lambda s: -s).fit(SCORES, Y, X), "negative", "-1")
    assert_raises(lambda: make(cost={1: 0.0}).fit(SCORES, Y, X), "no entry for size 2")


# Constructor parameters


@pytest.mark.parametrize(
    ("parameter", "value", "parts"),
    [
        ("loss", "logg", ("logg", "'log'", "squared_hinge")),
        ("loss", 3, ("loss", "3")),
        ("loss", None, ("loss", "None")),
        ("inputs", "pixels", ("inputs", "'pixels'", "'features'", "'scores'", "'both'")),
        ("score_type", "odds", ("score_type", "'odds'", "'logits'", "'proba'")),
        ("dtype", "float16", ("dtype", "'float16'", "float32")),
        ("clip_norm", "some", ("clip_norm", "'some'", "auto")),
        ("clip_norm", -1.0, ("clip_norm", "-1.0", "positive")),
        ("width", 0, ("width", "0", "at least 1")),
        ("score_depth", 0, ("score_depth", "0", "at least 1")),
        ("learning_rate", -1e-3, ("learning_rate", "-0.001", "positive")),
        ("batch_size", 0, ("batch_size", "0", "at least 1")),
        ("max_epochs", 0, ("max_epochs", "0", "at least 1")),
        ("validation_fraction", 1.5, ("validation_fraction", "1.5")),
        ("q", 1.5, ("q", "1.5")),
        ("progress", "maybe", ("progress", "'maybe'", "auto")),
        ("random_state", -1, ("random_state", "-1")),
    ],
)
@TRAINED_METHODS
def test_invalid_parameters(
    make: Make, parameter: str, value: object, parts: tuple[str, ...]
) -> None:
    loss = {"loss": "gce"} if parameter == "q" else {}
    assert_raises(lambda: make(**(loss | {parameter: value})).fit(SCORES, Y, X), *parts)


def test_invalid_parameters_of_classifiers() -> None:
    assert_raises(lambda: sl.LinearClassifier("logg").fit(X, Y), "logg", "'log'")
    assert_raises(lambda: sl.LinearClassifier(max_epochs=0).fit(X, Y), "max_epochs", "0")
    assert_raises(lambda: fixed(score_type="odds").fit(SCORES, Y), "'odds'", "'logits'")
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed(), features="some")
    assert_raises(lambda: wrapped.fit(X, Y), "'some'", "auto", "None")

    class Calibrated(sl.FixedSelector):
        def calibrate(self, scores: object, y: object, features: object = None) -> None: ...

    for share in (0.0, 1.0, -0.5):
        model = sl.ShortlistClassifier(method=Calibrated(), calibration=share)
        assert_raises(lambda m=model: m.fit(X, Y), "calibration", str(share), "between 0 and 1")


# Unfitted models


@ALL_METHODS
def test_unfitted_predictors(make: Make) -> None:
    name = type(make()).__name__
    assert_raises(
        lambda: make().predict_set(SCORES, X), name, "not fitted", "fit", error_type=NotFittedError
    )
    assert_raises(
        lambda: make().frontier(SCORES, Y, X), name, "not fitted", "fit", error_type=NotFittedError
    )


def test_unfitted_classifiers() -> None:
    for model in (sl.LinearClassifier(), sl.ShortlistClassifier()):
        name = type(model).__name__
        for method in ("predict", "predict_proba", "decision_function"):
            assert_raises(
                lambda m=model, f=method: getattr(m, f)(X), name, "fit", error_type=NotFittedError
            )
    assert_raises(
        lambda: sl.ShortlistClassifier().predict_set(X),
        "ShortlistClassifier",
        error_type=NotFittedError,
    )
