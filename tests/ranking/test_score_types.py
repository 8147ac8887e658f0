"""The type of scores is inferred from their values, or declared and checked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from score_samples import as_candidates, make_scores
from synthetic import SCORE_TYPES

import shortlist as sl
from shortlist.ranking import Ranking
from shortlist.ranking.score_types import infer_score_type

DTYPES = [np.float16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("score_type", SCORE_TYPES)
@pytest.mark.parametrize("n", [2, 10, 1000])
def test_the_type_is_inferred(score_type, dtype, n):
    scores = make_scores(score_type, n=n).astype(dtype)
    assert infer_score_type(Ranking.from_scores(scores)) == score_type
    assert infer_score_type(Ranking.from_scores(torch.from_numpy(scores))) == score_type
    for depth in {1, min(5, n), n}:
        assert infer_score_type(as_candidates(scores, depth)) == score_type


def test_one_row_out_of_range_decides():
    proba = make_scores("proba")
    proba[17] *= 1.5
    assert infer_score_type(Ranking.from_scores(proba)) == "logits"
    log_proba = make_scores("log_proba")
    log_proba[17] += 1
    assert infer_score_type(Ranking.from_scores(log_proba)) == "logits"


def test_dense_scores_are_probabilities_only_if_rows_sum_to_one():
    half = make_scores("proba") / 2
    assert infer_score_type(Ranking.from_scores(half)) == "logits"
    assert infer_score_type(as_candidates(half, 7)) == "proba"  # The rest is not listed.


def test_negative_scores_are_log_probabilities_only_if_their_exponentials_sum_to_one():
    low = make_scores("log_proba") - 2
    assert infer_score_type(Ranking.from_scores(low)) == "logits"
    assert infer_score_type(as_candidates(low, 7)) == "log_proba"
    many = np.full((3, 7), -0.5)  # Seven masses of 0.6 sum to more than one.
    assert (
        infer_score_type(Ranking.from_scores(many))
        == infer_score_type(as_candidates(many, 7))
        == "logits"
    )


def test_certainty_and_zeros_are_probabilities():
    assert infer_score_type(Ranking.from_scores(np.eye(4))) == "proba"


def test_padding_is_ignored():
    labels = np.array([[0, 1, 2], [3, -1, -1]])
    proba = np.array([[0.5, 0.25, 0.125], [0.75, 0, 0]])
    ranking = Ranking.from_candidates(labels, proba, n_classes=5)
    assert infer_score_type(ranking) == "proba"
    logs = np.where(labels >= 0, np.log(np.maximum(proba, 1e-9)), 0)
    assert infer_score_type(Ranking.from_candidates(labels, logs, n_classes=5)) == "log_proba"


@pytest.mark.parametrize("score_type", SCORE_TYPES)
def test_a_possible_declared_type_is_accepted(score_type):
    assert infer_score_type(Ranking.from_scores(make_scores(score_type)), score_type) == score_type
    assert infer_score_type(as_candidates(make_scores(score_type), 3), score_type) == score_type
    assert infer_score_type(Ranking.from_scores(make_scores("proba")), "logits") == "logits"


@pytest.mark.parametrize("source", [Ranking.from_scores, lambda s: as_candidates(s, 2)])
def test_an_impossible_declared_type_raises(source):
    logits = np.array([[4.0, -1.5, 2.0]])
    with pytest.raises(ValueError, match=r"'proba', but the scores run from .* to 4; proba lies"):
        infer_score_type(source(logits), "proba")
    with pytest.raises(ValueError, match=r"'log_proba', but the scores run from .* to 4; "):
        infer_score_type(source(logits), "log_proba")
    with pytest.raises(ValueError, match="'proba', but the scores run from -2"):
        infer_score_type(source(np.array([[-1.0, -2.0]])), "proba")


def test_an_unknown_type_raises():
    with pytest.raises(ValueError, match="'auto', 'logits', 'proba', 'log_proba'; got 'odds'"):
        infer_score_type(Ranking.from_scores(make_scores("logits")), "odds")


def test_scores_of_another_type_than_in_fit_raise() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 5))
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = rng.integers(5, size=300)
    for fit_scores, other in ((proba, logits), (np.log(proba), logits), (np.log(proba), proba)):
        model = sl.SplitConformal("lac").fit(fit_scores, y)
        model.predict_set(fit_scores[:7], accuracy=0.9)
        with pytest.raises(ValueError, match=r"fit saw scores of type '.*proba', but these run"):
            model.predict_set(other, accuracy=0.9)
