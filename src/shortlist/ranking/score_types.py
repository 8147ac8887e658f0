"""Decide whether scores are logits, probabilities or log-probabilities.

A predictor decides once, in `fit`, and reads later scores in the same way.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from shortlist._utils.arrays import float64_row_sums
from shortlist._utils.validation import check_choice
from shortlist._utils.warnings import warn
from shortlist.ranking.ranked_rows import RankedRows

ScoreType: TypeAlias = Literal["logits", "proba", "log_proba"]
SCORE_TYPES = ("auto", "logits", "proba", "log_proba")
SCORE_RANGES = {
    "logits": (-math.inf, math.inf),
    "proba": (0.0, 1.0),
    "log_proba": (-math.inf, 0.0),
}
"""Smallest and largest possible score of each type."""
MIN_UNLIKELY_CLASSES = 3
"""With fewer classes, logits can be positive and sum to one by chance."""
NEAR_PROBA_TOLERANCE = 0.2
"""Positive scores whose rows sum to one within this tolerance are probably probabilities."""


def infer_score_type(rows: RankedRows, declared: str = "auto") -> ScoreType:
    """Return the type of the scores.

    Parameters
    ----------
    rows : RankedRows
        Scores, such as a ranking.
    declared : {"auto", "logits", "proba", "log_proba"}, default="auto"
        The type that the user declared. With "auto", all rows decide: values in [0, 1] that sum to
        one (for candidates: to at most one) are probabilities, values whose exponentials do so
        are log-probabilities, and all others are logits.

    Returns
    -------
    {"logits", "proba", "log_proba"}

    Raises
    ------
    ValueError
        If `declared` is unknown, or the scores cannot be of that type.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> infer_score_type(Ranking.from_scores([[0.25, 0.75]]))
    'proba'
    >>> infer_score_type(Ranking.from_scores([[2, 3]]))
    'logits'
    """
    check_choice(declared, "score_type", SCORE_TYPES)
    if declared != "auto":
        _check_range(rows, declared)
        return declared  # type: ignore[return-value]
    if _are_proba(rows):
        return "proba"
    if _are_log_proba(rows):
        return "log_proba"
    _warn_if_almost_proba(rows)
    return "logits"


def check_score_type(rows: RankedRows, score_type: ScoreType) -> None:
    """Check that new scores can be of the type that was inferred in `fit`.

    Parameters
    ----------
    rows : RankedRows
        New scores.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores in `fit`.

    Raises
    ------
    ValueError
        If a score is outside the range of the type. Logits have no range: if the scores look like
        probabilities, a warning is issued.
    """
    if score_type == "logits" and _look_like_proba(rows):
        warn(
            "fit saw logits, but these scores look like probabilities; give the same type of "
            "scores as at fit"
        )
    outside = _bounds_outside_range(rows, score_type)
    if outside is not None:
        raise ValueError(
            f"fit saw scores of type {score_type!r}, but these run from {outside[0]:.4g} to "
            f"{outside[1]:.4g}; give the same type of scores as at fit"
        )


def _are_proba(rows: RankedRows) -> bool:
    """Return whether all scores are in [0, 1] and all rows sum to one."""
    slack = _slack(rows.dtype)
    if rows.is_dense and rows.bounds is not None:
        low, high = rows.bounds
        return low >= 0 and high <= 1 + slack and _are_one(rows.row_sums(), slack, exact=True)
    for block_rows in rows.blocks():
        block = _in_float32(rows.scores_of(block_rows))
        if not rows.is_dense:
            block = torch.where(block == -torch.inf, 0, block)
        low, high = (float(value) for value in torch.aminmax(block))
        if low < 0 or high > 1 + slack or not _are_one(block.sum(dim=1), slack, rows.is_dense):
            return False
    return True


def _are_log_proba(rows: RankedRows) -> bool:
    """Return whether the exponentials of all scores are probabilities."""
    slack = _slack(rows.dtype)
    if rows.bounds is not None and rows.bounds[1] > slack:
        return False
    for block_rows in rows.blocks():
        block = _in_float32(rows.scores_of(block_rows))
        if float(block.max()) > slack or not _are_one(block.exp().sum(dim=1), slack, rows.is_dense):
            return False
    return True


def _in_float32(scores: Tensor) -> Tensor:
    """Return scores in float32, or in float64 if they are."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _slack(dtype: torch.dtype) -> float:
    """Return the largest rounding error of a sum of 1,000 probabilities."""
    return 2e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-3


def _are_one(sums: Tensor, slack: float, exact: bool) -> bool:
    """Return whether all sums are one (or at most one, if not `exact`), up to rounding."""
    excess = sums - 1
    return bool(((excess.abs() if exact else excess) <= slack).all())


def _warn_if_almost_proba(rows: RankedRows) -> None:
    """Warn if logits could be probabilities that were rounded or clipped."""
    if not rows.is_dense:
        return
    smallest_sum = largest_sum = 1.0
    for block_rows in rows.blocks():
        block = rows.scores_of(block_rows)
        low, high = (float(value) for value in torch.aminmax(block))
        sums = torch.aminmax(float64_row_sums(block))
        smallest_sum = min(smallest_sum, float(sums.min))
        largest_sum = max(largest_sum, float(sums.max))
        if low < 0 or high > 1 or max(1 - smallest_sum, largest_sum - 1) > NEAR_PROBA_TOLERANCE:
            return
    warn(
        f"the scores lie between 0 and 1, and rows sum to {smallest_sum:.3g} to {largest_sum:.3g}: "
        'they are treated as logits; if they are probabilities, set score_type="proba"'
    )


def _look_like_proba(rows: RankedRows) -> bool:
    """Return whether scores are probabilities of more classes than is likely by chance."""
    if not rows.is_dense or rows.n_classes < MIN_UNLIKELY_CLASSES:
        return False
    first = rows.scores_of(slice(0, 1))
    # Most logits are recognized by their first row alone.
    return bool((first >= 0).all()) and infer_score_type(rows) == "proba"


def _check_range(rows: RankedRows, declared: str) -> None:
    """Raise if scores cannot be of the declared type."""
    outside = _bounds_outside_range(rows, declared)
    if outside is not None:
        least, most = SCORE_RANGES[declared]
        raise ValueError(
            f"score_type = {declared!r}, but the scores run from {outside[0]:.4g} to "
            f"{outside[1]:.4g}; {declared} lies between {least:g} and {most:g}. "
            + (
                "Divide percentages by 100"
                if declared == "proba" and outside[0] >= 0
                else 'Set score_type="auto" to infer the type'
            )
        )


def _bounds_outside_range(rows: RankedRows, score_type: str) -> tuple[float, float] | None:
    """Return the bounds of a block of scores that cannot be of a type, or None."""
    least, most = SCORE_RANGES[score_type]
    if most == math.inf:
        return None  # Any score is a logit.
    slack = _slack(rows.dtype)
    if rows.bounds is not None:
        outside = rows.bounds[0] < least - slack or rows.bounds[1] > most + slack
        return rows.bounds if outside else None
    for block_rows in rows.blocks():
        block = rows.scores_of(block_rows)
        scores = block if rows.is_dense else block[block > -torch.inf]
        low, high = (float(value) for value in torch.aminmax(scores))
        if low < least - slack or high > most + slack:
            return low, high
    return None
