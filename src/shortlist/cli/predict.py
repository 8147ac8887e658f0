"""The command `predict`, which writes prediction sets."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from shortlist.cli.app import app, errors_in_one_line, say
from shortlist.cli.models import LoadedModel, stream_data
from shortlist.cli.options import (
    CLUSTER,
    AsJson,
    BadRows,
    Data,
    Force,
    ModelFolder,
    Ray,
    Threads,
    Workers,
    cluster_options,
    set_options,
)


@app.command()
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
    accuracy: Annotated[
        float | None,
        typer.Option(help="Fraction of sets that must contain the true label (coverage)."),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Guarantee the accuracy with probability 1 - DELTA over the calibration rows."
        ),
    ] = None,
    mean_size: Annotated[float | None, typer.Option(help="Target mean set size.")] = None,
    cost_weight: Annotated[
        float | None,
        typer.Option(
            help="Cost of a label, if a miss costs 1 (lambda in the paper); guarantees no accuracy."
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help='With "class", the accuracy is guaranteed for each class.')
    ] = None,
    on_unreachable: Annotated[
        str | None,
        typer.Option(
            help='With "all", predict all labels if there are too few calibration rows, instead of '
            "raising an error."
        ),
    ] = None,
    ray: Ray = None,
    workers: Workers = None,
    threads: Threads = None,
    rows_per_file: Annotated[
        int | None,
        typer.Option(
            help="Approximate number of rows of an output file.", min=1, rich_help_panel=CLUSTER
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a column of DATA to copy to the output. Can be given more than once.",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    on_bad_rows: BadRows = None,
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
            keep=keep or None,
            on_bad_rows=on_bad_rows,
        )
        if cluster is not None and output.endswith(ENDINGS_OUT):
            raise ValueError(f"with --ray, the output is a folder of Parquet files; got {output!r}")
        if cluster is None:
            check_output(output, force=force, endings=ENDINGS_OUT)
        if by is not None:
            check_choice(by, "--by", ("class",))
        point = set_options(
            accuracy=accuracy, delta=delta, mean_size=mean_size, cost_weight=cost_weight, by=by
        )
        loaded = LoadedModel.open(model)
        if on_unreachable is not None:
            loaded.method.set_params(on_unreachable=on_unreachable)
        if cluster is not None:
            _predict_on_ray(loaded, data, output, as_json, {**point, **cluster, "overwrite": force})
            return
        summary = _predict_here(loaded, data, output, point)
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
    loaded: LoadedModel, data: str, output: str, point: dict[str, Any]
) -> PredictionSummary:
    """Predict and write block by block. The file is opened after the first block is predicted."""
    from shortlist.io.set_files import sets_writer

    blocks = (loaded.match(block) for block in stream_data(data, "test"))
    predictions = ((block, loaded.predict_set(block, **point)) for block in blocks)
    block, sets = next(predictions)
    guarantee, has_labels = str(sets.guarantee), block.y is not None
    n_rows = n_labels = hits = 0
    with sets_writer(output, guarantee) as write:
        while True:
            write(sets, n_rows)
            n_rows += len(block)
            n_labels += int(sets.sizes.sum())
            hits += 0 if block.y is None else int(sets.contains(block.y).sum())
            following = next(predictions, None)
            if following is None:
                break
            block, sets = following
    accuracy = hits / n_rows if has_labels else None
    return PredictionSummary(n_rows, n_labels / n_rows, guarantee, accuracy)


def _predict_on_ray(
    loaded: LoadedModel, data: str, output: str, as_json: bool, options: dict[str, Any]
) -> None:
    """Predict on a cluster and print the result."""
    from shortlist.ray import predict_set

    begun = time.monotonic()
    result = predict_set(data, loaded.model, output, **options)
    seconds = round(time.monotonic() - begun, 2)
    say(repr(result), {**vars(result), "seconds": seconds}, as_json)
