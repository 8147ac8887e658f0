"""`Selector`: the paper's selector as a module that is trained with its backbone."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

import shortlist as sl
from shortlist.losses import loss_names

FAMILY = sl.TopK([1, 2, 4])


def batch(rows: int = 40, n: int = 10, width: int = 6) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(0)
    y = torch.randint(n, (rows,), generator=g)
    return torch.randn(rows, width, generator=g), torch.randn(rows, n, generator=g), y


@pytest.mark.parametrize("family", [FAMILY, sl.Threshold([1.0, 0.0, -1.0])])
@pytest.mark.parametrize("cost", ["log", "linear"])
def test_costs_are_the_target_loss_of_each_set(family, cost) -> None:
    _, h, y = batch()
    head = sl.Selector(6, 10, family, cost, cost_weight=0.3)
    costs = head.costs(h, y)
    most = 4 if family is FAMILY else 9  # A threshold set of all ten labels cannot miss.
    scale = 1 + 0.3 * (math.log(most) if cost == "log" else most)
    for k in range(len(family)):
        sets = sl.FixedSelector(family, k).fit(h, y).predict_set(h)
        mean = sl.metrics.cardinality_loss(sets, y, cost=cost, cost_weight=0.3)
        assert float(costs[:, k].mean()) * scale == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("name", loss_names())
def test_the_loss_equals_that_of_the_losses_module(name) -> None:
    x, h, y = batch()
    head = sl.Selector(6, 10, FAMILY, loss=name, cost_weight=0.2, hidden=0)
    nn.init.normal_(head.network[-1].weight)
    r = head(x)
    expected = sl.losses.from_name(name, cost_sensitive=True)(r, head.costs(h, y))
    assert torch.equal(head.loss(r, h, y), expected)


def test_gradients_reach_the_backbone_through_set_scores_only() -> None:
    x, _, y = batch()
    backbone, labels, head = nn.Linear(6, 8), nn.Linear(8, 10), sl.Selector(8, 10, FAMILY)
    nn.init.normal_(head.network[-1].weight)
    z = backbone(x)
    head.loss(head(z), labels(z), y).backward()
    assert backbone.weight.grad is not None
    assert backbone.weight.grad.abs().sum() > 0
    assert labels.weight.grad is None


def test_it_equals_the_estimator_without_a_backbone() -> None:
    """Train with the network, batches and loss of `CardinalitySelector`."""
    x, h, y = batch(rows=64)
    torch.manual_seed(0)
    head = sl.Selector(6, 10, FAMILY, cost_weight=0.05, width=16)
    network = copy.deepcopy(head.network)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    scaled = (x - x.mean(0)) / x.std(0, correction=0)
    for _ in range(60):
        optimizer.zero_grad()
        head.loss(head(scaled), h, y).backward()
        optimizer.step()
    model = sl.CardinalitySelector(
        FAMILY,
        cost_weight=0.05,
        network=network,
        learning_rate=1e-2,
        batch_size=64,
        weight_decay=0,
        max_epochs=3,  # Each epoch has 20 steps with all rows.
        validation_fraction=0,
    ).fit(h, y, x)
    actual, expected = head.predict_set(head(scaled), h), model.predict_set(h, x)
    assert actual.labels() == expected.labels()
    assert len(set(actual.sizes.tolist())) > 1
    assert str(actual.guarantee) == str(expected.guarantee)


def test_end_to_end_training_finds_the_rows_that_need_two_labels() -> None:
    """In half of the rows, which an input marks, the label is one of two with equal probability."""
    g = torch.Generator().manual_seed(0)
    y = torch.randint(4, (3000,), generator=g)
    noisy = torch.rand(3000, generator=g) < 0.5
    shown = torch.where(noisy & (torch.rand(3000, generator=g) < 0.5), y ^ 1, y)
    x = torch.cat([nn.functional.one_hot(shown, 4), noisy[:, None]], 1).float()
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(5, 32), nn.ReLU())
    labels, head = nn.Linear(32, 4), sl.Selector(32, 4, sl.TopK([1, 2]), "linear", 0.2)
    module = nn.ModuleList([backbone, labels, head])
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    for _ in range(150):
        z = backbone(x[:2000])
        h = labels(z)
        loss = nn.functional.cross_entropy(h[:1000], y[:1000])
        loss = loss + head.loss(head(z[1000:]), h[1000:], y[1000:2000])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        z = backbone(x[2000:])
        sets = head.predict_set(head(z), labels(z))
    assert torch.equal(sets.sizes > 1, noisy[2000:])
    assert sets.accuracy(y[2000:]) == 1.0


def test_it_compiles_to_one_graph_with_the_same_gradients() -> None:
    x, h, y = batch()
    head = sl.Selector(6, 10, FAMILY)
    nn.init.normal_(head.network[-1].weight)
    head.loss(head(x), h, y).backward()
    plain = [p.grad.clone() for p in head.parameters()]
    head.zero_grad()
    compiled = torch.compile(
        lambda x, h, y: head.loss(head(x), h, y), fullgraph=True, backend="aot_eager"
    )
    compiled(x, h, y).backward()
    for p, expected in zip(head.parameters(), plain, strict=True):
        torch.testing.assert_close(p.grad, expected)


def test_its_state_is_that_of_the_network() -> None:
    head = sl.Selector(6, 10, FAMILY, width=8)
    again = sl.Selector(6, 10, FAMILY, width=8)
    again.load_state_dict(head.state_dict())
    assert all(name.startswith("network.") for name in head.state_dict())
    assert sl.Selector(6, 10).double()(torch.zeros(1, 6, dtype=torch.float64)).shape == (1, 4)
    assert "TopK([1, 2, 4])" in repr(head)


def test_sets_can_contain_names() -> None:
    head = sl.Selector(2, 3, sl.TopK([1, 2]))
    sets = head.predict_set(
        torch.tensor([[1.0, 0.0]]), torch.tensor([[0.1, 0.9, 0.3]]), classes=["ant", "bee", "cat"]
    )
    assert sets.labels() == [["bee"]]


def test_invalid_calls_are_refused() -> None:
    head = sl.Selector(6, 10, FAMILY)
    _, h, y = batch()
    with pytest.raises(ValueError, match=r"label_scores have shape \(40, 9\); needed: \(rows, 10"):
        head.costs(h[:, :9], y)
    with pytest.raises(ValueError, match=r"label_scores have shape \(40, 9\)"):
        head.predict_set(head(torch.zeros(40, 6)), h[:, :9])
    with pytest.raises(ValueError, match=r"y is torch\.int64 of shape \(3,\)"):
        head.costs(h, y[:3])
    with pytest.raises(ValueError, match=r"y is torch\.float32"):
        head.costs(h, y.float())
    with pytest.raises(ValueError, match="only 3 classes"):
        sl.Selector(6, 3, FAMILY)
    with pytest.raises(ValueError, match="cost_weight"):
        sl.Selector(6, 10, cost_weight=-1)
    with pytest.raises(ValueError, match="loss"):
        sl.Selector(6, 10, loss="cross")
