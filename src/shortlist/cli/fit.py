"""The commands `fit` and `calibrate`, which write a model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist.cli.app import Command, app, errors_in_one_line, say
from shortlist.cli.columns import (
    DataOptions,
    check_no_identifier,
    extra_rows,
    without_unknown_labels,
)
from shortlist.cli.methods import METHODS, build_method
from shortlist.cli.models import LoadedModel, calibration_size, group_options
from shortlist.cli.options import (
    CLUSTER,
    AsJson,
    BadRows,
    Data,
    Force,
    Groups,
    Identifier,
    Ignore,
    Label,
    MaxEpochs,
    ModelFolder,
    NClasses,
    Ray,
    Seed,
    Threads,
    Workers,
    cluster_options,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shortlist._utils.arrays import ArrayLike
    from shortlist.datasets import FeatureFile, Rows
    from shortlist.io.models import Model
    from shortlist.predictors import SetPredictor

MAX_UNUSED_CLASSES = 3
"""Up to this many classes without rows are probably columns that are not scores."""


@dataclass(frozen=True)
class FitResult:
    """A model, the set predictor in it, and the number of rows that it was fitted on."""

    model: Model
    method: SetPredictor
    n_rows: int


@app.command(cls=Command)
def fit(
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the model.", show_default=False)
    ],
    method: Annotated[
        str,
        typer.Option(
            help=f"Method: {', '.join(METHODS)}, or the name of a conformity score, such as lac or "
            "aps. Another name prints all of them."
        ),
    ] = "shortlister",
    accuracy: Annotated[
        float,
        typer.Option(help="Accuracy (coverage) that shortlist predict guarantees by default."),
    ] = 0.95,
    calibration: Annotated[
        float | None,
        typer.Option(
            help="Share of the rows to hold out for calibration; 0 for none. By default, it "
            "depends on the method."
        ),
    ] = None,
    score_type: Annotated[
        str, typer.Option(help="Type of the scores: auto, logits, proba or log_proba.")
    ] = "auto",
    max_epochs: MaxEpochs = None,
    seed: Seed = 0,
    label: Label = None,
    groups: Groups = None,
    identifier: Identifier = None,
    ignore: Ignore = None,
    on_bad_rows: BadRows = None,
    ray: Ray = None,
    workers: Workers = None,
    threads: Threads = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Folder for checkpoints that all machines can access.", rich_help_panel=CLUSTER
        ),
    ] = None,
    n_classes: NClasses = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model that predicts sets, from scores and labels.

    The classifier must not have been trained on the rows of DATA. DATA contains scores (rows ×
    classes) or ranked candidates, labels y, and optionally features; docs/data.md describes the
    formats. DATA can also be a feature file, which has no scores: then a linear classifier is
    trained on its split `fit`, and the model is fitted on its split `select`. The Shortlister also
    learns from the features and labels of `fit`.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.io.models import save
        from shortlist.io.set_files import check_model_folder

        check_model_folder(output, force=force)
        options = DataOptions(label, groups, identifier, ignore, on_bad_rows=on_bad_rows)
        options.check()
        cluster = cluster_options(
            ray,
            workers=workers,
            threads=threads,
            storage=storage,
            n_classes=n_classes,
        )
        build = partial(
            build_method,
            method,
            accuracy=accuracy,
            calibration=calibration,
            score_type=score_type,
            max_epochs=max_epochs,
            seed=seed,
        )
        if cluster is None:
            result = _fit_here(build, data, options, calibration, seed)
        else:
            columns = options.for_cluster(data)
            columns.pop("keep", None)
            result = _fit_on_ray(build, data, {**cluster, **columns})
        save(result.model, output, overwrite=force)
        point = _reachable_point(result.method, accuracy)
    kept = calibration_size(result.method)
    count = len(result.model.classes_)
    seconds = time.monotonic() - begun
    record = {
        "model": str(output),
        "method": method,
        "rows": result.n_rows,
        "classes": count,
        "calibration_rows": kept,
        "seconds": round(seconds, 2),
    }
    guarantee = "no guarantee" if kept is None else _calibration_rows(kept)
    following = _next_command(output, data, ray, "" if kept is None else point)
    text = (
        f"{output}: {method} on {result.n_rows:,} rows, {count:,} classes; {guarantee}"
        f"   ({seconds:.0f} s)\n{following}"
    )
    say(text, record, as_json)


@app.command(cls=Command)
def calibrate(
    model: ModelFolder,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the new model.", show_default=False)
    ],
    label: Label = None,
    groups: Groups = None,
    identifier: Identifier = None,
    ignore: Ignore = None,
    on_bad_rows: BadRows = None,
    ray: Ray = None,
    workers: Workers = None,
    threads: Threads = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Replace the calibration rows of a model, on which its guarantee is based.

    Use it when the data have changed, or after fit with --calibration 0. DATA needs labels y, and
    neither the classifier nor the model may have been trained on its rows. If DATA is a
    feature file, its split `select` is used.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.io.models import save
        from shortlist.io.set_files import check_model_folder

        check_model_folder(output, force=force)
        options = DataOptions(label, groups, identifier, ignore, on_bad_rows=on_bad_rows)
        options.check()
        cluster = cluster_options(ray, workers=workers, threads=threads)
        loaded = LoadedModel.open(model)
        if cluster is not None:
            from shortlist.ray import calibrate as calibrate_on_ray

            columns = options.for_cluster(data)
            columns.pop("keep", None)
            calibrate_on_ray(data, loaded.model, **cluster, **columns)
        else:
            if not hasattr(loaded.method, "calibrate"):
                raise ValueError(
                    f"{model} makes no guarantee and cannot be calibrated; fit a model with "
                    "another --method, such as shortlister"
                )
            loaded.calibrate(loaded.match(options.read(data, "select")))
        save(loaded.model, output, overwrite=force)
        kept = calibration_size(loaded.method)
        assert kept is not None
        accuracy = getattr(loaded.method, "accuracy", 0.95)
        point = _reachable_point(loaded.method, accuracy)
    seconds = time.monotonic() - begun
    record = {"model": str(output), "calibration_rows": kept, "seconds": round(seconds, 2)}
    following = _next_command(output, data, ray, point)
    say(f"{output}: {_calibration_rows(kept)}   ({seconds:.0f} s)\n{following}", record, as_json)


def _calibration_rows(count: int) -> str:
    return f"{count:,} calibration row{'' if count == 1 else 's'}"


def _next_command(model: Path, data: str, ray: str | None, point: str) -> str:
    """Return the command that predicts with a new model."""
    suffix = ".csv" if data == "-" else Path(data).suffix
    new = f"NEW{suffix}" if ray is None else "NEW.parquet"
    sets = "sets.parquet" if ray is None else f"sets --ray {ray}"
    return f"Next: shortlist predict {model} {new} -o {sets}{point}"


def _reachable_point(method: SetPredictor, accuracy: float) -> str:
    """Return the options of an operating point that the calibration rows can guarantee.

    If they cannot guarantee the accuracy, warn, and choose the largest one that they can.
    """
    from shortlist._utils.warnings import warn
    from shortlist.conformal.quantiles import UnreachableError

    try:
        method.check_reachable(accuracy)
    except UnreachableError as error:
        warn(str(error))
        try:
            method.check_reachable(error.max_accuracy)
        except ValueError:  # None is known, or other classes need another one.
            return f" --accuracy {accuracy:g} --on-unreachable all"
        return f" --accuracy {error.max_accuracy}"
    return f" --accuracy {accuracy:g}"


def _fit_on_ray(
    build: Callable[[bool], SetPredictor], data: str, options: dict[str, Any]
) -> FitResult:
    from shortlist.ray import fit as fit_on_ray
    from shortlist.ray.table import Table

    table = Table.open(data, needs_y=True, on_bad_rows=options.get("on_bad_rows", "raise"))
    model = fit_on_ray(data, build(table.has_features), **options)
    return FitResult(model, model, table.n_rows)


def _fit_here(
    build: Callable[[bool], SetPredictor],
    data: str,
    options: DataOptions,
    calibration: float | None,
    seed: int,
) -> FitResult:
    from shortlist.datasets import load
    from shortlist.datasets.feature_files import is_feature_file

    if is_feature_file(data):
        options.check_feature_file(data)
        return _fit_with_classifier(build(True), load(data), seed)
    rows = options.read(data, "fit")
    predictor = build(rows.features is not None)
    if rows.y is None:
        raise ValueError(
            f"{rows.name} has no labels, which fit needs; add {options.label or 'y'}, or name the "
            "column with --label"
        )
    check_no_identifier(rows)
    rows = without_unknown_labels(rows, options)
    if rows.labels is None and rows.classes is not None and rows.y is not None:
        _warn_if_unused(rows.name, rows.classes, rows.y)
    return FitResult(_fit_rows(predictor, rows, calibration, seed), predictor, len(rows))


def _fit_with_classifier(predictor: SetPredictor, file: FeatureFile, seed: int) -> FitResult:
    """Fit a linear classifier on the split `fit` and a set predictor on the split `select`."""
    from shortlist.learning.linear import LinearClassifier
    from shortlist.predictors.classifier import ShortlistClassifier

    names, x = file.classes, file.select.x.astype("float32")
    extra = extra_rows(file)
    classifier = LinearClassifier(random_state=seed)
    classifier.fit(*extra.values())
    scores = classifier.predict_proba(x)
    options = extra if predictor.takes_extra_rows else {}
    predictor.fit(scores, names[file.select.y], x, classes=classifier.classes_, **options)
    model = ShortlistClassifier.from_fitted(classifier, predictor)
    return FitResult(model, predictor, len(file.select))


def _warn_if_unused(file: str, classes: NDArray[np.generic], y: NDArray[np.generic]) -> None:
    """Warn if a few columns are read as classes that no row has."""
    import numpy as np

    from shortlist._utils.warnings import warn

    unused = classes[~np.isin(classes, np.unique(y))]
    if 0 < len(unused) <= min(MAX_UNUSED_CLASSES, len(classes) - 2):
        warn(
            f"{file}: no row has the label {', '.join(map(repr, unused.tolist()))}, which is read "
            "as a class; if the column is not a score, leave it out with --ignore"
        )


def _fit_rows(
    predictor: SetPredictor, rows: Rows, calibration: float | None, seed: int
) -> SetPredictor:
    """Fit a predictor; hold out rows and calibrate if the method does not do it itself."""
    from shortlist._utils.out_of_core import copy_rows
    from shortlist.predictors.splitting import hold_out

    assert rows.y is not None
    ranking, y = rows.ranking(), rows.y
    holds_out = "calibration" in predictor.get_params() or not hasattr(predictor, "calibrate")
    if holds_out or not calibration:
        options = group_options(predictor.fit, rows)
        return predictor.fit(ranking, y, _named_features(rows.features, rows), **options)

    def take(index: NDArray[np.intp]) -> tuple[Any, Any, ArrayLike | None]:
        x = None if rows.features is None else copy_rows(rows.features, index)
        return ranking[index], y[index], _named_features(x, rows)

    learn, keep = hold_out(len(rows), calibration, seed)
    predictor.fit(*take(learn))
    options = group_options(predictor.calibrate, rows[keep])
    predictor.calibrate(*take(keep), **options)
    return predictor


def _named_features(features: NDArray[np.generic] | None, rows: Rows) -> ArrayLike | None:
    """Return features as a data frame if their columns have names."""
    if features is None or not rows.feature_names:
        return features
    import pandas as pd

    return pd.DataFrame(features, columns=rows.feature_names, copy=False)
