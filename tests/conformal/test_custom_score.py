"""A score and a calibrator that are defined outside the package."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from sklearn.base import clone
from synthetic import as_score_type, draw

import shortlist as sl
from shortlist.conformal import (
    CALIBRATORS,
    SCORES,
    Calibrator,
    ConformityScore,
    Thresholds,
    quantile_rank,
    register_calibrator,
    register_score,
)


class Entropic(ConformityScore):
    """The probability of a label, discounted by the entropy of its row."""

    name = "entropic"

    def __init__(self, discount: float = 0.1) -> None:
        self.discount = discount

    def levels(self, ranking, features=None):  # type: ignore[no-untyped-def]
        p = ranking.sorted_proba()
        entropy = -(p * p.clamp(min=1e-12).log()).sum(dim=1, keepdim=True)
        return p - self.discount * entropy


class Learned(ConformityScore):
    """A score that learns one number from rows that are not used for calibration."""

    name = "learned"

    def fit(self, ranking, y, features=None):  # type: ignore[no-untyped-def]
        self.power_ = float(1 + (ranking.rank_of(y) == 0).to(torch.float64).mean())
        return self

    def levels(self, ranking, features=None):  # type: ignore[no-untyped-def]
        return ranking.sorted_proba() ** self.power_


class Penalized(ConformityScore):
    """The probability of a label, minus a fixed penalty for each rank after `k_reg`."""

    name = "penalized"

    def __init__(self, penalty: float = 0.25, k_reg: int = 1) -> None:
        self.penalty = penalty
        self.k_reg = k_reg

    def levels(self, ranking, features=None):  # type: ignore[no-untyped-def]
        p = ranking.sorted_proba()
        ranks = torch.arange(1, ranking.depth + 1, device=p.device)
        return p - self.penalty * (ranks - self.k_reg).clamp(min=0)


class Scaled(ConformityScore):
    """The probability of a label times a factor that has no default."""

    name = "scaled"

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def levels(self, ranking, features=None):  # type: ignore[no-untyped-def]
        return self.factor * ranking.sorted_proba()


SCORES_HERE = [Entropic(), Entropic(discount=0.5), Learned()]
DATA, Y = draw(4000, 8, seed=1)


@pytest.fixture
def registered():  # type: ignore[no-untyped-def]
    before = dict(SCORES), dict(CALIBRATORS)
    yield
    for registry, kept in zip((SCORES, CALIBRATORS), before, strict=True):
        registry.clear()
        registry.update(kept)


@pytest.mark.parametrize("score", SCORES_HERE, ids=str)
@pytest.mark.parametrize("accuracy", [0.8, 0.95])
def test_the_accuracy_is_kept(score, accuracy):
    rng, kept = np.random.default_rng(0), []
    for _ in range(200):
        rows = rng.permutation(len(Y))
        model = sl.ConformalPredictor(clone(score), temperature=None)
        model.fit(DATA[rows[:80]], Y[rows[:80]])
        kept.append(
            model.predict_set(DATA[rows[80:580]], accuracy=accuracy).accuracy(Y[rows[80:580]])
        )
    error = np.std(kept, ddof=1) / np.sqrt(len(kept))
    assert np.mean(kept) >= accuracy - 3 * error
    assert np.mean(kept) <= accuracy + 1 / 40 + 3 * error


@pytest.mark.parametrize("score", SCORES_HERE, ids=str)
def test_a_custom_score_has_all_features(score, tmp_path):
    groups = np.where(DATA[:, 0] > 0, "left", "right")
    model = sl.ConformalPredictor(score).fit(DATA[:2000], Y[:2000], groups=groups[:2000])
    new, labels = DATA[2000:], Y[2000:]
    sets = model.predict_set(new, accuracy=0.9)
    assert sets.guarantee.kind == "marginal"
    assert model.predict_set(new, accuracy=0.9, delta=0.1).mean_size >= sets.mean_size
    by_class = model.predict_set(new, accuracy=0.9, by="class")
    assert by_class.guarantee.conditional_on == "class"
    by_group = model.predict_set(new, accuracy=0.9, by="group", groups=groups[2000:])
    assert by_group.guarantee.conditional_on == "group"
    certified = model.predict_set(new, mean_size=2.0)
    assert certified.guarantee.kind == "certified"
    assert model.predict_sets(new, accuracies=[0.5, 0.9])[1] == sets
    outside = np.asarray(model.p_values(new)) <= 0.1 + 1e-12
    assert np.array_equal(~outside, np.asarray(sets.mask()))
    curve = model.frontier(new, labels)
    assert abs(curve.size_at(sets.accuracy(labels)) - sets.mean_size) < 0.1
    # Memory-mapped scores are read in blocks.
    np.save(tmp_path / "scores.npy", new.astype(np.float32))
    mapped = np.load(tmp_path / "scores.npy", mmap_mode="r")
    assert model.predict_set(mapped, accuracy=0.9) == model.predict_set(
        new.astype(np.float32), accuracy=0.9
    )
    assert clone(model).fit(DATA[:2000], Y[:2000]).predict_set(new, accuracy=0.9) == sets


def test_sets_do_not_depend_on_the_batch():
    model = sl.ConformalPredictor(Entropic()).fit(DATA[:2000], Y[:2000])
    whole = model.predict_set(DATA[2000:2100], accuracy=0.8)
    for i in range(100):
        assert model.predict_set(DATA[2000 + i : 2001 + i], accuracy=0.8)[0] == whole[i]


def test_invalid_scores_raise(tmp_path, registered):
    class Rising(ConformityScore):
        def levels(self, ranking, features=None):  # type: ignore[no-untyped-def]
            return -ranking.sorted_proba()

    class Short(ConformityScore):
        def levels(self, ranking, features=None):  # type: ignore[no-untyped-def]
            return ranking.sorted_proba()[:, :2]

    for score, message in ((Rising(), "levels that increase along a row"), (Short(), "shape (")):
        with pytest.raises(ValueError, match=re.escape(message)):
            sl.ConformalPredictor(score, temperature=None).fit(DATA[:100], Y[:100])
    model = sl.ConformalPredictor(Entropic(0.2)).fit(DATA[:500], Y[:500])
    with pytest.raises(ValueError, match=r"Entropic cannot be saved: .* register it with"):
        model.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"Entropic .*does not implement onnx_levels"):
        model.export_onnx(tmp_path / "model.onnx", accuracy=0.9)
    with pytest.raises(ValueError, match=r"write SplitConformal\('lac'\)"):
        sl.ConformalPredictor("lac").fit(DATA[:100], Y[:100])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no name"):
        register_score(Rising)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({}, (0.25, 1)),
        ({"penalty": "auto", "k_reg": "auto"}, (0.25, 1)),
        ({"penalty": 0.5}, (0.5, 1)),
        ({"penalty": 0.0, "k_reg": 3}, (0.0, 3)),
    ],
)
def test_auto_is_the_default_of_a_score_that_tunes_nothing(registered, given, used):
    register_score(Penalized)
    model = sl.SplitConformal("penalized", **given).fit(DATA[:1000], Y[:1000])
    assert (model.score_.penalty, model.score_.k_reg) == used
    assert not model.is_tuned
    composed = sl.ConformalPredictor(Penalized(*used)).fit(DATA[:1000], Y[:1000])
    assert model.predict_set(DATA[1000:]) == composed.predict_set(DATA[1000:])


def test_a_name_does_not_stand_for_a_score_with_required_parameters(registered):
    register_score(Scaled)
    with pytest.raises(
        ValueError, match=r"needs factor, .*ConformalPredictor\(Scaled\(factor=\.\.\."
    ):
        sl.SplitConformal("scaled").fit(DATA[:100], Y[:100])
    sl.ConformalPredictor(Scaled(factor=2.0)).fit(DATA[:100], Y[:100])


@pytest.mark.parametrize("score", [Entropic(0.2), Learned()], ids=str)
def test_a_registered_score_can_be_saved_and_used_by_name(tmp_path, registered, score):
    register_score(type(score))
    model = sl.ConformalPredictor(score).fit(DATA[:1000], Y[:1000])
    again = sl.load(model.save(tmp_path / "model"))
    assert again.predict_set(DATA[1000:], accuracy=0.8) == model.predict_set(
        DATA[1000:], accuracy=0.8
    )
    named = sl.SplitConformal(score.name).fit(DATA[:1000], Y[:1000])
    assert named.predict_set(DATA[1000:], accuracy=0.8).guarantee.accuracy == 0.8
    del SCORES[score.name]
    with pytest.raises(ValueError, match=f"uses the score '{score.name}', which is not registered"):
        sl.load(tmp_path / "model")

    class Other(ConformityScore):
        name = "lac"

        def levels(self, ranking, features=None):  # type: ignore[no-untyped-def]
            return ranking.sorted_proba()

    with pytest.raises(ValueError, match="the name 'lac' is taken by"):
        register_score(Other)


class Cautious(Calibrator):
    """A calibrator that uses one rank less than the exact one."""

    name = "cautious"

    def threshold(self, accuracy, delta=None):  # type: ignore[no-untyped-def]
        rank = quantile_rank(len(self.levels_), accuracy, delta)
        value = torch.tensor(np.sort(self.levels_)[rank - 2], dtype=torch.float64)
        return Thresholds(value, self.guarantee(accuracy, delta).with_note("cautiously"))


def test_thresholds_must_be_exact():
    guarantee = sl.Guarantee("none")
    with pytest.raises(ValueError, match=r"thresholds must be float64; got torch\.float32"):
        Thresholds(torch.tensor(0.1), guarantee)
    with pytest.raises(ValueError, match="per must be one of 'set', 'class', 'group'; got 'row'"):
        Thresholds(torch.zeros(3, dtype=torch.float64), guarantee, "row")  # type: ignore[arg-type]


def test_a_custom_calibrator(tmp_path, registered):
    scores = as_score_type(DATA, "proba")
    plain = sl.SplitConformal("aps", temperature=None).fit(scores[:500], Y[:500])
    model = sl.ConformalPredictor(sl.conformal.APS(), Cautious(), temperature=None)
    model.fit(scores[:500], Y[:500])
    sets = model.predict_set(scores[500:], accuracy=0.9)
    assert sets.mean_size > plain.predict_set(scores[500:], accuracy=0.9).mean_size
    assert str(sets.guarantee).endswith("by 500 calibration rows; cautiously")
    with pytest.raises(ValueError, match=r"register it with @shortlist\.conformal\.register_calib"):
        model.save(tmp_path / "model")
    register_calibrator(Cautious)
    again = sl.load(model.save(tmp_path / "model"))
    assert again.predict_set(scores[500:], accuracy=0.9) == sets
    # A registered calibrator has a name for `by`, in predictions and as a parameter that is saved.
    assert plain.predict_set(scores[500:], accuracy=0.9, by="cautious") == sets
    named = sl.SplitConformal("aps", temperature=None, by="cautious").fit(scores[:500], Y[:500])
    named = sl.load(named.save(tmp_path / "named"))
    assert named.predict_set(scores[500:], accuracy=0.9) == sets
    marginal = named.predict_set(scores[500:], accuracy=0.9, by="marginal")
    assert marginal == plain.predict_set(scores[500:], accuracy=0.9)
