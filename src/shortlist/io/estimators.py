"""Save scikit-learn classifiers with skops, and load them from trusted types only."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist._utils.warnings import warn
from shortlist.io.archive import check_archive
from shortlist.io.fitted_estimators import check_fitted
from shortlist.io.persistence import ModelFileError, printable
from shortlist.io.trusted_types import trusted_by_loader

if TYPE_CHECKING:
    from types import ModuleType

    from shortlist.predictors.classifier import ShortlistClassifier

SCORING_METHODS = ("predict_proba", "decision_function")
MAX_NAMES = 20
"""Largest number of untrusted types in an error."""
ATTEMPTS = 5
"""How often an archive is read after a SystemError. Some versions of Python raise one, whatever the
file is, if several threads parse text at the same time, such as the headers of arrays."""


def dump_estimator(model: ShortlistClassifier) -> bytes:
    """Return the fitted classifier inside a model and the parameter `estimator`, as an archive.

    Parameters
    ----------
    model : ShortlistClassifier
        Fitted model.

    Returns
    -------
    bytes
        Archive in the skops format.
    """
    return dump_parts({"fitted": model.estimator_, "given": model.estimator})


def dump_parts(parts: Mapping[str, object]) -> bytes:
    """Return classifiers, by names, as an archive.

    Parameters
    ----------
    parts : mapping of str to object
        Classifiers and lists of them.

    Returns
    -------
    bytes
        Archive in the skops format.
    """
    data: bytes = _skops().dumps(dict(parts))
    return data


def load_estimator(model: ShortlistClassifier, data: bytes, trusted: frozenset[str]) -> None:
    """Read the classifier of a model from an archive.

    Parameters
    ----------
    model : ShortlistClassifier
        The model, whose classes are known. Its classifier is replaced.
    data : bytes
        What `dump_estimator` returned.
    trusted : frozenset of str
        Names of types and functions that the user trusts.

    Raises
    ------
    ModelFileError
        If the archive is damaged, has untrusted types, or has attributes that `fit` cannot set.
    """
    parts = load_parts(data, trusted, lambda parts: _check_parts(parts, model))
    model.estimator_, model.estimator = parts["fitted"], parts["given"]


def load_parts(data: bytes, trusted: frozenset[str], check: Callable[[object], None]) -> Any:
    """Read what `dump_parts` wrote.

    Parameters
    ----------
    data : bytes
        The archive.
    trusted : frozenset of str
        Names of types and functions that the user trusts.
    check : callable
        Function that raises a `ModelFileError` if the content is not what it should be.

    Returns
    -------
    dict of str to object

    Raises
    ------
    ModelFileError
        If the archive is damaged, has untrusted types, or has attributes that `fit` cannot set.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(SystemError):
            return _read_parts(data, trusted, check)
    try:
        return _read_parts(data, trusted, check)
    except SystemError as error:
        raise ModelFileError(f"the classifier cannot be read: {error}") from error


def _read_parts(data: bytes, trusted: frozenset[str], check: Callable[[object], None]) -> Any:
    """Read an archive once; see `load_parts`."""
    skops = _skops()
    try:
        data, refused = check_archive(data, trusted)
        if not refused:
            # skops must be told to trust some of these types, such as trees.
            untrusted = skops.get_untrusted_types(data=data)
            known = {name for names in trusted_by_loader().values() for name in names}
            refused = [name for name in untrusted if name not in known | trusted]
        if not refused:
            with warnings.catch_warnings(record=True) as messages:
                warnings.simplefilter("always")
                parts = skops.loads(data, trusted=untrusted)
            check(parts)
            check_fitted(parts, trusted)
    except ModelFileError as error:
        raise ModelFileError(f"the classifier cannot be read: {error}") from error
    except SystemError:
        raise
    except Exception as error:  # The type of the error depends on where the damage is.
        reason = " ".join(str(error).split())[:200]
        raise ModelFileError(f"the classifier cannot be read: {reason}") from error
    if refused:
        raise ModelFileError(_refusal(refused))
    for text in {str(message.message) for message in messages}:
        warn(printable(" ".join(text.split())[:300]))  # It may quote the file.
    return parts


def _refusal(names: list[str]) -> str:
    """Return why a classifier is not loaded, and what to do."""
    shown = [name[:120] for name in names[:MAX_NAMES]]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    if any(" " in name for name in shown):
        return f"save does not write such a classifier: it has untrusted types {shown}{more}"
    return (
        f"the classifier has types that are not trusted{more}; if you know where the model comes "
        f"from, load it in Python: sl.load(..., trusted={shown})"
    )


def _check_parts(parts: object, model: ShortlistClassifier) -> None:
    """Raise unless an archive contains a fitted classifier with the classes of the model."""
    if not isinstance(parts, dict) or set(parts) != {"fitted", "given"}:
        raise ModelFileError("it does not contain a classifier")
    fitted, given = parts["fitted"], parts["given"]
    name = type(fitted).__name__
    if not any(callable(getattr(fitted, method, None)) for method in SCORING_METHODS):
        raise ModelFileError(f"the classifier is a {name}, which computes no scores")
    if given is not None and not callable(getattr(given, "fit", None)):
        raise ModelFileError(f"the parameter estimator is a {type(given).__name__}")
    classes = getattr(fitted, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1:
        raise ModelFileError(f"the {name} has no classes")
    unknown = set(classes.tolist()) - set(model.classes_.tolist())
    if unknown or not len(classes):
        raise ModelFileError(f"the {name} has other classes than the model: {str(unknown)[:80]}")


def _skops() -> ModuleType:
    try:
        from skops import io
    except ImportError as error:
        raise ImportError(
            "scikit-learn classifiers are saved and loaded with skops, which is not installed: "
            "pip install 'shortlist[skops]'"
        ) from error
    module: ModuleType = io
    return module
