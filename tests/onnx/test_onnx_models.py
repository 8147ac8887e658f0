"""Test that the sets of exported models are those of `predict_set`, on 10,000 rows of each type."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from onnx_runs import (
    CLASSES,
    FIT,
    KINDS,
    candidates,
    check,
    check_conformal,
    choice_edges,
    data,
    differing,
    level_edges,
    run,
)
from sklearn.linear_model import LogisticRegression

import shortlist as sl

FAMILIES = {
    "every size": None,
    "some sizes": sl.TopK([1, 2, 4, 8]),
    "thresholds": sl.Threshold([0.9, 0.5, 0.25, 0.125, 0.0]),
    "APS": sl.Conformal("aps", [0.5, 0.8, 0.9]),
    "Denis and Hebiri": sl.DenisHebiri([1.5, 2.0, 4.0]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("family", "cost"), [("every size", "linear"), *((family, "log") for family in FAMILIES)]
)
def test_plug_in(family, cost, kind, tmp_path):
    scores, y, _ = data(kind).fit
    model = sl.PlugInSelector(
        FAMILIES[family], cost, calibration=0.5, score_type=data(kind).score_type
    ).fit(scores, y)
    check_conformal(model, kind, tmp_path / "weight.onnx", cost_weight=0.0625)
    check_conformal(model, kind, tmp_path / "accuracy.onnx", accuracy=0.6)


@cache
def shortlister(kind: str, rescore: bool, learn_sizes: bool, cost: str = "linear"):
    model = sl.Shortlister(
        cost, rescore=rescore, learn_sizes=learn_sizes, max_epochs=2, folds=3, width=32
    )
    return model.fit(*data(kind).fit)


STAGES = [(True, True), (True, False), (False, True), (False, False)]


@pytest.mark.parametrize(
    ("kind", "rescore", "learn_sizes"),
    [(k, *stages) for k in ("logits", "tied logits") for stages in STAGES]
    + [("proba", True, True), ("float64", True, True), ("float64", False, False)],
)
def test_shortlister(rescore, learn_sizes, kind, tmp_path):
    model = shortlister(kind, rescore, learn_sizes)
    assert (model.rescored_, model.learned_sizes_) == (rescore, learn_sizes)
    check_conformal(model, kind, tmp_path / "accuracy.onnx", accuracy=0.95)
    check_conformal(model, kind, tmp_path / "size.onnx", mean_size=2.5)


def test_shortlister_whose_envelope_has_dents(tmp_path):
    model = shortlister("logits", True, True, "log")
    for i, weight in enumerate((0.3, 0.05, 0.005)):
        check_conformal(model, "logits", tmp_path / f"{i}.onnx", cost_weight=weight)


def test_shortlister_with_many_classes_and_buckets(tmp_path):
    """The grid has fewer sizes than there are classes, so buckets are wider than one label."""
    rng = np.random.default_rng(0)
    n, rows = 60, 3000
    y = rng.integers(n, size=rows)
    scores = (rng.normal(size=(rows, n)) + 2.5 * np.eye(n)[y]).astype(np.float32)
    model = sl.Shortlister("log", learn_sizes=True, max_epochs=2, folds=3)
    model.fit(scores[:1500], y[:1500])
    assert model.score_.buckets_.sizes != list(range(1, n + 1))
    path = model.export_onnx(tmp_path / "m.onnx", accuracy=0.98)
    sets = model.predict_set(scores[1500:], accuracy=0.98)
    wrong = differing(sets, run(path, {"scores": scores[1500:]}))
    assert not (wrong & ~level_edges(model, scores[1500:], None, accuracy=0.98)).any()
    assert sets.sizes.max() > 17


@pytest.mark.parametrize("family", FAMILIES)
def test_fixed(family, tmp_path):
    for kind in KINDS:
        scores, y, _ = data(kind).fit
        score_type = data(kind).score_type
        model = sl.FixedSelector(FAMILIES[family], 2, score_type=score_type).fit(scores, y)
        path = model.export_onnx(tmp_path / f"{kind}.onnx", dtype=data(kind).dtype)
        outputs = run(path, {"scores": data(kind).new[0]})
        sets = model.predict_set(data(kind).new[0])
        assert not differing(sets, outputs).any()
        assert (outputs["index"] == 2).all()


def own_network(n_in: int, n_out: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(n_in, 16),
        torch.nn.LayerNorm(16),
        torch.nn.GELU(),
        torch.nn.Linear(16, n_out),
    )


@pytest.mark.parametrize("kind", ["logits", "tied proba", "float64"])
@pytest.mark.parametrize(
    ("inputs", "family", "network"),
    [
        ("features", "some sizes", None),
        ("scores", "some sizes", None),
        ("both", "APS", None),
        ("both", "some sizes", own_network),
    ],
)
def test_cardinality_selector(inputs, family, network, kind, tmp_path):
    score_type = data(kind).score_type
    model = sl.CardinalitySelector(
        FAMILIES[family],
        cost_weight=0.2,
        inputs=inputs,
        network=network,
        max_epochs=2,
        score_depth=6,
        score_type=score_type,
    ).fit(*data(kind).fit)
    scores, x = data(kind).new
    path = model.export_onnx(tmp_path / "m.onnx", dtype=data(kind).dtype)
    outputs = run(path, {"scores": scores, "features": x})
    tied, edges = choice_edges(model, scores, x)
    check(model.predict_set(scores, x), outputs, edges)
    assert (outputs["index"] == model.choose(scores, x))[~tied].all()
    assert len(np.unique(outputs["index"])) > 1


class Undecided(torch.nn.Module):
    """Returns exactly the same score for all sets."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(n_in, n_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * 0


def test_equal_outputs_go_to_the_largest_set(tmp_path):
    model = sl.CardinalitySelector(sl.TopK([1, 2, 4]), network=Undecided, max_epochs=1)
    model.fit(*data("logits").fit)
    scores, x = data("logits").new
    outputs = run(model.export_onnx(tmp_path / "m.onnx"), {"scores": scores, "features": x})
    assert not differing(model.predict_set(scores, x), outputs).any()
    assert (outputs["index"] == 2).all()


@pytest.mark.parametrize("network", [None, own_network])
def test_path(network, tmp_path):
    weights = [0.5, 0.1, 0.01, 0.0] if network is None else [0.5, 0.0]
    path = sl.CardinalityPath(
        sl.TopK([1, 2, 4]), cost_weights=weights, inputs="both", network=network, max_epochs=2
    ).fit(*data("logits").fit)
    scores, x = data("logits").new
    path.calibrate(scores[:500], data("logits").y[FIT : FIT + 500], x[:500])
    feeds = {"scores": scores, "features": x}
    free = path.export_onnx(tmp_path / "free.onnx")
    for member, weight in enumerate(weights):
        sets = path.predict_set(scores, x, cost_weight=weight)
        _, edges = choice_edges(path, scores, x, member)
        check(sets, run(free, {**feeds, "member": np.array(member)}), edges)
        if network is None:
            fixed = path.export_onnx(tmp_path / f"{member}.onnx", cost_weight=weight)
            check(sets, run(fixed, feeds), edges)
    member, _ = path._select_member(None, 0.7, 0.05)
    guaranteed = path.export_onnx(tmp_path / "guaranteed.onnx", accuracy=0.7)
    sets = path.predict_set(scores, x, accuracy=0.7)
    check(sets, run(guaranteed, feeds), choice_edges(path, scores, x, member)[1])


@pytest.mark.parametrize(
    ("kind", "rescore", "learn_sizes"),
    [(k, *stages) for k in ("logits", "proba") for stages in STAGES] + [("float64", True, True)],
)
def test_shortlister_of_candidates(rescore, learn_sizes, kind, tmp_path):
    fit, new, feeds = candidates(kind)
    _, y, x = data(kind).fit
    model = sl.Shortlister(
        "log", rescore=rescore, learn_sizes=learn_sizes, max_epochs=2, folds=3, width=32
    ).fit(fit, y, x)
    check_conformal(model, kind, tmp_path / "m.onnx", rows=new, feeds=feeds, accuracy=0.6)


@pytest.mark.parametrize("listed", [False, True])
def test_every_opinion(listed, tmp_path, monkeypatch):
    """Scores, scaled scores, networks with and without scores, neighbors; extra rows too."""
    monkeypatch.setattr("shortlist.predictors.shortlister.pool.MIN_GAIN", -np.inf)
    fit, y, x = data("logits").fit
    rows, feeds = {}, {}
    if listed:
        fit, new, feeds = candidates("logits")
        rows = {"rows": new, "feeds": feeds}
    half = len(y) // 2
    model = sl.Shortlister(rescore=True, learn_sizes=False, max_epochs=2, folds=3, width=32)
    model.fit(fit[:half], y[:half], x[:half], extra_features=x[half:], extra_y=y[half:])
    rescorer = model.score_.rescorer_
    names = {type(opinion).__name__ for opinion in rescorer.opinions}
    assert names == {"GivenScores", "NetworkOpinion", "Neighbors"} | (
        set() if listed else {"ScaledScores"}
    )
    # Every table counts.
    rescorer.pool.exponents = [0.15 + 0.01 * i for i in range(len(rescorer.pool.exponents))]
    check_conformal(model, "logits", tmp_path / "m.onnx", **rows, cost_weight=0.05)


def test_learners_have_no_graph(tmp_path, monkeypatch):
    monkeypatch.setattr("shortlist.predictors.shortlister.pool.MIN_GAIN", -np.inf)
    model = sl.Shortlister(rescore=True, effort="fast", learners=[LogisticRegression()])
    model.fit(*data("logits").fit)
    with pytest.raises(ValueError, match="no ONNX graph; fit the Shortlister without learners"):
        model.export_onnx(tmp_path / "m.onnx", accuracy=0.9)
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_candidates(family, tmp_path):
    given = sl.TopK([1, 2, 4]) if family == "some sizes" else FAMILIES[family]
    if family == "APS":
        given = sl.Conformal("aps", [0.3, 0.5, 0.6])
    fit, new, feeds = candidates("proba")
    _, y, x = data("proba").fit
    plug_in = sl.PlugInSelector(given, "log", calibration=0.5).fit(fit, y)
    check_conformal(plug_in, "proba", tmp_path / "p.onnx", rows=new, feeds=feeds, cost_weight=0.05)
    fixed = sl.FixedSelector(given, 1).fit(fit, y)
    path = fixed.export_onnx(tmp_path / "f.onnx", candidates=5)
    assert not differing(fixed.predict_set(new), run(path, feeds)).any()
    learned = sl.CardinalitySelector(given, inputs="both", max_epochs=2, score_depth=3)
    learned.fit(fit, y, x)
    path = learned.export_onnx(tmp_path / "c.onnx", candidates=5)
    new_x = data("proba").new[1]
    outputs = run(path, {**feeds, "features": new_x})
    check(learned.predict_set(new, new_x), outputs, choice_edges(learned, new, new_x)[1])


def test_candidates_out_of_order_and_tied(tmp_path):
    """Rows are sorted. Candidates with equal scores keep their order."""
    labels, scores = np.array([[3, 1, 2], [0, 2, -1]]), np.float32([[0.2, 0.4, 0.4], [0.1, 0.5, 0]])
    fit, _, _ = candidates("proba")
    model = sl.FixedSelector(sl.TopK([1, 2]), 1).fit(fit, data("proba").y[:FIT])
    path = model.export_onnx(tmp_path / "m.onnx", candidates=3)
    outputs = run(path, {"candidates": labels, "scores": scores})
    assert outputs["labels"].tolist() == [[1, 2], [2, 0]]


def test_every_label_if_the_family_has_only_smaller_sets(tmp_path):
    scores, y, _ = data("logits").fit
    new, _ = data("logits").new
    model = sl.PlugInSelector(sl.TopK([1, 2]), calibration=0.5, on_unreachable="all").fit(scores, y)
    sets = model.predict_set(new, accuracy=0.99)
    assert (sets.sizes == CLASSES).all()
    path = model.export_onnx(tmp_path / "m.onnx", accuracy=0.99)
    assert not differing(sets, run(path, {"scores": new})).any()
    free = model.export_onnx(tmp_path / "free.onnx")
    assert not differing(sets, run(free, {"scores": new, "threshold": np.array(-np.inf)})).any()


def test_the_threshold_as_an_input(tmp_path):
    model = shortlister("logits", True, True)
    scores, x = data("logits").new
    path = model.export_onnx(tmp_path / "m.onnx")
    feeds = {"scores": scores, "features": x}
    for point in (
        {"accuracy": 0.9},
        {"accuracy": 0.98, "delta": 0.1},
        {"mean_size": 2},
        {"cost_weight": 0.02},
    ):
        at = sl.onnx.threshold_for(model, **point)
        outputs = run(path, {**feeds, "threshold": np.array(at)})
        check(
            model.predict_set(scores, x, **point), outputs, level_edges(model, scores, x, **point)
        )
    first = run(path, {**feeds, "threshold": np.array(np.inf)})
    assert (first["sizes"] == 1).all()
    assert (first["index"] == 0).all()
    assert (run(path, {**feeds, "threshold": np.array(-np.inf)})["sizes"] == CLASSES).all()


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_any_number_of_rows(rows, tmp_path):
    """The set of a row does not depend on the batch."""
    model = shortlister("logits", True, True)
    scores, x = data("logits").new
    path = model.export_onnx(tmp_path / "m.onnx", accuracy=0.95)
    whole = run(path, {"scores": scores, "features": x})
    part = run(path, {"scores": scores[:rows], "features": x[:rows]})
    edges = level_edges(model, scores, x, accuracy=0.95)[:rows]
    for name, outputs in part.items():
        assert (outputs == whole[name][:rows])[~edges].all()
    assert edges.sum() < rows
