"""Temperature scaling: one number that makes a classifier's probabilities honest."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, check_choice, check_weight, row_blocks
from shortlist._utils.warnings import warn
from shortlist.learning.process_group import current_group
from shortlist.ranking import Ranking, as_ranking
from shortlist.ranking.probabilities import ScoreType, infer_score_type, log_columns, target_columns

MOST = 100.0
"""Temperatures lie between 1 / MOST and MOST: where every first label is right, the likelihood
would ask for zero."""
ENOUGH = 1 << 24
"""Scores that are looked at; of more, every second (third, …) row is taken."""


def fit_temperature(scores: ArrayLike | Ranking, y: ArrayLike, score_type_: str = "auto") -> float:
    """The temperature T at which softmax(log scores / T) gives labels the highest likelihood.

    To be measured on rows that the classifier did not train on: there it is over-confident, and
    T is above 1. Ranked candidates have one more label, all that they leave out; if they are
    logits, which leave nothing, rows whose label is not listed say nothing.

    >>> logits = torch.tensor([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 0.0]])
    >>> round(fit_temperature(logits, [0, 0, 1, 1]), 4)      # three in four are right: 3 / log(3)
    2.7307
    """
    ranking = as_ranking(scores)
    index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device)
    return 1 / fit_scale(ranking, index, infer_score_type(ranking, score_type_))


def scale_of(
    temperature: float | str | None, ranking: Ranking, index: Tensor, kind: ScoreType
) -> float:
    """The inverse of a temperature: as given, 1 if None, fitted if "auto"."""
    if temperature is None:
        return 1.0
    if isinstance(temperature, str):
        check_choice(temperature, "temperature", ("auto",))
        return fit_scale(ranking, index, kind)
    if not check_weight(temperature, "temperature"):
        raise ValueError("temperature must be positive; got 0")
    return 1 / float(temperature)


def fit_scale(ranking: Ranking, index: Tensor, kind: ScoreType) -> float:
    """The inverse temperature, for label indices."""
    if kind == "logits" and not ranking.is_dense:
        listed = torch.isfinite(ranking.rank_of(index))
        if not current_group().min(int(listed.sum())):
            return 1.0
        ranking, index = ranking[listed], index[listed]
    width = ranking.n_classes if ranking.is_dense else ranking.depth + 1
    every = math.ceil(current_group().sum(len(ranking)) * width / ENOUGH)
    if every > 1:
        ranking, index = ranking[::every], index[::every]
    count = current_group().sum(len(ranking))
    target = target_columns(ranking, index)
    blocks = list(row_blocks(len(ranking), width, ranking.device))
    logs = [log_columns(ranking, rows, kind) for rows in blocks]
    if kind == "logits" and not ranking.is_dense:
        logs = [block[:, :-1] for block in logs]
    log_scale = torch.zeros((), dtype=torch.float64, device=ranking.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_scale], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), dtype=torch.float64, device=ranking.device)
        for rows, block in zip(blocks, logs, strict=True):
            scaled = log_scale.exp().to(block.dtype) * block
            nll = torch.nn.functional.cross_entropy(scaled, target[rows], reduction="sum")
            part = nll.to(torch.float64) / count
            part.backward()  # type: ignore[no-untyped-call]
            total += part.detach()
        assert log_scale.grad is not None
        log_scale.grad = current_group().sum(log_scale.grad)
        return current_group().sum(total)

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    limit = math.log(MOST)
    found = float(log_scale.detach())
    if found <= -limit:
        warn(
            "the scores say next to nothing of the labels: a temperature would be beyond "
            f"{MOST:g}. Are high scores good, and are the columns in the order of the classes? "
            "classes=[...] says which column is which"
        )
    return math.exp(min(max(found, -limit), limit)) if math.isfinite(found) else 1.0
