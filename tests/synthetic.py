"""Random scores and labels from known distributions, and rows with exact ties."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = tuple[NDArray[np.floating], NDArray[np.int64]]
SCORE_TYPES = ["logits", "proba", "log_proba"]


def draw(rows: int, n: int = 8, *, seed: int = 0, temperature: float = 1.0) -> Rows:
    """Return logits of easy and hard rows, and labels from `softmax(logits / temperature)`."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, n)) * rng.uniform(0.5, 5, size=(rows, 1))
    return logits, (logits / temperature + rng.gumbel(size=logits.shape)).argmax(axis=1)


def uneven(rows: int, *, seed: int = 0, n: int = 4) -> tuple[NDArray[np.floating], ...]:
    """Return logits, labels and groups. Some classes and groups are harder than others."""
    rng = np.random.default_rng(seed)
    y = rng.choice(n, size=rows, p=np.arange(1, n + 1) / np.arange(1, n + 1).sum())
    groups = rng.integers(3, size=rows)
    signal = 0.5 + 1.5 * y + 1.5 * groups
    logits = rng.normal(size=(rows, n)) * 1.5 + signal[:, None] * np.eye(n)[y]
    return logits, y, groups


def in_64ths(rows: int, n: int, seed: int) -> Rows:
    """Return probabilities that are multiples of 1/64, and labels drawn from them.

    Their sums are exact, and many of them tie.
    """
    rng = np.random.default_rng(seed)
    p = np.stack([rng.multinomial(64, w) for w in rng.dirichlet(np.full(n, 0.7), size=rows)]) / 64
    return p, np.array([rng.choice(n, p=row) for row in p])


def as_score_type(logits: NDArray[np.floating], score_type: str) -> NDArray[np.floating]:
    """Convert logits to a type of scores."""
    best = logits.max(axis=1, keepdims=True)
    log_proba = logits - best - np.log(np.exp(logits - best).sum(axis=1, keepdims=True))
    return {"logits": logits, "proba": np.exp(log_proba), "log_proba": log_proba}[score_type]


def ragged(scores: NDArray[np.floating], depth: int, seed: int = 0) -> dict[str, object]:
    """Return arguments of `Ranking.from_candidates`, with 1 to `depth` candidates in each row."""
    labels = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    lengths = np.random.default_rng(seed).integers(1, depth + 1, size=len(scores))
    return {
        "labels": np.where(np.arange(depth) < lengths[:, None], labels, -1),
        "scores": np.take_along_axis(scores, labels, axis=1),
        "n_classes": scores.shape[1],
    }
