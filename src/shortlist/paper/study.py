"""The whole study: define the figures, do what they need, draw, judge, write it all down."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shortlist._utils.arrays import check_count
from shortlist._utils.progress import Show
from shortlist.paper.claims import Finding, judge
from shortlist.paper.figures import FIGURES, QUICK, Figure, Scale, define
from shortlist.paper.page import write_page
from shortlist.paper.plots import draw
from shortlist.paper.results import Results
from shortlist.paper.runner import Store, run_all
from shortlist.paper.sources import Sources
from shortlist.paper.tasks import Task

MOST_WORKERS = 8


@dataclass(frozen=True)
class Report:
    """What `run` leaves behind."""

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
    """Compute the paper's figures from feature files, draw them, and judge the paper's claims.

    Parameters
    ----------
    data : folder
        With `cifar100.npz`, `imagenet.npz` or `tinyimagenet.npz`, `cifar10.npz`, `svhn.npz`, each
        a feature file (see `datasets.load`). A panel whose file is absent says so.
    output : folder
        For `fig1.png`, `fig1.svg`, …, the tidy tables `points.csv` and `points.json`, and
        `paper.md`. What has been fitted is kept there too, in `kept`: a run that was stopped goes
        on where it was.
    figures : list of names, optional
        Of "fig1" to "fig6" and "losses". Default: all.
    quick : bool
        A look in a few minutes: one seed, few rows, few lambdas.
    seeds : int, optional
        How many; default 3, or 1 if quick.
    scale : Scale, optional
        How much of everything, in place of `quick`.
    page : path, optional
        Where to write the page; default: `paper.md` in the output folder.
    workers : int, optional
        Processes, of one thread each; default: one for each core, at most 8. The results do not
        depend on it. With more than one, a script of yours must guard its main part by
        `if __name__ == "__main__":`, as always with processes.
    """
    names = _figures(figures)
    size = scale if scale is not None else QUICK if quick else Scale()
    size = size if seeds is None else replace(size, seeds=check_count(seeds, "seeds"))
    folder = Path(output)
    sources = Sources(os.fspath(data), max(size.sample_sizes), size.classifier_rows, size.test_rows)
    if not Path(data).is_dir():
        raise FileNotFoundError(f"there is no folder of feature files at {os.fspath(data)!r}")
    known = _about(sources, names)
    defined = define(names, sources, size, known)
    if not any(panel.curves for figure in defined for panel in figure.panels):
        asked = ", ".join(f"{name}.npz" for name in sources.panels())
        raise FileNotFoundError(f"{os.fspath(data)!r} has none of the feature files {asked}")
    tasks = _tasks(defined, size.seeds)
    store = Store(folder / "kept", sources, list(known))
    count = min(os.cpu_count() or 1, MOST_WORKERS) if workers is None else workers
    outcomes = run_all(
        tasks, sources, store, workers=check_count(count, "workers"), progress=progress
    )
    results = Results(defined, outcomes, size, known)
    files = [path for figure in defined for path in draw(results, figure, folder)]
    files += results.save(folder)
    findings = judge(results)
    target = folder / "paper.md" if page is None else Path(page)
    return Report(results, findings, files, write_page(results, findings, target, folder))


def _figures(asked: Sequence[str] | None) -> list[str]:
    if asked is None or not len(asked):
        return list(FIGURES)
    unknown = [name for name in asked if name not in FIGURES]
    if unknown:
        raise ValueError(f"there is no figure {unknown[0]!r}; there are: {', '.join(FIGURES)}")
    return [name for name in FIGURES if name in asked]


def _about(sources: Sources, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """How large each data set is that is there and needed."""
    found: dict[str, dict[str, int]] = {}
    for name in sources.panels():
        if sources.has(name):
            file = sources.read(name, 0)
            parts = {part: len(getattr(file, part)) for part in ("fit", "select", "test")}
            found[name] = {**parts, "classes": len(file.classes)}
    if "fig5" in names:
        found["gaussian"] = {
            "fit": sources.classifier_rows,
            "select": sources.gaussian_rows,
            "test": sources.test_rows,
            "classes": 10,
        }
    return found


def _tasks(figures: Sequence[Figure], seeds: int) -> list[Task]:
    """Everything to be done, each once."""
    return [
        task.seeded(seed)
        for seed in range(seeds)
        for task in dict.fromkeys(task for figure in figures for task in figure.tasks())
    ]
