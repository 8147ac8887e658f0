"""The two stages of the Shortlister in the graph."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.onnx.graph import F32, F64, INT, Graph, Value
from shortlist.onnx.levels import running_min
from shortlist.onnx.networks import mean_log_proba, residual, standardized
from shortlist.onnx.rankings import Ranked, log_columns
from shortlist.predictors.shortlister.neighbours import LEAST, SHARPNESS, Neighbours
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel
from shortlist.predictors.shortlister.rescoring import Rescorer
from shortlist.ranking.probabilities import LEAST_LOG_PROBA

GROUP = 8
"""Neighbours whose weights are added at once; each class's are filled up to whole groups."""
FAR = -1e4
"""The cosine of those that fill up: they weigh nothing."""


def rescored(rescorer: Rescorer, ranked: Ranked, features: Value) -> Ranked:
    """Stage 1: the ranking by better log-probabilities."""
    graph, network = ranked.graph, rescorer.network
    prior = log_columns(ranked, rescorer.kind).to(F32)
    columns = None
    if not ranked.dense:
        ended = np.int64(ranked.n_classes)
        columns = graph.where(ranked.labels >= 0, ranked.labels, ended)
        columns = columns.pad(0, 1, ranked.n_classes)
    logits = residual(network, features, prior, columns)
    log_p = mean_log_proba(logits, network.stack.members)
    log_q = _log_shares(rescorer.neighbours, features)
    pool = rescorer.pool
    if columns is None:
        pooled = log_p * pool.a + log_q * pool.b
        return ranked.ranked_by(graph.op("LogSoftmax", pooled, axis=-1))
    listed = ranked.labels >= 0
    log_q = log_q.take_along(ranked.labels.clip(0))
    shares = graph.where(listed, log_q.exp(), 0.0).sum()
    log_q = graph.concat([log_q, (1.0 - shares).clip(LEAST).log()])
    pooled = log_p * pool.a + log_q * pool.b
    others = listed.to(INT).pad(0, 1, 1) > 0
    pooled = graph.where(others, pooled, float(np.finfo(np.float32).min))
    log_p = graph.op("LogSoftmax", pooled, axis=-1)
    return ranked.ranked_by(log_p.columns(0, -1))


def _log_shares(neighbours: Neighbours, features: Value) -> Value:
    """The logarithms of all classes' shares of the rows that lie near: (rows, classes)."""
    graph = features.graph
    directions, ends = _in_groups(neighbours)
    x = standardized(neighbours.standardize, features)
    if neighbours.root is not None:
        root = neighbours.root.to("cpu", torch.float64)
        eye = torch.eye(len(root), dtype=torch.float64)
        inverse = torch.linalg.solve_triangular(root, eye, upper=False)
        x = x @ inverse.T.to(torch.float32).contiguous()
    length = graph.op("Sqrt", (x * x).sum()).clip(1e-12)
    # A last feature of 1 meets a last entry of 0, or of FAR.
    cosines = (x / length).pad(0, 1, 1.0) @ directions
    near = ((cosines - cosines.max()) * SHARPNESS).exp()
    sums = near.reshape(-1, directions.shape[1] // GROUP, GROUP).sum(axis=2, keep=False)
    # Shares are at least LEAST, so that differences of sums in float64 are precise enough.
    total = sums.to(F64).cumsum().pad(1, 0, 0.0)
    shares = total.take(ends[1:]) - total.take(ends[:-1])
    return (shares / total.columns(-1)).to(F32).clip(LEAST).log()


def _in_groups(neighbours: Neighbours) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Directions, (features + 1, places), and after how many groups each class ends."""
    given = neighbours.directions.cpu().numpy()
    index = neighbours.index.cpu().numpy()
    counts = np.bincount(index, minlength=neighbours.n_classes)
    groups = -(-counts // GROUP)
    ends = np.concatenate([[0], groups.cumsum()])
    first = counts.cumsum() - counts
    place = GROUP * ends[index] + np.arange(len(index)) - first[index]
    directions = np.zeros((given.shape[1] + 1, GROUP * int(ends[-1])), dtype=np.float32)
    directions[-1] = FAR
    directions[:, place] = np.concatenate([given, np.zeros((len(given), 1), np.float32)], axis=1).T
    return directions, ends.astype(np.int64)


def bucket_masses(p: Value, sizes: list[int], depth: int) -> Value:
    """`_priced.bucket_masses` of probabilities (rows, depth) in float64."""
    if sizes == list(range(1, len(sizes) + 1)):
        return p.columns(0, len(sizes))
    bucket = np.searchsorted(sizes, np.arange(depth), side="right")
    inside = (bucket[:, None] == np.arange(len(sizes))).astype(np.float64)
    return p @ p.graph.constant(inside)


def rank_masses(model: RankModel, log_p: Value, features: Value | None) -> Value:
    """Stage 2: the masses of the buckets, (rows, buckets) in float64."""
    graph, buckets = log_p.graph, model.buckets
    p = log_p.to(F64).exp()
    masses = bucket_masses(p.columns(0, -1), buckets.sizes, buckets.sizes[-1])
    if buckets.outside:
        masses = graph.concat([masses, p.columns(-1)])
    prior = masses.log().clip(LEAST_LOG_PROBA).to(F32)
    logits = residual(model.network, _rank_inputs(log_p, p, model.depth, features), prior)
    return mean_log_proba(logits.to(F64), model.network.stack.members).exp()


def _rank_inputs(log_p: Value, p: Value, depth: int, features: Value | None) -> Value:
    """`_sizing.rank_inputs`. The tails are summed in float64, from the last on."""
    graph = log_p.graph
    after = graph.op("CumSum", p, np.int64(1), reverse=1, exclusive=1).columns(0, depth)
    tails = after.log().clip(LEAST_LOG_PROBA, 0.0).to(F32)
    known = graph.concat([log_p.columns(0, depth).to(F32), tails])
    if features is None:
        return known
    return graph.concat([features, known.to(features.dtype)])


def spread(graph: Graph, buckets: Buckets, levels: Value, log_p: Value) -> Value:
    """`Buckets.spread`: levels of the buckets as levels of every rank."""
    sizes, depth = np.array(buckets.sizes), buckets.sizes[-1]
    lengths = np.diff(sizes, prepend=0).astype(np.float64)
    bucket = np.searchsorted(sizes, np.arange(1, depth + 1))
    p = log_p.columns(0, depth).to(F64).exp()
    mean = bucket_masses(p, buckets.sizes, depth) / lengths[None]
    found = levels.take(bucket) * (p / mean.take(bucket))
    last = graph.constant((bucket == len(sizes) - 1)[None])
    after = graph.where(last, 0.0, levels.take(np.minimum(bucket + 1, len(sizes) - 1)))
    # Never above the bucket before either: its last rank is not above its level.
    found = graph.op("Max", found, after)
    return running_min(found, depth)
