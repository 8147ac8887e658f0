"""Families and conformal scores in the graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.conformal import Conformal, ConformalScore, DenisHebiri
from shortlist.families import Family, Threshold, TopK
from shortlist.onnx.graph import F32, F64, Value, arange, unchanged
from shortlist.onnx.levels import GraphLevels, Slack
from shortlist.onnx.rankings import Ranked, sorted_log_proba, working


def check_family(family: Family) -> None:
    """Raise if the family's sizes are code of its own."""
    known = (TopK, Threshold, Conformal, DenisHebiri)
    if not any(unchanged(family, kind, "sizes_of") for kind in known):
        raise ValueError(
            f"the sets of {family!r} cannot be written as an ONNX graph, as they come from Python "
            "code; those of TopK, Threshold, Conformal and DenisHebiri can"
        )


def conformal_levels(score: ConformalScore, ranked: Ranked, noise: Value | None) -> Value:
    """`ConformalScore.levels`: (rows, depth). `noise` (rows, 1): the random number of each row."""
    graph, p = ranked.graph, _probabilities(score, ranked)
    if score.name == "lac":
        return p
    first = p.columns(0, 1)
    if score.name == "margin":
        later = p.columns(1) - first
        second = p.columns(1, 2) if ranked.depth > 1 else first * 0.0
        return graph.concat([first - second, later])
    u: Value | float = 1.0 if noise is None else noise.to(p.dtype)
    # Constants by torch itself, in the type of the probabilities: they round alike.
    ranks = torch.arange(1, ranked.depth + 1, dtype=_torch(p))[None]
    if score.name == "topk":
        return -(p * 0.0 + (ranks - 1) + u)
    if score.name == "saps":
        steps = graph.value(ranks[:, 1:] - 2, p.dtype)
        later = first + (steps + u) * score.penalty
        return -graph.concat([first * u, later])
    before = p.columns(0, -1).pad(1, 0, 0.0).to(F64).cumsum()
    mass = before + (p if noise is None else p * u).to(F64)
    if score.name == "raps":
        penalty = score.penalty * (ranks - score.k_reg).clamp(min=0)
        mass = mass + penalty.to(torch.float64)
    return -mass


def conformal_slack(score: ConformalScore, ranked: Ranked) -> Slack:
    """None where the graph's levels are the very numbers that torch has."""
    if score.name == "topk" or _as_given(score):
        return Slack()
    return Slack.of(precise=ranked.block.dtype == F64, relative=score.name == "lac")


def _as_given(score: ConformalScore) -> bool:
    return score.kind == "proba" and score.scale == 1


def _probabilities(score: ConformalScore, ranked: Ranked) -> Value:
    if _as_given(score):
        p = working(ranked.scores)
    else:  # rounded once, as `ConformalScore` does
        wide = replace(ranked, scores=ranked.scores.to(F64), block=ranked.block.to(F64))
        p = sorted_log_proba(wide, score.kind, ranked.depth, score.scale).columns(0, -1)
        p = p.exp().to(F32)
    return p if ranked.dense else ranked.graph.where(ranked.labels >= 0, p, 0.0)


def _torch(x: Value) -> torch.dtype:
    return torch.float64 if x.dtype == F64 else torch.float32


def family_sizes(family: Family, ranked: Ranked) -> NDArray[np.int64] | Value:
    """`Family.sizes_of`: sizes that all rows share (an array), or (rows, members)."""
    graph, listed = ranked.graph, ranked.listed()
    if isinstance(family, TopK):
        k = np.array(family.k, dtype=np.int64)
        return k if listed is None else graph.op("Min", graph.constant(k[None]), listed)
    if isinstance(family, Threshold):
        above = [ranked.block > ranked.block.dtype.type(t) for t in family.thresholds]
        counts = graph.concat([a.count() for a in above]).clip(1)
        return counts.clip(high=ranked.depth)
    assert isinstance(family, Conformal | DenisHebiri)
    assert family.thresholds is not None
    score, ranks = family._scored, arange(1, ranked.depth + 1)[0]
    values = conformal_levels(score, ranked, None)
    slack = conformal_slack(score, ranked)
    levels = GraphLevels(ranked, values, ranks, ranked.depth, slack).never_empty()
    # Compared in the levels' own type, as the family does.
    thresholds = np.array(family.thresholds).astype(values.dtype)
    counts = graph.concat([levels.counts_at(q) for q in thresholds])
    return counts if listed is None else graph.op("Min", counts, listed)


def largest_size(family: Family, depth: int) -> int:
    """The largest set that a family can give."""
    return min(family.k[-1], depth) if isinstance(family, TopK) else depth


def size_of_member(family: Family, ranked: Ranked, index: Value) -> Value:
    """The size of the set of each row's member: (rows, 1)."""
    sizes = family_sizes(family, ranked)
    if isinstance(sizes, Value):
        return sizes.take_along(index)
    return ranked.graph.op("Gather", ranked.graph.constant(sizes), index)
