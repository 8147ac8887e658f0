"""Data sets that need no file: the paper's Gaussian classes, and handwritten digits."""

from __future__ import annotations

import numpy as np

from shortlist._utils.validation import check_count
from shortlist.datasets.samples import GaussianSamples, Samples


def gaussian(
    m: int,
    separation: float = 0.15,
    seed: int = 0,
    *,
    n_classes: int = 10,
    dimension: int = 100,
) -> GaussianSamples:
    """Draw the paper's synthetic data: balanced Gaussian classes with a known posterior.

    All classes have unit covariance. Their means are drawn from N(0, separation² I) and depend on
    the seed alone, so that data sets of all sizes come from the same distribution. With the default
    separation, the best possible top-1 accuracy is about 0.5. Higher accuracies need sets of
    several labels.

    Parameters
    ----------
    m : int
        Number of rows.
    separation : float, default=0.15
        Standard deviation of the class means.
    seed : int, default=0
        Seed of the means and of the rows.
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
        If a number is not an integer or is too small, or the separation is not positive.

    Examples
    --------
    >>> data = gaussian(1000)
    >>> data.x.shape, data.posterior.shape, bool(abs(data.posterior.sum(1) - 1).max() < 1e-5)
    ((1000, 100), (1000, 10), True)
    """
    check_count(m, "m")
    check_count(n_classes, "n_classes", minimum=2)
    check_count(dimension, "dimension")
    if not separation > 0:
        raise ValueError(f"separation must be positive; got {separation!r}")
    means = np.random.default_rng([seed, 0]).normal(0.0, separation, (n_classes, dimension))
    rng = np.random.default_rng([seed, 1])
    y = rng.permutation(np.arange(m) % n_classes)
    x = rng.standard_normal((m, dimension), dtype=np.float32)
    x += means[y].astype(np.float32)
    # These are log p(y | x) up to a constant, because the term |x|² is the same for all classes.
    logits = x @ means.T.astype(np.float32) - 0.5 * np.square(means).sum(axis=1)
    logits -= logits.max(axis=1, keepdims=True)
    posterior = np.exp(logits)
    posterior /= posterior.sum(axis=1, keepdims=True)
    return GaussianSamples(x, y, np.arange(n_classes), posterior.astype(np.float32))


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
