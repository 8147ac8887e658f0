"""`save` and `load` for everything that can be fitted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from sklearn.exceptions import NotFittedError

from shortlist.io.estimators import dump_estimator, load_estimator
from shortlist.io.fields import PLAIN, TEXT, Field, listed
from shortlist.io.formats import FITTED, KINDS, is_fitted
from shortlist.io.model_folder import ESTIMATOR, WEIGHTS
from shortlist.io.persistence import (
    ModelFileError,
    pack,
    read_model,
    unpack,
    write_model,
)
from shortlist.io.trusted_types import check_trusted
from shortlist.io.values import Decoder, Encoder
from shortlist.learning.linear import LinearClassifier
from shortlist.predictors import SetPredictor
from shortlist.predictors.classifier import ShortlistClassifier
from shortlist.predictors.training_rows import TrainingRows

NAMED = Field(
    "a mapping of names to numbers or texts",
    lambda value: isinstance(value, dict) and all(map(PLAIN.fits, value.values())),
)
OPTIONAL = ("estimator", "method")
DESCRIPTION = {
    "type": TEXT,
    "library_version": TEXT,
    "parameters": NAMED,
    "classes": listed(TEXT),
    "guarantee": TEXT,
    "data": NAMED,
    "estimator": TEXT,
    "method": TEXT,
}
"""What a model says of itself."""
Model: TypeAlias = SetPredictor | ShortlistClassifier | LinearClassifier


def save(model: Model, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a fitted model to a folder: `model.json` and `weights.safetensors`.

    It is written aside and moved into place: whatever happens, the old model is there or the whole
    new one. Several threads or processes may save to the same folder and load from it at once:
    the last model saved stays, and each load gives one of them. A scikit-learn classifier inside a
    `ShortlistClassifier` is written with skops.

    Parameters
    ----------
    model : any fitted set predictor, `ShortlistClassifier` or `LinearClassifier`
    path : folder
    overwrite : bool
        Whether to replace a model that is there. Nothing else is ever replaced, and no file is
        removed that the replaced model does not list as its own.

    Examples
    --------
    >>> import shortlist as sl
    >>> from tempfile import TemporaryDirectory
    >>> data = sl.datasets.gaussian(2000)
    >>> model = sl.SplitConformal("lac").fit(data.posterior, data.y)
    >>> with TemporaryDirectory() as folder:
    ...     _ = model.save(f"{folder}/model")
    ...     again = sl.load(f"{folder}/model")
    >>> print(again.predict_set(data.posterior[:1]).guarantee)
    accuracy >= 0.95 guaranteed by 1,500 calibration rows
    """
    if type(model) not in FITTED:
        known = ", ".join(cls.__name__ for cls in FITTED)
        raise ValueError(f"a {type(model).__name__} cannot be saved; these can: {known}")
    if not is_fitted(model):
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet; fit it, then save it")
    encoder = Encoder(KINDS)
    state = encoder(model, type(model).__name__)
    files = {WEIGHTS: pack(encoder.tensors)}
    if isinstance(model, ShortlistClassifier):
        dumped = dump_estimator(model)
        files |= {} if dumped is None else {ESTIMATOR: dumped}
    return write_model(path, {**_about(model), "state": state}, files, overwrite=overwrite)


def digest(model: Model) -> str:
    """A short text that tells a fitted model from every other one."""
    encoder = Encoder(KINDS)
    state = json.dumps(encoder(model, type(model).__name__), sort_keys=True)
    return hashlib.sha256(state.encode() + pack(encoder.tensors)).hexdigest()[:32]


def load(
    path: str | os.PathLike[str],
    *,
    device: str = "cpu",
    trusted: Sequence[str] = (),
) -> Model:
    """Read a model that `save` wrote. Nothing in the files is executed.

    Parameters
    ----------
    path : folder
    device : str
        Where the networks go; results are where the inputs are, in any case.
    trusted : names of types
        Of a scikit-learn classifier inside a `ShortlistClassifier`: types and functions that may
        be used besides scikit-learn's estimators and numpy's arrays. The error that asks for them
        lists them; whoever wrote the file can have them called as they like.
    """
    names = check_trusted(trusted)
    try:
        document, files = read_model(path)
        decoder = Decoder(KINDS, unpack(files.get(WEIGHTS, b"")), device)
        model = decoder(document.get("state"))
        if type(model) not in FITTED or not isinstance(model, Model):
            raise ModelFileError("it holds no model")
        if isinstance(model, ShortlistClassifier) and ESTIMATOR in files:
            load_estimator(model, files[ESTIMATOR], names)
        if not is_fitted(model):
            raise ModelFileError("the model in it is not fitted")
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)!r} cannot be loaded: {error}") from error
    except RecursionError as error:
        raise ModelFileError(
            f"{os.fspath(path)!r} cannot be loaded: it is nested too deep"
        ) from error
    return model


def inspect(path: str | os.PathLike[str]) -> dict[str, object]:
    """What a model's folder says of itself: type, versions, parameters, classes, guarantee, data.

    Only `model.json` and the checksums are read.
    """
    try:
        document, files = read_model(path)
        for name, field in DESCRIPTION.items():
            if name in document or name not in OPTIONAL:
                field.check(name, document.get(name))
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)!r} cannot be loaded: {error}") from error
    known = {key: value for key, value in document.items() if key not in ("state", "files")}
    return {**known, "bytes": sum(map(len, files.values()))}


def _about(model: Model) -> dict[str, object]:
    """What a person wants to know of a model; loading does without it."""
    inner = model.method_ if isinstance(model, ShortlistClassifier) else model
    classes = [str(name) for name in np.asarray(model.classes_).tolist()]
    parameters = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
    found: dict[str, object] = {
        "type": type(model).__name__,
        "parameters": parameters,
        "classes": classes,
        "guarantee": _guarantee(inner),
        "data": _data(inner),
    }
    if isinstance(model, ShortlistClassifier):
        found["estimator"] = repr(model.estimator_)
        found["method"] = type(inner).__name__
    return found


def _plain(value: object) -> object:
    """A parameter as JSON has it, or in words."""
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def _guarantee(model: object) -> str:
    kept = getattr(model, "_calibration", None)
    judged = getattr(model, "_path_calibration", None)
    if kept is not None:
        weight = getattr(model, "cost_weight", None)
        point = getattr(model, "accuracy", None) if weight is None else f"cost_weight = {weight}"
        return (
            f"any accuracy that {len(kept):,} calibration rows allow; {point} unless told otherwise"
        )
    if judged is not None:
        return f"any accuracy that {judged.rows:,} calibration rows allow, by delta"
    return "none: not calibrated"


def _data(model: object) -> dict[str, object]:
    """What it learned from: how many rows, and a digest that tells them from others."""
    seen = getattr(model, "_training_rows", None)
    kept = getattr(model, "_calibration", None)
    found: dict[str, object] = {}
    if isinstance(seen, TrainingRows):
        digest = hashlib.blake2b(seen.keys.numpy().tobytes(), digest_size=8).hexdigest()
        found = {"distinct_rows": len(seen.keys), "fingerprint": digest}
    if kept is not None:
        found["calibration_rows"] = len(kept)
    return found
