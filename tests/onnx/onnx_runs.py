"""Run the same rows through Python and through onnxruntime, and compare the sets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import shortlist as sl
from shortlist.conformal import SCORES as REGISTERED
from shortlist.conformal.scores.probability import row_noise
from shortlist.ranking import as_ranking

EDGE = 1e-5
FEW = 50
"""Number of rows, of 10,000, that may lie on an edge."""
ROWS, FIT, CLASSES, FEATURES = 10_000, 2_400, 12, 6
SCORES = [name for name, cls in REGISTERED.items() if cls.__module__.startswith("shortlist.")]
"""Names of all registered scores but those that other tests register."""
KINDS = ("logits", "tied logits", "proba", "tied proba", "float64")


@dataclass(frozen=True)
class Data:
    """Scores, features and labels of rows to fit on and of rows to predict."""

    scores: np.ndarray
    x: np.ndarray
    y: np.ndarray
    score_type: str

    @property
    def dtype(self) -> str:
        return str(self.scores.dtype)

    @property
    def fit(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.scores[:FIT], self.y[:FIT], self.x[:FIT]

    @property
    def new(self) -> tuple[np.ndarray, np.ndarray]:
        return self.scores[FIT:], self.x[FIT:]


@cache
def data(kind: str) -> Data:
    rng = np.random.default_rng(7)
    y = rng.integers(CLASSES, size=FIT + ROWS)
    centres = rng.normal(size=(CLASSES, FEATURES))
    x = 0.9 * centres[y] + rng.normal(size=(len(y), FEATURES))
    z = 0.8 * x @ (centres + 0.5 * rng.normal(size=centres.shape)).T
    z += rng.normal(size=z.shape)
    p = torch.softmax(torch.tensor(z), dim=1).numpy()
    wide = kind == "float64"
    dtype = np.float64 if wide else np.float32
    scores = {
        "logits": z,
        "tied logits": np.round(8 * z) / 8,
        "proba": p,
        "tied proba": np.round(8 * p) / 8,
        "float64": z,
    }[kind]
    score_type = "proba" if "proba" in kind else "logits"
    return Data(scores.astype(dtype), x.astype(dtype), y, score_type)


@cache
def candidate_arrays(kind: str, depth: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 to `depth` candidates for each row, and their scores."""
    scores = data(kind).scores
    labels = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    values = np.take_along_axis(scores, labels, axis=1)
    lengths = np.random.default_rng(3).integers(1, depth + 1, size=len(labels))
    lengths[:: len(labels) // 50] = depth
    return np.where(np.arange(depth) < lengths[:, None], labels, -1), values


def candidates(kind: str) -> tuple[sl.Ranking, sl.Ranking, dict[str, np.ndarray]]:
    """Return rankings to fit on and to predict, and the latter as inputs of a graph."""
    labels, values = candidate_arrays(kind)
    rankings = [
        sl.Ranking.from_candidates(labels[part], values[part], CLASSES)
        for part in (slice(FIT), slice(FIT, None))
    ]
    return *rankings, {"candidates": labels[FIT:], "scores": values[FIT:]}


def check(sets: sl.PredictionSets, outputs: dict[str, np.ndarray], edges: np.ndarray) -> None:
    """Assert that all sets are equal, except those of a few rows on an edge."""
    wrong = differing(sets, outputs) & ~edges
    assert not wrong.any(), f"{wrong.sum()} rows, first: {wrong.nonzero()[0][:5]}"
    assert edges.sum() <= FEW, f"{edges.sum()} rows lie on an edge"
    assert len(sets) == ROWS


def check_conformal(model, kind, path, *, rows=None, feeds=None, **point) -> None:
    """Assert that the sets of a conformal predictor are equal at one operating point."""
    scores, x = (data(kind).new) if rows is None else (rows, data(kind).new[1])
    x = x if getattr(model.score_, "n_features_", None) else None
    feeds = {"scores": scores, "features": x} if feeds is None else {**feeds, "features": x}
    if getattr(model, "randomized", False):
        feeds["noise"] = noise(scores)
    model.export_onnx(path, dtype=data(kind).dtype, **point)
    outputs = run(path, feeds)
    sets = model.predict_set(scores, x, **point)
    check(sets, outputs, level_edges(model, scores, x, **point))
    if point.get("by") != "class":
        assert (outputs["index"] < len(getattr(model, "family_", range(CLASSES)))).all()


def run(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    assert wanted <= feeds.keys(), wanted
    outputs = session.run(None, {name: feeds[name] for name in wanted})
    return dict(zip([o.name for o in session.get_outputs()], outputs, strict=True))


def padded(sets: sl.PredictionSets, width: int) -> np.ndarray:
    labels = np.full((len(sets), width), -1, dtype=np.int64)
    inside = np.arange(width) < np.asarray(sets.sizes)[:, None]
    labels[inside] = np.asarray(sets.indices)
    return labels


def differing(sets: sl.PredictionSets, outputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return which rows have another set in the graph."""
    labels = outputs["labels"]
    assert labels.dtype == outputs["sizes"].dtype == outputs["index"].dtype == np.int64
    assert len(labels) == len(outputs["sizes"]) == len(outputs["index"]) == len(sets)
    assert int(np.max(sets.sizes)) <= labels.shape[1]
    return (padded(sets, labels.shape[1]) != labels).any(1) | (sets.sizes != outputs["sizes"])


def level_edges(model, scores, x, **point) -> np.ndarray:
    """Return which rows have a level within `EDGE` of the threshold, but not on it.

    Also those with two labels whose re-scored probabilities are within `EDGE`.
    """
    ranking, features = model._validate_rows(scores, x)
    at = model.thresholds(**point).values.reshape(-1)
    absolute = not model.score_.levels_are_cost_weights and model.score_.name != "lac"
    near = []
    for _, ranked, levels in model._level_function().blocks(ranking, features):
        values = levels.by_rank(ranked.depth).to(torch.float64)[:, :, None]
        gap = (values - at).abs()
        within = gap <= EDGE * (1.0 if absolute else at.abs())
        edge = (within & (gap > 0) & at.isfinite()).any(2).any(1)
        if getattr(model, "rescored_", False):
            labels, top = ranked.top(ranked.depth)
            swaps = (top[:, 1:] - top[:, :-1]).abs().le(EDGE) & (labels[:, 1:] >= 0)
            edge |= swaps.any(1)
        near.append(edge)
    edges = torch.cat(near).numpy()
    return edges | family_edges(getattr(model, "family_", None), ranking)


def family_edges(family, ranking) -> np.ndarray:
    """Return which rows have a level within `EDGE` of a threshold of the family."""
    if not hasattr(family, "make_score"):
        return np.zeros(len(ranking), dtype=bool)
    at = torch.tensor(family.thresholds, dtype=torch.float64)
    gap = (family._levels(ranking).values.to(torch.float64)[:, :, None] - at).abs()
    within = (
        gap <= EDGE * (at.abs() if family.make_score().name == "lac" else 1.0)
    ) & at.isfinite()
    return (within & (gap > 0)).any(2).any(1).numpy()


def choice_edges(model, scores, x, member: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with another member within `EDGE` of the best: any, or one of other size."""
    ranking = model._validate_scores(scores)
    outputs = model._scores(ranking, x)
    outputs = outputs if outputs.ndim == 2 else outputs[member]
    best = outputs.max(dim=1, keepdim=True).values
    near = outputs >= best - EDGE * (1 + best.abs())
    sizes = model.family_.sizes_of(ranking)
    smallest = torch.where(near, sizes, CLASSES).amin(1)
    other = smallest < torch.where(near, sizes, 0).amax(1)
    return (near.sum(1) > 1).numpy(), other.numpy() | family_edges(model.family_, ranking)


def noise(scores) -> np.ndarray:
    return row_noise(as_ranking(scores), 0).numpy()
