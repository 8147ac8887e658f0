"""Compare parts of a graph with the torch code that they are equivalent to."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import helper

from shortlist._utils.ordering import sort_labels
from shortlist.conformal import LAC, SCORES
from shortlist.conformal.envelope import slopes as slopes_by_torch
from shortlist.learning.networks import Standardize
from shortlist.onnx.envelope import running_min, slopes
from shortlist.onnx.graph import F32, F64, INT, IR_VERSION, OPSET, Graph, Value, element_type
from shortlist.onnx.rankings import Ranked
from shortlist.onnx.sets import compact
from shortlist.onnx.shortlister import _log_shares
from shortlist.predictors.shortlister.opinions import Neighbors


def value_of(graph: Graph, result: Value, **feeds: np.ndarray) -> np.ndarray:
    graph.rename(result, "result")
    inputs = [
        helper.make_tensor_value_info(v.name, element_type(v.dtype), list(shape))
        for v, shape in graph.inputs
    ]
    output = helper.make_tensor_value_info("result", element_type(result.dtype), None)
    proto = helper.make_graph(
        graph.nodes, "part", inputs, [output], initializer=graph.initializers()
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(proto, opset_imports=opset, ir_version=IR_VERSION)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)[0]


def gains_of(kind: str, rows: int, members: int) -> np.ndarray:
    rng = np.random.default_rng(members)
    gains = rng.dirichlet(np.full(members, 0.3), size=rows)
    return {
        "any": gains,
        "falling": -np.sort(-gains, axis=1),
        "rising": np.sort(gains, axis=1),  # One pool of all members.
        "tiny": gains * 10.0 ** -rng.integers(0, 300, size=gains.shape),
        "in 16ths": rng.integers(0, 4, size=gains.shape) / 16,
        "nothing": np.zeros_like(gains),
    }[kind]


@pytest.mark.parametrize("kind", ["any", "falling", "rising", "tiny", "in 16ths", "nothing"])
@pytest.mark.parametrize("cost", ["linear", "log", "some are free", "of each row"])
@pytest.mark.parametrize("members", [1, 2, 3, 17, 40])
def test_the_envelope(kind, cost, members):
    rows = 300
    gains = gains_of(kind, rows, members)
    rng = np.random.default_rng(1)
    given = {
        "linear": np.ones((1, members)),
        "log": np.diff(np.log(np.arange(1, members + 1)), prepend=0.0)[None],
        "some are free": rng.integers(0, 2, size=(1, members)).astype(float),
        "of each row": rng.integers(0, 3, size=(rows, members)).astype(float),
    }[cost]
    graph = Graph()
    value = graph.input("gains", F64, ["rows", members])
    result = slopes(graph, value, graph.constant(given), members, falling=False)
    expected = slopes_by_torch(torch.tensor(gains), torch.tensor(given).expand(rows, -1))
    result_values = value_of(graph, result, gains=gains)
    np.testing.assert_allclose(result_values, expected.numpy(), rtol=1e-12, atol=0)
    if kind == "in 16ths" and cost == "linear":  # Sums are exact, and so are the slopes.
        assert (result_values == expected.numpy()).all()


@pytest.mark.parametrize("members", [1, 2, 5, 16, 33])
def test_the_running_minimum(members):
    x = np.random.default_rng(0).normal(size=(50, members))
    graph = Graph()
    result = running_min(graph.input("x", F64, ["rows", members]), members)
    assert (value_of(graph, result, x=x) == np.minimum.accumulate(x, axis=1)).all()


@pytest.mark.parametrize("depth", [1, 3, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ties_go_to_the_highest_label(depth, dtype):
    scores = np.random.default_rng(0).integers(-2, 3, size=(500, 40)).astype(dtype) * 0.125
    scores[:100] = 0.0
    scores[:100:2, ::3] = -0.0  # Equal to the others.
    graph = Graph()
    value = graph.input("scores", np.dtype(dtype), ["rows", 40])
    ranked = Ranked.from_scores(graph, value, 40, depth)
    result = value_of(graph, ranked.labels, scores=scores)
    assert (result == sort_labels(torch.tensor(scores), depth).numpy()).all()


def test_compact_keeps_the_order():
    labels = np.array([[5, 3, 1, 0], [2, 4, 6, 8]])
    inside = np.array([[0, 1, 0, 1], [1, 1, 1, 1]])
    graph = Graph()
    value, mask = (graph.input(name, INT, ["rows", 4]) for name in ("labels", "inside"))
    result = value_of(graph, compact(graph, value, mask > 0, 4), labels=labels, inside=inside)
    assert result.tolist() == [[3, 0, -1, -1], [2, 4, 6, 8]]


def test_a_log_of_nothing_is_minus_infinity():
    x = np.array([[-np.inf, -np.inf], [0.0, -np.inf], [1000.0, 1000.0]])
    graph = Graph()
    result = graph.logsumexp(graph.input("x", F64, ["rows", 2]), may_be_empty=True)
    expected = torch.tensor(x).logsumexp(1, keepdim=True).numpy()
    np.testing.assert_allclose(value_of(graph, result, x=x), expected, rtol=1e-15)


@pytest.mark.parametrize("score", SCORES.values())
def test_thresholds_are_lowered_as_in_torch_and_infinities_are_kept(score):
    at = np.array([0.25, 0.0, np.inf, -np.inf, *([-0.25] if score is not LAC else [])])
    lower = score().lower(torch.tensor(at), 1e-6).numpy()
    assert (lower <= at).all()
    np.testing.assert_allclose(lower, at, atol=2e-6)
    assert (lower[:4] == at[:4]).tolist()[2:] == [True, True]
    graph = Graph()
    lowered = score().lower(graph.input("at", F64, ["rows"]), 1e-6)
    assert (value_of(graph, lowered, at=at) == lower).all()


def test_values_promote_types_as_torch_does():
    x, u = np.array([[1, 2, 3]]), np.array([[0.25]])
    single = np.array([[0.1, 0.2, 0.3]], dtype=np.float32)
    a, b, c = (torch.tensor(v) for v in (x, single, u))
    graph = Graph()
    i = graph.input("i", INT, ["rows", 3])
    s = graph.input("s", F32, ["rows", 3])
    w = graph.input("w", F64, ["rows", 1])
    for result, expected in (
        (i + s, a + b),
        (a * s - w, a * b - c),
        (1.0 - s / w, 1.0 - b / c),
        ((2 * s)[:, 1:].clamp(0.5, max=0.55).abs(), (2 * b)[:, 1:].clamp(0.5, max=0.55).abs()),
    ):
        part = Graph(graph)
        part.nodes, part.inputs = list(graph.nodes), list(graph.inputs)
        result_values = value_of(part, result, i=x, s=single, w=u)
        assert result_values.dtype == expected.numpy().dtype
        assert (result_values == expected.numpy()).all()
    with pytest.raises(ValueError, match="integers and a float: convert the integers first"):
        i + 0.5
    with pytest.raises(ValueError, match="only value\\[:, start:stop\\]"):
        s[1:, :]


@pytest.mark.parametrize("metric", [True, False])
def test_neighbors(metric):
    """Compare near and far rows, rows far from all neighbors, and a class without neighbors."""
    rng = np.random.default_rng(0)
    index = torch.tensor(rng.choice([0, 1, 3], size=40, p=[0.7, 0.25, 0.05]))
    x = torch.tensor(rng.normal(size=(40, 5)) + 3 * rng.normal(size=5), dtype=torch.float32)
    neighbors = Neighbors(Standardize(torch.zeros(5), torch.ones(5)), 4, 0).fit(x, index)
    if not metric:
        neighbors.root = None
        neighbors.directions = torch.nn.functional.normalize(x[index.argsort(stable=True)], dim=1)
    new = torch.cat([x, -x, torch.tensor(rng.normal(size=(40, 5)), dtype=torch.float32)])
    graph = Graph()
    result = _log_shares(neighbors, graph.input("x", F32, ["rows", 5]))
    for table, expected in zip(result, neighbors(new), strict=True):
        part = Graph(graph)
        part.nodes, part.inputs = list(graph.nodes), list(graph.inputs)
        got = value_of(part, table, x=new.numpy())
        np.testing.assert_allclose(got, expected, atol=2e-5)
        assert (expected[:, 2] == expected.min()).all()


def test_equal_small_constants_are_stored_once():
    graph = Graph()
    assert graph.constant(np.float64(1)).name == graph.constant(np.float64(1)).name
    assert graph.constant(np.float64(1)).name != graph.constant(np.float32(1)).name
    assert graph.constant(np.zeros(2)).name != graph.constant(np.zeros((1, 2))).name
    assert len(graph.constants) == 4
