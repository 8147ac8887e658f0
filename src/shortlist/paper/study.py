"""The whole study: solve the tasks of the figures, plot, check the claims, write the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shortlist._utils.progress import Show
from shortlist._utils.validation import check_count
from shortlist.paper.claims import Finding, check_claims
from shortlist.paper.figures import FIGURES, Figure, make_figures
from shortlist.paper.page import write_page
from shortlist.paper.plots import draw
from shortlist.paper.results import Results
from shortlist.paper.runner import Store, run_all
from shortlist.paper.scale import QUICK, Scale
from shortlist.paper.sources import Sources
from shortlist.paper.tasks import Task

MAX_WORKERS = 8


@dataclass(frozen=True)
class Report:
    """The results of `run`, and the files that it wrote."""

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
    """Compute and plot the figures of the paper from feature files, and check its claims.

    Parameters
    ----------
    data : path-like
        Folder with the feature files `cifar100.npz`, `imagenet.npz` or `tinyimagenet.npz`,
        `cifar10.npz` and `svhn.npz` (see `datasets.load`). Panels without a file stay empty.
    output : path-like
        Folder for `fig1.png`, `fig1.svg`, …, the tidy tables `points.csv` and `points.json`, and
        `paper.md`. Outcomes are stored in its folder `kept`, so that an interrupted run can be
        continued.
    figures : sequence of str, optional
        Names among "fig1" to "fig6" and "losses". All by default.
    quick : bool, default=False
        Whether to run a small study of a few minutes: one seed, few rows, few lambdas.
    seeds : int, optional
        Number of seeds. By default 3, or 1 if `quick`.
    scale : Scale, optional
        Size of the study, in place of `quick`.
    page : path-like, optional
        Where to write the page. By default `paper.md` in the output folder.
    workers : int, optional
        Number of processes, with one thread each. By default one for each core, at most 8. The
        results do not depend on it. With more than one, a script must guard its main part by
        ``if __name__ == "__main__":``.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. "auto": on a terminal.

    Returns
    -------
    Report
        Results, findings and files.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or has none of the feature files.
    """
    names = _figures(figures)
    size = scale if scale is not None else QUICK if quick else Scale()
    size = size if seeds is None else replace(size, seeds=check_count(seeds, "seeds"))
    folder = Path(output)
    sources = Sources(os.fspath(data), max(size.sample_sizes), size.classifier_rows, size.test_rows)
    if not Path(data).is_dir():
        raise FileNotFoundError(f"there is no folder of feature files at {os.fspath(data)!r}")
    known = _data_sizes(sources, names)
    defined = make_figures(names, sources, size, known)
    if not any(panel.curves for figure in defined for panel in figure.panels):
        asked = ", ".join(f"{name}.npz" for name in sources.panels())
        raise FileNotFoundError(f"{os.fspath(data)!r} has none of the feature files {asked}")
    tasks = _tasks(defined, size.seeds)
    store = Store(folder / "kept", sources, list(known))
    count = min(os.cpu_count() or 1, MAX_WORKERS) if workers is None else workers
    outcomes = run_all(
        tasks, sources, store, workers=check_count(count, "workers"), progress=progress
    )
    results = Results(defined, outcomes, size, known)
    files = [path for figure in defined for path in draw(results, figure, folder)]
    files += results.save(folder)
    findings = check_claims(results)
    target = folder / "paper.md" if page is None else Path(page)
    return Report(results, findings, files, write_page(results, findings, target, folder))


def _figures(asked: Sequence[str] | None) -> list[str]:
    """Return the names of the requested figures, validated."""
    if asked is None or not len(asked):
        return list(FIGURES)
    unknown = [name for name in asked if name not in FIGURES]
    if unknown:
        raise ValueError(f"there is no figure {unknown[0]!r}; there are: {', '.join(FIGURES)}")
    return [name for name in FIGURES if name in asked]


def _data_sizes(sources: Sources, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the numbers of rows and classes of the data sets that are available and needed."""
    sizes: dict[str, dict[str, int]] = {}
    for name in sources.panels():
        if sources.has(name):
            file = sources.read(name, 0)
            parts = {part: len(getattr(file, part)) for part in ("fit", "select", "test")}
            sizes[name] = {**parts, "classes": len(file.classes)}
    if "fig5" in names:
        sizes["gaussian"] = {
            "fit": sources.classifier_rows,
            "select": sources.gaussian_rows,
            "test": sources.test_rows,
            "classes": 10,
        }
    return sizes


def _tasks(figures: Sequence[Figure], seeds: int) -> list[Task]:
    """Return all tasks, each once."""
    return [
        task.seeded(seed)
        for seed in range(seeds)
        for task in dict.fromkeys(task for figure in figures for task in figure.tasks())
    ]
