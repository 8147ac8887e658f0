"""Class probabilities from neighbours, and pools of two estimates fitted to labels."""

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
    """Features scattered round a centre for each class, in arbitrary units, and labels."""
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


def fit_neighbours(x: Tensor, y: Tensor, n_classes: int = 5, seed: int = 0) -> Neighbours:
    return Neighbours(Standardize.from_data(x), n_classes).fit(x, y, seed)


def shares_by_definition(
    new: Floats, x: Floats, y: Integers, n: int, *, whitened: bool = True
) -> Floats:
    """Compute the shares as they are defined, one row and class at a time."""
    deviation = x.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1)
    z, new_z = (x - x.mean(axis=0)) / scale, (new - x.mean(axis=0)) / scale
    width = x.shape[1]
    covariance = np.zeros((width, width))
    for k in range(n):
        for row in z[y == k]:
            centred = row - z[y == k].mean(axis=0)
            covariance += np.outer(centred, centred) / len(z)
    shrunken = (1 - SHRINKAGE) * covariance
    shrunken += SHRINKAGE * np.trace(covariance) / width * np.eye(width)
    root = np.linalg.cholesky(shrunken) if whitened else np.eye(width)
    shares = np.zeros((len(new), n))
    for i, new_row in enumerate(new_z):
        a = np.linalg.solve(root, new_row)
        for row, label in zip(z, y, strict=True):
            b = np.linalg.solve(root, row)
            shares[i, label] += np.exp(SHARPNESS * a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    return np.maximum(shares / shares.sum(axis=1, keepdims=True), MIN_SHARE)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-3)


# Shares


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 6])
def test_shares_equal_their_definition(width: int) -> None:
    n_classes = 1 + width
    x, y, new = train_and_new_rows(10 * n_classes, n_classes, width)
    log_shares = fit_neighbours(x, y, n_classes)(new)
    assert log_shares.dtype == torch.float32
    assert log_shares.shape == (30, n_classes)
    expected = shares_by_definition(new.numpy(), x.numpy(), y.numpy(), n_classes)
    np.testing.assert_allclose(log_shares, np.log(expected), atol=1e-3)
    plain = shares_by_definition(new.numpy(), x.numpy(), y.numpy(), n_classes, whitened=False)
    assert width == 1 or not np.allclose(log_shares, np.log(plain), atol=0.1)


def test_shares_sum_to_one() -> None:
    x, y, new = train_and_new_rows(400)
    log_shares = fit_neighbours(x, y)(new)
    whole = log_shares[(log_shares > math.log(MIN_SHARE) + 1e-3).all(dim=1)]
    assert len(whole) > 10
    torch.testing.assert_close(whole.exp().sum(dim=1), torch.ones(len(whole)))
    # The log_shares of the other rows exceed one only by the lower bound of a share.
    assert ((log_shares.exp().sum(dim=1) - 1).abs() < 5 * MIN_SHARE + 1e-6).all()


def test_classes_without_rows_get_the_minimum_share() -> None:
    x, y = rows(n_classes=4)
    y = torch.where(y == 2, 1, y)  # Classes 2 and 4 have no rows.
    shares = fit_neighbours(x, y)(x)
    for k in (2, 4):
        torch.testing.assert_close(shares[:, k].exp(), torch.full((60,), MIN_SHARE))
    assert (shares[:, [0, 1, 3]].amax(dim=0) > math.log(0.5)).all()


def test_a_distant_class_gets_the_minimum_share() -> None:
    x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
    y = torch.tensor([0, 0, 1, 1])
    shares = fit_neighbours(x, y, 2)(x).exp()
    torch.testing.assert_close(shares.gather(1, y[:, None])[:, 0], torch.ones(4))
    torch.testing.assert_close(shares.gather(1, 1 - y[:, None])[:, 0], torch.full((4,), MIN_SHARE))


def test_a_row_equal_to_the_mean_gets_the_class_frequencies() -> None:
    x, y = rows(90)
    model = fit_neighbours(x, y)
    shares = model(model.standardize.mean[None]).exp()
    torch.testing.assert_close(shares[0], torch.bincount(y, minlength=5) / 90)


@pytest.mark.parametrize("units", [[1e-3, -2.0, 1e4], [1e12, 1e-12, 1.0], [-1.0, -1.0, -1.0]])
def test_shares_do_not_depend_on_the_units_of_features(units: list[float]) -> None:
    x, y, new = train_and_new_rows()
    scale = torch.tensor(units, dtype=torch.float64)
    shift = scale * torch.tensor([5.0, 0, -1e3], dtype=torch.float64)
    assert_same(
        fit_neighbours(x * scale + shift, y)(new * scale + shift), fit_neighbours(x, y)(new)
    )
    # New rows must have the units of the rows of fit.
    stretched = new * new.new_tensor([1.0, 1.0, 9.0])
    assert not torch.allclose(fit_neighbours(x, y)(stretched), fit_neighbours(x, y)(new), atol=0.1)


def test_shares_do_not_depend_on_the_order_of_rows_classes_or_features() -> None:
    x, y, new = train_and_new_rows()
    generator = torch.Generator().manual_seed(1)
    order, names = (torch.randperm(n, generator=generator) for n in (60, 5))
    columns = torch.tensor([2, 0, 1])
    log_shares = fit_neighbours(x, y)(new)
    other = fit_neighbours(x[order][:, columns], names[y][order])(new[:, columns])
    assert_same(other[:, names], log_shares)
    assert not torch.allclose(other, log_shares, atol=0.1)


def test_shares_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, new = train_and_new_rows()
    model = fit_neighbours(x, y)
    log_shares = model(new)
    assert_same(torch.cat([model(row[None]) for row in new]), log_shares)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    assert_same(model(new[order]), log_shares[order])
    blocks, block_sizes = _neighbours.row_blocks, []
    monkeypatch.setattr(
        _neighbours, "row_blocks", lambda n, w, _: blocks(n, w, elements=7 * 60 + 5)
    )
    model.standardize.register_forward_hook(lambda m, inputs, out: block_sizes.append(len(out)))
    assert_same(model(new), log_shares)
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
    whitened = fit_neighbours(x, y, 2)(new).argmax(dim=1) == labels
    assert whitened.double().mean() > 0.97
    monkeypatch.setattr(_neighbours, "MAX_FEATURES", 0)
    plain = fit_neighbours(x, y, 2)(new).argmax(dim=1) == labels
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
    monkeypatch.setattr(_neighbours, "MAX_FEATURES", most)
    model = fit_neighbours(x, y)
    assert (model.root is None) == (most == 3)
    expected = shares_by_definition(x.numpy(), x.numpy(), y.numpy(), 5, whitened=most == 4)
    np.testing.assert_allclose(model(x), np.log(expected), atol=1e-3)


def test_neighbours_are_drawn_if_there_are_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, new = train_and_new_rows(100)
    whole = fit_neighbours(x, y)
    assert len(whole.index) == 100
    monkeypatch.setattr(_neighbours, "MAX_ROWS", 20)
    model, again, other = (fit_neighbours(x, y, seed=seed) for seed in (3, 3, 4))
    assert len(model.index) == len(model.directions) == 20
    assert torch.equal(model(new), again(new))
    assert not torch.allclose(model(new), other(new), atol=0.1)
    # The draw is without replacement, keeps the labels, and uses the metric of all rows.
    distances, place = torch.cdist(model.directions, whole.directions).min(dim=1)
    assert float(distances.max()) < 1e-3
    assert len(set(place.tolist())) == 20
    assert place.max() > 50
    assert torch.equal(model.index, whole.index[place])
    assert torch.equal(whole.index, y.sort().values)
    torch.testing.assert_close(model.root, whole.root)
    monkeypatch.setattr(_neighbours, "MAX_ROWS", 100)
    assert torch.equal(fit_neighbours(x, y, seed=4)(new), whole(new))


def test_a_draw_does_not_change_the_global_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_neighbours, "MAX_ROWS", 20)
    before = torch.get_rng_state()
    fit_neighbours(*rows())
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
    model = fit_neighbours(x, y)
    wide = x.double()
    for new in (x, x.roll(1, dims=1), 1e25 * wide, -x, wide + 1e20):
        log_shares = model(new)
        assert torch.isfinite(log_shares).all()
        assert ((log_shares.exp().sum(dim=1) - 1).abs() < 1e-5).all()
        assert expected is None or torch.allclose(
            log_shares.exp(), expected.expand_as(log_shares), atol=1e-5
        )
    if case not in ("constant", "copies", "a row"):  # A row is its own nearest neighbour.
        assert (model(x).argmax(dim=1) == y).double().mean() > 0.7


def test_shares_of_distant_neighbours_are_precise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a row opposite to all neighbours, cosines are near -1 and weights are very small."""
    sharpness = SHARPNESS
    plain = Standardize(torch.zeros(2), torch.ones(2))
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.5]])
    monkeypatch.setattr(_neighbours, "MAX_FEATURES", 0)
    model = Neighbours(plain, 3).fit(x, torch.tensor([0, 0, 1, 2]), seed=0)
    all_shares = model(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).exp()
    for sign, shares in zip((1, -1), all_shares, strict=True):
        cosines = sign * np.array([1.0, 1.0, 1.25**-0.5])
        weights = [2, 1, 1] * np.exp(sharpness * (cosines - cosines.max()))
        expected = np.maximum(weights / weights.sum(), MIN_SHARE)
        np.testing.assert_allclose(shares, expected, rtol=1e-3)


# Pools


def independent_estimates(n: int, n_classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two independent tables of log-probabilities."""
    rng = np.random.default_rng(seed)
    log_p, log_q = (
        torch.log_softmax(torch.from_numpy(scale * rng.normal(size=(n, n_classes))), dim=1).float()
        for scale in (3, 2)
    )
    return log_p, log_q.clamp(min=math.log(MIN_SHARE))


def to_candidates(log_p: Tensor, depth: int, *, ragged: bool = True) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the best labels and of all others, and the class of each column."""
    n, n_classes = log_p.shape
    best, labels = (v[:, :depth] for v in log_p.sort(dim=1, descending=True))
    length = 1 + torch.arange(n) % depth if ragged else torch.full((n,), depth)
    padding = torch.arange(depth) >= length[:, None]
    outside = 1 - best.exp().masked_fill(padding, 0).sum(dim=1, keepdim=True)
    columns = torch.cat([labels.masked_fill(padding, n_classes), torch.full((n, 1), n_classes)], 1)
    return torch.cat([best.masked_fill(padding, -1e4), outside.log()], dim=1), columns


def make_estimates(n: int, n_classes: int, *, listed: bool, seed: int = 0) -> Estimates:
    """Two estimates, of all classes or of candidates of different lengths."""
    log_p, log_q = independent_estimates(n, n_classes, seed)
    if not listed:
        return log_p, *align_columns(log_q, None)
    log_p, columns = to_candidates(log_p, n_classes // 2)
    return log_p, *align_columns(log_q, columns)


def mean_log_likelihood(pool: Pool, estimates: Estimates, target: Tensor) -> float:
    return float(pool(*estimates).double().gather(1, target[:, None]).mean())


def exponents(pool: Pool) -> tuple[float, float]:
    return pool.a, pool.b


POOLS = [
    Pool(0.7, 0.3),
    Pool(2.0, 0.05),
    Pool(1e-6, 1.0),
    Pool(1e-6, 1e-6),
    Pool(MAX_TEMPERATURE, MAX_TEMPERATURE),
]
POOL_PARAMETERS = [pytest.param(pool, id=f"{pool.a:g},{pool.b:g}") for pool in POOLS]


@pytest.mark.parametrize("pool", POOL_PARAMETERS)
def test_a_pool_is_the_normalized_product_of_powers(pool: Pool) -> None:
    log_p, log_q = independent_estimates(50, 7)
    pooled = pool(log_p, log_q, None)
    logs = pool.a * log_p.double().numpy() + pool.b * log_q.double().numpy()
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(pooled.exp(), expected, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(pooled.exp().sum(dim=1), 1, atol=1e-5)
    assert pooled.dtype == torch.float32


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("pool", [*POOL_PARAMETERS, pytest.param(Pool(), id="1,0")])
def test_candidates_and_the_mass_of_all_others_are_pooled(pool: Pool, ragged: bool) -> None:
    every, log_q = independent_estimates(40, 9)
    log_p, columns = to_candidates(every, 4, ragged=ragged)
    pooled = pool(log_p, *align_columns(log_q, columns)).double().exp()
    for i in range(40):
        listed = [k for k in columns[i].tolist()[:-1] if k < 9]
        places = [*range(len(listed)), 4]
        q = log_q[i].double().exp().numpy()
        others = sum(q[k] for k in range(9) if k not in listed)
        logs = pool.a * log_p[i, places].double().numpy()
        logs += pool.b * np.log([*q[listed], max(others, MIN_SHARE)])
        powers = np.exp(logs - logs.max())
        np.testing.assert_allclose(pooled[i, places], powers / powers.sum(), rtol=2e-3, atol=1e-6)
        assert (pooled[i, len(listed) : -1] == 0).all()
        assert float(pooled[i].sum()) == pytest.approx(1, abs=1e-5)


def test_shares_are_aligned_with_the_columns_of_candidates() -> None:
    _, log_q = independent_estimates(40, 9)
    log_p, columns = to_candidates(independent_estimates(40, 9)[0], 4)
    aligned, padding = align_columns(log_q, columns)
    assert aligned.shape == log_p.shape
    assert padding is not None
    assert torch.equal(padding[:, :-1], columns[:, :-1] == 9)
    assert not padding[:, -1].any()
    row, place = torch.nonzero(~padding[:, :-1]).T
    assert torch.equal(aligned[row, place], log_q[row, columns[row, place]])
    mass = aligned.exp().masked_fill(padding, 0).sum(dim=1)
    torch.testing.assert_close(mass, log_q.exp().sum(dim=1), rtol=0, atol=1e-5)
    assert align_columns(log_q, None) == (log_q, None)


def test_candidates_of_all_classes_are_pooled_like_dense_rows() -> None:
    every, log_q = independent_estimates(40, 6)
    labels = every.sort(dim=1, descending=True).indices
    log_p = torch.cat([every.gather(1, labels), torch.full((40, 1), -30.0)], dim=1)
    columns = torch.cat([labels, torch.full((40, 1), 6)], dim=1)
    shares, padding = align_columns(log_q, columns)
    assert ((shares[:, -1].exp() - MIN_SHARE).abs() < 1e-6).all()
    pooled = POOLS[0](log_p, shares, padding).exp()
    expected = POOLS[0](every, log_q, None).exp().gather(1, labels)
    torch.testing.assert_close(pooled[:, :-1], expected, rtol=1e-4, atol=1e-6)
    assert float(pooled[:, -1].max()) < 1e-6


@pytest.mark.parametrize("listed", [False, True])
def test_a_default_pool_is_the_first_estimate(listed: bool) -> None:
    estimates = make_estimates(40, 8, listed=listed)
    torch.testing.assert_close(Pool()(*estimates).exp(), estimates[0].exp())
    second = (
        estimates[1] if estimates[2] is None else estimates[1].masked_fill(estimates[2], -torch.inf)
    )
    pooled = Pool(0.0, 1.0)(*estimates).exp()
    torch.testing.assert_close(pooled, second.exp(), rtol=1e-4, atol=1e-6)


# Fits


def draw_labels(pool: Pool, n: int, *, listed: bool) -> tuple[Estimates, Tensor]:
    """Two estimates, and labels drawn from their pool."""
    estimates = make_estimates(n, 10, listed=listed)
    p = pool(*estimates).exp()
    return estimates, torch.multinomial(p, 1, generator=torch.Generator().manual_seed(0))[:, 0]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("truth", [(0.7, 0.3), (1.5, 0.1), (0.2, 1.3)])
def test_fit_recovers_the_exponents_of_the_labels(truth: tuple[float, float], listed: bool) -> None:
    estimates, y = draw_labels(Pool(*truth), 10_000, listed=listed)
    fitted = Pool.fit(*estimates, y)
    assert exponents(fitted) == pytest.approx(truth, rel=0.1, abs=0.03)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("labels", ["first", "last", "nearest", "farthest", "any", "one", "sum"])
def test_fit_is_at_least_as_likely_as_other_exponents(labels: str, listed: bool) -> None:
    log_p, log_q, padding = estimates = make_estimates(200, 6, listed=listed)
    mask = torch.zeros_like(log_p, dtype=torch.bool) if padding is None else padding
    y = {
        "first": log_p.argmax(dim=1),
        "last": log_p.masked_fill(mask, torch.inf).argmin(dim=1),
        "nearest": log_q.masked_fill(mask, -torch.inf).argmax(dim=1),
        "farthest": log_q.masked_fill(mask, torch.inf).argmin(dim=1),
        "any": (~mask).int().argsort(dim=1, stable=True)[:, -1],
        "one": torch.zeros(200, dtype=torch.int64),
        "sum": (0.7 * log_p + 0.3 * log_q).masked_fill(mask, -torch.inf).argmax(dim=1),
    }[labels]
    assert not mask.gather(1, y[:, None]).any()
    fitted = Pool.fit(*estimates, y)
    assert 0 <= fitted.a <= MAX_TEMPERATURE
    assert 0 <= fitted.b <= MAX_TEMPERATURE
    fitted_likelihood = mean_log_likelihood(fitted, estimates, y)
    assert fitted_likelihood >= mean_log_likelihood(Pool(), estimates, y) - 1e-4
    assert fitted_likelihood >= mean_log_likelihood(Pool(1e-9, 1.0), estimates, y) - 1e-4
    for a in (0.0, 0.1, 1.0, 5.0, 30.0):
        for b in (0.0, 0.1, 1.0, 5.0, 30.0):
            assert fitted_likelihood >= mean_log_likelihood(Pool(a, b), estimates, y) - 1e-3


def test_large_exponents_keep_their_ratio() -> None:
    """The errors of the two estimates cancel in their product."""
    rng = np.random.default_rng(0)
    for scale in (0.3, 3.0):
        signal, error = (torch.from_numpy(rng.normal(size=(500, 8))) for _ in range(2))
        log_p = torch.log_softmax(scale * (signal + 3 * error), dim=1).float()
        log_q = torch.log_softmax(0.1 * scale * (signal - 3 * error), dim=1).float()
        estimates, y = (log_p, log_q, None), signal.argmax(dim=1)
        fitted = Pool.fit(*estimates, y)
        assert max(exponents(fitted)) <= MAX_TEMPERATURE
        assert fitted.b == pytest.approx(10 * fitted.a, rel=0.1)
        assert mean_log_likelihood(fitted, estimates, y) > 0.5 * mean_log_likelihood(
            Pool(), estimates, y
        )


def test_an_uninformative_estimate_gets_no_weight() -> None:
    estimates, y = draw_labels(Pool(), 10_000, listed=False)
    assert exponents(Pool.fit(*estimates, y)) == pytest.approx((1, 0), abs=0.05)
    estimates, y = draw_labels(Pool(0.0, 1.0), 10_000, listed=False)
    assert exponents(Pool.fit(*estimates, y)) == pytest.approx((0, 1), abs=0.05)


@pytest.mark.parametrize("listed", [False, True])
def test_fit_uses_a_sample_of_many_rows(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    estimates, y = draw_labels(Pool(0.7, 0.3), 9_000, listed=listed)
    whole = Pool.fit(*estimates, y)
    n_rows: set[int] = set()
    original = _neighbours._pool

    def recorded(log_p: Tensor, *rest: Tensor) -> Tensor:
        n_rows.add(len(log_p))
        return original(log_p, *rest)

    monkeypatch.setattr(_neighbours, "_pool", recorded)
    monkeypatch.setattr(_neighbours, "MAX_SCORES", estimates[0].numel() // 3)
    third = Pool.fit(*estimates, y)
    assert n_rows == {3_000}
    assert exponents(third) == pytest.approx(exponents(whole), rel=0.15)
    assert exponents(third) != exponents(whole)


def test_a_failed_fit_keeps_the_first_estimate() -> None:
    log_p, log_q = independent_estimates(20, 4)
    y = torch.zeros(20, dtype=torch.int64)
    assert exponents(Pool()) == (1.0, 0.0)
    for estimates in ((log_p, log_q * torch.nan), (log_p * torch.nan, log_q)):
        assert exponents(Pool.fit(*estimates, None, y)) == (1.0, 0.0)


@pytest.mark.parametrize("far", [-1e3, 1e3])
def test_exponents_of_a_diverging_fit_are_bounded(
    far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(optimizer: torch.optim.Optimizer, loss: object) -> None:
        optimizer.param_groups[0]["params"][0].data.fill_(far)

    monkeypatch.setattr(torch.optim.LBFGS, "step", diverge)
    for listed in (False, True):
        estimates = make_estimates(20, 4, listed=listed)
        fitted = Pool.fit(*estimates, torch.zeros(20, dtype=torch.int64))
        assert exponents(fitted) == pytest.approx(
            (MAX_TEMPERATURE, MAX_TEMPERATURE) if far > 0 else (0, 0)
        )
        torch.testing.assert_close(fitted(*estimates).exp().sum(dim=1), torch.ones(20))


@pytest.mark.parametrize("confident", [False, True])
@pytest.mark.parametrize("case", ["separable", "one class", "constant", "one row each"])
def test_estimates_of_extreme_rows_can_be_pooled(case: str, confident: bool) -> None:
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
    log_p = torch.log_softmax((1e3 if confident else 0.0) * torch.eye(5)[y], dim=1)
    estimates = log_p, fit_neighbours(x, y)(x), None
    fitted = Pool.fit(*estimates, y)
    assert np.isfinite(exponents(fitted)).all()
    assert (
        mean_log_likelihood(fitted, estimates, y)
        >= mean_log_likelihood(Pool(), estimates, y) - 1e-5
    )
    p = fitted(*estimates)
    assert not p.isnan().any()
    torch.testing.assert_close(p.logsumexp(dim=1), torch.zeros(len(y)), rtol=0, atol=1e-5)
