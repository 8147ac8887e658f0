"""Prediction sets in the graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from shortlist.conformal.calibrators import Thresholds
from shortlist.guarantee import NO_GUARANTEE, Guarantee
from shortlist.onnx.graph import F64, INT, Graph, Value, arange
from shortlist.onnx.levels import GraphLevels
from shortlist.onnx.rankings import Ranked


@dataclass(frozen=True)
class GraphSets:
    """Outputs of a graph, and what is known about them.

    Parameters
    ----------
    labels : Value of shape (n_rows, width)
        Labels of each set, padded with -1.
    sizes, index : Value of shape (n_rows, 1)
        Sizes of the sets, and the chosen members of the family.
    width : int
        Largest possible size.
    guarantee : Guarantee, optional
        What the sets guarantee.
    metadata : mapping of str to object, optional
        What the metadata of the file contain, in addition to what every file contains.
    """

    labels: Value
    sizes: Value
    index: Value
    width: int
    guarantee: Guarantee = NO_GUARANTEE
    metadata: Mapping[str, object] = field(default_factory=dict)


def prefixes(ranked: Ranked, sizes: Value, index: Value, width: int) -> GraphSets:
    """Return the first labels of each row as sets."""
    inside = ranked.graph.constant(arange(width)) < sizes
    labels = ranked.graph.where(inside, ranked.labels[:, :width], np.int64(-1))
    return GraphSets(labels, sizes, index, width)


def sets_at(levels: GraphLevels, thresholds: Thresholds) -> GraphSets:
    """Return the sets at fixed thresholds: one for all rows, or one for each class or group."""
    if thresholds.per == "class":
        return _class_sets(levels, thresholds)
    values, graph = thresholds.values.cpu(), levels.ranked.graph
    may_be_all = bool(torch.isneginf(values).any())
    if thresholds.per == "set":
        return nested_sets(levels, graph.constant(values.numpy()), may_be_all)
    if thresholds.per != "group":
        raise ValueError(
            f"thresholds per {thresholds.per!r} cannot be exported to ONNX; thresholds per set, "
            "class or group can"
        )
    group, unknown = graph.input("groups", INT, ["rows"]).reshape(-1, 1), np.int64(len(values) - 1)
    known = (group >= 0) & (group < unknown)
    own = graph.op("Gather", graph.constant(values.numpy()), graph.where(known, group, unknown))
    return nested_sets(levels, own, may_be_all)


def nested_sets(levels: GraphLevels, thresholds: Value, may_be_all: bool) -> GraphSets:
    """Return the sets at one threshold for each row, or one for all rows.

    Parameters
    ----------
    levels : GraphLevels
        Levels of the rows.
    thresholds : Value of shape () or (n_rows, 1)
        Thresholds. At minus infinity, the set contains all classes.
    may_be_all : bool
        Whether a threshold may be minus infinity.

    Returns
    -------
    GraphSets
    """
    counts = levels.counts_at(thresholds)
    sizes, index = levels.sizes_at(counts), counts - 1
    ranked, graph = levels.ranked, levels.ranked.graph
    if not may_be_all:
        return prefixes(ranked, sizes, index, levels.max_size)
    every = thresholds.to(F64).equals(-math.inf)
    if ranked.dense and ranked.depth == ranked.n_classes:
        sizes = graph.where(every, np.int64(ranked.n_classes), sizes)
        return prefixes(ranked, sizes, index, ranked.n_classes)
    inside = (graph.constant(arange(ranked.depth)) < sizes) | every
    return _collect(ranked, inside, every, index)


def _class_sets(levels: GraphLevels, thresholds: Thresholds) -> GraphSets:
    """Return sets with a threshold for each class, which are not prefixes of the ranking."""
    ranked, graph = levels.ranked, levels.ranked.graph
    labels = ranked.labels if ranked.dense else ranked.labels.clamp(0)
    values = thresholds.values.cpu()
    own = graph.op("Gather", levels.lowered(values), labels, dtype=F64)
    inside = levels.by_rank().to(F64) >= own
    every = torch.isneginf(values)
    whole = ranked.dense and ranked.depth == ranked.n_classes
    others = None if whole or not every.any() else graph.constant(every.numpy()[None])
    return _collect(ranked, inside, others, None)


def _collect(ranked: Ranked, inside: Value, others: Value | None, index: Value | None) -> GraphSets:
    """Return the ranked labels in `inside`, and those of `others` that a row does not rank."""
    labels, width = ranked.labels, ranked.depth
    inside = inside if ranked.dense else inside & (labels >= 0)
    if others is not None:
        labels, inside, width = _with_unranked(ranked, inside, others)
    sizes = inside.count()
    kept = compact(ranked.graph, labels, inside, width)[:, : ranked.n_classes]
    width = min(width, ranked.n_classes)
    return GraphSets(kept, sizes, sizes - 1 if index is None else index, width)


def compact(graph: Graph, labels: Value, inside: Value, width: int) -> Value:
    """Return the labels of each row for which `inside` is true, in order, padded with -1."""
    place = graph.where(inside, width - arange(width), np.int64(0))
    kept, index = graph.top(place, width)
    return graph.where(kept > 0, labels.take_along(index), np.int64(-1))


def _with_unranked(ranked: Ranked, inside: Value, others: Value) -> tuple[Value, Value, int]:
    """Return the ranked labels followed by all classes, which of them are inside, and their number.

    A class is inside if `others` is true and the row does not rank the class. `others` has one row
    or a row for each, and one column or a column for each class.
    """
    graph, n = ranked.graph, ranked.n_classes
    at = graph.where(ranked.labels >= 0, ranked.labels, np.int64(n))
    rows = graph.slice(ranked.labels.shape(), 0, 1, axis=0)
    shape = graph.concat([rows, graph.constant(np.array([n + 1], dtype=np.int64))], axis=0)
    unranked = graph.op("Expand", graph.constant(np.int64(1)), shape)
    zeros = graph.op("Expand", graph.constant(np.int64(0)), at.shape())
    unranked = graph.put_along(unranked, at, zeros)[:, :n] > 0
    every = graph.op("Expand", graph.constant(arange(n)), unranked.shape())
    labels = graph.concat([ranked.labels, every])
    mask = graph.concat([inside & (ranked.labels >= 0), unranked & others])
    return labels, mask, ranked.depth + n
