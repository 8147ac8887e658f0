"""What scores are: probabilities, their logarithms, or logits; and each as log-probabilities.

The question is answered once, at fit, and the answer is kept: a later batch that happens to look
like something else is read in the same way.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import float64_row_sums
from shortlist._utils.blocks import CACHED_ELEMENTS, row_blocks
from shortlist._utils.threads import run_in_threads
from shortlist._utils.validation import check_choice
from shortlist._utils.warnings import warn


class ScoredRows(Protocol):
    """The part of a `Ranking` that probabilities are computed from."""

    depth: int
    bounds: tuple[float, float] | None
    known_masses: Tensor | None

    @property
    def n_classes(self) -> int:
        """Number of classes."""

    @property
    def is_dense(self) -> bool:
        """Whether every class has a score."""

    def blocks(self) -> list[slice]:
        """Return blocks of rows that fit into the cache."""

    def scores_of(self, rows: slice) -> Tensor:
        """Return all scores of some rows."""

    def top(self, depth: int) -> tuple[Tensor, Tensor]:
        """Return the first labels of each row and their scores."""

    def sorted_scores(self) -> Tensor:
        """Return all scores of each row, in decreasing order."""

    def masses(self) -> Tensor:
        """Return the sum of each row."""

    def rank_of(self, index: Tensor) -> Tensor:
        """Return the rank of each row's label."""


ScoreType: TypeAlias = Literal["logits", "proba", "log_proba"]
SCORE_TYPES = ("auto", "logits", "proba", "log_proba")
LEAST_LOG_PROBA = -30.0
"""Log-probabilities are floored here, so that a probability of zero is a finite input."""
SURELY_NOT_BY_CHANCE = 3
"""With fewer classes, logits may well be positive and sum to one."""
ALMOST = 0.2
"""Positive scores whose rows sum to one but for this much are probably probabilities."""
NOT_LISTED = -1e4
"""The logarithm of a place in a list of candidates that has ended: nothing, at any temperature."""


def infer_score_type(ranking: ScoredRows, declared: str = "auto") -> ScoreType:
    """What the scores are.

    "auto" decides from all rows: values in [0, 1] that sum to one (for candidates: to at most
    one) are probabilities, values whose exponentials do so log-probabilities, all else logits.

    >>> from shortlist import Ranking
    >>> infer_score_type(Ranking.from_scores([[0.25, 0.75]]))
    'proba'
    >>> infer_score_type(Ranking.from_scores([[2, 3]]))
    'logits'
    """
    check_choice(declared, "score_type", SCORE_TYPES)
    if declared != "auto":
        _check_range(ranking, declared)
        return declared  # type: ignore[return-value]
    proba = log_proba = True
    if ranking.bounds is not None:
        slack = _slack(ranking.scores_of(slice(0, 1)).dtype)
        low, high = ranking.bounds
        proba, log_proba = low >= 0 and high <= 1 + slack, high <= slack
        if proba and ranking.is_dense and not log_proba:
            proba = _are_one(ranking.masses(), slack, True)
            if proba:
                return "proba"
    for rows in ranking.blocks() if proba or log_proba else ():
        block = ranking.scores_of(rows)
        slack = _slack(block.dtype)
        block = block.to(torch.promote_types(block.dtype, torch.float32))
        if ranking.bounds is None:
            low, high = (float(v) for v in torch.aminmax(block))
        if proba:
            listed = block
            if not ranking.is_dense:
                listed = torch.where(block == -torch.inf, 0, block)
                low = float(listed.min())
            proba = low >= 0 and high <= 1 + slack
            proba = proba and _are_one(listed.sum(dim=1), slack, ranking.is_dense)
        if log_proba:
            log_proba = high <= slack and _are_one(block.exp().sum(dim=1), slack, ranking.is_dense)
        if not (proba or log_proba):
            break
    if not (proba or log_proba):
        _warn_if_almost_proba(ranking)
        return "logits"
    return "proba" if proba else "log_proba"


def _warn_if_almost_proba(ranking: ScoredRows) -> None:
    """Say so if logits could well be probabilities that were rounded, or clipped."""
    if not ranking.is_dense:
        return
    low = high = 1.0
    for rows in ranking.blocks():
        block = ranking.scores_of(rows)
        least, most = torch.aminmax(block)
        sums = torch.aminmax(float64_row_sums(block))
        low, high = min(low, float(sums.min)), max(high, float(sums.max))
        if float(least) < 0 or float(most) > 1 or max(1 - low, high - 1) > ALMOST:
            return
    warn(
        f"the scores lie between 0 and 1, and rows sum to {low:.3g} to {high:.3g}: they are taken "
        'for logits; if they are probabilities, say score_type="proba"'
    )


_RANGE = {"proba": (0.0, 1.0), "log_proba": (-math.inf, 0.0)}


def check_score_type(ranking: ScoredRows, score_type: ScoreType) -> None:
    """Raise if scores cannot be of the score_type that fit saw; warn if it is hardly so."""
    if score_type == "logits" and _are_proba(ranking):
        warn(
            "fit saw logits, but these scores look like probabilities; give the same type of "
            "scores as at fit"
        )
    found = _out_of_range(ranking, score_type)
    if found is not None:
        raise ValueError(
            f"fit saw scores of type {score_type!r}, but these run from {found[0]:.4g} to "
            f"{found[1]:.4g}; give the same type of scores as at fit"
        )


def _are_proba(ranking: ScoredRows) -> bool:
    """Whether all rows are probabilities, of so many classes that it can be no accident."""
    if not ranking.is_dense or ranking.n_classes < SURELY_NOT_BY_CHANCE:
        return False
    first = ranking.scores_of(slice(0, 1))
    # Most logits are told apart by their first row alone.
    return bool((first >= 0).all()) and infer_score_type(ranking) == "proba"


def _check_range(ranking: ScoredRows, declared: str) -> None:
    """Raise if scores cannot be what they are said to be."""
    found = _out_of_range(ranking, declared)
    if found is not None:
        least, most = _RANGE[declared]
        raise ValueError(
            f"score_type = {declared!r}, but the scores run from {found[0]:.4g} to "
            f"{found[1]:.4g}; {declared} lies between {least:g} and {most:g}. "
            + (
                "Divide percentages by 100"
                if declared == "proba" and found[0] >= 0
                else 'Leave it to score_type="auto"?'
            )
        )


def _out_of_range(ranking: ScoredRows, score_type: str) -> tuple[float, float] | None:
    """The least and the largest score of a block that cannot be of this score_type."""
    if score_type not in _RANGE:
        return None
    least, most = _RANGE[score_type]
    if ranking.bounds is not None:
        slack = _slack(ranking.scores_of(slice(0, 1)).dtype)
        outside = ranking.bounds[0] < least - slack or ranking.bounds[1] > most + slack
        return ranking.bounds if outside else None
    for rows in ranking.blocks():
        block = ranking.scores_of(rows)
        listed = block if ranking.is_dense else block[block > -torch.inf]
        low, high = (float(v) for v in torch.aminmax(listed))
        if low < least - _slack(block.dtype) or high > most + _slack(block.dtype):
            return low, high
    return None


def _slack(dtype: torch.dtype) -> float:
    """By how much rounding can spoil a sum of 1,000 probabilities."""
    return 2e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-3


def _are_one(masses: Tensor, slack: float, exactly: bool) -> bool:
    gap = masses - 1
    return bool(((gap.abs() if exactly else gap) <= slack).all())


def sorted_log_proba(
    ranking: ScoredRows, score_type: ScoreType, depth: int, scale: float = 1.0
) -> Tensor:
    """Log-probabilities of the `depth` best labels of each row, then the log mass of all others.

    Shape (rows, depth + 1), floored at `LEAST_LOG_PROBA`. Candidates given as logits are
    normalised over their list, so that nothing is left for the others. `scale`, an inverse
    temperature, multiplies the logarithms before they are normalised again; what a list of
    candidates leaves out is one label to it.

    >>> from shortlist import Ranking
    >>> r = Ranking.from_scores([[0.5, 0.25, 0.25]])
    >>> sorted_log_proba(r, "proba", 1).exp().tolist()
    [[0.5, 0.5]]
    >>> sorted_log_proba(r, "proba", 1, scale=2.0).exp().numpy().round(4).tolist()
    [[0.6667, 0.3333]]
    """
    if ranking.is_dense and depth == ranking.n_classes:
        every = log_proba_columns(ranking.sorted_scores(), score_type, scale)
        return torch.nn.functional.pad(every, (0, 1), value=LEAST_LOG_PROBA)
    labels, scores = ranking.top(depth)
    scores = scores.to(_working(scores.dtype))
    best = scores[:, :1] if score_type == "logits" else None  # counted from the best: none is large
    log_p = torch.where(labels >= 0, _logarithms(scores, score_type, best, scale), -torch.inf)
    rest = [
        _log_rest(
            ranking, rows, score_type, labels[rows], None if best is None else best[rows], scale
        )
        for rows in ranking.blocks()
    ]
    columns = torch.cat([log_p, torch.cat(rest)], dim=1)
    if score_type == "logits" or scale != 1:
        columns -= _log_total(columns, ranking)
    return columns.clamp_(min=LEAST_LOG_PROBA, max=0)


def log_proba_columns(scores: Tensor, score_type: ScoreType, scale: float = 1.0) -> Tensor:
    """Log-probabilities of all classes, floored, in whatever order the columns are.

    >>> log_proba_columns(torch.tensor([[0.25, 0.75]]), "proba", 2.0).exp().numpy().round(4)
    array([[0.1, 0.9]], dtype=float32)
    """
    scores = scores.to(_working(scores.dtype))
    best = scores.amax(dim=1, keepdim=True) if score_type == "logits" else None
    logs = _logarithms(scores, score_type, best, scale)
    if score_type == "logits" or scale != 1:
        # Summed in float64, so that the order of the columns makes no difference after rounding.
        top = 0 if best is not None else logs.amax(dim=1, keepdim=True)
        total = float64_row_sums((logs - top).exp_())
        logs = logs - (total.log_() + top).to(logs.dtype)
    return logs.clamp(min=LEAST_LOG_PROBA, max=0)


def proba_columns(scores: Tensor, score_type: ScoreType, scale: float = 1.0) -> Tensor:
    """Probabilities of all classes, in whatever order the columns are. Those that came in as such
    are left as they are.

    >>> proba_columns(torch.tensor([[0.25, 0.75]]), "proba", 2.0)
    tensor([[0.1000, 0.9000]])
    """
    wide = scores.to(_working(scores.dtype))
    if score_type == "proba" and scale == 1:
        return wide
    if score_type != "logits":
        return log_proba_columns(scores, score_type, scale).exp_()
    if not scores.is_cuda:
        return torch.from_numpy(_softmax(wide.numpy(), scale))
    # Counted from the best before they are scaled: large logits lose nothing by it.
    p = wide if scale == 1 else (wide - wide.amax(dim=1, keepdim=True)).mul_(scale)
    return torch.softmax(p, dim=1).clamp_(min=math.exp(LEAST_LOG_PROBA))


def _softmax(scores: NDArray[Any], scale: float) -> NDArray[Any]:
    """Probabilities from logits, none of them zero. A few rows after the other, which stay in cache
    through all steps: faster than step by step."""
    found = np.empty_like(scores)

    def work(part: slice) -> None:
        for few in row_blocks(part.stop - part.start, scores.shape[1], elements=CACHED_ELEMENTS):
            rows = slice(part.start + few.start, part.start + few.stop)
            p = found[rows]
            # Counted from the best before they are scaled: large logits lose nothing by it.
            np.subtract(scores[rows], scores[rows].max(axis=1, keepdims=True), out=p)
            if scale != 1:
                p *= scale
            np.exp(p, out=p)
            # Summed in float64, so that the order of the columns makes no difference.
            p *= (1 / p.sum(axis=1, keepdims=True, dtype=np.float64)).astype(p.dtype)
            np.maximum(p, math.exp(LEAST_LOG_PROBA), out=p)

    def quietly(part: slice) -> None:
        with np.errstate(over="ignore", under="ignore"):  # what is far below the best is nothing
            work(part)

    run_in_threads(quietly, len(scores), scores.size)
    return found


def every_proba(
    ranking: ScoredRows, score_type: ScoreType, scale: float
) -> tuple[Tensor, Tensor | float | None]:
    """The probabilities of all classes of a dense ranking, and the sum of each row, if it is known.

    >>> from shortlist import Ranking
    >>> every_proba(Ranking.from_scores([[0.0, 0.0]]), "logits", 1.0)
    (tensor([[0.5000, 0.5000]], dtype=torch.float64), 1.0)
    """
    p = proba_columns(ranking.scores_of(slice(None)), score_type, scale)
    if score_type == "proba" and scale == 1:
        return p, ranking.known_masses
    return p, 1.0 if score_type == "logits" else None


def log_columns(ranking: ScoredRows, rows: slice, score_type: ScoreType) -> Tensor:
    """Logarithms of all scores of some rows; probabilities are floored at `LEAST_LOG_PROBA`.

    (rows, classes) by column if dense; else (rows, depth + 1), best first, with the log mass of
    all others last. Logits are not normalised, but counted from the best.

    >>> from shortlist import Ranking
    >>> r = Ranking.from_candidates([[4, 2]], [[0.5, 0.25]], n_classes=9)
    >>> log_columns(r, slice(0, 1), "proba").exp().tolist()
    [[0.5, 0.25, 0.25]]
    """
    block = ranking.scores_of(rows)
    block = block.to(_working(block.dtype))
    best = block.amax(dim=1, keepdim=True) if score_type == "logits" else None
    logs = _logarithms(block, score_type, best, 1.0)
    if score_type != "logits":
        logs = logs.clamp(min=LEAST_LOG_PROBA)
    if ranking.is_dense:
        return logs
    others = _log_unlisted(block, score_type).clamp_(min=LEAST_LOG_PROBA)
    return torch.cat([logs.masked_fill(block == -torch.inf, NOT_LISTED), others], dim=1)


def target_columns(ranking: ScoredRows, index: Tensor) -> Tensor:
    """The column of `log_columns` that each row's label has."""
    if ranking.is_dense:
        return index
    return ranking.rank_of(index).clamp(max=ranking.depth).to(torch.int64)


def _working(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _logarithms(scores: Tensor, score_type: ScoreType, best: Tensor | None, scale: float) -> Tensor:
    """Scores as logarithms, up to a constant of the row, times `scale`."""
    if score_type == "proba":
        scores = scores.clamp(min=0).log()
    elif best is not None:
        scores = scores - best
    # Where nothing is scaled, a probability of zero stays one until it is written down; logits
    # have no zero, and any range.
    if scale == 1:
        return scores
    return (scores if best is not None else scores.clamp(min=LEAST_LOG_PROBA)) * scale


def _log_unlisted(block: Tensor, score_type: ScoreType) -> Tensor:
    """Log mass of what a list of candidates leaves out; nothing if they are logits."""
    if score_type == "logits":
        return block.new_full((len(block), 1), -torch.inf)
    listed = block.clamp(min=0) if score_type == "proba" else block.exp()
    return (1 - listed.cumsum(dim=1)[:, -1:]).clamp_(min=0).log()


def _log_total(columns: Tensor, ranking: ScoredRows) -> Tensor:
    """The logarithm of each row's sum. Those of candidates are added one after the other, so that
    the length of the longest list in the batch, and with it the padding, makes no difference."""
    if ranking.is_dense:
        return columns.logsumexp(dim=1, keepdim=True)
    return columns.logcumsumexp(dim=1)[:, -1:]


def _log_rest(
    ranking: ScoredRows,
    rows: slice,
    score_type: ScoreType,
    labels: Tensor,
    best: Tensor | None,
    scale: float,
) -> Tensor:
    """Log mass of the scores after the first few (`labels`), summed: 1 minus the others would
    leave nothing but rounding where a classifier is sure."""
    given = ranking.scores_of(rows)
    block = given.to(_working(given.dtype), copy=True)
    unlisted = None if ranking.is_dense else _log_unlisted(block, score_type)
    padding = None if ranking.is_dense else block == -torch.inf
    if score_type == "proba" and scale == 1:
        if ranking.is_dense:
            block.scatter_(1, labels.to(torch.int64), 0)
        else:
            block[:, : labels.shape[1]] = 0
            block = block.clamp(min=0).cumsum(dim=1)[:, -1:]
        rest = block.clamp_(min=0).sum(dim=1, keepdim=True).log()
    else:
        block = _logarithms(block, score_type, best, scale)
        if ranking.is_dense:
            block = block.scatter(1, labels.to(torch.int64), -torch.inf)
        else:
            block = block.masked_fill(padding, -torch.inf)  # type: ignore[arg-type]
            block[:, : labels.shape[1]] = -torch.inf
        rest = _log_total(block, ranking)
    if unlisted is None:
        return rest
    if score_type != "logits":
        unlisted = _logarithms(unlisted, "log_proba", None, scale)
    # Not by logaddexp, whose rounding depends on a row's place in the batch.
    return torch.cat([rest, unlisted], dim=1).logsumexp(dim=1, keepdim=True)
