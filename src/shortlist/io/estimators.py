"""Scikit-learn classifiers on disk, by skops: never pickled, and made of trusted types alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shortlist.io.archive import check_archive
from shortlist.io.compiled_arrays import check_compiled
from shortlist.io.persistence import ModelFileError
from shortlist.io.trusted_types import trusted_by_loader
from shortlist.learning.linear import LinearClassifier

if TYPE_CHECKING:
    from types import ModuleType

    from shortlist.predictors.classifier import ShortlistClassifier

SCORING = ("predict_proba", "decision_function")
MOST_NAMES = 20
"""So many untrusted types are listed in an error."""


def dump_estimator(model: ShortlistClassifier) -> bytes | None:
    """The classifier inside, as fitted and as given; None if it is one of ours."""
    if isinstance(model.estimator_, LinearClassifier):
        return None
    data: bytes = _skops().dumps({"fitted": model.estimator_, "given": model.estimator})
    return data


def load_estimator(model: ShortlistClassifier, data: bytes, trusted: frozenset[str]) -> None:
    """Put the classifier back. Types that are not trusted are an error that lists them."""
    skops = _skops()
    try:
        data, refused = check_archive(data, trusted)
        if not refused:
            # What skops would not make unasked, such as a tree: all on our list, or the user's.
            asked = skops.get_untrusted_types(data=data)
            known = {name for names in trusted_by_loader().values() for name in names}
            refused = [name for name in asked if name not in known | trusted]
        if not refused:
            parts = skops.loads(data, trusted=asked)
            _check_parts(parts, model)
    except ModelFileError as error:
        raise ModelFileError(f"the classifier cannot be read: {error}") from error
    except Exception as error:  # What a damaged archive raises depends on where the damage is.
        words = " ".join(str(error).split())[:200]
        raise ModelFileError(f"the classifier cannot be read: {words}") from error
    if refused:
        raise ModelFileError(_refusal(refused))
    model.estimator_, model.estimator = parts["fitted"], parts["given"]


def _refusal(names: list[str]) -> str:
    """Why a classifier is not loaded, and what to do."""
    shown = [name[:120] for name in names[:MOST_NAMES]]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    if any(" " in name for name in shown):
        return f"the classifier is not as save writes it: untrusted types {shown}{more}"
    return (
        f"the classifier is made of types that are not trusted{more}; if you know where the model "
        f"comes from, load it in Python: sl.load(..., trusted={shown})"
    )


def _check_parts(parts: object, model: ShortlistClassifier) -> None:
    """Raise unless an archive holds a fitted classifier of the model's classes."""
    if not isinstance(parts, dict) or set(parts) != {"fitted", "given"}:
        raise ModelFileError("it holds something else")
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
    check_compiled(parts)


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
