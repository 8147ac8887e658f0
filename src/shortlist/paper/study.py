"""The study: compute the figures of the paper, check its claims, and write the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shortlist._utils.progress import Show
from shortlist._utils.validation import check_count
from shortlist.paper.claims import Finding, check_claims
from shortlist.paper.figures import FIGURES, make_figures
from shortlist.paper.page import write_page
from shortlist.paper.panels import Figure
from shortlist.paper.plots import draw
from shortlist.paper.results import Results
from shortlist.paper.runner import Store, run_all
from shortlist.paper.scale import QUICK, Scale
from shortlist.paper.sources import Sources
from shortlist.paper.tasks import Task

MAX_WORKERS = 8


@dataclass(frozen=True)
class Report:
    """The results of :func:`run`, and the files that it wrote.

    Parameters
    ----------
    results : Results
        The points of all curves.
    findings : list of Finding
        Evidence and a verdict for each claim of the paper.
    files : list of Path
        The plots and the tables.
    page : Path
        The page.
    """

    results: Results
    findings: list[Finding]
    files: list[Path]
    page: Path


def run(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    figures: Sequence[str] | None = None,
    *,
    quick: bool = False,
    seeds: int | None = None,
    scale: Scale | None = None,
    page: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Show = "auto",
) -> Report:
    """Compute and plot the figures of the paper, and check its claims.

    Parameters
    ----------
    data : path-like
        Folder with the feature files `cifar100.npz`, `imagenet.npz` or `tinyimagenet.npz`,
        `cifar10.npz` and `svhn.npz` (see `datasets.load`). Panels without a file stay empty.
    output : path-like
        Folder for the plots (`fig1.png`, `fig1.svg` and so on), the tidy tables `points.csv` and
        `points.json`, and the page. Outcomes are stored in its folder `kept`, so that a run that
        was interrupted continues where it stopped.
    figures : sequence of str, optional
        Names of figures: "fig1" to "fig6" and "losses". By default all of them.
    quick : bool, default=False
        Whether to run a small study of a few minutes: one seed, few rows and few cost weights.
    seeds : int, optional
        Number of seeds. By default 3, or 1 if `quick`.
    scale : Scale, optional
        Size of the study. It takes precedence over `quick`.
    page : path-like, optional
        File to write the page to. By default `paper.md` in the output folder.
    workers : int, optional
        Number of processes, with one thread each. By default one for each core, at most 8. The
        results do not depend on it. With more than one process, a script must guard its main part
        by ``if __name__ == "__main__":``.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. With "auto" it is shown on a terminal.

    Returns
    -------
    Report
        Results, findings and files.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or has none of the feature files.
    ValueError
        If a figure is unknown, or a number is not valid.
    """
    names = _check_figures(figures)
    size = scale if scale is not None else QUICK if quick else Scale()
    size = size if seeds is None else replace(size, seeds=check_count(seeds, "seeds"))
    folder = Path(output)
    sources = Sources(os.fspath(data), max(size.sample_sizes), size.classifier_rows, size.test_rows)
    if not Path(data).is_dir():
        raise FileNotFoundError(f"there is no folder of feature files at {os.fspath(data)!r}")
    available = [name for name in sources.panels() if sources.has(name)]
    available += ["gaussian"] if "fig5" in names else []
    data_sizes = {name: sources.size(name) for name in available}
    definitions = make_figures(names, sources, size, data_sizes)
    if not any(panel.curves for figure in definitions for panel in figure.panels):
        expected = ", ".join(f"{name}.npz" for name in sources.panels())
        raise FileNotFoundError(f"{os.fspath(data)!r} has none of the feature files {expected}")
    tasks = _tasks(definitions, size.seeds)
    store = Store(folder / "kept", sources, available)
    count = min(os.cpu_count() or 1, MAX_WORKERS) if workers is None else workers
    outcomes = run_all(
        tasks, sources, store, workers=check_count(count, "workers"), progress=progress
    )
    results = Results(definitions, outcomes, size, data_sizes)
    files = [path for figure in definitions for path in draw(results, figure, folder)]
    files += results.save(folder)
    findings = check_claims(results)
    target = folder / "paper.md" if page is None else Path(page)
    return Report(results, findings, files, write_page(results, findings, target, folder))


def _check_figures(names: Sequence[str] | None) -> list[str]:
    """Return the names of figures in order, all of them by default; raise for an unknown name."""
    if names is None or not len(names):
        return list(FIGURES)
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise ValueError(f"there is no figure {unknown[0]!r}; the figures are {', '.join(FIGURES)}")
    return [name for name in FIGURES if name in names]


def _tasks(figures: Sequence[Figure], seeds: int) -> list[Task]:
    """Return all tasks with each seed, without repetitions."""
    return [
        task.seeded(seed)
        for seed in range(seeds)
        for task in dict.fromkeys(task for figure in figures for task in figure.tasks())
    ]
