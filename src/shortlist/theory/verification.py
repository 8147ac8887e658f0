"""Test every statement. The report has a verdict for each, and counter-examples."""

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
"""A bound is tight if the ratio of the target regret to the bound reaches this value."""
STARTS = 32
"""Number of random starts of the search for each size."""
STEPS = 120
"""Number of gradient steps from each start."""
LEMMA_CASES = 3000
"""Number of test cases of each lemma."""


@dataclass(frozen=True)
class Row:
    """The result for one statement.

    Parameters
    ----------
    statement, loss, bound : str
        Name of the statement, its loss, and its formula.
    cases, violations : int
        Number of cases, and number of cases that violate the statement.
    ratio : float
        Largest ratio of the target regret to the bound. It is at most 1 if the statement holds.
    verdict : {"holds, tight", "holds, loose", "fails"}
        The verdict.
    example : Certificate or str, optional
        A counter-example, if the statement fails.
    """

    statement: str
    loss: str
    bound: str
    cases: int
    violations: int
    ratio: float
    verdict: str
    example: Certificate | str | None = None


@dataclass(frozen=True)
class Report:
    """The results for all statements, which print as a table followed by the counter-examples.

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
            Name of the statement and of the loss, as in the table.

        Returns
        -------
        Row
            The result.

        Raises
        ------
        ValueError
            If the table has no such row.
        """
        rows = {(row.statement, row.loss): row for row in self.rows}
        if (statement, loss) not in rows:
            raise ValueError(
                f"there is no row ({statement!r}, {loss!r}); the rows are {sorted(rows)}"
            )
        return rows[statement, loss]

    def __str__(self) -> str:
        header = ("statement", "loss", "bound", "cases", "violations", "ratio", "verdict")
        table = [header, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(header))]
        is_number = (False, False, False, True, True, True, False)
        lines = [
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(line, widths, is_number, strict=True)
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
    """Test every theorem and lemma of the paper, and the corrected ones.

    Bounds are tested by gradient ascent from random starts, for n (or |K|) from 2 to 10 and every
    k. The search maximizes the ratio of the surrogate regret that the bound requires to the
    smallest possible surrogate regret, which has a closed form. Lemmas are tested on random
    cases. For each published top-k bound that fails, the report has a simple counter-example
    that is checked in exact arithmetic. Losses added by `register_loss` are tested if their
    record has bounds and `pooled_regret`.

    Parameters
    ----------
    depth : int, default=1
        Factor on the number of starts and steps. A depth of 1 takes about a minute.
    tighten : float, optional
        Factor in (0, 1) by which every bound is multiplied. The search then finds violations of
        the bounds that are tight. Lemmas are not tested.
    seed : int, default=0
        Seed of all random numbers.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. "auto" shows one on a terminal.

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
    bounds = statements()
    tested_lemmas = [] if tighten is not None else lemmas()
    rows = []
    with track("statements", len(bounds) + len(tested_lemmas), progress) as step:
        for statement in bounds:
            rows.append(_test_statement(statement, depth, seed, factor))
            step(rows[-1].statement)
        for lemma in tested_lemmas:
            rows.append(_test_lemma(lemma, LEMMA_CASES * depth, seed))
            step(lemma.name)
    return Report(rows)


def _test_statement(statement: Statement, depth: int, seed: int, tighten: float) -> Row:
    """Search for a violation of a statement."""
    result = search(
        statement, restarts=STARTS * depth, steps=STEPS * depth, seed=seed, tighten=tighten
    )
    fails = result.violations > 0
    example: Certificate | None = None
    if fails and tighten == 1 and statement.form == "published" and statement.loss in FAILING:
        example = certificate(statement.loss, statement.parameter)
    return Row(
        f"{statement.theorem}, {statement.form}",
        statement.label,
        statement.bound,
        result.cases,
        result.violations,
        result.ratio,
        "fails" if fails else "holds, tight" if result.ratio >= TIGHT else "holds, loose",
        example,
    )


def _test_lemma(lemma: Lemma, count: int, seed: int) -> Row:
    """Test a lemma case by case."""
    rng = np.random.default_rng(seed)
    cases = violations = 0
    worst, example = 0.0, None
    for ratio, description in lemma.cases(rng, count):
        cases += 1
        if ratio > 1 + 1e-9:
            violations += 1
            example = description if ratio > worst else example
        worst = max(worst, ratio)
    verdict = "fails" if violations else "holds, tight" if worst >= TIGHT else "holds, loose"
    return Row(lemma.name, lemma.subject, lemma.bound, cases, violations, worst, verdict, example)


def _cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row of the table."""
    ratio = "any" if row.ratio > 1e6 else f"{row.ratio:.4f}"
    if math.isinf(row.ratio):
        ratio = "inf"
    return (
        row.statement,
        row.loss,
        row.bound,
        f"{row.cases:,}",
        f"{row.violations:,}",
        ratio,
        row.verdict,
    )
