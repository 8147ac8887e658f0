"""The page that a study writes: claims and verdicts, differences from the paper, and tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.atomic_write import atomic_write
from shortlist.paper.claims import Finding
from shortlist.paper.figures import FIGURES
from shortlist.paper.panels import Curve, Panel
from shortlist.paper.plots import SIZE_ACCURACY
from shortlist.paper.results import Results, versions
from shortlist.paper.scale import Scale
from shortlist.paper.sources import TITLES

NEAR_OPTIMAL = 0.01
"""Sizes within 1% of the smallest possible one are called near-optimal."""

DIFFERENCES = """\
- **Features.** The paper uses the last but one layer of a ResNet for CIFAR and SVHN, and CLIP for
  ImageNet. This page uses the features in the given files. The project's own files hold features
  of small ResNets that were trained on the split `fit`, and for Tiny-ImageNet those of a ResNet-50
  that was trained on ImageNet.
- **Rows that train the selector.** The paper does not say which rows these are. *Held-out* rows
  (solid lines) were used neither for the network nor for the classifier. *Seen* rows (dotted lines)
  are as many of the rows that the classifier was trained on.
- **Training.** As in the paper, h is linear and trained with the logistic loss, and r has two
  hidden ReLU layers. Both are trained with Adam, learning rate 1e-3, batches of 128 rows and weight
  decay 1e-5. The paper gives neither the width of the layers, which is 128 here, nor the number of
  epochs. Here training stops when the loss on a tenth of the rows stops improving.
- **Artificial data.** The class means are drawn from N(0, 0.15² I), and the covariance is the
  identity. The paper gives neither. Each seed draws other means. 20,000 rows (fewer in a small
  study) train h, and m rows train the selector.
- **Thresholds.** There are twelve thresholds on the probabilities of h, evenly spaced on a
  logarithmic scale. The paper does not describe the weak scoring function of figure 6. Here it is a
  linear h that sees one feature for every six classes, drawn at random.
- **Other methods.** Each figure also shows LAC with temperature and the Shortlister. Both are
  fitted on the same number of held-out rows as the paper's selector. Tiny-ImageNet has more rows
  than that, so the Shortlister's sets are larger here than in `docs/figures.md`, where it is fitted
  on all of them.
- **Sizes at equal accuracy.** They are read off the curve of each method on the test rows. Between
  two points the curve is linear: a random mixture of the two selectors attains these values.
"""


def write_page(results: Results, findings: Sequence[Finding], page: Path, folder: Path) -> Path:
    """Write the page. It links to the plots in `folder`."""
    plots = os.path.relpath(folder, page.parent)
    prefix = "" if plots == "." else f"{Path(plots).as_posix()}/"
    lines = [*_head(results), *_claims(findings)]
    lines += ["## Differences from the paper", "", DIFFERENCES]
    lines += [*_figures(results, prefix), *_evidence(findings), *_samples(results)]
    lines += [*_sizes(results), *_losses(results)]
    with atomic_write(page) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
    return page


def _head(results: Results) -> Iterator[str]:
    scale, full = results.scale, Scale()
    yield "# The experiments of the paper"
    yield ""
    yield "*`shortlist paper` writes this page. Change the code, not the page.*"
    yield ""
    names = ", ".join(figure.name for figure in results.figures)
    is_complete = len(results.figures) == len(FIGURES)
    seeds = f"{scale.seeds} seeds. Numbers are means ± standard deviations over the seeds"
    yield (
        f"This page shows {'every figure' if is_complete else f'some figures ({names})'} of "
        "*Cardinality-Aware Set Prediction and Top-k Classification* for the available data, with "
        f"{'one seed' if scale.seeds == 1 else seeds}. Versions: "
        f"{', '.join(f'{name} {number}' for name, number in versions().items())}."
    )
    yield ""
    if replace(scale, seeds=full.seeds) != full:
        yield (
            f"**This is not the full study.** Methods are fitted on at most {scale.rows:,} rows of "
            f"real data, and for at most {scale.epochs} epochs. In the full study these are "
            f"{full.rows:,} and {full.epochs}, and verdicts may differ."
        )
        yield ""
    yield "| data | fit | select | used of select | test | classes |"
    yield "|---|---|---|---|---|---|"
    for name, size in results.data.items():
        cells = [f"{size[key]:,}" for key in ("fit", "select", "test", "classes")]
        # The artificial data have no maximum: figure 5 uses all of them.
        maximum = size["select"] if name == "gaussian" else scale.rows
        cells.insert(2, f"{min(size['select'], maximum):,}")
        yield f"| {TITLES[name]} | {' | '.join(cells)} |"
    yield ""


def _claims(findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        return
    yield "## Claims"
    yield ""
    yield "| claim | figure | verdict |"
    yield "|---|---|---|"
    for finding in findings:
        yield f"| {finding.claim} | {finding.where} | **{finding.verdict}** |"
    yield ""


def _evidence(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the evidence for each verdict."""
    if findings:
        yield "## Evidence"
        yield ""
    for finding in findings:
        yield f"**{finding.claim}: {finding.verdict}.**"
        yield ""
        yield from (f"- {line}" for line in finding.evidence)
        yield ""


def _samples(results: Results) -> Iterator[str]:
    """Yield the section about the number of rows that each method needs."""
    figure = results.figure("fig5")
    if figure is None:
        return
    yield "## Number of rows that each method needs"
    yield ""
    for panel in figure.panels:
        if panel.by_rows:
            yield from _sample_sizes(results, panel)


def _sample_sizes(results: Results, panel: Panel) -> Iterator[str]:
    counts = sorted({task.rows for curve in panel.curves for task in curve.tasks})
    bayes = [c for c in panel.curves if c.task.method == "Bayes"]
    optimum = results.sizes_at(bayes[0], SIZE_ACCURACY) if bayes else None
    explanation = (
        ""
        if optimum is None
        else f" The smallest possible mean size is {_mean(optimum)}, that of one threshold on the "
        "true probabilities. Each seed draws other classes, so the number after × is the ratio to "
        "the smallest possible size of the same seed."
    )
    yield f"{TITLES[panel.data]}: mean size at {SIZE_ACCURACY:.0%} accuracy.{explanation}"
    yield ""
    last = "" if optimum is None else " within 1% of the optimum |"
    yield f"| method | {' | '.join(f'm = {m:,}' for m in counts)} |{last}"
    yield "|---|" + "---|" * (len(counts) + (optimum is not None))
    for curve in panel.curves:
        if curve in bayes:
            continue
        sizes = {task.rows: _sizes_of(results, curve, i) for i, task in enumerate(curve.tasks)}
        cells = [_cell(sizes[m], optimum) if m in sizes else "" for m in counts]
        last = "" if optimum is None else f" {_near_optimal_rows(sizes, optimum)} |"
        yield f"| {curve.label} | {' | '.join(cells)} |{last}"
    yield ""
    yield from _rows_to_match(results, panel)


def _rows_to_match(results: Results, panel: Panel) -> Iterator[str]:
    """Yield sentences about the number of rows that each method needs to match another one."""
    selectors = [c for c in panel.curves if c.is_paper]
    lac = next(c for c in panel.curves if c.task.method == "LAC")
    shortlister = next(c for c in panel.curves if c.is_shortlister)
    goal = _sizes_of(results, lac, len(lac.tasks) - 1)
    parts = []
    for curve in [*selectors, shortlister]:
        enough = [
            task.rows
            for i, task in enumerate(curve.tasks)
            if _sizes_of(results, curve, i).mean() <= goal.mean()
        ]
        parts.append(f"{curve.label}: {f'{enough[0]:,} rows' if enough else 'not reached'}")
    yield (
        f"Number of rows for sets as small as those of LAC with {lac.task.rows:,} rows "
        f"({_mean(goal)}): {'; '.join(parts)}."
    )
    yield ""
    tasks = shortlister.tasks
    few = max(i for i, task in enumerate(tasks) if task.rows <= max(5_000, tasks[0].rows))
    own = _sizes_of(results, shortlister, few)
    best_selector = min(
        (_sizes_of(results, c, len(c.tasks) - 1) for c in selectors),
        key=lambda sizes: np.inf if np.isnan(sizes).any() else float(sizes.mean()),
    )
    verb = "has smaller" if own.mean() < best_selector.mean() else "does not have smaller"
    yield (
        f"The Shortlister with {tasks[few].rows:,} rows {verb} sets than the paper's selector with "
        f"{selectors[0].task.rows:,} rows and the better cost: {_mean(own)} against "
        f"{_mean(best_selector)} (smaller in {int((own < best_selector).sum())} of {len(own)} "
        "seeds)."
    )
    yield ""


def _cell(sizes: NDArray[np.float64], optimum: NDArray[np.float64] | None) -> str:
    """Return a mean size and its ratio to the smallest possible one of the same seed."""
    if optimum is None:
        return _mean(sizes)
    return "-" if np.isnan(sizes).any() else f"{sizes.mean():.3f}, × {_mean(sizes / optimum)}"


def _sizes_of(results: Results, curve: Curve, i: int) -> NDArray[np.float64]:
    """Return the mean sizes of one of the tasks of a curve."""
    return results.sizes_at(Curve(curve.label, (curve.tasks[i],)), SIZE_ACCURACY)


def _near_optimal_rows(sizes: dict[int, NDArray[np.float64]], optimum: NDArray[np.float64]) -> str:
    """Return the smallest number of rows with near-optimal sizes, as text."""
    enough = [m for m, s in sizes.items() if (s / optimum).mean() <= 1 + NEAR_OPTIMAL]
    return f"m = {enough[0]:,}" if enough else "not reached"


def _sizes(results: Results) -> Iterator[str]:
    """Yield the mean sizes at equal accuracy of every method in figures 1 and 6."""
    for name, title in (
        ("fig1", "## Mean size at equal accuracy"),
        ("fig6", "## Mean size at equal accuracy with a weak scoring function"),
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
    yield "## Figures"
    yield ""
    for figure in results.figures:
        number = figure.name.removeprefix("fig")
        title = f"Figure {number}" if number.isdigit() else "Beyond the paper"
        yield f"![{title}]({prefix}{figure.name}.png)"
        yield ""
        yield f"**{title}.** {figure.caption}"
        yield ""


def _mean(values: NDArray[np.float64], digits: int = 3) -> str:
    """Return the mean ± standard deviation over seeds, or a dash if a seed has no value."""
    if np.isnan(values).any():
        return "-"
    std = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{std}"
