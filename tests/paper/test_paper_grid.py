"""Grids of selectors are the selectors of the library, trained together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import shortlist as sl
from shortlist.learning.training import History
from shortlist.paper import selector_grid
from shortlist.paper.reading import weights_to_add
from shortlist.paper.selector_grid import SelectorGrid, training_record
from shortlist.paper.tasks import MEAN, SINGLE, Task

DATA = sl.datasets.gaussian(1500, 0.5, n_classes=6, dimension=8, seed=2)
FIT, TRAIN, TEST = DATA.split(300, 700)
H = sl.LinearClassifier(max_epochs=3, progress=False).fit(FIT.x, FIT.y)
P_TRAIN, P_TEST = (torch.as_tensor(H.predict_proba(part.x)) for part in (TRAIN, TEST))
WEIGHTS = (0.3, 0.1, 0.03)
TASK = Task(
    "selectors", "x", 700, members=(1, 2, 4), costs=("log", "linear"), weights=(WEIGHTS, (0.05,)),
    max_epochs=4, patience=2, seed=3,
)  # fmt: skip


def run(**changes: object) -> tuple[list, SelectorGrid]:
    grid = SelectorGrid(replace(TASK, **changes), "cpu")
    return grid.run(P_TRAIN, TRAIN, P_TEST, TEST), grid


def path(cost: str, weights, **parameters: object) -> sl.Frontier:
    options = {"max_epochs": 4, "patience": 2, "random_state": 3, "progress": False}
    model = sl.CardinalityPath(
        sl.TopK([1, 2, 4]), cost, cost_weights=weights, **(options | parameters)
    )
    model.fit(P_TRAIN.numpy(), TRAIN.y, TRAIN.x)
    return model.frontier(P_TEST.numpy(), TEST.y, TEST.x)


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        ({}, {}),
        ({"inputs": "both"}, {"inputs": "both"}),
        ({"loss": "hinge", "width": 16}, {"loss": "hinge", "width": 16}),
        ({"loss": "exp", "learning_rate": 1e-2}, {"loss": "exp", "learning_rate": 1e-2}),
    ],
)
def test_a_grid_gives_the_curves_of_the_paths_of_the_library(changes, parameters):
    traces, _ = run(**changes)
    for trace, (cost, weights) in zip(traces, (("log", WEIGHTS), ("linear", (0.05,))), strict=True):
        expected = path(cost, weights, **parameters)
        assert (trace.cost, trace.average) == (cost, SINGLE)
        assert trace.parameter == list(weights)
        # Products of matrices of other shapes are rounded differently: a few rows may differ.
        np.testing.assert_allclose(trace.accuracy, expected.accuracy, atol=3 / len(TEST))
        np.testing.assert_allclose(trace.mean_size, expected.mean_size, atol=6 / len(TEST))


def test_the_mean_of_selectors_averages_their_scores():
    traces, _ = run(selectors=3)
    assert [(t.cost, t.average) for t in traces] == [
        ("log", SINGLE), ("log", MEAN), ("linear", SINGLE), ("linear", MEAN),
    ]  # fmt: skip
    single, _ = run()
    np.testing.assert_allclose(traces[0].mean_size, single[0].mean_size, atol=6 / len(TEST))
    scores = []
    for j in range(3):
        prototype = sl.CardinalitySelector(
            sl.TopK([1, 2, 4]), "log", cost_weight=0.1, max_epochs=4, patience=2, progress=False,
            random_state=3, network=lambda n, k, j=j: network(n, k, 3 + 1000 * j),
        )  # fmt: skip
        prototype.fit(P_TRAIN.numpy(), TRAIN.y, TRAIN.x)
        ranking = sl.Ranking.from_scores(P_TEST, score_type="proba")
        scores.append(prototype._scores(ranking, torch.as_tensor(TEST.x)))
    choice = torch.stack(scores).mean(dim=0).argmax(dim=1)
    sizes = torch.tensor([1, 2, 4])[choice].double()
    assert traces[1].mean_size[1] == pytest.approx(float(sizes.mean()), abs=6 / len(TEST))
    assert traces[1].mean_size[1] != traces[0].mean_size[1]


def network(n: int, k: int, seed: int) -> torch.nn.Sequential:
    """Return the default network of a selector with a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(n, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128)]
        body = torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(128, k))
    torch.nn.init.zeros_(body[-1].weight)
    torch.nn.init.zeros_(body[-1].bias)
    return body


def test_the_number_of_selectors_trained_together_does_not_matter(monkeypatch):
    together, grid = run(selectors=2)
    assert [t.members for t in grid.trainings] == [8]
    monkeypatch.setattr(selector_grid, "MAX_MEMBERS", {"cpu": 5})
    apart, grid = run(selectors=2)
    assert [t.members for t in grid.trainings] == [4, 4]
    for a, b in zip(together, apart, strict=True):
        np.testing.assert_allclose(a.mean_size, b.mean_size, atol=6 / len(TEST))


def test_refinement_adds_weights_in_gaps_and_keeps_the_others():
    coarse, _ = run()
    fine, grid = run(refinements=2)
    for before, after in zip(coarse, fine, strict=True):
        assert set(before.parameter) <= set(after.parameter)
        assert after.parameter == sorted(after.parameter, reverse=True)
        kept = [after.parameter.index(w) for w in before.parameter]
        np.testing.assert_allclose(np.array(after.mean_size)[kept], before.mean_size)
    added = weights_to_add(coarse[0].parameter, coarse[0].mean_size)
    assert added
    assert set(added) <= set(fine[0].parameter)
    assert len(grid.trainings) == 3


def test_other_settings_change_the_selectors():
    sizes = {tuple(run()[0][0].mean_size)}
    for changes in ({"width": 8}, {"initialization": "pytorch"}, {"learning_rate": 1e-2}):
        sizes.add(tuple(run(**changes)[0][0].mean_size))
    assert len(sizes) == 4
    with pytest.raises(ValueError, match="initialization must be"):
        run(initialization="random")


def test_without_standardization_the_scale_of_the_features_matters():
    grid = SelectorGrid(replace(TASK, standardize=False), "cpu")
    large = replace(TRAIN, x=TRAIN.x * 100), replace(TEST, x=TEST.x * 100)
    scaled = grid.run(P_TRAIN, large[0], P_TEST, large[1])
    assert scaled[0].mean_size != run(standardize=False)[0][0].mean_size
    grid = SelectorGrid(TASK, "cpu")
    scaled = grid.run(P_TRAIN, large[0], P_TEST, large[1])
    np.testing.assert_allclose(scaled[0].mean_size, run()[0][0].mean_size, atol=6 / len(TEST))


@pytest.mark.parametrize(
    ("epochs", "best", "capped"), [(10, [9, 3], 1), (10, [4, 4], 0), (8, [7, 7], 0)]
)
def test_training_is_capped_if_the_maximum_came_first(epochs, best, capped):
    """With a patience of 5, training that improved in epoch 9 of 10 was still going on."""
    history = History([[0.0]] * epochs, [[0.0]] * epochs, best)
    record = training_record("selectors", history, 12_800, max_epochs=10, patience=5)
    assert record.capped == capped
    assert (record.epochs, record.steps) == (epochs, 90 * epochs)
    assert record.best_epochs[0] == min(best) + 1


def test_a_grid_records_its_training():
    _, grid = run(max_epochs=1)
    (record,) = grid.trainings
    assert (record.members, record.rows, record.epochs, record.capped) == (4, 700, 1, 4)
