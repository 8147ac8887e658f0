"""Parameters and messages of the scikit-learn wrapper name what the wrapper has."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import shortlist as sl
from shortlist.conformal import LAC, Marginal, UnreachableError

RNG = np.random.default_rng(0)
Y = np.arange(200) % 4
X = RNG.normal(size=(200, 3)) + Y[:, None]
NAMES = np.array(["ant", "bee", "cat", "dog"])
INTERNAL = (
    "Shortlister",
    "SplitConformal",
    "ConformalPredictor",
    "Score",
    "(scores, y",
    "set_params",
)
METHODS = [
    sl.Shortlister(rescore=False, learn_sizes=False),
    sl.SplitConformal("lac"),
    sl.ConformalPredictor(LAC(), Marginal()),
]


def wrap(method: sl.SetPredictor | None = None, **parameters: object) -> sl.ShortlistClassifier:
    return sl.ShortlistClassifier(GaussianNB(), method=method or METHODS[1], **parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_sets_of_every_label_by_a_parameter_of_the_wrapper(method: sl.SetPredictor) -> None:
    model = wrap(method).fit(X, Y)
    with pytest.raises(
        UnreachableError, match=r'or every label, with on_unreachable="all"$'
    ) as error:
        model.predict_set(X, accuracy=0.9999)
    assert not any(word in str(error.value) for word in INTERNAL)
    model.set_params(on_unreachable="all")
    assert model.predict_set(X, accuracy=0.9999).mean_size == 4
    (sets,) = model.predict_sets(X, accuracies=[0.9999])
    assert sets.mean_size == 4
    model.set_params(on_unreachable=None)  # The method itself was not changed.
    with pytest.raises(UnreachableError):
        model.predict_set(X, accuracy=0.9999)
    assert clone(model).set_params(by="class").by == "class"


def test_the_guarantee_for_each_class_by_a_parameter_of_the_wrapper() -> None:
    model = wrap(by="class").fit(X, Y)
    by_class = model.predict_set(X, accuracy=0.8)
    assert "for each class" in str(by_class.guarantee)
    assert "for each class" not in str(model.predict_set(X, accuracy=0.8, by="marginal").guarantee)
    assert "for each class" not in str(model.set_params(by=None).predict_set(X).guarantee)


def test_the_number_of_epochs_by_a_parameter_of_the_wrapper() -> None:
    method = sl.CardinalitySelector(inputs="scores")
    model = wrap(method, max_epochs=2).fit(X, Y)
    assert len(model.method_.history_.loss) <= 2  # type: ignore[attr-defined]
    assert method.max_epochs == 50


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"on_unreachable": "some"}, "on_unreachable must be one of 'raise', 'all'; got 'some'"),
        (
            {"max_epochs": 3},
            "max_epochs = 3, but the method .* has no such parameter; leave it out",
        ),
    ],
)
def test_invalid_parameters_raise(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap(**parameters).fit(X, Y)


def test_an_operating_point_that_the_method_does_not_have() -> None:
    model = wrap(sl.FixedSelector(sl.TopK([1]))).fit(X, Y)
    with pytest.raises(
        ValueError, match=r"accuracy = 0.9 was given, but this method takes no oper"
    ):
        model.predict_set(X, accuracy=0.9)
    model = wrap().fit(X, Y)
    with pytest.raises(ValueError, match=r"takes accuracy, delta, mean_size, cost_weight or by"):
        model.predict_set(X, acuracy=0.9)
    with pytest.raises(
        ValueError, match="not cost weights; give an accuracy or a mean_size"
    ) as error:
        model.predict_set(X, cost_weight=0.1)
    assert not any(word in str(error.value) for word in INTERNAL)


def test_a_model_without_calibration() -> None:
    fitted = GaussianNB().fit(X, Y)
    method = sl.SplitConformal("lac", calibration=None).fit(fitted.predict_proba(X), Y)
    model = sl.ShortlistClassifier.from_fitted(fitted, method)
    with pytest.raises(ValueError, match="call calibrate with rows of their own") as error:
        model.predict_set(X)
    assert not any(word in str(error.value) for word in INTERNAL)


def test_missing_labels() -> None:
    for missing in (None, np.nan):
        y = NAMES[Y].astype(object)
        y[3] = missing
        for labels in (y, y.tolist()):
            with pytest.raises(ValueError, match=r"y is missing in row 3; leave such rows out"):
                wrap().fit(X, labels)
    mixed = NAMES[Y].astype(object)
    mixed[3] = 7
    with pytest.raises(ValueError, match=r"y holds labels of types that cannot be sorted"):
        wrap().fit(X, mixed)


def test_warnings_about_labels_of_calibration_rows_count_no_rows_of_a_split() -> None:
    y = NAMES[Y].astype(object)
    y[:3] = ["elk", "fox", "gnu"]  # Some of them are held out.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrap().fit(X, y)
    (message,) = [str(w.message) for w in caught if "does not know" in str(w.message)]
    assert "y[" not in message
    assert "classes=" not in message
    with pytest.raises(ValueError, match=r"y\[0\] = 77 is not one of the classes 0 to 3$"):
        wrap().fit(X, Y).calibrate(X[:3], [77] * 3)


def test_single_precision_after_double_precision_keeps_the_guarantee() -> None:
    """Scores of float32 rows round differently; the calibration allows for it, without a warning.

    A threshold is lowered by more than the rounding, so that a label at the threshold stays.
    """
    rng = np.random.default_rng(1)
    x = rng.normal(size=(6000, 3)) * 3 + (np.arange(6000) % 4)[:, None]
    y = np.arange(6000) % 4
    model = sl.ShortlistClassifier(LogisticRegression(), method=sl.SplitConformal("lac"))
    model.fit(x[:2000], y[:2000])
    model.calibrate(x[2000:], y[2000:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        single = model.predict_set(x[2000:].astype(np.float32), accuracy=0.9)
    # Even on the calibration rows themselves, where labels are at the threshold.
    assert single.accuracy(y[2000:]) >= 0.9
