"""From a model to sets: `predict`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist.cli.app import app, errors_in_one_line, say
from shortlist.cli.models import check_takes, method_of
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
    on_cluster,
    said,
)

if TYPE_CHECKING:
    from shortlist.io.models import Model
    from shortlist.io.rows import Rows
    from shortlist.sets import PredictionSets


@app.command()
def predict(
    model: ModelFolder,
    data: Data,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help=".parquet, .csv or .jsonl; - for JSON lines. With --ray: a folder.",
            show_default=False,
        ),
    ],
    accuracy: Annotated[float | None, typer.Option(help="The accuracy to guarantee.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="… and the probability with which that may fail.")
    ] = None,
    mean_size: Annotated[float | None, typer.Option(help="So many labels on average.")] = None,
    cost_weight: Annotated[
        float | None, typer.Option(help="The paper's lambda; guarantees nothing.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="class: the guarantee for each class.")] = None,
    on_unreachable: Annotated[
        str | None,
        typer.Option(help="all: every label where the rows are too few for the guarantee."),
    ] = None,
    ray: Ray = None,
    workers: Workers = None,
    threads: Threads = None,
    rows_per_file: Annotated[
        int | None,
        typer.Option(
            help="About so many rows have their sets in one file.",
            min=1,
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of DATA to be copied; may be said again.", rich_help_panel=CLUSTER
        ),
    ] = None,
    on_bad_rows: BadRows = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the prediction set of each row.

    One of --accuracy, --mean-size and --cost-weight chooses the operating point; without one it is
    that of the fit. If DATA has labels y, it says how accurate the sets were.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist._utils.arrays import check_choice
        from shortlist.io.models import load
        from shortlist.io.set_files import ENDINGS_OUT, check_output, sets_writer

        cluster = on_cluster(
            ray,
            workers=workers,
            threads=threads,
            rows_per_file=rows_per_file,
            keep=keep or None,
            on_bad_rows=on_bad_rows,
        )
        if cluster is not None and output.endswith(ENDINGS_OUT):
            raise ValueError(f"with --ray the output is a folder of Parquet files; got {output!r}")
        if cluster is None:
            check_output(output, force=force, endings=ENDINGS_OUT)
        if by is not None:
            check_choice(by, "--by", ("class",))
        point = said(
            accuracy=accuracy, delta=delta, mean_size=mean_size, cost_weight=cost_weight, by=by
        )
        predictor = load(model)
        if on_unreachable is not None:
            method_of(predictor).set_params(on_unreachable=on_unreachable)
        if cluster is not None:
            asked = {**point, **cluster, "overwrite": force}
            _predict_on_ray(predictor, data, output, as_json=as_json, **asked)
            return
        parts = _parts_for(predictor, data)
        part = next(parts)
        sets = _predict(predictor, part, point)
        guarantee, labelled = sets.guarantee, part.y is not None
        hits = labels = count = 0
        with sets_writer(output, guarantee) as write:
            while True:
                write(sets, count)
                count += len(part)
                labels += int(sets.sizes.sum())
                hits += 0 if part.y is None else int(sets.contains(part.y).sum())
                later = next(parts, None)
                if later is None:
                    break
                part, sets = later, _predict(predictor, later, point)
    size = labels / count
    found = {
        "output": output,
        "rows": count,
        "mean_size": size,
        "guarantee": guarantee,
        "accuracy": hits / count if labelled else None,
        "seconds": round(time.monotonic() - begun, 2),
    }
    known = f"; {hits / count:.4f} accurate" if labelled else ""
    where = "" if output == "-" else f"{output}: "
    text = f"{where}{count:,} sets, {size:.3f} labels on average{known}\n{guarantee}"
    say(text, found, as_json, err=output == "-")


def _predict_on_ray(predictor: Any, data: str, output: str, *, as_json: bool, **asked: Any) -> None:
    """Write sets on a cluster, and say what was done."""
    from shortlist.ray import predict_set

    begun = time.monotonic()
    done = predict_set(data, predictor, output, **asked)
    seconds = round(time.monotonic() - begun, 2)
    say(repr(done), {**vars(done), "seconds": seconds}, as_json)


def _parts_for(predictor: Model, data: str) -> Iterator[Rows]:
    """The rows to predict, a part after the other; of a feature file, those of its test part."""
    from shortlist.datasets import FeatureFile
    from shortlist.io.rows import Rows, read, stream_rows

    method = method_of(predictor)
    if not data.endswith(".npz"):
        for part in stream_rows(data):
            check_takes(predictor, part)
            yield part.in_order_of(method)
        return
    given = read(data)
    check_takes(predictor, given)
    if isinstance(given, FeatureFile):
        x = given.test.x.astype("float32")
        rows = Rows(x, None, given.classes[given.test.y], x, name=given.name)
        yield from rows.blocks()
        return
    yield from given.in_order_of(method).blocks()


def _predict(predictor: Model, rows: Rows, point: dict[str, object]) -> PredictionSets:
    from shortlist.predictors import SetPredictor
    from shortlist.predictors.classifier import ShortlistClassifier

    if isinstance(predictor, ShortlistClassifier):
        return predictor.predict_set(rows.features, **point)
    assert isinstance(predictor, SetPredictor)
    return predictor.predict_set(rows.given(predictor.classes_), rows.features, **point)
