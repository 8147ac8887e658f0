"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Rows: .npz, .parquet, .csv, a folder of .npy files, or - for CSV on the standard "
        "input.",
        show_default=False,
    ),
]
ModelFolder = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Folder of the model.", show_default=False)
]
MaxEpochs = Annotated[int | None, typer.Option(help="Maximum number of training epochs.", min=1)]
Accuracy = Annotated[
    float | None,
    typer.Option(help="Fraction of sets that must contain the true label (coverage)."),
]
Delta = Annotated[
    float | None,
    typer.Option(
        help="Guarantee the accuracy with probability 1 - DELTA over the calibration rows."
    ),
]
MeanSize = Annotated[float | None, typer.Option(help="Target mean set size.")]
CostWeight = Annotated[
    float | None,
    typer.Option(
        help="Cost of a label, if a miss costs 1 (lambda in the paper); guarantees no accuracy."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)]
CLUSTER = "On a cluster"
"""Heading of the options that need --ray."""
COLUMNS = "Columns of DATA"
"""Heading of the options that say what the columns of a file are."""
Label = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column (or array) with the true labels; default: y.",
        rich_help_panel=COLUMNS,
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column with the group of each row, for guarantees in each group.",
        rich_help_panel=COLUMNS,
    ),
]
Identifier = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Column that identifies the rows; predict copies it to the output.",
        rich_help_panel=COLUMNS,
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Column that is not used. Can be given more than once.",
        rich_help_panel=COLUMNS,
    ),
]
BadRows = Annotated[
    str | None,
    typer.Option(
        metavar="raise|skip",
        help="What to do with rows that have missing values or unknown labels: raise an error "
        "(default) or skip them.",
        rich_help_panel=COLUMNS,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Run on the Ray cluster at this address; auto for the cluster on this machine, local "
        "to start one. DATA must be Parquet files.",
        rich_help_panel=CLUSTER,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Number of processes; default: one for each core.", min=1, rich_help_panel=CLUSTER
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Number of threads of each process; default: 1.", min=1, rich_help_panel=CLUSTER
    ),
]
NClasses = Annotated[
    int | None,
    typer.Option(
        help="Number of classes, for ranked candidates; default: one more than the largest label.",
        min=2,
        rich_help_panel=CLUSTER,
    ),
]


def set_options(**options: object) -> dict[str, Any]:
    """Return the options that were given on the command line.

    Examples
    --------
    >>> set_options(accuracy=0.9, delta=None)
    {'accuracy': 0.9}
    """
    return {name: value for name, value in options.items() if value is not None}


def cluster_options(ray: str | None, **options: object) -> dict[str, Any] | None:
    """Return the options for a cluster, which all need --ray; None without --ray."""
    present = set_options(**options)
    if ray is not None:
        return {**present, "address": ray}
    if present:
        raise ValueError(
            f"--{next(iter(present)).replace('_', '-')} needs a cluster; add --ray ADDRESS, or "
            "--ray local to start one on this machine"
        )
    return None
