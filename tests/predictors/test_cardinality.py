"""The paper's selector: its choices, its losses, networks and inputs, and its invariances."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn
from two_regimes import N_CLASSES, Problem

import shortlist as sl
from shortlist.losses import CostSensitiveCompSumLoss, loss_names

FAMILY = sl.TopK([1, 2, 4, 6])


def selector(**parameters: object) -> sl.CardinalitySelector:
    defaults: dict[str, object] = {
        "family": FAMILY,
        "cost_weight": 0.1,
        "inputs": "scores",
        "width": 16,
        "learning_rate": 0.01,
        "max_epochs": 8,
        "patience": 3,
    }
    return sl.CardinalitySelector(**(defaults | parameters))  # type: ignore[arg-type]


def loss_of(model: sl.SetPredictor, p: Problem, weight: float = 0.1) -> float:
    sets = model.predict_set(p.scores, p.x)
    return sl.metrics.cardinality_loss(sets, p.y, cost="log", cost_weight=weight)


# The choices


@pytest.mark.parametrize("loss", loss_names())
def test_every_loss_beats_the_best_constant_choice(
    loss: str, learn: Problem, unseen: Problem
) -> None:
    losses = [
        loss_of(
            selector(loss=loss, width=64, max_epochs=20, random_state=seed).fit(
                learn.scores, learn.y
            ),
            unseen,
        )
        for seed in range(3)
    ]
    assert np.mean(losses) < 0.95 * best_constant(learn, unseen)


def best_constant(learn: Problem, unseen: Problem) -> float:
    return min(
        loss_of(sl.FixedSelector(FAMILY, i).fit(learn.scores, learn.y), unseen) for i in range(4)
    )


@pytest.mark.parametrize("seed", range(4))
def test_training_starts_without_a_preference_for_a_set(
    seed: int, learn: Problem, unseen: Problem
) -> None:
    """The margin loss has no gradient where a wrong set leads, so that a biased start is final."""
    model = selector(loss="margin", inputs="features", width=64, random_state=seed)
    model.fit(learn.scores, learn.y, learn.x)
    assert loss_of(model, unseen) < 1.05 * best_constant(learn, unseen)


@pytest.mark.parametrize("inputs", ["features", "scores", "both"])
def test_easy_rows_get_one_label_and_hard_rows_four(
    inputs: str, learn: Problem, unseen: Problem
) -> None:
    model = selector(inputs=inputs, loss="hinge", width=64, max_epochs=30)
    sizes = model.fit(learn.scores, learn.y, learn.x).predict_set(unseen.scores, unseen.x).sizes
    assert (sizes == np.where(unseen.hard, 4, 1)).mean() > 0.95


def test_the_sets_are_the_best_labels_of_the_chosen_size(learn: Problem, unseen: Problem) -> None:
    model = selector().fit(learn.scores, learn.y)
    choice, sets = model.choose(unseen.scores), model.predict_set(unseen.scores)
    order = np.argsort(-unseen.scores, axis=1)
    for i, labels in enumerate(sets.labels()):
        assert labels == order[i, : FAMILY.k[choice[i]]].tolist()
    assert "cost_weight = 0.1" in str(sets.guarantee)
    assert "no accuracy is guaranteed" in str(sets.guarantee)


def test_costs_of_every_type(learn: Problem, unseen: Problem) -> None:
    free = selector(cost={1: 0.0, 2: 0.0, 4: 0.0, 6: 0.0}).fit(learn.scores, learn.y)
    steep = selector(cost=lambda size: 100.0 * (size - 1)).fit(learn.scores, learn.y)
    assert free.predict_set(unseen.scores).accuracy(unseen.y) > 0.99
    assert steep.predict_set(unseen.scores).mean_size == 1
    table = selector(cost=np.log([1, 2, 3, 4, 5, 6])).fit(learn.scores, learn.y)
    named = selector(cost="log").fit(learn.scores, learn.y)
    assert (table.choose(unseen.scores) == named.choose(unseen.scores)).all()


def test_the_papers_second_algorithm_chooses_a_threshold(learn: Problem, unseen: Problem) -> None:
    def probabilities(p: Problem) -> np.ndarray:
        return torch.from_numpy(p.scores).softmax(dim=1).numpy()

    thresholds = [0.9, 0.5, 0.15, 0.001]
    model = selector(family=sl.Threshold(thresholds), width=64, max_epochs=30)
    model.fit(probabilities(learn), learn.y)
    assert model.score_type_ == "proba"
    p = probabilities(unseen)
    choice, sets = model.choose(p), model.predict_set(p)
    for i, labels in enumerate(sets.labels()):
        above = np.flatnonzero(p[i] > thresholds[choice[i]])
        assert set(labels) == set(above if len(above) else [p[i].argmax()])
    losses = [
        sl.metrics.cardinality_loss(
            sl.FixedSelector(sl.Threshold(thresholds), i).fit(p, unseen.y).predict_set(p),
            unseen.y,
            cost_weight=0.1,
        )
        for i in range(4)
    ]
    loss = sl.metrics.cardinality_loss(sets, unseen.y, cost_weight=0.1)
    assert loss <= min(losses) + 0.005
    assert loss < 0.08  # The optimum is log(4) / 10 for half of the rows.


def test_sets_that_are_not_prefixes(learn: Problem, unseen: Problem) -> None:
    """The best label, or its half of the classes. Such a family is also trained at lambda 0."""

    def best(ranking: sl.Ranking) -> np.ndarray:
        return np.eye(N_CLASSES, dtype=bool)[np.asarray(ranking.labels)[:, 0]]

    def half(ranking: sl.Ranking) -> np.ndarray:
        lower = np.asarray(ranking.labels)[:, :1] < 3
        return (np.arange(N_CLASSES) < 3) == lower

    family = sl.Custom.from_masks(best, half)
    model = selector(family=family, cost_weight=0.0).fit(learn.scores, learn.y)
    assert model.history_ is not None
    sets = model.predict_set(unseen.scores)
    assert set(np.unique(sets.sizes)) <= {1, 3}
    constants = [
        sl.FixedSelector(family, i).fit(learn.scores, learn.y).predict_set(unseen.scores)
        for i in range(2)
    ]
    # Neither set contains the other's labels in all rows, so that both are needed.
    assert sets.accuracy(unseen.y) >= max(c.accuracy(unseen.y) for c in constants)


# Problems without training


@pytest.mark.parametrize(
    ("parameters", "size"), [({"family": sl.TopK([1])}, 1), ({"cost_weight": 0.0}, 6)]
)
def test_one_set_or_no_cost_needs_no_training(
    parameters: dict[str, object], size: int, learn: Problem, unseen: Problem
) -> None:
    model = selector(**parameters).fit(learn.scores, learn.y)
    assert model.history_ is None
    assert (model.predict_set(unseen.scores).sizes == size).all()
    assert len(model.frontier(unseen.scores, unseen.y)) == 1


class Constant(nn.Module):
    """A network with constant outputs."""

    def __init__(self, outputs: list[float]) -> None:
        super().__init__()
        self.outputs = torch.tensor(outputs)
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.outputs.to(x.dtype).expand(len(x), -1) + 0 * self.unused


@pytest.mark.parametrize(
    ("outputs", "chosen"), [([0.0] * 4, 3), ([1.0, 1.0, 0.0, 0.0], 1), ([2.0, 1.0, 2.0, 0.0], 2)]
)
def test_ties_go_to_the_largest_set(outputs: list[float], chosen: int, learn: Problem) -> None:
    model = selector(network=Constant(outputs)).fit(learn.scores, learn.y)
    assert (model.choose(learn.scores) == chosen).all()


# Losses and networks given by the user


def test_a_loss_module_equals_the_loss_of_the_same_name(learn: Problem, unseen: Problem) -> None:
    named = selector(loss="gce", q=0.4, dtype="float64").fit(learn.scores, learn.y)
    for reduction in ("mean", "none"):
        module = CostSensitiveCompSumLoss("gce", q=0.4, reduction=reduction)
        model = selector(loss=module, dtype="float64").fit(learn.scores, learn.y)
        np.testing.assert_allclose(model.history_.loss, named.history_.loss, rtol=1e-10)  # type: ignore[union-attr]
        assert (model.choose(unseen.scores) == named.choose(unseen.scores)).all()


class Regress(nn.Module):
    """A custom loss: the squared error of a prediction of one minus the cost."""

    def forward(self, scores: Tensor, costs: Tensor) -> Tensor:
        return (scores - (1 - costs)).square().sum(dim=-1).mean()


def test_any_module_of_scores_and_costs_is_a_loss(learn: Problem, unseen: Problem) -> None:
    model = selector(loss=Regress(), width=64, max_epochs=20).fit(learn.scores, learn.y)
    sizes = model.predict_set(unseen.scores).sizes
    assert (sizes == np.where(unseen.hard, 4, 1)).mean() > 0.95
    path = sl.CardinalityPath(
        FAMILY, cost_weights=[1.0, 0.1], loss=Regress(), inputs="scores", width=64, max_epochs=20
    )
    curve = path.fit(learn.scores, learn.y).frontier(unseen.scores, unseen.y)
    assert curve.accuracy[0] < curve.accuracy[1]


class Recording(Regress):
    """A loss that records the largest cost of each set."""

    most = torch.zeros(4)

    def forward(self, scores: Tensor, costs: Tensor) -> Tensor:
        if costs.shape[1] == len(Recording.most):
            Recording.most = Recording.most.maximum(costs.amax(dim=0))
        return super().forward(scores, costs)


@pytest.mark.parametrize(("open_classes", "largest"), [(False, 4), (True, 6)])
def test_costs_are_divided_by_the_largest_cost_that_can_occur(
    learn: Problem, monkeypatch: pytest.MonkeyPatch, open_classes: bool, largest: int
) -> None:
    """The set of all six labels cannot miss, unless labels of unknown classes can occur."""
    monkeypatch.setattr(Recording, "most", torch.zeros(4))
    ranking = sl.Ranking.from_scores(learn.scores)
    ranking.open_classes = open_classes
    selector(loss=Recording(), max_epochs=1).fit(ranking, learn.y)
    missed = ~FAMILY.hits(learn.scores, learn.y).all(axis=0)
    assert missed[0]
    expected = (missed + 0.1 * np.log([1, 2, 4, 6])) / (1 + 0.1 * np.log(largest))
    assert Recording.most.tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_a_given_network_is_copied_and_not_changed(learn: Problem, unseen: Problem) -> None:
    network = nn.Sequential(
        nn.Linear(N_CLASSES + 1, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 4)
    )
    before = {name: value.clone() for name, value in network.state_dict().items()}
    model = selector(network=network, dtype="float64").fit(learn.scores, learn.y)
    assert model.network is network
    assert network.training
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.dtype == torch.float32
    again = selector(network=network, dtype="float64").fit(learn.scores, learn.y)
    assert (again.choose(unseen.scores) == model.choose(unseen.scores)).all()
    assert (
        model.choose(unseen.scores) == model.choose(unseen.scores)
    ).all()  # Dropout is disabled.
    assert loss_of(model, unseen) < 0.13


def test_a_function_can_build_the_network(learn: Problem) -> None:
    shapes = []

    def linear(n_in: int, n_out: int) -> nn.Module:
        shapes.append((n_in, n_out))
        return nn.Linear(n_in, n_out)

    model = selector(network=linear, inputs="both").fit(learn.scores, learn.y, learn.x)
    assert shapes == [(3 + N_CLASSES + 1, 4)]
    again = selector(network=nn.Linear, inputs="both").fit(learn.scores, learn.y, learn.x)
    assert again.history_.loss == model.history_.loss  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Linear(N_CLASSES + 1, 3), r"shape \(2, 3\) for 2 rows of 7 inputs.*\(2, 4\)"),
        (nn.Linear(5, 4), r"does not take 2 rows of 7 inputs"),
        (nn.LSTM(N_CLASSES + 1, 4), r"does not take 2 rows of 7 inputs"),
        (nn.Tanh(), r"shape \(2, 7\)"),
    ],
)
def test_a_network_of_the_wrong_shape_is_refused(
    network: nn.Module, message: str, learn: Problem
) -> None:
    with pytest.raises(ValueError, match=message):
        selector(network=network).fit(learn.scores, learn.y)


def test_batch_norm_and_odd_row_counts(learn: Problem) -> None:
    network = nn.Sequential(nn.Linear(N_CLASSES + 1, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    rows = slice(0, 129)
    model = selector(network=network, validation_fraction=0.0, max_epochs=2)
    model.fit(learn.scores[rows], learn.y[rows])
    one_at_a_time = [model.choose(learn.scores[i : i + 1])[0] for i in range(20)]
    assert (model.choose(learn.scores[:20]) == one_at_a_time).all()


# Inputs


def test_the_network_uses_only_the_requested_inputs(learn: Problem, unseen: Problem) -> None:
    by_features = selector(inputs="features").fit(learn.scores, learn.y, learn.x)
    shuffled = unseen.scores[:, ::-1].copy()
    assert (
        by_features.choose(unseen.scores, unseen.x) == by_features.choose(shuffled, unseen.x)
    ).all()
    by_scores = selector(inputs="scores").fit(learn.scores, learn.y, learn.x)
    without = selector(inputs="scores").fit(learn.scores, learn.y)
    assert (by_scores.choose(unseen.scores, unseen.x) == by_scores.choose(unseen.scores)).all()
    assert (by_scores.choose(unseen.scores) == without.choose(unseen.scores)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_features_of_every_precision(
    dtype: type[np.floating], learn: Problem, unseen: Problem
) -> None:
    model = selector(inputs="features", loss="hinge", width=64, max_epochs=30)
    model.fit(learn.scores, learn.y, (1000 + 10 * learn.x).astype(dtype))
    sizes = model.predict_set(unseen.scores, (1000 + 10 * unseen.x).astype(dtype)).sizes
    assert (sizes == np.where(unseen.hard, 4, 1)).mean() > 0.9


def test_scores_of_half_precision(learn: Problem, unseen: Problem) -> None:
    model = selector().fit(learn.scores.astype(np.float16), learn.y)
    sets = model.predict_set(unseen.scores.astype(np.float16))
    whole = selector().fit(learn.scores, learn.y).predict_set(unseen.scores)
    assert (sets.sizes == whole.sizes).mean() > 0.95


@pytest.mark.parametrize("score_type", ["logits", "proba", "log_proba"])
def test_choices_do_not_depend_on_the_type_of_scores(
    score_type: str, learn: Problem, unseen: Problem
) -> None:
    def convert(scores: np.ndarray) -> np.ndarray:
        log_p = torch.from_numpy(scores).log_softmax(dim=1).numpy()
        return {"logits": scores, "proba": np.exp(log_p), "log_proba": log_p}[score_type]

    model = selector(dtype="float64").fit(convert(learn.scores), learn.y)
    assert model.score_type_ == score_type
    declared = selector(dtype="float64", score_type=score_type).fit(convert(learn.scores), learn.y)
    by_logits = selector(dtype="float64").fit(learn.scores, learn.y)
    choice = by_logits.choose(unseen.scores)
    assert (model.choose(convert(unseen.scores)) == choice).all()
    assert (declared.choose(convert(unseen.scores)) == choice).all()


def test_the_score_type_is_inferred_at_fit(learn: Problem) -> None:
    model = selector().fit(learn.scores, learn.y)
    p = torch.from_numpy(learn.scores[:50]).softmax(dim=1).numpy()
    with pytest.warns(UserWarning, match="look like probabilities"):
        before = model.choose(p)
    assert model.score_type_ == "logits"
    # Scores that look like probabilities are still used as logits: adding 5 changes nothing.
    assert (model.choose(p + 5) == before).all()


def test_score_depth_limits_the_inputs(learn: Problem) -> None:
    n_inputs = []

    def linear(n_in: int, n_out: int) -> nn.Module:
        n_inputs.append(n_in)
        return nn.Linear(n_in, n_out)

    selector(network=linear, score_depth=2).fit(learn.scores, learn.y)
    assert n_inputs == [2 + 1]  # Two log-probabilities and the mass of all others.


def to_candidates(p: Problem, depth: int = 4) -> sl.Ranking:
    """Candidates: the best labels, with different numbers of them in each row."""
    labels = np.argsort(-p.scores, axis=1)[:, :depth]
    log_p = torch.from_numpy(p.scores).log_softmax(dim=1).numpy()
    kept = np.take_along_axis(log_p, labels, axis=1)
    labels = np.where((kept < -4) & (np.arange(depth) > 0), -1, labels)
    return sl.Ranking.from_candidates(labels, kept, N_CLASSES)


def test_candidates_are_accepted(learn: Problem, unseen: Problem) -> None:
    model = selector(family=sl.TopK([1, 2, 4]), width=64, max_epochs=20)
    model.fit(to_candidates(learn), learn.y)
    ranking = to_candidates(unseen)
    sets = model.predict_set(ranking)
    assert (sets.sizes == np.where(unseen.hard, 4, 1)).mean() > 0.9
    assert (sets.sizes <= (np.asarray(ranking.labels) >= 0).sum(axis=1)).all()
    one = [model.predict_set(ranking[i : i + 1]).labels()[0] for i in range(30)]
    assert one == sets[:30].labels()


# Labels


def test_labels_can_be_names(learn: Problem, unseen: Problem) -> None:
    names = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])
    numbers = selector().fit(learn.scores, learn.y)
    sorted_names = selector().fit(learn.scores, names[learn.y])
    assert sorted_names.classes_.tolist() == names.tolist()
    expected = [[names[k] for k in row] for row in numbers.predict_set(unseen.scores).labels()]
    assert sorted_names.predict_set(unseen.scores).labels() == expected
    assert sorted_names.predict_set(unseen.scores).accuracy(names[unseen.y]) == pytest.approx(
        numbers.predict_set(unseen.scores).accuracy(unseen.y)
    )
    backwards = names[::-1]  # The columns are not sorted by name.
    declared = selector().fit(learn.scores, backwards[learn.y], classes=backwards)
    assert declared.classes_.tolist() == backwards.tolist()
    assert declared.predict_set(unseen.scores).accuracy(backwards[unseen.y]) > 0.9
    known = sl.Ranking.from_scores(learn.scores, classes=backwards)
    by_ranking = selector().fit(known, backwards[learn.y])
    assert by_ranking.predict_set(unseen.scores) == declared.predict_set(unseen.scores)


def test_labels_that_do_not_name_every_column_need_classes(learn: Problem) -> None:
    without_last = learn.y < 5
    names = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])
    with pytest.raises(ValueError, match=r"5 distinct labels.*6 columns.*classes="):
        selector().fit(learn.scores[without_last], names[learn.y[without_last]])
    model = selector().fit(learn.scores[without_last], names[learn.y[without_last]], classes=names)
    assert model.classes_.tolist() == names.tolist()


def test_a_ranking_with_other_column_names_is_refused(learn: Problem) -> None:
    names = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])
    model = selector().fit(learn.scores, names[learn.y])
    assert model.predict_set(sl.Ranking.from_scores(learn.scores, classes=names)).n_classes == 6
    with pytest.raises(ValueError, match=r"\['fox'.*\['ant'"):
        model.predict_set(sl.Ranking.from_scores(learn.scores, classes=names[::-1]))
    with pytest.raises(ValueError, match=r"\['ant'.*\['fox'"):
        selector().fit(
            sl.Ranking.from_scores(learn.scores, classes=names), names[learn.y], classes=names[::-1]
        )


def test_torch_in_torch_out(learn: Problem, unseen: Problem) -> None:
    tensors = [torch.from_numpy(a) for a in (learn.scores, learn.y, learn.x)]
    model = selector(inputs="both").fit(*tensors)
    choice = model.choose(torch.from_numpy(unseen.scores), torch.from_numpy(unseen.x))
    sets = model.predict_set(torch.from_numpy(unseen.scores), torch.from_numpy(unseen.x))
    assert isinstance(choice, Tensor)
    assert isinstance(sets.sizes, Tensor)
    assert isinstance(sets.contains(torch.from_numpy(unseen.y)), Tensor)
    by_numpy = selector(inputs="both").fit(learn.scores, learn.y, learn.x)
    numpy_choice = by_numpy.choose(unseen.scores, unseen.x)
    assert isinstance(numpy_choice, np.ndarray)
    assert (numpy_choice == choice.numpy()).all()


def test_inputs_are_not_changed(learn: Problem) -> None:
    inputs = [a.copy() for a in (learn.scores, learn.y, learn.x)]
    for array in inputs:
        array.flags.writeable = False
    model = selector(inputs="both").fit(*inputs)
    model.predict_set(inputs[0], inputs[2])
    for array, before in zip(inputs, (learn.scores, learn.y, learn.x), strict=True):
        assert np.array_equal(array, before)


# Invariances


@pytest.mark.parametrize("inputs", ["features", "scores", "both"])
def test_sets_do_not_depend_on_the_batch(inputs: str, learn: Problem, unseen: Problem) -> None:
    model = selector(inputs=inputs).fit(learn.scores, learn.y, learn.x)
    together = model.predict_set(unseen.scores[:60], unseen.x[:60])
    rows = range(60)
    alone = [
        model.predict_set(unseen.scores[i : i + 1], unseen.x[i : i + 1]).labels()[0] for i in rows
    ]
    assert together.labels() == alone
    back = model.predict_set(unseen.scores[59::-1], unseen.x[59::-1])
    assert back.labels() == alone[::-1]


def test_choices_do_not_depend_on_the_order_of_columns(learn: Problem, unseen: Problem) -> None:
    order = np.array([3, 0, 5, 1, 4, 2])  # Column j is class order[j].
    position = np.argsort(order)
    plain = selector().fit(learn.scores, learn.y)
    moved = selector().fit(learn.scores[:, order], position[learn.y])
    sets = moved.predict_set(unseen.scores[:, order])
    renamed = [[int(order[label]) for label in row] for row in sets.labels()]  # type: ignore[call-overload]
    assert renamed == plain.predict_set(unseen.scores).labels()


def test_a_shift_of_the_logits_changes_nothing(learn: Problem, unseen: Problem) -> None:
    def shift(p: Problem) -> np.ndarray:
        return p.scores + 3 * p.x[:, :1] + 100

    plain = selector(dtype="float64").fit(learn.scores, learn.y)
    shifted = selector(dtype="float64").fit(shift(learn), learn.y)
    assert shifted.predict_set(shift(unseen)) == plain.predict_set(unseen.scores)


def test_fit_is_reproducible(learn: Problem) -> None:
    first, second = (selector().fit(learn.scores, learn.y) for _ in range(2))
    assert first.history_.loss == second.history_.loss  # type: ignore[union-attr]
    other = selector(random_state=1).fit(learn.scores, learn.y)
    assert first.history_.loss != other.history_.loss  # type: ignore[union-attr]
    state = selector(random_state=np.random.RandomState(7)).fit(learn.scores, learn.y)
    again = selector(random_state=np.random.RandomState(7)).fit(learn.scores, learn.y)
    assert state.history_.loss == again.history_.loss  # type: ignore[union-attr]


# Copies, pickles and interrupted fits


def test_clone_and_parameters(learn: Problem) -> None:
    model = selector(loss="gce").fit(learn.scores, learn.y)
    copied = clone(model)
    with pytest.raises(NotFittedError):
        copied.predict_set(learn.scores)
    assert copied.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert copied.family == model.family
    assert copied.fit(learn.scores, learn.y).history_.loss == model.history_.loss  # type: ignore[union-attr]
    copied.set_params(cost_weight=0.7, loss="log")
    assert copied.get_params()["cost_weight"] == 0.7
    # Parameters take effect at the next fit.
    assert "cost_weight = 0.1" in str(copied.predict_set(learn.scores).guarantee)
    assert "gce" in repr(model)


def test_a_pickle_predicts_the_same(learn: Problem, unseen: Problem) -> None:
    model = selector(inputs="both").fit(learn.scores, learn.y, learn.x)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_set(unseen.scores, unseen.x) == model.predict_set(unseen.scores, unseen.x)
    assert again.history_ == model.history_


class Breaking(nn.Module):
    """A loss that is interrupted once, after a number of calls."""

    left = 0

    def forward(self, scores: Tensor, costs: Tensor) -> Tensor:
        Breaking.left -= 1
        if Breaking.left == 0:
            raise KeyboardInterrupt
        return Regress()(scores, costs)  # type: ignore[no-any-return]


@pytest.fixture
def broken() -> Callable[[int], None]:
    def after(calls: int) -> None:
        Breaking.left = calls

    return after


def test_an_interrupted_fit_resumes_from_its_checkpoint(
    learn: Problem, unseen: Problem, tmp_path: Path, broken: Callable[[int], None]
) -> None:
    path = tmp_path / "selector.ckpt"
    whole = selector(loss=Breaking()).fit(learn.scores, learn.y)
    broken(60)
    model = selector(loss=Breaking(), checkpoint=path)
    with pytest.raises(KeyboardInterrupt):
        model.fit(learn.scores, learn.y)
    assert path.exists()
    with pytest.raises(ValueError, match="another training"):
        clone(model).set_params(cost_weight=0.1000001).fit(learn.scores, learn.y)
    model.fit(learn.scores, learn.y)
    assert not path.exists()
    assert model.history_.loss == whole.history_.loss  # type: ignore[union-attr]
    assert (model.choose(unseen.scores) == whole.choose(unseen.scores)).all()


def test_an_interrupted_first_fit_leaves_the_model_unfitted(
    learn: Problem, broken: Callable[[int], None]
) -> None:
    model = selector(loss=Breaking())
    broken(5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(learn.scores, learn.y)
    with pytest.raises(NotFittedError):
        model.predict_set(learn.scores)


def test_a_failed_fit_does_not_change_the_model(
    learn: Problem, unseen: Problem, broken: Callable[[int], None]
) -> None:
    model = selector(family=None, loss=Breaking()).fit(learn.scores, learn.y)
    before = model.predict_set(unseen.scores)
    broken(5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(learn.scores[:, :4], learn.y % 4)
    with pytest.raises(ValueError, match="labels"):
        model.fit(learn.scores[:, :4], learn.y[:7] % 4)
    assert model.predict_set(unseen.scores) == before
    assert len(model.classes_) == N_CLASSES


def test_the_error_of_a_nan_loss_names_lambda(learn: Problem) -> None:
    class Nan(nn.Module):
        def forward(self, scores: Tensor, costs: Tensor) -> Tensor:
            return scores.sum() * torch.nan

    with pytest.raises(FloatingPointError, match=r"selector with cost_weight = 0\.1 became nan"):
        selector(loss=Nan()).fit(learn.scores, learn.y)


def test_the_frontier_is_one_point(learn: Problem, unseen: Problem) -> None:
    model = selector().fit(learn.scores, learn.y)
    curve, sets = model.frontier(unseen.scores, unseen.y), model.predict_set(unseen.scores)
    assert curve.accuracy.tolist() == [pytest.approx(sets.accuracy(unseen.y))]
    assert curve.mean_size.tolist() == [pytest.approx(sets.mean_size)]
    assert curve.parameter.tolist() == [0.1]


def test_the_default_family_doubles_up_to_the_number_of_classes(learn: Problem) -> None:
    model = selector(family=None, max_epochs=1).fit(learn.scores, learn.y)
    assert model.family_ == sl.TopK([1, 2, 4])
    assert model.family is None


def test_a_dense_ranking_of_too_small_depth_is_refused(learn: Problem) -> None:
    model = selector().fit(learn.scores, learn.y)
    easy = learn.scores[~learn.hard]
    assert (model.predict_set(easy).sizes < 4).all()
    with pytest.raises(ValueError, match="only 3 labels of a row are ranked"):
        model.predict_set(sl.Ranking.from_scores(easy, depth=3))
