"""The Shortlister: its ranking after stage 1 and its nested sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from small_shortlisters import (
    N_CLASSES,
    levels_of,
    reranked,
    rows,
    shortlister,
    to_candidates,
    wide_rows,
    with_both_stages,
)

import shortlist as sl
from shortlist.predictors.shortlister.log_probabilities import log_proba

# The ranking after stage 1


def assert_sets_are_prefixes(model: sl.Shortlister, scores: object, x: object) -> None:
    """Sets are the first labels of `rescored`, whose scores do not increase."""
    ranking = model.rescored(scores, x)  # type: ignore[arg-type]
    order, log_p = np.asarray(ranking.labels), np.asarray(ranking.scores)
    for weight in (0.0, 0.03, 0.2):
        sets = model.predict_set(scores, x, cost_weight=weight)  # type: ignore[arg-type]
        for row, first in zip(sets.labels(), order, strict=True):
            assert row == first[: len(row)].tolist()
    listed = (order >= 0).sum(axis=1)
    whole = model.predict_set(scores, x, cost_weight=0.0)  # type: ignore[arg-type]
    assert np.array_equal(whole.sizes, listed)
    assert (np.diff(np.where(order >= 0, log_p, -np.inf)[:, : listed.min()]) <= 0).all()
    rank = np.asarray(ranking.rank(order[:, 1]))
    assert (rank == 1).all()


@pytest.mark.parametrize("sizes", [False, True])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("score_type", ["logits", "proba", "log_proba", "float32"])
def test_rescored_rows_are_log_probabilities_in_the_order_of_the_sets(
    score_type: str, kept: bool, sizes: bool
) -> None:
    """This includes probabilities far below the lower bound of log-probabilities."""
    (scores, y, x), (unseen, _, features) = rows(300, 1), rows(200, 2)
    log_p = [30 * s - np.logaddexp.reduce(30 * s, axis=1, keepdims=True) for s in (scores, unseen)]
    train, new = {
        "logits": [30 * scores, 30 * unseen],
        "proba": [np.exp(v) for v in log_p],
        "log_proba": log_p,
        "float32": [np.exp(v).astype(np.float32) for v in log_p],
    }[score_type]
    assert log_p[1].min() < -100
    model = shortlister(rescore=kept, learn_sizes=sizes, max_epochs=2).fit(train, y, features=x)
    log_proba_rows = np.asarray(model.rescored(new, features).scores, dtype=np.float64)
    assert log_proba_rows.shape == (200, N_CLASSES)
    np.testing.assert_allclose(np.exp(log_proba_rows).sum(axis=1), 1, atol=1e-5)
    assert_sets_are_prefixes(model, new, features)
    if not kept:
        floored = np.maximum(log_p[1], -30) if score_type != "logits" else log_p[1]
        expected = floored / model.temperature_
        expected -= np.logaddexp.reduce(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(
            log_proba_rows, -np.sort(-expected, axis=1), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("sizes", [False, True])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("score_type", ["logits", "proba"])
def test_rescored_candidates_leave_mass_for_unlisted_labels(
    score_type: str, kept: bool, sizes: bool
) -> None:
    (scores, y, x), (unseen, _, features) = rows(300, 1), rows(200, 2)
    train, new = to_candidates(scores, 5, score_type), to_candidates(unseen, 5, score_type)
    model = shortlister(rescore=kept, learn_sizes=sizes, max_epochs=2).fit(train, y, features=x)
    ranking = model.rescored(new, features)
    before, after = (np.sort(np.asarray(r.labels), axis=1) for r in (new, ranking))
    assert np.array_equal(before, after)
    listed, log_p = np.asarray(ranking.labels) >= 0, np.asarray(ranking.scores)
    mass = np.where(listed, np.exp(log_p), 0).sum(axis=1)
    assert (mass <= 1 + 1e-5).all()
    assert (mass > 0.02).all()
    assert mass.mean() > 0.7
    # Logits of candidates leave no mass for unlisted labels, unless a stage learned their share.
    assert (mass < 1 - 1e-4).all() == (score_type == "proba" or kept or sizes)
    assert_sets_are_prefixes(model, new, features)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_out_of_fold_rows_are_log_probabilities(kept: bool, listed: bool) -> None:
    scores, y, x = rows(300, 1)
    train = to_candidates(scores, 5) if listed else scores
    model = shortlister(rescore=kept, calibration=None, learn_sizes=False, max_epochs=2)
    model.fit(train, y, features=x)
    ranking = model.out_of_fold(train, x)
    log_p = np.where(np.asarray(ranking.labels) >= 0, np.asarray(ranking.scores), -np.inf)
    mass = np.exp(log_p).sum(axis=1)
    assert (mass <= 1 + 1e-5).all()
    assert listed or (mass > 1 - 1e-5).all()
    same = np.allclose(ranking.scores, model.rescored(train, x).scores)
    assert same != kept  # Without stage 1, no label is used.


# Nested sets


TABLE = tuple(float(v) for v in np.cumsum([0, 3, 0, 0, 1, 0.1, 5, 0] * 5))


@given(
    cost=st.sampled_from(["linear", "log", TABLE]),
    weights=st.lists(st.floats(0, 2) | st.sampled_from([0.0, 1e-9, 1e3]), min_size=2, max_size=5),
    allow_empty=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_sets_are_nested_in_lambda(cost: object, weights: list[float], allow_empty: bool) -> None:
    scores, _, x = wide_rows(120, 3)
    model = clone(with_both_stages(), safe=False)
    model.__dict__.update(with_both_stages().__dict__)
    model.cost, model.allow_empty = cost, allow_empty  # type: ignore[assignment]
    sets = [
        model.predict_set(scores, x, cost_weight=weight).labels()
        for weight in sorted(weights, reverse=True)
    ]
    for smaller, larger in itertools.pairwise(sets):
        assert all(b[: len(a)] == a for a, b in zip(smaller, larger, strict=True))
    assert allow_empty or all(len(a) >= 1 for a in sets[0])


@pytest.mark.parametrize("cost", ["linear", "log", TABLE])
def test_levels_never_increase_and_are_the_best_choice_of_the_grid(cost: object) -> None:
    scores, _, x = wide_rows(300, 3)
    model = clone(with_both_stages(), safe=False)
    model.__dict__.update(with_both_stages().__dict__)
    model.cost = cost  # type: ignore[assignment]
    levels = levels_of(model, scores, x)
    assert levels.values.shape == (300, 40)
    assert (levels.values[:, 1:] <= levels.values[:, :-1]).all()
    # At consecutive sizes of the grid, the set minimizes P(miss) + cost_weight * cost(size).
    ranking, features = model._validate_rows(scores, x)
    ranked = reranked(model, ranking, features)
    masses = model.score_.rank_model_(log_proba(ranked, 40), features)  # type: ignore[misc]
    grid = model.score_.buckets_.sizes
    assert len(grid) < 40
    costs = torch.tensor([sl.costs.cost_table(cost, grid)[size] for size in grid])  # type: ignore[arg-type]
    compared = 0
    for weight in (0.3, 0.05, 0.01):
        total = 1 - masses[:, : len(grid)].cumsum(dim=1) + weight * costs
        chosen = torch.tensor(grid)[total.argmin(dim=1)]
        sizes = torch.from_numpy(
            np.asarray(model.predict_set(ranking, x, cost_weight=weight).sizes)
        )
        exact = (chosen <= 16) & (sizes <= 16)
        compared += int(exact.sum())
        least = total.min(dim=1).values
        column = torch.searchsorted(torch.tensor(grid), sizes[exact])
        torch.testing.assert_close(total[exact].gather(1, column[:, None])[:, 0], least[exact])
    assert compared > 100
