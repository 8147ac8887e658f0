"""Test that scores, families and models of the user are exported correctly or refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx_runs import FIT, KINDS, candidates, check_conformal, data, differing, run

import shortlist as sl
from shortlist.conformal import APS, LAC, Calibrator, ConformityScore, Marginal
from shortlist.conformal.scores.probability import ProbabilityScore


class LogProba(ConformityScore):
    def levels(self, ranking, features=None):
        return ranking.sorted_proba().clamp(min=1e-12).log()

    def onnx_levels(self, rows):
        return rows.sorted_proba.clamp(min=1e-12).log()


class Shifted(ConformityScore):
    """Uses the features, and ranks labels in another order."""

    def rerank(self, ranking, features=None):
        log_p = ranking.sorted_proba().log()
        labels, _ = ranking.top(ranking.depth)
        columns = log_p.new_empty(log_p.shape).scatter_(1, labels.long(), log_p)
        return ranking.derive(dense=-columns, score_type="logits")

    def levels(self, ranking, features=None):
        return ranking.sorted_proba() - 0.125 * features[:, :1]

    def onnx_rerank(self, rows):
        log_p = rows.sorted_proba.log()
        columns = rows.graph.put_along(log_p * 0.0, rows.ranked.labels, log_p)
        ranked = rows.ranked.rerank(-columns)
        return type(rows)(ranked, "logits", 1.0, rows.dtype)

    def onnx_levels(self, rows):
        return rows.sorted_proba - 0.125 * rows.features(6)[:, :1]


class Penalized(ProbabilityScore):
    def formula(self, terms):
        return terms.u * terms.p - 0.0625 * terms.rank

    def onnx_formula(self, rows, u):
        return u * rows.sorted_proba - 0.0625 * rows.ranks


class Cautious(Marginal):
    """A calibrator of the user, which guarantees a higher accuracy."""

    def threshold(self, accuracy, delta=None):
        return super().threshold((1 + accuracy) / 2, delta)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", [LogProba(), Penalized()])
def test_a_score_of_five_lines_is_exported(score, kind, tmp_path):
    options = {"score_type": data(kind).score_type}
    model = sl.ConformalPredictor(score, **options).fit(*data(kind).fit[:2])
    check_conformal(model, kind, tmp_path / "dense.onnx", accuracy=0.9)
    check_conformal(model, kind, tmp_path / "class.onnx", accuracy=0.8, by="class")
    fit, new, feeds = candidates(kind)
    model = sl.ConformalPredictor(score, **options).fit(fit, data(kind).y[:FIT])
    check_conformal(model, kind, tmp_path / "c.onnx", rows=new, feeds=feeds, accuracy=0.5)


def test_a_score_that_reranks_and_uses_features_is_exported(tmp_path):
    model = sl.ConformalPredictor(Shifted()).fit(*data("logits").fit)
    scores, x = data("logits").new
    path = model.export_onnx(tmp_path / "m.onnx", accuracy=0.9)
    sets = model.predict_set(scores, x, accuracy=0.9)
    wrong = differing(sets, run(path, {"scores": scores, "features": x}))
    assert wrong.mean() < 1e-3
    first = np.array([row[0] for row in sets.labels()])
    assert (first == scores.argmin(axis=1)).mean() > 0.99


def test_a_calibrator_of_the_user_is_exported(tmp_path):
    model = sl.ConformalPredictor(LAC(), Cautious()).fit(*data("logits").fit[:2])
    assert isinstance(model.calibrator, Calibrator)
    check_conformal(model, "logits", tmp_path / "m.onnx", accuracy=0.8)
    assert sl.onnx.threshold_for(model, accuracy=0.8) == sl.onnx.threshold_for(
        sl.ConformalPredictor(LAC()).fit(*data("logits").fit[:2]), accuracy=0.9
    )


class PythonOnly(ConformityScore):
    def levels(self, ranking, features=None):
        return ranking.sorted_proba()


class PythonFormula(ProbabilityScore):
    def formula(self, terms):
        return terms.p


class OtherLevels(APS):
    def levels(self, ranking, features=None):
        return super().levels(ranking, features) / 2


class OtherFormula(APS):
    def formula(self, terms):
        return super().formula(terms) / 2


class OtherOrder(LogProba):
    def rerank(self, ranking, features=None):
        return ranking


class GrandChild(OtherLevels):
    pass


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (PythonOnly(), r"the score PythonOnly cannot be exported .* implement onnx_levels\(rows\)"),
        (PythonFormula(), r"PythonFormula .* does not implement onnx_formula\(rows, u\)"),
        (OtherLevels(), r"OtherLevels overrides levels of APS.*implement onnx_levels in OtherLev"),
        (OtherFormula(), "OtherFormula overrides formula of APS"),
        (OtherOrder(), "OtherOrder overrides rerank of LogProba"),
        (GrandChild(), "OtherLevels overrides levels of APS"),
    ],
)
def test_a_score_without_a_graph_of_its_own_is_refused(score, message, tmp_path):
    model = sl.ConformalPredictor(score).fit(*data("logits").fit[:2])
    assert model.predict_set(data("logits").new[0][:5], accuracy=0.9)
    with pytest.raises(ValueError, match=message):
        model.export_onnx(tmp_path / "m.onnx", accuracy=0.9)
    assert not list(tmp_path.iterdir())


class OnlyRerank(ConformityScore):
    def rerank(self, ranking, features=None):
        return ranking

    levels = LogProba.levels
    onnx_levels = LogProba.onnx_levels


class Renamed(APS):
    """Overrides nothing that affects the graph."""

    name = "renamed"

    def needs_fit(self):
        return False

    def helper(self):
        return 1


class SameGraph(OtherFormula):
    """States that the graph is the same, which is true."""

    formula = APS.formula
    onnx_levels = APS.onnx_levels


def test_a_score_that_reranks_needs_a_graph_for_that_too(tmp_path):
    model = sl.ConformalPredictor(OnlyRerank()).fit(*data("logits").fit[:2])
    with pytest.raises(ValueError, match=r"overrides rerank, but does not implement onnx_rerank"):
        model.export_onnx(tmp_path / "m.onnx", accuracy=0.9)


@pytest.mark.parametrize("score", [Renamed(), SameGraph()])
def test_a_subclass_with_the_same_levels_is_exported(score, tmp_path):
    model = sl.ConformalPredictor(score).fit(*data("logits").fit[:2])
    check_conformal(model, "logits", tmp_path / "m.onnx", accuracy=0.9)


# Families


class OddSizes(sl.Family):
    """Members of 1, 3, 5, … labels."""

    def __len__(self):
        return 3

    def sizes_of(self, ranking):
        sizes = torch.tensor([1, 3, 5], dtype=torch.int32)
        return sizes.minimum(ranking.lengths()[:, None])

    def possible_sizes(self, ranking):
        return range(1, 6)

    def onnx_sizes(self, rows):
        listed = rows.lengths()
        sizes = np.array([1, 3, 5])
        return sizes if listed is None else rows.minimum(sizes[None], listed)


class Larger(sl.TopK):
    def sizes_of(self, ranking):
        return super().sizes_of(ranking) + 1


def test_a_family_of_the_user(tmp_path):
    scores, y, _ = data("logits").fit
    model = sl.PlugInSelector(OddSizes(), calibration=0.5).fit(scores, y)
    check_conformal(model, "logits", tmp_path / "plug.onnx", accuracy=0.8)
    model = sl.FixedSelector(OddSizes(), 1).fit(scores, y)
    path = model.export_onnx(tmp_path / "fixed.onnx")
    new = data("logits").new[0]
    assert not differing(model.predict_set(new), run(path, {"scores": new})).any()


def test_families_without_a_graph_of_their_own_are_refused(tmp_path):
    scores, y, _ = data("logits").fit
    custom = sl.Custom.from_masks(lambda r: np.ones((len(r), r.n_classes), dtype=bool))
    for model in (sl.FixedSelector(custom), sl.PlugInSelector(custom)):
        with pytest.raises(ValueError, match=r"the sets of Custom\(1\) cannot be exported to ONNX"):
            model.fit(scores, y).export_onnx(tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="Larger overrides sizes_of of TopK"):
        sl.FixedSelector(Larger([1, 2])).fit(scores, y).export_onnx(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


# Models


class Largest(sl.FixedSelector):
    """Always chooses the largest member of the family."""

    def predict_set(self, scores, features=None):
        ranking = self._validate_scores(scores)
        last = torch.full((len(ranking),), len(self.family_) - 1)
        return self.family_.select(ranking, last)

    def onnx_sets(self, graph, point):
        point.check(self)
        last = len(self.family_) - 1
        return graph.member_sets(
            self.family_, last, self.score_type_, sl.Guarantee("none"), {"operating_point": {}}
        )


class NoGraph(sl.SetPredictor):
    def __init__(self, score_type="auto"):
        self.score_type = score_type

    def fit(self, scores, y, features=None, *, classes=None):
        ranking, _, score_type = self._validate_fit(scores, y, classes)
        self._finalize_fit(ranking, score_type)
        return self

    def predict_set(self, scores, features=None):
        return sl.TopK([1]).select(self._validate_scores(scores), torch.zeros(len(scores)))

    def frontier(self, scores, y, features=None):
        raise NotImplementedError


class OtherLevelFunction(sl.SplitConformal):
    def _level_function(self):
        return super()._level_function()


class OtherSets(sl.SplitConformal):
    def predict_set(self, scores, features=None, **point):
        return super().predict_set(scores, features, accuracy=0.5)


class SameSets(sl.SplitConformal):
    """Overrides nothing."""


def test_a_model_of_the_user(tmp_path):
    scores, y, _ = data("logits").fit
    new = data("logits").new[0]
    model = Largest(sl.TopK([1, 4])).fit(scores, y)
    outputs = run(model.export_onnx(tmp_path / "m.onnx"), {"scores": new})
    assert not differing(model.predict_set(new), outputs).any()
    assert (outputs["sizes"] == 4).all()
    same = SameSets("lac").fit(scores, y)
    check_conformal(same, "logits", tmp_path / "same.onnx", accuracy=0.9)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (NoGraph(), r"NoGraph cannot be exported .* implement onnx_sets\(graph, point\)"),
        (
            OtherLevelFunction(),
            "OtherLevelFunction overrides _level_function of ConformalPredictor",
        ),
        (OtherSets(), "OtherSets overrides predict_set of ConformalPredictor"),
    ],
)
def test_a_model_without_a_graph_of_its_own_is_refused(model, message, tmp_path):
    model.fit(*data("logits").fit[:2])
    with pytest.raises(ValueError, match=message):
        model.export_onnx(tmp_path / "m.onnx", accuracy=0.9)
    assert not list(tmp_path.iterdir())
