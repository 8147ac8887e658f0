"""Train a classifier of another library, in a process of its own.

    python other_classifier_worker.py xrfm FOLDER '{"seed": 0, "epochs": null, "device": "cpu"}'

FOLDER has the rows (`rows.npz`), and gets the probabilities and the seconds (`result.npz`). This
script needs no package of this project, because the other libraries have an environment of their
own.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

Arrays = Mapping[str, np.ndarray]
Predict = Callable[[np.ndarray], np.ndarray]
MEMBERS = 5


def real_mlp(rows: Arrays, seed: int, epochs: int | None, device: str) -> Predict:
    """Train RealMLP-TD: five networks, with cross-entropy instead of the error as criterion."""
    from pytabkit import RealMLP_TD_Classifier

    model = RealMLP_TD_Classifier(
        device=device,
        random_state=seed,
        n_cv=MEMBERS,
        n_epochs=epochs,
        val_metric_name="cross_entropy",
        use_ls=False,
    )
    model.fit(rows["x"], rows["y"], val_idxs=rows["validation"])
    return model.predict_proba


def tab_m(rows: Arrays, seed: int, epochs: int | None, device: str) -> Predict:
    """Train TabM, which is an ensemble in itself, with cross-entropy as criterion."""
    from pytabkit import TabM_D_Classifier

    model = TabM_D_Classifier(
        device=device, random_state=seed, n_epochs=epochs, val_metric_name="cross_entropy"
    )
    model.fit(rows["x"], rows["y"], val_idxs=rows["validation"])
    return model.predict_proba


def xrfm(rows: Arrays, seed: int, epochs: int | None, device: str) -> Predict:
    """Train xRFM on standardized features; it has no epochs."""
    from xrfm import xRFM

    x, y, validation = rows["x"], rows["y"], rows["validation"]
    mean, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6)
    train = np.setdiff1d(np.arange(len(y)), validation)
    model = xRFM(device=device, random_state=seed, tuning_metric="logloss", verbose=False)
    standardized = (x - mean) / scale
    model.fit(standardized[train], y[train], standardized[validation], y[validation])
    return lambda new: model.predict_proba((new - mean) / scale)


CLASSIFIERS = {"realmlp": real_mlp, "tabm": tab_m, "xrfm": xrfm}


def train(
    name: str, rows: Arrays, seed: int, epochs: int | None, device: str
) -> dict[str, np.ndarray]:
    """Return the probabilities of validation and test rows, and the seconds of the fit.

    Parameters
    ----------
    name : str
        Key of `CLASSIFIERS`.
    rows : mapping of array
        Features `x` and class indices `y`, the rows of `validation`, and features `x_test`.
    seed : int
        Seed of the classifier.
    epochs : int or None
        Maximum number of epochs; None for the default.
    device : str
        Device of the classifier.
    """
    if name not in CLASSIFIERS:
        raise ValueError(f"name = {name!r} is unknown; there are {', '.join(CLASSIFIERS)}")
    present, y = np.unique(rows["y"], return_inverse=True)
    start = time.monotonic()
    predict = CLASSIFIERS[name]({**rows, "y": y}, seed, epochs, device)
    result = {"classes": present, "held_out": predict(rows["x"][rows["validation"]])}
    result["seconds"] = np.asarray(time.monotonic() - start)
    return {**result, "test": predict(rows["x_test"])}


def main() -> None:
    """Train the classifier that the arguments name."""
    warnings.simplefilter("ignore")
    name, folder, settings = sys.argv[1:]
    with np.load(Path(folder) / "rows.npz") as rows:
        result = train(name, dict(rows), **json.loads(settings))
    np.savez(Path(folder) / "result.npz", **result)


if __name__ == "__main__":
    main()
