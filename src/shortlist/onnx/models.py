"""Which graph each model has: from scores (and features) to sets."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from shortlist.conformal.calibration import Conditional
from shortlist.costs import cost_table
from shortlist.families import Family
from shortlist.learning.networks import Stack, Standardize
from shortlist.onnx.families import (
    check_family,
    conformal_levels,
    conformal_slack,
    family_sizes,
    largest_size,
    size_of_member,
)
from shortlist.onnx.graph import F32, F64, INT, Graph, Value, arange, unchanged
from shortlist.onnx.levels import (
    Chosen,
    GraphLevels,
    Slack,
    at_thresholds,
    by_class,
    prefixes,
    slopes,
)
from shortlist.onnx.networks import outputs, stack_member, standardized
from shortlist.onnx.operating_points import Point
from shortlist.onnx.rankings import Ranked, sorted_log_proba
from shortlist.onnx.stages import bucket_masses, rank_masses, rescored, spread
from shortlist.predictors import (
    CardinalityPath,
    CardinalitySelector,
    FixedSelector,
    PlugInSelector,
    SetPredictor,
    Shortlister,
)
from shortlist.predictors.cardinality.fitting import CardinalityBase
from shortlist.predictors.cardinality.fitting import _Members as Members
from shortlist.predictors.conformal import SplitConformal
from shortlist.predictors.cost_weighted import PricedSelector
from shortlist.predictors.nested import NestedSelector


class Rows:
    """The inputs of a graph, as the models ask for them."""

    def __init__(
        self, graph: Graph, n_classes: int, candidates: int | None, dtype: np.dtype[np.generic]
    ) -> None:
        self.graph, self.n_classes, self.candidates = graph, n_classes, candidates
        self.dtype = dtype
        width = n_classes if candidates is None else candidates
        if candidates is not None:
            self._labels = graph.input("candidates", INT, ["rows", width])
        self._scores = graph.input("scores", dtype, ["rows", width])

    def ranked(self, depth: int) -> Ranked:
        """The rows, best first, to some depth; candidates to their own."""
        if self.candidates is None:
            return Ranked.of_scores(self.graph, self._scores, self.n_classes, depth)
        return Ranked.of_candidates(
            self.graph, self._labels, self._scores, self.n_classes, self.candidates
        )

    def round_scores(self) -> None:
        """Round scores to float32, as every method with calibrated thresholds does."""
        self._scores = self._scores.to(F32)

    def features(self, columns: int | None) -> Value:
        assert columns is not None
        return self.graph.input("features", self.dtype, ["rows", columns])

    def scalar(self, name: str, dtype: np.dtype[np.generic]) -> Value:
        return self.graph.input(name, dtype, [])

    def column(self, name: str, dtype: np.dtype[np.generic]) -> Value:
        """A number for each row, as (rows, 1)."""
        return self.graph.input(name, dtype, ["rows"]).reshape(-1, 1)


KINDS: tuple[tuple[type[SetPredictor], str], ...] = (
    (Shortlister, "_levels"),
    (SplitConformal, "_levels"),
    (PlugInSelector, "_levels"),
    (FixedSelector, "predict_set"),
    (CardinalitySelector, "_choices"),
    (CardinalityPath, "_choices"),
)
"""What has a graph, and the method that it stands for."""


def check_model(model: SetPredictor) -> None:
    """Raise if a model has no graph."""
    if not any(unchanged(model, kind, method) for kind, method in KINDS):
        raise ValueError(
            f"{type(model).__name__} cannot be written as an ONNX graph, as its sets come from "
            f"Python code of its own; {', '.join(kind.__name__ for kind, _ in KINDS)} can"
        )
    family = getattr(model, "family_", None)
    if family is not None:
        check_family(family)


def nested(model: NestedSelector, rows: Rows, point: Point, depth: int) -> Chosen:
    """The sets of a method whose sets are nested, at a threshold."""
    rows.round_scores()
    if isinstance(model, SplitConformal):
        levels = _conformal(model, rows, depth)
    elif isinstance(model, PlugInSelector):
        levels = _plug_in(model, rows, depth)
    else:
        assert isinstance(model, Shortlister)
        levels = _shortlister(model, rows)
    if not model.allow_empty:
        levels = levels.never_empty()
    return _at(levels, rows, point)


def _at(levels: GraphLevels, rows: Rows, point: Point) -> Chosen:
    at, graph = point.threshold, rows.graph
    if at is None:
        return at_thresholds(levels, rows.scalar("threshold", F64), every=True)
    if not isinstance(at, Conditional):
        return at_thresholds(levels, np.float64(at), every=at == -math.inf)
    thresholds = at.thresholds.cpu().numpy()
    if at.by == "class":
        return by_class(levels, thresholds[:-1])
    group, unseen = rows.column("groups", INT), np.int64(len(thresholds) - 1)
    known = (group >= 0) & (group < unseen)
    own = graph.op("Gather", graph.constant(thresholds), graph.where(known, group, unseen))
    return at_thresholds(levels, own, every=bool(np.isneginf(thresholds).any()))


def _conformal(model: SplitConformal, rows: Rows, depth: int) -> GraphLevels:
    ranked = rows.ranked(depth)
    noise = rows.column("noise", F64) if model.score_.randomized else None
    values = conformal_levels(model.score_, ranked, noise)
    slack = conformal_slack(model.score_, ranked)
    return GraphLevels(ranked, values, arange(1, depth + 1)[0], depth, slack)


def _plug_in(model: PlugInSelector, rows: Rows, depth: int) -> GraphLevels:
    family, ranked = model.family_, rows.ranked(depth)
    graph, members = rows.graph, len(family)
    sizes, slack = family_sizes(family, ranked), Slack.of(precise=False, relative=True)
    log_p = sorted_log_proba(ranked, model._kind, depth, 1 / model.temperature_)
    p = log_p.columns(0, -1).to(F64).exp()
    if not isinstance(sizes, Value):
        prices = _prices(model, sizes)
        gains = bucket_masses(p, sizes.tolist(), depth)
        falling = _is_every_size(sizes) and bool((np.diff(prices[1:]) >= 0).all())
        values = slopes(graph, gains, graph.constant(prices[None]), members, falling)
        return GraphLevels(ranked, values, sizes, members, slack)
    total = p.cumsum().pad(1, 0, 0.0).take_along(sizes)
    costs = cost_table(model.cost, range(1, depth + 1)).numpy()
    price = graph.op("Gather", graph.constant(costs), sizes)
    values = slopes(graph, _steps(total).clip(0.0), _steps(price), members, False)
    return GraphLevels(ranked, values, sizes, members, slack)


def _steps(x: Value) -> Value:
    """What each member has more than the one before."""
    return x - x.columns(0, -1).pad(1, 0, 0.0)


def _prices(model: PricedSelector, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    prices: NDArray[np.float64] = model._prices(torch.from_numpy(sizes)).numpy()
    return prices


def _is_every_size(sizes: NDArray[np.int64]) -> bool:
    """Whether each set has one label more than the one before, which is no more probable."""
    return bool((np.diff(sizes) == 1).all()) and int(sizes[0]) == 1


def _shortlister(model: Shortlister, rows: Rows) -> GraphLevels:
    sizes = np.array(model._buckets.sizes)
    depth = int(sizes[-1])
    graph, ranked = rows.graph, rows.ranked(depth)
    rescorer, rank_model = model._rescorer, model._rank_model
    features = None
    if (rescorer is not None or rank_model is not None) and model._n_features is not None:
        features = rows.features(model._n_features)
        features = features if model._wide_features else features.to(F32)
    kind, scale = model._kind, model._scale
    if model._outside:
        log_p = sorted_log_proba(ranked, kind, ranked.depth, scale).columns(0, -1)
        ranked = ranked.with_scores(log_p + math.log1p(-model._outside))
        kind, scale = "log_proba", 1.0
    if rescorer is not None:
        assert features is not None
        ranked = rescored(rescorer, ranked, features)
        kind, scale = "log_proba", 1.0
    log_p = sorted_log_proba(ranked, kind, depth, scale)
    every = arange(1, depth + 1)[0]
    if rank_model is None:
        prices = _prices(model, every)
        falling = bool((np.diff(prices[1:]) >= 0).all())
        gains = log_p.columns(0, -1).to(F64).exp()
        values = slopes(graph, gains, graph.constant(prices[None]), depth, falling)
    else:
        prices = _prices(model, sizes)
        gains = rank_masses(rank_model, log_p, features).columns(0, len(sizes))
        values = slopes(graph, gains, graph.constant(prices[None]), len(sizes), False)
        values = spread(graph, model._buckets, values, log_p)
    return GraphLevels(ranked, values, every, depth, Slack.of(precise=False, relative=True))


def fixed(model: FixedSelector, rows: Rows, depth: int) -> Chosen:
    """Always the same member."""
    ranked = rows.ranked(largest_size(model.family_, depth))
    index = ranked.labels.columns(0, 1) * 0 + model._member(model.family_)
    return _members(model.family_, ranked, index, depth)


def cardinality(model: CardinalityBase, rows: Rows, point: Point, depth: int) -> Chosen:
    """The member that a network chooses."""
    family, inputs, graph = model.family_, model._inputs, rows.graph
    sees_scores = inputs.inputs != "features" and model._network is not None
    width = largest_size(family, depth)
    ranked = rows.ranked(max(width, inputs.score_depth) if sees_scores else width)
    last = ranked.labels.columns(0, 1) * 0 + (len(family) - 1)
    weights = np.array(model._weights)
    if model._network is None:
        return _members(family, ranked, last, depth)
    member: Value | int = rows.scalar("member", INT) if point.member is None else point.member
    parts = [] if inputs.inputs == "scores" else [rows.features(inputs.n_features)]
    if sees_scores:
        parts.append(sorted_log_proba(ranked, inputs.score_type, inputs.score_depth))
    columns = (inputs.n_features or 0) + (inputs.score_depth + 1 if sees_scores else 0)
    found = _outputs(model._network, graph.concat(parts), columns, member)
    # Of equal outputs the last: the largest set.
    index = graph.op("ArgMax", found, dtype=INT, axis=1, select_last_index=1)
    # Where a set costs nothing, the largest.
    if family.nested and isinstance(member, Value) and not weights.all():
        index = graph.where(graph.constant(weights == 0).take(member, axis=0), last, index)
    elif family.nested and not isinstance(member, Value) and weights[member] == 0:
        index = last
    return _members(family, ranked, index, depth)


def _members(family: Family, ranked: Ranked, index: Value, depth: int) -> Chosen:
    """The sets of the member of each row."""
    return prefixes(
        ranked, size_of_member(family, ranked, index), index, largest_size(family, depth)
    )


def _outputs(network: nn.Module, x: Value, n_in: int, member: Value | int) -> Value:
    """What the network, or one of a path's, gives each member of the family."""
    if isinstance(network, Members):
        if not isinstance(member, Value):
            return outputs(network.networks[member], x, n_in)
        each = [outputs(one, x, n_in).unsqueeze(0) for one in network.networks]
        return x.graph.concat(each, axis=0).take(member, axis=0)
    if isinstance(network, nn.Sequential) and isinstance(network[1], Stack):
        standardize, stack = network
        assert isinstance(standardize, Standardize)
        assert isinstance(stack, Stack)
        x = standardized(standardize, x)
        if isinstance(member, Value):
            return stack_member(stack, x, member)
        return outputs(stack.member(member), x, n_in)
    return outputs(network, x, n_in)
