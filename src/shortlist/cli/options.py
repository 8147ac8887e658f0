"""Options that several commands have, and what they ask for together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Data = Annotated[
    str,
    typer.Argument(
        help=".npz, .parquet, .csv, a folder of .npy, or - (CSV on the standard input).",
        show_default=False,
    ),
]
ModelFolder = Annotated[Path, typer.Argument(help="Folder of the model.", show_default=False)]
CLUSTER = "On a cluster"
"""The heading of what goes with --ray."""
BadRows = Annotated[
    str | None,
    typer.Option(
        help="raise (the default), or skip rows with NaN or unknown labels.",
        rich_help_panel=CLUSTER,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Work on a Ray cluster: its address, auto, or local. DATA is Parquet.",
        rich_help_panel=CLUSTER,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="So many processes; default: one for each core.", min=1, rich_help_panel=CLUSTER
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(help="Threads of each process; default: 1.", min=1, rich_help_panel=CLUSTER),
]
NClasses = Annotated[
    int | None,
    typer.Option(
        help="How many classes there are, for ranked candidates; default: as occur.",
        min=2,
        rich_help_panel=CLUSTER,
    ),
]


def said(**options: object) -> dict[str, Any]:
    """Those of some options that were said.

    >>> said(accuracy=0.9, delta=None)
    {'accuracy': 0.9}
    """
    return {name: value for name, value in options.items() if value is not None}


def on_cluster(ray: str | None, **options: object) -> dict[str, Any] | None:
    """How to work on a cluster, if that is where to work; else there may be no such options."""
    given = said(**options)
    if ray is not None:
        return {**given, "address": ray}
    if given:
        raise ValueError(
            f"--{next(iter(given)).replace('_', '-')} is for work on a cluster; say --ray ADDRESS "
            "too, or --ray local for one of this machine alone"
        )
    return None
