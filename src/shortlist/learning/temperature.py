"""Temperature scaling, which calibrates the probabilities of a classifier by one parameter."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.blocks import CACHED_ELEMENTS, row_blocks
from shortlist._utils.threads import map_in_threads, scratch
from shortlist._utils.validation import check_choice, check_non_negative
from shortlist._utils.warnings import warn
from shortlist.learning.process_group import current_group
from shortlist.ranking import Ranking, as_ranking
from shortlist.ranking.class_names import name_classes
from shortlist.ranking.probabilities import center_logarithms, log_columns, target_columns
from shortlist.ranking.score_types import ScoreType, infer_score_type

MAX_TEMPERATURE = 100.0
"""Temperatures are limited to the range from 1 / MAX_TEMPERATURE to MAX_TEMPERATURE. If every top
label is the true label, the likelihood is largest at temperature 0."""
MAX_SCORES = 1 << 23
"""Maximum number of scores in a fit. Of larger inputs, a random sample of the rows is used."""
MAX_STANDARD_ERROR = 0.005
"""Standard error of the logarithm of the temperature below which further rows are not used."""
PILOT_ROWS = 1000
"""Number of rows that determine how many rows are needed."""
TOLERANCE = 1e-3
"""Length of the last step of Newton's method on the logarithm of the temperature. The error after a
step is about the square of its length."""
SAMPLE_TOLERANCE = 0.02
"""The same for a sample of the rows, whose first guess is that of other rows. The error after the
last step is much smaller than `MAX_STANDARD_ERROR`."""
MAX_STEPS = 60
MAX_LOG_SCALE = math.log(MAX_TEMPERATURE)

Result = TypeVar("Result")
LogBlock: TypeAlias = tuple[Tensor, Tensor]
"""Logarithms of some rows minus the largest of their row, and those of the labels (float64)."""


def fit_temperature(
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    score_type: str = "auto",
    *,
    classes: ArrayLike | None = None,
) -> float:
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
    classes : array-like of shape (n_classes,), optional
        Labels of the columns. By default, the names of the columns of a frame, or those of the
        ranking; labels of other scores that are no integers are taken in sorted order.

    Returns
    -------
    float
        The temperature. A value above 1 means that the classifier is over-confident.

    Notes
    -----
    For ranked candidates, the probabilities have one more column, which stands for all labels that
    are not listed. If the scores are logits, this column has no probability, and rows whose true
    label is not listed are ignored.

    Of many rows, a random sample is used that makes the standard error of the temperature about
    0.5% (and of at most 2^23 scores). The error of m rows is that of a maximum-likelihood estimator
    without the assumption that the model is right: the root of ``V / m``, where ``V`` is the mean
    square of the derivative of a row's log-likelihood by log T, over the square of the mean second
    derivative (the Fisher information). 1,000 rows estimate ``V``. The sample depends on the number
    of rows alone, and the result does not depend on the number of threads.

    Examples
    --------
    >>> logits = torch.tensor([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 0.0]])
    >>> round(fit_temperature(logits, [0, 0, 1, 1]), 4)      # The exact value is 3 / log(3).
    2.7307
    """
    ranking = name_classes(as_ranking(scores), y, classes)
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
    rows = group.sum(len(ranking))
    log_scale, used = 0.0, min(1.0, MAX_SCORES / (rows * width))
    tolerance = TOLERANCE
    order = np.random.default_rng(0).permutation(len(ranking))

    def likelihood(share: float) -> _Likelihood:
        rows = torch.from_numpy(np.sort(order[: math.ceil(share * len(ranking))]))
        return _Likelihood(ranking, index, rows.to(ranking.device), score_type, only_listed)

    if used * rows > 2 * PILOT_ROWS:
        pilot = likelihood(PILOT_ROWS / rows)
        log_scale = _maximize(pilot, log_scale, SAMPLE_TOLERANCE)
        needed = pilot.variance(log_scale) / MAX_STANDARD_ERROR**2
        if math.isfinite(needed):
            tolerance = SAMPLE_TOLERANCE
            used = min(used, max(needed, PILOT_ROWS) / rows)
    log_scale = _maximize(likelihood(used), log_scale, tolerance)
    if log_scale <= -MAX_LOG_SCALE:
        warn(
            "the scores carry almost no information about the labels: the best temperature exceeds "
            f"{MAX_TEMPERATURE:g}. Check that likely labels have high scores, and that "
            "classes=[...] names the columns in order"
        )
    return math.exp(log_scale)


class _Likelihood:
    """The log-likelihood of `softmax(scale * logs)` for the rows of all processes.

    Parameters
    ----------
    ranking : Ranking
        Rows of this process.
    index : Tensor of shape (n_rows,)
        Label indices.
    sample : Tensor of int
        Rows to use, at least one.
    score_type : {"logits", "proba", "log_proba"}
        Type of the scores.
    only_listed : bool
        Whether labels that are not listed have no probability.
    """

    def __init__(
        self,
        ranking: Ranking,
        index: Tensor,
        sample: Tensor,
        score_type: ScoreType,
        only_listed: bool,
    ) -> None:
        self.device = ranking.device
        width = ranking.n_classes if ranking.is_dense else ranking.depth + (not only_listed)
        elements = CACHED_ELEMENTS if self.device.type == "cpu" else None
        self._blocks = list(row_blocks(len(sample), width, self.device, elements=elements))
        self._size = len(sample) * width

        def compute(rows: slice) -> LogBlock:
            """Return logarithms from the scores, in memory that the next block overwrites."""
            logs = scratch(rows.stop - rows.start, width, torch.float32)
            scores = ranking.view(sample[rows]).copy_scores(slice(0, len(logs)), logs)
            center_logarithms(scores, score_type, logs)
            return logs, _own(logs, index[sample[rows]])

        is_fast = self.device.type == "cpu" and ranking.dtype == torch.float32
        self._read: Callable[[slice], LogBlock] = compute
        if not (ranking.is_dense and is_fast):
            self._read = self._table(ranking, index, sample, score_type, width)
        self._group = current_group()
        self._n_rows = self._group.sum(len(sample))

    def _table(
        self, ranking: Ranking, index: Tensor, sample: Tensor, score_type: ScoreType, width: int
    ) -> Callable[[slice], LogBlock]:
        """Return a function that reads logarithms which are computed once."""
        # One table, since many small ones between temporaries fragment the memory.
        table = torch.empty((len(sample), width), device=self.device)
        own = torch.empty(len(sample), dtype=torch.float64, device=self.device)

        def store(rows: slice) -> None:
            part = ranking[sample[rows]]
            columns = target_columns(part, index[sample[rows]])
            logs = log_columns(part, slice(0, len(part)), score_type)[:, :width]
            torch.sub(logs, logs.amax(dim=1, keepdim=True), out=table[rows])
            own[rows] = _own(table[rows], columns)

        self._map(store)
        return lambda rows: (table[rows], own[rows])

    def _map(self, work: Callable[[slice], Result]) -> list[Result]:
        """Apply a function to blocks of rows, on a CPU in threads."""
        if self.device.type != "cpu":
            return [work(rows) for rows in self._blocks]
        return map_in_threads(work, self._blocks, size=self._size)

    def derivatives(self, log_scale: float) -> tuple[float, float, float]:
        """Return two derivatives of the mean negative log-likelihood of a row by the scale.

        Parameters
        ----------
        log_scale : float
            Logarithm of the scale.

        Returns
        -------
        first, second, square : float
            First and second derivative, and the mean square of the first derivative of a row.
        """
        scale = math.exp(log_scale)

        def sums(rows: slice) -> Tensor:
            logs, own = self._read(rows)
            terms = _exp(logs * scale)
            total = terms.sum(dim=1).to(torch.float64)
            terms.mul_(logs)  # One factor after the other: the square of a logit can overflow.
            mean = terms.sum(dim=1).to(torch.float64) / total
            square = terms.mul_(logs).sum(dim=1).to(torch.float64) / total
            first = mean - own
            return torch.stack([first.sum(), (square - mean * mean).sum(), (first * first).sum()])

        total = torch.stack(self._map(sums)).sum(dim=0)
        first, second, square = (self._group.sum(total) / self._n_rows).tolist()
        return first, second, square

    def variance(self, log_scale: float) -> float:
        """Return the variance of the estimated log scale, times the number of rows.

        This is the sandwich estimate. It is the inverse of the Fisher information if the labels
        are distributed as the probabilities say.
        """
        _, second, square = self.derivatives(log_scale)
        return square / (math.exp(log_scale) * second) ** 2 if second > 0 else math.inf


def _own(logs: Tensor, columns: Tensor) -> Tensor:
    """Return the value in one column of each row, in float64."""
    return logs.gather(1, columns[:, None])[:, 0].to(torch.float64)


def _exp(x: Tensor) -> Tensor:
    """Replace values that are at most 0 by their exponentials; NumPy is faster on a CPU."""
    if x.device.type != "cpu":
        return x.exp_()
    with np.errstate(under="ignore"):
        np.exp(x.numpy(), out=x.numpy())
    return x


def _maximize(likelihood: _Likelihood, log_scale: float, tolerance: float = TOLERANCE) -> float:
    """Return the log scale that maximizes a likelihood, by Newton's method from a first guess.

    The derivative by the scale increases with the scale. Steps that leave the interval in which it
    changes sign, or that shrink too slowly, are replaced by bisection.
    """
    low, high = -math.inf, math.inf
    before = math.inf
    for _ in range(MAX_STEPS):
        first, second, _ = likelihood.derivatives(log_scale)
        if not first:
            break
        low, high = (low, log_scale) if first > 0 else (log_scale, high)
        slope = math.exp(log_scale) * second
        step = -first / slope if slope > 0 else math.copysign(math.inf, -first)
        following = min(max(log_scale + step, -MAX_LOG_SCALE), MAX_LOG_SCALE)
        if not low < following < high or abs(step) > before / 2:
            following = (max(low, -MAX_LOG_SCALE) + min(high, MAX_LOG_SCALE)) / 2
        if following == log_scale:  # At the limit.
            break
        before, log_scale = abs(following - log_scale), following
        if before < tolerance:
            break
    return log_scale
