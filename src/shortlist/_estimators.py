"""Scikit-learn classifiers on disk, by skops: never pickled, and made of trusted types alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shortlist.linear import LinearClassifier
from shortlist.persistence import ModelFileError

if TYPE_CHECKING:
    from types import ModuleType

    from shortlist.estimator import ShortlistClassifier

HOUSES = ("sklearn", "numpy")
"""Packages whose types are trusted."""


def dump_estimator(model: ShortlistClassifier) -> bytes | None:
    """The classifier inside, as fitted and as given; None if it is one of ours."""
    if isinstance(model.estimator_, LinearClassifier):
        return None
    data: bytes = _skops().dumps({"fitted": model.estimator_, "given": model.estimator})
    return data


def load_estimator(model: ShortlistClassifier, data: bytes, trusted: Sequence[str]) -> None:
    """Put the classifier back. Types that are not trusted are an error that lists them."""
    skops = _skops()
    try:
        # Those that skops itself would not make unasked, as a tree of scikit-learn's.
        asked = skops.get_untrusted_types(data=data)
        unknown = [t for t in asked if t.split(".")[0] not in HOUSES and t not in set(trusted)]
        if not unknown:
            parts = skops.loads(data, trusted=asked)
    except Exception as error:  # what a damaged archive raises depends on where the damage is
        words = " ".join(str(error).split())[:200]
        raise ModelFileError(f"the classifier cannot be read: {words}") from error
    if unknown:
        names = ", ".join(repr(name) for name in unknown)
        raise ModelFileError(
            "the classifier is made of types that are neither scikit-learn's nor numpy's; if you "
            f"know where the model comes from: load(..., trusted=[{names}])"
        )
    if not isinstance(parts, dict) or set(parts) != {"fitted", "given"}:
        raise ModelFileError("the classifier's file holds something else")
    model.estimator_, model.estimator = parts["fitted"], parts["given"]


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
