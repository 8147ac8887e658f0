"""The second opinion of stage 1: how near a row lies to the mean of each class.

`q_k(x) = softmax_k(s cos(x, mean_k))`, with standardised features, knows little, but errs
elsewhere than a network does: mixed with it, the rare labels that a network all but rules out
keep a fair probability, and those decide how long sets must be at high accuracies.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from shortlist.networks import Standardize


class Prototypes:
    """Class means of standardised, normalised features: over all rows, and without each fold."""

    def __init__(self, standardize: Standardize, sums: Tensor) -> None:
        self.standardize = standardize
        self.sums = sums  # (folds, classes, features), of the rows outside each fold

    @classmethod
    def of(
        cls,
        standardize: Standardize,
        features: Tensor,
        index: Tensor,
        n_classes: int,
        folds: Tensor,
    ) -> Prototypes:
        members = int(folds.max()) + 1
        directions = _directions(standardize, features)
        own = directions.new_zeros((members * n_classes, directions.shape[1]))
        own.index_add_(0, folds * n_classes + index, directions)
        own = own.view(members, n_classes, -1)
        # Added up, not taken off the whole: where the others cancel, what rounding leaves of a
        # fold's own rows would point somewhere.
        others = [own[:j].sum(dim=0) + own[j + 1 :].sum(dim=0) for j in range(members)]
        return cls(standardize, torch.stack(others))

    def cosines(self, features: Tensor, folds: Tensor | None = None) -> Tensor:
        """(rows, classes): to the means of all rows, or of those outside each row's fold."""
        directions = _directions(self.standardize, features)
        if folds is None:
            return directions @ nn.functional.normalize(self.sums.sum(dim=0), dim=1).T
        found = directions.new_empty((len(features), self.sums.shape[1]))
        for fold, sums in enumerate(self.sums):
            rows = folds == fold
            found[rows] = directions[rows] @ nn.functional.normalize(sums, dim=1).T
        return found


def _directions(standardize: Standardize, features: Tensor) -> Tensor:
    return nn.functional.normalize(standardize(features), dim=1)


class Mixture:
    """`(1 - weight) softmax(scale log p) + weight softmax(sharpness cosines)`, as logarithms."""

    def __init__(self, weight: float, scale: float, sharpness: float) -> None:
        self.weight, self.scale, self.sharpness = weight, scale, sharpness

    @classmethod
    def fit(cls, log_p: Tensor, cosines: Tensor, columns: Tensor | None, target: Tensor) -> Mixture:
        """The mixture that gives the labels the highest likelihood.

        `log_p` and `target` as in `log_columns`; `columns` says which class each column is, where
        they are candidates.
        """
        start = [-2.0, 0.0, math.log(10.0)]
        free = torch.tensor(start, dtype=torch.float64, device=log_p.device, requires_grad=True)
        optimizer = torch.optim.LBFGS([free], max_iter=50, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            mixed = _mixed(log_p, cosines, columns, *free.to(log_p.dtype).unbind())
            value = nn.functional.nll_loss(mixed, target).to(torch.float64)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        with torch.enable_grad():
            optimizer.step(loss)  # type: ignore[no-untyped-call]
        found = free.detach().clamp(-20, 20)
        if not bool(torch.isfinite(found).all()):
            return cls(0.0, 1.0, 1.0)
        weight, scale, sharpness = found.tolist()
        return cls(1 / (1 + math.exp(-weight)), math.exp(scale), math.exp(sharpness))

    def __call__(self, log_p: Tensor, cosines: Tensor, columns: Tensor | None) -> Tensor:
        weight = max(min(self.weight, 1 - 1e-9), 1e-9)
        free = (math.log(weight / (1 - weight)), math.log(self.scale), math.log(self.sharpness))
        return _mixed(log_p, cosines, columns, *(log_p.new_tensor(v) for v in free))


def _mixed(
    log_p: Tensor,
    cosines: Tensor,
    columns: Tensor | None,
    weight: Tensor,
    scale: Tensor,
    sharpness: Tensor,
) -> Tensor:
    """The mixture for weight as log-odds, scale and sharpness as logarithms."""
    scaled = scale.exp() * log_p
    log_q = torch.log_softmax(sharpness.exp() * cosines, dim=1)
    if columns is not None:  # of candidates: each one's, and what is left for all others
        listed = columns < log_q.shape[1]
        ended = nn.functional.pad(~listed[:, :-1], (0, 1), value=False)
        # Nothing, whatever the scale; at -inf the gradient would be NaN.
        scaled = scaled.masked_fill(ended, torch.finfo(scaled.dtype).min)
        log_q = log_q.gather(1, columns.clamp(max=log_q.shape[1] - 1))
        log_q = torch.where(listed, log_q, -torch.inf)
        rest = (1 - log_q[:, :-1].exp().sum(dim=1)).clamp(min=1e-7).log()
        log_q = torch.cat([log_q[:, :-1], rest[:, None]], dim=1)
    ours = torch.log_softmax(scaled, dim=1) + nn.functional.logsigmoid(-weight)
    return torch.logaddexp(ours, log_q + nn.functional.logsigmoid(weight))
