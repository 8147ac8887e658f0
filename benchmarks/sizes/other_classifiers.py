"""Classifiers of other libraries, trained in the environment that has them.

By default, this is the environment of `make bench`. It cannot have this library too, because one of
the others needs an older numpy. So each classifier is trained in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from sizes.plain_networks import hold_out
from torch import Tensor

PYTHON = Path(__file__).parents[2] / ".venv-peers" / "bin" / "python"
WORKER = Path(__file__).with_name("other_classifier_worker.py")
PACKAGES = {"realmlp": "pytabkit", "tabm": "pytabkit", "xrfm": "xrfm"}
"""Package of each classifier."""
LEAST_PROBABILITY = 1e-12


def missing(package: str, python: Path) -> str | None:
    """Return why a package cannot be used, and what to do; None if it can be used."""
    if not python.exists():
        return f"{python} is missing; `make .venv-peers/.complete` creates the environment"
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    if subprocess.run([python, "-c", code], check=False).returncode:
        return f"the package {package} is not installed for {python}; install it there"
    return None


class OtherClassifier:
    """A classifier of another library, with the interface of `PlainNetworks`.

    Parameters
    ----------
    name : {"realmlp", "tabm", "xrfm"}
        Name of the classifier.
    python : Path
        Interpreter of the environment that has its package.
    epochs : int, optional
        Maximum number of epochs. By default that of the package.
    seed : int, default=0
        Seed of the validation rows and of the classifier.
    """

    def __init__(
        self, name: str, python: Path, *, epochs: int | None = None, seed: int = 0
    ) -> None:
        self.name, self.python, self.epochs, self.seed = name, python, epochs, seed

    def fit_predict(
        self, x: Tensor, y: Tensor, x_test: Tensor, n_classes: int
    ) -> tuple[Tensor, Tensor, float]:
        """Return log-probabilities of validation and test rows, and the seconds of the fit.

        The rows of `validation` are those of `PlainNetworks` with the same seed.
        """
        torch.manual_seed(self.seed)
        self.validation, _ = hold_out(x)
        rows = {"x": x, "y": y, "validation": self.validation, "x_test": x_test}
        settings = {"seed": self.seed, "epochs": self.epochs, "device": x.device.type}
        with TemporaryDirectory() as folder:
            np.savez(Path(folder) / "rows.npz", **{k: v.cpu().numpy() for k, v in rows.items()})
            command = [self.python, WORKER, self.name, folder, json.dumps(settings)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{self.name} failed: {done.stderr.strip()[-2000:]}")
            with np.load(Path(folder) / "result.npz") as file:
                result = dict(file)
        held_out, test = (
            _log_proba(result[part], result["classes"], n_classes, x.device)
            for part in ("held_out", "test")
        )
        return held_out, test, float(result["seconds"])


def _log_proba(
    proba: np.ndarray, classes: np.ndarray, n_classes: int, device: torch.device
) -> Tensor:
    """Return log-probabilities of all classes; those without a row have the least probability."""
    full = np.full((len(proba), n_classes), LEAST_PROBABILITY)
    full[:, classes] = np.maximum(proba, LEAST_PROBABILITY)
    return torch.as_tensor(np.log(full), dtype=torch.float32, device=device)
