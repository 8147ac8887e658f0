"""Save and load everything that can be fitted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from sklearn.exceptions import NotFittedError

from shortlist.io.encoding import Decoder, Encoder
from shortlist.io.fields import PLAIN, TEXT, Field, sequence_of
from shortlist.io.formats.models import ModelFormat
from shortlist.io.formats.registry import FORMATS, MODEL_FORMATS
from shortlist.io.model_folder import WEIGHTS
from shortlist.io.persistence import (
    ModelFileError,
    pack,
    read_model,
    unpack,
    write_model,
)
from shortlist.io.trusted_types import check_trusted
from shortlist.learning.linear import LinearClassifier
from shortlist.predictors import SetPredictor
from shortlist.predictors.classifier import ShortlistClassifier

Model: TypeAlias = SetPredictor | ShortlistClassifier | LinearClassifier
FACTS = Field(
    "a mapping of names to numbers or strings",
    lambda value: isinstance(value, dict) and all(map(PLAIN.accepts, value.values())),
)
DESCRIPTION = {
    "type": TEXT,
    "library_version": TEXT,
    "parameters": FACTS,
    "classes": sequence_of(TEXT),
    "guarantee": TEXT,
    "data": FACTS,
    "estimator": TEXT,
    "method": TEXT,
    "features": TEXT,
    "fit": FACTS,
}
"""What a file says about its model, for a person. Loading does not use it."""
OPTIONAL = ("estimator", "method", "features", "fit")


def save(model: Model, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a fitted model to a folder.

    Parameters
    ----------
    model : SetPredictor, ShortlistClassifier or LinearClassifier
        Fitted model.
    path : path-like
        Folder to write, with `model.json` and `weights.safetensors`. A scikit-learn classifier
        inside a `ShortlistClassifier` is written to `estimator.skops`, which needs
        ``pip install 'shortlist[skops]'``.
    overwrite : bool, default=False
        Whether to replace a model that is there. Nothing else is replaced, and no file is removed
        that is not the replaced model's.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ValueError
        If the model is of another type, or uses code that a prediction needs and that a file
        cannot contain.
    NotFittedError
        If the model is not fitted.
    FileExistsError
        If the folder exists and `overwrite` is false, or if it contains something else.

    Notes
    -----
    The folder contains the whole old model or the whole new one at any time, even if the process
    is killed. Several threads or processes may save to the same folder and load from it at the
    same time: the model that was saved last stays, and each load returns one of the models.

    Examples
    --------
    >>> import shortlist as sl
    >>> from tempfile import TemporaryDirectory
    >>> data = sl.datasets.gaussian(2000)
    >>> model = sl.SplitConformal("lac").fit(data.posterior, data.y)
    >>> with TemporaryDirectory() as folder:
    ...     _ = model.save(f"{folder}/model")
    ...     loaded = sl.load(f"{folder}/model")
    >>> print(loaded.predict_set(data.posterior[:1]).guarantee)
    accuracy >= 0.95 guaranteed by 1,500 calibration rows
    """
    model_format = _format_of(model)
    if not model_format.is_fitted(model):
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet; fit it, then save it")
    model_format.check_packages(model)
    encoder = Encoder(FORMATS)
    state = encoder(model, type(model).__name__)
    files = {WEIGHTS: pack(encoder.tensors), **model_format.dump_files(model)}
    document = {**_describe(model, model_format), "state": state}
    return write_model(path, document, files, overwrite=overwrite)


def digest(model: Model) -> str:
    """Return a hash that tells a fitted model from every other one.

    Parameters
    ----------
    model : SetPredictor, ShortlistClassifier or LinearClassifier
        Fitted model.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    encoder = Encoder(FORMATS)
    state = json.dumps(encoder(model, type(model).__name__), sort_keys=True)
    return hashlib.sha256(state.encode() + pack(encoder.tensors)).hexdigest()[:32]


def load(
    path: str | os.PathLike[str],
    *,
    device: str = "cpu",
    trusted: Sequence[str] = (),
) -> Any:
    """Read a model that `save` wrote. Nothing in the files is executed.

    Parameters
    ----------
    path : path-like
        Folder of the model.
    device : str, default="cpu"
        Device of the networks. Results are on the device of the inputs, whatever this is.
    trusted : sequence of str, default=()
        Full names of types and functions that a scikit-learn classifier inside a
        `ShortlistClassifier` may use, besides scikit-learn's estimators and NumPy's arrays. The
        error that asks for them lists them. Whoever wrote the file can call them with any
        arguments.

    Returns
    -------
    SetPredictor, ShortlistClassifier or LinearClassifier
        The model. Type checkers cannot know which type it has; annotate the variable:
        ``model: sl.Shortlister = sl.load("model")``.

    Raises
    ------
    FileNotFoundError
        If there is no folder.
    ModelFileError
        If the folder contains no model, or one that is damaged or was tampered with.
    ValueError
        If the device is not available, or `trusted` is not a list of names.
    """
    names = check_trusted(trusted)
    try:
        document, files = read_model(path)
        decoder = Decoder(FORMATS, unpack(files.get(WEIGHTS, b"")), device)
        model = decoder(document.get("state"))
        model_format = MODEL_FORMATS.get(type(model))
        if model_format is None:
            raise ModelFileError("it contains no model")
        if not model_format.is_fitted(model):
            raise ModelFileError("the model in it is not fitted")
        model_format.load_files(model, files, names)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)!r} cannot be loaded: {error}") from error
    except RecursionError as error:
        raise ModelFileError(
            f"{os.fspath(path)!r} cannot be loaded: it is nested too deep"
        ) from error
    return model


def inspect(path: str | os.PathLike[str]) -> dict[str, object]:
    """Return what the folder of a model says about it, without loading it.

    Parameters
    ----------
    path : path-like
        Folder of the model.

    Returns
    -------
    dict of str to object
        Type, versions, parameters, classes, guarantee, data and size in bytes, all from
        `model.json`. The checksums of the other files are compared.

    Raises
    ------
    FileNotFoundError
        If there is no folder.
    ModelFileError
        If the folder contains no model, or one that is damaged or was tampered with.
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


def _format_of(model: object) -> ModelFormat:
    if type(model) not in MODEL_FORMATS:
        known = ", ".join(cls.__name__ for cls in MODEL_FORMATS)
        raise ValueError(f"a {type(model).__name__} cannot be saved; these can: {known}")
    return MODEL_FORMATS[type(model)]


def _describe(model: Model, model_format: ModelFormat) -> dict[str, object]:
    """Return what a file says about its model; see `DESCRIPTION`."""
    predictor = model_format.predictor(model)
    parameters = {name: _as_plain(value) for name, value in model.get_params(deep=False).items()}
    describe = getattr(model, "describe", None)  # A linear classifier has nothing to add.
    return {
        "type": type(model).__name__,
        "parameters": parameters,
        "classes": [str(name) for name in np.asarray(model.classes_).tolist()],
        "guarantee": _describe_guarantee(predictor),
        "data": _describe_data(predictor),
        **({} if describe is None else {"fit": describe()}),
        **model_format.describe(model),
    }


def _as_plain(value: object) -> object:
    """Return a parameter as JSON can express it, or else its repr."""
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def _describe_guarantee(predictor: Any) -> str:
    path_calibration = getattr(predictor, "_path_calibration", None)
    if path_calibration is not None:
        return f"any accuracy that {path_calibration.n_rows:,} calibration rows allow, by delta"
    n_rows = getattr(predictor, "n_calibration", 0)
    if not n_rows:
        return "none: not calibrated"
    weight = predictor.cost_weight
    point = predictor.accuracy if weight is None else f"cost_weight = {weight}"
    return f"any accuracy that {n_rows:,} calibration rows allow; {point} unless told otherwise"


def _describe_data(predictor: Any) -> dict[str, object]:
    """Return the numbers of rows, and a fingerprint of those that `fit` learned from."""
    facts: dict[str, object] = {}
    training_rows = getattr(predictor, "_training_rows", None)
    if training_rows is not None:
        keys = training_rows.keys
        fingerprint = hashlib.blake2b(keys.numpy().tobytes(), digest_size=8).hexdigest()
        facts = {"distinct_rows": len(keys), "fingerprint": fingerprint}
    if getattr(predictor, "_calibration", None) is not None:
        facts["calibration_rows"] = predictor.n_calibration
    return facts
