"""Compute probabilities and log-probabilities from scores of any type, at any temperature."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import float64_row_sums
from shortlist._utils.threads import map_blocks, scratch
from shortlist.ranking.ranked_rows import RankedRows
from shortlist.ranking.score_types import ScoreType

MIN_LOG_PROBA = -30.0
"""Smaller log-probabilities are raised to this one, so that they are finite for a network."""
PADDING_LOG_PROBA = -1e4
"""Log-probability of padding after a row's last candidate: no mass, at any temperature."""


def sorted_log_proba(
    rows: RankedRows, score_type: ScoreType, depth: int, scale: float = 1.0
) -> Tensor:
    """Return the log-probabilities of each row's first labels, and the log mass of all others.

    Parameters
    ----------
    rows : RankedRows
        Scores, such as a ranking.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores.
    depth : int
        Number of labels.
    scale : float, default=1.0
        Inverse temperature. It multiplies the logarithms before they are normalized again. The
        mass of all labels that are not candidates is scaled as that of one label.

    Returns
    -------
    Tensor of shape (n_rows, depth + 1)
        Log-probabilities, at least `MIN_LOG_PROBA`. The last column is the log mass of all other
        labels. Candidates with logits are normalized among themselves, and leave no mass for
        labels that are not candidates.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> ranking = Ranking.from_scores([[0.5, 0.25, 0.25]])
    >>> sorted_log_proba(ranking, "proba", 1).exp().tolist()
    [[0.5, 0.5]]
    >>> sorted_log_proba(ranking, "proba", 1, scale=2.0).exp().numpy().round(4).tolist()
    [[0.6667, 0.3333]]
    """
    if rows.is_dense and depth == rows.n_classes:
        log_p = log_proba_columns(rows.ascending_scores().flip(1), score_type, scale)
        return torch.nn.functional.pad(log_p, (0, 1), value=MIN_LOG_PROBA)
    labels, scores = rows.top(depth)
    scores = scores.to(_compute_dtype(scores.dtype))
    best = scores[:, :1] if score_type == "logits" else None
    log_p = torch.where(labels >= 0, _logarithms(scores, score_type, best, scale), -torch.inf)
    others = [
        _log_mass_of_others(
            rows, block, score_type, labels[block], None if best is None else best[block], scale
        )
        for block in rows.blocks()
    ]
    columns = torch.cat([log_p, torch.cat(others)], dim=1)
    if score_type == "logits" or scale != 1:
        columns -= _log_total(columns, rows)
    return columns.clamp_(min=MIN_LOG_PROBA, max=0)


def log_proba_columns(scores: Tensor, score_type: ScoreType, scale: float = 1.0) -> Tensor:
    """Return the log-probabilities of all classes, in the order of the columns.

    Parameters
    ----------
    scores : Tensor of shape (n_rows, n_classes)
        Scores of all classes, in any order.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores.
    scale : float, default=1.0
        Inverse temperature.

    Returns
    -------
    Tensor of shape (n_rows, n_classes)
        Log-probabilities, at least `MIN_LOG_PROBA`.

    Examples
    --------
    >>> log_proba_columns(torch.tensor([[0.25, 0.75]]), "proba", 2.0).exp().numpy().round(4)
    array([[0.1, 0.9]], dtype=float32)
    """
    scores = scores.to(_compute_dtype(scores.dtype))
    best = scores.amax(dim=1, keepdim=True) if score_type == "logits" else None
    logs = _logarithms(scores, score_type, best, scale)
    if score_type == "logits" or scale != 1:
        # Sums in float64 are the same after rounding for every order of the columns.
        top = 0 if best is not None else logs.amax(dim=1, keepdim=True)
        total = float64_row_sums((logs - top).exp_())
        logs = logs - (total.log_() + top).to(logs.dtype)
    return logs.clamp(min=MIN_LOG_PROBA, max=0)


def proba_columns(scores: Tensor, score_type: ScoreType, scale: float = 1.0) -> Tensor:
    """Return the probabilities of all classes, in the order of the columns.

    Parameters
    ----------
    scores : Tensor of shape (n_rows, n_classes)
        Scores of all classes, in any order.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores.
    scale : float, default=1.0
        Inverse temperature.

    Returns
    -------
    Tensor of shape (n_rows, n_classes)
        Probabilities, positive unless the scores are probabilities and `scale` is 1: those are
        returned unchanged.

    Examples
    --------
    >>> proba_columns(torch.tensor([[0.25, 0.75]]), "proba", 2.0)
    tensor([[0.1000, 0.9000]])
    """
    wide = scores.to(_compute_dtype(scores.dtype))
    if score_type == "proba" and scale == 1:
        return wide
    if score_type == "log_proba" and scale == 1:
        return log_proba_columns(scores, score_type).exp_()
    if not scores.is_cuda:
        return _softmax(wide, score_type, scale)
    if score_type != "logits":
        wide = _logarithms(wide, score_type, None, 1.0).clamp(min=MIN_LOG_PROBA)
    # Subtracting the maximum before scaling keeps the precision of large logits.
    p = wide if scale == 1 else (wide - wide.amax(dim=1, keepdim=True)).mul_(scale)
    return torch.softmax(p, dim=1).clamp_(min=math.exp(MIN_LOG_PROBA))


def _softmax(scores: Tensor, score_type: ScoreType, scale: float) -> Tensor:
    """Return positive probabilities, computed by blocks of rows that stay in the cache.

    NumPy computes logarithms, exponentials and sums faster than PyTorch, which is faster for the
    other operations.
    """
    result = torch.empty_like(scores, memory_format=torch.contiguous_format)
    map_blocks(
        lambda rows: _softmax_block(scores[rows], score_type, scale, result[rows]), *scores.shape
    )
    return result


def _softmax_block(scores: Tensor, score_type: ScoreType, scale: float, out: Tensor) -> None:
    """Write positive probabilities of rows that stay in the cache, perhaps over the scores."""
    center_logarithms(scores, score_type, out)
    if scale != 1:
        out.mul_(scale)
    array = out.numpy()
    # Logits far below the maximum underflow to zero, whatever the caller's NumPy settings.
    with np.errstate(over="ignore", under="ignore"):
        np.exp(array, out=array)
        # Sums in float64 are the same after rounding for every order of the columns. Unlike
        # PyTorch, NumPy does not copy the matrix to float64.
        total = torch.from_numpy(array.sum(axis=1, keepdims=True, dtype=np.float64))
    out.mul_(total.reciprocal_().to(out.dtype)).clamp_(min=math.exp(MIN_LOG_PROBA))


def center_logarithms(scores: Tensor, score_type: ScoreType, out: Tensor) -> None:
    """Write the logarithms of dense scores on a CPU, minus the largest of their row.

    Parameters
    ----------
    scores : Tensor of shape (n_rows, n_classes)
        Scores of all classes, in float32 or float64.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores. Logarithms of probabilities are at least `MIN_LOG_PROBA`.
    out : Tensor of shape (n_rows, n_classes)
        Contiguous result of the same type, which can be `scores`.
    """
    if score_type == "proba":
        torch.clamp(scores, min=math.exp(MIN_LOG_PROBA), out=out)
        with np.errstate(over="ignore", under="ignore"):
            np.log(out.numpy(), out=out.numpy())  # Faster than PyTorch.
        scores = out
    elif score_type == "log_proba":
        scores = torch.clamp(scores, min=MIN_LOG_PROBA, out=out)
    torch.sub(scores, scores.amax(dim=1, keepdim=True), out=out)


def proba_and_sums(
    rows: RankedRows, score_type: ScoreType, scale: float
) -> tuple[Tensor, Tensor | float | None]:
    """Return the probabilities of all classes of dense rows, and the sum of each row if known.

    Parameters
    ----------
    rows : RankedRows
        Dense scores.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores.
    scale : float
        Inverse temperature.

    Returns
    -------
    p : Tensor of shape (n_rows, n_classes)
        Probabilities.
    sums : Tensor of shape (n_rows,), float or None
        Sum of each row, one number if it is the same for all rows, or None if it is unknown.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> proba_and_sums(Ranking.from_scores([[0.0, 0.0]]), "logits", 1.0)
    (tensor([[0.5000, 0.5000]], dtype=torch.float64), 1.0)
    """
    p = proba_columns(rows.scores_of(slice(None)), score_type, scale)
    return p, proba_sums(rows, score_type, scale)


def proba_sums(rows: RankedRows, score_type: ScoreType, scale: float) -> Tensor | float | None:
    """Return the sum of the probabilities of each row; see `proba_and_sums`."""
    if score_type == "logits" or scale != 1:  # The probabilities were normalized.
        return 1.0
    return rows.known_row_sums if score_type == "proba" else None


class ProbaColumns:
    """The probabilities of all classes of dense rows on a CPU, computed where they are indexed.

    Parameters
    ----------
    rows : RankedRows
        Dense scores.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores.
    scale : float
        Inverse temperature.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> ProbaColumns(Ranking.from_scores([[0.0, 0.0], [1.0, 1.0]]), "logits", 1.0)[1:]
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """

    def __init__(self, rows: RankedRows, score_type: ScoreType, scale: float) -> None:
        self._rows, self._score_type, self._scale = rows, score_type, scale
        self.shape, self.dtype = rows.shape, _compute_dtype(rows.dtype)

    def __getitem__(self, rows: slice) -> Tensor:
        return proba_columns(self._rows.scores_of(rows), self._score_type, self._scale)

    def block(self, rows: slice) -> Tensor:
        """Return the same probabilities, in memory that the thread's next block may overwrite.

        The operating system would clear memory that is allocated anew for each block.
        """
        if (self._scale == 1 and self._score_type != "logits") or self.dtype != self._rows.dtype:
            return self[rows]
        result = scratch(rows.stop - rows.start, self.shape[1], self.dtype)
        scores = self._rows.copy_scores(rows, result)
        _softmax_block(scores, self._score_type, self._scale, result)
        return result


def log_columns(rows: RankedRows, block: slice, score_type: ScoreType) -> Tensor:
    """Return the logarithms of all scores of some rows, not normalized.

    Parameters
    ----------
    rows : RankedRows
        Scores, such as a ranking.
    block : slice
        Rows to return.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores. Logits are returned minus the maximum of their row.

    Returns
    -------
    Tensor of shape (n_rows, n_classes), or (n_rows, depth + 1) for candidates
        Dense scores by column. Candidates from the best to the last, then the log mass of all
        other labels. Log-probabilities are at least `MIN_LOG_PROBA`; padding is
        `PADDING_LOG_PROBA`.

    Examples
    --------
    >>> from shortlist import Ranking
    >>> ranking = Ranking.from_candidates([[4, 2]], [[0.5, 0.25]], n_classes=9)
    >>> log_columns(ranking, slice(0, 1), "proba").exp().tolist()
    [[0.5, 0.25, 0.25]]
    """
    scores = rows.scores_of(block)
    scores = scores.to(_compute_dtype(scores.dtype))
    best = scores.amax(dim=1, keepdim=True) if score_type == "logits" else None
    logs = _logarithms(scores, score_type, best, 1.0)
    if score_type != "logits":
        logs = logs.clamp(min=MIN_LOG_PROBA)
    if rows.is_dense:
        return logs
    others = _log_unlisted(scores, score_type).clamp_(min=MIN_LOG_PROBA)
    return torch.cat([logs.masked_fill(scores == -torch.inf, PADDING_LOG_PROBA), others], dim=1)


def target_columns(rows: RankedRows, index: Tensor) -> Tensor:
    """Return the column of each row's label in the result of `log_columns`."""
    if rows.is_dense:
        return index
    return rows.rank_of(index).clamp(max=rows.depth).to(torch.int64)


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type to compute in: float64 for float64, float32 for narrower types."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _logarithms(scores: Tensor, score_type: ScoreType, best: Tensor | None, scale: float) -> Tensor:
    """Return scores as logarithms times `scale`, up to a constant for each row.

    `best` is the largest logit of each row, which is subtracted so that exponentials are finite.
    """
    if score_type == "proba":
        scores = scores.clamp(min=0).log()
    elif best is not None:
        scores = scores - best
    if scale == 1:
        return scores  # The caller raises the logarithm of zero to the floor, after summing.
    # Scaling the logarithm of zero needs a floor first. Logits have no zero, and keep their range.
    return (scores if best is not None else scores.clamp(min=MIN_LOG_PROBA)) * scale


def _log_unlisted(scores: Tensor, score_type: ScoreType) -> Tensor:
    """Return the log mass of the labels that are not candidates; -inf for logits."""
    if score_type == "logits":
        return scores.new_full((len(scores), 1), -torch.inf)
    masses = scores.clamp(min=0) if score_type == "proba" else scores.exp()
    return (1 - masses.cumsum(dim=1)[:, -1:]).clamp_(min=0).log()


def _log_total(columns: Tensor, rows: RankedRows) -> Tensor:
    """Return the logarithm of the sum of each row's exponentials.

    Those of candidates are added one after the other. The result then does not depend on the
    padding, and so not on the largest number of candidates in the batch.
    """
    if rows.is_dense:
        return columns.logsumexp(dim=1, keepdim=True)
    return columns.logcumsumexp(dim=1)[:, -1:]


def _log_mass_of_others(
    rows: RankedRows,
    block: slice,
    score_type: ScoreType,
    labels: Tensor,
    best: Tensor | None,
    scale: float,
) -> Tensor:
    """Return the log mass of all labels of some rows but the first ones, `labels`.

    The scores of the others are added. Subtracting those of the first labels from one would leave
    only rounding errors where a classifier is certain.
    """
    given = rows.scores_of(block)
    scores = given.to(_compute_dtype(given.dtype), copy=True)
    unlisted = None if rows.is_dense else _log_unlisted(scores, score_type)
    padding = None if rows.is_dense else scores == -torch.inf
    if score_type == "proba" and scale == 1:
        if rows.is_dense:
            scores.scatter_(1, labels.to(torch.int64), 0)
        else:
            scores[:, : labels.shape[1]] = 0
            scores = scores.clamp(min=0).cumsum(dim=1)[:, -1:]
        others = scores.clamp_(min=0).sum(dim=1, keepdim=True).log()
    else:
        logs = _logarithms(scores, score_type, best, scale)
        if rows.is_dense:
            logs = logs.scatter(1, labels.to(torch.int64), -torch.inf)
        else:
            logs = logs.masked_fill(padding, -torch.inf)  # type: ignore[arg-type]
            logs[:, : labels.shape[1]] = -torch.inf
        others = _log_total(logs, rows)
    if unlisted is None:
        return others
    if score_type != "logits":
        unlisted = _logarithms(unlisted, "log_proba", None, scale)
    # The rounding of logaddexp would depend on the position of a row in the batch.
    return torch.cat([others, unlisted], dim=1).logsumexp(dim=1, keepdim=True)
