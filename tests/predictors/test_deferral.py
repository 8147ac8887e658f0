"""Deferral and abstention: laws of the costs, the Bayes choice, decisions and invalid input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from known_costs import (
    ABSTENTION,
    COST_WEIGHT,
    EXPERT_ACCURACY,
    FAMILY,
    FEE,
    World,
    draw_world,
    expected_costs,
)
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import shortlist as sl
from shortlist.losses import loss_names

SETS = sl.TopK([1, 2])
NAMES = np.array(["ant", "bee", "cat"])


def selector(family: sl.Family = FAMILY, **parameters: object) -> sl.CardinalitySelector:
    defaults: dict[str, object] = {
        "cost_weight": COST_WEIGHT,
        "width": 16,
        "learning_rate": 0.01,
        "max_epochs": 15,
        "dtype": "float64",
    }
    return sl.CardinalitySelector(family, **(defaults | parameters))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def learn() -> World:
    return draw_world(3000, seed=1)


@pytest.fixture(scope="module")
def new() -> World:
    return draw_world(2000, seed=2)


@pytest.fixture(scope="module")
def model(learn: World) -> sl.CardinalitySelector:
    return selector().fit(learn.scores, learn.y, learn.x, costs=learn.costs)


def computed_table(
    world: World, cost_weight: float, *, normalized: bool = False
) -> NDArray[np.float64]:
    """Return the costs that a selector computes itself for the sets of `SETS`."""
    hits = torch.from_numpy(SETS.hits(world.scores, world.y))
    sizes = torch.tensor([1.0, 2.0], dtype=torch.float64).log().expand(len(hits), -1)
    largest = float(np.log(2)) if normalized else None
    return sl.costs.cost_matrix(hits, sizes, cost_weight, largest).numpy()


def full_table(world: World) -> NDArray[np.float64]:
    """Return the costs of all members of `FAMILY`."""
    expert = (world.expert != world.y) + FEE
    abstain = np.full(len(world.y), ABSTENTION)
    return np.column_stack([computed_table(world, COST_WEIGHT), expert, abstain])


# Laws


@pytest.mark.parametrize("loss", loss_names())
def test_every_loss_learns_the_bayes_choice(loss: str, new: World) -> None:
    """In each cell another member has the lowest conditional expected cost."""
    expected = expected_costs()
    bayes = expected.argmin(axis=1)
    assert sorted(bayes) == [0, 1, 2, 3]
    learn = draw_world(6000, seed=3)
    model = selector(loss=loss, max_epochs=40, width=32, patience=15)
    model.fit(learn.scores, learn.y, learn.x, costs=learn.costs)
    choice = model.choose(new.scores, new.x)
    regret = (expected[new.cell, choice] - expected[new.cell, bayes[new.cell]]).mean()
    best_constant = (expected - expected.min(axis=1, keepdims=True)).mean(axis=0).min()
    # Training with "margin" can get stuck, as it has no gradient far from its minimum.
    tolerance = 0.8 if loss == "margin" else 0.25
    assert regret < tolerance * best_constant


@pytest.mark.parametrize("loss", ["log", "hinge"])
def test_the_regret_vanishes_and_an_expert_is_used_where_it_is_right(loss: str, new: World) -> None:
    expected = expected_costs()
    learn = draw_world(6000, seed=4)
    model = selector(loss=loss, max_epochs=40, patience=15)
    model.fit(learn.scores, learn.y, learn.x, costs=learn.costs)
    decisions = model.decide(new.scores, new.x)
    assert (decisions.choice == expected.argmin(axis=1)[new.cell]).mean() > 0.99
    sure = EXPERT_ACCURACY[new.cell] == 1
    assert ((decisions.members == "expert") == sure).mean() > 0.99


@pytest.mark.parametrize("cost_weight", [0.05, 0.2, 3.0])
def test_a_table_of_the_costs_that_are_computed_gives_the_same_model(
    cost_weight: float, learn: World, new: World
) -> None:
    own = selector(SETS, cost_weight=cost_weight).fit(learn.scores, learn.y, learn.x)
    table = computed_table(learn, cost_weight, normalized=True)
    model = selector(SETS, cost_weight=9.0).fit(learn.scores, learn.y, learn.x, costs=table)
    assert own.history_ is not None
    assert model.history_ is not None
    assert model.history_.loss == own.history_.loss
    np.testing.assert_array_equal(model.choose(new.scores, new.x), own.choose(new.scores, new.x))


def test_costs_by_name_equal_the_table_of_all_costs(
    model: sl.CardinalitySelector, learn: World, new: World
) -> None:
    table = full_table(learn)
    divisor = 1 + COST_WEIGHT * np.log(2)  # Of the costs by name.
    assert table.max() == pytest.approx(divisor)
    other = selector().fit(learn.scores, learn.y, learn.x, costs=table / divisor)
    assert model.history_ is not None
    assert other.history_ is not None
    np.testing.assert_allclose(other.history_.loss, model.history_.loss, rtol=1e-6)
    same = model.choose(new.scores, new.x) == other.choose(new.scores, new.x)
    assert same.mean() > 0.99


def test_a_table_is_divided_by_its_largest_entry(learn: World, new: World) -> None:
    table = full_table(learn)
    scaled = [
        selector().fit(learn.scores, learn.y, learn.x, costs=t).history_.loss  # type: ignore[union-attr]
        for t in (8 * table, table / table.max())
    ]
    np.testing.assert_allclose(scaled[0], scaled[1], rtol=1e-9)


@pytest.mark.parametrize("weight", [0.1, 7.0])
def test_normalized_costs_are_the_costs_divided_by_one_number(weight: float) -> None:
    hits, sizes = torch.tensor([[False, True], [True, True]]), torch.tensor([[0.0, 2.0]] * 2)
    others = torch.tensor([[0.5, 4.0], [1.0, 0.0]])
    raw = sl.costs.cost_matrix(hits, sizes, weight, None, others=others)
    given = {"others": others, "largest_other": 4.0}
    costs = sl.costs.cost_matrix(hits, sizes, weight, 2.0, **given)
    torch.testing.assert_close(costs, raw / max(1 + 2 * weight, 4.0))
    vector = sl.costs.cost_matrix(hits, sizes, torch.tensor([weight, 1.0]), 2.0, **given)
    torch.testing.assert_close(vector[0], costs)


def test_permuting_the_experts_permutes_the_choices(learn: World, new: World) -> None:
    others = ["expert", "abstain", "tool"]
    costs = {**learn.costs, "tool": (learn.y != 2) + 0.05}
    order = [2, 0, 1]
    first, second = (
        selector(sl.Deferral(SETS, names)).fit(learn.scores, learn.y, learn.x, costs=costs)
        for names in (others, [others[i] for i in order])
    )
    members = first.decide(new.scores, new.x).members
    assert set(members) >= {"set 0", "expert"}
    assert (second.decide(new.scores, new.x).members == members).mean() > 0.99


def test_a_table_can_make_a_small_set_better_than_a_large_one(learn: World, new: World) -> None:
    """Also with `cost_weight=0`, for which the largest set would cost nothing without a table."""
    table = np.column_stack([np.zeros(len(learn.y)), np.ones(len(learn.y))])
    model = selector(SETS, cost_weight=0.0).fit(learn.scores, learn.y, learn.x, costs=table)
    assert (model.choose(new.scores, new.x) == 0).all()
    assert str(model.predict_set(new.scores, new.x).guarantee) == "no accuracy is guaranteed"


@pytest.mark.parametrize(("fee", "share"), [(0.0, 1.0), (50.0, 0.0)])
def test_a_free_perfect_expert_gets_all_rows_and_an_expensive_one_none(
    fee: float, share: float, learn: World, new: World
) -> None:
    model = selector(sl.Deferral(SETS, ["expert"]))
    model.fit(learn.scores, learn.y, learn.x, costs={"expert": fee})
    assert model.decide(new.scores, new.x).deferred_share == share


# Decisions


def test_decisions_agree_with_choices_sets_and_costs(
    model: sl.CardinalitySelector, new: World
) -> None:
    decisions = model.decide(new.scores, new.x)
    sets, choice = model.predict_set(new.scores, new.x), model.choose(new.scores, new.x)
    assert decisions.sets == sets
    assert (decisions.choice == choice).all()
    assert (decisions.deferred == (choice >= 2)).all()
    assert (sets.sizes == np.array([1, 2, 0, 0])[choice]).all()
    best = np.argsort(-new.scores, axis=1, kind="stable")
    assert all(
        labels in ([], [b[0]], list(b[:2])) for labels, b in zip(sets.labels(), best, strict=True)
    )
    assert decisions.deferred_share == (choice >= 2).mean()
    assert decisions.shares()["abstain"] == (choice == 3).mean()
    right = np.where(choice == 2, new.expert == new.y, sets.contains(new.y))
    answers = {"expert": new.expert}
    assert (decisions.correct(new.y, answers) == right).all()
    assert decisions.accuracy(new.y, answers) == right.mean()
    assert decisions.accuracy(new.y, answers, answered_only=True) == right[choice != 3].mean()
    assert decisions.accuracy(new.y) == sets.accuracy(new.y)
    cost = full_table(new)[np.arange(len(choice)), choice].mean()
    by_name = decisions.mean_cost(new.y, new.costs, cost_weight=COST_WEIGHT)  # type: ignore[arg-type]
    assert by_name == pytest.approx(cost)
    assert decisions.mean_cost(new.y, full_table(new)) == pytest.approx(cost)
    assert "no accuracy is guaranteed" in str(sets.guarantee)


def test_decisions_of_a_family_of_sets(learn: World, new: World) -> None:
    model = selector(SETS).fit(learn.scores, learn.y, learn.x)
    decisions = model.decide(new.scores, new.x)
    assert decisions.deferred_share == 0
    loss = sl.metrics.cardinality_loss(decisions.sets, new.y, cost_weight=COST_WEIGHT)
    assert decisions.mean_cost(new.y, cost_weight=COST_WEIGHT) == pytest.approx(loss)
    assert decisions.accuracy(new.y) == decisions.sets.accuracy(new.y)


def test_labels_and_arrays_of_every_type(
    model: sl.CardinalitySelector, learn: World, new: World
) -> None:
    strings = selector().fit(learn.scores, NAMES[learn.y], learn.x, costs=learn.costs)
    decisions, named = model.decide(new.scores, new.x), strings.decide(new.scores, new.x)
    assert (named.choice == decisions.choice).all()
    assert named.accuracy(NAMES[new.y], {"expert": NAMES[new.expert]}) == decisions.accuracy(
        new.y, {"expert": new.expert}
    )
    costs = {name: torch.as_tensor(value) for name, value in learn.costs.items()}
    tensors = selector().fit(*map(torch.from_numpy, (learn.scores, learn.y, learn.x)), costs=costs)
    choice = tensors.choose(torch.from_numpy(new.scores), torch.from_numpy(new.x))
    assert isinstance(choice, torch.Tensor)
    assert (choice.numpy() == decisions.choice).all()
    assert isinstance(
        tensors.decide(torch.from_numpy(new.scores), torch.from_numpy(new.x)).choice, torch.Tensor
    )


def test_scores_alone_and_candidates(learn: World, new: World) -> None:
    def candidates(world: World) -> sl.Ranking:
        order = np.argsort(-world.scores, axis=1)[:, :2]
        return sl.Ranking.from_candidates(order, np.take_along_axis(world.scores, order, 1), 3)

    bayes = expected_costs().argmin(axis=1)[new.cell]
    model = selector(inputs="scores", max_epochs=40)
    model.fit(learn.scores, learn.y, costs=learn.costs)
    assert (model.choose(new.scores) == bayes).mean() > 0.95
    model.fit(candidates(learn), learn.y, costs=learn.costs)
    assert (model.choose(candidates(new)) == bayes).mean() > 0.95


def test_sets_that_are_not_prefixes(learn: World, new: World) -> None:
    def even(ranking: sl.Ranking) -> NDArray[np.bool_]:
        return np.tile([True, False, True], (len(ranking), 1))

    def best(ranking: sl.Ranking) -> NDArray[np.bool_]:
        return np.eye(3, dtype=bool)[np.asarray(ranking.labels)[:, 0]]

    family = sl.Deferral(sl.Custom.from_masks(best, even), ["expert", "abstain"])
    model = selector(family).fit(learn.scores, learn.y, learn.x, costs=learn.costs)
    decisions = model.decide(new.scores, new.x)
    for member, labels in zip(decisions.members, decisions.sets.labels(), strict=True):
        expected = {"set 0": [[0], [1], [2]], "set 1": [[0, 2]], "expert": [[]], "abstain": [[]]}
        assert labels in expected[member]
    assert {"set 0", "expert"} <= set(decisions.members)


def test_rows_do_not_depend_on_the_batch(model: sl.CardinalitySelector, new: World) -> None:
    whole = model.decide(new.scores[:50], new.x[:50])
    single = [model.decide(new.scores[i : i + 1], new.x[i : i + 1]) for i in range(50)]
    assert [d.choice[0] for d in single] == whole.choice.tolist()
    assert [d.sets.labels()[0] for d in single] == whole.sets.labels()


# The path and its guarantee


def path(learn: World, **parameters: object) -> sl.CardinalityPath:
    defaults: dict[str, object] = {
        "cost_weights": [1.0, 0.3, 0.1, 0.02],
        "width": 16,
        "learning_rate": 0.01,
        "max_epochs": 15,
        "dtype": "float64",
    }
    path = sl.CardinalityPath(FAMILY, **(defaults | parameters))  # type: ignore[arg-type]
    return path.fit(learn.scores, learn.y, learn.x, costs=learn.costs)  # type: ignore[arg-type]


def test_a_path_contains_the_selectors_of_its_cost_weights(learn: World, new: World) -> None:
    members = path(learn)
    for weight in (1.0, 0.1):
        own = selector(cost_weight=weight).fit(learn.scores, learn.y, learn.x, costs=learn.costs)
        decisions = members.decide(new.scores, new.x, cost_weight=weight)
        assert (decisions.choice == own.choose(new.scores, new.x)).mean() > 0.99
    deferred = [
        members.decide(new.scores, new.x, cost_weight=w).deferred_share for w in (1.0, 0.02)
    ]
    assert deferred[0] > deferred[1]  # Large sets become cheaper than deferral.
    curve = members.frontier(new.scores, new.y, new.x)
    sets = members.predict_set(new.scores, new.x, cost_weight=0.02)
    assert curve.accuracy[3] == pytest.approx(sets.accuracy(new.y))


def test_the_guarantee_of_a_path_counts_deferred_rows_as_misses(learn: World) -> None:
    """The guaranteed accuracy fails in at most a fraction `delta` of the calibrations."""
    members, accuracy, delta = path(learn), 0.42, 0.2
    truth = draw_world(40_000, seed=9)
    accuracies = {
        w: members.predict_set(truth.scores, truth.x, cost_weight=w).accuracy(truth.y)
        for w in members.cost_weights or ()
    }
    failures, reached = 0, 0
    for seed in range(150):
        rows = draw_world(300, seed=100 + seed)
        members.calibrate(rows.scores, rows.y, rows.x)
        try:
            decisions = members.decide(rows.scores, rows.x, accuracy=accuracy, delta=delta)
        except ValueError:
            continue
        guarantee = decisions.sets.guarantee
        assert "rows that are deferred count as misses" in guarantee.notes
        weight = float(guarantee.operating_point.split()[2])
        failures, reached = failures + (accuracies[weight] < accuracy), reached + 1
    assert reached > 20
    assert failures <= 150 * delta + 3 * np.sqrt(150 * delta * (1 - delta))


def test_a_path_refuses_a_table(learn: World) -> None:
    model = sl.CardinalityPath(FAMILY)
    with pytest.raises(ValueError, match=r"ndarray, a table.*CardinalitySelector"):
        model.fit(learn.scores, learn.y, learn.x, costs=full_table(learn))  # type: ignore[arg-type]


# Files


def test_saved_models_choose_the_same_members(
    model: sl.CardinalitySelector, learn: World, new: World, tmp_path: Path
) -> None:
    free = selector(SETS, cost_weight=0.0)
    table = np.column_stack([np.zeros(len(learn.y)), np.ones(len(learn.y))])
    free.fit(learn.scores, learn.y, learn.x, costs=table)
    for i, fitted in enumerate([model, free, path(learn, cost_weight=0.1)]):
        again = sl.load(fitted.save(tmp_path / f"{i}"))
        assert again.family_ == fitted.family_
        assert again.decide(new.scores, new.x).sets == fitted.decide(new.scores, new.x).sets
        assert (again.choose(new.scores, new.x) == fitted.choose(new.scores, new.x)).all()


@pytest.mark.parametrize(
    "sets", [sl.TopK([1, 2]), sl.Threshold([0.6, 0.35]), sl.Conformal("lac", [0.5, 0.9])], ids=str
)
def test_onnx_models_choose_the_same_members(
    sets: sl.Family, learn: World, new: World, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    fitted = selector(sl.Deferral(sets, ["expert", "abstain"]), dtype="float32")
    fitted.fit(learn.scores, learn.y, learn.x, costs=learn.costs)
    file = fitted.export_onnx(tmp_path / "model.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(file)
    labels, sizes, index = session.run(None, {"scores": new.scores, "features": new.x})
    decisions = fitted.decide(new.scores, new.x)
    assert (index == decisions.choice).all()
    assert (sizes == decisions.sets.sizes).all()
    assert [
        row[:n].tolist() for row, n in zip(labels, sizes, strict=True)
    ] == decisions.sets.labels()


# Invalid input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[:, :3], r"\(3000, 3\); needed.*\(3000, 4\).*'set 0', 'set 1', 'expert'"),
        (lambda t: t[:10], r"\(10, 4\); needed.*\(3000, 4\)"),
        (lambda t: t[:, 0], r"costs must be a matrix of shape \(rows, members\)"),
        (lambda t: np.where(t == ABSTENTION, np.nan, t), r"costs holds nan at row 0, column 3"),
        (lambda t: np.where(t == ABSTENTION, np.inf, t), r"costs holds inf at row 0, column 3"),
        (lambda t: np.where(t == ABSTENTION, -0.5, t), r"-0\.5 at row 0, column 3.*negative"),
        (lambda t: (row for row in t), r"costs must hold numbers.*generator"),
        (lambda t: lambda rows: t[rows], r"costs must hold numbers.*function"),
        (lambda t: t.astype(str), r"costs must hold numbers"),
        (lambda t: torch.empty(t.shape, device="meta"), r"meta device"),
        (lambda t: t.astype(complex), r"costs must hold numbers; got dtype complex128"),
    ],
)
def test_invalid_tables(
    change: Callable[[NDArray[np.float64]], object], message: str, learn: World
) -> None:
    with pytest.raises(ValueError, match=message):
        selector().fit(learn.scores, learn.y, learn.x, costs=change(full_table(learn)))  # type: ignore[arg-type]


def test_a_memory_mapped_table_is_read(
    model: sl.CardinalitySelector, learn: World, new: World, tmp_path: Path
) -> None:
    np.save(tmp_path / "costs.npy", full_table(learn))
    table = np.load(tmp_path / "costs.npy", mmap_mode="r")
    mapped, own = (
        selector().fit(learn.scores, learn.y, learn.x, costs=t) for t in (table, full_table(learn))
    )
    assert (mapped.choose(new.scores, new.x) == own.choose(new.scores, new.x)).all()


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (None, r"costs of 'expert', 'abstain', members of Deferral.* are missing; give fit"),
        ({"expert": 0.1}, r"costs of 'abstain', members of .* are missing"),
        ({"expert": 0.1, "abstain": 0.1, "tool": 0.2}, r"an entry 'tool'.*'expert', 'abstain'"),
        ({"expert": [0.1, 0.2], "abstain": 0.1}, r"costs\['expert'\].*3000 numbers.*\(2,\)"),
        ({"expert": np.nan, "abstain": 0.1}, r"costs\['expert'\] holds nan"),
        ({"expert": -1, "abstain": 0.1}, r"costs\['expert'\] holds -1"),
        ({"expert": "much", "abstain": 0.1}, r"costs\['expert'\] must hold numbers"),
    ],
)
def test_invalid_costs_by_name(costs: object, message: str, learn: World) -> None:
    with pytest.raises(ValueError, match=message):
        selector().fit(learn.scores, learn.y, learn.x, costs=costs)  # type: ignore[arg-type]


def test_costs_by_name_need_members_without_a_set(learn: World) -> None:
    with pytest.raises(ValueError, match=r"'abstain', but TopK.*it has only sets.*sl\.Deferral"):
        selector(SETS).fit(learn.scores, learn.y, learn.x, costs={"abstain": 0.3})


@pytest.mark.parametrize(
    ("family", "others", "message"),
    [
        ([1, 2], ["expert"], r"needs a family of sets.*\[1, 2\]"),
        (FAMILY, ["tool"], r"needs a family of sets.*Deferral"),
        (SETS, "expert", r"list of names.*'expert'"),
        (SETS, [], r"at least one name"),
        (SETS, ["expert", 3], r"at least one name, as a string.*3"),
        (SETS, ["expert", "expert"], r"'expert' occurs twice"),
        (SETS, ["set 1"], r"'set 1' occurs twice"),
    ],
)
def test_invalid_families(family: object, others: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sl.Deferral(family, others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda w: sl.FixedSelector(FAMILY).fit(w.scores, w.y),
        lambda w: sl.PlugInSelector(FAMILY).fit(w.scores, w.y),
        lambda w: sl.Selector(4, 3, FAMILY),
        lambda w: sl.PlugInSelector(FAMILY, by="class").fit(w.scores, w.y),
    ],
)
def test_methods_that_do_not_know_the_costs(make: Callable[[World], object], learn: World) -> None:
    with pytest.raises(ValueError, match=r"costs of 'expert', 'abstain'.* are not known"):
        make(learn)


def test_a_classifier_does_not_know_the_costs(learn: World) -> None:
    model = sl.ShortlistClassifier(LogisticRegression(), method=selector())
    with pytest.raises(ValueError, match=r"costs of 'expert', 'abstain'.* are missing"):
        model.fit(learn.x[:300], learn.y[:300])


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"tool": [0]}, r"an entry 'tool'.*\['expert', 'abstain'\]"),
        ([0, 1], r"names of members.*list"),
        ({"expert": [0, 1]}, r"answers\['expert'\] has 2 labels, but the scores have 2000 rows"),
        ({"expert": np.full(2000, 7)}, r"answers\['expert'\]\[0\] = 7 is not one of"),
    ],
)
def test_invalid_answers(
    answers: object, message: str, model: sl.CardinalitySelector, new: World
) -> None:
    with pytest.raises(ValueError, match=message):
        model.decide(new.scores, new.x).accuracy(new.y, answers)  # type: ignore[arg-type]
