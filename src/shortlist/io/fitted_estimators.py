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
from shortlist.io.compiled_arrays import is_integer, require
from shortlist.io.fields import MAX_COUNT
from shortlist.io.persistence import ModelFileError
from shortlist.io.trusted_types import name_of

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
    KNeighborsClassifier: compiled.check_neighbors,
    RadiusNeighborsClassifier: compiled.check_neighbors,
    OneHotEncoder: transformers.check_one_hot,
    PolynomialFeatures: transformers.check_polynomial,
    CountVectorizer: transformers.check_vectorizer,
    TfidfVectorizer: transformers.check_vectorizer,
    DummyClassifier: transformers.check_dummy,
    StackingClassifier: transformers.check_stacking,
}
"""Checks of fitted estimators. All others compute with NumPy, which checks shapes."""
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
"""Attributes that may be a function, because predictions do not call it."""


def check_fitted(parts: object, trusted: frozenset[str]) -> None:
    """Raise if an object in a classifier could harm the process that predicts with it.

    Search trees of nearest neighbors are built, because they are not in the file. The numbers of
    jobs are reset to None.

    Parameters
    ----------
    parts : object
        What skops loaded.
    trusted : frozenset of str
        Names of types and functions that the user trusts. Objects of these types are not checked.

    Raises
    ------
    ModelFileError
        If an object has an attribute that `fit` cannot set.
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
    """Yield every object once, with the object and the name of the attribute that contain it."""
    stack: list[tuple[object, str, object]] = [(None, "", root)]
    visited: dict[int, object] = {}
    while stack:
        owner, name, part = stack.pop()
        if part is None or isinstance(part, str | bytes | int | float | np.generic | type):
            continue
        if isinstance(part, interp1d):
            continue  # No file contains it: IsotonicRegression computes it from its thresholds.
        # A function is checked in every attribute, as some attributes may be functions.
        if not _is_function(part):
            if id(part) in visited:
                continue
            visited[id(part)] = part  # The reference ensures that no other object gets its id.
        if isinstance(part, np.ndarray):
            if part.dtype.hasobject:
                stack.extend((owner, name, one) for one in part.ravel().tolist())
            continue
        if not isinstance(part, dict | list | tuple | set):
            yield owner, name, part
        if isinstance(part, dict):
            stack.extend((owner, name, one) for one in (*part.values(), *part))
        elif isinstance(part, list | tuple | set):
            stack.extend((owner, name, one) for one in part)
        elif not _is_function(part):
            stack.extend((part, key, one) for key, one in getattr(part, "__dict__", {}).items())


def _is_function(part: object) -> bool:
    """Return whether an object is a function, of any type that Python and NumPy have."""
    return callable(part) and hasattr(part, "__name__") and not isinstance(part, type)


def _check_function(
    owner: object, attribute: str, function: object, trusted: frozenset[str]
) -> None:
    """Raise if a prediction may call a function that the user does not trust."""
    owner_name, name = type(owner).__name__, name_of(function)
    if attribute in UNUSED_FUNCTIONS.get(owner_name, ()):
        return
    if {name, name_of(type(owner))} & trusted:
        return
    if type(owner) is FunctionTransformer and isinstance(function, np.ufunc):
        return
    raise ModelFileError(
        f"{owner_name}.{attribute[:60]} is a function; if you know where the model comes from, "
        f"load it in Python: sl.load(..., trusted={[name]})"
    )


def _check_object(part: Any) -> None:
    """Raise if an object has attributes that `fit` cannot set."""
    cls, state = type(part), vars(part)
    parameters = cls._get_param_names() if isinstance(part, BaseEstimator) else ()
    for name in state:
        # Python finds an attribute before a method of the same name.
        hidden = hasattr(cls, name) and name not in parameters
        require(not hidden, part, f"its attribute {name[:60]!r} hides one of its class")
    if not isinstance(part, BaseEstimator):
        return
    if "n_features_in_" in state:
        n_features = part.n_features_in_
        is_valid = is_integer(n_features, 1, MAX_COUNT)
        require(is_valid, part, f"it has {str(n_features)[:40]!r} features")
    if isinstance(state.get("classes_"), np.ndarray) and "n_classes_" in state:
        n = part.classes_.size
        require(is_integer(part.n_classes_, n, n), part, "it has other classes")
    if cls is FunctionTransformer:
        transformers.check_function(part)
    is_fitted = any(name.endswith("_") and not name.startswith("__") for name in state)
    if is_fitted and cls in CHECKS:
        CHECKS[cls](part)
