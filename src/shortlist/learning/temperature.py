"""Temperature scaling, which calibrates the probabilities of a classifier by one parameter."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.blocks import row_blocks
from shortlist._utils.validation import check_choice, check_non_negative
from shortlist._utils.warnings import warn
from shortlist.learning.process_group import current_group
from shortlist.ranking import Ranking, as_ranking
from shortlist.ranking.probabilities import log_columns, target_columns
from shortlist.ranking.score_types import ScoreType, infer_score_type

MAX_TEMPERATURE = 100.0
"""Temperatures are limited to the range from 1 / MAX_TEMPERATURE to MAX_TEMPERATURE. If every top
label is the true label, the likelihood is largest at temperature 0."""
MAX_SCORES = 1 << 24
"""Maximum number of scores in a fit. For larger inputs, every second (third, …) row is used."""


def fit_temperature(scores: ArrayLike | Ranking, y: ArrayLike, score_type: str = "auto") -> float:
    """Return the temperature T that maximizes the likelihood of `softmax(logits / T)`.

    Use rows on which the classifier was not trained. On its training rows, a classifier is less
    over-confident than on new rows.

    Parameters
    ----------
    scores : array-like of shape (n_rows, n_classes) or Ranking
        Scores of a classifier.
    y : array-like of shape (n_rows,)
        Labels.
    score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
        What the scores are.

    Returns
    -------
    float
        The temperature. A value above 1 means that the classifier is over-confident.

    Notes
    -----
    For ranked candidates, the probabilities have one more column, which stands for all labels that
    are not listed. If the scores are logits, this column has no probability, and rows whose true
    label is not listed are ignored.

    Examples
    --------
    >>> logits = torch.tensor([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 0.0]])
    >>> round(fit_temperature(logits, [0, 0, 1, 1]), 4)      # The exact value is 3 / log(3).
    2.7307
    """
    ranking = as_ranking(scores)
    index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device)
    return 1 / fit_scale(ranking, index, infer_score_type(ranking, score_type))


def resolve_scale(
    temperature: float | str | None, ranking: Ranking, index: Tensor, score_type: ScoreType
) -> float:
    """Return the inverse of a temperature, which is 1 for None and fitted for "auto"."""
    if temperature is None:
        return 1.0
    if isinstance(temperature, str):
        check_choice(temperature, "temperature", ("auto",))
        return fit_scale(ranking, index, score_type)
    if not check_non_negative(temperature, "temperature"):
        raise ValueError("temperature must be positive; got 0")
    return 1 / float(temperature)


def fit_scale(ranking: Ranking, index: Tensor, score_type: ScoreType) -> float:
    """Return the inverse temperature that maximizes the likelihood, for label indices."""
    group = current_group()
    only_listed = score_type == "logits" and not ranking.is_dense
    if only_listed:
        listed = torch.isfinite(ranking.rank_of(index))
        if not group.min(int(listed.sum())):
            return 1.0
        ranking, index = ranking[listed], index[listed]
    width = ranking.n_classes if ranking.is_dense else ranking.depth + 1
    stride = math.ceil(group.sum(len(ranking)) * width / MAX_SCORES)
    if stride > 1:
        ranking, index = ranking[::stride], index[::stride]
    blocks = list(row_blocks(len(ranking), width, ranking.device))
    logs = [log_columns(ranking, rows, score_type) for rows in blocks]
    if only_listed:
        logs = [block[:, :-1] for block in logs]
    target = target_columns(ranking, index)
    log_scale = _fit_log_scale(logs, [target[rows] for rows in blocks], ranking.device)
    limit = math.log(MAX_TEMPERATURE)
    if log_scale <= -limit:
        warn(
            "the scores carry almost no information about the labels: the best temperature exceeds "
            f"{MAX_TEMPERATURE:g}. Check that likely labels have high scores, and that "
            "classes=[...] names the columns in order"
        )
    return math.exp(min(max(log_scale, -limit), limit)) if math.isfinite(log_scale) else 1.0


def _fit_log_scale(logs: list[Tensor], targets: list[Tensor], device: torch.device) -> float:
    """Return log(scale) that maximizes the likelihood of `softmax(scale * logs)`.

    The likelihood includes the rows of all processes. This process can have no rows.
    """
    group = current_group()
    count = group.sum(sum(len(target) for target in targets))
    log_scale = torch.zeros((), dtype=torch.float64, device=device, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_scale], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), dtype=torch.float64, device=device)
        for block, target in zip(logs, targets, strict=True):
            scaled = log_scale.exp().to(block.dtype) * block
            nll = torch.nn.functional.cross_entropy(scaled, target, reduction="sum")
            part = nll.to(torch.float64) / count
            part.backward()  # type: ignore[no-untyped-call]
            total += part.detach()
        assert log_scale.grad is not None
        log_scale.grad = group.sum(log_scale.grad)
        return group.sum(total)

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return float(log_scale.detach())
