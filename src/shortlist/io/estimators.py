"""Save scikit-learn classifiers with skops, and load them from trusted types alone."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from shortlist._utils.warnings import warn
from shortlist.io.archive import check_archive
from shortlist.io.fitted_estimators import check_fitted
from shortlist.io.persistence import ModelFileError, printable
from shortlist.io.trusted_types import trusted_by_loader
from shortlist.learning.linear import LinearClassifier

if TYPE_CHECKING:
    from types import ModuleType

    from shortlist.predictors.classifier import ShortlistClassifier

SCORING = ("predict_proba", "decision_function")
MOST_NAMES = 20
"""An error lists at most this many untrusted types."""


def dump_estimator(model: ShortlistClassifier) -> bytes | None:
    """Return the classifier inside a model, as fitted and as given; None if it is our own."""
    if isinstance(model.estimator_, LinearClassifier):
        return None
    data: bytes = _skops().dumps({"fitted": model.estimator_, "given": model.estimator})
    return data


def load_estimator(model: ShortlistClassifier, data: bytes, trusted: frozenset[str]) -> None:
    """Put the classifier back into a model.

    Parameters
    ----------
    model : ShortlistClassifier
        The model, whose classes are known.
    data : bytes
        What `dump_estimator` returned.
    trusted : frozenset of str
        Names of types and functions that the user trusts.

    Raises
    ------
    ModelFileError
        If the archive is damaged, has untrusted types, or parts that no fit leaves there.
    """
    skops = _skops()
    try:
        data, refused = check_archive(data, trusted)
        if not refused:
            # What skops would not make unasked, such as a tree, is on our list or the user's.
            asked = skops.get_untrusted_types(data=data)
            known = {name for names in trusted_by_loader().values() for name in names}
            refused = [name for name in asked if name not in known | trusted]
        if not refused:
            with warnings.catch_warnings(record=True) as messages:
                warnings.simplefilter("always")
                parts = skops.loads(data, trusted=asked)
            _check_parts(parts, model)
            check_fitted(parts, trusted)
    except ModelFileError as error:
        raise ModelFileError(f"the classifier cannot be read: {error}") from error
    except Exception as error:  # What a damaged archive raises depends on where the damage is.
        reason = " ".join(str(error).split())[:200]
        raise ModelFileError(f"the classifier cannot be read: {reason}") from error
    if refused:
        raise ModelFileError(_refusal(refused))
    for text in {str(message.message) for message in messages}:
        warn(printable(" ".join(text.split())[:300]))  # It may quote the file.
    model.estimator_, model.estimator = parts["fitted"], parts["given"]


def _refusal(names: list[str]) -> str:
    """Return why a classifier is not loaded, and what to do."""
    shown = [name[:120] for name in names[:MOST_NAMES]]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    if any(" " in name for name in shown):
        return f"the classifier is not as save writes it: untrusted types {shown}{more}"
    return (
        f"the classifier is made of types that are not trusted{more}; if you know where the model "
        f"comes from, load it in Python: sl.load(..., trusted={shown})"
    )


def _check_parts(parts: object, model: ShortlistClassifier) -> None:
    """Raise unless an archive contains a fitted classifier of the model's classes."""
    if not isinstance(parts, dict) or set(parts) != {"fitted", "given"}:
        raise ModelFileError("it contains something else")
    fitted, given = parts["fitted"], parts["given"]
    what = type(fitted).__name__
    if not any(callable(getattr(fitted, name, None)) for name in SCORING):
        raise ModelFileError(f"the classifier is a {what}, which gives no scores")
    if given is not None and not callable(getattr(given, "fit", None)):
        raise ModelFileError(f"the estimator given is a {type(given).__name__}")
    classes = getattr(fitted, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1:
        raise ModelFileError(f"the {what} has no classes")
    unknown = set(classes.tolist()) - set(model.classes_.tolist())
    if unknown or not len(classes):
        raise ModelFileError(f"the {what} has other classes than the model: {str(unknown)[:80]}")


def _skops() -> ModuleType:
    try:
        from skops import io
    except ImportError as error:
        raise ImportError(
            "a scikit-learn classifier is saved and loaded with skops: pip install "
            "'shortlist[skops]'"
        ) from error
    module: ModuleType = io
    return module
