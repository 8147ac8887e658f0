"""Fitted arrays that compiled code reads without looking: trees, neighbours, support vectors.

A saved classifier whose types are all trusted can still hold numbers that no fit finds. Python
raises an error for most of them; scikit-learn's compiled code follows an index outside an array
wherever it leads. So what such code reads is checked once, when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, is_classifier
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.neighbors import BallTree, KDTree
from sklearn.svm import SVC, NuSVC
from sklearn.tree import BaseDecisionTree

from shortlist.io.persistence import ModelFileError

SEARCH = {"ball_tree": BallTree, "kd_tree": KDTree}
STATE_LENGTH = 624
"""Of numpy's Mersenne Twister."""


def check_compiled(parts: object) -> None:
    """Raise if a part of a classifier holds what compiled code must not be given.

    Search trees of nearest neighbours, which are not loaded, are built here.
    """
    for part in _parts(parts):
        if isinstance(part, BaseDecisionTree) and hasattr(part, "tree_"):
            _check_tree(part)
        elif isinstance(part, GradientBoostingClassifier | GradientBoostingRegressor):
            _check_boosting(part)
        elif isinstance(part, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
            _check_histograms(part)
        elif isinstance(part, SVC | NuSVC):
            _check_support(part)
        elif isinstance(part, np.random.RandomState | np.random.Generator):
            _check_random(part)
        elif hasattr(part, "_fit_method") and hasattr(part, "_fit_X"):
            _check_neighbours(part)
        elif isinstance(part, BaseEstimator) and hasattr(part, "estimators_"):
            _check_members(part)


def _parts(of: object) -> Iterator[Any]:
    """An object and all that it is made of, each once."""
    waiting, seen = [of], {}
    while waiting:
        one = waiting.pop()
        if id(one) in seen or one is None or isinstance(one, str | bytes | int | float | type):
            continue
        seen[id(one)] = one  # Kept, so that no other object gets its id.
        if isinstance(one, np.ndarray):
            if one.dtype.hasobject:
                waiting.extend(one.ravel().tolist())
            continue
        yield one
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple | set):
            waiting.extend(one)
        waiting.extend(getattr(one, "__dict__", {}).values())


def _need(right: object, of: object, why: str) -> None:
    if not right:
        raise ModelFileError(f"{type(of).__name__} cannot be as it says: {why}")


def _check_links(of: object, left: NDArray[Any], right: NDArray[Any], inner: NDArray[Any]) -> int:
    """Raise unless nodes are a tree, each below an earlier one; how deep it is."""
    n = len(inner)
    _need(n > 0, of, "a tree has no nodes")
    parents = np.flatnonzero(inner)
    below = np.concatenate([left[parents], right[parents]]).astype(np.int64)
    later = (below > np.tile(parents, 2)) & (below < n)
    _need(later.all(), of, "a node of a tree leads out of it, or back")
    _need(np.array_equal(np.sort(below), np.arange(1, n)), of, "a tree is not one tree")
    depth, level = 0, np.zeros(1, dtype=np.int64)
    while len(level := level[inner[level]]):
        level = np.concatenate([left[level], right[level]]).astype(np.int64)
        depth += 1
    return depth


def _check_tree(owner: Any) -> None:
    tree = owner.tree_
    _need(type(tree).__name__ == "Tree", owner, f"its tree is a {type(tree).__name__}")
    _need(0 < tree.node_count <= tree.capacity, owner, f"a tree has {tree.node_count} nodes")
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    inner = left != -1
    depth = _check_links(owner, left, right, inner)
    _need(depth <= tree.max_depth < 1 << 31, owner, f"a tree's depth is {tree.max_depth}")
    asked = feature[inner]
    _need(((asked >= 0) & (asked < tree.n_features)).all(), owner, "a tree asks for no feature")
    _need(_is(owner, "n_features_in_", tree.n_features), owner, "its tree has other features")
    _need(_is(owner, "n_outputs_", tree.n_outputs), owner, "its tree has other outputs")


def _is(owner: object, name: str, value: object) -> bool:
    """Whether an attribute is a whole number of that value."""
    found = getattr(owner, name, None)
    return isinstance(found, int | np.integer) and found == value


def _check_members(owner: Any) -> None:
    """Raise if a forest hands rows to trees that need others."""
    members = list(owner.estimators_)
    trees = [one for one in members if isinstance(one, BaseDecisionTree)]
    chosen = getattr(owner, "estimators_features_", None)
    if not hasattr(owner, "n_features_in_") and not hasattr(owner, "_validate_X_predict"):
        return  # Its members look at the rows themselves.
    for i, tree in enumerate(trees):
        columns = getattr(owner, "n_features_in_", None) if chosen is None else len(chosen[i])
        _need(_is(tree, "n_features_in_", columns), owner, f"tree {i} has other features")
        _need(hasattr(tree, "tree_"), owner, f"tree {i} is missing")


def _check_boosting(owner: Any) -> None:
    trees = getattr(owner, "estimators_", None)
    if trees is None:
        return
    _need(isinstance(trees, np.ndarray) and trees.ndim == 2, owner, "its trees are no table")
    _need(_is(owner, "n_trees_per_iteration_", trees.shape[1]), owner, "trees are missing")
    for tree in trees.ravel().tolist():
        _need(isinstance(tree, BaseDecisionTree), owner, "its trees are something else")
        _need(hasattr(tree, "tree_"), owner, "a tree is missing")
        _need(_is(tree, "n_features_in_", owner.n_features_in_), owner, "trees differ in features")
        _need(tree.tree_.n_outputs == 1, owner, "a tree has several outputs")


def _check_histograms(owner: Any) -> None:
    predictors = getattr(owner, "_predictors", None)
    if predictors is None:
        return
    mapper = owner._bin_mapper
    coded = np.asarray(mapper.is_categorical_)
    bins, columns = mapper.bin_thresholds_, owner.n_features_in_
    _need(len(coded) == len(bins) == columns, owner, "its bins are of other features")
    # Rows of coded columns go through a function that only a user can trust.
    _need(owner._preprocessor is None or _trusts(owner._preprocessor), owner, "it drops columns")
    _need(isinstance(predictors, list), owner, "its trees are no list")
    for predictor in (one for few in predictors for one in few):
        nodes, words = predictor.nodes, np.asarray(predictor.raw_left_cat_bitsets)
        inner = nodes["is_leaf"] == 0
        _check_links(owner, nodes["left"], nodes["right"], inner)
        asked = nodes["feature_idx"][inner]
        _need(((asked >= 0) & (asked < columns)).all(), owner, "a tree asks for no feature")
        sets = nodes[inner & (nodes["is_categorical"] != 0)]
        _need(coded[sets["feature_idx"]].all(), owner, "a tree asks for a category of a number")
        _need((sets["bitset_idx"] < len(words)).all(), owner, "a tree asks for no category")
        _need(words.ndim == 2 and words.shape[1] == 8, owner, "its categories are no table")


def _trusts(preprocessor: Any) -> bool:
    return callable(preprocessor.named_transformers_["numerical"].func)


def _check_support(owner: Any) -> None:
    vectors = getattr(owner, "support_vectors_", None)
    if vectors is None:
        return
    if owner._sparse is True and _all_sparse(owner, vectors, owner._dual_coef_):
        return
    counts, weights = np.asarray(owner._n_support), np.asarray(owner._dual_coef_)
    n, pairs = len(owner.support_), len(counts) * (len(counts) - 1) // 2
    _need(owner._sparse is False, owner, "its support vectors are sparse")
    _need(len(counts) == len(owner.classes_) > 1, owner, "its classes have other numbers")
    _need(counts.min() >= 0 and counts.sum() == n, owner, "support vectors are missing")
    _need(weights.shape == (len(counts) - 1, n), owner, f"weights have shape {weights.shape}")
    rows = (0, n) if owner.kernel == "precomputed" else (n,)
    _need(vectors.ndim == 2 and len(vectors) in rows, owner, "support vectors are missing")
    narrow = owner.kernel != "precomputed" and vectors.shape[1] != owner.n_features_in_
    _need(not narrow, owner, "support vectors have other features")
    _need(np.shape(owner._intercept_) == (pairs,), owner, "intercepts are missing")
    for name in ("_probA", "_probB"):
        _need(len(getattr(owner, name)) in (0, pairs), owner, f"{name} is of another length")
    _need(len(owner._probA) == len(owner._probB), owner, "_probA and _probB differ in length")
    if owner.kernel == "precomputed":
        inside = (owner.support_ >= 0) & (owner.support_ < owner.shape_fit_[0])
        _need(inside.all(), owner, "a support vector is no row")


def _all_sparse(owner: object, *tables: Any) -> bool:
    """Whether tables are sparse, which only a user can trust them to be; their indices fit then."""
    if not all(map(issparse, tables)):
        return False
    for table in tables:
        _need(hasattr(table, "check_format"), owner, "it has sparse tables of another kind")
        table.check_format(full_check=True)
    return True


def _check_neighbours(owner: Any) -> None:
    points, method = owner._fit_X, owner._fit_method
    if not _all_sparse(owner, points):
        table = isinstance(points, np.ndarray) and points.ndim == 2
        _need(table, owner, "its points are no table")
    _need(_is(owner, "n_samples_fit_", points.shape[0]), owner, "points are missing")
    _need(_is(owner, "n_features_in_", points.shape[1]), owner, "points have other features")
    _need(method in (*SEARCH, "brute"), owner, f"it searches by {str(method)[:40]!r}")
    if is_classifier(owner):
        labels = np.asarray(owner._y)
        _need(labels.shape == points.shape[:1] and labels.dtype.kind == "i", owner, "labels differ")
        inside = (labels >= 0) & (labels < len(owner.classes_))
        _need(inside.all(), owner, "a label is no class")
    owner._tree = None
    if method in SEARCH:
        parameters = owner.effective_metric_params_
        metric = owner.effective_metric_
        named = (isinstance(metric, str) or callable(metric)) and isinstance(parameters, dict)
        _need(named, owner, "it has no metric")
        owner._tree = SEARCH[method](points, owner.leaf_size, metric=metric, **parameters)


def _check_random(state: Any) -> None:
    bits = state.bit_generator if isinstance(state, np.random.Generator) else state._bit_generator
    if isinstance(bits, np.random.MT19937):
        position = bits.state["state"]["pos"]
        _need(0 <= position <= STATE_LENGTH, state, f"its position is {position}")
    else:
        _need(isinstance(bits, np.random.PCG64), state, f"it draws by {type(bits).__name__}")
