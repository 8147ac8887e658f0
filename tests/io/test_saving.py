"""Test that models are the same after saving and loading."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from torch import nn
from zoo import FIT, FIXTURES, NEW, NEW_X, SCORES, TEST, ZOO, X, Y, _ranking

import shortlist as sl
from shortlist.io.formats.registry import MODEL_FORMATS
from shortlist.io.persistence import ModelFileError
from shortlist.predictors.shortlister.rescoring import ROUNDING

MODELS = Path(__file__).parent / "models"


@pytest.fixture(scope="module")
def zoo() -> dict[str, object]:
    return {name: entry.fit_model() for name, entry in ZOO.items()}


def equal(a: object, b: object) -> bool:
    if isinstance(a, tuple):
        return all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else a == b


# Round trips


def test_every_type_of_model_is_in_the_zoo(zoo):
    assert {type(model) for model in zoo.values()} == set(MODEL_FORMATS)


@pytest.mark.parametrize("name", ZOO)
def test_a_loaded_model_predicts_the_same(zoo, name, tmp_path):
    model = zoo[name]
    before = ZOO[name].predict(model)
    folder = model.save(tmp_path / "new" / "model")
    again = sl.load(folder)
    assert type(again) is type(model)
    assert equal(ZOO[name].predict(again), before)
    assert equal(ZOO[name].predict(model), before)  # Saving does not change the model.
    assert np.array_equal(again.classes_, model.classes_)
    assert again.classes_.dtype == model.classes_.dtype
    # A loaded model can be saved again.
    assert equal(ZOO[name].predict(sl.load(again.save(tmp_path / "third"))), before)


@pytest.mark.parametrize("name", [n for n in ZOO if not n.startswith("classifier")])
def test_a_loaded_model_has_the_same_parameters(zoo, name, tmp_path):
    model = zoo[name]
    again = sl.load(model.save(tmp_path / "model"))
    before, after = model.get_params(), again.get_params()
    assert {k: repr(v) for k, v in before.items()} == {k: repr(v) for k, v in after.items()}
    clone(again)


def test_a_loaded_model_can_be_calibrated_and_evaluated(zoo, tmp_path):
    model = sl.load(zoo["shortlister"].save(tmp_path / "model"))
    curve = model.frontier(NEW, TEST.y, NEW_X)
    assert np.array_equal(
        curve.mean_size, zoo["shortlister"].frontier(NEW, TEST.y, NEW_X).mean_size
    )
    model.calibrate(NEW, TEST.y, NEW_X)
    assert "300 calibration rows" in str(model.predict_set(NEW, NEW_X, accuracy=0.9).guarantee)
    with pytest.warns(UserWarning, match="among those that fit learned"):
        model.calibrate(SCORES, Y, X)  # The training rows are recognized.
    p = sl.load(zoo["raps"].save(tmp_path / "raps")).p_values(NEW)
    assert np.array_equal(p, zoo["raps"].p_values(NEW))


def test_a_loaded_model_has_the_same_out_of_fold_scores(tmp_path):
    model = sl.Shortlister(calibration=None, rescore=True, max_epochs=2, width=8, folds=2)
    model.fit(SCORES, Y, X)
    again = sl.load(model.save(tmp_path / "model"))
    one, two = (m.out_of_fold(SCORES, X).top(6)[1] for m in (model, again))
    assert torch.equal(one, two)


@pytest.mark.parametrize("listed", [False, True])
def test_every_opinion_comes_back(tmp_path, monkeypatch, listed):
    monkeypatch.setattr("shortlist.predictors.shortlister.pool.MIN_GAIN", -np.inf)
    extra = {"extra_features": FIT.x, "extra_y": FIT.y}
    scores = _ranking(SCORES) if listed else SCORES
    model = sl.Shortlister(calibration=None, rescore=True, max_epochs=2, width=8, folds=2)
    model.fit(scores, Y, X, **extra)
    opinions = model.score_.rescorer_.opinions
    names = ["GivenScores", "Neighbors", "NetworkOpinion", *([] if listed else ["ScaledScores"])]
    assert {type(opinion).__name__ for opinion in opinions} == set(names)
    assert {opinion.extra for opinion in opinions if hasattr(opinion, "extra")} == {False, True}
    again = sl.load(model.save(tmp_path / "model"))
    new = _ranking(NEW) if listed else NEW
    rescored = [np.asarray(m.rescored(new, NEW_X).scores) for m in (model, again)]
    np.testing.assert_allclose(*rescored, atol=ROUNDING)
    one, two = (m.out_of_fold(scores, X, **extra).top(3)[1] for m in (model, again))
    assert torch.equal(one, two)
    with pytest.raises(ValueError, match="fit learned from 200; give the same extra_features"):
        again.out_of_fold(scores, X)


def test_learners_that_were_dropped_are_left_out(tmp_path):
    model = sl.Shortlister(learners=[LogisticRegression()], rescore=False, learn_sizes=False)
    model.fit(SCORES, Y, X)
    with pytest.warns(UserWarning, match="learners = .* is code.*will have learners=None") as seen:
        folder = model.save(tmp_path / "model")
    assert len(seen) == 1
    again = sl.load(folder)
    assert again.learners is None
    assert again.predict_set(NEW, NEW_X) == model.predict_set(NEW, NEW_X)


@pytest.mark.parametrize(
    "classes",
    [
        ["ä", "", "日本", 'q"\\', "</script>", "\ud800"],
        [3, 1, 4, 15, 9, 26],
        [("a", 1), ("a", 2), ("b", 1), "c", 5, None],
        ["no", "yes", "x", 2.5, -1, ""],
        np.array(["2020-01-01", "2021-01-01", "2022-01-01", "2023-01-01", "2024-01-01", "NaT"],
                 dtype="datetime64[D]"),
    ],
    ids=["text", "numbers", "mixed", "odd", "dates"],
)  # fmt: skip
def test_classes_of_any_type(classes, tmp_path):
    values = list(classes)
    model = sl.SplitConformal("lac").fit(SCORES, [values[i] for i in Y], classes=values)
    again = sl.load(model.save(tmp_path / "model"))
    assert again.predict_set(NEW).labels() == model.predict_set(NEW).labels()
    assert again._classes == model._classes


def test_a_cost_that_is_a_function_becomes_its_table(tmp_path):
    model = sl.Shortlister(cost=lambda size: size**0.5).fit(SCORES, Y)
    again = sl.load(model.save(tmp_path / "model"))
    assert again.cost == pytest.approx(np.sqrt([1, 2, 3, 4, 5, 6]).tolist())
    for point in ({"accuracy": 0.9}, {"cost_weight": 0.1}):
        assert again.predict_set(NEW, **point).labels() == model.predict_set(NEW, **point).labels()


class Doubled(nn.Module):
    def forward(self, scores, costs):
        return 2 * (scores * costs).sum(-1)


@pytest.mark.parametrize(
    ("own", "default"),
    [
        ({"loss": Doubled()}, {"loss": "log"}),
        ({"network": lambda n, k: nn.Sequential(nn.Linear(n, k))}, {"network": None}),
    ],
    ids=["loss", "network"],
)
def test_code_that_only_a_fit_needs_is_left_out_with_a_warning(own, default, tmp_path):
    model = sl.CardinalitySelector(sl.TopK([1, 2, 4]), max_epochs=2, **own).fit(SCORES, Y, X)
    with pytest.warns(UserWarning, match=f"{next(iter(own))} = .* is code"):
        model.save(tmp_path / "model")
    again = sl.load(tmp_path / "model")
    assert {k: again.get_params()[k] for k in default} == default
    assert again.predict_set(NEW, NEW_X).labels() == model.predict_set(NEW, NEW_X).labels()


class Squared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 3)

    def forward(self, x):
        return self.inner(x) ** 2


def test_code_that_prediction_needs_is_refused(tmp_path):
    model = sl.CardinalitySelector(sl.TopK([1, 2, 4]), max_epochs=2, network=Squared())
    model.fit(SCORES, Y, X)
    with pytest.raises(ValueError, match=r"cannot be saved.*Squared"):
        model.save(tmp_path / "model")
    clf = sl.ShortlistClassifier(features=lambda x: x, method=sl.SplitConformal()).fit(FIT.x, FIT.y)
    with pytest.raises(ValueError, match="features is a function"):
        clf.save(tmp_path / "model")
    custom = sl.Custom(1, sizes=None, hits=None, members=None)
    fixed = sl.FixedSelector(sl.TopK([1])).fit(SCORES, Y)
    fixed.family_ = custom
    with pytest.raises(ValueError, match="Custom"):
        fixed.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_models_that_are_not_fitted_or_of_other_types_are_refused(tmp_path):
    with pytest.raises(NotFittedError, match="fit it, then save it"):
        sl.Shortlister().save(tmp_path / "model")
    with pytest.raises(ValueError, match="LogisticRegression cannot be saved"):
        sl.save(LogisticRegression(), tmp_path / "model")


def test_models_stay_picklable_too(zoo):
    for name, model in zoo.items():
        again = pickle.loads(pickle.dumps(model))
        assert equal(ZOO[name].predict(again), ZOO[name].predict(model)), name


# scikit-learn inside


class Mine(ClassifierMixin, BaseEstimator):
    """A classifier of the user."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.tile(np.linspace(1, 2, len(self.classes_)) / 9, (len(X), 1))


def test_types_of_the_user_must_be_trusted(tmp_path):
    clf = sl.ShortlistClassifier(Mine(), method=sl.SplitConformal("lac")).fit(FIT.x, FIT.y)
    clf.save(tmp_path / "model")
    name = f"{Mine.__module__}.Mine"
    with pytest.raises(ModelFileError, match=re.escape(f"trusted=['{name}']")):
        sl.load(tmp_path / "model")
    again = sl.load(tmp_path / "model", trusted=[name])
    assert again.predict_set(NEW_X).labels() == clf.predict_set(NEW_X).labels()


def test_the_parameter_estimator_is_saved_with_the_fitted_classifier(zoo, tmp_path):
    again = sl.load(zoo["classifier"].save(tmp_path / "model"))
    assert repr(again.estimator) == repr(zoo["classifier"].estimator)
    assert not hasattr(again.estimator.steps[-1][1], "coef_")
    again.fit(FIT.x, FIT.y)


# Models that were written by earlier versions


@pytest.mark.parametrize("name", FIXTURES)
def test_models_of_earlier_versions_load(name):
    """`python tests/io/keep.py` adds models. Existing ones must not be changed."""
    for folder in sorted(MODELS.glob(f"v*/{name}")):
        model = sl.load(folder)
        expected = json.loads((folder.parent / f"{name}.json").read_text())
        predictions = json.loads(json.dumps(ZOO[name].predict(model), default=lambda a: a.tolist()))
        assert predictions[:1] == expected[:1], folder
    assert list(MODELS.glob(f"v*/{name}"))
