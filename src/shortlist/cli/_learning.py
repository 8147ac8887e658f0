"""From scores to a model, and from a model to sets: `fit`, `predict`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist.cli._app import AsJson, BadRows, Force, Ray, app, errors_in_one_line, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shortlist._arrays import ArrayLike
    from shortlist.datasets import FeatureFile, Samples
    from shortlist.estimator import ShortlistClassifier
    from shortlist.ranking import Ranking
    from shortlist.rows import Rows
    from shortlist.saving import Model
    from shortlist.selectors import SetPredictor
    from shortlist.sets import PredictionSets

METHODS = ("shortlister", "lac", "aps", "raps", "saps", "topk", "margin", "plug-in", "paper")
Data = Annotated[
    str,
    typer.Argument(
        help=".npz, .parquet, .csv, a folder of .npy, or - (CSV on the standard input).",
        show_default=False,
    ),
]


@app.command()
def fit(
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the model.", show_default=False)
    ],
    method: Annotated[str, typer.Option(help=", ".join(METHODS) + ".")] = "shortlister",
    accuracy: Annotated[
        float, typer.Option(help="What predict promises unless told otherwise.")
    ] = 0.95,
    calibration: Annotated[
        float | None,
        typer.Option(help="Share of the rows kept to make promises; default: the method's."),
    ] = None,
    score_type: Annotated[
        str, typer.Option(help="auto, logits, proba or log_proba: what the scores are.")
    ] = "auto",
    max_epochs: Annotated[int | None, typer.Option(help="Train no longer.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)] = 0,
    ray: Ray = None,
    on_bad_rows: BadRows = "raise",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Learn from the scores and labels of rows that the classifier did not train on.

    DATA has scores (rows × classes) and labels y, and features if there are any; or ranked
    candidates; see docs/data.md for the layouts.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist._sets_out import check_folder
        from shortlist.datasets import FeatureFile
        from shortlist.rows import read
        from shortlist.saving import save

        check_folder(output)
        if output.exists() and not force:
            raise FileExistsError(
                f"there is something at {str(output)!r}; say --force to replace it"
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
        given = None if ray is not None else read(data)
        has_features = (
            isinstance(given, FeatureFile) or getattr(given, "features", None) is not None
        )
        predictor = chosen(has_features)
        model: Model
        if given is None:
            assert ray is not None
            model, rows = _on_ray(chosen, data, ray, on_bad_rows)
            predictor = model
        elif isinstance(given, FeatureFile):
            model, rows = _with_classifier(predictor, given, seed), len(given.select)
        elif given.y is None:
            raise ValueError(f"{given.name} has no labels: fit needs y")
        else:
            rows = len(given)
            names = None if given.labels is not None else given.classes
            model = _fitted(predictor, given, names, calibration, seed)
        save(model, output, overwrite=force)
        kept = _promising(predictor)
    seconds = time.monotonic() - begun
    found = {
        "model": str(output),
        "method": method,
        "rows": rows,
        "classes": len(model.classes_),
        "calibration_rows": kept,
        "seconds": round(seconds, 2),
    }
    promise = "no promise" if kept is None else f"{kept:,} rows make promises"
    point = "" if kept is None else f" --accuracy {accuracy:g}"
    new = f"NEW{Path(data).suffix or '.npz'}" if ray is None else "NEW.parquet"
    there = "sets.parquet" if ray is None else f"sets --ray {ray}"
    text = (
        f"{output}: {method} on {rows:,} rows, {len(model.classes_):,} classes; {promise}"
        f"   ({seconds:.0f} s)\nNext: shortlist predict {output} {new} -o {there}{point}"
    )
    say(text, found, as_json)


def _on_ray(
    chosen: Callable[[bool], SetPredictor], data: str, address: str, on_bad_rows: str
) -> tuple[SetPredictor, int]:
    """A model, fitted on a cluster, and how many rows there were."""
    from shortlist.ray import fit as run
    from shortlist.ray._table import Table

    table = Table.open(data, needs_y=True, on_bad_rows=on_bad_rows)
    model = chosen(table.has_features)
    return run(data, model, on_bad_rows=on_bad_rows, address=address), table.rows


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of the model.", show_default=False)],
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
    accuracy: Annotated[float | None, typer.Option(help="The accuracy to promise.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="… and the probability with which that may fail.")
    ] = None,
    mean_size: Annotated[float | None, typer.Option(help="So many labels on average.")] = None,
    cost_weight: Annotated[
        float | None, typer.Option(help="The paper's lambda; promises nothing.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="class: the promise for each class.")] = None,
    on_unreachable: Annotated[
        str | None,
        typer.Option(help="all: every label where the rows are too few for the promise."),
    ] = None,
    ray: Ray = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="With --ray: a column of DATA to be copied; may be said again."),
    ] = None,
    on_bad_rows: BadRows = "raise",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the prediction set of each row.

    One of --accuracy, --mean-size and --cost-weight chooses the operating point; without one it is
    that of the fit. If DATA has labels y, it says how accurate the sets were.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist._arrays import check_choice
        from shortlist._sets_out import ENDINGS_OUT, check_output, sets_writer
        from shortlist.saving import load

        if ray is None:
            check_output(output, force=force, endings=ENDINGS_OUT)
        if by is not None:
            check_choice(by, "--by", ("class",))
        asked: dict[str, object] = {
            "accuracy": accuracy,
            "delta": delta,
            "mean_size": mean_size,
            "cost_weight": cost_weight,
            "by": by,
        }
        point = {name: value for name, value in asked.items() if value is not None}
        predictor = load(model)
        if on_unreachable is not None:
            _method_of(predictor).set_params(on_unreachable=on_unreachable)
        if ray is not None:
            _predict_on_ray(
                predictor,
                data,
                output,
                as_json=as_json,
                keep=keep or (),
                on_bad_rows=on_bad_rows,
                overwrite=force,
                address=ray,
                **point,
            )
            return
        parts = _parts_for(predictor, data)
        part = next(parts)
        sets = _predict(predictor, part, point)
        promise, labelled = sets.promise, part.y is not None
        hits = labels = count = 0
        with sets_writer(output, promise) as write:
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
        "promise": promise,
        "accuracy": hits / count if labelled else None,
        "seconds": round(time.monotonic() - begun, 2),
    }
    known = f"; {hits / count:.4f} accurate" if labelled else ""
    where = "" if output == "-" else f"{output}: "
    text = f"{where}{count:,} sets, {size:.3f} labels on average{known}\n{promise}"
    say(text, found, as_json, err=output == "-")


def _predict_on_ray(predictor: Any, data: str, output: str, *, as_json: bool, **asked: Any) -> None:
    """Write sets on a cluster, and say what was done."""
    from shortlist.ray import predict_set

    begun = time.monotonic()
    done = predict_set(data, predictor, output, **asked)
    seconds = round(time.monotonic() - begun, 2)
    say(repr(done), {**vars(done), "seconds": seconds}, as_json)


def _method_of(predictor: Model) -> SetPredictor:
    """The set predictor, also of a classifier that has one."""
    from shortlist.estimator import ShortlistClassifier
    from shortlist.selectors import SetPredictor

    method = predictor.method_ if isinstance(predictor, ShortlistClassifier) else predictor
    assert isinstance(method, SetPredictor)
    return method


def _parts_for(predictor: Model, data: str) -> Iterator[Rows]:
    """The rows to predict, a part after the other; of a feature file, those of its test part."""
    from shortlist.datasets import FeatureFile
    from shortlist.linear import LinearClassifier
    from shortlist.rows import Rows, read, stream_rows
    from shortlist.selectors import SetPredictor

    if isinstance(predictor, LinearClassifier):
        raise ValueError("a LinearClassifier alone predicts no sets; save a set predictor")
    method = _method_of(predictor)
    if not data.endswith(".npz"):
        for part in stream_rows(data):
            if not isinstance(predictor, SetPredictor) and part.features is None:
                raise ValueError(f"{part.name} has no features, which is what this model takes")
            yield part.in_order_of(method)
        return
    given = read(data)
    if isinstance(given, FeatureFile):
        if isinstance(predictor, SetPredictor):
            raise ValueError(
                f"{given.name} has features, but the model takes scores; fit one on a feature file"
            )
        x = _floats(given.test)
        rows = Rows(x, None, given.classes[given.test.y], x, name=given.name)
        yield from rows.blocks()
        return
    if not isinstance(predictor, SetPredictor) and given.features is None:
        raise ValueError(f"{given.name} has no features, which is what this model takes")
    yield from given.in_order_of(method).blocks()


def _fitted(
    predictor: SetPredictor,
    given: Rows,
    names: NDArray[np.generic] | None,
    calibration: float | None,
    seed: int,
) -> SetPredictor:
    """The method, fitted; a path of selectors, which keeps no rows itself, with some kept here."""
    from shortlist.selectors import CardinalityPath
    from shortlist.selectors._promise import hold_out

    assert given.y is not None
    scores = given.given()
    if not isinstance(predictor, CardinalityPath) or calibration is None:
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
    from shortlist._scratch import picked
    from shortlist.ranking import Ranking

    assert given.y is not None
    features = None if given.features is None else picked(given.features, rows)
    some = scores[rows] if isinstance(scores, Ranking) else picked(scores, rows)
    return some, given.y[rows], _with_names(replace(given, features=features))


def _promising(predictor: SetPredictor) -> int | None:
    """How many rows make promises."""
    kept, judged = (getattr(predictor, name, None) for name in ("_calibration", "_judged"))
    return judged.rows if judged is not None else None if kept is None else len(kept)


def _predict(predictor: Model, rows: Rows, point: dict[str, object]) -> PredictionSets:
    from shortlist.estimator import ShortlistClassifier
    from shortlist.selectors import SetPredictor

    if isinstance(predictor, ShortlistClassifier):
        return predictor.predict_set(rows.features, **point)
    assert isinstance(predictor, SetPredictor)
    return predictor.predict_set(rows.given(predictor.classes_), rows.features, **point)


def _with_classifier(predictor: SetPredictor, file: FeatureFile, seed: int) -> ShortlistClassifier:
    """A linear classifier on the `fit` part of a feature file, the method on its `select` part."""
    from shortlist.estimator import ShortlistClassifier
    from shortlist.linear import LinearClassifier

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
    from shortlist._arrays import check_choice
    from shortlist.conformal import SplitConformal
    from shortlist.selectors import CardinalityPath, PlugInSelector, Shortlister

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
        model = PlugInSelector(calibration=0.25)
    elif name == "paper":
        inputs = "both" if has_features else "scores"
        model = CardinalityPath(inputs=inputs, cost_weight=0.05, cost_weights=PATH)
    else:
        model = SplitConformal(name)
    known = model.get_params()
    model.set_params(**{k: v for k, v in asked.items() if k in known and v is not None})
    return model


PATH = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
"""The lambdas of the paper's selectors."""
