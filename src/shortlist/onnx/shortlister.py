"""The two stages of the Shortlister in the graph."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.learning.networks import Residual
from shortlist.onnx.envelope import bucket_masses, running_min
from shortlist.onnx.graph import F32, F64, INT, Value
from shortlist.onnx.networks import mean_log_proba, residual, stack, standardized
from shortlist.predictors.shortlister.opinions import (
    GivenScores,
    Neighbors,
    NetworkOpinion,
    Opinion,
    ScaledScores,
)
from shortlist.predictors.shortlister.opinions.base import MIN_SHARE
from shortlist.predictors.shortlister.opinions.neighbors import SHARPNESS
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel
from shortlist.predictors.shortlister.rescoring import Rescorer
from shortlist.ranking.probabilities import MIN_LOG_PROBA

GROUP = 8
"""Number of neighbors whose weights are added together. Each class is padded to whole groups."""
FAR = -1e4
"""Cosine of neighbors that are padding, whose weight is therefore zero."""


def rescored_log_proba(
    rescorer: Rescorer, prior: Value, features: Value, labels: Value | None
) -> Value:
    """Return the log-probabilities of stage 1.

    Parameters
    ----------
    rescorer : Rescorer
        The fitted stage.
    prior : Value
        Logarithms of the scores, by column if every class has one. For candidates, the last column
        is the mass of all other labels.
    features : Value of shape (n_rows, n_features)
        Features of the rows.
    labels : Value of shape (n_rows, depth), optional
        Labels of the candidates. None if every class has a score.

    Returns
    -------
    Value
        Log-probabilities of all classes by column, or of the candidates.
    """
    graph, n_classes = prior.graph, rescorer.n_classes
    tables = []
    for opinion in rescorer.opinions:
        write = OPINIONS.get(type(opinion))
        if write is None:
            raise ValueError(
                f"{type(opinion).__name__} has no ONNX graph; fit the Shortlister without learners"
            )
        tables += write(opinion, prior, features, labels, n_classes)
    pooled = tables[0] * rescorer.pool.exponents[0]
    for table, exponent in zip(tables[1:], rescorer.pool.exponents[1:], strict=True):
        pooled = pooled + table * exponent
    if labels is None:
        return graph.op("LogSoftmax", pooled, axis=-1)
    pooled = pooled + (labels.to(F32) * 0.0).pad(0, 1, rescorer.pool.bias)
    present = (labels >= 0).to(INT).pad(0, 1, 1) > 0
    pooled = graph.where(present, pooled, float(np.finfo(np.float32).min))
    return graph.op("LogSoftmax", pooled, axis=-1)[:, :-1]


def _given_scores(
    opinion: GivenScores, prior: Value, features: Value, labels: Value | None, n_classes: int
) -> list[Value]:
    return [prior.graph.op("LogSoftmax", prior * opinion.scale, axis=-1)]


def _scaled_scores(
    opinion: ScaledScores, prior: Value, features: Value, labels: Value | None, n_classes: int
) -> list[Value]:
    scaling = opinion.scaling
    logits = prior.unsqueeze(0) * scaling.factor + scaling.bias
    return [mean_log_proba(logits, len(scaling.factor))]


def _networks(
    opinion: NetworkOpinion, prior: Value, features: Value, labels: Value | None, n_classes: int
) -> list[Value]:
    graph, network = prior.graph, opinion.network
    members = network.stack.members
    if opinion.is_residual:
        assert isinstance(network, Residual)
        columns = None
        if labels is not None:
            listed = graph.where(labels >= 0, labels, np.int64(n_classes))
            columns = listed.pad(0, 1, n_classes)
        return [mean_log_proba(residual(network, features, prior, columns), members)]
    logits = stack(network.stack, standardized(network.standardize, features))
    return [_align_columns(mean_log_proba(logits, members), labels, n_classes)]


def _neighbors(
    opinion: Neighbors, prior: Value, features: Value, labels: Value | None, n_classes: int
) -> list[Value]:
    return [_align_columns(table, labels, n_classes) for table in _log_shares(opinion, features)]


OPINIONS: dict[type[Opinion], Callable[..., list[Value]]] = {
    GivenScores: _given_scores,
    ScaledScores: _scaled_scores,
    NetworkOpinion: _networks,
    Neighbors: _neighbors,
}
"""Functions that write the tables of an opinion, by its type."""


def _align_columns(log_p: Value, labels: Value | None, n_classes: int) -> Value:
    """Return the log-probabilities of all classes in the columns of candidates."""
    if labels is None:
        return log_p
    graph = log_p.graph
    listed = log_p.take_along(labels.clamp(0))
    # Padding refers to an additional class.
    columns = graph.where(labels >= 0, labels, np.int64(n_classes))
    nothing = graph.where(labels >= 0, np.float32(-np.inf), np.float32(-np.inf))
    every = log_p.pad(0, 1, -np.inf)
    others = graph.op("ScatterElements", every, columns, nothing, axis=1)
    mass = graph.logsumexp(others, may_be_empty=True).clamp(math.log(MIN_SHARE))
    return graph.concat([listed, mass])


def _log_shares(neighbors: Neighbors, features: Value) -> list[Value]:
    """Return both tables of log shares of all classes, each of shape (n_rows, n_classes)."""
    graph = features.graph
    directions, ends = _group_by_class(neighbors)
    x = standardized(neighbors.standardize, features)
    if neighbors.root is not None:
        root = neighbors.root.to("cpu", torch.float64)
        eye = torch.eye(len(root), dtype=torch.float64)
        inverse = torch.linalg.solve_triangular(root, eye, upper=False)
        x = x @ inverse.T.to(torch.float32).contiguous()
    length = graph.op("Sqrt", (x * x).sum()).clamp(1e-12)
    # The last feature is 1, and the last entry of each direction is 0, or FAR for padding.
    cosines = (x / length).pad(0, 1, 1.0) @ directions
    near = ((cosines - cosines.max()) * SHARPNESS).exp()
    tables = []
    for weights in (near, near * near):
        sums = weights.reshape(-1, directions.shape[1] // GROUP, GROUP).sum(axis=2, keep=False)
        # Shares are at least MIN_SHARE, so that differences of sums in float64 are precise enough.
        total = sums.to(F64).cumsum().pad(1, 0, 0.0)
        shares = total.take(ends[1:]) - total.take(ends[:-1])
        tables.append((shares / total[:, -1:]).to(F32).clamp(MIN_SHARE).log())
    return tables


def _group_by_class(neighbors: Neighbors) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return directions, (n_features + 1, n_padded), and the group after the last of each class."""
    given = neighbors.directions.cpu().numpy()
    index = neighbors.index.cpu().numpy()
    counts = np.bincount(index, minlength=neighbors.n_classes)
    groups = -(-counts // GROUP)
    ends = np.concatenate([[0], groups.cumsum()])
    first = counts.cumsum() - counts
    place = GROUP * ends[index] + np.arange(len(index)) - first[index]
    directions = np.zeros((given.shape[1] + 1, GROUP * int(ends[-1])), dtype=np.float32)
    directions[-1] = FAR
    directions[:, place] = np.concatenate([given, np.zeros((len(given), 1), np.float32)], axis=1).T
    return directions, ends.astype(np.int64)


def rank_masses(model: RankModel, log_p: Value, features: Value | None) -> Value:
    """Return the bucket masses of stage 2, (n_rows, n_buckets) in float64."""
    graph, buckets = log_p.graph, model.buckets
    p = log_p.to(F64).exp()
    masses = bucket_masses(p[:, :-1], buckets.sizes, buckets.sizes[-1])
    if buckets.outside:
        masses = graph.concat([masses, p[:, -1:]])
    prior = masses.log().clamp(MIN_LOG_PROBA).to(F32)
    logits = residual(model.network, _rank_inputs(log_p, p, model.depth, features), prior)
    return mean_log_proba(logits.to(F64), model.network.stack.members).exp()


def _rank_inputs(log_p: Value, p: Value, depth: int, features: Value | None) -> Value:
    """Return `rank_model.rank_inputs`. Tails are summed in float64, from the last label on."""
    graph = log_p.graph
    after = graph.op("CumSum", p, np.int64(1), reverse=1, exclusive=1)[:, :depth]
    tails = after.log().clamp(MIN_LOG_PROBA, 0.0).to(F32)
    known = graph.concat([log_p[:, :depth].to(F32), tails])
    if features is None:
        return known
    return graph.concat([features, known.to(features.dtype)])


def spread(buckets: Buckets, levels: Value, log_p: Value) -> Value:
    """Return `Buckets.spread`: the level of each rank from the levels of the buckets."""
    graph = levels.graph
    sizes, depth = np.array(buckets.sizes), buckets.sizes[-1]
    lengths = np.diff(sizes, prepend=0).astype(np.float64)
    bucket = np.searchsorted(sizes, np.arange(1, depth + 1))
    p = log_p[:, :depth].to(F64).exp()
    mean = bucket_masses(p, buckets.sizes, depth) / lengths[None]
    spread_out = levels.take(bucket) * (p / mean.take(bucket))
    last = graph.constant((bucket == len(sizes) - 1)[None])
    after = graph.where(last, 0.0, levels.take(np.minimum(bucket + 1, len(sizes) - 1)))
    # With the minimum, levels are not above those of the bucket before.
    return running_min(graph.op("Max", spread_out, after), depth)
