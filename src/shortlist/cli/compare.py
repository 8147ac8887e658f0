"""The commands `demo` and `compare`, which compare all methods on the same rows."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.extras import require
from shortlist._utils.tables import format_number
from shortlist.cli.app import Command, app, errors_in_one_line
from shortlist.cli.columns import (
    DataOptions,
    check_no_identifier,
    extra_rows,
    without_unknown_labels,
)
from shortlist.cli.options import (
    CLUSTER,
    AsJson,
    BadRows,
    Force,
    Identifier,
    Ignore,
    Label,
    MaxEpochs,
    NClasses,
    Ray,
    Seed,
    Threads,
    Workers,
    cluster_options,
)

if TYPE_CHECKING:
    from shortlist._utils.arrays import ArrayLike
    from shortlist.cli.demo import Demonstration
    from shortlist.comparison import Comparison
    from shortlist.datasets import FeatureFile, Samples
    from shortlist.ranking import Ranking

Inputs: TypeAlias = "tuple[Ranking, ArrayLike, ArrayLike | None]"


@app.command(cls=Command)
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the plot (.png, .svg or .pdf).")
    ] = Path("shortlist-demo.png"),
    seed: Seed = 0,
) -> None:
    """Compare all methods on built-in data; print tables and plot the curves.

    The data are handwritten digits and Gaussian classes. Takes about a minute.
    """
    console = Console()
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.cli.demo import demonstrate, draw  # Imported here because it loads torch.
        from shortlist.io.set_files import check_output

        check_output(output, force=True, endings=(".png", ".svg", ".pdf"))
        require("matplotlib", "the plot")
        demonstrations = demonstrate(seed)
        for demonstration in demonstrations:
            console.print(_table(demonstration))
        picture = draw(demonstrations, output)
    # Not printed by rich, which would wrap the path and read it as markup.
    typer.echo(f"Curves: {picture}   ({time.monotonic() - begun:.0f} s)")


@app.command(cls=Command)
def compare(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Rows with labels: .npz, .parquet, .csv, a folder of .npy files, a feature file, "
            "or - for CSV on the standard input.",
            show_default=False,
        ),
    ],
    test: Annotated[
        str, typer.Option(help="Share of DATA to use as test rows, or another file with test rows.")
    ] = "0.3",
    accuracies: Annotated[
        str,
        typer.Option(
            help="Accuracies (coverages) at which set sizes are compared, separated by commas."
        ),
    ] = "0.9,0.95,0.98,0.99",
    report: Annotated[Path | None, typer.Option(help="File for an HTML report (.html).")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the table (.csv, .parquet or .jsonl)."),
    ] = None,
    max_epochs: MaxEpochs = None,
    seed: Seed = 0,
    label: Label = None,
    identifier: Identifier = None,
    ignore: Ignore = None,
    on_bad_rows: BadRows = None,
    ray: Ray = None,
    workers: Workers = None,
    threads: Threads = None,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Approximate number of rows to sample; default: 200,000.",
            min=10,
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    n_classes: NClasses = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compare all methods on your data: set sizes at equal accuracy, guarantees, run times.

    The classifier must not have been trained on the rows of DATA. If DATA is a feature file, a
    linear classifier is trained on its split `fit`, from which the Shortlister and the retrained
    classifiers learn, too. With --report, also write a page with curves, a slider for the accuracy,
    and examples.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.comparison import compare as compare_here
        from shortlist.io.set_files import ENDINGS_OUT, check_output

        if report is not None:
            check_output(report, force=force, endings=(".html",))
        if output is not None:
            check_output(output, force=force, endings=ENDINGS_OUT)
            require("pandas", "writing the table")
        options: dict[str, Any] = {
            "accuracies": _parse_numbers(accuracies),
            "max_epochs": max_epochs,
            "random_state": seed,
        }
        columns = DataOptions(label, None, identifier, ignore, on_bad_rows=on_bad_rows)
        columns.check()
        cluster = cluster_options(
            ray,
            workers=workers,
            threads=threads,
            rows=rows,
            n_classes=n_classes,
        )
        if cluster is not None:
            from shortlist.ray import compare as compare_on_ray

            cluster |= columns.for_cluster(data)
            cluster.pop("keep", None)
            comparison = compare_on_ray(data, test=_parse_share(test), **cluster, **options)
        else:
            train_rows, test_rows, extra = _read_rows(data, test, columns, seed)
            comparison = compare_here(*train_rows, test=test_rows, **(options | extra))
        if report is not None:
            comparison.report(report, title=f"Prediction sets: {Path(data).stem}", overwrite=force)
        if output is not None:
            _write_table(comparison, output)
    if as_json:
        typer.echo(json.dumps([vars(one) for one in comparison.measurements]))
        return
    typer.echo(str(comparison))
    typer.echo(f"\n({time.monotonic() - begun:.0f} s)" + (f"   Report: {report}" if report else ""))


def _parse_share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"with --ray, --test is a share of DATA, such as 0.3; got {text!r}"
        ) from None


def _parse_numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--accuracies takes numbers separated by commas, such as 0.9,0.95; got {text!r}"
        ) from None


def _read_rows(
    data: str, test: str, columns: DataOptions, seed: int
) -> tuple[Inputs, Inputs | float, dict[str, Any]]:
    """Return the rows to learn from, the test rows or their share, and rows without scores."""
    from shortlist.datasets import load
    from shortlist.datasets.feature_files import is_feature_file

    if is_feature_file(data):
        columns.check_feature_file(data)
        return _score_splits(load(data), seed)
    rows = columns.read(data, "select")
    if rows.y is None:
        raise ValueError(
            f"{rows.name} has no labels, which compare needs; add {columns.label or 'y'}, or name "
            "the column with --label"
        )
    check_no_identifier(rows)
    rows = without_unknown_labels(rows, columns)
    assert rows.y is not None
    inputs: Inputs = (rows.ranking(), rows.y, rows.features)
    try:
        return inputs, float(test), {}
    except ValueError:
        pass
    if is_feature_file(test):
        raise ValueError(f"{test} is a feature file, but test rows need scores, as in DATA")
    others = columns.read(test, "test")
    if others.y is None:
        raise ValueError(f"{test} has no labels, which test rows need; add y")
    labels = others.y
    if rows.classes is not None:
        others = others.match_columns(rows.classes, rows.feature_names)
    return inputs, (others.ranking(rows.classes), labels, others.features), {}


def _score_splits(file: FeatureFile, seed: int) -> tuple[Inputs, Inputs, dict[str, Any]]:
    """Score the splits `select` and `test` with a linear classifier fitted on the split `fit`.

    The rows of `fit` have no honest scores, and are returned as extra rows.
    """
    from shortlist.learning.linear import LinearClassifier
    from shortlist.ranking import Ranking

    names = file.classes
    classifier = LinearClassifier(random_state=seed)
    extra = extra_rows(file)
    classifier.fit(*extra.values())

    def score(samples: Samples) -> Inputs:
        x = samples.x.astype(np.float32)
        scores = classifier.decision_function(x)
        return Ranking.from_scores(scores, classes=classifier.classes_), names[samples.y], x

    return score(file.select), score(file.test), extra


def _write_table(comparison: Comparison, path: Path) -> None:
    frame = comparison.to_frame()
    with atomic_write(path) as temporary:
        if path.suffix == ".parquet":
            frame.to_parquet(temporary)
        elif path.suffix == ".csv":
            frame.to_csv(temporary, index=False)
        else:
            frame.to_json(temporary, orient="records", lines=True)


def _table(demonstration: Demonstration) -> Table:
    comparison = demonstration.comparison
    table = Table(
        title=f"{demonstration.title}: {comparison.summary}",
        caption="Mean size at equal accuracy on the test rows (-: not reached); accuracy and mean "
        "size of the sets with a guaranteed accuracy of 0.95; time to fit.",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for accuracy in comparison.accuracies:
        table.add_column(f"at\n{accuracy:g}", justify="right")
    for name in ("guaranteed\n0.95", "size", "fit, s"):  # The table fits in 80 columns.
        table.add_column(name, justify="right")
    for method in comparison.curves:
        sizes = [comparison.at(method, accuracy).size for accuracy in comparison.accuracies]
        kept = comparison.at(method, 0.95)
        table.add_row(
            method,
            *(format_number(size, 2) for size in sizes),
            format_number(kept.guaranteed_accuracy, 4),
            format_number(kept.guaranteed_size, 2),
            f"{kept.fit_seconds:.1f}",
            style="bold" if method == "Shortlister" else None,
        )
    return table
