"""Checks of every part of a loaded scikit-learn classifier, before it predicts anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from scipy.interpolate import interp1d
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures
from sklearn.svm import SVC, NuSVC
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
)

from shortlist.io import compiled_arrays as compiled
from shortlist.io import fitted_transformers as transformers
from shortlist.io.compiled_arrays import is_whole, require
from shortlist.io.persistence import ModelFileError
from shortlist.io.trusted_types import name_of

MOST_FEATURES = 1 << 26
NEIGHBOURS = (KNeighborsClassifier, RadiusNeighborsClassifier)
CHECKS: Mapping[type, Callable[[Any], None]] = {
    DecisionTreeClassifier: compiled.check_tree,
    DecisionTreeRegressor: compiled.check_tree,
    ExtraTreeClassifier: compiled.check_tree,
    RandomForestClassifier: compiled.check_forest,
    ExtraTreesClassifier: compiled.check_forest,
    GradientBoostingClassifier: compiled.check_boosting,
    HistGradientBoostingClassifier: compiled.check_histograms,
    SVC: compiled.check_support_vectors,
    NuSVC: compiled.check_support_vectors,
    KNeighborsClassifier: compiled.check_neighbours,
    RadiusNeighborsClassifier: compiled.check_neighbours,
    OneHotEncoder: transformers.check_one_hot,
    PolynomialFeatures: transformers.check_polynomial,
    CountVectorizer: transformers.check_vectorizer,
    TfidfVectorizer: transformers.check_vectorizer,
    DummyClassifier: transformers.check_dummy,
    StackingClassifier: transformers.check_stacking,
}
"""What is checked of a fitted estimator. The others compute with numpy, which checks shapes."""
UNUSED_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "GenericUnivariateSelect": ("score_func",),
    "GridSearchCV": ("param_grid", "best_params_", "cv_results_"),
    "RandomizedSearchCV": ("param_distributions", "best_params_", "cv_results_"),
    "SelectFdr": ("score_func",),
    "SelectFpr": ("score_func",),
    "SelectFwe": ("score_func",),
    "SelectKBest": ("score_func",),
    "SelectPercentile": ("score_func",),
    "_PassthroughScorer": ("_score_func",),
    "_Scorer": ("_score_func",),
}
"""Attributes that may hold a function, because prediction does not call it."""


def check_fitted(parts: object, trusted: frozenset[str]) -> None:
    """Raise if a part of a classifier could harm the process that predicts with it.

    Search trees of nearest neighbours, which are not loaded, are built here, and the number of
    jobs is left to the machine that predicts.

    Parameters
    ----------
    parts : object
        What skops has loaded.
    trusted : frozenset of str
        Names of types and functions that the user trusts. Their parts are not checked.

    Raises
    ------
    ModelFileError
        If a part has an attribute that no fit leaves there.
    """
    for owner, name, part in _walk(parts):
        if _is_function(part):
            _check_function(owner, name, part, trusted)
        elif isinstance(part, np.random.RandomState):
            compiled.check_random_state(part)
        elif hasattr(part, "__dict__"):
            if name_of(type(part)) not in trusted:
                _check_object(part)
            if "n_jobs" in vars(part):
                part.n_jobs = None
            if type(part) in NEIGHBOURS and "_fit_method" in vars(part):
                compiled.build_search_tree(part)


def _walk(root: object) -> Iterator[tuple[object, str, Any]]:
    """Return every object once, with the object and attribute that it was found in."""
    waiting: list[tuple[object, str, object]] = [(None, "", root)]
    seen: dict[int, object] = {}
    while waiting:
        owner, name, part = waiting.pop()
        if part is None or isinstance(part, str | bytes | int | float | np.generic | type):
            continue
        if isinstance(part, interp1d):
            continue  # An isotonic regression makes it from its thresholds; no file contains one.
        # The same function may be harmless in one attribute and not in another.
        if not _is_function(part):
            if id(part) in seen:
                continue
            seen[id(part)] = part  # Kept, so that no other object gets its id.
        if isinstance(part, np.ndarray):
            if part.dtype.hasobject:
                waiting.extend((owner, name, one) for one in part.ravel().tolist())
            continue
        if not isinstance(part, dict | list | tuple | set):
            yield owner, name, part
        if isinstance(part, dict):
            waiting.extend((owner, name, one) for one in (*part.values(), *part))
        elif isinstance(part, list | tuple | set):
            waiting.extend((owner, name, one) for one in part)
        elif not _is_function(part):
            waiting.extend((part, key, one) for key, one in getattr(part, "__dict__", {}).items())


def _is_function(part: object) -> bool:
    """Whether a part is a function, of any of the kinds that Python and numpy have."""
    return callable(part) and hasattr(part, "__name__") and not isinstance(part, type)


def _check_function(
    owner: object, attribute: str, function: object, trusted: frozenset[str]
) -> None:
    kind, name = type(owner).__name__, name_of(function)
    if attribute in UNUSED_FUNCTIONS.get(kind, ()) or {name, name_of(type(owner))} & trusted:
        return
    if type(owner) is FunctionTransformer and isinstance(function, np.ufunc):
        return
    raise ModelFileError(
        f"{kind}.{attribute[:60]} is a function; if you know where the model comes from, load it "
        f"in Python: sl.load(..., trusted={[name]})"
    )


def _check_object(part: Any) -> None:
    """Raise if an object is not as a fit leaves it."""
    cls, state = type(part), vars(part)
    parameters = cls._get_param_names() if isinstance(part, BaseEstimator) else ()
    for name in state:
        # An attribute would be found before the method of its name.
        hidden = hasattr(cls, name) and name not in parameters
        require(not hidden, part, f"its attribute {name[:60]!r} hides one of its class")
    if not isinstance(part, BaseEstimator):
        return
    if "n_features_in_" in state:
        require(is_whole(part.n_features_in_, 1, MOST_FEATURES), part,
                f"it has {str(part.n_features_in_)[:40]!r} features")  # fmt: skip
    if isinstance(state.get("classes_"), np.ndarray) and "n_classes_" in state:
        n = part.classes_.size
        require(is_whole(part.n_classes_, n, n), part, "it has other classes")
    if cls is FunctionTransformer:
        transformers.check_function(part)
    fitted = any(name.endswith("_") and not name.startswith("__") for name in state)
    if fitted and cls in CHECKS:
        CHECKS[cls](part)
