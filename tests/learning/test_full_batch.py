"""L-BFGS of several members, which do not influence each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from shortlist._utils.out_of_core import LazyMatrix
from shortlist.learning import full_batch
from shortlist.learning.full_batch import fit_members, minimize_members
from shortlist.learning.networks import Ensemble, Stack, Standardize, perceptron, zero_last_layer


def rows(n: int = 400, width: int = 5, n_classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels and the fold of each row."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, width, generator=generator)
    weights = 2 * torch.randn(width, n_classes, generator=generator)
    y = torch.multinomial(torch.softmax(x @ weights, dim=1), 1, generator=generator)[:, 0]
    return x, y, torch.arange(n) % 3


def fitted(x: Tensor | LazyMatrix, y: Tensor, folds: Tensor, max_iter: int = 200) -> Ensemble:
    width = x.shape[1]
    stack = Stack(zero_last_layer(perceptron(width, 4, hidden=0)), members=3)
    network = Ensemble(Standardize(torch.zeros(width), torch.ones(width)), stack)
    fit_members(
        network,
        [x],
        y,
        folds,
        members=3,
        penalty=1e-3,
        penalized=stack.weights,
        max_iter=max_iter,
    )
    return network


def test_each_member_is_the_regression_on_the_other_folds() -> None:
    x, y, folds = rows()
    folds[::5] = 3  # All members learn from rows of no fold.
    network = fitted(x, y, folds)
    for member in range(3):
        own = folds != member
        theirs = LogisticRegression(C=1 / (2e-3 * int(own.sum())), tol=1e-8, max_iter=10_000)
        expected = theirs.fit(x[own].numpy(), y[own].numpy()).predict_proba(x.numpy())
        actual = torch.softmax(network(x)[member].detach(), dim=1)
        np.testing.assert_allclose(actual, expected, atol=1e-3)


@pytest.mark.parametrize("max_iter", [1, 3, 20])
def test_a_member_does_not_depend_on_the_rows_of_its_fold(max_iter: int) -> None:
    """The members share each pass, but not the step sizes, even before they have converged."""
    x, y, folds = rows()
    network = fitted(x, y, folds, max_iter)
    for member in range(3):
        own = folds == member
        changed_x, changed_y = torch.where(own[:, None], -7 * x, x), torch.where(own, 3 - y, y)
        other = fitted(changed_x, changed_y, folds, max_iter)
        for before, after in zip(network.parameters(), other.parameters(), strict=True):
            assert torch.equal(before[member], after[member])
            assert not torch.allclose(before, after)


def test_blocks_and_lazy_matrices_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, folds = rows()
    whole = fitted(x, y, folds, 20)
    monkeypatch.setattr("shortlist._utils.blocks.BLOCK_ELEMENTS", 500)
    lazy = fitted(LazyMatrix(len(x), lambda index: x[index]), y, folds, 20)
    for a, b in zip(whole.parameters(), lazy.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-2)


def test_of_many_rows_a_part_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, folds = rows(1200)
    parameters = sum(p.numel() for p in fitted(x, y, folds, 1).parameters())
    monkeypatch.setattr(full_batch, "MAX_PRODUCTS", 1200 * parameters // 4)
    part = fitted(x, y, folds)
    monkeypatch.undo()
    alone = fitted(x[::4], y[::4], folds[::4])
    for a, b in zip(part.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_minima_of_quadratic_functions() -> None:
    """The members are of very different scale, and one starts at its minimum."""
    rng = np.random.default_rng(0)
    root = torch.from_numpy(rng.normal(size=(4, 6, 6)))
    hessians = root @ root.mT + 0.1 * torch.eye(6).double()
    hessians *= torch.tensor([1.0, 1e3, 1e-3, 1.0]).double()[:, None, None]
    minima = torch.from_numpy(rng.normal(size=(4, 6)))

    def objective(x: Tensor) -> tuple[Tensor, Tensor]:
        gradient = (hessians @ (x - minima)[..., None])[..., 0]
        return ((x - minima) * gradient).sum(dim=1) / 2, gradient

    start = torch.zeros(4, 6).double()
    start[3] = minima[3]
    result = minimize_members(objective, start, 500)
    assert float(objective(result)[0].max()) < 1e-6
    assert torch.equal(result[3], minima[3])
    assert torch.equal(start[:3], torch.zeros(3, 6).double())
    alone = minimize_members(lambda x: _only(objective, x), start[:1], 500)
    torch.testing.assert_close(alone[0], result[0], rtol=0, atol=1e-9)


def _only(objective: full_batch.Objective, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss and the gradient of the first member."""
    loss, gradient = objective(x.expand(4, -1))
    return loss[:1], gradient[:1]


def test_a_member_whose_loss_is_not_finite_stays_and_the_others_go_on() -> None:
    def objective(x: Tensor) -> tuple[Tensor, Tensor]:
        loss, gradient = (x - 1).square().sum(dim=1), 2 * (x - 1)
        loss, gradient = loss.clone(), gradient.clone()
        loss[0], gradient[0] = torch.nan, torch.nan
        # The second member has no finite loss far from its start.
        loss[1] = torch.where((x[1] > 0.5).any(), torch.inf, loss[1])
        return loss, gradient

    result = minimize_members(objective, torch.zeros(3, 2).double(), 50)
    assert torch.equal(result[0], torch.zeros(2).double())
    assert ((result[1] >= 0) & (result[1] <= 0.5)).all()
    torch.testing.assert_close(result[2], torch.ones(2).double(), rtol=0, atol=1e-4)


def test_the_loss_never_increases() -> None:
    losses = []

    def objective(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = x.clone().requires_grad_()
            loss = nn.functional.softplus(8 * leaf - 3).sum(dim=1) - leaf.sum(dim=1)
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), gradient

    start = torch.tensor([[5.0, -20.0], [0.0, 300.0]]).double()
    for max_iter in range(8):
        losses.append(objective(minimize_members(objective, start, max_iter))[0])
    assert (torch.stack(losses).diff(dim=0) <= 1e-6).all()
    assert (losses[-1] < losses[0]).all()
