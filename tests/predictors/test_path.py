"""Paths of selectors, whose members equal separately trained selectors."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn
from two_regimes import N_CLASSES, Problem

import shortlist as sl
from shortlist.losses import loss_names

FAMILY = sl.TopK([1, 2, 4, 6])
WEIGHTS = [1.0, 0.3, 0.1, 0.0]
SHARED: dict[str, object] = {
    "inputs": "both",
    "width": 8,
    "learning_rate": 0.02,
    "max_epochs": 6,
    "dtype": "float64",
}


def path(**parameters: object) -> sl.CardinalityPath:
    return sl.CardinalityPath(
        **({"family": FAMILY, "cost_weights": WEIGHTS} | SHARED | parameters)  # type: ignore[arg-type]
    )


def single(weight: float, **parameters: object) -> sl.CardinalitySelector:
    return sl.CardinalitySelector(
        **({"family": FAMILY, "cost_weight": weight} | SHARED | parameters)  # type: ignore[arg-type]
    )


def outputs(model: sl.CardinalityPath | sl.CardinalitySelector, p: Problem) -> Tensor:
    """Scores of the sets, before the best one is chosen."""
    return model._scores(model._validate_scores(p.scores), p.x)


@pytest.mark.parametrize("validation_fraction", [0.0, 0.25])
@pytest.mark.parametrize("loss", loss_names())
def test_members_equal_separately_trained_selectors(
    loss: str, validation_fraction: float, learn: Problem, unseen: Problem
) -> None:
    parameters = {"loss": loss, "validation_fraction": validation_fraction, "patience": 1}
    joint = path(**parameters).fit(learn.scores[:300], learn.y[:300], learn.x[:300])
    for i, weight in enumerate(WEIGHTS[:3]):
        alone = single(weight, **parameters).fit(learn.scores[:300], learn.y[:300], learn.x[:300])
        torch.testing.assert_close(
            outputs(joint, unseen)[i], outputs(alone, unseen), rtol=1e-8, atol=1e-8
        )
        chosen = joint.choose(unseen.scores, unseen.x, cost_weight=weight)
        assert (chosen == alone.choose(unseen.scores, unseen.x)).all()
        assert joint.predict_set(unseen.scores, unseen.x, cost_weight=weight) == alone.predict_set(
            unseen.scores, unseen.x
        )
        assert joint.history_.best_epoch[i] == alone.history_.best_epoch[0]  # type: ignore[union-attr]


def test_members_that_stop_at_different_epochs(learn: Problem, unseen: Problem) -> None:
    noise = np.random.default_rng(0).permutation(learn.y)  # Labels are independent of the inputs.
    parameters = {"inputs": "features", "patience": 2, "max_epochs": 25, "validation_fraction": 0.3}
    joint = path(**parameters).fit(learn.scores[:200], noise[:200], learn.x[:200])
    ends = set()
    for i, weight in enumerate(WEIGHTS[:3]):
        alone = single(weight, **parameters).fit(learn.scores[:200], noise[:200], learn.x[:200])
        assert alone.history_ is not None
        ends.add(len(alone.history_))
        torch.testing.assert_close(
            outputs(joint, unseen)[i], outputs(alone, unseen), rtol=1e-8, atol=1e-8
        )
    assert len(ends) > 1


def test_given_networks_are_trained_one_by_one(learn: Problem, unseen: Problem) -> None:
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 4))
    parameters = {"network": network, "inputs": "features"}
    joint = path(**parameters).fit(learn.scores, learn.y, learn.x)
    assert isinstance(joint.history_, list)
    for i, weight in enumerate(WEIGHTS[:3]):
        alone = single(weight, **parameters).fit(learn.scores, learn.y, learn.x)
        assert torch.equal(outputs(joint, unseen)[i], outputs(alone, unseen))
        assert joint.history_[i].loss == alone.history_.loss  # type: ignore[union-attr]


def test_smaller_lambdas_give_larger_sets_and_higher_accuracy(
    learn: Problem, unseen: Problem
) -> None:
    model = path(cost_weights=[3.0, 0.1, 0.0], max_epochs=20).fit(learn.scores, learn.y, learn.x)
    curve = model.frontier(unseen.scores, unseen.y, unseen.x)
    assert (np.diff(curve.mean_size) > 0).all()
    assert curve.accuracy[0] < curve.accuracy[1] <= curve.accuracy[2] == 1
    assert curve.parameter.tolist() == [3.0, 0.1, 0.0]
    for weight, accuracy, size in zip(
        curve.parameter, curve.accuracy, curve.mean_size, strict=True
    ):
        sets = model.predict_set(unseen.scores, unseen.x, cost_weight=weight)
        assert sets.accuracy(unseen.y) == pytest.approx(accuracy)
        assert sets.mean_size == pytest.approx(size)


class PrefersTheFirst(nn.Module):
    """A network with constant outputs that prefer the first set."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.outputs = torch.eye(n_out)[0]
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.outputs.to(x.dtype).expand(len(x), -1) + 0 * self.unused


def test_lambda_0_chooses_the_largest_set(learn: Problem) -> None:
    model = path(max_epochs=1, network=PrefersTheFirst).fit(learn.scores, learn.y, learn.x)
    assert (model.choose(learn.scores, learn.x, cost_weight=0.0) == 3).all()
    assert (model.choose(learn.scores, learn.x, cost_weight=1.0) == 0).all()


def test_paths_without_training(learn: Problem) -> None:
    one_set = path(family=sl.TopK([1])).fit(learn.scores, learn.y, learn.x)
    assert one_set.history_ is None
    assert one_set.frontier(learn.scores, learn.y, learn.x).mean_size.tolist() == [1.0] * 4
    free = path(cost_weights=[0.0]).fit(learn.scores, learn.y, learn.x)
    assert free.history_ is None
    assert free.predict_set(learn.scores, learn.x, cost_weight=0).mean_size == 6


def test_the_default_lambdas(learn: Problem) -> None:
    model = path(cost_weights=None, max_epochs=1).fit(learn.scores, learn.y, learn.x)
    curve = model.frontier(learn.scores, learn.y, learn.x)
    np.testing.assert_allclose(curve.parameter, np.geomspace(1, 0.01, 20))


def test_cost_weight_of_the_constructor_is_the_default(learn: Problem) -> None:
    model = path(cost_weight=0.3, max_epochs=1).fit(learn.scores, learn.y, learn.x)
    assert "cost_weight = 0.3" in str(model.predict_set(learn.scores, learn.x).guarantee)
    sets = model.predict_set(learn.scores, learn.x, cost_weight=0.1)
    assert "cost_weight = 0.1" in str(sets.guarantee)
    with pytest.raises(ValueError, match=r"trained for cost_weight = 0\.2; use one of: 1, 0\.3"):
        model.predict_set(learn.scores, learn.x, cost_weight=0.2)
    with pytest.raises(ValueError, match=r"cost_weight is missing.*one of: 1, 0\.3, 0\.1, 0"):
        clone(model).set_params(cost_weight=None).fit(learn.scores, learn.y, learn.x).predict_set(
            learn.scores, learn.x
        )


def test_batches_pickles_and_clones(learn: Problem, unseen: Problem) -> None:
    model = path(cost_weight=0.1).fit(learn.scores, learn.y, learn.x)
    sets = model.predict_set(unseen.scores, unseen.x)
    alone = [
        model.predict_set(unseen.scores[i : i + 1], unseen.x[i : i + 1]).labels()[0]
        for i in range(40)
    ]
    assert alone == sets[:40].labels()
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_set(unseen.scores, unseen.x) == sets
    with pytest.raises(NotFittedError):
        clone(model).choose(unseen.scores, unseen.x)
    refitted = clone(model).fit(learn.scores, learn.y, learn.x)
    assert refitted.predict_set(unseen.scores, unseen.x) == sets


class Breaking(nn.Module):
    """A loss that is interrupted once, after a number of calls."""

    left = 0

    def forward(self, scores: Tensor, costs: Tensor) -> Tensor:
        Breaking.left -= 1
        if Breaking.left == 0:
            raise KeyboardInterrupt
        return (scores - (1 - costs)).square().sum(dim=-1).mean()


@pytest.mark.parametrize("network", [None, nn.Linear])
def test_an_interrupted_path_resumes(
    network: object, learn: Problem, unseen: Problem, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "path.ckpt"
    whole = path(loss=Breaking(), network=network).fit(learn.scores, learn.y, learn.x)
    model = path(loss=Breaking(), network=network, checkpoint=checkpoint)
    Breaking.left = 220
    with pytest.raises(KeyboardInterrupt):
        model.fit(learn.scores, learn.y, learn.x)
    assert len(list(tmp_path.iterdir())) == 1
    model.fit(learn.scores, learn.y, learn.x)
    assert not list(tmp_path.iterdir())
    assert torch.equal(outputs(model, unseen), outputs(whole, unseen))


def test_lambdas_that_differ_in_the_last_digit_do_not_share_a_checkpoint(
    learn: Problem, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "path.ckpt"
    Breaking.left = 220
    with pytest.raises(KeyboardInterrupt):
        path(loss=Breaking(), checkpoint=checkpoint).fit(learn.scores, learn.y, learn.x)
    other = [1.0, 0.3, 0.1 + 1e-9, 0.0]
    with pytest.raises(ValueError, match="another training"):
        path(loss=Breaking(), checkpoint=checkpoint, cost_weights=other).fit(
            learn.scores, learn.y, learn.x
        )


def test_the_error_of_a_nan_loss_names_lambda(learn: Problem) -> None:
    class Nan(nn.Module):
        reduction = "none"

        def forward(self, scores: Tensor, costs: Tensor) -> Tensor:
            if scores.ndim == 2:  # The check of a given loss comes first.
                return scores.sum(dim=-1)
            broken = torch.tensor([1.0, 1.0, torch.nan, 1.0])[:, None]
            return scores.sum(dim=-1) * broken

    with pytest.raises(FloatingPointError, match=r"selector with cost_weight = 0\.1 became nan"):
        path(loss=Nan()).fit(learn.scores, learn.y, learn.x)


@pytest.mark.parametrize("weights", [[], 0.05, "0.1", [[0.1, 0.2]]])
def test_invalid_cost_weights_are_refused(weights: object, learn: Problem) -> None:
    with pytest.raises(ValueError, match="cost_weights must be a list"):
        path(cost_weights=weights).fit(learn.scores, learn.y, learn.x)


def test_large_stacks_are_evaluated_in_small_blocks(learn: Problem) -> None:
    """The size of a block is limited by the hidden layers of all members."""
    model = path(cost_weights=np.geomspace(1, 0.01, 50), width=200, max_epochs=1, inputs="scores")
    model.fit(learn.scores, learn.y)
    block_sizes: list[int] = []
    model._network.register_forward_hook(lambda m, x, y: block_sizes.append(len(x[0])))  # type: ignore[union-attr]
    scores = np.tile(learn.scores, (5, 1))
    model.frontier(scores, np.tile(learn.y, 5))
    assert sum(block_sizes) == len(scores)
    assert max(block_sizes) * 50 * 200 < 1 << 22
    assert scores.shape[1] == N_CLASSES
