"""Every statement tried: a table of verdicts, with a certificate for each that fails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shortlist._utils.arrays import check_count, check_probability
from shortlist._utils.progress import Show, track
from shortlist.theory.certificates import FAILING, Certificate, certificate
from shortlist.theory.lemmas import Lemma, lemmas
from shortlist.theory.search import search
from shortlist.theory.statements import Statement, statements

TIGHT = 0.995
"""A statement is tight if some case comes so close to its bound."""
CASES = 3000
"""Cases of each lemma."""


@dataclass(frozen=True)
class Row:
    """What was found of one statement.

    `ratio` is the largest of the target's regret to the bound that was found; a statement holds
    where it is at most 1. `verdict`: "holds, tight", "holds, loose" or "fails".
    """

    statement: str
    loss: str
    bound: str
    tried: int
    violations: int
    ratio: float
    verdict: str
    example: Certificate | str | None = None


@dataclass(frozen=True)
class Report:
    """All rows; prints as a table, with the certificates below."""

    rows: Sequence[Row]

    def row(self, statement: str, loss: str) -> Row:
        """The row of a statement and a loss."""
        for one in self.rows:
            if (one.statement, one.loss) == (statement, loss):
                return one
        known = sorted({(one.statement, one.loss) for one in self.rows})
        raise ValueError(f"there is no row ({statement!r}, {loss!r}); there are {known}")

    def __str__(self) -> str:
        head = ("statement", "loss", "bound", "tried", "violations", "ratio", "verdict")
        table = [head, *(_cells(row) for row in self.rows)]
        wide = [max(len(line[i]) for line in table) for i in range(len(head))]
        right = (False, False, False, True, True, True, False)
        lines = [
            "  ".join(
                cell.rjust(w) if r else cell.ljust(w)
                for cell, w, r in zip(line, wide, right, strict=True)
            ).rstrip()
            for line in table
        ]
        failing = [row for row in self.rows if row.verdict == "fails" and row.example is not None]
        examples = [f"  {row.statement}: {row.example}" for row in failing]
        return "\n".join([*lines, "", "Counter-examples, checked exactly:", *examples])


def verify(
    *,
    depth: int = 1,
    tighten: float | None = None,
    seed: int = 0,
    progress: Show = "auto",
) -> Report:
    """Try to break every statement of the paper, and those that put it right.

    For each: n (or |K|) from 2 to 10, every k, random starts and gradient ascent on the surrogate
    regret that the statement asks for, relative to the least one that there can be, which is known
    exactly. Each failure comes with its simplest counter-example, checked in exact arithmetic.

    Parameters
    ----------
    depth : int
        Multiplies the number of starts and steps. 1 takes about a minute.
    tighten : float, optional
        Multiply every bound by this, below 1: a search with teeth then breaks those that are
        tight. Lemmas are left out.

    Examples
    --------
    >>> report = verify()                                            # doctest: +SKIP
    >>> report.row("top-k, published", "mae").verdict                # doctest: +SKIP
    'fails'
    """
    check_count(depth, "depth")
    factor = 1.0 if tighten is None else check_probability(tighten, "tighten")
    counted = [] if tighten is not None else lemmas()
    searched = statements()
    rows = []
    with track("statements", len(searched) + len(counted), progress) as step:
        for statement in searched:
            rows.append(_searched(statement, depth, seed, factor))
            step(rows[-1].statement)
        for lemma in counted:
            rows.append(_counted(lemma, CASES * depth, seed))
            step(lemma.name)
    return Report(rows)


def _searched(statement: Statement, depth: int, seed: int, tighten: float) -> Row:
    found = search(statement, restarts=32 * depth, steps=120 * depth, seed=seed, tighten=tighten)
    fails = found.violations > 0
    example: Certificate | None = None
    if fails and tighten == 1 and statement.form == "published" and statement.loss in FAILING:
        example = certificate(statement.loss, statement.q)
    return Row(
        f"{statement.theorem}, {statement.form}",
        statement.label,
        statement.bound,
        found.tried,
        found.violations,
        found.ratio,
        "fails" if fails else "holds, tight" if found.ratio >= TIGHT else "holds, loose",
        example,
    )


def _counted(lemma: Lemma, count: int, seed: int) -> Row:
    rng = np.random.default_rng(seed)
    tried = violations = 0
    worst, example = 0.0, None
    for ratio, words in lemma.cases(rng, count):
        tried += 1
        if ratio > 1 + 1e-9:
            violations += 1
            example = words if ratio > worst else example
        worst = max(worst, ratio)
    verdict = "fails" if violations else "holds, tight" if worst >= TIGHT else "holds, loose"
    return Row(lemma.name, lemma.subject, lemma.bound, tried, violations, worst, verdict, example)


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "any" if row.ratio > 1e6 else f"{row.ratio:.4f}"
    if math.isinf(row.ratio):
        ratio = "inf"
    return (
        row.statement,
        row.loss,
        row.bound,
        f"{row.tried:,}",
        f"{row.violations:,}",
        ratio,
        row.verdict,
    )
