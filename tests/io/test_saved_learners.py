"""The user's classifiers in the first stage of the Shortlister are saved, if they are trusted."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from zoo import LEARNER, NEW, NEW_X, PARITY, SCORES, X

import shortlist as sl
from shortlist.io import archive, estimators
from shortlist.io import learners as module
from shortlist.io.models import digest
from shortlist.io.persistence import ModelFileError
from shortlist.predictors.shortlister.opinions import LearnerOpinion

pytestmark = pytest.mark.filterwarnings("ignore:learners = :UserWarning")


class OwnClassifier(RandomForestClassifier):
    """A classifier that is not one of scikit-learn."""


def fitted(*learners: object) -> sl.Shortlister:
    model = sl.Shortlister(effort="fast", folds=2, rescore=True, learners=list(learners))
    model.fit(SCORES, PARITY, X)
    assert learner_opinions(model)
    return model


def learner_opinions(model: sl.Shortlister) -> list[LearnerOpinion]:
    assert model.score_.rescorer_ is not None
    return [o for o in model.score_.rescorer_.opinions if isinstance(o, LearnerOpinion)]


@pytest.fixture(scope="module")
def model() -> sl.Shortlister:
    return fitted(LEARNER)


def test_a_loaded_model_predicts_the_same(tmp_path, model):
    model.save(tmp_path / "m")
    loaded = sl.load(tmp_path / "m")
    assert loaded.predict_set(NEW, NEW_X, accuracy=0.8) == model.predict_set(
        NEW, NEW_X, accuracy=0.8
    )
    assert loaded.learners is None
    assert digest(loaded) == digest(model)
    loaded.save(tmp_path / "again")
    assert digest(sl.load(tmp_path / "again")) == digest(model)


def test_several_learners(tmp_path):
    model = fitted(LEARNER, DecisionTreeClassifier(min_samples_leaf=10, random_state=0))
    loaded = sl.load(model.save(tmp_path / "m"))
    assert len(learner_opinions(loaded)) == len(learner_opinions(model))
    after, before = (m.rescored(NEW, NEW_X).scores_of(slice(None)) for m in (loaded, model))
    np.testing.assert_allclose(after, before, rtol=1e-4)


def test_a_classifier_of_ones_own_is_not_saved(tmp_path):
    model = fitted(OwnClassifier(30, min_samples_leaf=3, random_state=0))
    with pytest.raises(ValueError, match=r"fitted learners .* cannot be saved .*OwnClassifier"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_set(NEW, NEW_X) == model.predict_set(NEW, NEW_X)


def test_a_classifier_of_ones_own_is_not_loaded(tmp_path, monkeypatch):
    """Such a file can only be forged."""
    model = fitted(OwnClassifier(30, min_samples_leaf=3, random_state=0))
    with monkeypatch.context() as patch:
        patch.setattr(module, "check_archive", lambda data, trusted: (data, []))
        model.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="OwnClassifier"):
        sl.load(tmp_path / "m")


def _forge(change):
    """Return a fitted model whose saved learners are changed by a function."""
    model = fitted(LEARNER)
    for opinion in learner_opinions(model):
        change(opinion)
    return model


def _unknown_class(opinion):
    opinion.estimators[0].classes_ = opinion.estimators[0].classes_ + 3


def _text_classes(opinion):
    opinion.estimators[0].classes_ = opinion.estimators[0].classes_.astype(str)


def _one_learner(opinion):
    del opinion.estimators[1:]


def _no_learner(opinion):
    opinion.estimators.clear()


def _other_features(opinion):
    opinion.estimators[0] = clone(LEARNER).fit(X[:, :4], PARITY)


def _transformer(opinion):
    from sklearn.preprocessing import StandardScaler

    opinion.estimators[0] = StandardScaler().fit(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_unknown_class, "other classes than indices below 6"),
        (_text_classes, "other classes than indices below 6"),
        (_one_learner, "fewer learners than folds"),
        (_no_learner, "list of classifiers"),
        (_other_features, "learners with other features"),
        (_transformer, "StandardScaler, which computes no probabilities"),
    ],
)
def test_forged_learners_are_not_loaded(tmp_path, change, message):
    _forge(change).save(tmp_path / "m")
    with pytest.raises(ModelFileError, match=message):
        sl.load(tmp_path / "m")


def test_a_damaged_archive_is_not_loaded(model):
    fields = module.dump_learners(learner_opinions(model)[0])
    archive = fields["archive"].copy()
    archive[: len(archive) // 2] = 0
    with pytest.raises(ModelFileError, match="cannot be read"):
        module.load_learners(archive, 6)


@pytest.mark.parametrize("failures", [1, 4, 5])
def test_a_system_error_of_the_interpreter_is_tried_again(tmp_path, monkeypatch, model, failures):
    """Python 3.11 can raise one if several threads parse the headers of arrays."""
    folder, calls = model.save(tmp_path / "model"), []

    def check_archive(*arguments):
        calls.append(arguments)
        if len(calls) <= failures:
            raise SystemError("AST constructor recursion depth mismatch")
        return archive.check_archive(*arguments)

    monkeypatch.setattr(estimators, "check_archive", check_archive)
    if failures < estimators.ATTEMPTS:
        assert digest(sl.load(folder)) == digest(model)
    else:
        with pytest.raises(ModelFileError, match="recursion depth"):
            sl.load(folder)
