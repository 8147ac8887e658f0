"""The search for violations: its verdicts, its teeth, and the report that it prints."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys

import mpmath
import numpy as np
import pytest
import torch
from by_hand import least_regret
from loss_definitions import losses_with
from typer.testing import CliRunner

from shortlist.cli import app
from shortlist.losses import get_loss
from shortlist.theory import (
    Certificate,
    Report,
    Row,
    surrogate_infimum,
    top_k_bound,
    verify,
)
from shortlist.theory import verification as module
from shortlist.theory.bounds import cost_sensitive_bound, psi
from shortlist.theory.lemmas import Lemma, lemmas
from shortlist.theory.search import LARGEST, Cases, SearchResult, search
from shortlist.theory.statements import Statement, statements

LOW_Q = ("gce, q = 0.3", "gce, q = 0.5")
HIGH_Q = tuple(f"gce, q = {q}" for q in (0.51, 0.55, 0.6, 0.7, 0.9))
CONSTRAINED = ("constrained_exp", "squared_hinge", "hinge", "margin")
FAILING = ("mae", *HIGH_Q, *CONSTRAINED)
VERDICTS: dict[tuple[str, str], str] = {
    **{("top-k, published", loss): "holds, tight" for loss in ("log", "exp", *LOW_Q)},
    **{("top-k, published", loss): "fails" for loss in FAILING},
    **{("top-k, published, k = 1", loss): "holds" for loss in FAILING},
    **{
        ("top-k, published, k = 1", loss): "holds, tight"
        for loss in ("mae", *HIGH_Q, "hinge", "margin")
    },
    **{("top-k, right", loss): "holds, tight" for loss in ("log", "exp", LOW_Q[1], *HIGH_Q)},
    **{
        ("top-k, right", loss): "holds, loose"
        for loss in (LOW_Q[0], "constrained_exp", "squared_hinge")
    },
    **{
        ("cost-sensitive, published", loss): "holds, tight"
        for loss in ("log", "exp", "mae", "constrained_exp", "hinge", "margin")
    },
    **{
        ("cost-sensitive, published", loss): "holds, loose"
        for loss in ("gce, q = 0.3", "gce, q = 0.7", "squared_hinge")
    },
    ("regret of the top-k loss", "-"): "holds, tight",
    ("regret of the cardinality-aware loss", "-"): "holds, tight",
    ("Bayes selector, stochastic", "-"): "holds, tight",
    ("Bayes selector, deterministic", "-"): "holds, tight",
    ("infimum of a surrogate", "all losses"): "holds",
    ("conformal rank, as printed", "ceil(alpha (m+1))"): "fails",
    ("conformal rank, right", "floor(alpha (m+1))"): "holds, tight",
    ("inequality in a proof, as used", "gce"): "fails",
    ("inequality in a proof, right", "gce"): "holds",
    ("realizable consistency, k = 1", "log"): "holds, tight",
    ("realizable consistency, k = 2", "log"): "fails",
    ("Denis and Hebiri equal top-k, sizes", "-"): "holds, tight",
    ("Denis and Hebiri equal top-k, mean", "-"): "fails",
}
SEARCHED = {f"{s.theorem}, {s.form}: {s.label}": s for s in statements()}
PAPER = {*CONSTRAINED, "log", "exp", "gce", "mae"}
# The statements about a loss that the paper does not have must hold.
EXPECTED = VERDICTS | {
    (f"{s.theorem}, {s.form}", s.label): "holds" for s in SEARCHED.values() if s.loss not in PAPER
}


@pytest.fixture(scope="module")
def report() -> Report:
    """The whole of it, once; it takes most of a minute."""
    return verify(progress=False)


# The verdicts


def test_report_has_a_row_for_every_statement_and_no_other(report) -> None:
    rows = {(row.statement, row.loss) for row in report.rows}
    assert len(rows) == len(report.rows)
    assert rows == EXPECTED.keys()


@pytest.mark.parametrize(("statement", "loss"), EXPECTED)
def test_verdict(report, statement, loss) -> None:
    row = report.row(statement, loss)
    assert row.verdict.startswith(EXPECTED[statement, loss])
    assert row.tried > 0
    if row.verdict == "fails":
        assert row.violations > 0
        assert row.ratio > 1.01
        assert row.example is not None
    else:
        assert row.violations == 0
        assert row.ratio <= 1 + 1e-6
        assert (row.ratio >= 0.995) == (row.verdict == "holds, tight")
        assert row.example is None


@pytest.mark.parametrize("loss", FAILING)
def test_every_published_theorem_that_fails_has_a_certificate(report, loss) -> None:
    one = report.row("top-k, published", loss).example
    assert isinstance(one, Certificate)
    assert one.check()
    assert loss == (f"gce, q = {float(one.q):g}" if one.loss == "gce" else one.loss)


@pytest.mark.parametrize("loss", ["mae", "hinge", "margin"])
def test_losses_that_are_not_consistent_fail_without_limit(report, loss) -> None:
    assert report.row("top-k, published", loss).ratio == math.inf


def test_known_constants_are_found(report) -> None:
    ratios = {
        ("cost-sensitive, published", "squared_hinge"): math.sqrt(0.5),
        ("cost-sensitive, published", "gce, q = 0.3"): math.sqrt(1 - 0.3),
        ("cost-sensitive, published", "gce, q = 0.7"): math.sqrt(1 - 0.7),
        ("conformal rank, as printed", "ceil(alpha (m+1))"): 0.99 / 0.5,
    }
    for (statement, loss), expected in ratios.items():
        assert report.row(statement, loss).ratio == pytest.approx(expected, rel=1e-3)


def test_cases_are_as_many_as_the_sizes_say(report) -> None:
    pairs = sum(n - 1 for n in range(2, LARGEST + 1))
    assert report.row("top-k, published", "log").tried == 32 * pairs * 121
    one = 32 * (LARGEST - 1) * 121
    assert report.row("top-k, published, k = 1", "mae").tried == one
    assert report.row("cost-sensitive, published", "log").tried == one


# Teeth


def quick(statement: Statement, **more: float) -> SearchResult:
    return search(statement, restarts=8, steps=80, **more)


@pytest.mark.parametrize("name", SEARCHED)
def test_a_bound_tightened_by_two_percent_breaks_if_and_only_if_it_is_tight(report, name) -> None:
    statement = SEARCHED[name]
    row = report.row(f"{statement.theorem}, {statement.form}", statement.label)
    found = quick(statement, tighten=0.98)
    if row.verdict != "holds, loose":
        assert found.violations > 0
        assert found.ratio > 1 + 1e-3
    elif row.ratio < 0.98:
        assert found.violations == 0
        assert found.ratio <= row.ratio / 0.98 * (1 + 1e-3)


def wrong(statement: Statement, log_factor: float = 0.0, power: float = 1.0) -> Statement:
    """The statement with a bound that is smaller by a factor, or in another power."""
    return dataclasses.replace(
        statement, needed=lambda d, n, k: statement.needed(power * (d + log_factor), n, k)
    )


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("top-k, right: gce, q = 0.3", 0.9),
        ("top-k, right: constrained_exp", 0.85),
        ("top-k, right: squared_hinge", 0.85),
        ("top-k, right: gce, q = 0.7", 0.99),
        ("cost-sensitive, published: squared_hinge", 0.7),
        ("cost-sensitive, published: gce, q = 0.7", 0.54),
        ("cost-sensitive, published: mae", 0.99),
    ],
)
def test_a_smaller_factor_is_found_out(name, factor) -> None:
    assert quick(wrong(SEARCHED[name], -math.log(factor))).violations > 0


@pytest.mark.parametrize(
    "name",
    ["top-k, right: gce, q = 0.7", "top-k, right: constrained_exp", "top-k, right: squared_hinge"],
)
def test_a_better_rate_is_found_out(name) -> None:
    assert quick(wrong(SEARCHED[name], power=0.9)).violations > 0


@pytest.mark.parametrize("loss", ["gce", "constrained_exp", "squared_hinge"])
def test_the_factor_m_is_needed(loss) -> None:
    """With the number of labels that can be missed at once set to one."""
    (statement,) = (s for s in statements((0.7,)) if s.form == "right" and s.loss == loss)
    one = dataclasses.replace(
        statement, needed=lambda d, n, k: statement.needed(d, n, torch.ones_like(k))
    )
    assert quick(one).violations > 0
    assert quick(statement).violations == 0


def published_needs(statement: Statement, share: mpmath.mpf, n: int) -> mpmath.mpf:
    """The surrogate regret that the published theorem asks for, of a k-th of the target's."""
    if statement.loss == "mae":
        return share / n
    if statement.loss == "gce":
        q = mpmath.mpf(statement.parameter)
        a = 1 / (1 - q)
        mean = ((1 + share) ** a + (1 - share) ** a) / 2
        return (mean ** (1 / a) - 1) / (q * mpmath.mpf(n) ** q)
    return share if statement.loss in ("hinge", "margin") else (share / 2) ** 2


@pytest.mark.parametrize("label", FAILING)
def test_what_was_found_is_a_violation_in_many_digits_too(label) -> None:
    statement = SEARCHED[f"top-k, published: {label}"]
    found = search(statement, restarts=8, steps=30)
    assert sum(found.kept) == found.k
    assert 2 <= found.k < found.n == len(found.log_weights)
    assert found.log_weights == tuple(sorted(found.log_weights, reverse=True))
    with mpmath.workdps(2000):
        p = [mpmath.exp(mpmath.mpf(x)) for x in found.log_weights]
        total = mpmath.fsum(p)
        assert abs(total - 1) < 1e-12
        p = [x / total for x in p]
        w = p if statement.record.family == "comp_sum" else [mpmath.fsum(p) - x for x in p]
        regret = least_regret(statement.loss, w, found.kept, statement.parameter)
        kept = mpmath.fsum(x for x, inside in zip(p, found.kept, strict=True) if inside)
        target = mpmath.fsum(p[: found.k]) - kept
        assert regret < published_needs(statement, target / found.k, found.n)


@pytest.mark.parametrize("name", SEARCHED)
def test_what_a_statement_needs_is_the_inverse_of_the_bound(name) -> None:
    statement = SEARCHED[name]
    for n, k in ((3, 2), (7, 3), (7, 1)):
        for target in (1e-6, 1e-3, 0.05):
            sizes = (torch.tensor([float(x)], dtype=torch.float64) for x in (n, k))
            log_d = torch.tensor([math.log(target)], dtype=torch.float64)
            regret = float(statement.needed(log_d, *sizes).exp())
            if statement.theorem == "cost-sensitive":
                bound = cost_sensitive_bound(
                    statement.loss, regret, members=n, q=statement.parameter
                )
            else:
                published = statement.form != "right"
                if not published and k == 1:
                    continue  # there the smaller of both bounds is given
                bound = top_k_bound(
                    statement.loss, regret, n=n, k=k, q=statement.parameter, published=published
                )
            assert bound == pytest.approx(target, rel=1e-6, abs=0)


@pytest.mark.parametrize("loss", losses_with("psi", "published_top_k_bound"))
def test_the_inverse_of_psi_in_logarithms_is_psi_and_knows_smaller_numbers(loss) -> None:
    bound = get_loss(loss, q=0.6).published_top_k_bound
    n, m = torch.tensor([5.0, 1.0], dtype=torch.float64)

    def log_psi(log_t: float) -> float:
        return float(bound.log_inverse(torch.tensor(log_t, dtype=torch.float64), n, m))

    for t in (1e-120, 1e-50, 1e-4, 0.3, 0.999, 1.0):
        assert log_psi(math.log(t)) == pytest.approx(math.log(psi(loss, t, n=5, q=0.6)), abs=1e-9)
    slope = 1 / bound.rate(5, 1)[1]
    assert log_psi(-400.0) - log_psi(-401.0) == pytest.approx(slope)
    assert log_psi(0.1) == math.inf


def test_every_case_of_a_search_is_wrong_and_all_sizes_occur() -> None:
    for statement in (SEARCHED["top-k, right: log"], SEARCHED["cost-sensitive, published: log"]):
        cases = Cases.draw(statement, 8, torch.Generator().manual_seed(0))
        best = torch.arange(LARGEST) < cases.k[:, None]
        assert (cases.kept != best).any(dim=1).all()
        assert (cases.kept.sum(dim=1) == cases.k).all()
        assert not (cases.kept & ~cases.present).any()
        assert set(cases.n.tolist()) == set(range(2, LARGEST + 1))
        assert (cases.k < cases.n).all()


# The lemmas


def lemma(name: str) -> Lemma:
    return next(one for one in lemmas() if one.name == name)


def ratios(name: str, count: int = 300) -> list[float]:
    return [ratio for ratio, _ in lemma(name).cases(np.random.default_rng(0), count)]


@pytest.mark.parametrize(
    ("name", "function", "value"),
    [
        ("regret of the top-k loss", "top_k_regret", lambda p, h, k: 0.0),
        ("regret of the cardinality-aware loss", "cardinality_regret", lambda p, c, k: 0.0),
        ("Bayes selector, stochastic", "bayes_choice", lambda p, sets, cost, weight: 0),
        ("Bayes selector, deterministic", "deterministic_choice", lambda y, sets, cost, w: 0),
    ],
)
def test_a_lemma_about_a_wrong_function_fails(monkeypatch, name, function, value) -> None:
    assert max(ratios(name)) <= 1
    monkeypatch.setattr(f"shortlist.theory.lemmas.{function}", value)
    assert max(ratios(name)) == math.inf


def test_an_infimum_that_is_too_large_fails(monkeypatch) -> None:
    assert max(ratios("infimum of a surrogate", 1000)) <= 1 + 1e-9
    monkeypatch.setattr(
        "shortlist.theory.lemmas.surrogate_infimum",
        lambda loss, p: 1.05 * surrogate_infimum(loss, p),
    )
    assert max(ratios("infimum of a surrogate", 1000)) > 1.01


def test_the_ceiling_covers_less_than_guaranteed_and_the_floor_does_not() -> None:
    cases = lemma("conformal rank, as printed").cases(np.random.default_rng(0), 60)
    words = {text: ratio for ratio, text in cases}
    case = next(text for text in words if text.startswith("m = 25, alpha = 0.1:"))
    assert case.endswith("coverage 23/26")  # .885 where .90 is guaranteed
    assert words[case] == pytest.approx(0.9 * 26 / 23)
    assert all(ratio <= 1 for ratio in ratios("conformal rank, right"))


# The report


def test_the_same_seed_gives_the_same_report(monkeypatch) -> None:
    some = ["top-k, published, k = 1: squared_hinge", "cost-sensitive, published: gce, q = 0.7"]
    monkeypatch.setattr(module, "statements", lambda: [SEARCHED[name] for name in some])
    monkeypatch.setattr(module, "lemmas", lambda: lemmas()[:5])
    monkeypatch.setattr(module, "CASES", 50)
    one, again, other = (verify(progress=False, seed=seed) for seed in (3, 3, 4))
    assert one == again
    assert str(one) == str(again)
    assert one != other
    assert [row.verdict for row in one.rows] == [row.verdict for row in other.rows]


def test_a_tightened_report_leaves_the_lemmas_out(monkeypatch) -> None:
    some = ["top-k, published, k = 1: mae", "cost-sensitive, published: squared_hinge"]
    monkeypatch.setattr(module, "statements", lambda: [SEARCHED[name] for name in some])
    found = verify(tighten=0.98, progress=False)
    assert [row.verdict for row in found.rows] == ["fails", "holds, loose"]
    assert [row.ratio for row in found.rows] == pytest.approx([1 / 0.98, 0.5**0.5 / 0.98], rel=1e-3)
    assert all(row.example is None for row in found.rows)


def test_report_prints_the_table_and_the_certificates(report) -> None:
    printed = str(report)
    table, examples = printed.split("\n\nCounter-examples, checked exactly:\n")
    head, *lines = table.splitlines()
    assert " ".join(head.split()) == "statement loss bound tried violations ratio verdict"
    assert len(lines) == len(report.rows)
    for line, row in zip(lines, report.rows, strict=True):
        assert line.startswith(row.statement)
        assert line.endswith(row.verdict)
        assert f"{row.tried:,}" in line
        assert row.bound in line
    failing = [row for row in report.rows if row.verdict == "fails"]
    assert len(examples.splitlines()) == len(failing)
    for line, row in zip(examples.splitlines(), failing, strict=True):
        assert line == f"  {row.statement}: {row.example}"


def test_numbers_without_limit_are_said_in_words() -> None:
    row = Row("a", "b", "c", 1000, 2, math.inf, "fails")
    printed = str(Report([row, dataclasses.replace(row, ratio=1e9)])).splitlines()
    assert printed[1].split() == ["a", "b", "c", "1,000", "2", "inf", "fails"]
    assert printed[2].split()[5] == "any"


def test_a_row_that_is_not_there_is_refused_with_those_that_are(report) -> None:
    assert report.row("top-k, published", "mae").verdict == "fails"
    with pytest.raises(ValueError, match=r"there is no row .*'top-k, right', 'log'"):
        report.row("top-k, right", "mae")


@pytest.mark.parametrize("change", [{"depth": 0}, {"tighten": 0.0}, {"tighten": 1.5}])
def test_what_cannot_be_is_refused(change) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        verify(**change)


# The command


def test_the_command_has_help() -> None:
    found = CliRunner().invoke(app, ["theory", "--help"], env={"COLUMNS": "100", "TERM": "dumb"})
    assert found.exit_code == 0
    assert "--depth" in found.output
    assert "--seed" in found.output
    assert "theory" in CliRunner().invoke(app, ["--help"]).output


def test_the_command_prints_the_report(monkeypatch, report) -> None:
    asked = {}
    monkeypatch.setattr("shortlist.theory.verify", lambda **given: asked.update(given) or report)
    found = CliRunner().invoke(app, ["theory", "--depth", "2", "--seed", "5"])
    assert found.exit_code == 0
    assert asked == {"depth": 2, "seed": 5}
    assert found.output.startswith(str(report))
    assert found.output.rstrip().endswith(" s")


def test_the_command_runs_as_a_person_runs_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shortlist.cli", "theory", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "100"},
    )
    assert "Test every theorem of the paper" in done.stdout
