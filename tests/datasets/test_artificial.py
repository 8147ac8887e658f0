"""Artificial data sets have the documented distribution, and splits are partitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from shortlist.datasets import Samples, digits, gaussian


def class_means(seed: int, separation: float, n_classes: int, dimension: int) -> np.ndarray:
    """Return the class means, estimated from a very large sample."""
    data = gaussian(400_000, separation, seed, n_classes=n_classes, dimension=dimension)
    return np.stack([data.x[data.y == k].mean(axis=0, dtype=np.float64) for k in range(n_classes)])


def test_the_posterior_follows_from_the_densities() -> None:
    data = gaussian(300, 1.0, seed=3, n_classes=4, dimension=3)
    means = class_means(3, 1.0, 4, 3)
    densities = np.stack([multivariate_normal(m, np.eye(3)).pdf(data.x) for m in means], axis=1)
    expected = densities / densities.sum(axis=1, keepdims=True)
    assert data.posterior is not None
    np.testing.assert_allclose(data.posterior, expected, atol=0.01)


def test_the_posterior_with_unequal_covariances_follows_from_the_densities() -> None:
    data = gaussian(300, 1.0, seed=3, covariance="unequal", spread=0.7, n_classes=3, dimension=2)
    sample = gaussian(
        600_000, 1.0, seed=3, covariance="unequal", spread=0.7, n_classes=3, dimension=2
    )
    parts = [sample.x[sample.y == k].astype(np.float64) for k in range(3)]
    variances = np.stack([part.var(axis=0) for part in parts])
    assert variances.std(axis=0).min() > 0.05  # The classes have different variances.
    for part in parts:
        assert abs(np.corrcoef(part.T)[0, 1]) < 0.01
    normals = [multivariate_normal(part.mean(axis=0), np.diag(part.var(axis=0))) for part in parts]
    densities = np.stack([normal.pdf(data.x) for normal in normals], axis=1)
    expected = densities / densities.sum(axis=1, keepdims=True)
    assert data.posterior is not None
    np.testing.assert_allclose(data.posterior, expected, atol=0.02)


def test_log_variances_have_the_spread_that_was_asked_for() -> None:
    data = gaussian(40_000, covariance="unequal", spread=0.3, n_classes=4, dimension=300)
    log_variances = np.log([data.x[data.y == k].var(axis=0) for k in range(4)])
    assert abs(log_variances.std() - 0.3) < 0.02
    assert abs(log_variances.mean()) < 0.04


@pytest.mark.parametrize("covariance", ["equal", "unequal"])
def test_the_posterior_predicts_the_labels_that_were_drawn(covariance: str) -> None:
    """The mean of -log p(y | x) is the entropy of p, for every way to draw the rows."""
    data = gaussian(100_000, covariance=covariance, spread=0.2)
    p = data.posterior
    assert p is not None
    information = -np.log(p[np.arange(len(p)), data.y])
    entropy = -(p * np.log(np.maximum(p, 1e-30))).sum(axis=1)
    error = (information - entropy).std() / np.sqrt(len(p))
    assert abs((information - entropy).mean()) < 4 * error


def test_unequal_covariances_leave_the_equal_ones_unchanged() -> None:
    a, b = gaussian(200, seed=4), gaussian(200, seed=4, covariance="equal", spread=2.0)
    assert np.array_equal(a.x, b.x)
    other = gaussian(200, seed=4, covariance="unequal")
    assert np.array_equal(a.y, other.y)
    assert not np.allclose(a.x, other.x)


def test_the_posterior_is_calibrated() -> None:
    data = gaussian(100_000)
    assert data.posterior is not None
    top = data.posterior.max(axis=1)
    correct = data.posterior.argmax(axis=1) == data.y
    assert abs(top.mean() - correct.mean()) < 0.006  # This is four standard errors.
    assert 0.4 < correct.mean() < 0.6


@pytest.mark.parametrize("rows", [1, 7, 1000, 1003])
def test_classes_are_balanced(rows: int) -> None:
    data = gaussian(rows, dimension=2)
    counts = np.bincount(data.y, minlength=10)
    assert counts.sum() == rows
    assert counts.max() - counts.min() <= 1
    assert data.x.shape == (rows, 2)
    assert data.x.dtype == np.float32


def test_all_sample_sizes_have_the_same_distribution() -> None:
    """The posterior of a small sample follows from the class means of a large one."""
    small = gaussian(500, 1.0, seed=5, n_classes=3, dimension=4)
    means = class_means(5, 1.0, 3, 4)
    logits = small.x @ means.T - 0.5 * (means**2).sum(axis=1)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert small.posterior is not None
    np.testing.assert_allclose(p / p.sum(axis=1, keepdims=True), small.posterior, atol=0.01)
    other = gaussian(500, 1.0, seed=6, n_classes=3, dimension=4)
    assert other.posterior is not None
    assert not np.allclose(class_means(6, 1.0, 3, 4), means, atol=0.1)


def test_the_data_depend_on_the_seed_alone() -> None:
    a, b, c = gaussian(50), gaussian(50), gaussian(50, seed=1)
    assert np.array_equal(a.x, b.x)
    assert np.array_equal(a.y, b.y)
    assert not np.array_equal(a.x, c.x)


@pytest.mark.parametrize(
    "wrong",
    [
        {"m": 0},
        {"m": 2.5},
        {"separation": 0.0},
        {"separation": -1.0},
        {"spread": 0.0},
        {"n_classes": 1},
        {"covariance": "full"},
    ],
)
def test_invalid_parameters(wrong: dict[str, float]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"{name} must .*; got {value!r}"):
        gaussian(**({"m": 10} | wrong))  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 40), max_size=4), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_a_split_is_a_partition(sizes: list[int], seed: int) -> None:
    data = Samples(np.arange(170.0)[:, None], np.arange(170), np.arange(170))
    parts = data.split(*sizes, seed=seed)
    assert [len(p) for p in parts] == [*sizes, *([170 - sum(sizes)] if sum(sizes) < 170 else [])]
    assert sorted(np.concatenate([p.y for p in parts])) == list(range(170))
    for part in parts:
        assert np.array_equal(part.x[:, 0], part.y)  # Features and labels stay aligned.


def test_a_split_keeps_the_posterior() -> None:
    data = gaussian(100, dimension=3)
    (part,) = data.split(100)
    assert part.posterior is not None
    assert data.posterior is not None
    order = np.lexsort(part.x.T), np.lexsort(data.x.T)
    assert np.array_equal(part.posterior[order[0]], data.posterior[order[1]])


@pytest.mark.parametrize("sizes", [(80, 30), (0, 10), (-5,)])
def test_invalid_sizes_of_parts(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"cannot split 100 rows into parts of sizes"):
        gaussian(100, dimension=2).split(*sizes)


def test_digits() -> None:
    data = digits()
    assert data.x.shape == (1797, 64)
    assert (data.x.min(), data.x.max()) == (0, 1)
    assert set(data.y) == set(range(10)) == set(data.classes)
    assert np.bincount(data.y[:300]).min() > 15  # The order is random.
    assert repr(data) == "Samples(1,797 × 64, 10 classes)"
