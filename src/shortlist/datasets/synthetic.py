"""Data that needs no files: the paper's Gaussians, and digits."""

from __future__ import annotations

import numpy as np

from shortlist._utils.arrays import check_count
from shortlist.datasets.samples import Samples


def gaussian(
    m: int,
    separation: float = 0.15,
    seed: int = 0,
    *,
    n_classes: int = 10,
    dimension: int = 100,
) -> Samples:
    """The paper's artificial data: balanced Gaussian classes, and their true posterior.

    The means are drawn from N(0, separation² I) with the seed alone, so that every `m` samples
    the same problem; all classes have unit covariance. At the default separation the best
    possible top-1 accuracy is about 0.5, so that sets of several labels are needed.

    >>> data = gaussian(1000)
    >>> data.x.shape, data.posterior.shape, bool(abs(data.posterior.sum(1) - 1).max() < 1e-5)
    ((1000, 100), (1000, 10), True)
    """
    check_count(m, "m")
    check_count(n_classes, "n_classes", least=2)
    check_count(dimension, "dimension")
    if not separation > 0:
        raise ValueError(f"separation must be positive; got {separation!r}")
    means = np.random.default_rng([seed, 0]).normal(0.0, separation, (n_classes, dimension))
    rng = np.random.default_rng([seed, 1])
    y = rng.permutation(np.arange(m) % n_classes)
    x = rng.standard_normal((m, dimension), dtype=np.float32)
    x += means[y].astype(np.float32)
    # log p(y | x) up to a constant of x: the squared norm of x is the same for all classes.
    logits = x @ means.T.astype(np.float32) - 0.5 * np.square(means).sum(axis=1)
    logits -= logits.max(axis=1, keepdims=True)
    posterior = np.exp(logits)
    posterior /= posterior.sum(axis=1, keepdims=True)
    return Samples(x, y, np.arange(n_classes), posterior.astype(np.float32))


def digits() -> Samples:
    """scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, in random order.

    >>> digits()
    Samples(1,797 × 64, 10 classes)
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    x = bunch.data[order].astype(np.float32) / 16
    return Samples(x, bunch.target[order], np.arange(10))
