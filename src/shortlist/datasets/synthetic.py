"""Data sets that need no file: the paper's Gaussian classes, and handwritten digits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.validation import check_choice, check_count
from shortlist.datasets.samples import GaussianSamples, Samples

COVARIANCES = ("equal", "unequal")
BLOCK_ROWS = 65_536
"""Number of rows whose posterior is computed at once, in float64."""


def gaussian(
    m: int,
    separation: float = 0.15,
    seed: int = 0,
    *,
    covariance: str = "equal",
    spread: float = 0.4,
    n_classes: int = 10,
    dimension: int = 100,
) -> GaussianSamples:
    """Draw the paper's synthetic data: balanced Gaussian classes with a known posterior.

    The means are drawn from N(0, separation² I). Means and variances depend on the seed alone, so
    that data sets of all sizes come from the same distribution. With equal covariances and the
    default separation, the best possible top-1 accuracy is about 0.5, and higher accuracies need
    sets of several labels. With unequal covariances, the classes are almost separable, but not by
    a linear classifier. The paper gives neither means nor covariances.

    Parameters
    ----------
    m : int
        Number of rows.
    separation : float, default=0.15
        Standard deviation of the class means.
    seed : int, default=0
        Seed of the means, of the variances and of the rows.
    covariance : {"equal", "unequal"}, default="equal"
        With "equal", all classes have unit covariance, and the posterior is the softmax of linear
        functions. With "unequal", each class and coordinate has a variance of its own.
    spread : float, default=0.4
        Standard deviation of the logarithm of the variances, whose mean is 0. It is used if the
        covariances are unequal.
    n_classes : int, default=10
        Number of classes, at least 2.
    dimension : int, default=100
        Number of features.

    Returns
    -------
    GaussianSamples
        Rows in random order, with their true posterior.

    Raises
    ------
    ValueError
        If a number is not an integer or is too small, the separation or the spread is not positive,
        or the covariance is unknown.

    Examples
    --------
    >>> data = gaussian(1000)
    >>> data.x.shape, data.posterior.shape, bool(abs(data.posterior.sum(1) - 1).max() < 1e-5)
    ((1000, 100), (1000, 10), True)
    >>> top_1 = [gaussian(1000, covariance=c).posterior.max(1).mean() for c in ("equal", "unequal")]
    >>> [bool(p > 0.8) for p in top_1]
    [False, True]
    """
    check_count(m, "m")
    check_count(n_classes, "n_classes", minimum=2)
    check_count(dimension, "dimension")
    for name, value in (("separation", separation), ("spread", spread)):
        if not value > 0:
            raise ValueError(f"{name} must be positive; got {value!r}")
    is_equal = check_choice(covariance, "covariance", COVARIANCES) == "equal"
    means = np.random.default_rng([seed, 0]).normal(0.0, separation, (n_classes, dimension))
    rng = np.random.default_rng([seed, 1])
    y = rng.permutation(np.arange(m) % n_classes)
    x = rng.standard_normal((m, dimension), dtype=np.float32)
    log_variances = np.zeros((n_classes, dimension))
    if not is_equal:
        shape = (n_classes, dimension)
        log_variances = np.random.default_rng([seed, 2]).normal(0.0, spread, shape)
        x *= np.exp(log_variances / 2).astype(np.float32)[y]
    x += means[y].astype(np.float32)
    return GaussianSamples(x, y, np.arange(n_classes), _posterior(x, means, log_variances))


def _posterior(
    x: NDArray[np.float32], means: NDArray[np.float64], log_variances: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return the probability of each class for balanced classes with independent coordinates."""
    precisions = np.exp(-log_variances)
    constants = (np.square(means) * precisions + log_variances).sum(axis=1)
    posterior = np.empty((len(x), len(means)), dtype=np.float32)
    for start in range(0, len(x), BLOCK_ROWS):
        rows = x[start : start + BLOCK_ROWS].astype(np.float64)
        distances = np.square(rows) @ precisions.T - 2 * rows @ (means * precisions).T + constants
        p = np.exp((distances.min(axis=1, keepdims=True) - distances) / 2)
        posterior[start : start + BLOCK_ROWS] = p / p.sum(axis=1, keepdims=True)
    return posterior


def digits() -> Samples:
    """Load the 1,797 handwritten digits of scikit-learn in random order.

    Each image has 8 × 8 pixels.

    Returns
    -------
    Samples
        Pixels between 0 and 1 as features, and the digits as labels.

    Examples
    --------
    >>> digits()
    Samples(1,797 × 64, 10 classes)
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    x = bunch.data[order].astype(np.float32) / 16
    return Samples(x, bunch.target[order], np.arange(10))
