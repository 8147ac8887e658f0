"""Guarantees by class, where some classes have few calibration rows and share a threshold."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import shortlist as sl
from shortlist.conformal.calibrators.conditional import pooling_limits
from shortlist.conformal.quantiles import UnreachableError

COUNTS = st.lists(st.integers(0, 40), min_size=2, max_size=12).map(np.array)


def pool_of(counts: NDArray[np.int64], k: int, needed: int) -> frozenset[int]:
    """Return the classes that share a threshold with a new row of class k, by definition."""
    bag = counts.copy()
    bag[k] += 1
    limit = needed + 1
    while (bag < limit).any() and bag[bag < limit].sum() <= needed and (bag >= limit).any():
        limit = bag[bag >= limit].min() + 1
    return frozenset(np.flatnonzero(bag < limit).tolist()) if bag[k] < limit else frozenset()


@given(COUNTS, st.integers(1, 30))
@settings(max_examples=200, deadline=None)
def test_pools_depend_only_on_the_counts_with_the_new_row(
    counts: NDArray[np.int64], needed: int
) -> None:
    """The pooled classes are the same whichever row of a class is the new one."""
    below = pooling_limits(counts, needed)
    for k in range(len(counts)):
        expected = pool_of(counts, k, needed)
        result = frozenset(np.flatnonzero(counts < below[k]).tolist()) if below[k] else frozenset()
        if expected and not below[k]:
            assert counts[k] >= needed  # The class shares no threshold.
        else:
            assert result == expected
        if counts[k] < needed:
            assert below[k]
    # Exchange a calibration row and the new row: the pool depends on the total counts only.
    for k in np.flatnonzero(counts > 0):
        for j in range(len(counts)):
            fewer = counts.copy()
            fewer[k] -= 1
            fewer[j] += 1  # The row of j calibrates, and the row of k is new.
            same = counts.copy()
            same[k] -= 1
            assert pool_of(fewer - np.eye(len(counts), dtype=int)[j], k, needed) == pool_of(
                same, k, needed
            )


def rare_world(rows: int, seed: int) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Draw rows of a common class, three hard ones (1% each), and twenty easy and rare ones."""
    rng = np.random.default_rng(seed)
    weights = np.array([0.92, *[0.01] * 3, *[0.0025] * 20])
    signal = np.array([6.0, *[0.0] * 3, *[7.0] * 20])
    y = rng.choice(24, size=rows, p=weights)
    return rng.normal(size=(rows, 24)) + signal[y][:, None] * np.eye(24)[y], y


def test_pooled_classes_keep_the_accuracy() -> None:
    """The hard classes have about as many calibration rows as 0.8 needs, which are 4.

    Whether a class is pooled depends on these rows, and must not bias the accuracy.
    """
    model = sl.SplitConformal("lac", temperature=None, allow_empty=True).fit(*rare_world(400, 0))
    scores, y = rare_world(10_000, 1)
    hits = rows = 0
    means = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(120):
            calibration = rare_world(400, 10 + seed)
            model.calibrate(*calibration)
            few = np.bincount(calibration[1], minlength=24) < 4
            held = model.predict_set(scores, accuracy=0.8, by="class").contains(y)[few[y]]
            hits, rows = hits + held.sum(), rows + len(held)
            means.append(held.mean())
    # Over all draws, for the rows whose class has too few calibration rows.
    error = np.std(means, ddof=1) / np.sqrt(len(means))
    assert hits / rows > 0.8 - 3 * error


def test_with_delta_no_threshold_is_shared() -> None:
    model = sl.SplitConformal("lac", temperature=None).fit(*rare_world(900, 2))
    with pytest.raises(UnreachableError, match=r"by class, \d+: .* are needed"):
        model.predict_set(rare_world(5, 3)[0], accuracy=0.9, delta=0.1, by="class")
    model.set_params(on_unreachable="all")
    sets = model.predict_set(rare_world(50, 3)[0], accuracy=0.9, delta=0.1, by="class")
    assert "of 24 classes get every label" in str(sets.guarantee)
    assert min(sets.sizes) >= 10  # Each set contains the classes without guarantee.
