"""Rankings in the graph: what `ranking` and `scores` do, in ONNX operations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shortlist.onnx.graph import F32, F64, Graph, Value, arange
from shortlist.ranking.probabilities import LEAST_LOG_PROBA, NOT_LISTED, ScoreType


@dataclass(frozen=True)
class Ranked:
    """Rows of the graph, best first.

    Attributes
    ----------
    labels, scores : (rows, depth)
        Labels (int64; -1 past the end of a list of candidates) and scores, best first.
    block : (rows, classes) or (rows, depth)
        All scores: by column if dense, else best first with -inf for padding.
    """

    graph: Graph
    labels: Value
    scores: Value
    block: Value
    n_classes: int
    depth: int
    dense: bool

    @classmethod
    def of_scores(cls, graph: Graph, scores: Value, n_classes: int, depth: int) -> Ranked:
        """Of a score for every class. TopK takes the lowest index among ties, so that the columns
        are flipped: the highest label goes first."""
        values, index = graph.top(scores.flip(), depth)
        labels = graph.constant(np.int64(n_classes - 1)) - index
        return cls(graph, labels, values, scores, n_classes, depth, dense=True)

    @classmethod
    def of_candidates(
        cls, graph: Graph, labels: Value, scores: Value, n_classes: int, depth: int
    ) -> Ranked:
        """Of lists; ties keep the order that they came in."""
        block = graph.where(labels >= 0, scores, -math.inf)
        block, index = graph.top(block, depth)
        labels = labels.take_along(index)
        values = graph.where(labels >= 0, block, 0.0)
        return cls(graph, labels, values, block, n_classes, depth, dense=False)

    def with_scores(self, scores: Value) -> Ranked:
        """The same candidates in the same order, by other scores."""
        block = self.graph.where(self.labels >= 0, scores, -math.inf)
        values = self.graph.where(self.labels >= 0, scores, 0.0)
        return Ranked(
            self.graph, self.labels, values, block, self.n_classes, self.depth, self.dense
        )

    def ranked_by(self, scores: Value) -> Ranked:
        """The same rows by other scores: (rows, classes), or those of the candidates."""
        if self.dense:
            return Ranked.of_scores(self.graph, scores, self.n_classes, self.depth)
        return Ranked.of_candidates(self.graph, self.labels, scores, self.n_classes, self.depth)

    def listed(self) -> Value | None:
        """How many labels each row lists, (rows, 1); None where that is all of them."""
        return None if self.dense else (self.labels >= 0).count()


def working(x: Value) -> Value:
    return x if x.dtype == F64 else x.to(F32)


def sorted_log_proba(ranked: Ranked, kind: ScoreType, depth: int, scale: float = 1.0) -> Value:
    """`scores.sorted_log_proba`: (rows, depth + 1), the log mass of all others last."""
    graph = ranked.graph
    scores = working(ranked.scores).columns(0, depth)
    best = scores.columns(0, 1) if kind == "logits" else None
    log_p = _logarithms(scores, kind, best, scale)
    labels = ranked.labels.columns(0, depth)
    if not ranked.dense:
        log_p = graph.where(labels >= 0, log_p, -math.inf)
    rest = _log_rest(ranked, kind, labels, best, scale, depth)
    columns = log_p if rest is None else graph.concat([log_p, rest])
    if kind == "logits" or scale != 1:
        columns = columns - _log_total(ranked, columns)
    columns = columns.clip(LEAST_LOG_PROBA, 0.0)
    return columns if rest is not None else columns.pad(0, 1, LEAST_LOG_PROBA)


def log_columns(ranked: Ranked, kind: ScoreType) -> Value:
    """`scores.log_columns`: by column if dense; else best first, with the mass of all others."""
    block = working(ranked.block)
    best = block.max() if kind == "logits" else None
    logs = _logarithms(block, kind, best, 1.0)
    if kind != "logits":
        logs = logs.clip(LEAST_LOG_PROBA)
    if ranked.dense:
        return logs
    graph = ranked.graph
    logs = graph.where(ranked.labels >= 0, logs, NOT_LISTED)
    if kind == "logits":
        return logs.pad(0, 1, LEAST_LOG_PROBA)
    return graph.concat([logs, _log_unlisted(block, kind).clip(LEAST_LOG_PROBA)])


def _logarithms(scores: Value, kind: ScoreType, best: Value | None, scale: float) -> Value:
    if kind == "proba":
        scores = scores.clip(0.0).log()
    elif best is not None:
        scores = scores - best
    if scale == 1:
        return scores
    return (scores if best is not None else scores.clip(LEAST_LOG_PROBA)) * scale


def _log_unlisted(block: Value, kind: ScoreType) -> Value:
    listed = block.clip(0.0) if kind == "proba" else block.exp()
    # Summed in float64, as torch adds what it rounds to float32.
    return (1.0 - listed.to(F64).sum().to(block.dtype)).clip(0.0).log()


def _log_total(ranked: Ranked, columns: Value) -> Value:
    if ranked.dense:
        return ranked.graph.logsumexp(columns)
    return ranked.graph.logsumexp(columns.to(F64), may_be_nothing=True).to(columns.dtype)


def _log_rest(
    ranked: Ranked, kind: ScoreType, labels: Value, best: Value | None, scale: float, depth: int
) -> Value | None:
    """Log mass of the scores after the first few; None where that is nothing at all."""
    if ranked.dense:
        return _log_rest_dense(ranked, kind, labels, best, scale, depth)
    graph, block = ranked.graph, working(ranked.block)
    parts: list[Value] = []
    if depth < ranked.depth:
        later = block.columns(depth)
        if kind == "proba" and scale == 1:
            parts.append(later.clip(0.0).to(F64).sum().to(block.dtype).log())
        else:
            logs = _logarithms(later, kind, best, scale)
            logs = graph.where(ranked.labels.columns(depth) >= 0, logs, -math.inf)
            parts.append(_log_total(ranked, logs))
    if kind != "logits":
        parts.append(_logarithms(_log_unlisted(block, kind), "log_proba", None, scale))
    if not parts:
        return None
    return graph.logsumexp(graph.concat(parts), may_be_nothing=True)


def _log_rest_dense(
    ranked: Ranked, kind: ScoreType, labels: Value, best: Value | None, scale: float, depth: int
) -> Value | None:
    if depth == ranked.n_classes:
        return None
    graph, block = ranked.graph, working(ranked.block)
    if kind == "proba" and scale == 1:
        block = graph.put_along(block, labels, _filled(ranked, labels, block, 0.0))
        return block.clip(0.0).sum().log()
    logs = _logarithms(block, kind, best, scale)
    logs = graph.put_along(logs, labels, _filled(ranked, labels, block, -math.inf))
    return graph.logsumexp(logs)


def _filled(ranked: Ranked, like: Value, dtype_like: Value, value: float) -> Value:
    """One value in the shape of another tensor."""
    graph = ranked.graph
    return graph.op("Expand", graph.constant(dtype_like.dtype.type(value)), like.shape())


def compact(graph: Graph, labels: Value, inside: Value, width: int) -> Value:
    """Those labels of each row that are inside, in the same order, then -1: (rows, width)."""
    place = graph.where(inside, width - arange(width), np.int64(0))
    found, index = graph.top(place, width)
    return graph.where(found > 0, labels.take_along(index), np.int64(-1))


def with_unlisted(ranked: Ranked, inside: Value, others: Value) -> tuple[Value, Value, int]:
    """Labels and which of them are inside, and, after those listed, the `others` (of all rows or
    one, of all classes or one) that a row does not list; and how many there are."""
    graph, n = ranked.graph, ranked.n_classes
    at = graph.where(ranked.labels >= 0, ranked.labels, np.int64(n))
    rows = ranked.labels.shape().columns(0, 1, axis=0)
    shape = graph.concat([rows, graph.constant(np.array([n + 1], dtype=np.int64))], axis=0)
    unlisted = graph.op("Expand", graph.constant(np.int64(1)), shape)
    nothing = graph.op("Expand", graph.constant(np.int64(0)), at.shape())
    unlisted = graph.put_along(unlisted, at, nothing).columns(0, n) > 0
    every = graph.op("Expand", graph.constant(arange(n)), unlisted.shape())
    labels = graph.concat([ranked.labels, every])
    mask = graph.concat([inside & (ranked.labels >= 0), unlisted & others])
    return labels, mask, ranked.depth + n
