"""Checks of fitted arrays that scikit-learn's compiled code reads without checking them.

Trees, boosting, nearest neighbours and support vector machines follow the indices in their fitted
arrays wherever they lead. So these arrays are checked once, when a model is loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.dummy import DummyClassifier
from sklearn.neighbors import BallTree, KDTree
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from shortlist.io.persistence import ModelFileError

SEARCH_TREES = {"ball_tree": BallTree, "kd_tree": KDTree}
METRICS = (
    *("braycurtis", "canberra", "chebyshev", "cityblock", "correlation", "cosine", "dice"),
    *("euclidean", "hamming", "infinity", "jaccard", "l1", "l2", "manhattan", "minkowski"),
    *("nan_euclidean", "rogerstanimoto", "russellrao", "sokalsneath", "sqeuclidean", "yule"),
)
"""Metrics of nearest neighbours that take no arrays."""
KERNELS = ("linear", "poly", "rbf", "sigmoid", "precomputed")
LOSS_LINKS = {
    "ExponentialLoss": "HalfLogitLink",
    "HalfBinomialLoss": "LogitLink",
    "HalfMultinomialLoss": "MultinomialLogit",
}
"""Losses of boosting and the link function of each."""
MERSENNE_TWISTER_WORDS = 624
BITSET_WORDS = 8
"""Words of the bit set of categories in a histogram: one bit for each of 256 codes."""


def require(condition: object, owner: object, reason: str) -> None:
    """Raise an error that names the owner unless a condition holds."""
    if not condition:
        raise ModelFileError(f"a {type(owner).__name__} cannot be used: {reason}")


def is_whole(value: object, least: int = 0, most: int = 2**31 - 1) -> bool:
    """Whether a value is a whole number of a range; True and False are not."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and least <= int(value) <= most  # type: ignore[call-overload]


def equals(owner: object, name: str, value: int) -> bool:
    """Whether an attribute is this whole number."""
    return is_whole(getattr(owner, name, None), value, value)


def _is_number(value: object) -> bool:
    plain = isinstance(value, int | float | np.integer | np.floating)
    return plain and not isinstance(value, bool) and bool(abs(value) <= 1e300)  # type: ignore[arg-type]


def _check_links(
    owner: object, left: NDArray[Any], right: NDArray[Any], is_inner: NDArray[Any]
) -> int:
    """Raise unless the nodes are one tree, each after its parent; return the depth."""
    n = len(is_inner)
    require(n > 0, owner, "a tree has no nodes")
    parents = np.flatnonzero(is_inner)
    children = np.concatenate([left[parents], right[parents]]).astype(np.int64)
    later = (children > np.tile(parents, 2)) & (children < n)
    require(later.all(), owner, "a node of a tree leads out of it, or back")
    require(np.array_equal(np.sort(children), np.arange(1, n)), owner, "a tree is not one tree")
    depth, level = 0, np.zeros(1, dtype=np.int64)
    while len(level := level[is_inner[level]]):
        level = np.concatenate([left[level], right[level]]).astype(np.int64)
        depth += 1
    return depth


def check_tree(owner: Any) -> None:
    """Raise if the nodes of a decision tree lead out of its arrays or out of a row."""
    tree = owner.tree_
    require(type(tree).__name__ == "Tree", owner, f"its tree is a {type(tree).__name__}")
    require(0 < tree.node_count <= tree.capacity, owner, f"a tree has {tree.node_count} nodes")
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    is_inner = left != -1
    depth = _check_links(owner, left, right, is_inner)
    require(depth <= tree.max_depth < 1 << 31, owner, f"a tree's depth is {tree.max_depth}")
    used = feature[is_inner]
    inside = (used >= 0) & (used < tree.n_features)
    require(inside.all(), owner, "a tree uses a feature that does not exist")
    require(equals(owner, "n_features_in_", tree.n_features), owner, "its tree has other features")
    require(equals(owner, "n_outputs_", tree.n_outputs), owner, "its tree has other outputs")


def check_forest(owner: Any) -> None:
    """Raise if a forest passes rows to trees that need other rows."""
    trees = owner.estimators_
    require(isinstance(trees, list) and trees, owner, "its trees are not a list")
    require(equals(owner, "n_outputs_", 1), owner, "it has several outputs")
    for tree in trees:
        plain = type(tree) in (DecisionTreeClassifier, ExtraTreeClassifier)
        require(plain and hasattr(tree, "tree_"), owner, "one of its trees is something else")
        require(equals(tree, "n_outputs_", 1), owner, "a tree has several outputs")
        same = equals(tree, "n_features_in_", owner.n_features_in_)
        require(same, owner, "its trees have other features")


def check_boosting(owner: Any) -> None:
    """Raise if trees write to columns that the first predictions do not have."""
    trees, n_classes = owner.estimators_, len(owner.classes_)
    table = isinstance(trees, np.ndarray) and trees.ndim == 2 and trees.size > 0
    require(table, owner, "its trees are not a table")
    _check_loss(owner, n_classes, trees.shape[1])
    for tree in trees.ravel().tolist():
        plain = type(tree) is DecisionTreeRegressor and hasattr(tree, "tree_")
        require(plain, owner, "one of its trees is something else")
        same = equals(tree, "n_features_in_", owner.n_features_in_)
        require(same and tree.tree_.n_outputs == 1, owner, "its trees have other features")
    require(_is_number(owner.learning_rate), owner, "it has no learning rate")
    first = owner.init_
    if not (isinstance(first, str) and first == "zero"):
        prior = type(first) is DummyClassifier and first._strategy == "prior"
        same = prior and np.shape(first.class_prior_) == (n_classes,)
        require(same and equals(first, "n_outputs_", 1), owner, "init_ has other classes")


def _check_loss(owner: Any, n_classes: int, columns: int) -> None:
    """Raise unless the loss of a boosting model makes one column for each tree of a stage."""
    loss = owner._loss
    name, several = type(loss).__name__, n_classes > 2
    require(n_classes > 1, owner, f"it has {n_classes} classes")
    known = LOSS_LINKS.get(name) == type(loss.link).__name__
    require(known and several == (name == "HalfMultinomialLoss"), owner, "its loss is another")
    same = not several or equals(loss, "n_classes", n_classes)
    require(same, owner, "its loss has other classes")
    require(columns == (n_classes if several else 1), owner, f"it has {columns} trees in a stage")
    require(equals(owner, "n_trees_per_iteration_", columns), owner, "trees are missing")


def check_histograms(owner: Any) -> None:
    """Raise if trees of histograms use features or categories that do not exist."""
    mapper, columns, predictors = owner._bin_mapper, owner.n_features_in_, owner._predictors
    is_coded, bins = mapper.is_categorical_, mapper.bin_thresholds_
    # Rows of coded columns pass through a transformer that may return fewer columns.
    require(owner._preprocessor is None, owner, "it transforms columns; name it in trusted=[...]")
    require(getattr(owner, "_in_fit", False) is False, owner, "it is still being fitted")
    flags = isinstance(is_coded, np.ndarray) and is_coded.shape == (columns,)
    require(flags and is_coded.dtype.kind in "bu", owner, "its categorical features are no flags")
    require(isinstance(bins, list) and len(bins) == columns, owner, "its bins have other features")
    for codes in (bins[i] for i in np.flatnonzero(is_coded)):
        small = np.ndim(codes) == 1 and ((codes >= 0) & (codes < 32 * BITSET_WORDS)).all()
        require(small, owner, "a category is not a number from 0 to 255")
    require(isinstance(predictors, list) and predictors, owner, "its trees are not a list")
    for stage in predictors:
        _check_loss(owner, len(owner.classes_), len(stage))
        for predictor in stage:
            _check_histogram_tree(owner, predictor, is_coded.astype(bool))
    baseline = owner._baseline_prediction
    same = isinstance(baseline, np.ndarray) and baseline.shape == (1, len(predictors[0]))
    require(same and baseline.dtype.kind == "f", owner, "its first prediction has another shape")


def _check_histogram_tree(owner: Any, predictor: Any, is_coded: NDArray[np.bool_]) -> None:
    nodes, bitsets = predictor.nodes, np.asarray(predictor.raw_left_cat_bitsets)
    is_inner = nodes["is_leaf"] == 0
    _check_links(owner, nodes["left"], nodes["right"], is_inner)
    used = nodes["feature_idx"][is_inner]
    inside = (used >= 0) & (used < len(is_coded))
    require(inside.all(), owner, "a tree uses a feature that does not exist")
    coded = nodes[is_inner & (nodes["is_categorical"] != 0)]
    require(is_coded[coded["feature_idx"]].all(), owner, "a tree uses a category of a number")
    table = bitsets.ndim == 2 and bitsets.shape[1] == BITSET_WORDS
    require(table and bitsets.dtype == np.uint32, owner, "its categories are not a table")
    known = (coded["bitset_idx"] < len(bitsets)).all()
    require(known, owner, "a tree uses a category that does not exist")


def check_support_vectors(owner: Any) -> None:
    """Raise if the arrays of a support vector machine do not agree."""
    vectors, kernel = owner.support_vectors_, owner.kernel
    own = callable(kernel)  # Only a user can trust a function.
    require(own or kernel in KERNELS, owner, f"its kernel is {str(kernel)[:40]!r}")
    numbers = (owner.degree, owner.coef0, owner._gamma)
    require(all(map(_is_number, numbers)), owner, "its kernel has parameters that are no numbers")
    if owner._sparse is True and _are_sparse(owner, vectors, owner._dual_coef_):
        require(len(owner.support_) == vectors.shape[0], owner, "support vectors are missing")
    else:
        require(owner._sparse is False, owner, "its support vectors are sparse")
        counts, n = _check_weights(owner), len(owner.support_)
        given = own or kernel == "precomputed"
        rows = len(owner._BaseLibSVM__Xfit) if own else owner.shape_fit_[0]
        require(is_whole(rows, 1), owner, "it has no rows")
        inside = (owner.support_ >= 0) & (owner.support_ < rows)
        require(inside.all(), owner, "a support vector is no row of its data")
        require(vectors.ndim == 2 and len(vectors) in ((0, n) if given else (n,)), owner,
                "support vectors are missing")  # fmt: skip
        same = given or equals(owner, "n_features_in_", vectors.shape[1])
        require(same, owner, "its support vectors have other features")
        require(len(counts) == len(owner.classes_), owner, "its classes have other numbers")


def _check_weights(owner: Any) -> NDArray[Any]:
    """Raise if the weights do not fit the counts of support vectors; return the counts."""
    counts, weights = np.asarray(owner._n_support), np.asarray(owner._dual_coef_)
    n, pairs = len(owner.support_), len(counts) * (len(counts) - 1) // 2
    require(counts.ndim == 1 and len(counts) > 1, owner, "its classes have other numbers")
    known = counts.dtype.kind == "i" and counts.min() >= 0 and counts.sum(dtype=np.int64) == n > 0
    require(known and counts.max() <= n, owner, "support vectors are missing")
    require(weights.shape == (len(counts) - 1, n), owner, f"weights have shape {weights.shape}")
    require(np.shape(owner._intercept_) == (pairs,), owner, "intercepts are missing")
    for name in ("_probA", "_probB"):
        require(len(getattr(owner, name)) in (0, pairs), owner, f"{name} has another length")
    require(len(owner._probA) == len(owner._probB), owner, "_probA and _probB differ in length")
    return counts


def _are_sparse(owner: object, *tables: Any) -> bool:
    """Whether tables are sparse, which only a user can trust; raise if their indices are wrong."""
    if not all(map(issparse, tables)):
        return False
    for table in tables:
        require(hasattr(table, "check_format"), owner, "it has sparse tables of another kind")
        table.check_format(full_check=True)
    return True


def check_neighbours(owner: Any) -> None:
    """Raise if the points, labels or settings of nearest neighbours do not agree."""
    points, k, n_classes = owner._fit_X, owner.n_neighbors, len(owner.classes_)
    if not _are_sparse(owner, points):
        table = isinstance(points, np.ndarray) and points.ndim == 2 and points.dtype.kind in "fiu"
        require(table and np.isfinite(points).all(), owner, "its points are not a finite table")
    n = points.shape[0]
    require(equals(owner, "n_samples_fit_", n), owner, "points are missing")
    same = equals(owner, "n_features_in_", points.shape[1])
    require(same, owner, "its points have other features")
    labels = owner._y
    whole = isinstance(labels, np.ndarray) and labels.shape == (n,) and labels.dtype.kind == "i"
    require(whole and owner.outputs_2d_ is False, owner, "its labels have another shape")
    require(((labels >= 0) & (labels < n_classes)).all(), owner, "a label is no class")
    require(k is None or is_whole(k, 1, n), owner, f"it has {str(k)[:40]} neighbours")
    require(owner.radius is None or _is_number(owner.radius), owner, "its radius is no number")
    require(is_whole(owner.leaf_size, 1), owner, f"its leaf size is {str(owner.leaf_size)[:40]}")
    method, weights = owner._fit_method, owner.weights
    known = isinstance(method, str) and method in (*SEARCH_TREES, "brute")
    require(known, owner, f"it searches by {str(method)[:40]!r}")
    plain = weights is None or (isinstance(weights, str) and weights in ("uniform", "distance"))
    require(plain or callable(weights), owner, f"its weights are {str(weights)[:40]!r}")
    _check_metric(owner)
    outlier = getattr(owner, "outlier_label", None)
    known = outlier is None or (isinstance(outlier, str) and outlier == "most_frequent")
    require(known or outlier in owner.classes_.tolist(), owner, "its outlier label is no class")


def _check_metric(owner: Any) -> None:
    for metric in (owner.metric, owner.effective_metric_):
        known = isinstance(metric, str) and metric in METRICS
        require(known or callable(metric), owner,
                f"its metric is {str(metric)[:40]!r}; name it in trusted=[...]")  # fmt: skip
    require(owner.p is None or _is_number(owner.p), owner, "p of its metric is no number")
    for parameters in (owner.metric_params, owner.effective_metric_params_):
        plain = not parameters or (isinstance(parameters, dict) and set(parameters) == {"p"})
        require(plain and all(map(_is_number, (parameters or {}).values())), owner,
                "its metric has parameters; name it in trusted=[...]")  # fmt: skip


def build_search_tree(owner: Any) -> None:
    """Build the search tree of nearest neighbours, which is never loaded."""
    owner._tree = None
    if owner._fit_method in SEARCH_TREES:
        build = SEARCH_TREES[owner._fit_method]
        parameters = owner.effective_metric_params_
        owner._tree = build(
            owner._fit_X, owner.leaf_size, metric=owner.effective_metric_, **parameters
        )


def check_random_state(state: np.random.RandomState) -> None:
    """Raise if a random state would read beyond its own words."""
    position = state.get_state(legacy=False)["state"]["pos"]
    require(0 <= position <= MERSENNE_TWISTER_WORDS, state, f"its position is {position}")
