"""Class probabilities from neighbors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.learning.networks import Standardize
from shortlist.predictors.shortlister.opinions import neighbors as _neighbors
from shortlist.predictors.shortlister.opinions.base import MIN_SHARE
from shortlist.predictors.shortlister.opinions.neighbors import (
    SHARPNESS,
    SHRINKAGE,
    Neighbors,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def rows(n: int = 60, n_classes: int = 5, width: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features scattered round a center for each class, in arbitrary units, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    x = rng.normal(size=(n_classes, width))[y] + rng.normal(size=(n, width))
    x = x @ rng.normal(size=(width, width))  # Features are correlated.
    x = x * rng.uniform(0.1, 50, size=width) + rng.normal(scale=20, size=width)
    return torch.from_numpy(x), torch.from_numpy(y)


def train_and_new_rows(
    n: int = 60, n_classes: int = 5, width: int = 3
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows to fit, their labels, and thirty new rows from the same distribution."""
    x, y = rows(n + 30, n_classes, width)
    return x[:n], y[:n], x[n:]


def fit_neighbors(x: Tensor, y: Tensor, n_classes: int = 5, seed: int = 0) -> Neighbors:
    return Neighbors(Standardize.from_data(x), n_classes, seed).fit(x, y)


def first_table(model: Neighbors, new: Tensor) -> Tensor:
    """Return the log shares by weights; the second table has those by squared weights."""
    return model(new)[0]


def shares_by_definition(
    new: Floats,
    x: Floats,
    y: Integers,
    n: int,
    *,
    whitened: bool = True,
    sharpness: float = SHARPNESS,
) -> Floats:
    """Compute the shares as they are defined, one row and class at a time."""
    deviation = x.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1)
    z, new_z = (x - x.mean(axis=0)) / scale, (new - x.mean(axis=0)) / scale
    width = x.shape[1]
    covariance = np.zeros((width, width))
    for k in range(n):
        for row in z[y == k]:
            centered = row - z[y == k].mean(axis=0)
            covariance += np.outer(centered, centered) / len(z)
    shrunken = (1 - SHRINKAGE) * covariance
    shrunken += SHRINKAGE * np.trace(covariance) / width * np.eye(width)
    root = np.linalg.cholesky(shrunken) if whitened else np.eye(width)
    shares = np.zeros((len(new), n))
    for i, new_row in enumerate(new_z):
        a = np.linalg.solve(root, new_row)
        for row, label in zip(z, y, strict=True):
            b = np.linalg.solve(root, row)
            shares[i, label] += np.exp(sharpness * a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    return np.maximum(shares / shares.sum(axis=1, keepdims=True), MIN_SHARE)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-3)


# Shares


@pytest.mark.parametrize("table", [0, 1])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 6])
def test_shares_equal_their_definition(width: int, table: int) -> None:
    n_classes = 1 + width
    x, y, new = train_and_new_rows(10 * n_classes, n_classes, width)
    log_shares = fit_neighbors(x, y, n_classes)(new)[table]
    assert log_shares.dtype == torch.float32
    assert log_shares.shape == (30, n_classes)
    rows_ = new.numpy(), x.numpy(), y.numpy()
    sharpness = (1 + table) * SHARPNESS
    expected = shares_by_definition(*rows_, n_classes, sharpness=sharpness)
    np.testing.assert_allclose(log_shares, np.log(expected), atol=1e-3)
    plain = shares_by_definition(*rows_, n_classes, sharpness=sharpness, whitened=False)
    assert width == 1 or not np.allclose(log_shares, np.log(plain), atol=0.1)


def test_shares_sum_to_one() -> None:
    x, y, new = train_and_new_rows(400)
    log_shares = first_table(fit_neighbors(x, y), new)
    whole = log_shares[(log_shares > math.log(MIN_SHARE) + 1e-3).all(dim=1)]
    assert len(whole) > 10
    torch.testing.assert_close(whole.exp().sum(dim=1), torch.ones(len(whole)))
    # The log_shares of the other rows exceed one only by the lower bound of a share.
    assert ((log_shares.exp().sum(dim=1) - 1).abs() < 5 * MIN_SHARE + 1e-6).all()


def test_classes_without_rows_get_the_minimum_share() -> None:
    x, y = rows(n_classes=4)
    y = torch.where(y == 2, 1, y)  # Classes 2 and 4 have no rows.
    shares = first_table(fit_neighbors(x, y), x)
    for k in (2, 4):
        torch.testing.assert_close(shares[:, k].exp(), torch.full((60,), MIN_SHARE))
    assert (shares[:, [0, 1, 3]].amax(dim=0) > math.log(0.5)).all()


def test_a_distant_class_gets_the_minimum_share() -> None:
    x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
    y = torch.tensor([0, 0, 1, 1])
    shares = first_table(fit_neighbors(x, y, 2), x).exp()
    torch.testing.assert_close(shares.gather(1, y[:, None])[:, 0], torch.ones(4))
    torch.testing.assert_close(shares.gather(1, 1 - y[:, None])[:, 0], torch.full((4,), MIN_SHARE))


def test_a_row_equal_to_the_mean_gets_the_class_frequencies() -> None:
    x, y = rows(90)
    model = fit_neighbors(x, y)
    shares = first_table(model, model.standardize.mean[None]).exp()
    torch.testing.assert_close(shares[0], torch.bincount(y, minlength=5) / 90)


@pytest.mark.parametrize("units", [[1e-3, -2.0, 1e4], [1e12, 1e-12, 1.0], [-1.0, -1.0, -1.0]])
def test_shares_do_not_depend_on_the_units_of_features(units: list[float]) -> None:
    x, y, new = train_and_new_rows()
    scale = torch.tensor(units, dtype=torch.float64)
    shift = scale * torch.tensor([5.0, 0, -1e3], dtype=torch.float64)
    assert_same(
        first_table(fit_neighbors(x * scale + shift, y), new * scale + shift),
        first_table(fit_neighbors(x, y), new),
    )
    # New rows must have the units of the rows of fit.
    stretched = new * new.new_tensor([1.0, 1.0, 9.0])
    assert not torch.allclose(
        first_table(fit_neighbors(x, y), stretched),
        first_table(fit_neighbors(x, y), new),
        atol=0.1,
    )


def test_shares_do_not_depend_on_the_order_of_rows_classes_or_features() -> None:
    x, y, new = train_and_new_rows()
    generator = torch.Generator().manual_seed(1)
    order, names = (torch.randperm(n, generator=generator) for n in (60, 5))
    columns = torch.tensor([2, 0, 1])
    log_shares = first_table(fit_neighbors(x, y), new)
    other = first_table(fit_neighbors(x[order][:, columns], names[y][order]), new[:, columns])
    assert_same(other[:, names], log_shares)
    assert not torch.allclose(other, log_shares, atol=0.1)


def test_shares_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, new = train_and_new_rows()
    model = fit_neighbors(x, y)
    log_shares = first_table(model, new)
    assert_same(torch.cat([first_table(model, row[None]) for row in new]), log_shares)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    assert_same(first_table(model, new[order]), log_shares[order])
    blocks, block_sizes = _neighbors.row_blocks, []
    monkeypatch.setattr(_neighbors, "row_blocks", lambda n, w, _: blocks(n, w, elements=7 * 60 + 5))
    model.standardize.register_forward_hook(lambda m, inputs, out: block_sizes.append(len(out)))
    assert_same(first_table(model, new), log_shares)
    assert block_sizes == [7, 7, 7, 7, 2]  # Each row needs 60 cosines.


def test_directions_in_which_rows_of_a_class_differ_count_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two classes differ little in each feature, and all features share a large common noise."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(3, 8))

    def draw(n: int) -> tuple[Tensor, Tensor]:
        y = rng.integers(2, size=n)
        x = 3 * rng.normal(size=(n, 3)) @ shared
        x += np.where(y == 1, 0.5, -0.5)[:, None] * np.tile([1.0, -1.0], 4)
        return torch.from_numpy(x + 0.1 * rng.normal(size=(n, 8))), torch.from_numpy(y)

    (x, y), (new, labels) = draw(100), draw(200)
    whitened = first_table(fit_neighbors(x, y, 2), new).argmax(dim=1) == labels
    assert whitened.double().mean() > 0.97
    monkeypatch.setattr(_neighbors, "MAX_FEATURES", 0)
    plain = first_table(fit_neighbors(x, y, 2), new).argmax(dim=1) == labels
    assert plain.double().mean() < 0.85
    i = int(torch.nonzero(whitened & ~plain)[0])
    shares = [
        shares_by_definition(new[i : i + 1].numpy(), x.numpy(), y.numpy(), 2, whitened=w)[
            0, labels[i]
        ]
        for w in (False, True)
    ]
    assert shares[0] < 0.5 < shares[1]


@pytest.mark.parametrize("most", [3, 4])
def test_the_covariance_is_ignored_if_there_are_too_many_features(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = rows(width=4)
    monkeypatch.setattr(_neighbors, "MAX_FEATURES", most)
    model = fit_neighbors(x, y)
    assert (model.root is None) == (most == 3)
    expected = shares_by_definition(x.numpy(), x.numpy(), y.numpy(), 5, whitened=most == 4)
    np.testing.assert_allclose(first_table(model, x), np.log(expected), atol=1e-3)


def test_neighbors_are_drawn_if_there_are_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, new = train_and_new_rows(100)
    whole = fit_neighbors(x, y)
    assert len(whole.index) == 100
    monkeypatch.setattr(_neighbors, "MAX_ROWS", 20)
    model, again, other = (fit_neighbors(x, y, seed=seed) for seed in (3, 3, 4))
    assert len(model.index) == len(model.directions) == 20
    assert torch.equal(first_table(model, new), first_table(again, new))
    assert not torch.allclose(first_table(model, new), first_table(other, new), atol=0.1)
    # The draw is without replacement, keeps the labels, and uses the metric of all rows.
    distances, place = torch.cdist(model.directions, whole.directions).min(dim=1)
    assert float(distances.max()) < 1e-3
    assert len(set(place.tolist())) == 20
    assert place.max() > 50
    assert torch.equal(model.index, whole.index[place])
    assert torch.equal(whole.index, y.sort().values)
    torch.testing.assert_close(model.root, whole.root)
    monkeypatch.setattr(_neighbors, "MAX_ROWS", 100)
    assert torch.equal(first_table(fit_neighbors(x, y, seed=4), new), first_table(whole, new))


def test_a_draw_does_not_change_the_global_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_neighbors, "MAX_ROWS", 20)
    before = torch.get_rng_state()
    fit_neighbors(*rows())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    "case", ["constant", "a constant", "a row", "a class", "a row each", "huge", "copies", "half"]
)
def test_extreme_rows_give_finite_shares(case: str) -> None:
    x, y = rows(60, width=8)
    expected = None
    match case:
        case "constant":
            x = torch.full_like(x, 7.0)
            expected = torch.bincount(y, minlength=5) / 60
        case "a constant":
            x[:, 3] = 1e9
        case "a row":
            x, y = x[:1], y[:1]
            expected = torch.eye(5)[y[0]]
        case "a class":
            y = torch.full_like(y, 2)
            expected = torch.eye(5)[2]
        case "a row each":
            x, y = x[:5], torch.arange(5)
        case "huge":
            x = x * 1e30
        case "copies":
            x = x[:1].expand(60, -1).clone()
            x[0] += 1e-3
        case "half":
            x = x.to(torch.float16)
    model = fit_neighbors(x, y)
    wide = x.double()
    for new, table in itertools.product(
        (x, x.roll(1, dims=1), 1e25 * wide, -x, wide + 1e20), (0, 1)
    ):
        log_shares = model(new)[table]
        assert torch.isfinite(log_shares).all()
        assert ((log_shares.exp().sum(dim=1) - 1).abs() < 1e-5).all()
        assert expected is None or torch.allclose(
            log_shares.exp(), expected.expand_as(log_shares), atol=1e-5
        )
    if case not in ("constant", "copies", "a row"):  # A row is its own nearest neighbor.
        assert (first_table(model, x).argmax(dim=1) == y).double().mean() > 0.7


def test_shares_of_distant_neighbors_are_precise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a row opposite to all neighbors, cosines are near -1 and weights are very small."""
    plain = Standardize(torch.zeros(2), torch.ones(2))
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.5]])
    monkeypatch.setattr(_neighbors, "MAX_FEATURES", 0)
    model = Neighbors(plain, 3, 0).fit(x, torch.tensor([0, 0, 1, 2]))
    for power, table in enumerate(model(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])), start=1):
        for sign, shares in zip((1, -1), table.exp(), strict=True):
            cosines = sign * np.array([1.0, 1.0, 1.25**-0.5])
            weights = [2, 1, 1] * np.exp(power * SHARPNESS * (cosines - cosines.max()))
            expected = np.maximum(weights / weights.sum(), MIN_SHARE)
            np.testing.assert_allclose(shares, expected, rtol=1e-3)
