"""Models as they are, and on their way elsewhere: `inspect`, `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shortlist.cli.app import app, errors_in_one_line, say
from shortlist.cli.options import AsJson, Force, ModelFolder


@app.command()
def inspect(model: ModelFolder, as_json: AsJson = False) -> None:
    """Say what is inside a model: which guarantee, trained on what, with which parameters."""
    with errors_in_one_line():
        from shortlist.io.models import inspect as read

        about = read(model)
    classes = [str(name) for name in about["classes"]]  # type: ignore[attr-defined]
    shown = ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
    data: dict[str, object] = about["data"]  # type: ignore[assignment]
    lines = [
        f"{about['type']}, written by shortlist {about['library_version']} "
        f"(format {about['format_version']}), {about['bytes']:,} bytes of weights",
        f"guarantee: {about['guarantee']}",
        f"classes: {len(classes):,} ({shown})",
        "data: " + ("; ".join(f"{k.replace('_', ' ')} {v}" for k, v in data.items()) or "none"),
        "parameters: " + ", ".join(f"{k}={v!r}" for k, v in about["parameters"].items()),  # type: ignore[attr-defined]
    ]
    for key in ("estimator", "method"):
        lines += [f"{key}: {about[key]}"] if key in about else []
    say("\n".join(lines), about, as_json)


@app.command()
def export(
    model: ModelFolder,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The graph, .onnx.", show_default=False)
    ],
    accuracy: Annotated[float | None, typer.Option(help="The accuracy to guarantee.")] = None,
    mean_size: Annotated[float | None, typer.Option(help="So many labels on average.")] = None,
    cost_weight: Annotated[float | None, typer.Option(help="The paper's lambda.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as one ONNX graph, from scores (and features) to labels and sizes.

    Without an operating point, it becomes an input of the graph.
    """
    with errors_in_one_line():
        from shortlist.io.models import load
        from shortlist.io.set_files import check_output
        from shortlist.predictors import SetPredictor

        check_output(output, force=force, endings=(".onnx",))
        predictor = load(model)
        if not isinstance(predictor, SetPredictor):
            raise ValueError(
                f"{str(model)!r} is a {type(predictor).__name__}; only what takes scores is "
                "exported: save its method_ and export that"
            )
        predictor.export_onnx(
            output,
            accuracy=accuracy,
            mean_size=mean_size,
            cost_weight=cost_weight,
            overwrite=force,
        )
        asked = {"accuracy": accuracy, "mean_size": mean_size, "cost_weight": cost_weight}
        point = {name: value for name, value in asked.items() if value is not None}
    size = output.stat().st_size
    found = {"output": str(output), "bytes": size, **point}
    at = ", ".join(f"{k} = {v:g}" for k, v in point.items()) or "the operating point is an input"
    say(f"{output}: {size:,} bytes; {at}", found, as_json)
