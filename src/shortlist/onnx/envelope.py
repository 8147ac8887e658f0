"""The envelope of gains and costs in the graph: up to which lambda a member is the best choice."""

from __future__ import annotations

import math

import numpy as np

from shortlist.onnx.graph import BOOL, F64, INT, Graph, Value, arange


def slopes(graph: Graph, gains: Value, costs: Value, members: int, falling: bool) -> Value:
    """Return the largest lambda at which each member, or a later one, is chosen.

    The result is that of `conformal.envelope.slopes`.

    Parameters
    ----------
    graph : Graph
        Graph to add to.
    gains, costs : Value of shape (n_rows, members) or (1, members)
        What each member adds to the probability of a hit, and to the cost, in comparison with the
        member before it.
    members : int
        Number of members.
    falling : bool
        Whether gains per cost are known to decrease along each row, from the second member on.

    Returns
    -------
    Value of shape (n_rows, members)
    """
    gains, costs = gains.to(F64), costs.to(F64)
    ratios = _ratio(graph, gains, costs)
    if members == 1:
        return ratios
    rest = ratios[:, 1:]
    if not falling and members > 2:
        costs = graph.op("Expand", costs, gains.shape())
        rest = _pooled(graph, gains[:, 1:], costs[:, 1:], rest, members - 1)
    first = graph.op("Max", ratios[:, :1], rest[:, :1])
    return graph.concat([first, rest])


def _ratio(graph: Graph, gains: Value, costs: Value) -> Value:
    return graph.where(costs > 0, gains / costs, math.inf)


def _pooled(graph: Graph, gains: Value, costs: Value, plain: Value, members: int) -> Value:
    """Return the slopes of the envelope by pooling adjacent violators, in all rows together.

    A pool that is steeper than the pool before is merged with it. A chain of such pools is merged
    in one pass, because each is steeper than all before it in the chain together, so a few passes
    are enough. As in `conformal.envelope`, only sums of gains and costs are compared.
    """
    dents = (plain[:, 1:] > plain[:, :-1]).to(INT).max()
    free = (costs <= 0).to(INT).max()
    dented = graph.op("Max", dents, free) > 0
    starts = graph.op(
        "Expand", graph.constant((arange(members) > 0).astype(np.int64)), gains.shape()
    )
    body = graph.body()
    scalars = [Value(body, body.unique_name(n), t) for n, t in (("pass", INT), ("go", BOOL))]
    before = Value(body, body.unique_name("starts"), INT)
    ignored = Value(body, body.unique_name("slopes"), F64)
    own_gains, own_costs, dent = (body.value(v, v.dtype) for v in (gains, costs, dented))
    pool = before.cumsum()
    zeros = own_gains * 0.0
    pool_gains = body.put_along(zeros, pool, own_gains, add=True)
    pool_costs = body.put_along(zeros, pool, own_costs, add=True)
    previous = body.op("Max", pool - 1, 0)
    gain, cost = pool_gains.take_along(pool), pool_costs.take_along(pool)
    gain_before, cost_before = pool_gains.take_along(previous), pool_costs.take_along(previous)
    steeper = (gain * cost_before > gain_before * cost) | (cost <= 0)
    joins = steeper & dent & (before > 0)
    outputs = [
        body.any(joins),
        body.where(joins, np.int64(0), before),
        _ratio(body, gain, cost),
    ]
    pooled = graph.ops(
        "Loop",
        [graph.constant(np.int64(members)), graph.any(dented), starts, plain],
        [INT, F64],
        body=body.proto(scalars, [before, ignored], outputs),
    )[1]
    # Because of rounding, a pool may be slightly steeper than the pool before.
    return running_min(pooled, members)


def running_min(x: Value, members: int) -> Value:
    """Return the cumulative minimum of each row, in a logarithmic number of steps."""
    step = 1
    while step < members:
        x = x.graph.op("Min", x, x.take(np.maximum(np.arange(members) - step, 0)))
        step *= 2
    return x


def bucket_masses(p: Value, sizes: list[int], depth: int) -> Value:
    """Return the probability mass between each size and the next, for float64 probabilities."""
    if sizes == list(range(1, len(sizes) + 1)):
        return p[:, : len(sizes)]
    bucket = np.searchsorted(sizes, np.arange(depth), side="right")
    inside = (bucket[:, None] == np.arange(len(sizes))).astype(np.float64)
    return p @ p.graph.constant(inside)
