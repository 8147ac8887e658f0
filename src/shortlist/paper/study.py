"""The study: compute the figures of the paper, check its claims, and write the page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from shortlist._utils.progress import Show
from shortlist._utils.validation import check_choice, check_count
from shortlist.paper.claims import check_claims
from shortlist.paper.figures import FIGURES, make_figures
from shortlist.paper.findings import Finding
from shortlist.paper.page import write_page
from shortlist.paper.panels import Figure, Panel
from shortlist.paper.plots import draw
from shortlist.paper.results import Results
from shortlist.paper.runner import Store, run_all
from shortlist.paper.scale import SCALES, Scale
from shortlist.paper.sources import Sources
from shortlist.paper.tasks import Outcome, Task

MAX_WORKERS = 8
STORE = "kept"
"""Name of the folder with the stored outcomes, inside of the output folder."""


@dataclass(frozen=True)
class Report:
    """The results of :func:`run`, and the files that it wrote.

    Parameters
    ----------
    results : Results
        The points of all curves.
    findings : list of Finding
        Evidence and a verdict for each claim of the paper. The list is empty if the scale is too
        small for verdicts.
    files : list of Path
        The plots and the tables.
    page : Path
        The page.
    """

    results: Results
    findings: list[Finding]
    files: list[Path]
    page: Path


@dataclass(frozen=True)
class _Plan:
    """Figures, and what is needed to solve their tasks."""

    figures: list[Figure]
    scale: Scale
    seeds: list[int]
    sources: Sources
    store: Store

    def tasks(self) -> list[Task]:
        """Return all tasks with each seed, without repetitions."""
        unique = dict.fromkeys(task for figure in self.figures for task in figure.tasks())
        return [task.seeded(seed) for seed in self.seeds for task in unique]


def run(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    figures: Sequence[str] | None = None,
    *,
    scale: str | Scale = "default",
    seeds: int | Sequence[int] | None = None,
    page: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    device: str = "auto",
    stored: bool = False,
    progress: Show = "auto",
) -> Report:
    """Compute and plot the figures of the paper, and check its claims.

    Parameters
    ----------
    data : path-like
        Folder with the feature files (see `datasets.load`) `cifar100_finetuned.npz` or
        `cifar100.npz`, `imagenet.npz` or `tinyimagenet.npz`, `cifar10.npz`, and `svhn.npz` or
        `fashion.npz`. Panels without a file stay empty.
    output : path-like
        Folder for the plots (`fig1.png`, `fig1.svg` and so on), the tidy tables `points.csv` and
        `points.json`, and the page. Outcomes are stored in its folder `kept`, so that a run that
        was interrupted continues where it stopped. Outcomes of several runs, with other seeds or
        figures or on other machines, are merged by copying them into one such folder.
    figures : sequence of str, optional
        Names of figures: "fig1" to "fig6", "wide", "settings" and "losses". By default all of them
        ("settings" only in the full study).
    scale : {"default", "quick", "full"} or Scale, default="default"
        Size of the study. "quick" takes a few minutes and gives no verdicts. "full" uses all rows,
        finer grids of lambda and other settings; use a GPU.
    seeds : int or sequence of int, optional
        Number of seeds, or the seeds. By default 2; 1 if the scale is "quick", 3 if it is "full".
    page : path-like, optional
        File to write the page to. By default `paper.md` in the output folder.
    workers : int, optional
        Number of processes, with one thread each. By default one for each core, at most 8. The
        results do not depend on it. With more than one process, a script must guard its main part
        by ``if __name__ == "__main__":``.
    device : str, default="auto"
        Device to train on. "auto" is the GPU if there is one.
    stored : bool, default=False
        Whether to use stored outcomes alone. Curves that were not computed are left out.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. With "auto" it is shown on a terminal.

    Returns
    -------
    Report
        Results, findings and files.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or has none of the feature files, or if stored outcomes are
        asked for and there are none.
    ValueError
        If a figure is unknown, or a number is not valid.
    """
    plan = _plan(data, output, figures, scale, seeds)
    if not stored:
        _compute(plan, workers, device, progress)
    results = _results(plan)
    folder = Path(output)
    files = [path for figure in results.figures for path in draw(results, figure, folder)]
    files += results.save(folder)
    findings = check_claims(results)
    target = folder / "paper.md" if page is None else Path(page)
    return Report(results, findings, files, write_page(results, findings, target, folder))


def compute(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    figures: Sequence[str] | None = None,
    *,
    scale: str | Scale = "default",
    seeds: int | Sequence[int] | None = None,
    workers: int | None = None,
    device: str = "auto",
    progress: Show = "auto",
) -> Path:
    """Compute and store the outcomes of a study, without plots and without a page.

    No optional package is needed. :func:`run` with ``stored=True`` makes the plots and the page
    from the stored outcomes, also on another machine.

    Parameters
    ----------
    data : path-like
        Folder of the feature files.
    output : path-like
        Folder for the outcomes.
    figures : sequence of str, optional
        Figures to compute. See :func:`run`.
    scale : str or Scale, default="default"
        Size of the study. See :func:`run`.
    seeds : int or sequence of int, optional
        Number of seeds, or the seeds. See :func:`run`.
    workers : int, optional
        Number of processes. See :func:`run`.
    device : str, default="auto"
        Device to train on. "auto" is the GPU if there is one.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. With "auto" it is shown on a terminal.

    Returns
    -------
    Path
        The folder of the stored outcomes.
    """
    plan = _plan(data, output, figures, scale, seeds)
    _compute(plan, workers, device, progress)
    return plan.store.folder


def _plan(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    figures: Sequence[str] | None,
    scale: str | Scale,
    seeds: int | Sequence[int] | None,
) -> _Plan:
    """Return the figures that the data allow, and the tasks of their curves."""
    size = SCALES[check_choice(scale, "scale", list(SCALES))] if isinstance(scale, str) else scale
    names = _check_figures(figures, size)
    sources = Sources(os.fspath(data), max(size.sample_sizes), size.classifier_rows, size.test_rows)
    if not Path(data).is_dir():
        raise FileNotFoundError(f"there is no folder of feature files at {os.fspath(data)!r}")
    available = [name for name in sources.panels() if sources.has(name)]
    if "fig5" in names:
        available += ["gaussian-equal", "gaussian-unequal"]
    if "settings" in names:
        available += ["gaussian-similar"]
    data_sizes = {name: sources.size(name) for name in available}
    definitions = make_figures(names, sources, size, data_sizes)
    if not any(panel.curves for figure in definitions for panel in figure.panels):
        expected = ", ".join(f"{name}.npz" for name in sources.panels())
        raise FileNotFoundError(f"{os.fspath(data)!r} has none of the feature files {expected}")
    store = Store(Path(output) / STORE, sources, available)
    return _Plan(definitions, size, _check_seeds(seeds, size), sources, store)


def _compute(plan: _Plan, workers: int | None, device: str, progress: Show) -> None:
    count = min(os.cpu_count() or 1, MAX_WORKERS) if workers is None else workers
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    run_all(
        plan.tasks(),
        plan.sources,
        plan.store,
        workers=check_count(count, "workers"),
        device=device,
        progress=progress,
    )


def _results(plan: _Plan) -> Results:
    """Return the stored outcomes, and the figures with the curves that were computed."""
    stored = {task: plan.store.get(task) for task in plan.tasks()}
    outcomes = {task: outcome for task, outcome in stored.items() if outcome is not None}
    if not outcomes:
        raise FileNotFoundError(
            f"{plan.store.folder} has none of the {len(stored)} outcomes of this study; run it "
            "without stored outcomes, or with the figures, seeds and scale of the stored ones"
        )
    figures = [_computed(figure, plan.seeds, outcomes) for figure in plan.figures]
    curves, left = (
        sum(len(p.curves) for f in fs for p in f.panels) for fs in (plan.figures, figures)
    )
    sizes = {name: plan.sources.size(name) for name in plan.store.fingerprints}
    return Results(figures, outcomes, plan.scale, sizes, plan.seeds, curves - left)


def _computed(figure: Figure, seeds: Sequence[int], outcomes: Mapping[Task, Outcome]) -> Figure:
    """Return a figure with the curves whose outcomes are known for all seeds."""
    panels: list[Panel] = []
    for panel in figure.panels:
        curves = tuple(
            curve
            for curve in panel.curves
            if all(task.seeded(seed) in outcomes for task in curve.tasks for seed in seeds)
        )
        missing = panel.missing if curves or panel.missing else "not computed"
        panels.append(replace(panel, curves=curves, missing=missing))
    return replace(figure, panels=tuple(panels))


def _check_figures(names: Sequence[str] | None, scale: Scale) -> list[str]:
    """Return the names of figures in order, all of them by default; raise for an unknown name."""
    if names is None or not len(names):
        return [name for name in FIGURES if scale.sensitivity or name != "settings"]
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise ValueError(f"there is no figure {unknown[0]!r}; the figures are {', '.join(FIGURES)}")
    return [name for name in FIGURES if name in names]


def _check_seeds(seeds: int | Sequence[int] | None, scale: Scale) -> list[int]:
    """Return the seeds; raise if one is not valid."""
    if seeds is None:
        return list(range(scale.seeds))
    if isinstance(seeds, Sequence):
        if not seeds:
            raise ValueError("seeds must not be empty; give a number of seeds, or the seeds")
        return [check_count(seed, "seeds", minimum=0) for seed in dict.fromkeys(seeds)]
    return list(range(check_count(seeds, "seeds")))
