"""Labels of unknown classes: the accuracy holds on average over calibrations not refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import shortlist as sl
from shortlist.conformal import UnreachableError

RNG = np.random.default_rng(0)
P = RNG.dirichlet(np.ones(12) * 0.4, size=20_000)
Y = (P.cumsum(axis=1) > RNG.random((len(P), 1))).argmax(axis=1)
UNKNOWN = 99


def answered(model, accuracy, rows, share, repeats, **how):  # type: ignore[no-untyped-def]
    """Return the accuracies of the calibrations that are not refused, and their number."""
    rng, kept = np.random.default_rng(1), []
    for _ in range(repeats):
        at = rng.permutation(len(Y))[: rows + 2000]
        y = np.where(rng.random(len(at)) < share, UNKNOWN, Y[at])
        model.calibrate(P[at[:rows]], y[:rows])
        try:
            sets = model.predict_set(P[at[rows:]], accuracy=accuracy, **how)
        except UnreachableError:
            continue
        known = y[rows:] != UNKNOWN
        hits = np.asarray(sets[known].contains(y[rows:][known])).sum()
        kept.append(hits / len(known))
    return kept


@pytest.mark.parametrize("how", [{}, {"delta": 0.1}], ids=["marginal", "delta"])
def test_the_set_of_all_classes_does_not_contain_unknown_ones(how):
    """The set of all classes misses a label of an unknown class."""
    model = sl.SplitConformal("lac", temperature=None, on_unreachable="all")
    model.fit(P[:50], Y[:50])
    kept = answered(model, 0.95, 500, 0.1, 40, **how)
    assert len(kept) <= 40 * 0.05 + 3 * math.sqrt(40 * 0.05)
    kept = answered(model, 0.85, 500, 0.05, 40, **how)
    assert len(kept) == 40
    assert np.mean(kept) >= 0.85 - 3 * np.std(kept) / math.sqrt(len(kept))
    model.calibrate(P[:200], np.where(np.arange(200) % 4, UNKNOWN, Y[:200]))
    with pytest.raises(UnreachableError) as error:
        model.predict_set(P[:5], accuracy=0.5, **how)
    assert "its class was never learned" in str(error.value)
    assert "every label" not in str(error.value)


def test_unlisted_labels_of_known_classes_are_in_the_set_of_all_classes():
    ranking = sl.Ranking.from_candidates(
        np.argsort(-P, axis=1)[:, :2], -np.sort(-P, axis=1)[:, :2], n_classes=12
    )
    model = sl.SplitConformal("lac", temperature=None, on_unreachable="all")
    model.fit(ranking[:400], Y[:400])
    sets = model.predict_set(ranking[400:900], accuracy=0.999)
    assert (np.asarray(sets.sizes) == 12).all()
    assert sets.accuracy(Y[400:900]) == 1


def test_a_group_without_unknown_labels_is_tested_too():
    """Unknown labels in one group show that they can occur in every group."""
    rng, kept = np.random.default_rng(2), []
    model = sl.SplitConformal("lac", temperature=None).fit(P[:50], Y[:50])
    for _ in range(300):
        at = rng.permutation(len(Y))[:60]
        y = np.where(rng.random(60) < 0.15, UNKNOWN, Y[at])
        groups = np.where(rng.random(60) < 0.15, "small", "large")
        model.calibrate(P[at], y, groups=groups)
        new = rng.permutation(len(Y))[:300]
        try:
            small = np.full(300, "small")
            sets = model.predict_set(P[new], accuracy=0.7, by="group", groups=small)
        except UnreachableError:
            continue
        kept.append(0.85 * sets.accuracy(Y[new]))
    if kept:
        assert np.mean(kept) >= 0.7 - 3 * np.std(kept) / math.sqrt(len(kept))


def test_classes_with_one_row_are_evidence_of_unknown_classes():
    """Without unknown labels among few calibration rows, there may still be unknown classes."""
    rng, kept = np.random.default_rng(3), []
    weights = 1 / np.arange(1, 2001) ** 2
    weights /= weights.sum()
    for seed in range(60):
        y = rng.choice(2000, p=weights, size=2060)
        x = np.column_stack([y + rng.normal(size=len(y)), rng.normal(size=len(y))])
        model = sl.ShortlistClassifier(
            GaussianNB(), method=sl.SplitConformal("lac"), random_state=seed, features=None
        )
        with np.errstate(all="ignore"):
            model.fit(x[:60], y[:60])
        try:
            sets = model.predict_set(x[60:], accuracy=0.8)
        except UnreachableError:
            continue
        known = np.isin(y[60:], model.classes_)
        kept.append(np.asarray(sets[known].contains(y[60:][known])).sum() / len(known))
    if kept:
        assert np.mean(kept) >= 0.8 - 3 * np.std(kept) / math.sqrt(len(kept))


@pytest.mark.parametrize("name", ["lac", "aps", "raps", "margin", "topk"])
@pytest.mark.parametrize("world", range(6))
def test_a_classifier_keeps_the_accuracy_row_by_row(name, world):
    """A matrix product rounds differently for one row, which once kept 43% instead of 70%."""
    rng, distinct = np.random.default_rng(world), 1 + world % 2
    base = rng.normal(size=(distinct, 200)).astype(np.float32)
    p = rng.dirichlet(np.ones(5), size=distinct)

    def draw(rows):  # type: ignore[no-untyped-def]
        which = rng.integers(distinct, size=rows)
        return which, (p[which].cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)

    which, y = draw(400)
    model = sl.ShortlistClassifier(
        LogisticRegression(max_iter=50),
        method=sl.SplitConformal(name, temperature=None),
        features=None,
        cv=2,
    ).fit(base[which], y)
    kept = []
    for _ in range(60):
        which, y = draw(99)
        model.calibrate(base[which], y)
        sets = [model.predict_set(base[j : j + 1], accuracy=0.7)[0] for j in range(distinct)]
        kept.append(np.mean([p[j][sets[j]].sum() for j in range(distinct)]))
    assert np.mean(kept) >= 0.7 - 3 * np.std(kept) / math.sqrt(len(kept))
