"""Pools of several estimates, fitted to labels."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from shortlist.learning.networks import Standardize
from shortlist.predictors.shortlister import pool as _pool
from shortlist.predictors.shortlister.opinions import Neighbors, align_columns, padding_mask
from shortlist.predictors.shortlister.opinions.base import MIN_SHARE
from shortlist.predictors.shortlister.pool import Pool, PoolFit

Estimates = tuple[list[Tensor], Tensor | None]
"""Tables of log-probabilities, and their padding."""


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
        return [log_p, log_q], None
    log_p, columns = to_candidates(log_p, n_classes // 2)
    return [log_p, align_columns(log_q, columns)], padding_mask(columns, n_classes)


def mean_log_likelihood(pool: Pool, estimates: Estimates, target: Tensor) -> float:
    return float(pool(*estimates).double().gather(1, target[:, None]).mean())


def fit_pool(estimates: Estimates, target: Tensor) -> Pool:
    """Fit the exponents of all estimates, without dropping any."""
    tables, padding = estimates
    return Pool(PoolFit(tables, padding, target).exponents(range(len(tables)))[0].tolist())


def select(estimates: Estimates, target: Tensor) -> tuple[list[int], Pool]:
    """Fit the pool of estimates that are each an opinion, and drop those that do not help."""
    tables, padding = estimates
    return PoolFit(tables, padding, target).select([[i] for i in range(len(tables))])


EXPONENTS = [
    (0.7, 0.3),
    (2.0, 0.05),
    (0.0, 1.0),
    (1.0, 0.0),
    (0.0, 0.0),
    (1e-6, 1e-6),
    (99.0, 99.0),
]


@pytest.mark.parametrize("exponents", EXPONENTS)
def test_a_pool_is_the_normalized_product_of_powers(exponents: tuple[float, float]) -> None:
    log_p, log_q = independent_estimates(50, 7)
    before = log_p.clone(), log_q.clone()
    pooled = Pool(exponents)([log_p, log_q])
    logs = exponents[0] * log_p.double().numpy() + exponents[1] * log_q.double().numpy()
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(pooled.exp(), expected, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(pooled.exp().sum(dim=1), 1, atol=1e-5)
    assert pooled.dtype == torch.float32
    assert torch.equal(log_p, before[0])  # The tables are not changed.
    assert torch.equal(log_q, before[1])


def test_a_pool_of_three_estimates() -> None:
    (a, b), (c, _) = independent_estimates(50, 7), independent_estimates(50, 7, seed=1)
    pooled = Pool([0.5, 0.2, 1.1])([a, b, c])
    torch.testing.assert_close(pooled, torch.log_softmax(0.5 * a + 0.2 * b + 1.1 * c, dim=1))
    with pytest.raises(ValueError, match="zip"):
        Pool([0.5, 0.2])([a, b, c])


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("exponents", EXPONENTS)
def test_candidates_and_the_mass_of_all_others_are_pooled(
    exponents: tuple[float, float], ragged: bool
) -> None:
    every, log_q = independent_estimates(40, 9)
    log_p, columns = to_candidates(every, 4, ragged=ragged)
    tables = [log_p, align_columns(log_q, columns)]
    pooled = Pool(exponents)(tables, padding_mask(columns, 9)).double().exp()
    for i in range(40):
        listed = [k for k in columns[i].tolist()[:-1] if k < 9]
        places = [*range(len(listed)), 4]
        q = log_q[i].double().exp().numpy()
        others = sum(q[k] for k in range(9) if k not in listed)
        logs = exponents[0] * log_p[i, places].double().numpy()
        logs += exponents[1] * np.log([*q[listed], max(others, MIN_SHARE)])
        powers = np.exp(logs - logs.max())
        np.testing.assert_allclose(pooled[i, places], powers / powers.sum(), rtol=2e-3, atol=1e-6)
        assert (pooled[i, len(listed) : -1] == 0).all()
        assert float(pooled[i].sum()) == pytest.approx(1, abs=1e-5)


def test_shares_are_aligned_with_the_columns_of_candidates() -> None:
    _, log_q = independent_estimates(40, 9)
    log_p, columns = to_candidates(independent_estimates(40, 9)[0], 4)
    aligned, padding = align_columns(log_q, columns), padding_mask(columns, 9)
    assert aligned.shape == log_p.shape
    assert padding is not None
    assert torch.equal(padding[:, :-1], columns[:, :-1] == 9)
    assert not padding[:, -1].any()
    row, place = torch.nonzero(~padding[:, :-1]).T
    assert torch.equal(aligned[row, place], log_q[row, columns[row, place]])
    mass = aligned.exp().masked_fill(padding, 0).sum(dim=1)
    torch.testing.assert_close(mass, log_q.exp().sum(dim=1), rtol=0, atol=1e-5)
    assert align_columns(log_q, None) is log_q
    assert padding_mask(None, 9) is None


def test_a_small_mass_of_all_others_is_precise() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 8 * torch.randn(200, 9, generator=generator)
    every = torch.log_softmax(logits.double(), dim=1)
    labels = every.sort(dim=1, descending=True).indices[:, :4]
    columns = torch.cat([labels, torch.full((200, 1), 9)], dim=1)
    aligned = align_columns(every.float(), columns)
    others = every.scatter(1, labels, -torch.inf).logsumexp(dim=1)
    assert float(others.min()) < -20
    expected = others.clamp(min=math.log(MIN_SHARE))
    torch.testing.assert_close(aligned[:, -1].double(), expected, rtol=0, atol=1e-5)


def test_candidates_of_all_classes_are_pooled_like_dense_rows() -> None:
    every, log_q = independent_estimates(40, 6)
    labels = every.sort(dim=1, descending=True).indices
    log_p = torch.cat([every.gather(1, labels), torch.full((40, 1), -30.0)], dim=1)
    columns = torch.cat([labels, torch.full((40, 1), 6)], dim=1)
    shares = align_columns(log_q, columns)
    assert ((shares[:, -1].exp() - MIN_SHARE).abs() < 1e-6).all()
    pool = Pool([0.7, 0.3])
    pooled = pool([log_p, shares], padding_mask(columns, 6)).exp()
    expected = pool([every, log_q]).exp().gather(1, labels)
    torch.testing.assert_close(pooled[:, :-1], expected, rtol=1e-4, atol=1e-6)
    assert float(pooled[:, -1].max()) < 1e-6


@pytest.mark.parametrize("listed", [False, True])
def test_exponents_one_and_zero_select_an_estimate(listed: bool) -> None:
    tables, padding = make_estimates(40, 8, listed=listed)
    torch.testing.assert_close(Pool([1, 0])(tables, padding).exp(), tables[0].exp())
    second = tables[1] if padding is None else tables[1].masked_fill(padding, -torch.inf)
    pooled = Pool([0, 1])(tables, padding).exp()
    torch.testing.assert_close(pooled, second.exp(), rtol=1e-4, atol=1e-6)


# Fits


def draw_labels(
    exponents: tuple[float, ...], n: int, *, listed: bool, n_classes: int = 10
) -> tuple[Estimates, Tensor]:
    """Two estimates, and labels drawn from their pool."""
    estimates = make_estimates(n, n_classes, listed=listed)
    p = Pool(exponents)(*estimates).exp()
    return estimates, torch.multinomial(p, 1, generator=torch.Generator().manual_seed(0))[:, 0]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("truth", [(0.7, 0.3), (1.5, 0.1), (0.2, 1.3)])
def test_fit_recovers_the_exponents_of_the_labels(truth: tuple[float, float], listed: bool) -> None:
    estimates, y = draw_labels(truth, 10_000, listed=listed)
    assert fit_pool(estimates, y).exponents == pytest.approx(truth, rel=0.1, abs=0.03)
    kept, pool = select(estimates, y)
    assert kept == [0, 1]
    assert pool.exponents == fit_pool(estimates, y).exponents


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("labels", ["first", "last", "nearest", "farthest", "any", "one", "sum"])
def test_fit_is_at_least_as_likely_as_other_exponents(labels: str, listed: bool) -> None:
    """The penalty is worth one row, so that only moderate exponents are compared."""
    (log_p, log_q), padding = estimates = make_estimates(200, 6, listed=listed)
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
    fitted = fit_pool(estimates, y)
    assert all(0 <= exponent < math.inf for exponent in fitted.exponents)

    def objective(pool: Pool) -> float:
        away = np.array(pool.exponents) - [1, 0]
        return mean_log_likelihood(pool, estimates, y) - away @ away / 2 / 200

    best = objective(fitted)
    for pair in itertools.product((0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0), repeat=2):
        assert best >= objective(Pool(pair)) - 1e-5
    assert mean_log_likelihood(fitted, estimates, y) >= (
        mean_log_likelihood(Pool([1, 0]), estimates, y) - 1e-5
    )


def test_the_derivatives_are_those_of_the_penalized_loss() -> None:
    estimates, y = draw_labels((0.7, 0.3), 200, listed=True)
    fit = PoolFit(*estimates, y)

    def at(pair: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return fit._derivatives([0, 1], pair)

    here = np.array([0.8, 0.6])
    loss, gradient, hessian = at(here)
    away = here - [1, 0]
    pool = Pool(here.tolist())
    expected = -mean_log_likelihood(pool, estimates, y) + away @ away / 2 / 200
    assert loss == pytest.approx(expected, rel=1e-5)
    for i in range(2):
        step = 1e-2 * np.eye(2)[i]
        above, below = at(here + step), at(here - step)
        assert gradient[i] == pytest.approx((above[0] - below[0]) / 2e-2, rel=0.01, abs=1e-3)
        np.testing.assert_allclose(hessian[i], (above[1] - below[1]) / 2e-2, rtol=0.01, atol=1e-3)


def test_errors_that_cancel_are_found() -> None:
    """The errors of the two estimates cancel in their product."""
    rng = np.random.default_rng(0)
    for scale in (0.3, 3.0):
        signal, error = (torch.from_numpy(rng.normal(size=(500, 8))) for _ in range(2))
        log_p = torch.log_softmax(scale * (signal + 3 * error), dim=1).float()
        log_q = torch.log_softmax(0.1 * scale * (signal - 3 * error), dim=1).float()
        estimates, y = ([log_p, log_q], None), signal.argmax(dim=1)
        fitted = fit_pool(estimates, y)
        a, b = fitted.exponents
        assert b == pytest.approx(10 * a, rel=0.15)
        first = mean_log_likelihood(Pool([1, 0]), estimates, y)
        assert mean_log_likelihood(fitted, estimates, y) > 0.5 * first


@pytest.mark.parametrize("informative", [0, 1])
def test_an_uninformative_estimate_is_dropped(informative: int) -> None:
    truth = (1.0, 0.0) if informative == 0 else (0.0, 1.0)
    estimates, y = draw_labels(truth, 10_000, listed=False)
    assert fit_pool(estimates, y).exponents == pytest.approx(truth, abs=0.05)
    kept, pool = select(estimates, y)
    assert kept == [informative]
    assert pool.exponents == pytest.approx([1.0], abs=0.05)


def test_an_opinion_of_two_tables_is_kept_or_dropped_as_a_whole() -> None:
    (a, b), _ = estimates = make_estimates(4000, 8, listed=False)
    y = draw_labels((0.7, 0.3), 4000, listed=False, n_classes=8)[1]
    noise = independent_estimates(4000, 8, seed=7)
    tables = [a, noise[0], b, noise[1], *noise]
    kept, pool = PoolFit(tables, None, y).select([[0], [1, 2], [3], [4, 5]])
    assert kept == [0, 1]
    assert pool.exponents == pytest.approx([0.7, 0.0, 0.3], abs=0.05)
    alone = fit_pool(estimates, y).exponents
    assert [pool.exponents[0], pool.exponents[2]] == pytest.approx(alone, abs=0.02)


@pytest.mark.parametrize("listed", [False, True])
def test_fit_uses_a_sample_of_many_rows(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    estimates, y = draw_labels((0.7, 0.3), 9_000, listed=listed)
    whole = fit_pool(estimates, y).exponents
    monkeypatch.setattr(_pool, "MAX_VALUES", estimates[0][0].numel() // 3)
    assert PoolFit(*estimates, y).n_rows == 3_000
    third = fit_pool(estimates, y).exponents
    assert third == pytest.approx(whole, rel=0.15)
    assert third != whole


def test_blocks_do_not_change_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    estimates, y = draw_labels((0.7, 0.3), 500, listed=True)
    whole = fit_pool(estimates, y).exponents
    monkeypatch.setattr("shortlist._utils.blocks.BLOCK_ELEMENTS", 100)
    assert fit_pool(estimates, y).exponents == pytest.approx(whole, rel=1e-4)


# Extreme tables


def assert_usable(kept: list[int], pool: Pool, estimates: Estimates) -> None:
    """Assert that exponents are finite and not negative, and that probabilities sum to one."""
    tables, padding = estimates
    assert len(kept) >= 1
    assert np.isfinite(pool.exponents).all()
    assert min(pool.exponents) >= 0
    pooled = pool([tables[i] for i in kept], padding)
    assert not pooled.isnan().any()
    torch.testing.assert_close(pooled.exp().sum(dim=1), torch.ones(len(pooled)), rtol=0, atol=1e-4)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("listed", [False, True])
def test_estimates_that_are_not_finite_are_dropped(listed: bool, value: float) -> None:
    (log_p, log_q), padding = estimates = make_estimates(400, 8, listed=listed)
    y = log_q.masked_fill(padding, -torch.inf).argmax(1) if listed else log_q.argmax(dim=1)
    for wrong in range(2):
        tables = [log_p.clone(), log_q.clone()]
        tables[wrong][3, -1] = value
        kept, pool = select((tables, padding), y)
        assert kept == [1 - wrong]
        assert_usable(kept, pool, estimates)
    broken = [log_p * value, log_q * value]
    assert select((broken, padding), y)[0] == [0]
    assert select((broken, padding), y)[1].exponents == [1.0]
    fit = PoolFit([*broken, log_p * value], padding, y)
    kept, pool = fit.select([[0, 1], [2]])
    assert (kept, pool.exponents) == ([0], [1.0, 0.0])


def test_padding_need_not_be_finite() -> None:
    tables, padding = make_estimates(400, 8, listed=True)
    y = tables[1].masked_fill(padding, -torch.inf).argmax(dim=1)
    infinite = [table.masked_fill(padding, -torch.inf) for table in tables]
    kept, pool = select((infinite, padding), y)
    expected = select((tables, padding), y)
    assert kept == expected[0]
    assert pool.exponents == pytest.approx(expected[1].exponents)


@pytest.mark.parametrize("copies", [2, 5])
@pytest.mark.parametrize("rows", [500, 5000])
def test_equal_estimates_are_pooled_like_one(rows: int, copies: int) -> None:
    log_p, _ = independent_estimates(rows, 6)
    estimates: Estimates = ([log_p] * copies, None)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(log_p.exp(), 1, generator=generator)[:, 0]
    for labels in (drawn, log_p.argmin(dim=1), torch.zeros(rows, dtype=torch.int64)):
        kept, pool = select(estimates, labels)
        assert len(kept) == 1
        assert_usable(kept, pool, estimates)
        alone = fit_pool(([log_p], None), labels)
        assert pool.exponents == pytest.approx(alone.exponents, rel=0.01, abs=0.01)
    # With labels that are always the most likely, the penalty spreads the exponents.
    separable = log_p.argmax(dim=1)
    every = fit_pool(estimates, separable)
    assert min(every.exponents) > 0
    assert sum(every.exponents) >= fit_pool(([log_p], None), separable).exponents[0]
    assert_usable(*select(estimates, separable), estimates)


def test_constant_estimates_are_dropped() -> None:
    estimates, y = draw_labels((1.0, 0.0), 500, listed=False)
    flat = torch.full_like(estimates[0][0], -math.log(10))
    kept, pool = select(([flat, estimates[0][0], flat], None), y)
    assert kept == [1]
    assert pool.exponents == pytest.approx([1.0], abs=0.2)
    kept, pool = select(([flat, flat], None), y)
    assert len(kept) == 1
    assert_usable(kept, pool, ([flat, flat], None))


def test_labels_that_contradict_all_estimates_give_exponents_of_zero() -> None:
    tables, _ = make_estimates(500, 6, listed=False)
    y = (tables[0] + tables[1]).argmin(dim=1)
    kept, pool = select((tables, None), y)
    assert kept == [0]
    assert pool.exponents == pytest.approx([0.0], abs=1e-6)
    assert_usable(kept, pool, (tables, None))


@pytest.mark.parametrize("low", [-1e3, -1e10, -1e30])
def test_estimates_that_exclude_the_label_are_not_trusted(low: float) -> None:
    (log_p, log_q), _ = make_estimates(500, 6, listed=False)
    y = torch.multinomial(log_q.exp(), 1, generator=torch.Generator().manual_seed(0))[:, 0]
    sure = torch.where(torch.nn.functional.one_hot(log_p.argmax(dim=1), 6) > 0, 0.0, low)
    kept, pool = select(([sure, log_q], None), y)
    assert kept == [1]
    assert_usable(kept, pool, ([sure, log_q], None))


def rows(n: int = 60, n_classes: int = 5, width: int = 8) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    x = rng.normal(size=(n_classes, width))[y] + rng.normal(size=(n, width))
    return torch.from_numpy(x), torch.from_numpy(y)


@pytest.mark.parametrize("confident", [False, True])
@pytest.mark.parametrize("case", ["separable", "one class", "constant", "one row each"])
def test_estimates_of_extreme_rows_can_be_pooled(case: str, confident: bool) -> None:
    x, y = rows()
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
    neighbors = Neighbors(Standardize.from_data(x), 5, 0).fit(x, y)
    estimates: Estimates = ([log_p, *neighbors(x)], None)
    kept, pool = PoolFit(*estimates, y).select([[0], [1, 2]])
    chosen = [0, 1, 2] if len(kept) == 2 else [[0], [1, 2]][kept[0]]
    assert_usable(chosen, pool, estimates)
    subset: Estimates = ([estimates[0][i] for i in chosen], None)
    first = mean_log_likelihood(Pool([1, 0, 0]), estimates, y)
    assert mean_log_likelihood(pool, subset, y) >= first - 2 * _pool.MIN_GAIN


def test_a_single_row() -> None:
    tables, _ = make_estimates(1, 4, listed=False)
    for label in range(4):
        kept, pool = select((tables, None), torch.tensor([label]))
        assert_usable(kept, pool, (tables, None))


def test_rounding_errors_grow_with_the_exponents() -> None:
    """Flat tables get large exponents, which multiply the errors of two computations."""
    generator = torch.Generator().manual_seed(0)
    error = 2.0**-10
    for exponents in ([0.5, 0.2], [4.0, 0.0], [20.0, 30.0]):
        pool = Pool(exponents)
        tables = [torch.log_softmax(torch.randn(200, 6, generator=generator), 1) for _ in "ab"]
        signs = [2.0 * torch.randint(2, (200, 6), generator=generator) - 1 for _ in "ab"]
        moved = [t + error / 2 * sign for t, sign in zip(tables, signs, strict=True)]
        assert float((pool(moved) - pool(tables)).abs().max()) <= error * pool.amplification * 1.01
