"""Rankings in the graph: labels in decreasing order of their scores, and their probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from shortlist.onnx.graph import F32, F64, Graph, Value
from shortlist.ranking.probabilities import MIN_LOG_PROBA, PADDING_LOG_PROBA
from shortlist.ranking.score_types import ScoreType


@dataclass(frozen=True)
class Ranked:
    """Rows of a graph, whose labels are in decreasing order of their scores.

    Attributes
    ----------
    labels, scores : Value of shape (n_rows, depth)
        Labels (int64, -1 after the last candidate) and their scores.
    block : Value of shape (n_rows, n_classes) or (n_rows, depth)
        All scores: by column if dense, otherwise sorted, with minus infinity as padding.
    """

    graph: Graph
    labels: Value
    scores: Value
    block: Value
    n_classes: int
    depth: int
    dense: bool

    @classmethod
    def from_scores(cls, graph: Graph, scores: Value, n_classes: int, depth: int) -> Ranked:
        """Rank the classes by a score for each.

        Equal scores are ordered by decreasing label. TopK takes the lowest index among ties, so
        the columns are reversed.
        """
        values, index = graph.top(scores.flip(), depth)
        labels = graph.constant(np.int64(n_classes - 1)) - index
        return cls(graph, labels, values, scores, n_classes, depth, dense=True)

    @classmethod
    def from_candidates(
        cls, graph: Graph, labels: Value, scores: Value, n_classes: int, depth: int
    ) -> Ranked:
        """Rank candidates by their scores. Equal scores keep their order."""
        block = graph.where(labels >= 0, scores, -math.inf)
        block, index = graph.top(block, depth)
        labels = labels.take_along(index)
        values = graph.where(labels >= 0, block, 0.0)
        return cls(graph, labels, values, block, n_classes, depth, dense=False)

    def with_scores(self, scores: Value) -> Ranked:
        """Return the same candidates in the same order, with other scores."""
        block = self.graph.where(self.labels >= 0, scores, -math.inf)
        values = self.graph.where(self.labels >= 0, scores, 0.0)
        return replace(self, scores=values, block=block)

    def rerank(self, scores: Value) -> Ranked:
        """Return the same rows ranked by other scores, of all classes or of the candidates."""
        if self.dense:
            return Ranked.from_scores(self.graph, scores, self.n_classes, self.depth)
        return Ranked.from_candidates(self.graph, self.labels, scores, self.n_classes, self.depth)

    def in_float64(self) -> Ranked:
        """Return the same rows in float64."""
        return replace(self, scores=self.scores.to(F64), block=self.block.to(F64))

    def lengths(self) -> Value | None:
        """Return the number of candidates of each row, (n_rows, 1); None if the rows are dense."""
        return None if self.dense else (self.labels >= 0).count()


def sorted_log_proba(
    ranked: Ranked, score_type: ScoreType, depth: int, scale: float = 1.0
) -> Value:
    """Return `ranking.probabilities.sorted_log_proba`, of shape (n_rows, depth + 1)."""
    graph = ranked.graph
    scores = ranked.scores[:, :depth]
    best = scores[:, :1] if score_type == "logits" else None
    log_p = _logarithms(scores, score_type, best, scale)
    labels = ranked.labels[:, :depth]
    if not ranked.dense:
        log_p = graph.where(labels >= 0, log_p, -math.inf)
    rest = _log_rest(ranked, score_type, labels, best, scale, depth)
    columns = log_p if rest is None else graph.concat([log_p, rest])
    if score_type == "logits" or scale != 1:
        columns = columns - _log_total(ranked, columns)
    columns = columns.clamp(MIN_LOG_PROBA, 0.0)
    return columns if rest is not None else columns.pad(0, 1, MIN_LOG_PROBA)


def log_columns(ranked: Ranked, score_type: ScoreType) -> Value:
    """Return `ranking.probabilities.log_columns`."""
    block = ranked.block
    best = block.max() if score_type == "logits" else None
    logs = _logarithms(block, score_type, best, 1.0)
    if score_type != "logits":
        logs = logs.clamp(MIN_LOG_PROBA)
    if ranked.dense:
        return logs
    graph = ranked.graph
    logs = graph.where(ranked.labels >= 0, logs, PADDING_LOG_PROBA)
    if score_type == "logits":
        return logs.pad(0, 1, MIN_LOG_PROBA)
    return graph.concat([logs, _log_unlisted(block, score_type).clamp(MIN_LOG_PROBA)])


def sorted_proba(ranked: Ranked, score_type: ScoreType, scale: float) -> Value:
    """Return `Ranking.sorted_proba`, of shape (n_rows, depth)."""
    if score_type == "proba" and scale == 1:
        p = ranked.scores
    else:  # Computed in float64 and rounded once, as `Ranking` does.
        log_p = sorted_log_proba(ranked.in_float64(), score_type, ranked.depth, scale)
        p = log_p[:, :-1].exp().to(F32)
    return p if ranked.dense else ranked.graph.where(ranked.labels >= 0, p, 0.0)


def _logarithms(scores: Value, score_type: ScoreType, best: Value | None, scale: float) -> Value:
    """Return scores as logarithms times `scale`, up to a constant for each row."""
    if score_type == "proba":
        scores = scores.clamp(0.0).log()
    elif best is not None:
        scores = scores - best
    if scale == 1:
        return scores
    return (scores if best is not None else scores.clamp(MIN_LOG_PROBA)) * scale


def _log_unlisted(block: Value, score_type: ScoreType) -> Value:
    """Return the log mass of labels that are not among the candidates."""
    listed = block.clamp(0.0) if score_type == "proba" else block.exp()
    # Summed in float64, because torch also adds float32 numbers with a higher precision.
    return (1.0 - listed.to(F64).sum().to(block.dtype)).clamp(0.0).log()


def _log_total(ranked: Ranked, columns: Value) -> Value:
    if ranked.dense:
        return ranked.graph.logsumexp(columns)
    return ranked.graph.logsumexp(columns.to(F64), may_be_empty=True).to(columns.dtype)


def _log_rest(
    ranked: Ranked,
    score_type: ScoreType,
    labels: Value,
    best: Value | None,
    scale: float,
    depth: int,
) -> Value | None:
    """Return the log mass of the labels after the first few; None if there are none."""
    if ranked.dense:
        return _log_rest_dense(ranked, score_type, labels, best, scale, depth)
    graph, block = ranked.graph, ranked.block
    parts: list[Value] = []
    if depth < ranked.depth:
        later = block[:, depth:]
        if score_type == "proba" and scale == 1:
            parts.append(later.clamp(0.0).to(F64).sum().to(block.dtype).log())
        else:
            logs = _logarithms(later, score_type, best, scale)
            logs = graph.where(ranked.labels[:, depth:] >= 0, logs, -math.inf)
            parts.append(_log_total(ranked, logs))
    if score_type != "logits":
        parts.append(_logarithms(_log_unlisted(block, score_type), "log_proba", None, scale))
    if not parts:
        return None
    return graph.logsumexp(graph.concat(parts), may_be_empty=True)


def _log_rest_dense(
    ranked: Ranked,
    score_type: ScoreType,
    labels: Value,
    best: Value | None,
    scale: float,
    depth: int,
) -> Value | None:
    if depth == ranked.n_classes:
        return None
    graph, block = ranked.graph, ranked.block

    def without_first(x: Value, value: float) -> Value:
        fill = graph.op("Expand", graph.constant(x.dtype.type(value)), labels.shape())
        return graph.put_along(x, labels, fill)

    if score_type == "proba" and scale == 1:
        return without_first(block, 0.0).clamp(0.0).sum().log()
    return graph.logsumexp(without_first(_logarithms(block, score_type, best, scale), -math.inf))
