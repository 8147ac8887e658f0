"""The page that a study writes: verdicts, settings, figures and all numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.atomic_write import atomic_write
from shortlist.paper.curve_claims import LOWEST_WEIGHT
from shortlist.paper.findings import OPEN, Finding
from shortlist.paper.panels import Curve, Panel
from shortlist.paper.plots import SIZE_ACCURACY
from shortlist.paper.reading import LARGEST_RATIO
from shortlist.paper.results import Results
from shortlist.paper.settings_table import settings_section
from shortlist.paper.sources import GAUSSIAN, TITLES

OPEN_QUESTIONS = """\
The paper gives the networks, the optimizer, its learning rate, batch size and weight decay, the
sets K and the costs. It leaves open what most of its numbers depend on: the width of the selector
and how its weights are initialized, the number of epochs and when training stops, whether features
are standardized, which rows train the selector and how many there are, the values of λ between the
largest and 0.01, the means and covariances of the artificial classes, the thresholds, and the weak
classifier of figure 6. A verdict below is about this page's choices for these, which the section
on settings lists, and about these data."""

JUDGED = f"""\
- **Verdicts** are "reproduced", "partly" (on some data or at some accuracies) and "not on these
  data". They are about the paper's recipe: a single selector that sees features alone, trained on
  rows that h was not trained on. Each claim is judged with the better of the two costs and, where
  it names an accuracy, with the better of K = {{1, 2, 4, 8}} and the largest K. Beside it stands
  the same number for selectors with different initial weights whose scores r are averaged, which
  the paper does not do. *Our variant*, whose selectors also see the scores, never counts.
- **Numbers** are means ± standard deviations over the seeds. A seed determines the rows of the
  subsets, the classifier, the initial weights and the batches; for artificial data, the classes.
- **Sizes at equal accuracy** are read off the curve of each method on the test rows, without the
  points that another point of the same curve dominates. Between two points the size is
  interpolated, as a random choice between two selectors attains it, but only if the larger one is
  at most {100 * (LARGEST_RATIO - 1):.0f}% larger. Otherwise no size is read. Top-k, which has no
  points between k and k + 1, is always interpolated.
- **Capped training** supports no verdict ("{OPEN}"). Every network stops when its loss on a
  tenth of the rows has stopped improving. The settings record if the maximum number of epochs came
  first.
- **Lambda** goes below the paper's last value, {LOWEST_WEIGHT:g}, where the accuracy needs it. The
  claim that every point lies above top-k's curve is judged on the paper's range.
"""

DATA_NOTES = """\
- **Features.** The paper uses the last layer but one of a ResNet for CIFAR and SVHN, and CLIP for
  ImageNet. This page uses the features in the given files. Those of the project are: for CIFAR-100
  the last layer of an ImageNet ResNet-50 that was fine-tuned on the split `fit` (512 principal
  components), the setting nearest to the paper's, and in a second panel a small ResNet that was
  trained on `fit`; for CIFAR-10 and Fashion-MNIST small ResNets of the same kind; for Tiny-ImageNet
  an ImageNet ResNet-50. SVHN and CLIP features of ImageNet are not available: Fashion-MNIST,
  another set of ten easy classes, and Tiny-ImageNet stand in for them, and a verdict about them is
  a verdict about the stand-in.
- **Artificial data.** The class means are drawn from N(0, 0.15² I). Equal covariances are the
  identity. With unequal ones, each class and coordinate has its own variance, whose logarithm is
  drawn from N(0, 0.4²). The paper gives neither means nor covariances, but calls its problem
  "close to being realizable". Each seed draws other classes.
- **Weak scoring function.** h sees one feature for every six classes, at least three, drawn at
  random. The selector sees all features.
- **Rows that h has seen.** If the selector learns from rows that the network and h were trained on,
  h is almost always right on them, and almost every set has one label. One curve of figure 1 shows
  this.
"""

LAST_LINE = (
    "Beyond the paper: the sizes of this library's own method, the Shortlister, are in "
    "[figures.md](figures.md)."
)


def write_page(results: Results, findings: Sequence[Finding], page: Path, folder: Path) -> Path:
    """Write the page. It links to the plots in `folder`."""
    plots = os.path.relpath(folder, page.parent)
    prefix = "" if plots == "." else f"{Path(plots).as_posix()}/"
    lines = [*_head(results), *_verdicts(results, findings)]
    lines += ["## How it is judged", "", JUDGED, "## Data", "", DATA_NOTES, *_data(results)]
    lines += [*settings_section(results), *_figures(results, prefix), *_evidence(findings)]
    lines += [*_samples(results), *_sizes(results), *_losses(results), LAST_LINE, ""]
    with atomic_write(page) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
    return page


def _head(results: Results) -> Iterator[str]:
    scale = results.scale
    yield "# The experiments of the paper"
    yield ""
    yield OPEN_QUESTIONS
    yield ""
    seeds = ", ".join(map(str, results.seeds))
    figures = ", ".join(figure.title for figure in results.figures)
    yield (
        "The paper is *Cardinality-Aware Set Prediction and Top-k Classification* (Cortes, Mao, "
        f"Mohri, Mohri and Zhong, NeurIPS 2024). Scale: {scale.name}; seeds: {seeds}; shown: "
        f"{figures}. Computed with {'; '.join(_versions(results))}. `shortlist paper` writes this "
        "page: change the code, not the page."
    )
    yield ""
    if not scale.verdicts:
        yield "**This is a quick run. It is too small for verdicts, and gives none.**"
        yield ""
    if results.missing:
        yield f"**{results.missing} curves are left out because they were not computed.**"
        yield ""


def _versions(results: Results) -> list[str]:
    """Return the packages and devices that computed the outcomes."""
    texts = (
        ", ".join(f"{name} {version}" for name, version in outcome.versions.items())
        for outcome in results.outcomes.values()
    )
    return sorted(set(texts))


def _verdicts(results: Results, findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        return
    yield "## Verdicts"
    yield ""
    mean = f"mean of {results.scale.selectors} selectors"
    yield f"| claim | figure | verdict | single selector | {mean} | sensitive to |"
    yield "|---|---|---|---|---|---|"
    for f in findings:
        cells = (f.claim, f.where, f"**{f.verdict}**", f.single, f.mean, f.sensitivity)
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "The numbers are mean sizes relative to the other method's, unless they have a unit."
    yield ""


def _data(results: Results) -> Iterator[str]:
    rows = results.scale.rows
    yield "| data | fit | select | used of select | test | classes |"
    yield "|---|---|---|---|---|---|"
    for name, size in results.data.items():
        cells = [f"{size[key]:,}" for key in ("fit", "select", "test", "classes")]
        used = size["select"] if rows is None or name in GAUSSIAN else min(size["select"], rows)
        cells.insert(2, f"{used:,}")
        yield f"| {TITLES[name]} | {' | '.join(cells)} |"
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
    panels = [] if figure is None else [p for p in figure.panels if p.by_rows and p.curves]
    if not panels:
        return
    yield "## Artificial data: mean size and number of rows"
    yield ""
    for panel in panels:
        yield from _sample_sizes(results, panel)


def _sample_sizes(results: Results, panel: Panel) -> Iterator[str]:
    counts = sorted({task.rows for curve in panel.curves for task in curve.tasks})
    yield (
        f"{TITLES[panel.data]}: mean size at {SIZE_ACCURACY:.0%} accuracy for m rows. Each seed "
        "draws other classes."
    )
    yield ""
    yield f"| method | {' | '.join(f'm = {m:,}' for m in counts)} |"
    yield "|---|" + "---|" * len(counts)
    for curve in panel.curves:
        parts = [Curve(curve.label, (task,), curve.cost, curve.average) for task in curve.tasks]
        sizes = {p.task.rows: results.sizes_at(p, SIZE_ACCURACY) for p in parts}
        cells = [mean_text(sizes[m]) if m in sizes else "" for m in counts]
        yield f"| {curve.label} | {' | '.join(cells)} |"
    yield ""


def _sizes(results: Results) -> Iterator[str]:
    """Yield the mean sizes at equal accuracy of every method."""
    for name, title in (
        ("fig2", "## Mean size at equal accuracy, K = {1, 2, 4, 8}"),
        ("wide", "## Mean size at equal accuracy, the largest K"),
        ("fig6", "## Mean size at equal accuracy with a weak scoring function"),
    ):
        figure = results.figure(name)
        if figure is None or not any(p.curves for p in figure.panels):
            continue
        accuracies = (0.9, 0.95, 0.98)
        yield title
        yield ""
        yield "A dash: not reached, or no point of the curve is near."
        yield ""
        yield f"| data | method | {' | '.join(f'{a:.0%}' for a in accuracies)} |"
        yield "|---|---|" + "---|" * len(accuracies)
        for panel in figure.panels:
            for curve in panel.curves:
                cells = [mean_text(results.sizes_at(curve, a)) for a in accuracies]
                yield f"| {TITLES[panel.data]} | {curve.label} | {' | '.join(cells)} |"
        yield ""


def _losses(results: Results) -> Iterator[str]:
    figure = results.figure("losses")
    if figure is None or not figure.panels[0].curves:
        return
    panel = figure.panels[0]
    yield f"## The eight losses on {TITLES[panel.data]}"
    yield ""
    yield "| loss | at 85% | at 90% | at 95% | highest accuracy |"
    yield "|---|---|---|---|---|"
    for curve in panel.curves:
        if curve.is_selector:
            cells = [mean_text(results.sizes_at(curve, a)) for a in (0.85, 0.9, 0.95)]
            highest = np.array([c.accuracy.max() for c in results.curves(curve)])
            yield f"| {curve.label} | {' | '.join(cells)} | {mean_text(highest, 4)} |"
    yield ""


def _figures(results: Results, prefix: str) -> Iterator[str]:
    yield "## Figures"
    yield ""
    for figure in results.figures:
        yield f"![{figure.title}]({prefix}{figure.name}.png)"
        yield ""
        yield f"**{figure.title}.** {figure.caption}"
        yield ""


def mean_text(values: NDArray[np.float64], digits: int = 3) -> str:
    """Return the mean ± standard deviation over seeds, or a dash if a seed has no value."""
    if np.isnan(values).any():
        return "-"
    std = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{std}"
