"""The command `predict`, which writes prediction sets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from shortlist.cli.app import Command, app, errors_in_one_line, say
from shortlist.cli.columns import DataOptions
from shortlist.cli.models import LoadedModel
from shortlist.cli.options import (
    CLUSTER,
    COLUMNS,
    Accuracy,
    AsJson,
    BadRows,
    CostWeight,
    Data,
    Delta,
    Force,
    Groups,
    Identifier,
    Ignore,
    Label,
    MeanSize,
    ModelFolder,
    Ray,
    Threads,
    Workers,
    cluster_options,
    set_options,
)

if TYPE_CHECKING:
    from shortlist.datasets import Rows


@app.command(cls=Command)
def predict(
    model: ModelFolder,
    data: Data,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="File for the sets (.parquet, .csv or .jsonl), or - for JSON lines on the "
            "standard output. With --ray, a folder.",
            show_default=False,
        ),
    ],
    accuracy: Accuracy = None,
    delta: Delta = None,
    mean_size: MeanSize = None,
    cost_weight: CostWeight = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="class|group",
            help="Guarantee the accuracy for each class, or for each group of --groups.",
        ),
    ] = None,
    on_unreachable: Annotated[
        str | None,
        typer.Option(
            help='With "all", predict all labels if there are too few calibration rows, instead of '
            "raising an error."
        ),
    ] = None,
    label: Label = None,
    groups: Groups = None,
    identifier: Identifier = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column to copy to the output. Can be given more than once.",
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    ignore: Ignore = None,
    on_bad_rows: BadRows = None,
    ray: Ray = None,
    workers: Workers = None,
    threads: Threads = None,
    rows_per_file: Annotated[
        int | None,
        typer.Option(
            help="Approximate number of rows of an output file.", min=1, rich_help_panel=CLUSTER
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the prediction set of each row.

    Choose the operating point with one of --accuracy, --mean-size and --cost-weight. By default,
    the accuracy that was given to `shortlist fit` is guaranteed. If DATA has labels y, the measured
    accuracy of the sets is printed. If DATA is a feature file, its split `test` is used.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist._utils.validation import check_choice
        from shortlist.io.set_files import ENDINGS_OUT, check_output

        cluster = cluster_options(
            ray,
            workers=workers,
            threads=threads,
            rows_per_file=rows_per_file,
        )
        columns = DataOptions(label, groups, identifier, ignore, keep, on_bad_rows)
        columns.check()
        if cluster is not None and output.endswith(ENDINGS_OUT):
            raise ValueError(f"with --ray, the output is a folder of Parquet files; got {output!r}")
        if cluster is None:
            check_output(output, force=force, endings=ENDINGS_OUT)
        if by is not None:
            check_choice(by, "--by", ("class", "group"))
        if (by == "group") != (groups is not None):
            raise ValueError(
                "--by group needs the group of each row: name its column with --groups"
                if groups is None
                else "--groups is used with --by group only; add it, or leave --groups out"
            )
        point = set_options(
            accuracy=accuracy, delta=delta, mean_size=mean_size, cost_weight=cost_weight, by=by
        )
        loaded = LoadedModel.open(model)
        if on_unreachable is not None:
            loaded.set_on_unreachable(on_unreachable)
        if cluster is not None:
            options = {**point, **cluster, **columns.for_cluster(data), "overwrite": force}
            _predict_on_ray(loaded, data, output, as_json, options)
            return
        summary = _predict_here(loaded, data, columns, output, point)
    seconds = round(time.monotonic() - begun, 2)
    record = {"output": output, **vars(summary), "seconds": seconds}
    where = "" if output == "-" else f"{output}: "
    say(f"{where}{summary}", record, as_json, err=output == "-")


@dataclass
class PredictionSummary:
    """Summary of the sets that were written.

    Attributes
    ----------
    rows : int
        Number of sets.
    mean_size : float
        Mean size of the sets.
    guarantee : str
        Guarantee of the sets.
    accuracy : float or None
        Fraction of the sets that contain the true label, if labels are known.
    """

    rows: int
    mean_size: float
    guarantee: str
    accuracy: float | None

    def __str__(self) -> str:
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.4f}"
        return f"{self.rows:,} sets, mean size {self.mean_size:.3f}{accuracy}\n{self.guarantee}"


def _predict_here(
    loaded: LoadedModel, data: str, columns: DataOptions, output: str, point: dict[str, Any]
) -> PredictionSummary:
    """Predict and write block by block. The file is opened after the first block is predicted."""
    from shortlist._utils.labels import count_unknown_labels
    from shortlist._utils.warnings import warn
    from shortlist.io.set_files import sets_writer

    blocks = _usable_blocks(loaded, data, columns)
    predictions = ((block, loaded.predict_set(block, **point)) for block in blocks)
    first = next(predictions, None)
    if first is None:
        raise ValueError(f"{data}: all rows are bad")
    block, sets = first
    guarantee, has_labels = str(sets.guarantee), block.y is not None
    n_rows = n_labels = hits = 0
    writer = sets_writer(output, guarantee, tuple(columns.kept))
    with count_unknown_labels() as unknown, writer as write:
        while True:
            numbers = np.arange(n_rows, n_rows + len(block))
            if block.numbers is not None:
                numbers = block.numbers.astype(np.int64)
            write(sets, numbers, block.extra or {})
            n_rows += len(block)
            n_labels += int(sets.sizes.sum())
            hits += 0 if block.y is None else int(sets.contains(block.y).sum())
            following = next(predictions, None)
            if following is None:
                break
            block, sets = following
    if unknown.n_unknown:
        warn(f"{data}: {unknown.describe(n_rows)}")
    accuracy = hits / n_rows if has_labels else None
    return PredictionSummary(n_rows, n_labels / n_rows, guarantee, accuracy)


def _usable_blocks(loaded: LoadedModel, data: str, columns: DataOptions) -> Iterator[Rows]:
    """Yield the rows block by block, without bad ones if they are skipped."""
    from shortlist.datasets.bad_rows import SkippedRows, without_bad_rows

    skipped = SkippedRows()
    for block in columns.stream(data, "test"):
        rows = loaded.match(block)
        if columns.skips:  # A label y that is no class is a miss, and its row is not skipped.
            rows = without_bad_rows(rows, skipped, loaded.method.classes_, check_y=False)
        if len(rows):
            yield rows
    skipped.warn(data)


def _predict_on_ray(
    loaded: LoadedModel, data: str, output: str, as_json: bool, options: dict[str, Any]
) -> None:
    """Predict on a cluster and print the result."""
    from shortlist.ray import predict_set

    begun = time.monotonic()
    result = predict_set(data, loaded.model, output, **options)
    seconds = round(time.monotonic() - begun, 2)
    say(repr(result), {**vars(result), "seconds": seconds}, as_json)
