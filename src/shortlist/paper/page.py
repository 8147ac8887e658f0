"""The page that a run writes: figures, claims, verdicts, tables, and differences to the paper."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.atomic_write import atomic_write
from shortlist.paper.claims import Finding
from shortlist.paper.figures import FIGURES, Curve, Panel
from shortlist.paper.plots import SIZE_ACCURACY
from shortlist.paper.results import Results, versions
from shortlist.paper.scale import Scale
from shortlist.paper.sources import TITLES

NEAR = 0.01
"""Within 1% of the best possible size, a method counts as having reached it."""

DIFFERENCES = """\
- **Features.** The paper has the last layer but one of a ResNet for CIFAR and SVHN, and CLIP for
  ImageNet. Here: whatever the feature files hold (those of the project: small ResNets trained on
  the `fit` part; for Tiny-ImageNet the ResNet-50 of ImageNet).
- **Rows to select by.** The paper does not say which rows train the selector. *Held-out* (solid):
  rows that neither the backbone nor the classifier has seen. *Seen* (dotted): as many rows of those
  that the classifier was trained on.
- **Recipe.** As published: linear h with the logistic loss, r with two hidden ReLU layers (of 128
  units, which the paper does not give), Adam, 1e-3, batches of 128, weight decay 1e-5. Epochs are
  not published: early stopping on a tenth of the rows.
- **The artificial data.** Means from N(0, 0.15² I), unit covariance; the paper gives neither.
  Another draw with each seed. 20,000 rows train h (fewer in a small run), m select.
- **Thresholds.** Twelve, evenly spaced in logarithm, on h's probabilities. The weak scoring
  function of figure 6 is not described in the paper; here it is a linear h that sees one feature
  for six classes, drawn at random.
- **Beside the paper's curves.** LAC with temperature and the Shortlister, both fitted on the
  held-out rows: on as many as the paper's selector, which for Tiny-ImageNet are fewer than there
  are, so that the Shortlister's sets are longer here than where it learns from all of them
  (`docs/figures.md`). Sizes are read off the test curve at equal accuracy, for every method alike;
  between two points of a curve linearly, which a mixture of the two attains.
"""


def write_page(results: Results, findings: Sequence[Finding], page: Path, folder: Path) -> Path:
    """Write the page; its images are in `folder`."""
    pictures = os.path.relpath(folder, page.parent)
    prefix = "" if pictures == "." else f"{Path(pictures).as_posix()}/"
    lines = [*_head(results), *_claims(findings)]
    lines += ["## What differs from the paper", "", DIFFERENCES]
    lines += [*_figures(results, prefix), *_numbers(findings), *_samples(results)]
    lines += [*_sizes(results), *_losses(results)]
    with atomic_write(page) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
    return page


def _head(results: Results) -> Iterator[str]:
    seeds = results.scale.seeds
    used = ", ".join(f"{name} {number}" for name, number in versions().items())
    yield "# The paper's experiments, computed here"
    yield ""
    yield "*Written by `shortlist paper`; change the code, not this page.*"
    yield ""
    names = ", ".join(figure.name for figure in results.figures)
    whole = len(results.figures) == len(FIGURES)
    many = f"{seeds} seeds (numbers are means ± standard deviations over them)"
    spread = "one seed" if seeds == 1 else many
    yield (
        f"{'Every figure' if whole else f'Some figures ({names})'} of *Cardinality-Aware Set "
        f"Prediction and Top-k Classification* on the data at hand, with {spread}; {used}."
    )
    yield ""
    if replace(results.scale, seeds=Scale().seeds) != Scale():
        yield (
            f"**A quick look, with less of everything**: at most {results.scale.rows:,} rows to "
            f"select by and {results.scale.epochs} epochs, where the whole study has "
            f"{Scale().rows:,} and {Scale().epochs}. Its verdicts may differ."
        )
        yield ""
    yield "| data | fit | select | of these, used | test | classes |"
    yield "|---|---|---|---|---|---|"
    for name, about in results.data.items():
        cells = [f"{about[key]:,}" for key in ("fit", "select", "test", "classes")]
        given = int(str(about["select"]))
        most = given if name == "gaussian" else results.scale.rows  # of which m are drawn
        cells.insert(2, f"{min(given, most):,}")
        yield f"| {TITLES[name]} | {' | '.join(cells)} |"
    yield ""


def _claims(findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        return
    yield "## The claims"
    yield ""
    yield "| claim | figure | verdict |"
    yield "|---|---|---|"
    for finding in findings:
        yield f"| {finding.claim} | {finding.where} | **{finding.verdict}** |"
    yield ""


def _numbers(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the evidence of the verdicts."""
    if findings:
        yield "## The numbers behind the verdicts"
        yield ""
    for finding in findings:
        yield f"**{finding.claim}: {finding.verdict}.**"
        yield ""
        yield from (f"- {line}" for line in finding.evidence)
        yield ""


def _samples(results: Results) -> Iterator[str]:
    """Yield the section on how many rows each method needs."""
    figure = results.figure("fig5")
    if figure is None:
        return
    yield "## How many rows does it take?"
    yield ""
    for panel in figure.panels:
        if panel.by_rows:
            yield from _sample_sizes(results, panel)


def _sample_sizes(results: Results, panel: Panel) -> Iterator[str]:
    counts = sorted({task.rows for curve in panel.curves for task in curve.tasks})
    bayes = [c for c in panel.curves if c.task.method == "Bayes"]
    floor = results.sizes_at(bayes[0], SIZE_ACCURACY) if bayes else None
    words = (
        ""
        if floor is None
        else f" The best possible, one threshold on the true probabilities, has {_mean(floor)}; "
        "after × stands how many times that a method needs (each seed draws another problem)."
    )
    yield f"{TITLES[panel.data]}, mean size at {SIZE_ACCURACY:.0%}.{words}"
    yield ""
    last = "" if floor is None else " within 1% of the best |"
    yield f"| method | {' | '.join(f'm = {m:,}' for m in counts)} |{last}"
    yield "|---|" + "---|" * (len(counts) + (floor is not None))
    for curve in panel.curves:
        if curve in bayes:
            continue
        sizes = {task.rows: _at(results, curve, i) for i, task in enumerate(curve.tasks)}
        cells = [_cell(sizes[m], floor) if m in sizes else "" for m in counts]
        last = "" if floor is None else f" {_reached(sizes, floor)} |"
        yield f"| {curve.label} | {' | '.join(cells)} |{last}"
    yield ""
    yield from _rows_to_match(results, panel)


def _rows_to_match(results: Results, panel: Panel) -> Iterator[str]:
    """Yield sentences on how many rows each method needs to match another."""
    papers = [c for c in panel.curves if c.is_paper]
    lac = next(c for c in panel.curves if c.task.method == "LAC")
    ours = next(c for c in panel.curves if c.is_shortlister)
    goal = _at(results, lac, len(lac.tasks) - 1)
    matched = []
    for curve in [*papers, ours]:
        enough = [
            task.rows
            for i, task in enumerate(curve.tasks)
            if _at(results, curve, i).mean() <= goal.mean()
        ]
        matched.append(f"{curve.label}: {f'{enough[0]:,} rows' if enough else 'not reached'}")
    yield (
        f"To be as short as LAC with {lac.task.rows:,} rows ({_mean(goal)}) it takes: "
        f"{'; '.join(matched)}."
    )
    yield ""
    few = max(i for i, task in enumerate(ours.tasks) if task.rows <= max(5_000, ours.tasks[0].rows))
    own = _at(results, ours, few)
    theirs = min(
        (_at(results, c, len(c.tasks) - 1) for c in papers),
        key=lambda sizes: np.inf if np.isnan(sizes).any() else float(sizes.mean()),
    )
    word = "shorter" if own.mean() < theirs.mean() else "not shorter"
    yield (
        f"The Shortlister with {ours.tasks[few].rows:,} rows is {word} than the paper's selector "
        f"with {papers[0].task.rows:,} and the better cost: {_mean(own)} against {_mean(theirs)} "
        f"(shorter in {int((own < theirs).sum())} of {len(own)} seeds)."
    )
    yield ""


def _cell(sizes: NDArray[np.float64], floor: NDArray[np.float64] | None) -> str:
    """Return a mean size and its ratio to the best possible one of the same seed."""
    if floor is None:
        return _mean(sizes)
    return "-" if np.isnan(sizes).any() else f"{sizes.mean():.3f}, × {_mean(sizes / floor)}"


def _at(results: Results, curve: Curve, i: int) -> NDArray[np.float64]:
    return results.sizes_at(Curve(curve.label, (curve.tasks[i],)), SIZE_ACCURACY)


def _reached(sizes: dict[int, NDArray[np.float64]], best: NDArray[np.float64]) -> str:
    enough = [m for m, s in sizes.items() if (s / best).mean() <= 1 + NEAR]
    return f"m = {enough[0]:,}" if enough else "not reached"


def _sizes(results: Results) -> Iterator[str]:
    """Yield mean sizes at equal accuracy for every method of figures 1 and 6."""
    for name, title in (
        ("fig1", "## Mean size at equal accuracy"),
        ("fig6", "## The same with a weak scoring function"),
    ):
        figure = results.figure(name)
        if figure is None or not any(p.curves for p in figure.panels):
            continue
        accuracies = (0.9, 0.95, 0.98)
        yield title
        yield ""
        yield f"| data | method | {' | '.join(f'{a:.0%}' for a in accuracies)} |"
        yield "|---|---|" + "---|" * len(accuracies)
        for panel in figure.panels:
            for curve in panel.curves:
                cells = [_mean(results.sizes_at(curve, a)) for a in accuracies]
                yield f"| {TITLES[panel.data]} | {curve.label} | {' | '.join(cells)} |"
        yield ""


def _losses(results: Results) -> Iterator[str]:
    figure = results.figure("losses")
    if figure is None or not figure.panels[0].curves:
        return
    panel = figure.panels[0]
    yield f"## The eight losses on {TITLES[panel.data]}"
    yield ""
    yield "| loss | at 80% | at 85% | at 90% | highest accuracy |"
    yield "|---|---|---|---|---|"
    for curve in panel.curves:
        if curve.is_paper:
            cells = [_mean(results.sizes_at(curve, a)) for a in (0.8, 0.85, 0.9)]
            highest = np.array([c.accuracy.max() for c in results.curves(curve)])
            yield f"| {curve.label} | {' | '.join(cells)} | {_mean(highest, 4)} |"
    yield ""


def _figures(results: Results, prefix: str) -> Iterator[str]:
    yield "## The figures"
    yield ""
    for figure in results.figures:
        number = figure.name.removeprefix("fig")
        title = f"Figure {number}" if number.isdigit() else "Beyond the paper"
        yield f"![{title}]({prefix}{figure.name}.png)"
        yield ""
        yield f"**{title}.** {figure.caption}"
        yield ""


def _mean(values: NDArray[np.float64], digits: int = 3) -> str:
    """Return mean ± standard deviation over seeds; a dash if a seed has no value."""
    if np.isnan(values).any():
        return "-"
    spread = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{spread}"
