"""Search for a violation of a statement by gradient ascent from random starts, for all sizes.

A case is a distribution over n labels, of which k are kept, or the expected costs of |K| members,
of which one is chosen. The smallest surrogate regret of a case has a closed form (`pooling`), so
that the search only varies the logits of the distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.theory.pooling import (
    comp_sum_regret,
    constrained_regret,
    top_k_constrained_regret,
)
from shortlist.theory.statements import Statement

LARGEST = 10
"""Number of labels, or of members of K, of the largest cases."""
RESOLUTION = 1e-6
"""Regrets below this fraction of the differing weights are treated as zero."""
ROUNDING = 1e-7
"""A surrogate regret that is too small by less than this fraction is not a violation."""
MAX_LOGIT_SCALE = 300.0
"""Largest standard deviation of the logits. Probabilities can be below e^-300."""


@dataclass(frozen=True)
class Cases:
    """A batch of cases, with labels in order of probability. The `kept` have the best scores."""

    n: Tensor
    k: Tensor
    kept: Tensor

    @classmethod
    def draw(cls, statement: Statement, restarts: int, generator: torch.Generator) -> Cases:
        """Draw `restarts` cases of each size."""
        only_top_one = statement.theorem == "cost-sensitive" or statement.only_top_one
        sizes = range(2, LARGEST + 1)
        pairs = torch.tensor([(n, k) for n in sizes for k in range(1, 2 if only_top_one else n)])
        n, k = pairs.repeat_interleave(restarts, dim=0).unbind(dim=1)
        index = torch.arange(LARGEST)
        best = index < k[:, None]
        present = index < n[:, None]
        # Half of the cases exchange one label of the best set. The others keep a random set.
        order = torch.rand(len(n), LARGEST, generator=generator)
        random_set = _smallest(order.masked_fill(~present, torch.inf), k)
        removed = _smallest(torch.where(best, order, torch.inf), torch.ones_like(k))
        added = _smallest(torch.where(present & ~best, order, torch.inf), torch.ones_like(k))
        one_exchanged = (best & ~removed) | added
        is_single = torch.rand(len(n), 1, generator=generator) < 0.5
        kept = torch.where(is_single, one_exchanged, random_set)
        # A case needs a suboptimal set.
        is_best = (kept == best).all(dim=1, keepdim=True)
        return cls(n, k, torch.where(is_best, one_exchanged, kept))

    @property
    def present(self) -> Tensor:
        """Mask of the labels of each case, of shape (cases, LARGEST)."""
        return torch.arange(LARGEST) < self.n[:, None]

    def __len__(self) -> int:
        return len(self.n)


def _smallest(values: Tensor, count: Tensor) -> Tensor:
    """Return the mask of the `count` smallest values of each row."""
    rank = values.argsort(dim=1).argsort(dim=1)
    return rank < count[:, None]


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: the number of cases and of violations, and the worst case.

    `ratio` is the largest ratio of the target regret to its bound. It is at most 1 if the
    statement holds. `log_weights` are the log-probabilities of the worst case, or the logarithms
    of one minus its expected costs. `kept` are its labels with the highest scores.
    """

    cases: int
    violations: int
    ratio: float
    n: int
    k: int
    log_weights: tuple[float, ...]
    kept: tuple[bool, ...]


def regrets(statement: Statement, cases: Cases, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logarithms of the weights, the target regret and the smallest surrogate regret."""
    record = statement.record
    if statement.theorem == "top-k":
        masked = torch.where(cases.present, logits, -torch.inf)
        log_p = torch.log_softmax(masked.sort(dim=1, descending=True).values, dim=1)
        best = torch.arange(LARGEST) < cases.k[:, None]
        gained = torch.where(best & ~cases.kept, log_p, -torch.inf).logsumexp(dim=1)
        lost = torch.where(~best & cases.kept, log_p, -torch.inf).logsumexp(dim=1)
        target = _log_difference(gained, lost)
        if record.family == "comp_sum":
            return log_p, target, comp_sum_regret(record, log_p, cases.kept)
        return log_p, target, top_k_constrained_regret(record, log_p, cases.kept)
    # log_v are the logarithms of the expected costs v, and log_w are those of 1 - v.
    masked = torch.where(cases.present, logits, -torch.inf).sort(dim=1, descending=True).values
    log_w = torch.where(cases.present, torch.nn.functional.logsigmoid(masked), -torch.inf)
    log_v = torch.where(cases.present, torch.nn.functional.logsigmoid(-masked), -torch.inf)
    chosen = cases.kept.to(torch.int64).argmax(dim=1, keepdim=True)
    if record.family == "comp_sum":
        target = _log_difference(log_w[:, 0], log_w.gather(1, chosen)[:, 0])
        return log_w, target, comp_sum_regret(record, log_w, cases.kept)
    target = _log_difference(log_v.gather(1, chosen)[:, 0], log_v[:, 0])
    return log_w, target, constrained_regret(record, log_v, cases.kept)


def _log_difference(a: Tensor, b: Tensor) -> Tensor:
    """Return log(e^a - e^b), or minus infinity where a - b is at most `RESOLUTION`."""
    is_resolved = a - b > RESOLUTION
    gap = torch.where(is_resolved, b - a, -1.0)
    return torch.where(is_resolved, a + torch.log(-torch.expm1(gap)), -torch.inf)


def search(
    statement: Statement,
    *,
    restarts: int = 64,
    steps: int = 150,
    seed: int = 0,
    tighten: float = 1.0,
) -> SearchResult:
    """Search for a violation of a statement, whose bound is multiplied by `tighten`."""
    generator = torch.Generator().manual_seed(seed)
    cases = Cases.draw(statement, restarts, generator)
    n, k = cases.n.to(torch.float64), cases.k.to(torch.float64)
    logits = _random_logits(len(cases), generator).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.3)
    best = torch.full((len(cases),), -torch.inf, dtype=torch.float64)
    best_logits = logits.detach().clone()
    violations = 0
    for step in range(steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = 0.5 * (1 - step / (steps + 1)) + 0.002
        _, target, surrogate = regrets(statement, cases, logits)
        slack = statement.log_required_regret(target - math.log(tighten), n, k) - surrogate
        excess = torch.where(
            target > -torch.inf, slack.detach().nan_to_num(nan=-torch.inf), -torch.inf
        )
        improved = excess > best
        best = torch.where(improved, excess, best)
        best_logits = torch.where(improved[:, None], logits.detach(), best_logits)
        violations += int((excess > ROUNDING).sum())
        usable = torch.isfinite(slack) & torch.isfinite(target) & torch.isfinite(surrogate)
        if step == steps or not bool(usable.any()):
            break
        optimizer.zero_grad()
        (-slack[usable].sum()).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            assert logits.grad is not None
            logits.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        optimizer.step()
    return _worst(statement, cases, best_logits, len(cases) * (step + 1), violations, tighten)


def _random_logits(rows: int, generator: torch.Generator) -> Tensor:
    """Draw initial logits, with standard deviations from 0.1 to `MAX_LOGIT_SCALE`."""
    uniform = torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    scale = torch.exp(uniform * math.log(MAX_LOGIT_SCALE / 0.1) + math.log(0.1))
    return scale * torch.randn(rows, LARGEST, generator=generator, dtype=torch.float64)


@torch.no_grad()
def _worst(
    statement: Statement, cases: Cases, logits: Tensor, count: int, violations: int, tighten: float
) -> SearchResult:
    """Return the result of a search. Of all worst cases, the one with the fewest labels is kept."""
    log_w, target, surrogate = regrets(statement, cases, logits)
    n, k = cases.n.to(torch.float64), cases.k.to(torch.float64)
    ratio = torch.where(target > -torch.inf, _ratio(statement, target, surrogate, n, k), 0.0)
    size = n * LARGEST + k
    is_worst = ratio >= min(float(ratio.max()) * (1 - 1e-6), 1e300)
    if violations:
        is_worst = ratio > 1 + ROUNDING
    row = int(torch.where(is_worst, size, torch.inf).argmin())
    is_smallest = is_worst & (size == size[row])
    row = int(torch.where(is_smallest, ratio, -1.0).argmax())
    return SearchResult(
        cases=count,
        violations=violations,
        ratio=float(ratio.max()) / tighten,
        n=int(cases.n[row]),
        k=int(cases.k[row]),
        log_weights=tuple(log_w[row, : cases.n[row]].tolist()),
        kept=tuple(cases.kept[row, : cases.n[row]].tolist()),
    )


def _ratio(statement: Statement, target: Tensor, surrogate: Tensor, n: Tensor, k: Tensor) -> Tensor:
    """Return the ratio of the target regret to its bound, which is computed by bisection."""
    low, high = target - 700.0, torch.full_like(target, math.log(LARGEST))
    for _ in range(70):
        middle = (low + high) / 2
        is_allowed = statement.log_required_regret(middle, n, k) <= surrogate
        low, high = torch.where(is_allowed, middle, low), torch.where(is_allowed, high, middle)
    return torch.where(surrogate == -torch.inf, torch.inf, torch.exp(target - low))
