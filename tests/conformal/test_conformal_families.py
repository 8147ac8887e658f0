"""Conformal sets, and sets of bounded mean size, as families for selectors."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from registered_scores import NAMES
from sklearn.base import clone
from synthetic import as_score_type, draw, in_64ths, ragged

import shortlist as sl
from shortlist.conformal.quantiles import UnreachableError

LEVELS = [0.5, 0.8, 0.9, 0.95]


# Conformal


@pytest.mark.parametrize("name", NAMES)
def test_the_sets_are_those_of_split_conformal(name):
    """With the same temperature, the sets are equal at every accuracy."""
    scores, y = draw(600, seed=1, temperature=2.0)
    family = sl.Conformal(name, LEVELS, penalty=0.1, k_reg=1).calibrate(scores[:400], y[:400])
    temperature = sl.fit_temperature(scores[:400], y[:400])
    model = sl.SplitConformal(name, temperature=temperature, penalty=0.1, k_reg=1)
    model.fit(scores[:400], y[:400])
    sizes, hits = family.sizes(scores[400:]), family.hits(scores[400:], y[400:])
    assert temperature > 1.5
    ranking = sl.Ranking.from_scores(scores[400:])
    for k, level in enumerate(LEVELS):
        sets = model.predict_set(scores[400:], accuracy=level)
        assert sizes[:, k].tolist() == sets.sizes.tolist()
        assert hits[:, k].tolist() == sets.contains(y[400:]).tolist()
        assert family.select(ranking, torch.full((200,), k)).labels() == sets.labels()
    assert (np.diff(sizes, axis=1) >= 0).all()
    assert (sizes >= 1).all()
    assert set(sizes.flatten().tolist()) <= set(family.possible_sizes(ranking))
    assert sizes[:, 0].mean() < sizes[:, -1].mean()
    assert np.diff(family.thresholds).max() <= 0


@pytest.mark.parametrize("name", NAMES)
def test_exact_ties_of_conformal_sets(name):
    p, y = in_64ths(300, 5, seed=2)
    family = sl.Conformal(name, LEVELS, penalty=0.125).calibrate(p, y)
    batch = family.sizes(p)
    for i in range(0, 300, 11):
        assert family.sizes(p[i : i + 1]).tolist() == [batch[i].tolist()]
    held = family.hits(p, y).mean(axis=0)
    assert (held >= LEVELS).all()


def test_conformal_sets_of_candidates():
    scores, y = draw(300, 15, seed=3)
    ranking = sl.Ranking.from_candidates(**ragged(as_score_type(scores, "proba"), depth=5))
    family = sl.Conformal("lac", [0.3, 0.6]).calibrate(ranking, y)
    sizes = family.sizes(ranking)
    assert (sizes <= ranking.lengths().numpy()[:, None]).all()
    assert (family.hits(ranking, y).mean(axis=0) >= [0.3, 0.6]).all()
    with pytest.raises(UnreachableError, match="not among the candidates"):
        sl.Conformal("lac", [0.3, 0.99]).calibrate(ranking, y)


@pytest.mark.parametrize("family", [sl.Conformal("lac", LEVELS), sl.DenisHebiri([1.5, 3])], ids=str)
def test_each_fit_calibrates_a_copy_of_the_family(family):
    """The user's object is not changed, and two fits do not share thresholds."""
    scores, y = draw(600, seed=4)
    selectors = [
        sl.FixedSelector(family, index=1),
        sl.PlugInSelector(family, cost_weight=0.05),
        sl.CardinalitySelector(family, inputs="scores", max_epochs=2, width=8),
        sl.CardinalityPath(family, cost_weights=[0.1, 0.01], inputs="scores", max_epochs=2),
    ]
    for selector in selectors:
        first = clone(selector).fit(scores[:300], y[:300])
        second = clone(selector).fit(3 * scores[300:] + 5, np.roll(y[300:], 1))
        assert family.thresholds is None
        assert selector.family is family
        assert first.family.thresholds is None
        assert first.family_.thresholds != second.family_.thresholds
        again = clone(first).fit(scores[:300], y[:300])
        assert again.family_.thresholds == first.family_.thresholds
        assert len(first.frontier(scores, y)) >= 1
        if isinstance(first, sl.CardinalityPath):
            first.set_params(cost_weight=0.01)
        sets = first.predict_set(scores[:50])
        allowed = first.family_.sizes(scores[:50])
        assert all(size in row for size, row in zip(sets.sizes, allowed, strict=True))
        restored = pickle.loads(pickle.dumps(first))
        assert restored.predict_set(scores[:50]) == sets


def test_a_calibrated_family_keeps_its_thresholds():
    scores, y = draw(600, seed=5)
    family = sl.Conformal("aps", LEVELS).calibrate(scores[:300], y[:300])
    kept = list(family.thresholds)
    model = clone(sl.FixedSelector(family, index=2)).fit(scores[300:], y[300:])
    assert model.family_.thresholds == family.thresholds == kept
    other = family.calibrate(3 * scores[300:], y[300:])
    assert other is not family
    assert family.thresholds == kept
    assert other.thresholds != kept
    assert copy.deepcopy(family).sizes(scores).tolist() == family.sizes(scores).tolist()


def test_choosing_among_conformal_sets_reduces_the_loss():
    """The selector has a lower loss than each single accuracy."""
    scores, y = draw(3000, seed=6)
    family = sl.Conformal("aps", [0.6, 0.8, 0.95])
    model = sl.PlugInSelector(family, "linear", 0.05).fit(scores[:1500], y[:1500])
    new, labels = scores[1500:], y[1500:]

    def loss(sets: sl.PredictionSets) -> float:
        return 1 - sets.accuracy(labels) + 0.05 * sets.mean_size

    fixed = [
        loss(sl.FixedSelector(family, k).fit(scores[:1500], y[:1500]).predict_set(new))
        for k in range(3)
    ]
    assert loss(model.predict_set(new)) < min(fixed)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sl.Conformal("lak"), "got 'lak'; did you mean 'lac'?"),
        (lambda: sl.Conformal("lac", [0.9, 0.8]), "must increase; got [0.9, 0.8]"),
        (lambda: sl.Conformal("lac", []), "must increase; got []"),
        (lambda: sl.Conformal("lac", [0.9, 1.0]), "each level of Conformal must lie strictly"),
        (lambda: sl.DenisHebiri([2, 1]), "mean_sizes must increase and be at least 1; got [2, 1]"),
        (lambda: sl.DenisHebiri([0.5, 2]), "and be at least 1; got [0.5, 2]"),
        (lambda: sl.DenisHebiri([]), "and be at least 1; got []"),
        (lambda: sl.Conformal("lac").sizes(np.eye(3)), "has no thresholds yet; they come from"),
        (lambda: sl.DenisHebiri([2]).sizes(np.eye(3)), "DenisHebiri(...).calibrate(...)"),
        (lambda: sl.Conformal("lac", [0.9]).calibrate(np.eye(3), [0, 1, 2]), "9 are needed"),
    ],
)
def test_invalid_families_raise(make, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (each has its own message)
        make()
    assert message in str(error.value)


def test_the_repr_of_families():
    assert repr(sl.Conformal("lac", [0.5, 0.9])) == "Conformal('lac', [0.5, 0.9])"
    assert repr(sl.DenisHebiri([1, 2.5])) == "DenisHebiri([1.0, 2.5])"


# Denis and Hebiri


def brute_sizes(p: list[list[float]], mean_size: float) -> list[int]:
    """Return sizes of the largest sets {p >= t or best label} of at most this mean size."""
    budget = Fraction(str(mean_size)) * len(p)
    best = [1] * len(p)
    for t in sorted({v for row in p for v in row}):
        sizes = [max(1, sum(v >= t for v in row)) for row in p]
        if sum(sizes) <= budget:
            return sizes
    return best


@given(st.integers(2, 6), st.integers(1, 30), st.integers(0, 1000), st.data())
@settings(max_examples=80, deadline=None)
def test_mean_sizes_by_brute_force(n, rows, seed, data):
    p, _ = in_64ths(rows, n, seed)
    tenths = data.draw(st.sets(st.integers(10, 10 * n + 5), min_size=1, max_size=5))
    mean_sizes = [t / 10 for t in sorted(tenths)]
    sizes = sl.DenisHebiri(mean_sizes).calibrate(p, score_type="proba").sizes(p)
    for k, mean_size in enumerate(mean_sizes):
        assert sizes[:, k].tolist() == brute_sizes(p.tolist(), mean_size)


@pytest.mark.parametrize("rows", [10, 997])
def test_without_ties_the_total_size_is_exact_to_one_label(rows):
    p = as_score_type(draw(rows, seed=7)[0], "proba")
    mean_sizes = [1.0, 1.1, 1.7, 2.3, 4.9, 8.0]
    sizes = sl.DenisHebiri(mean_sizes).calibrate(p).sizes(p)
    for total, mean_size in zip(sizes.sum(axis=0), mean_sizes, strict=True):
        assert total <= Fraction(str(mean_size)) * rows < total + 1


def test_labels_of_equal_probability_enter_together():
    p = np.tile([0.5, 0.25, 0.25, 0.0], (10, 1))
    family = sl.DenisHebiri([1.0, 2.9, 3.0, 4.0]).calibrate(p)
    assert family.sizes(p)[0].tolist() == [1, 1, 3, 4]


def test_mean_sizes_of_candidates():
    scores = as_score_type(draw(500, 15, seed=8)[0], "proba")
    ranking = sl.Ranking.from_candidates(**ragged(scores, depth=6))
    family = sl.DenisHebiri([1.5, 2.0, 6.0]).calibrate(ranking)
    means = family.sizes(ranking).mean(axis=0)
    assert means.tolist() == pytest.approx(
        [1.5, 2.0, ranking.lengths().numpy().mean()], abs=1 / 500
    )


def test_new_rows_have_about_the_mean_size():
    p = as_score_type(draw(8000, seed=9)[0], "proba")
    family = sl.DenisHebiri([1.5, 3.0]).calibrate(p[:4000])
    assert family.sizes(p[4000:]).mean(axis=0) == pytest.approx([1.5, 3.0], rel=0.05)
    # SplitConformal has sets of this mean size too.
    y = (np.log(p) + np.random.default_rng(0).gumbel(size=p.shape)).argmax(axis=1)
    model = sl.SplitConformal("lac", temperature=None).fit(p[:4000], y[:4000])
    assert model.predict_set(p[4000:], mean_size=3.0).mean_size == pytest.approx(3.0, rel=0.05)
