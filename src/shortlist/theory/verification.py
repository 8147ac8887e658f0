"""Tests of every statement: a table of verdicts, with a counter-example for each that fails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shortlist._utils.progress import Show, track
from shortlist._utils.validation import check_count, check_probability
from shortlist.theory.certificates import Certificate, certificate
from shortlist.theory.exact_losses import FAILING
from shortlist.theory.lemmas import Lemma, lemmas
from shortlist.theory.search import search
from shortlist.theory.statements import Statement, statements

TIGHT = 0.995
"""A statement is tight if the ratio of some case to its bound is at least this."""
CASES = 3000
"""Number of cases of each lemma."""


@dataclass(frozen=True)
class Row:
    """The result for one statement.

    Parameters
    ----------
    statement, loss, bound : str
        The statement.
    tried, violations : int
        Number of cases, and of those that violate the statement.
    ratio : float
        Largest ratio of the target's regret to the bound; at most 1 if the statement holds.
    verdict : {"holds, tight", "holds, loose", "fails"}
        The verdict.
    example : Certificate or str, optional
        A counter-example, if the statement fails.
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
    """The results for all statements; prints as a table, with the counter-examples below.

    Parameters
    ----------
    rows : sequence of Row
        The results.
    """

    rows: Sequence[Row]

    def row(self, statement: str, loss: str) -> Row:
        """Return the row of a statement and a loss.

        Parameters
        ----------
        statement, loss : str
            As in the table.

        Returns
        -------
        Row
            The result.

        Raises
        ------
        ValueError
            If there is no such row.
        """
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
    """Test every statement of the paper, and the corrected ones, by searching for a violation.

    The search covers n (or |K|) from 2 to 10 and every k, from random starts by gradient ascent.
    It maximises the surrogate regret that the statement requires, relative to the least one that
    is possible, which is known exactly. Each failure comes with its simplest counter-example,
    checked in exact arithmetic. Losses of your own are tested if their record has bounds and
    `pooled_regret`.

    Parameters
    ----------
    depth : int, default=1
        Factor on the number of starts and steps. 1 takes about a minute.
    tighten : float, optional
        Factor on every bound, below 1, to show that the search finds violations of bounds that
        are tight. Lemmas are left out.
    seed : int, default=0
        Seed of all random numbers.
    progress : bool or "auto", default="auto"
        Whether to show progress.

    Returns
    -------
    Report
        The verdicts and the counter-examples.

    Raises
    ------
    ValueError
        If an argument is out of range.

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
    """Return the result of searching for a violation."""
    result = search(statement, restarts=32 * depth, steps=120 * depth, seed=seed, tighten=tighten)
    fails = result.violations > 0
    example: Certificate | None = None
    if fails and tighten == 1 and statement.form == "published" and statement.loss in FAILING:
        example = certificate(statement.loss, statement.parameter)
    return Row(
        f"{statement.theorem}, {statement.form}",
        statement.label,
        statement.bound,
        result.tried,
        result.violations,
        result.ratio,
        "fails" if fails else "holds, tight" if result.ratio >= TIGHT else "holds, loose",
        example,
    )


def _counted(lemma: Lemma, count: int, seed: int) -> Row:
    """Return the result of testing a lemma case by case."""
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
    """Return the cells of a row of the table."""
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
