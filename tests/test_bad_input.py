"""Bad input: every complaint repeats what came in and says what to do about it."""

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
    changed = array.copy()
    changed[3, 1] = value
    return changed


def selector(**parameters: object) -> sl.CardinalitySelector:
    given: dict[str, object] = {"inputs": "both", "max_epochs": 1, "width": 4}
    return sl.CardinalitySelector(**(given | parameters))  # type: ignore[arg-type]


def path(**parameters: object) -> sl.CardinalityPath:
    given: dict[str, object] = {"cost_weights": [0.1, 0.2], "inputs": "both", "max_epochs": 1}
    return sl.CardinalityPath(**(given | {"width": 4} | parameters))  # type: ignore[arg-type]


def fixed(**parameters: object) -> sl.FixedSelector:
    return sl.FixedSelector(**parameters)  # type: ignore[arg-type]


Make = Callable[..., sl.SetPredictor]
EVERY_METHOD = pytest.mark.parametrize("make", [selector, path, fixed])
LEARNING = pytest.mark.parametrize("make", [selector, path])


def complaint(call: Callable[[], object], *parts: str, of: type[Exception] = ValueError) -> None:
    """The call fails, and its message holds every one of the parts."""
    with pytest.raises(of) as caught:
        call()
    message = str(caught.value)
    for part in parts:
        assert re.search(part, message), f"{part!r} is not in: {message}"


# Values


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@EVERY_METHOD
def test_scores_that_are_not_finite(make: Make, value: float) -> None:
    bad = with_value(SCORES, value)
    told = ("scores", str(value), "row 3, column 1", "finite", "Remove such rows")
    complaint(lambda: make().fit(bad, Y, X), *told)
    complaint(lambda: make().fit(torch.from_numpy(bad), Y, X), *told)
    model = make().fit(SCORES, Y, X)
    complaint(lambda: model.predict_set(bad, X), *told)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@LEARNING
def test_features_that_are_not_finite(make: Make, value: float) -> None:
    bad = with_value(X, value)
    told = ("features", str(value), "row 3, column 1", "finite")
    complaint(lambda: make().fit(SCORES, Y, bad), *told)
    model = make(cost_weight=0.1).fit(SCORES, Y, X)
    complaint(lambda: model.predict_set(SCORES, bad), *told)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_classifiers_refuse_them_too(value: float) -> None:
    bad = with_value(X, value)
    h = sl.LinearClassifier(max_epochs=1).fit(X, Y)
    for x in (bad, torch.from_numpy(bad)):
        complaint(lambda x=x: sl.LinearClassifier().fit(x, Y), "(?i)nan|inf")
        complaint(lambda x=x: h.predict(x), "(?i)nan|inf")
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed())
    complaint(lambda: wrapped.fit(bad, Y), "(?i)nan|inf")
    wrapped.fit(X, Y)
    complaint(lambda: wrapped.predict_set(bad), "(?i)nan|inf")


# Shapes


@EVERY_METHOD
def test_empty_arrays(make: Make) -> None:
    complaint(lambda: make().fit(np.zeros((0, 4)), [], np.zeros((0, 3))), "empty", r"\(0, 4\)")
    complaint(lambda: make().fit(np.zeros((5, 0)), Y[:5], X[:5]), "empty", r"\(5, 0\)")
    model = make().fit(SCORES, Y, X)
    complaint(lambda: model.predict_set(np.zeros((0, 4)), np.zeros((0, 3))), "empty", r"\(0, 4\)")


@LEARNING
def test_no_features_at_all(make: Make) -> None:
    complaint(lambda: make().fit(SCORES, Y, np.zeros((40, 0))), "features", r"\(40, 0\)")


def test_empty_arrays_for_classifiers() -> None:
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed())
    for model in (sl.LinearClassifier(), wrapped):
        complaint(lambda m=model: m.fit(np.zeros((0, 3)), []), "0|none|empty")
    complaint(lambda: sl.LinearClassifier().fit(torch.zeros(0, 3), []), "empty", r"\(0, 3\)")


@EVERY_METHOD
def test_scores_of_one_class(make: Make) -> None:
    complaint(
        lambda: make().fit(SCORES[:, :1], np.zeros(40, int), X), r"\(40, 1\)", "one class", "two"
    )


def test_labels_of_one_class() -> None:
    same = np.full(40, "cat")
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed())
    complaint(lambda: wrapped.fit(X, same), "one class only", "'cat'", "at least two")
    complaint(lambda: sl.LinearClassifier().fit(X, same), "only one class", "'cat'", "two")
    complaint(lambda: sl.LinearClassifier().fit(torch.from_numpy(X), same), "'cat'", "two")


@EVERY_METHOD
def test_labels_of_another_length(make: Make) -> None:
    complaint(lambda: make().fit(SCORES, Y[:7], X), "7 labels", "40 rows")
    complaint(lambda: make().fit(SCORES, Y[:, None], X), "one label for each row", r"\(40, 1\)")
    model = make().fit(SCORES, Y, X)
    complaint(lambda: model.frontier(SCORES, Y[:7], X), "7 labels", "40 rows")


def test_labels_of_another_length_for_classifiers() -> None:
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed())
    for model in (wrapped, sl.LinearClassifier()):
        complaint(lambda m=model: m.fit(X, Y[:7]), "40", "7", "inconsistent")
    complaint(lambda: sl.LinearClassifier().fit(torch.from_numpy(X), Y[:7]), "40 rows", "7 labels")
    complaint(
        lambda: wrapped.fit(X, Y, sample_weight=np.ones(7)), "sample_weight", r"\(40,\)", r"\(7,\)"
    )


@EVERY_METHOD
def test_scores_of_another_shape(make: Make) -> None:
    complaint(lambda: make().fit(SCORES[0], Y, X), "scores", r"\(rows, classes\)", r"\(4,\)")
    complaint(lambda: make().fit(SCORES[None], Y, X), r"\(1, 40, 4\)")
    complaint(lambda: make().fit([["a", "b"]] * 40, Y, X), "scores must hold numbers")
    model = make().fit(SCORES, Y, X)
    complaint(lambda: model.predict_set(SCORES[:, :3], X), "3 classes", "fit saw 4", "each")


@LEARNING
def test_features_of_another_shape(make: Make) -> None:
    complaint(lambda: make().fit(SCORES, Y, X[:9]), "features have 9 rows", "40")
    complaint(lambda: make().fit(SCORES, Y, X[:, 0]), "features", r"\(40,\)")
    model = make(cost_weight=0.1).fit(SCORES, Y, X)
    complaint(lambda: model.predict_set(SCORES, X[:9]), "features have 9 rows", "40")
    complaint(lambda: model.predict_set(SCORES, X[:, :2]), "2 columns", "fit saw 3", "same")
    complaint(lambda: model.frontier(SCORES, Y, X[:, :2]), "2 columns", "fit saw 3")


def test_features_of_another_shape_for_classifiers() -> None:
    h = sl.LinearClassifier(max_epochs=1).fit(X, Y)
    complaint(lambda: h.predict(X[:, :2]), "2 features", "expecting 3")
    complaint(lambda: h.predict(torch.from_numpy(X[:, :2])), "2 columns", "fit saw 3")
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed()).fit(X, Y)
    complaint(lambda: wrapped.predict_set(X[:, :2]), "2 features", "expecting 3")
    complaint(lambda: wrapped.predict_set(X[0]), "Reshape your data")


@LEARNING
def test_features_that_are_missing(make: Make) -> None:
    complaint(lambda: make().fit(SCORES, Y), 'inputs = "both"', "features=X", 'inputs="scores"')
    model = make(cost_weight=0.1).fit(SCORES, Y, X)
    complaint(lambda: model.predict_set(SCORES), "features are missing", "3", r"features=\.\.\.")
    complaint(lambda: model.frontier(SCORES, Y), "features are missing")
    # Also where nothing was learned: what fails once must not work by chance.
    free = make(family=sl.TopK([1]), cost_weight=0.1).fit(SCORES, Y, X)
    complaint(lambda: free.predict_set(SCORES), "features are missing")


@LEARNING
def test_sparse_features(make: Make) -> None:
    sparse = scipy.sparse.csr_array(X)
    complaint(lambda: make().fit(SCORES, Y, sparse), "sparse", r"\(40, 3\)", "toarray")


# Labels


@EVERY_METHOD
def test_float_labels(make: Make) -> None:
    complaint(lambda: make().fit(SCORES, Y + 0.5, X), "y holds floats", "0.5")
    whole = torch.from_numpy(Y).float()
    complaint(lambda: make().fit(SCORES, whole, X), "y holds floats", r"astype\(int\)")
    model = make().fit(SCORES, Y, X)
    complaint(lambda: model.frontier(SCORES, Y + 0.5, X), "y holds floats", "0.5")


def test_float_labels_for_classifiers() -> None:
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed())
    for model in (wrapped, sl.LinearClassifier()):
        complaint(lambda m=model: m.fit(X, Y + 0.5), "continuous")
    complaint(lambda: sl.LinearClassifier().fit(torch.from_numpy(X), Y + 0.5), "floats", "0.5")
    wrapped.fit(X, Y)
    complaint(lambda: wrapped.frontier(X, Y + 0.5), "floats", "0.5")


@pytest.mark.parametrize("label", [4, -1, 1000])
@EVERY_METHOD
def test_numbers_that_are_no_columns(make: Make, label: int) -> None:
    y = Y.copy()
    y[5] = label
    told = (r"y\[5\]", str(label), "0 to 3", "classes=")
    complaint(lambda: make().fit(SCORES, y, X), *told)
    model = make().fit(SCORES, Y, X)
    complaint(lambda: model.frontier(SCORES, y, X), *told[:3])


@EVERY_METHOD
def test_names_that_fit_never_saw(make: Make) -> None:
    model = make().fit(SCORES, NAMES[Y], X)
    strange = np.where(np.arange(40) == 5, "emu", NAMES[Y])
    complaint(lambda: model.frontier(SCORES, strange, X), r"y\[5\]", "'emu'", "'ant'", "'dog'")
    complaint(lambda: make().fit(SCORES, strange, X), "5 distinct", "4 columns", "classes=")
    complaint(lambda: make().fit(SCORES, strange, X, classes=NAMES), "'emu'", "'ant'")


@EVERY_METHOD
def test_classes_that_do_not_fit(make: Make) -> None:
    complaint(lambda: make().fit(SCORES, NAMES[Y], X, classes=NAMES[:3]), "classes.* 3 ", "4")
    twice = ["ant", "bee", "ant", "dog"]
    complaint(lambda: make().fit(SCORES, NAMES[Y], X, classes=twice), "'ant'", "distinct|twice")


def test_classes_that_the_wrapped_classifier_never_saw() -> None:
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed()).fit(X, NAMES[Y])
    strange = np.where(np.arange(40) == 5, "emu", NAMES[Y])
    complaint(lambda: wrapped.frontier(X, strange), "'emu'", "'ant'")


# Sizes, costs, lambdas


@EVERY_METHOD
def test_sizes_above_the_number_of_classes(make: Make) -> None:
    complaint(lambda: make(family=sl.TopK([1, 2, 8])).fit(SCORES, Y, X), "size 8", "4 classes")


def test_sizes_that_do_not_increase() -> None:
    complaint(lambda: sl.TopK([2, 1, 4]), "increase", r"\[2, 1, 4\]")
    complaint(lambda: sl.TopK([]), "at least one")
    complaint(lambda: sl.TopK([0, 1]), "0")


@pytest.mark.parametrize("weight", [-0.1, np.nan, np.inf, "much", None])
def test_lambdas_that_cannot_be(weight: object) -> None:
    complaint(lambda: selector(cost_weight=weight).fit(SCORES, Y, X), "cost_weight", str(weight))
    complaint(
        lambda: path(cost_weights=[0.1, weight]).fit(SCORES, Y, X), "cost_weight", str(weight)
    )


@LEARNING
def test_costs_that_cannot_be(make: Make) -> None:
    complaint(lambda: make(cost="cubic").fit(SCORES, Y, X), "'cubic'", "'log'", "'linear'")
    complaint(lambda: make(cost={1: 2.0, 2: 1.0, 4: 3.0}).fit(SCORES, Y, X), "decrease", "2", "1")
    complaint(lambda: make(cost=lambda s: -s).fit(SCORES, Y, X), "negative", "-1")
    complaint(lambda: make(cost={1: 0.0}).fit(SCORES, Y, X), "no entry for size 2")


# Names and numbers of the constructor


@pytest.mark.parametrize(
    ("parameter", "value", "told"),
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
@LEARNING
def test_parameters_that_make_no_sense(
    make: Make, parameter: str, value: object, told: tuple[str, ...]
) -> None:
    loss = {"loss": "gce"} if parameter == "q" else {}
    complaint(lambda: make(**(loss | {parameter: value})).fit(SCORES, Y, X), *told)


def test_parameters_of_classifiers_that_make_no_sense() -> None:
    complaint(lambda: sl.LinearClassifier("logg").fit(X, Y), "logg", "'log'")
    complaint(lambda: sl.LinearClassifier(max_epochs=0).fit(X, Y), "max_epochs", "0")
    complaint(lambda: fixed(score_type="odds").fit(SCORES, Y), "'odds'", "'logits'")
    wrapped = sl.ShortlistClassifier(LogisticRegression(), method=fixed(), features="some")
    complaint(lambda: wrapped.fit(X, Y), "'some'", "auto", "None")

    class Calibrated(sl.FixedSelector):
        def calibrate(self, scores: object, y: object, features: object = None) -> None: ...

    for share in (0.0, 1.0, -0.5):
        model = sl.ShortlistClassifier(method=Calibrated(), calibration=share)
        complaint(lambda m=model: m.fit(X, Y), "calibration", str(share), "between 0 and 1")


# Too early


@EVERY_METHOD
def test_unfitted_use(make: Make) -> None:
    name = type(make()).__name__
    complaint(lambda: make().predict_set(SCORES, X), name, "not fitted", "fit", of=NotFittedError)
    complaint(lambda: make().frontier(SCORES, Y, X), name, "not fitted", "fit", of=NotFittedError)


def test_unfitted_use_of_classifiers() -> None:
    for model in (sl.LinearClassifier(), sl.ShortlistClassifier()):
        name = type(model).__name__
        for method in ("predict", "predict_proba", "decision_function"):
            complaint(lambda m=model, f=method: getattr(m, f)(X), name, "fit", of=NotFittedError)
    complaint(
        lambda: sl.ShortlistClassifier().predict_set(X), "ShortlistClassifier", of=NotFittedError
    )
