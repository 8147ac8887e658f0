"""The command line."""

from __future__ import annotations

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
    """Train the paper's selector on digits and on artificial data; print a table, draw the curve.

    Needs no files and no arguments, and takes about a minute.
    """
    from shortlist.demo import demonstrate, draw  # loads torch, which other commands do without

    console = Console()
    begun = time.monotonic()
    shown = demonstrate(seed)
    for one in shown:
        console.print(_table(one))
    picture = draw(shown, output)
    console.print(f"Curves: {picture}   ({time.monotonic() - begun:.0f} s)", highlight=False)


def _table(one: Demonstration) -> Table:
    table = Table(
        title=f"{one.title}: the selector on {one.family}",
        caption="Ratio: the selector's mean size over that of fixed top-k (of one fixed threshold) "
        "at the same accuracy. No accuracy is promised.",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("method")
    for name in ("lambda", "accuracy", "mean size", "to top-k", "to a threshold"):
        table.add_column(name, justify="right")
    for accuracy, size in zip(one.top_k.accuracy, one.top_k.mean_size, strict=True):
        table.add_row(f"top-{size:.0f}", "", f"{accuracy:.4f}", f"{size:.3f}", "", "")
    table.add_section()
    curve = one.selector
    points = zip(curve.parameter, curve.accuracy, curve.mean_size, one.needed(), strict=True)
    for weight, accuracy, size, (top_k, threshold) in points:
        table.add_row(
            "selector",
            f"{weight:g}",
            f"{accuracy:.4f}",
            f"{size:.3f}",
            f"{size / top_k:.2f}",
            f"{size / threshold:.2f}",
        )
    return table


def main() -> None:
    """Run the program."""
    # Threads that spin while they wait make small steps many times slower where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()


if __name__ == "__main__":
    main()
