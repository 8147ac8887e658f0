"""The search for a violation: random starts, then gradient ascent, on all sizes at once.

A case is a distribution over n labels and k of them kept (or expected costs of |K| members and
one chosen). Given a case, the least surrogate regret is known exactly (`pooling`), so the search
is over the logits of the distribution alone.
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
"""Regrets below this fraction of the weights that differ are ignored."""
VIOLATED = 1e-7
"""A surrogate regret that is too small by less than this fraction is rounding."""
WIDEST = 300.0
"""Largest standard deviation of the logits: probabilities down to e^-300 and below."""


@dataclass(frozen=True)
class Cases:
    """A batch of cases: labels are sorted, most probable first; `kept` have the highest scores."""

    n: Tensor
    k: Tensor
    kept: Tensor

    @classmethod
    def draw(cls, statement: Statement, restarts: int, generator: torch.Generator) -> Cases:
        """Draw `restarts` cases of every size."""
        one = statement.theorem == "cost-sensitive" or statement.only_top_one
        sizes = range(2, LARGEST + 1)
        pairs = torch.tensor([(n, k) for n in sizes for k in range(1, 2 if one else n)])
        n, k = pairs.repeat_interleave(restarts, dim=0).unbind(dim=1)
        place = torch.arange(LARGEST)
        best = place < k[:, None]
        present = place < n[:, None]
        # Half of the cases exchange one label, the others any number.
        order = torch.rand(len(n), LARGEST, generator=generator)
        any_of_them = _first(order.masked_fill(~present, torch.inf), k)
        lost = _first(torch.where(best, order, torch.inf), torch.ones_like(k))
        came = _first(torch.where(present & ~best, order, torch.inf), torch.ones_like(k))
        single = torch.rand(len(n), 1, generator=generator) < 0.5
        kept = torch.where(single, (best & ~lost) | came, any_of_them)
        # The kept labels of a case must not be the best ones.
        right = (kept == best).all(dim=1, keepdim=True)
        kept = torch.where(right, (best & ~lost) | came, kept)
        return cls(n, k, kept)

    @property
    def present(self) -> Tensor:
        """Which labels there are, (cases, LARGEST)."""
        return torch.arange(LARGEST) < self.n[:, None]

    def __len__(self) -> int:
        return len(self.n)


def _first(order: Tensor, count: Tensor) -> Tensor:
    """Return which are the `count` smallest of each row."""
    rank = order.argsort(dim=1).argsort(dim=1)
    return rank < count[:, None]


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: counts, and the worst case.

    `ratio` is the largest ratio of target regret to bound; the statement holds if it never
    exceeds 1. `log_weights` are the log-probabilities of the worst case (or the logarithms of one
    minus the expected costs), and `kept` its labels with the highest scores.
    """

    tried: int
    violations: int
    ratio: float
    n: int
    k: int
    log_weights: tuple[float, ...]
    kept: tuple[bool, ...]


def regrets(statement: Statement, cases: Cases, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logarithms of the weights, of the target's and of the least surrogate regret."""
    record = statement.record
    if statement.theorem == "top-k":
        masked = torch.where(cases.present, logits, -torch.inf)
        log_p = torch.log_softmax(masked.sort(dim=1, descending=True).values, dim=1)
        best = torch.arange(LARGEST) < cases.k[:, None]
        gained = torch.where(best & ~cases.kept, log_p, -torch.inf).logsumexp(dim=1)
        lost = torch.where(~best & cases.kept, log_p, -torch.inf).logsumexp(dim=1)
        target = _resolved(gained, lost)
        if record.family == "comp_sum":
            return log_p, target, comp_sum_regret(record, log_p, cases.kept)
        return log_p, target, top_k_constrained_regret(record, log_p, cases.kept)
    # log_v are the logarithms of the expected costs, log_w those of one minus these.
    masked = torch.where(cases.present, logits, -torch.inf).sort(dim=1, descending=True).values
    log_w = torch.where(cases.present, torch.nn.functional.logsigmoid(masked), -torch.inf)
    log_v = torch.where(cases.present, torch.nn.functional.logsigmoid(-masked), -torch.inf)
    chosen = cases.kept.to(torch.int64).argmax(dim=1, keepdim=True)
    if record.family == "comp_sum":
        target = _resolved(log_w[:, 0], log_w.gather(1, chosen)[:, 0])
        return log_w, target, comp_sum_regret(record, log_w, cases.kept)
    target = _resolved(log_v.gather(1, chosen)[:, 0], log_v[:, 0])
    return log_w, target, constrained_regret(record, log_v, cases.kept)


def _resolved(a: Tensor, b: Tensor) -> Tensor:
    """Return log(e^a - e^b), or minus infinity where the two are too close for floating point."""
    apart = a - b > RESOLUTION
    gap = torch.where(apart, b - a, -1.0)
    return torch.where(apart, a + torch.log(-torch.expm1(gap)), -torch.inf)


def search(
    statement: Statement,
    *,
    restarts: int = 64,
    steps: int = 150,
    seed: int = 0,
    tighten: float = 1.0,
) -> SearchResult:
    """Search for a violation of a statement; with `tighten` below 1, of its bound times that."""
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
        slack = statement.needed(target - math.log(tighten), n, k) - surrogate
        known = torch.where(
            target > -torch.inf, slack.detach().nan_to_num(nan=-torch.inf), -torch.inf
        )
        better = known > best
        best = torch.where(better, known, best)
        best_logits = torch.where(better[:, None], logits.detach(), best_logits)
        violations += int((known > VIOLATED).sum())
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
    """Draw the logits at which a search starts, with standard deviations from 0.1 to WIDEST."""
    uniform = torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    width = torch.exp(uniform * math.log(WIDEST / 0.1) + math.log(0.1))
    return width * torch.randn(rows, LARGEST, generator=generator, dtype=torch.float64)


@torch.no_grad()
def _worst(
    statement: Statement, cases: Cases, logits: Tensor, tried: int, violations: int, tighten: float
) -> SearchResult:
    """Return the result of a search: of the worst cases, the smallest."""
    log_w, target, surrogate = regrets(statement, cases, logits)
    n, k = cases.n.to(torch.float64), cases.k.to(torch.float64)
    ratio = torch.where(target > -torch.inf, _ratio(statement, target, surrogate, n, k), 0.0)
    order = n * LARGEST + k
    at_worst = ratio >= min(float(ratio.max()) * (1 - 1e-6), 1e300)
    if violations:
        at_worst = ratio > 1 + VIOLATED
    row = int(torch.where(at_worst, order, torch.inf).argmin())
    among = at_worst & (order == order[row])
    row = int(torch.where(among, ratio, -1.0).argmax())
    return SearchResult(
        tried=tried,
        violations=violations,
        ratio=float(ratio.max()) / tighten,
        n=int(cases.n[row]),
        k=int(cases.k[row]),
        log_weights=tuple(log_w[row, : cases.n[row]].tolist()),
        kept=tuple(cases.kept[row, : cases.n[row]].tolist()),
    )


def _ratio(statement: Statement, target: Tensor, surrogate: Tensor, n: Tensor, k: Tensor) -> Tensor:
    """Return the ratio of target regret to bound, which is found by bisection."""
    low, high = target - 700.0, torch.full_like(target, math.log(LARGEST))
    for _ in range(70):
        middle = (low + high) / 2
        enough = statement.needed(middle, n, k) <= surrogate
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return torch.where(surrogate == -torch.inf, torch.inf, torch.exp(target - low))
