"""Levels in the graph: the envelope of gains and prices, and the set at a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shortlist.onnx.graph import BOOL, F64, INT, Graph, Value, arange
from shortlist.onnx.rankings import Ranked, compact, with_unlisted


@dataclass(frozen=True)
class Slack:
    """By how much thresholds are lowered in the graph.

    A threshold is the level of a calibration row, and where scores are rounded, many rows have
    that very level. Another runtime rounds it differently, and without some slack would leave
    their labels out: a guarantee would be lost. With it sets are, if anything, a hair longer.
    """

    relative: float = 0.0
    absolute: float = 0.0

    @classmethod
    def of(cls, precise: bool, relative: bool) -> Slack:
        """For levels that are small positive numbers, or sums and differences of about 1."""
        size = 1e-12 if precise else 4e-6
        return cls(size) if relative else cls(absolute=size / 4)

    def lowered(self, thresholds: NDArray[np.floating]) -> NDArray[np.floating]:
        """
        >>> Slack(relative=0.5, absolute=1.0).lowered(np.array([2.0, -2.0, -np.inf])).tolist()
        [0.0, -4.0, -inf]
        """
        factor = np.where(thresholds > 0, 1 - self.relative, 1 + self.relative)
        lower = thresholds * factor - self.absolute
        return lower.astype(thresholds.dtype)

    def lowered_value(self, threshold: Value) -> Value:
        factor = threshold.graph.where(threshold > 0, 1 - self.relative, 1 + self.relative)
        return threshold * factor - self.absolute


@dataclass(frozen=True)
class GraphLevels:
    """`Levels` in the graph: values (rows, members), and sizes that all rows share (an array), or
    that each row has of its own."""

    ranked: Ranked
    values: Value
    sizes: NDArray[np.int64] | Value
    members: int
    slack: Slack

    def never_empty(self) -> GraphLevels:
        """The first set at every threshold."""
        first = self.ranked.graph.constant(arange(self.members) == 0)
        values = self.ranked.graph.where(first, math.inf, self.values)
        return replace(self, values=values)

    def counts_at(self, thresholds: Value | NDArray[np.floating] | np.floating) -> Value:
        """How many members' levels reach each row's threshold, or that of all rows: (rows, 1)."""
        if isinstance(thresholds, Value):
            at = self.slack.lowered_value(thresholds)
        else:
            at = self.ranked.graph.constant(self.slack.lowered(np.asarray(thresholds)))
        return (self.values.to(at.dtype) >= at).count()

    def sizes_at(self, counts: Value) -> Value:
        """The sizes of the sets of so many members, none longer than its row's list: (rows, 1)."""
        graph = self.ranked.graph
        if isinstance(self.sizes, Value):
            sizes = self.sizes.pad(1, 0, 0).take_along(counts)
        else:
            sizes = graph.op("Gather", graph.constant(np.array([0, *self.sizes])), counts)
        listed = self.ranked.listed()
        return sizes if listed is None else graph.op("Min", sizes, listed)

    def by_rank(self) -> Value:
        """The level of each listed label: (rows, depth)."""
        padded = self.values.pad(0, 1, -math.inf)
        ranks = np.arange(self.ranked.depth)
        if isinstance(self.sizes, np.ndarray):
            return padded.take(np.searchsorted(self.sizes, ranks, side="right"))
        member = self.sizes.unsqueeze(1) <= ranks[None, :, None]
        return padded.take_along(member.to(INT).sum(axis=2, keep=False))


def slopes(graph: Graph, gains: Value, prices: Value, members: int, falling: bool) -> Value:
    """`_slopes.slopes`: the largest lambda at which each member, or a later one, is chosen.

    `falling` says that gains per price are known to fall along each row.
    """
    gains, prices = gains.to(F64), prices.to(F64)
    found = _ratio(graph, gains, prices)
    if members == 1:
        return found
    rest = found.columns(1)
    if not falling and members > 2:
        prices = graph.op("Expand", prices, gains.shape())
        rest = _pooled(graph, gains.columns(1), prices.columns(1), rest, members - 1)
    first = graph.op("Max", found.columns(0, 1), rest.columns(0, 1))
    return graph.concat([first, rest])


def _ratio(graph: Graph, gains: Value, prices: Value) -> Value:
    return graph.where(prices > 0, gains / prices, math.inf)


def _pooled(graph: Graph, gains: Value, prices: Value, plain: Value, members: int) -> Value:
    """Slopes of the envelope by pooling adjacent violators, in all rows and places at once.

    A pool that is steeper than the one before joins it; in a chain of such pools all may join at
    once, as each is steeper than whatever those before it make together. So a few passes do, not
    one for each member. As in `_slopes`, only sums of gains and prices are compared.
    """
    dents = (plain.columns(1) > plain.columns(0, -1)).to(INT).max()
    free = (prices <= 0).to(INT).max()
    dented = graph.op("Max", dents, free) > 0
    starts = graph.op(
        "Expand", graph.constant((arange(members) > 0).astype(np.int64)), gains.shape()
    )
    body = graph.body()
    scalars = [Value(body, body.fresh("pass"), INT), Value(body, body.fresh("go"), BOOL)]
    before, ignored = Value(body, body.fresh("starts"), INT), Value(body, body.fresh("found"), F64)
    own_gains, own_prices, dent = (body.value(v, v.dtype) for v in (gains, prices, dented))
    pool = before.cumsum()
    nothing = own_gains * 0.0
    pool_gains = body.put_along(nothing, pool, own_gains, add=True)
    pool_prices = body.put_along(nothing, pool, own_prices, add=True)
    previous = body.op("Max", pool - 1, 0)
    gain, price = pool_gains.take_along(pool), pool_prices.take_along(pool)
    gain_before, price_before = pool_gains.take_along(previous), pool_prices.take_along(previous)
    steeper = (gain * price_before > gain_before * price) | (price <= 0)
    joins = steeper & dent & (before > 0)
    outputs = [
        body.any(joins, axis=None),
        body.where(joins, np.int64(0), before),
        _ratio(body, gain, price),
    ]
    found = graph.ops(
        "Loop",
        [graph.constant(np.int64(members)), graph.any(dented, axis=None), starts, plain],
        [INT, F64],
        body=body.proto(scalars, [before, ignored], outputs),
    )[1]
    # Rounding may leave a pool a hair steeper than the one before.
    return running_min(found, members)


def running_min(x: Value, members: int) -> Value:
    """The least value so far, along each row: each step looks twice as far back."""
    step = 1
    while step < members:
        x = x.graph.op("Min", x, x.take(np.maximum(np.arange(members) - step, 0)))
        step *= 2
    return x


@dataclass(frozen=True)
class Chosen:
    """What the graph gives back: (rows, width), (rows, 1) and (rows, 1)."""

    labels: Value
    sizes: Value
    index: Value
    width: int


def prefixes(ranked: Ranked, sizes: Value, index: Value, width: int) -> Chosen:
    """The first labels of each row, padded with -1."""
    inside = ranked.graph.constant(arange(width)) < sizes
    labels = ranked.graph.where(inside, ranked.labels.columns(0, width), np.int64(-1))
    return Chosen(labels, sizes, index, width)


def _listed_and(ranked: Ranked, inside: Value, others: Value | None, index: Value | None) -> Chosen:
    """Labels that are inside, and the `others` that a row does not list."""
    labels, width = ranked.labels, ranked.depth
    inside = inside if ranked.dense else inside & (labels >= 0)
    if others is not None:
        labels, inside, width = with_unlisted(ranked, inside, others)
    sizes = inside.count()
    kept = compact(ranked.graph, labels, inside, width).columns(0, ranked.n_classes)
    return Chosen(kept, sizes, sizes - 1 if index is None else index, min(width, ranked.n_classes))


def at_thresholds(levels: GraphLevels, thresholds: Value | np.float64, every: bool) -> Chosen:
    """The set at each row's threshold, (rows, 1) or one for all; `every`: at minus infinity, which
    may occur, it holds all labels there are."""
    counts = levels.counts_at(thresholds)
    sizes, index = levels.sizes_at(counts), counts - 1
    ranked, graph = levels.ranked, levels.ranked.graph
    if not every:
        longest = ranked.depth if isinstance(levels.sizes, Value) else int(levels.sizes[-1])
        return prefixes(ranked, sizes, index, longest)
    all_of_them = graph.value(thresholds, F64).equals(-math.inf)
    if ranked.dense and ranked.depth == ranked.n_classes:
        sizes = graph.where(all_of_them, np.int64(ranked.n_classes), sizes)
        return prefixes(ranked, sizes, index, ranked.n_classes)
    inside = (graph.constant(arange(ranked.depth)) < sizes) | all_of_them
    return _listed_and(ranked, inside, all_of_them, index)


def by_class(levels: GraphLevels, thresholds: NDArray[np.float64]) -> Chosen:
    """Each label by the threshold of its own class: not a prefix."""
    ranked, graph = levels.ranked, levels.ranked.graph
    labels = ranked.labels if ranked.dense else ranked.labels.clip(0)
    lowered = graph.constant(levels.slack.lowered(thresholds))
    own = graph.op("Gather", lowered, labels, dtype=F64)
    inside = levels.by_rank().to(F64) >= own
    every = thresholds == -np.inf
    full = ranked.dense and ranked.depth == ranked.n_classes
    if full or not every.any():
        return _listed_and(ranked, inside, None, None)
    return _listed_and(ranked, inside, graph.constant(every[None]), None)
