"""The command line."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from shortlist._version import __version__

if TYPE_CHECKING:
    from shortlist.demo import Demonstration

app = typer.Typer(
    no_args_is_help=True,
    help="Scores in; out comes the shortest list of labels that still holds the right one.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shortlist {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


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
    from shortlist.demo import demonstrate, draw  # loads torch, which other commands do without

    console = Console()
    begun = time.monotonic()
    shown = demonstrate(seed)
    for one in shown:
        console.print(_table(one))
    picture = draw(shown, output)
    # As it is: a path that is broken in two, or read as markup, cannot be opened.
    typer.echo(f"Curves: {picture}   ({time.monotonic() - begun:.0f} s)")


@app.command()
def theory(
    depth: Annotated[int, typer.Option(help="Search so many times as deep.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)] = 0,
) -> None:
    """Try to break every theorem of the paper; print the verdicts and the counter-examples.

    Takes about a minute at depth 1.
    """
    from shortlist.theory import verify

    begun = time.monotonic()
    typer.echo(str(verify(depth=depth, seed=seed)))
    typer.echo(f"\n{time.monotonic() - begun:.0f} s")


def _table(one: Demonstration) -> Table:
    found = one.found
    table = Table(
        title=f"{one.title}: {found.words}",
        caption="Mean size at equal accuracy, read off the test curve (-: not reached); then the "
        "sets for which 0.95 was promised: the accuracy that they had, and their mean size.",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for accuracy in found.accuracies:
        table.add_column(f"at\n{accuracy:g}", justify="right")
    for name in ("promised\n0.95", "size", "fit, s"):  # so that all fits in 80 columns
        table.add_column(name, justify="right")
    for method in found.curves:
        sizes = [found.at(method, accuracy).size for accuracy in found.accuracies]
        kept = found.at(method, 0.95)
        table.add_row(
            method,
            *(_number(size, 2) for size in sizes),
            _number(kept.promised_accuracy, 4),
            _number(kept.promised_size, 2),
            f"{kept.fit_seconds:.1f}",
            style="bold" if method == "Shortlister" else None,
        )
    return table


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def main() -> None:
    """Run the program."""
    # Threads that spin while they wait make small steps many times slower where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()


if __name__ == "__main__":
    main()
