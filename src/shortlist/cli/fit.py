"""From scores to a model: `fit`, `calibrate`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
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
    NClasses,
    Ray,
    Threads,
    Workers,
    on_cluster,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shortlist._utils.arrays import ArrayLike
    from shortlist.datasets import FeatureFile, Samples
    from shortlist.io.models import Model
    from shortlist.io.rows import Rows
    from shortlist.predictors import SetPredictor
    from shortlist.predictors.classifier import ShortlistClassifier
    from shortlist.ranking import Ranking

METHODS = ("shortlister", "lac", "aps", "raps", "saps", "topk", "margin", "plug-in", "paper")


@app.command()
def fit(
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the model.", show_default=False)
    ],
    method: Annotated[str, typer.Option(help=", ".join(METHODS) + ".")] = "shortlister",
    accuracy: Annotated[
        float, typer.Option(help="What predict guarantees unless told otherwise.")
    ] = 0.95,
    calibration: Annotated[
        float | None,
        typer.Option(
            help="Share of the rows kept to make guarantees, 0 for none; default: the method's."
        ),
    ] = None,
    score_type: Annotated[
        str, typer.Option(help="auto, logits, proba or log_proba: what the scores are.")
    ] = "auto",
    max_epochs: Annotated[int | None, typer.Option(help="Train no longer.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)] = 0,
    ray: Ray = None,
    workers: Workers = None,
    threads: Threads = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="A folder for checkpoints, which all machines see.", rich_help_panel=CLUSTER
        ),
    ] = None,
    n_classes: NClasses = None,
    on_bad_rows: BadRows = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Learn from the scores and labels of rows that the classifier did not train on.

    DATA has scores (rows × classes) and labels y, and features if there are any; or ranked
    candidates; see docs/data.md for the layouts.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.datasets import FeatureFile
        from shortlist.io.models import save
        from shortlist.io.rows import read

        _check_new(output, force)
        asked = on_cluster(
            ray,
            workers=workers,
            threads=threads,
            storage=storage,
            n_classes=n_classes,
            on_bad_rows=on_bad_rows,
        )
        chosen = partial(
            _method,
            method,
            accuracy=accuracy,
            calibration=calibration,
            score_type=score_type,
            max_epochs=max_epochs,
            seed=seed,
        )
        given = None if asked is not None else read(data)
        has_features = (
            isinstance(given, FeatureFile) or getattr(given, "features", None) is not None
        )
        predictor = chosen(has_features)
        model: Model
        if given is None:
            assert asked is not None
            model, rows = _on_ray(chosen, data, asked)
            predictor = model
        elif isinstance(given, FeatureFile):
            model, rows = _with_classifier(predictor, given, seed), len(given.select)
        elif given.y is None:
            raise ValueError(f"{given.name} has no labels: fit needs y")
        else:
            rows = len(given)
            names = None if given.labels is not None else given.classes
            if names is not None:
                _warn_if_strange(given.name, names, given.y)
            model = _fitted(predictor, given, names, calibration, seed)
        save(model, output, overwrite=force)
        kept = _guaranteeing(predictor)
        _warn_if_unreachable(predictor, accuracy)
    seconds = time.monotonic() - begun
    found = {
        "model": str(output),
        "method": method,
        "rows": rows,
        "classes": len(model.classes_),
        "calibration_rows": kept,
        "seconds": round(seconds, 2),
    }
    guarantee = "no guarantee" if kept is None else _rows_guarantee(kept)
    text = (
        f"{output}: {method} on {rows:,} rows, {len(model.classes_):,} classes; {guarantee}"
        f"   ({seconds:.0f} s)\n{_next(output, data, ray, None if kept is None else accuracy)}"
    )
    say(text, found, as_json)


def _check_new(output: Path, force: bool) -> None:
    """Raise, before there is any work, if a model could not be written there."""
    from shortlist.io.set_files import check_folder

    check_folder(output)
    if output.exists() and not force:
        raise FileExistsError(f"there is something at {str(output)!r}; say --force to replace it")


def _rows_guarantee(kept: int) -> str:
    return f"{kept:,} row{'' if kept == 1 else 's'} make{'s' if kept == 1 else ''} guarantees"


def _next(model: Path, data: str, ray: str | None, accuracy: float | None) -> str:
    """What one would do with a model."""
    ending = ".csv" if data == "-" else Path(data).suffix
    new = f"NEW{ending}" if ray is None else "NEW.parquet"
    there = "sets.parquet" if ray is None else f"sets --ray {ray}"
    point = "" if accuracy is None else f" --accuracy {accuracy:g}"
    return f"Next: shortlist predict {model} {new} -o {there}{point}"


def _warn_if_unreachable(method: SetPredictor, accuracy: float) -> None:
    """Say so at once if an accuracy cannot be guaranteed by the rows that make guarantees."""
    from shortlist._utils.warnings import warn
    from shortlist.conformal.quantiles import UnreachableError
    from shortlist.predictors.nested import NestedSelector

    if isinstance(method, NestedSelector) and method._calibration is not None:
        try:
            method._operating_point(accuracy, None, None, None)
        except UnreachableError as error:
            warn(str(error))


def _on_ray(
    chosen: Callable[[bool], SetPredictor], data: str, asked: dict[str, Any]
) -> tuple[SetPredictor, int]:
    """A model, fitted on a cluster, and how many rows there were."""
    from shortlist.ray import fit as run
    from shortlist.ray.table import Table

    table = Table.open(data, needs_y=True, on_bad_rows=asked.get("on_bad_rows", "raise"))
    return run(data, chosen(table.has_features), **asked), table.rows


@app.command()
def calibrate(
    model: ModelFolder,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the new model.", show_default=False)
    ],
    ray: Ray = None,
    workers: Workers = None,
    threads: Threads = None,
    on_bad_rows: BadRows = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make guarantees by other rows, in place of those that the fit kept.

    For when the data have changed, or the fit kept none. Neither the classifier nor the fit may
    have seen the rows of DATA, which has labels y; of a feature file the `select` part is taken.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.io.models import load, save

        _check_new(output, force)
        asked = on_cluster(ray, workers=workers, threads=threads, on_bad_rows=on_bad_rows)
        predictor = load(model)
        method = method_of(predictor)
        if asked is not None:
            from shortlist.ray import calibrate as run

            run(data, predictor, **asked)
        else:
            _calibrated(predictor, data)
        save(predictor, output, overwrite=force)
        kept = _guaranteeing(method)
        assert kept is not None
        accuracy = getattr(method, "accuracy", 0.95)
        _warn_if_unreachable(method, accuracy)
    seconds = time.monotonic() - begun
    found = {"model": str(output), "calibration_rows": kept, "seconds": round(seconds, 2)}
    new = _next(output, data, ray, accuracy)
    say(f"{output}: {_rows_guarantee(kept)}   ({seconds:.0f} s)\n{new}", found, as_json)


def _calibrated(predictor: Model, data: str) -> None:
    """The model, with guarantees by the rows of a file."""
    from shortlist.datasets import FeatureFile
    from shortlist.io.rows import read
    from shortlist.predictors.classifier import ShortlistClassifier

    method = method_of(predictor)
    if not hasattr(method, "calibrate"):
        raise ValueError(
            f"a {type(method).__name__} makes no guarantees; there is nothing to calibrate"
        )
    given = read(data)
    check_takes(predictor, given)
    if isinstance(predictor, ShortlistClassifier):
        if isinstance(given, FeatureFile):
            predictor.calibrate(_floats(given.select), given.classes[given.select.y])
            return
        predictor.calibrate(given.in_order_of(method).features, _labels(given))
        return
    assert not isinstance(given, FeatureFile)
    rows = given.in_order_of(method)
    method.calibrate(rows.given(method.classes_), _labels(rows), rows.features)


def _labels(given: Rows) -> NDArray[np.generic]:
    if given.y is None:
        raise ValueError(f"{given.name} has no labels, by which guarantees are made: it needs y")
    return given.y


FEW = 3
"""So many columns that are no labels are probably no classes; of many, some labels are rare."""


def _warn_if_strange(file: str, names: NDArray[np.generic], y: NDArray[np.generic]) -> None:
    """Say so if columns are taken for classes that no row has."""
    import numpy as np

    from shortlist._utils.warnings import warn

    strange = names[~np.isin(names, np.unique(y))]
    if 0 < len(strange) <= min(FEW, len(names) - 2):
        warn(
            f"{file}: no row has the label {', '.join(map(repr, strange.tolist()))}, which is "
            "taken for a class; if the column is something else, leave it out"
        )


def _fitted(
    predictor: SetPredictor,
    given: Rows,
    names: NDArray[np.generic] | None,
    calibration: float | None,
    seed: int,
) -> SetPredictor:
    """The method, fitted; a path of selectors, which keeps no rows itself, with some kept here."""
    from shortlist.predictors import CardinalityPath
    from shortlist.predictors.nested import hold_out

    assert given.y is not None
    scores = given.given()
    if not isinstance(predictor, CardinalityPath) or not calibration:
        return predictor.fit(scores, given.y, _with_names(given), classes=names)
    learn, keep = hold_out(len(given), calibration, seed)
    predictor.fit(*_some(given, scores, learn), classes=names)
    return predictor.calibrate(*_some(given, scores, keep))


def _with_names(given: Rows) -> ArrayLike | None:
    """The features, as a frame if their columns have names."""
    if given.features is None or not given.feature_names:
        return given.features
    import pandas as pd

    names = given.feature_names
    return pd.DataFrame(given.features, columns=names, copy=False)  # type: ignore[return-value]


def _some(
    given: Rows, scores: NDArray[np.generic] | Ranking, rows: NDArray[np.intp]
) -> tuple[ArrayLike | Ranking, NDArray[np.generic], ArrayLike | None]:
    """Scores (or a ranking), labels and features of some rows."""
    from shortlist._utils.scratch import picked
    from shortlist.ranking import Ranking

    assert given.y is not None
    features = None if given.features is None else picked(given.features, rows)
    some = scores[rows] if isinstance(scores, Ranking) else picked(scores, rows)
    return some, given.y[rows], _with_names(replace(given, features=features))


def _guaranteeing(predictor: SetPredictor) -> int | None:
    """How many rows make guarantees."""
    kept, judged = (getattr(predictor, name, None) for name in ("_calibration", "_path_calibration"))
    return judged.rows if judged is not None else None if kept is None else len(kept)


def _with_classifier(predictor: SetPredictor, file: FeatureFile, seed: int) -> ShortlistClassifier:
    """A linear classifier on the `fit` part of a feature file, the method on its `select` part."""
    from shortlist.learning.linear import LinearClassifier
    from shortlist.predictors.classifier import ShortlistClassifier

    names = file.classes
    h = LinearClassifier(random_state=seed).fit(_floats(file.fit), names[file.fit.y])
    select = file.select
    x = _floats(select)
    predictor.fit(h.predict_proba(x), names[select.y], x, classes=h.classes_)
    return ShortlistClassifier.of(h, predictor)


def _floats(part: Samples) -> NDArray[np.floating]:
    return part.x.astype("float32")


def _method(
    name: str,
    has_features: bool,
    accuracy: float,
    calibration: float | None,
    score_type: str,
    max_epochs: int | None,
    seed: int,
) -> SetPredictor:
    """The method asked for."""
    from shortlist._utils.arrays import check_choice
    from shortlist.predictors import CardinalityPath, PlugInSelector, Shortlister
    from shortlist.predictors.conformal import SplitConformal

    check_choice(name, "method", METHODS)
    asked: dict[str, object] = {
        "accuracy": accuracy,
        "calibration": calibration,
        "score_type": score_type,
        "random_state": seed,
        "max_epochs": max_epochs,
    }
    model: SetPredictor
    if name == "shortlister":
        model = Shortlister()
    elif name == "plug-in":
        model = PlugInSelector(cost_weight=None, calibration=0.25)
    elif name == "paper":
        inputs = "both" if has_features else "scores"
        model = CardinalityPath(inputs=inputs, cost_weight=0.05, cost_weights=PATH)
    else:
        model = SplitConformal(name)
    known = model.get_params()
    model.set_params(**{k: v for k, v in asked.items() if k in known and v is not None})
    if calibration == 0 and "calibration" in known:
        model.set_params(calibration=None)
    return model


PATH = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
"""The lambdas of the paper's selectors."""
