"""Test that the sets of exported scores are those of `predict_set`, on 10,000 rows of each type."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_runs import (
    CLASSES,
    FIT,
    KINDS,
    ROWS,
    SCORES,
    candidates,
    check,
    check_conformal,
    data,
    differing,
    level_edges,
    run,
)

import shortlist as sl
from shortlist.conformal.scores import score_class


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", SCORES)
def test_split_conformal(score, kind, tmp_path):
    scores, y, _ = data(kind).fit
    model = sl.SplitConformal(score, score_type=data(kind).score_type).fit(scores, y)
    check_conformal(model, kind, tmp_path / "m.onnx", accuracy=0.9)


@pytest.mark.parametrize("kind", ["logits", "proba"])
def test_the_temperature_with_the_shortest_sets(kind, tmp_path):
    scores, y, _ = data(kind).fit
    options = {"accuracy": 0.8, "score_type": data(kind).score_type}
    model = sl.SplitConformal("aps", temperature="size", **options).fit(scores, y)
    assert model.temperature_ != sl.SplitConformal("aps", **options).fit(scores, y).temperature_
    check_conformal(model, kind, tmp_path / "m.onnx", accuracy=0.8)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kind", ["proba", "tied proba"])
def test_unscaled_probabilities_are_equal_without_exception(score, kind, tmp_path):
    scores, y, _ = data(kind).fit
    model = sl.SplitConformal(score, temperature=None, score_type="proba").fit(scores, y)
    for i, accuracy in enumerate((0.8, 0.95)):
        path = model.export_onnx(tmp_path / f"{i}.onnx", accuracy=accuracy)
        sets = model.predict_set(data(kind).new[0], accuracy=accuracy)
        assert not differing(sets, run(path, {"scores": data(kind).new[0]})).any()


@pytest.mark.parametrize("score", SCORES)
def test_randomized_scores_take_noise_as_an_input(score, tmp_path):
    if "randomized" not in score_class(score)._get_param_names():
        with pytest.raises(ValueError, match="cannot be randomized"):
            sl.SplitConformal(score, randomized=True).fit(*data("logits").fit[:2])
        return
    scores, y, _ = data("logits").fit
    model = sl.SplitConformal(score, randomized=True, allow_empty=True).fit(scores, y)
    check_conformal(model, "logits", tmp_path / "m.onnx", accuracy=0.7)


# Ranked candidates


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", SCORES)
def test_split_conformal_of_candidates(score, kind, tmp_path):
    fit, new, feeds = candidates(kind)
    model = sl.SplitConformal(score, score_type=data(kind).score_type).fit(fit, data(kind).y[:FIT])
    check_conformal(model, kind, tmp_path / "m.onnx", rows=new, feeds=feeds, accuracy=0.5)


# Thresholds of classes and groups


@pytest.mark.parametrize("kind", ["logits", "tied proba"])
def test_by_class(kind, tmp_path):
    scores, y, _ = data(kind).fit
    score_type = data(kind).score_type
    models = [
        sl.SplitConformal("aps", score_type=score_type),
        sl.PlugInSelector(
            sl.TopK([1, 2, 4]), calibration=0.5, on_unreachable="all", score_type=score_type
        ),
        sl.PlugInSelector(
            sl.Threshold([0.5, 0.1]), calibration=0.5, on_unreachable="all", score_type=score_type
        ),
    ]
    for i, model in enumerate(models):
        model.fit(scores, y)
        check_conformal(model, kind, tmp_path / f"{i}.onnx", accuracy=0.8, by="class")


def test_by_class_of_candidates_adds_classes_that_need_every_label(tmp_path):
    fit, new, feeds = candidates("logits")
    model = sl.SplitConformal("lac", on_unreachable="all").fit(fit, data("logits").y[:FIT])
    point = {"accuracy": 0.8, "by": "class"}
    check_conformal(model, "logits", tmp_path / "m.onnx", rows=new, feeds=feeds, **point)
    assert "every label" in str(model.predict_set(new, **point).guarantee)


def test_by_group(tmp_path):
    scores, y, _ = data("logits").fit
    new, _ = data("logits").new
    names = np.array(["a", "b", "c"])
    groups, of_new = names[y % 3], names[np.arange(ROWS) % 3]
    model = sl.SplitConformal("lac").fit(scores, y, groups=groups)
    path = model.export_onnx(tmp_path / "m.onnx", accuracy=0.9, by="group")
    known = model._calibration.group_names
    codes = np.array([known.index(g) for g in of_new])
    sets = model.predict_set(new, accuracy=0.9, by="group", groups=of_new)
    edges = level_edges(model, new, None, accuracy=0.9, by="group")
    check(sets, run(path, {"scores": new, "groups": codes}), edges)
    with pytest.warns(UserWarning, match="no calibration row"):
        unseen = model.predict_set(new, accuracy=0.9, by="group", groups=["?"] * ROWS)
    for code in (-1, 3, 99):
        check(unseen, run(path, {"scores": new, "groups": np.full(ROWS, code)}), edges)


@pytest.mark.parametrize("depth", [CLASSES, 5])
def test_every_label_if_nothing_smaller_is_guaranteed(depth, tmp_path):
    scores, y, _ = data("logits").fit
    fit = sl.Ranking.from_scores(scores, depth=depth)
    new = sl.Ranking.from_scores(data("logits").new[0], depth=depth)
    model = sl.SplitConformal("lac", on_unreachable="all").fit(fit, y)
    path = model.export_onnx(tmp_path / "m.onnx", accuracy=0.99999)
    outputs = run(path, {"scores": data("logits").new[0]})
    assert not differing(model.predict_set(new, accuracy=0.99999), outputs).any()
    assert (outputs["sizes"] == CLASSES).all()


def test_empty_sets_are_exported_if_allowed(tmp_path):
    scores, y, _ = data("logits").fit
    model = sl.SplitConformal("lac", allow_empty=True).fit(scores, y)
    path = model.export_onnx(tmp_path / "m.onnx")
    outputs = run(path, {"scores": data("logits").new[0], "threshold": np.array(np.inf)})
    assert (outputs["labels"] == -1).all()
    assert (outputs["sizes"] == 0).all()
    assert (outputs["index"] == -1).all()
