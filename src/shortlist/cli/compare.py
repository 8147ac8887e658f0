"""Every method side by side: `demo`, `compare`."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from shortlist._utils.atomic_write import atomic_write
from shortlist.cli.app import app, errors_in_one_line
from shortlist.cli.options import (
    CLUSTER,
    AsJson,
    BadRows,
    Force,
    NClasses,
    Ray,
    Threads,
    Workers,
    on_cluster,
)

if TYPE_CHECKING:
    from shortlist._utils.arrays import ArrayLike
    from shortlist.cli.demo import Demonstration
    from shortlist.comparison import Comparison
    from shortlist.ranking import Ranking

Part: TypeAlias = "tuple[ArrayLike | Ranking, ArrayLike, ArrayLike | None]"


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to save the picture.")] = (
        Path("shortlist-demo.png")
    ),
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)] = 0,
) -> None:
    """Compare every method on digits and on artificial data; print tables, draw the curves.

    Needs no files and no arguments, and takes about a minute.
    """
    from shortlist.cli.demo import demonstrate, draw  # loads torch, which other commands do without

    console = Console()
    begun = time.monotonic()
    shown = demonstrate(seed)
    for one in shown:
        console.print(_table(one))
    picture = draw(shown, output)
    # As it is: a path that is broken in two, or read as markup, cannot be opened.
    typer.echo(f"Curves: {picture}   ({time.monotonic() - begun:.0f} s)")


@app.command()
def compare(
    data: Annotated[
        str,
        typer.Argument(
            help=".npz, .parquet, .csv, a folder of .npy, a feature file, or -.", show_default=False
        ),
    ],
    test: Annotated[
        str, typer.Option(help="Rows to judge by: a share of DATA, or a file of their own.")
    ] = "0.3",
    accuracies: Annotated[
        str, typer.Option(help="Accuracies to compare at.")
    ] = "0.9,0.95,0.98,0.99",
    report: Annotated[Path | None, typer.Option(help="Write a page for a browser, .html.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the table: .csv, .parquet, .jsonl.")
    ] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Train no longer.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)] = 0,
    ray: Ray = None,
    workers: Workers = None,
    threads: Threads = None,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Compare by about so many rows; default: 200,000.", min=10, rich_help_panel=CLUSTER
        ),
    ] = None,
    n_classes: NClasses = None,
    on_bad_rows: BadRows = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Every method on the same rows: mean size at equal accuracy, guarantees, times.

    With --report also as a page with curves, a slider for the accuracy, and examples.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.comparison import compare as run
        from shortlist.io.set_files import ENDINGS_OUT, check_output

        if report is not None:
            check_output(report, force=force, endings=(".html",))
        if output is not None:
            check_output(output, force=force, endings=ENDINGS_OUT)
        asked: dict[str, Any] = {
            "accuracies": _numbers_in(accuracies),
            "max_epochs": max_epochs,
            "random_state": seed,
        }
        cluster = on_cluster(
            ray,
            workers=workers,
            threads=threads,
            rows=rows,
            n_classes=n_classes,
            on_bad_rows=on_bad_rows,
        )
        if cluster is not None:
            from shortlist.ray import compare as run_on_ray

            found = run_on_ray(data, test=_share(test), **cluster, **asked)
        else:
            given, judged, names = _parts(data, test, seed)
            found = run(*given, test=judged, classes=names, **asked)
        if report is not None:
            found.report(report, title=f"Prediction sets: {Path(data).stem}", overwrite=force)
        if output is not None:
            _write_table(found, output)
    if as_json:
        typer.echo(json.dumps([vars(one) for one in found.measured]))
        return
    typer.echo(str(found))
    typer.echo(f"\n({time.monotonic() - begun:.0f} s)" + (f"   Report: {report}" if report else ""))


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"with --ray, --test is a share of DATA, as 0.3; got {text!r}") from None


def _numbers_in(text: str) -> list[float]:
    """Numbers between commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--accuracies takes numbers with commas between, as 0.9,0.95; got {text!r}"
        ) from None


def _parts(data: str, test: str, seed: int) -> tuple[Part, Part | float, ArrayLike | None]:
    """The rows to learn from, those to judge by (or their share), and the classes' names."""
    from shortlist.datasets import FeatureFile
    from shortlist.io.rows import read
    from shortlist.learning.linear import LinearClassifier

    given = read(data)
    if isinstance(given, FeatureFile):
        names = given.classes
        h = LinearClassifier(random_state=seed)
        h.fit(given.fit.x.astype(np.float32), names[given.fit.y])
        parts: list[Part] = []
        for part in (given.select, given.test):
            x = part.x.astype(np.float32)
            parts.append((h.decision_function(x), names[part.y], x))
        return parts[0], parts[1], h.classes_
    if given.y is None:
        raise ValueError(f"{given.name} has no labels: compare needs y")
    named = None if given.labels is not None else given.classes
    try:
        share: float | None = float(test)
    except ValueError:
        share = None
    rows: Part = (given.given(), given.y, given.features)
    if share is not None:
        return rows, share, named
    other = read(test)
    if isinstance(other, FeatureFile) or other.y is None:
        raise ValueError(f"{test}: rows to judge by need scores and labels y, as DATA has")
    if given.classes is not None:
        other = other.for_model(given.classes, given.feature_names)
    assert other.y is not None
    return rows, (other.given(given.classes), other.y, other.features), named


def _write_table(found: Comparison, path: Path) -> None:
    frame = found.to_frame()
    with atomic_write(path) as aside:
        if path.suffix == ".parquet":
            frame.to_parquet(aside)
        elif path.suffix == ".csv":
            frame.to_csv(aside, index=False)
        else:
            frame.to_json(aside, orient="records", lines=True)


def _table(one: Demonstration) -> Table:
    found = one.found
    table = Table(
        title=f"{one.title}: {found.words}",
        caption="Mean size at equal accuracy, read off the test curve (-: not reached); then the "
        "sets for which 0.95 was guaranteed: the accuracy that they had, and their mean size.",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for accuracy in found.accuracies:
        table.add_column(f"at\n{accuracy:g}", justify="right")
    for name in ("guaranteed\n0.95", "size", "fit, s"):  # so that all fits in 80 columns
        table.add_column(name, justify="right")
    for method in found.curves:
        sizes = [found.at(method, accuracy).size for accuracy in found.accuracies]
        kept = found.at(method, 0.95)
        table.add_row(
            method,
            *(_number(size, 2) for size in sizes),
            _number(kept.guaranteed_accuracy, 4),
            _number(kept.guaranteed_size, 2),
            f"{kept.fit_seconds:.1f}",
            style="bold" if method == "Shortlister" else None,
        )
    return table


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
