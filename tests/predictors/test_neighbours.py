"""Neighbours: shares of near rows' labels, in any units. Pools: distributions, fitted to labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.learning.networks import Standardize
from shortlist.learning.temperature import MAX_TEMPERATURE
from shortlist.predictors.shortlister import neighbours as _neighbours
from shortlist.predictors.shortlister.neighbours import (
    MIN_SHARE,
    SHARPNESS,
    SHRINKAGE,
    Estimates,
    Neighbours,
    Pool,
    align_columns,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def rows(n: int = 60, n_classes: int = 5, width: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features in units of their own, round their class's place, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    x = rng.normal(size=(n_classes, width))[y] + rng.normal(size=(n, width))
    x = x @ rng.normal(size=(width, width))  # directions that have something in common
    x = x * rng.uniform(0.1, 50, size=width) + rng.normal(scale=20, size=width)
    return torch.from_numpy(x), torch.from_numpy(y)


def some(n: int = 60, n_classes: int = 5, width: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Rows to remember, their labels, and thirty new rows of the same kind."""
    x, y = rows(n + 30, n_classes, width)
    return x[:n], y[:n], x[n:]


def neighbours(x: Tensor, y: Tensor, n_classes: int = 5, seed: int = 0) -> Neighbours:
    return Neighbours(Standardize.from_data(x), n_classes).fit(x, y, seed)


def one_by_one(new: Floats, x: Floats, y: Integers, n: int, *, whitened: bool = True) -> Floats:
    """The shares by their definition, a row and a class at a time."""
    deviation = x.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1)
    z, to = (x - x.mean(axis=0)) / scale, (new - x.mean(axis=0)) / scale
    width = x.shape[1]
    covariance = np.zeros((width, width))
    for k in range(n):
        for row in z[y == k]:
            gap = row - z[y == k].mean(axis=0)
            covariance += np.outer(gap, gap) / len(z)
    shrunken = (1 - SHRINKAGE) * covariance
    shrunken += SHRINKAGE * np.trace(covariance) / width * np.eye(width)
    root = np.linalg.cholesky(shrunken) if whitened else np.eye(width)
    shares = np.zeros((len(new), n))
    for i, one in enumerate(to):
        a = np.linalg.solve(root, one)
        for row, label in zip(z, y, strict=True):
            b = np.linalg.solve(root, row)
            shares[i, label] += np.exp(SHARPNESS * a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    return np.maximum(shares / shares.sum(axis=1, keepdims=True), MIN_SHARE)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


# Shares


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 6])
def test_shares_are_those_of_their_definition(width: int) -> None:
    n_classes = 1 + width
    x, y, new = some(10 * n_classes, n_classes, width)
    found = neighbours(x, y, n_classes)(new)
    assert found.dtype == torch.float32
    assert found.shape == (30, n_classes)
    expected = one_by_one(new.numpy(), x.numpy(), y.numpy(), n_classes)
    np.testing.assert_allclose(found, np.log(expected), atol=1e-3)
    plain = one_by_one(new.numpy(), x.numpy(), y.numpy(), n_classes, whitened=False)
    assert width == 1 or not np.allclose(found, np.log(plain), atol=0.1)


def test_shares_sum_to_one() -> None:
    x, y, new = some(400)
    found = neighbours(x, y)(new)
    whole = found[(found > math.log(MIN_SHARE) + 1e-3).all(dim=1)]
    assert len(whole) > 10
    torch.testing.assert_close(whole.exp().sum(dim=1), torch.ones(len(whole)))
    # Elsewhere there is nothing but what the floor adds.
    assert ((found.exp().sum(dim=1) - 1).abs() < 5 * MIN_SHARE + 1e-6).all()


def test_classes_without_rows_get_the_least_share() -> None:
    x, y = rows(n_classes=4)
    y = torch.where(y == 2, 1, y)  # class 2 has none, nor has class 4
    found = neighbours(x, y)(x)
    for k in (2, 4):
        torch.testing.assert_close(found[:, k].exp(), torch.full((60,), MIN_SHARE))
    assert (found[:, [0, 1, 3]].amax(dim=0) > math.log(0.5)).all()


def test_a_class_far_away_has_the_least_share_too() -> None:
    x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
    y = torch.tensor([0, 0, 1, 1])
    found = neighbours(x, y, 2)(x).exp()
    torch.testing.assert_close(found.gather(1, y[:, None])[:, 0], torch.ones(4))
    torch.testing.assert_close(found.gather(1, 1 - y[:, None])[:, 0], torch.full((4,), MIN_SHARE))


def test_a_row_equal_to_the_mean_has_no_direction_and_gets_the_frequencies() -> None:
    x, y = rows(90)
    model = neighbours(x, y)
    found = model(model.standardize.mean[None]).exp()
    torch.testing.assert_close(found[0], torch.bincount(y, minlength=5) / 90)


@pytest.mark.parametrize("units", [[1e-3, -2.0, 1e4], [1e12, 1e-12, 1.0], [-1.0, -1.0, -1.0]])
def test_units_of_the_features_are_of_no_concern(units: list[float]) -> None:
    x, y, new = some()
    by = torch.tensor(units, dtype=torch.float64)
    to = by * torch.tensor([5.0, 0, -1e3], dtype=torch.float64)
    same(neighbours(x * by + to, y)(new * by + to), neighbours(x, y)(new))
    stretched = new * new.new_tensor([1.0, 1.0, 9.0])  # but those of new rows are those of fit
    assert not torch.allclose(neighbours(x, y)(stretched), neighbours(x, y)(new), atol=0.1)


def test_the_order_of_rows_classes_and_features_is_of_no_concern() -> None:
    x, y, new = some()
    generator = torch.Generator().manual_seed(1)
    order, names = (torch.randperm(n, generator=generator) for n in (60, 5))
    columns = torch.tensor([2, 0, 1])
    found = neighbours(x, y)(new)
    other = neighbours(x[order][:, columns], names[y][order])(new[:, columns])
    same(other[:, names], found)
    assert not torch.allclose(other, found, atol=0.1)


def test_rows_are_judged_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, new = some()
    model = neighbours(x, y)
    found = model(new)
    same(torch.cat([model(row[None]) for row in new]), found)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    same(model(new[order]), found[order])
    blocks, seen = _neighbours.row_blocks, []
    monkeypatch.setattr(
        _neighbours, "row_blocks", lambda n, w, _: blocks(n, w, elements=7 * 60 + 5)
    )
    model.standardize.register_forward_hook(lambda m, inputs, out: seen.append(len(out)))
    same(model(new), found)
    assert seen == [7, 7, 7, 7, 2]  # of 60 cosines each


def test_directions_in_which_rows_of_a_class_differ_count_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two classes differ by little in each feature, and all features share what is of no use."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(3, 8))

    def draw(n: int) -> tuple[Tensor, Tensor]:
        y = rng.integers(2, size=n)
        x = 3 * rng.normal(size=(n, 3)) @ shared
        x += np.where(y == 1, 0.5, -0.5)[:, None] * np.tile([1.0, -1.0], 4)
        return torch.from_numpy(x + 0.1 * rng.normal(size=(n, 8))), torch.from_numpy(y)

    (x, y), (new, labels) = draw(100), draw(200)
    whitened = neighbours(x, y, 2)(new).argmax(dim=1) == labels
    assert whitened.double().mean() > 0.97
    monkeypatch.setattr(_neighbours, "MAX_FEATURES", 0)
    plain = neighbours(x, y, 2)(new).argmax(dim=1) == labels
    assert plain.double().mean() < 0.85
    i = int(torch.nonzero(whitened & ~plain)[0])
    shares = [
        one_by_one(new[i : i + 1].numpy(), x.numpy(), y.numpy(), 2, whitened=w)[0, labels[i]]
        for w in (False, True)
    ]
    assert shares[0] < 0.5 < shares[1]


@pytest.mark.parametrize("most", [3, 4])
def test_of_too_many_features_the_covariance_is_left_alone(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = rows(width=4)
    monkeypatch.setattr(_neighbours, "MAX_FEATURES", most)
    model = neighbours(x, y)
    assert (model.root is None) == (most == 3)
    expected = one_by_one(x.numpy(), x.numpy(), y.numpy(), 5, whitened=most == 4)
    np.testing.assert_allclose(model(x), np.log(expected), atol=1e-3)


def test_of_too_many_rows_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, new = some(100)
    whole = neighbours(x, y)
    assert len(whole.index) == 100
    monkeypatch.setattr(_neighbours, "MAX_ROWS", 20)
    model, again, other = (neighbours(x, y, seed=seed) for seed in (3, 3, 4))
    assert len(model.index) == len(model.directions) == 20
    assert torch.equal(model(new), again(new))
    assert not torch.allclose(model(new), other(new), atol=0.1)
    # Different rows of the fit with their own labels, in the metric of all rows.
    gaps, at = torch.cdist(model.directions, whole.directions).min(dim=1)
    assert float(gaps.max()) < 1e-3
    assert len(set(at.tolist())) == 20
    assert at.max() > 50
    assert torch.equal(model.index, whole.index[at])
    assert torch.equal(whole.index, y.sort().values)
    torch.testing.assert_close(model.root, whole.root)
    monkeypatch.setattr(_neighbours, "MAX_ROWS", 100)
    assert torch.equal(neighbours(x, y, seed=4)(new), whole(new))


def test_a_draw_leaves_the_global_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_neighbours, "MAX_ROWS", 20)
    before = torch.get_rng_state()
    neighbours(*rows())
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
    model = neighbours(x, y)
    wide = x.double()
    for new in (x, x.roll(1, dims=1), 1e25 * wide, -x, wide + 1e20):
        found = model(new)
        assert torch.isfinite(found).all()
        assert ((found.exp().sum(dim=1) - 1).abs() < 1e-5).all()
        assert expected is None or torch.allclose(found.exp(), expected.expand_as(found), atol=1e-5)
    if case not in ("constant", "copies", "a row"):  # a row is its own nearest neighbour
        assert (model(x).argmax(dim=1) == y).double().mean() > 0.7


def test_rows_that_are_all_far_away_still_weigh_against_one_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Opposite to all rows: cosines near -1, with very small exponentials; or all near 1."""
    sharpness = SHARPNESS
    plain = Standardize(torch.zeros(2), torch.ones(2))
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.5]])
    monkeypatch.setattr(_neighbours, "MAX_FEATURES", 0)
    model = Neighbours(plain, 3).fit(x, torch.tensor([0, 0, 1, 2]), seed=0)
    found = model(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).exp()
    for sign, shares in zip((1, -1), found, strict=True):
        cosines = sign * np.array([1.0, 1.0, 1.25**-0.5])
        weights = [2, 1, 1] * np.exp(sharpness * (cosines - cosines.max()))
        expected = np.maximum(weights / weights.sum(), MIN_SHARE)
        np.testing.assert_allclose(shares, expected, rtol=1e-3)


# Pools


def opinions(n: int, n_classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Log-probabilities that have nothing to do with one another."""
    rng = np.random.default_rng(seed)
    log_p, log_q = (
        torch.log_softmax(torch.from_numpy(scale * rng.normal(size=(n, n_classes))), dim=1).float()
        for scale in (3, 2)
    )
    return log_p, log_q.clamp(min=math.log(MIN_SHARE))


def lists(log_p: Tensor, depth: int, *, ragged: bool = True) -> tuple[Tensor, Tensor]:
    """The best few of each row and all others, and which class each column is."""
    n, n_classes = log_p.shape
    best, labels = (v[:, :depth] for v in log_p.sort(dim=1, descending=True))
    length = 1 + torch.arange(n) % depth if ragged else torch.full((n,), depth)
    ended = torch.arange(depth) >= length[:, None]
    outside = 1 - best.exp().masked_fill(ended, 0).sum(dim=1, keepdim=True)
    columns = torch.cat([labels.masked_fill(ended, n_classes), torch.full((n, 1), n_classes)], 1)
    return torch.cat([best.masked_fill(ended, -1e4), outside.log()], dim=1), columns


def both(n: int, n_classes: int, *, listed: bool, seed: int = 0) -> Estimates:
    """Both opinions, of all classes or of ragged lists."""
    log_p, log_q = opinions(n, n_classes, seed)
    if not listed:
        return log_p, *align_columns(log_q, None)
    log_p, columns = lists(log_p, n_classes // 2)
    return log_p, *align_columns(log_q, columns)


def likelihood(pool: Pool, given: Estimates, target: Tensor) -> float:
    return float(pool(*given).double().gather(1, target[:, None]).mean())


def exponents(pool: Pool) -> tuple[float, float]:
    return pool.a, pool.b


SOME = [
    Pool(0.7, 0.3),
    Pool(2.0, 0.05),
    Pool(1e-6, 1.0),
    Pool(1e-6, 1e-6),
    Pool(MAX_TEMPERATURE, MAX_TEMPERATURE),
]
EACH = [pytest.param(pool, id=f"{pool.a:g},{pool.b:g}") for pool in SOME]


@pytest.mark.parametrize("pool", EACH)
def test_a_pool_is_the_product_of_powers(pool: Pool) -> None:
    log_p, log_q = opinions(50, 7)
    found = pool(log_p, log_q, None)
    logs = pool.a * log_p.double().numpy() + pool.b * log_q.double().numpy()
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.exp(), expected, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found.exp().sum(dim=1), 1, atol=1e-5)
    assert found.dtype == torch.float32


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("pool", [*EACH, pytest.param(Pool(), id="1,0")])
def test_lists_get_each_labels_power_and_the_rest_that_of_all_others(
    pool: Pool, ragged: bool
) -> None:
    every, log_q = opinions(40, 9)
    log_p, columns = lists(every, 4, ragged=ragged)
    found = pool(log_p, *align_columns(log_q, columns)).double().exp()
    for i in range(40):
        listed = [k for k in columns[i].tolist()[:-1] if k < 9]
        places = [*range(len(listed)), 4]
        q = log_q[i].double().exp().numpy()
        others = sum(q[k] for k in range(9) if k not in listed)
        logs = pool.a * log_p[i, places].double().numpy()
        logs += pool.b * np.log([*q[listed], max(others, MIN_SHARE)])
        powers = np.exp(logs - logs.max())
        np.testing.assert_allclose(found[i, places], powers / powers.sum(), rtol=2e-3, atol=1e-6)
        assert (found[i, len(listed) : -1] == 0).all()
        assert float(found[i].sum()) == pytest.approx(1, abs=1e-5)


def test_shares_in_the_columns_of_lists() -> None:
    _, log_q = opinions(40, 9)
    log_p, columns = lists(opinions(40, 9)[0], 4)
    found, ended = align_columns(log_q, columns)
    assert found.shape == log_p.shape
    assert ended is not None
    assert torch.equal(ended[:, :-1], columns[:, :-1] == 9)
    assert not ended[:, -1].any()
    at = torch.nonzero(~ended[:, :-1])
    assert torch.equal(found[at[:, 0], at[:, 1]], log_q[at[:, 0], columns[at[:, 0], at[:, 1]]])
    mass = found.exp().masked_fill(ended, 0).sum(dim=1)
    torch.testing.assert_close(mass, log_q.exp().sum(dim=1), rtol=0, atol=1e-5)
    assert align_columns(log_q, None) == (log_q, None)


def test_lists_of_all_classes_leave_the_least_share_and_are_the_dense_pool() -> None:
    every, log_q = opinions(40, 6)
    labels = every.sort(dim=1, descending=True).indices
    log_p = torch.cat([every.gather(1, labels), torch.full((40, 1), -30.0)], dim=1)
    columns = torch.cat([labels, torch.full((40, 1), 6)], dim=1)
    shares, ended = align_columns(log_q, columns)
    assert ((shares[:, -1].exp() - MIN_SHARE).abs() < 1e-6).all()
    found = SOME[0](log_p, shares, ended).exp()
    expected = SOME[0](every, log_q, None).exp().gather(1, labels)
    torch.testing.assert_close(found[:, :-1], expected, rtol=1e-4, atol=1e-6)
    assert float(found[:, -1].max()) < 1e-6


@pytest.mark.parametrize("listed", [False, True])
def test_by_default_a_pool_is_the_first_opinion(listed: bool) -> None:
    given = both(40, 8, listed=listed)
    torch.testing.assert_close(Pool()(*given).exp(), given[0].exp())
    theirs = given[1] if given[2] is None else given[1].masked_fill(given[2], -torch.inf)
    found = Pool(0.0, 1.0)(*given).exp()
    torch.testing.assert_close(found, theirs.exp(), rtol=1e-4, atol=1e-6)


# Fits


def drawn(pool: Pool, n: int, *, listed: bool) -> tuple[Estimates, Tensor]:
    """Estimates, and labels that follow the pool of them."""
    given = both(n, 10, listed=listed)
    p = pool(*given).exp()
    return given, torch.multinomial(p, 1, generator=torch.Generator().manual_seed(0))[:, 0]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("truth", [(0.7, 0.3), (1.5, 0.1), (0.2, 1.3)])
def test_a_fit_finds_the_exponents_that_labels_follow(
    truth: tuple[float, float], listed: bool
) -> None:
    given, y = drawn(Pool(*truth), 10_000, listed=listed)
    found = Pool.fit(*given, y)
    assert exponents(found) == pytest.approx(truth, rel=0.1, abs=0.03)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("labels", ["first", "last", "nearest", "farthest", "any", "one", "sum"])
def test_a_fit_is_at_least_as_likely_as_either_opinion_and_others(
    labels: str, listed: bool
) -> None:
    log_p, log_q, ended = given = both(200, 6, listed=listed)
    at = torch.zeros_like(log_p, dtype=torch.bool) if ended is None else ended
    y = {
        "first": log_p.argmax(dim=1),
        "last": log_p.masked_fill(at, torch.inf).argmin(dim=1),
        "nearest": log_q.masked_fill(at, -torch.inf).argmax(dim=1),
        "farthest": log_q.masked_fill(at, torch.inf).argmin(dim=1),
        "any": (~at).int().argsort(dim=1, stable=True)[:, -1],
        "one": torch.zeros(200, dtype=torch.int64),
        "sum": (0.7 * log_p + 0.3 * log_q).masked_fill(at, -torch.inf).argmax(dim=1),
    }[labels]
    assert not at.gather(1, y[:, None]).any()
    found = Pool.fit(*given, y)
    assert 0 <= found.a <= MAX_TEMPERATURE
    assert 0 <= found.b <= MAX_TEMPERATURE
    mine = likelihood(found, given, y)
    assert mine >= likelihood(Pool(), given, y) - 1e-4
    assert mine >= likelihood(Pool(1e-9, 1.0), given, y) - 1e-4
    for a in (0.0, 0.1, 1.0, 5.0, 30.0):
        for b in (0.0, 0.1, 1.0, 5.0, 30.0):
            assert mine >= likelihood(Pool(a, b), given, y) - 1e-3


def test_exponents_that_are_both_large_keep_their_ratio() -> None:
    """Estimates that err in opposite ways, and whose product never does."""
    rng = np.random.default_rng(0)
    for scale in (0.3, 3.0):
        told, error = (torch.from_numpy(rng.normal(size=(500, 8))) for _ in range(2))
        log_p = torch.log_softmax(scale * (told + 3 * error), dim=1).float()
        log_q = torch.log_softmax(0.1 * scale * (told - 3 * error), dim=1).float()
        given, y = (log_p, log_q, None), told.argmax(dim=1)
        found = Pool.fit(*given, y)
        assert max(exponents(found)) <= MAX_TEMPERATURE
        assert found.b == pytest.approx(10 * found.a, rel=0.1)
        assert likelihood(found, given, y) > 0.5 * likelihood(Pool(), given, y)


def test_an_opinion_that_knows_nothing_gets_no_weight() -> None:
    given, y = drawn(Pool(), 10_000, listed=False)
    assert exponents(Pool.fit(*given, y)) == pytest.approx((1, 0), abs=0.05)
    given, y = drawn(Pool(0.0, 1.0), 10_000, listed=False)
    assert exponents(Pool.fit(*given, y)) == pytest.approx((0, 1), abs=0.05)


@pytest.mark.parametrize("listed", [False, True])
def test_of_many_scores_some_are_looked_at(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given, y = drawn(Pool(0.7, 0.3), 9_000, listed=listed)
    whole = Pool.fit(*given, y)
    seen: set[int] = set()
    real = _neighbours._pool

    def counted(log_p: Tensor, *rest: Tensor) -> Tensor:
        seen.add(len(log_p))
        return real(log_p, *rest)

    monkeypatch.setattr(_neighbours, "_pool", counted)
    monkeypatch.setattr(_neighbours, "MAX_SCORES", given[0].numel() // 3)
    third = Pool.fit(*given, y)
    assert seen == {3_000}
    assert exponents(third) == pytest.approx(exponents(whole), rel=0.15)
    assert exponents(third) != exponents(whole)


def test_what_cannot_be_fitted_leaves_the_first_opinion_alone() -> None:
    log_p, log_q = opinions(20, 4)
    y = torch.zeros(20, dtype=torch.int64)
    assert exponents(Pool()) == (1.0, 0.0)
    for given in ((log_p, log_q * torch.nan), (log_p * torch.nan, log_q)):
        assert exponents(Pool.fit(*given, None, y)) == (1.0, 0.0)


@pytest.mark.parametrize("far", [-1e3, 1e3])
def test_a_search_that_runs_away_is_held_back(far: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_away(optimizer: torch.optim.Optimizer, loss: object) -> None:
        optimizer.param_groups[0]["params"][0].data.fill_(far)

    monkeypatch.setattr(torch.optim.LBFGS, "step", run_away)
    for listed in (False, True):
        given = both(20, 4, listed=listed)
        found = Pool.fit(*given, torch.zeros(20, dtype=torch.int64))
        assert exponents(found) == pytest.approx(
            (MAX_TEMPERATURE, MAX_TEMPERATURE) if far > 0 else (0, 0)
        )
        torch.testing.assert_close(found(*given).exp().sum(dim=1), torch.ones(20))


@pytest.mark.parametrize("sure", [False, True])
@pytest.mark.parametrize("case", ["separable", "one class", "constant", "one row each"])
def test_extreme_rows_are_pooled(case: str, sure: bool) -> None:
    x, y = rows(60, width=8)
    match case:
        case "separable":
            x = torch.eye(8, dtype=x.dtype)[y] * 1e6
        case "one class":
            y = torch.zeros_like(y)
        case "constant":
            x = torch.full_like(x, 7.0)
        case "one row each":
            x, y = x[:5], torch.arange(5)
    log_p = torch.log_softmax((1e3 if sure else 0.0) * torch.eye(5)[y], dim=1)
    given = log_p, neighbours(x, y)(x), None
    found = Pool.fit(*given, y)
    assert np.isfinite(exponents(found)).all()
    assert likelihood(found, given, y) >= likelihood(Pool(), given, y) - 1e-5
    p = found(*given)
    assert not p.isnan().any()
    torch.testing.assert_close(p.logsumexp(dim=1), torch.zeros(len(y)), rtol=0, atol=1e-5)
