"""Tensors on a GPU stay there, from the scores to the sets, and give what the CPU gives."""

from __future__ import annotations

import gc

import pytest
import torch

import shortlist as sl
from shortlist.learning.cuda_graphs import WARM_UP_STEPS, GraphedStep

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.fixture
def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 12, generator=generator)
    scores = (x @ torch.randn(12, 40, generator=generator)).round(decimals=1)  # with exact ties
    noise = -torch.rand(scores.shape, generator=generator).log().neg().log()
    return scores, (scores + 3 * noise).argmax(dim=1), x


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_sets_are_those_of_the_cpu(
    problem: tuple[torch.Tensor, torch.Tensor, torch.Tensor], dtype: torch.dtype
) -> None:
    scores, y, _ = problem
    scores = scores.to(dtype)
    for family in (sl.TopK([1, 2, 8]), sl.TopK.dense(40), sl.Threshold([5.0, 1.0, -3.0])):
        sizes = family.sizes(scores.cuda())
        assert sizes.device.type == "cuda"
        assert torch.equal(sizes.cpu(), family.sizes(scores))
        assert torch.equal(family.hits(scores.cuda(), y.cuda()).cpu(), family.hits(scores, y))
        choice = y % len(family)
        here = family.select(sl.Ranking.from_scores(scores), choice)
        there = family.select(sl.Ranking.from_scores(scores.cuda()), choice.cuda())
        assert there.sizes.device.type == "cuda"
        assert there.contains(y.cuda()).device.type == "cuda"
        assert there == here
    ranking = sl.Ranking.from_scores(scores.cuda())
    assert torch.equal(ranking.labels.cpu(), sl.Ranking.from_scores(scores).labels)
    assert torch.equal(ranking.rank(y.cuda()).cpu(), sl.Ranking.from_scores(scores).rank(y))


@pytest.mark.parametrize("inputs", ["features", "scores", "both"])
def test_selectors_train_and_predict_there(
    problem: tuple[torch.Tensor, torch.Tensor, torch.Tensor], inputs: str
) -> None:
    scores, y, x = problem
    path = sl.CardinalityPath(
        sl.TopK([1, 2, 4, 8]),
        cost_weights=[0.3, 0.05],
        inputs=inputs,
        max_epochs=5,
        dtype="float64",
    )
    on_cpu = path.fit(scores.double(), y, x.double()).frontier(scores.double(), y, x.double())
    there = [t.double().cuda() for t in (scores, x)]
    path.fit(there[0], y.cuda(), there[1])
    assert all(p.device.type == "cuda" for p in path._network.parameters())
    curve = path.frontier(there[0], y.cuda(), there[1])
    assert abs(curve.accuracy - on_cpu.accuracy).max() < 0.01
    assert abs(curve.mean_size - on_cpu.mean_size).max() < 0.1
    sets = path.predict_set(there[0], there[1], cost_weight=0.05)
    assert sets.sizes.device.type == "cuda"


def test_numpy_in_numpy_out_with_training_on_the_gpu(
    problem: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    scores, y, x = (t.numpy() for t in problem)
    selector = sl.CardinalitySelector(device="cuda", max_epochs=3, inputs="both")
    sets = selector.fit(scores, y, x).predict_set(scores, x)
    assert not isinstance(sets.sizes, torch.Tensor)
    h = sl.LinearClassifier(device="cuda", max_epochs=3).fit(x, y)
    assert h.decision_function(x).shape == scores.shape


@pytest.mark.parametrize("score", ["lac", "aps", "topk"])
def test_conformal_sets_are_those_of_the_cpu(
    problem: tuple[torch.Tensor, torch.Tensor, torch.Tensor], score: str
) -> None:
    scores, y, _ = problem
    proba = torch.softmax(scores.double(), dim=1)
    model = sl.SplitConformal(score, temperature=None, score_type="proba")
    here = model.fit(proba[:1000], y[:1000]).predict_set(proba[1000:], accuracy=0.9)
    there = model.fit(proba[:1000].cuda(), y[:1000].cuda())
    sets = there.predict_set(proba[1000:].cuda(), accuracy=0.9)
    assert sets.sizes.device.type == "cuda"
    assert there.p_values(proba[1000:].cuda()).device.type == "cuda"
    assert str(sets.guarantee) == str(here.guarantee)
    if score == "lac":
        assert sets == here
    else:  # sums of probabilities may round otherwise there
        assert abs(sets.mean_size - here.mean_size) < 0.05


@pytest.mark.parametrize("listed", [False, True])
def test_a_shortlister_trains_and_predicts_there(
    problem: tuple[torch.Tensor, torch.Tensor, torch.Tensor], listed: bool
) -> None:
    scores, y, x = problem
    proba, labels = torch.softmax(scores, dim=1).sort(dim=1, descending=True, stable=True)

    def given(device: str) -> sl.Ranking | torch.Tensor:
        if not listed:
            return scores.to(device)
        few = labels[:, :20].to(device), proba[:, :20].to(device)
        return sl.Ranking.from_candidates(*few, n_classes=40)

    model = sl.Shortlister(
        rescore=True, learn_sizes=True, max_epochs=5, width=32, rank_width=16, folds=3
    )
    here = model.fit(given("cpu"), y, features=x).frontier(given("cpu"), y, x)
    model.fit(given("cuda"), y.cuda(), features=x.cuda())
    rescorer = model.score_.rescorer_
    modules = [rescorer.standardize, model.score_.rank_model_.network]
    modules += [opinion.network for opinion in rescorer.opinions if hasattr(opinion, "network")]
    assert all(t.device.type == "cuda" for m in modules for t in m.state_dict().values())
    curve = model.frontier(given("cuda"), y.cuda(), x.cuda())
    for accuracy in (0.5, 0.8):
        assert abs(curve.size_at(accuracy) / here.size_at(accuracy) - 1) < 0.1
    for point in ({"accuracy": 0.8}, {"mean_size": 8.0}, {"cost_weight": 0.02}):
        sets = model.predict_set(given("cuda"), x.cuda(), **point)
        assert sets.sizes.device.type == "cuda"
        assert sets.contains(y.cuda()).device.type == "cuda"
    assert model.rescored(given("cuda"), x.cuda()).scores.device.type == "cuda"


def test_a_shortlister_trained_there_serves_arrays_from_here(
    problem: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    scores, y, x = (t.numpy() for t in problem)
    model = sl.Shortlister(
        device="cuda", rescore=True, learn_sizes=True, max_epochs=2, width=32, folds=3
    )
    sets = model.fit(scores, y, features=x).predict_set(scores, x)
    assert not isinstance(sets.sizes, torch.Tensor)
    assert model.score_.rescorer_.standardize.mean.device.type == "cuda"


def test_a_graph_in_garbage_does_not_disturb_a_recording() -> None:
    device = torch.device("cuda")
    rows = torch.arange(8, device=device)

    def step(rows: torch.Tensor) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            gc.collect()  # As it may happen at any allocation.
        return rows.double().mean()

    def run() -> list[object]:
        graphed = GraphedStep(step, len(rows), device)
        assert [float(graphed(rows)) for _ in range(WARM_UP_STEPS + 2)] == [3.5] * 5
        cycle: list[object] = [graphed]
        cycle.append(cycle)  # Only the garbage collector can delete the graph.
        return cycle

    gc.disable()
    try:
        run()  # Its graph is garbage now.
        run()
    finally:
        gc.enable()
