"""The commands `inspect` and `export`, which read one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shortlist.cli.app import Command, app, errors_in_one_line, say
from shortlist.cli.options import (
    Accuracy,
    AsJson,
    CostWeight,
    Delta,
    Force,
    MeanSize,
    ModelFolder,
    set_options,
)


@app.command(cls=Command)
def inspect(model: ModelFolder, as_json: AsJson = False) -> None:
    """Show what a model contains: its guarantee, its stages, its data and its parameters."""
    with errors_in_one_line():
        from shortlist.io.models import inspect as read
        from shortlist.io.persistence import printable

        about = read(model)
    # The text comes from the file and may contain control characters of the terminal.
    say("\n".join(map(printable, _describe(about))), about, as_json)


def _describe(about: dict[str, Any]) -> list[str]:
    """Return a description of a model, line by line."""
    classes, data, parameters = about["classes"], about["data"], about["parameters"]
    shown = ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
    facts = "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in data.items())
    lines = [
        f"{about['type']}, written by shortlist {about['library_version']} "
        f"(format {about['format_version']}), {about['bytes']:,} bytes of weights",
        f"guarantee: {about['guarantee']}",
        *([f"can guarantee: {about['fit']['guarantees']}"] if "fit" in about else []),
        f"classes: {len(classes):,} ({shown})",
        f"data: {facts or 'none'}",
        "parameters: " + ", ".join(f"{name}={value!r}" for name, value in parameters.items()),
    ]
    lines += [f"{key}: {about[key]}" for key in ("estimator", "method", "features") if key in about]
    fitted = {k: v for k, v in about.get("fit", {}).items() if k not in ("classes", "guarantees")}
    return lines + [f"{name}: {value}" for name, value in fitted.items() if name not in about]


@app.command(cls=Command)
def export(
    model: ModelFolder,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the graph (.onnx).", show_default=False)
    ],
    accuracy: Accuracy = None,
    delta: Delta = None,
    mean_size: MeanSize = None,
    cost_weight: CostWeight = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="class|group", help="Guarantee the accuracy for each class or each group."
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as an ONNX graph from scores (and features) to labels and set sizes.

    Fix the operating point with one of --accuracy, --mean-size and --cost-weight. By default,
    the operating point is an input of the graph.
    """
    with errors_in_one_line():
        from shortlist.io.models import load
        from shortlist.io.set_files import check_output

        check_output(output, force=force, endings=(".onnx",))
        predictor = load(model)
        if not hasattr(predictor, "export_onnx"):
            raise ValueError(
                f"{str(model)!r} is a {type(predictor).__name__}, which predicts no sets; export "
                "the model that was fitted on its scores"
            )
        point = set_options(
            accuracy=accuracy, delta=delta, mean_size=mean_size, cost_weight=cost_weight, by=by
        )
        predictor.export_onnx(output, **point, overwrite=force)
    size = output.stat().st_size
    record = {"output": str(output), "bytes": size, **point}
    fixed = ", ".join(f"{name} = {value}" for name, value in point.items())
    inputs = fixed or "the operating point is an input"
    say(f"{output}: {size:,} bytes; {inputs}", record, as_json)
