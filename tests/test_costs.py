"""Costs of sets against the formula of the paper (Section 2.1), written as a loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.costs import cost_matrix, cost_table, largest_costs
from shortlist.families import Threshold, TopK
from shortlist.ranking import Ranking

# The table


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        ("log", {1: 0.0, 2: math.log(2), 5: math.log(5)}),
        ("linear", {1: 1.0, 2: 2.0, 5: 5.0}),
        ([0.5, 0.5, 1, 1, 9], {1: 0.5, 2: 0.5, 5: 9.0}),
        (np.array([0, 1, 2, 3, 4], dtype=np.float32), {1: 0.0, 2: 1.0, 5: 4.0}),
        (torch.tensor([0.0, 1, 2, 3, 4]), {1: 0.0, 2: 1.0, 5: 4.0}),
        ({1: 0.25, 2: 1, 5: 1}, {1: 0.25, 2: 1.0, 5: 1.0}),
        (math.sqrt, {1: 1.0, 2: math.sqrt(2), 5: math.sqrt(5)}),
        (lambda size: np.float32(size), {1: 1.0, 2: 2.0, 5: 5.0}),
        (lambda size: 0, {1: 0.0, 2: 0.0, 5: 0.0}),
    ],
    ids=["log", "linear", "list", "array", "tensor", "mapping", "function", "numpy", "zero"],
)
def test_every_form_of_a_cost(cost, expected):
    table = cost_table(cost, [5, 1, 2, 2])
    assert table.dtype == torch.float64
    assert {size: table[size].item() for size in expected} == pytest.approx(expected)
    assert torch.isnan(table[[3, 4]]).all()  # Other sizes.
    assert table[0] == 0


def test_an_empty_set_costs_nothing():
    assert cost_table(lambda size: 5.0, [0, 1]).tolist() == [0.0, 5.0]
    assert cost_table("log", [0]).tolist() == [0.0]
    assert cost_table("log", []).tolist() == [0.0]


def test_a_function_is_called_only_for_sizes_that_occur():
    sizes = []
    cost_table(lambda size: sizes.append(size) or 1.0, [8, 1, 4, 1])
    assert sizes == [1, 4, 8]


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ([3, 2, 1, 0], "cost must not decrease with the size: cost(1) = 3, but cost(2) = 2"),
        ({1: 0, 2: 5, 4: 4.5}, "cost(2) = 5, but cost(4) = 4.5"),
        (lambda size: -size, "finite and not negative: cost(1) = -1"),
        (lambda size: size - 2, "finite and not negative: cost(1) = -1"),
        ({1: 0, 2: math.nan, 4: 1}, "finite and not negative: cost(2) = nan"),
        ({1: 0, 2: 1, 4: math.inf}, "finite and not negative: cost(4) = inf"),
        ({1: 0, 2: 1}, "cost has no entry for size 4: {1: 0, 2: 1}"),
        ([0, 1], "cost has only 2 values, for sizes from 1 on, but size 4 occurs"),
        ([], "cost has only 0 values"),
        (lambda size: None, "cost must be a number: cost(1) = None"),
        (["a", "b", "c", "d"], "cost must be a number: cost(1) = 'a'"),
        ("quadratic", "'log', 'linear', a table by size"),
        ("quadratic", "got 'quadratic'"),
        (3.0, "got 3.0"),
        (None, "got None"),
        ([[0, 1], [2, 3]], "got [[0, 1], [2, 3]]"),
    ],
)
def test_invalid_costs_raise(cost, message):
    with pytest.raises(ValueError, match="cost") as error:
        cost_table(cost, [1, 2, 4])
    assert message in str(error.value)


def test_costs_of_sizes_that_do_not_occur_are_not_checked():
    assert cost_table([0, 9, 1, 2], [1, 3, 4])[[1, 3, 4]].tolist() == [0, 1, 2]


# The matrix


def brute_costs(hits, size_costs, weight: float, largest: float | None) -> list[list[float]]:
    """Return the normalized costs by the formula."""
    return [
        [
            ((0 if hit else 1) + weight * cost) / (1 if largest is None else 1 + weight * largest)
            for hit, cost in zip(*row, strict=True)
        ]
        for row in zip(hits, size_costs, strict=True)
    ]


problems = st.tuples(st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(
        *[
            st.lists(
                st.lists(values, min_size=shape[1], max_size=shape[1]),
                min_size=shape[0],
                max_size=shape[0],
            )
            for values in (st.booleans(), st.floats(0, 10))
        ]
    )
)
weights = st.one_of(st.sampled_from([0.0, 1.0, 0.05]), st.floats(0, 1e3))


@given(problems, weights, st.sampled_from([None, 10.0, 12.5]))
@settings(max_examples=80, deadline=None)
def test_the_matrix_is_the_formula(problem, weight, largest):
    hits, size_costs = problem
    costs = cost_matrix(
        torch.tensor(hits), torch.tensor(size_costs, dtype=torch.float64), weight, largest
    )
    np.testing.assert_allclose(costs, brute_costs(hits, size_costs, weight, largest), rtol=1e-12)


@given(problems, st.lists(weights, min_size=1, max_size=4), st.sampled_from([None, 10.0]))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_vector_of_lambdas_equals_single_lambdas(dtype, problem, lambdas, largest):
    hits, size_costs = torch.tensor(problem[0]), torch.tensor(problem[1], dtype=dtype)
    costs = cost_matrix(hits, size_costs, torch.tensor(lambdas, dtype=dtype), largest)
    single = [cost_matrix(hits, size_costs, weight, largest) for weight in lambdas]
    assert costs.shape == (len(lambdas), *hits.shape)
    assert torch.equal(costs, torch.stack(single))


@given(
    problems,
    st.one_of(weights, st.sampled_from([1e-300, 1e30, 3e38, 1e39, 1e300, 1.7e308])),
    st.sampled_from([torch.float32, torch.float64]),
)
@settings(max_examples=80, deadline=None)
def test_costs_lie_between_0_and_1_for_every_lambda(problem, weight, dtype):
    hits, size_costs = torch.tensor(problem[0]), torch.tensor(problem[1], dtype=dtype)
    for largest in {float(size_costs.max()), 10.0}:
        costs = cost_matrix(hits, size_costs, weight, largest)
        assert bool(((costs >= 0) & (costs <= 1)).all()), costs


@pytest.mark.parametrize("weight", [0.0, 0.5, 1e300])
def test_without_size_costs_the_costs_are_the_misses(weight):
    hits = torch.tensor([[True, False]])
    costs = cost_matrix(hits, torch.zeros(1, 2), weight, largest_cost=0.0)
    assert costs.tolist() == [[0.0, 1.0]]


def test_with_lambda_zero_the_costs_are_the_misses():
    hits = torch.tensor([[True, False], [False, False]])
    size_costs = torch.tensor([[3.0, 7.0], [1.0, 2.0]])
    assert torch.equal(cost_matrix(hits, size_costs, 0.0, 7.0), (~hits).float())


def test_a_miss_with_the_largest_set_costs_one():
    costs = cost_matrix(torch.tensor([[False, True]]), torch.tensor([[8.0, 0.0]]), 0.3, 8.0)
    assert costs.tolist() == [[1.0, 0.0]]


# The normalization


def test_a_set_of_all_labels_cannot_miss():
    table = cost_table("linear", range(1, 7))
    assert largest_costs(table, 6) == (6.0, 5.0)
    assert largest_costs(table, 10) == largest_costs(table, None) == (6.0, 6.0)
    assert largest_costs(cost_table("linear", [1, 2, 6]), 6) == (6.0, 2.0)
    assert largest_costs(cost_table("linear", [6]), 6) == (6.0, 0.0)
    assert largest_costs(cost_table("log", range(1, 3)), 2) == (math.log(2), 0.0)


def test_without_the_cost_of_misses_every_set_can_miss():
    hits, size_costs = torch.tensor([[False, True]]), torch.tensor([[1.0, 3.0]])
    one = cost_matrix(hits, size_costs, 0.5, 3.0)
    assert torch.equal(one, cost_matrix(hits, size_costs, 0.5, 3.0, 3.0))
    assert one[0].tolist() == pytest.approx([1.5 / 2.5, 1.5 / 2.5])


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(0.05, 1 + 0.05 * 5), (0.9, 1 + 0.9 * 5), (1.5, 1.5 * 6), (1e30, 1e30 * 6)],
    ids=["miss, small lambda", "miss", "all labels", "all labels, huge lambda"],
)
def test_costs_are_divided_by_their_largest_value(weight, expected):
    """Of six labels, five at the cost of a miss, or six, are the most expensive."""
    sizes = torch.arange(1, 7, dtype=torch.float64)
    hits = torch.tensor([[False] * 5 + [True], [True] * 6])
    costs = cost_matrix(hits, sizes.expand(2, -1), weight, 6.0, 5.0)
    raw = (~hits).double() + weight * sizes
    assert float(raw.max()) == pytest.approx(expected)
    np.testing.assert_allclose(costs, raw / expected, rtol=1e-12)
    assert float(costs.max()) == 1


@given(st.integers(2, 6), st.floats(0, 5), st.sampled_from(["log", "linear"]), st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_normalized_cost_of_threshold_sets_is_one(dtype, n, weight, cost, data):
    """Over all labels and sizes the maximum is one: no smaller factor keeps costs in [0, 1]."""
    family = Threshold([0.75, 0.25])
    all_but_last = np.where(np.arange(n) < n - 1, 0.5, 0.0)
    ranking = Ranking.from_scores(np.vstack([np.ones(n), all_but_last]), score_type="logits")
    table = cost_table(cost, family.possible_sizes(ranking)).to(dtype)
    size_costs = table[family.sizes_of(ranking).long()]
    y = torch.tensor([0, n - 1])
    hits = family.hits_of(ranking, y)
    weights = torch.tensor([weight, data.draw(st.floats(0, 5))], dtype=dtype)
    costs = cost_matrix(hits, size_costs, weights, *largest_costs(table, n))
    assert costs.amax(dim=(1, 2)).tolist() == pytest.approx([1.0, 1.0], rel=1e-6)
    assert float(costs.min()) >= 0


@pytest.mark.parametrize("family", [TopK([1, 2, 4]), Threshold([0.5, 0.25, 0.0])], ids=str)
@pytest.mark.parametrize("cost", ["log", "linear"])
def test_costs_do_not_depend_on_the_batch(family, cost):
    """Costs are normalized by the largest size that can occur, not by the largest in the batch."""
    rng = np.random.default_rng(0)
    scores = np.sort(rng.dirichlet(np.full(6, 0.3), 40), axis=0)
    y = torch.from_numpy(rng.integers(0, 6, 40))

    def costs(rows):
        ranking = Ranking.from_scores(scores[rows])
        table = cost_table(cost, family.possible_sizes(ranking))
        size_costs = table[family.sizes_of(ranking).long()]
        largest = largest_costs(table, ranking.n_classes)
        return cost_matrix(family.hits_of(ranking, y[rows]), size_costs, 0.4, *largest)

    whole = costs(slice(None))
    largest = 4 if isinstance(family, TopK) else 5  # Of six labels, a set of all cannot miss.
    assert float(whole.max()) <= 1
    for rows in (slice(0, 1), slice(5, 9), slice(39, 40)):
        assert torch.equal(costs(rows), whole[rows])
    value = math.log(largest) if cost == "log" else largest
    sizes, hits = family.sizes(scores[:1])[0], family.hits(scores[:1], y[:1])[0]
    first = [
        ((not hit) + 0.4 * (math.log(size) if cost == "log" else size)) / (1 + 0.4 * value)
        for size, hit in zip(sizes, hits, strict=True)
    ]
    assert whole[0].tolist() == pytest.approx(first)
