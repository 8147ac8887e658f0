"""Split conformal prediction: what its sets do not depend on."""

from __future__ import annotations

import numpy as np
import pytest
from registered_scores import VARIANTS
from sklearn.base import clone
from split_predictors import EASY, LEVELS, near, where_sets_differ
from synthetic import SCORE_TYPES, as_score_type, draw, in_64ths

import shortlist as sl

# Invariance of the sets


@pytest.mark.parametrize("kind", SCORE_TYPES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_sets_do_not_depend_on_batch_or_order(name, randomized, dtype, kind):
    scores, y = draw(260, 6, seed=5)
    scores[130:] = scores[130:].round()  # exact ties
    scores = as_score_type(scores, kind).astype(dtype)
    model = sl.SplitConformal(name, randomized=randomized, accuracy=0.8, score_type=kind)
    model.fit(scores[:240], y[:240])
    new = scores[225:]
    batch = model.predict_set(new)
    assert len(set(batch.sizes.tolist())) > (name != "topk")
    for i in range(len(new)):
        assert model.predict_set(new[i : i + 1]).labels() == [batch.labels()[i]]
    order = np.random.default_rng(0).permutation(len(new))
    assert model.predict_set(new[order]).labels() == [batch.labels()[i] for i in order]


def test_a_threshold_that_ties_with_many_rows():
    p, y = in_64ths(400, 5, seed=6)
    for name, randomized in VARIANTS:
        model = sl.SplitConformal(name, randomized=randomized, **EASY).fit(p[:200], y[:200])
        for accuracy in LEVELS:
            batch = model.predict_set(p[200:], accuracy=accuracy).labels()
            for i in range(200, 400, 7):
                alone = model.predict_set(p[i : i + 1], accuracy=accuracy)
                assert alone.labels() == [batch[i - 200]]


@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_the_order_of_the_calibration_rows_does_not_matter(name, randomized):
    scores, y = draw(400, seed=7)
    model = sl.SplitConformal(name, randomized=randomized, **EASY).fit(scores[:300], y[:300])
    again = clone(model).fit(scores[299::-1], y[299::-1])
    for accuracy in LEVELS:
        assert model.predict_set(scores, accuracy=accuracy) == again.predict_set(
            scores, accuracy=accuracy
        )


@pytest.mark.parametrize(("name", "randomized"), VARIANTS)
def test_classes_in_another_order(name, randomized):
    scores, y = draw(500, seed=8)
    columns = np.random.default_rng(1).permutation(8)
    place = np.argsort(columns)
    model = sl.SplitConformal(name, randomized=randomized).fit(scores[:400], y[:400])
    other = clone(model).fit(scores[:400, columns], place[y[:400]])
    assert vars(other.score_) == vars(model.score_)
    for accuracy in LEVELS:
        expected = model.predict_set(scores[400:], accuracy=accuracy)
        got = other.predict_set(scores[400:, columns], accuracy=accuracy)
        moved = np.array(
            [set(columns[a]) != set(b) for a, b in zip(got.labels(), expected, strict=True)]
        )
        assert not (moved & ~near(model, scores[400:], accuracy, 1e-5)).any()
        assert moved.mean() < 0.02


@pytest.mark.parametrize("name", [name for name, randomized in VARIANTS if not randomized])
def test_logits_may_be_shifted_row_by_row(name):
    scores, y = draw(500, seed=9)
    moved = scores + np.random.default_rng(0).normal(size=(500, 1)) * 100
    model = sl.SplitConformal(name).fit(scores[:400], y[:400])
    other = clone(model).fit(moved[:400], y[:400])
    for accuracy in LEVELS:
        differ = where_sets_differ(
            model.predict_set(scores[400:], accuracy=accuracy),
            other.predict_set(moved[400:], accuracy=accuracy),
        )
        assert not (differ & ~near(model, scores[400:], accuracy, 1e-5)).any()
        assert differ.mean() < 0.03


@pytest.mark.parametrize("factor", [0.05, 6.0, 40.0])
@pytest.mark.parametrize("name", [name for name, randomized in VARIANTS if not randomized])
def test_the_scale_of_logits_goes_into_the_temperature(name, factor):
    scores, y = draw(800, seed=10)
    model = sl.SplitConformal(name).fit(scores[:600], y[:600])
    other = clone(model).fit(factor * scores[:600], y[:600])
    assert model.temperature_ * factor == pytest.approx(other.temperature_, rel=1e-3)
    for accuracy in LEVELS:
        differ = where_sets_differ(
            model.predict_set(scores[600:], accuracy=accuracy),
            other.predict_set(factor * scores[600:], accuracy=accuracy),
        )
        assert not (differ & ~near(model, scores[600:], accuracy, 1e-3)).any()
        assert differ.mean() < 0.05
    if name != "topk":  # Without a temperature, the scale matters.
        fixed = sl.SplitConformal(name, temperature=1.0, penalty=0.1, k_reg=1).fit(scores, y).score_
        plain, scaled = (
            fixed.levels(sl.Ranking.from_scores(f * scores)).numpy() for f in (1.0, factor)
        )
        assert np.abs(plain - scaled).max() > 0.1


@pytest.mark.parametrize("name", [name for name, randomized in VARIANTS if not randomized])
def test_logits_probabilities_and_their_logarithms(name):
    scores, y = draw(500, seed=11, temperature=2.0)
    models = {
        k: sl.SplitConformal(name).fit(as_score_type(scores[:400], k), y[:400]) for k in SCORE_TYPES
    }
    assert [m.score_type_ for m in models.values()] == SCORE_TYPES
    first = models["logits"]
    for accuracy in LEVELS:
        expected = first.predict_set(scores[400:], accuracy=accuracy)
        for kind, model in models.items():
            got = model.predict_set(as_score_type(scores[400:], kind), accuracy=accuracy)
            differ = where_sets_differ(expected, got)
            assert not (differ & ~near(first, scores[400:], accuracy, 1e-5)).any()
