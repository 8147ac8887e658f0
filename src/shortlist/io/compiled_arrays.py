"""Checks of fitted arrays that the compiled code of scikit-learn trusts.

Trees, boosting, nearest neighbors and support vector machines use the integers in their fitted
arrays as indices without checking them. They are checked here, once, when a model is loaded.
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
"""Metrics of nearest neighbors that have no arrays as parameters."""
KERNELS = ("linear", "poly", "rbf", "sigmoid", "precomputed")
LOSS_LINKS = {
    "ExponentialLoss": "HalfLogitLink",
    "HalfBinomialLoss": "LogitLink",
    "HalfMultinomialLoss": "MultinomialLogit",
}
"""Losses of gradient boosting, and the link function of each."""
MERSENNE_TWISTER_WORDS = 624
BITSET_WORDS = 8
"""Number of words in the bit set of categories of a histogram, which has 256 bits."""


def require(condition: object, owner: object, reason: str) -> None:
    """Raise a `ModelFileError` that names an estimator unless a condition holds.

    Parameters
    ----------
    condition : object
        Anything with a truth value.
    owner : object
        The estimator.
    reason : str
        Why the estimator cannot be used if the condition does not hold.
    """
    if not condition:
        raise ModelFileError(f"a {type(owner).__name__} cannot be used: {reason}")


def is_integer(value: object, minimum: int = 0, maximum: int = 2**31 - 1) -> bool:
    """Return whether a value is an integer in a range. True and False are not integers.

    Parameters
    ----------
    value : object
        Anything.
    minimum, maximum : int
        The range.

    Returns
    -------
    bool
    """
    is_bool = isinstance(value, bool)
    return isinstance(value, int | np.integer) and not is_bool and minimum <= int(value) <= maximum


def equals(owner: object, name: str, value: int) -> bool:
    """Return whether an attribute is a given integer.

    Parameters
    ----------
    owner : object
        The estimator.
    name : str
        Name of the attribute.
    value : int
        Expected value.

    Returns
    -------
    bool
        False if there is no such attribute.
    """
    return is_integer(getattr(owner, name, None), value, value)


def _is_number(value: object) -> bool:
    is_bool = isinstance(value, bool)
    is_real = isinstance(value, int | float | np.integer | np.floating) and not is_bool
    return is_real and bool(abs(value) <= 1e300)  # type: ignore[arg-type]


def _check_links(
    owner: object, left: NDArray[Any], right: NDArray[Any], is_inner: NDArray[Any]
) -> int:
    """Raise unless the nodes form one tree, each after its parent; return the depth."""
    n = len(is_inner)
    require(n > 0, owner, "a tree has no nodes")
    parents = np.flatnonzero(is_inner)
    children = np.concatenate([left[parents], right[parents]]).astype(np.int64)
    later = (children > np.tile(parents, 2)) & (children < n)
    require(later.all(), owner, "a child of a node is outside of the tree, or before the node")
    reached = np.array_equal(np.sort(children), np.arange(1, n))
    require(reached, owner, "its nodes are not one tree")
    depth, level = 0, np.zeros(1, dtype=np.int64)
    while len(level := level[is_inner[level]]):
        level = np.concatenate([left[level], right[level]]).astype(np.int64)
        depth += 1
    return depth


def check_tree(owner: Any) -> None:
    """Raise if a decision tree uses nodes or features that do not exist.

    Parameters
    ----------
    owner : tree classifier or regressor
        Fitted estimator.
    """
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
    """Raise if the trees of a forest have other features or outputs than the forest.

    Parameters
    ----------
    owner : RandomForestClassifier or ExtraTreesClassifier
        Fitted estimator.
    """
    trees = owner.estimators_
    require(isinstance(trees, list) and trees, owner, "its trees are not a list")
    require(equals(owner, "n_outputs_", 1), owner, "it has several outputs")
    for tree in trees:
        is_tree = type(tree) in (DecisionTreeClassifier, ExtraTreeClassifier)
        require(is_tree and hasattr(tree, "tree_"), owner, "one of its trees is something else")
        require(equals(tree, "n_outputs_", 1), owner, "a tree has several outputs")
        same = equals(tree, "n_features_in_", owner.n_features_in_)
        require(same, owner, "its trees have other features")


def check_boosting(owner: Any) -> None:
    """Raise if trees write to columns that the initial predictions do not have.

    Parameters
    ----------
    owner : GradientBoostingClassifier
        Fitted estimator.
    """
    trees, n_classes = owner.estimators_, len(owner.classes_)
    is_table = isinstance(trees, np.ndarray) and trees.ndim == 2 and trees.size > 0
    require(is_table, owner, "its trees are not a table")
    _check_loss(owner, n_classes, trees.shape[1])
    for tree in trees.ravel().tolist():
        is_tree = type(tree) is DecisionTreeRegressor and hasattr(tree, "tree_")
        require(is_tree, owner, "one of its trees is something else")
        same = equals(tree, "n_features_in_", owner.n_features_in_)
        require(same and tree.tree_.n_outputs == 1, owner, "its trees have other features")
    require(_is_number(owner.learning_rate), owner, "it has no learning rate")
    initial = owner.init_
    if not (isinstance(initial, str) and initial == "zero"):
        is_prior = type(initial) is DummyClassifier and initial._strategy == "prior"
        same = is_prior and np.shape(initial.class_prior_) == (n_classes,)
        require(same and equals(initial, "n_outputs_", 1), owner, "init_ has other classes")


def _check_loss(owner: Any, n_classes: int, columns: int) -> None:
    """Raise unless the loss of a boosting model has a column for each tree of a stage."""
    loss = owner._loss
    name, is_multiclass = type(loss).__name__, n_classes > 2
    require(n_classes > 1, owner, f"it has {n_classes} classes")
    is_known = LOSS_LINKS.get(name) == type(loss.link).__name__
    same = is_multiclass == (name == "HalfMultinomialLoss")
    require(is_known and same, owner, f"it has a loss {name[:60]}")
    same = not is_multiclass or equals(loss, "n_classes", n_classes)
    require(same, owner, "its loss has other classes")
    expected = n_classes if is_multiclass else 1
    require(columns == expected, owner, f"it has {columns} trees in a stage, not {expected}")
    require(equals(owner, "n_trees_per_iteration_", columns), owner, "trees are missing")


def check_histograms(owner: Any) -> None:
    """Raise if histogram trees use features or categories that do not exist.

    Parameters
    ----------
    owner : HistGradientBoostingClassifier
        Fitted estimator.
    """
    mapper, columns, predictors = owner._bin_mapper, owner.n_features_in_, owner._predictors
    is_coded, bins = mapper.is_categorical_, mapper.bin_thresholds_
    # A transformer of categorical columns could return fewer columns than the trees use.
    require(owner._preprocessor is None, owner, "it transforms columns; name it in trusted=[...]")
    require(getattr(owner, "_in_fit", False) is False, owner, "it is still being fitted")
    same = isinstance(is_coded, np.ndarray) and is_coded.shape == (columns,)
    are_flags = same and is_coded.dtype.kind in "bu"
    require(are_flags, owner, "its categorical features are not flags")
    require(isinstance(bins, list) and len(bins) == columns, owner, "its bins have other features")
    for codes in (bins[i] for i in np.flatnonzero(is_coded)):
        in_range = np.ndim(codes) == 1 and ((codes >= 0) & (codes < 32 * BITSET_WORDS)).all()
        require(in_range, owner, "a category is not a number from 0 to 255")
    require(isinstance(predictors, list) and predictors, owner, "its trees are not a list")
    for stage in predictors:
        _check_loss(owner, len(owner.classes_), len(stage))
        for predictor in stage:
            _check_histogram_tree(owner, predictor, is_coded.astype(bool))
    baseline = owner._baseline_prediction
    same = isinstance(baseline, np.ndarray) and baseline.shape == (1, len(predictors[0]))
    require(same and baseline.dtype.kind == "f", owner, "its initial prediction has another shape")


def _check_histogram_tree(owner: Any, predictor: Any, is_coded: NDArray[np.bool_]) -> None:
    nodes, bitsets = predictor.nodes, np.asarray(predictor.raw_left_cat_bitsets)
    is_inner = nodes["is_leaf"] == 0
    _check_links(owner, nodes["left"], nodes["right"], is_inner)
    used = nodes["feature_idx"][is_inner]
    exist = (used >= 0) & (used < len(is_coded))
    require(exist.all(), owner, "a tree uses a feature that does not exist")
    coded = nodes[is_inner & (nodes["is_categorical"] != 0)]
    have_categories = is_coded[coded["feature_idx"]].all()
    require(have_categories, owner, "a tree uses a category of a numeric feature")
    is_table = bitsets.ndim == 2 and bitsets.shape[1] == BITSET_WORDS
    require(is_table and bitsets.dtype == np.uint32, owner, "its categories are not a table")
    all_exist = (coded["bitset_idx"] < len(bitsets)).all()
    require(all_exist, owner, "a tree uses a category that does not exist")


def check_support_vectors(owner: Any) -> None:
    """Raise if the arrays of a support vector machine do not agree.

    Parameters
    ----------
    owner : SVC or NuSVC
        Fitted estimator.
    """
    vectors, kernel = owner.support_vectors_, owner.kernel
    is_function = callable(kernel)  # It was refused earlier, unless the user trusts it.
    require(is_function or kernel in KERNELS, owner, f"its kernel is {str(kernel)[:40]!r}")
    numbers = (owner.degree, owner.coef0, owner._gamma)
    require(all(map(_is_number, numbers)), owner, "a parameter of its kernel is not a number")
    if owner._sparse is True and _are_sparse(owner, vectors, owner._dual_coef_):
        require(len(owner.support_) == vectors.shape[0], owner, "support vectors are missing")
    else:
        require(owner._sparse is False, owner, "its support vectors are sparse")
        counts, n = _check_weights(owner), len(owner.support_)
        is_precomputed = is_function or kernel == "precomputed"
        n_rows = len(owner._BaseLibSVM__Xfit) if is_function else owner.shape_fit_[0]
        require(is_integer(n_rows, 1), owner, "it has no rows")
        exist = (owner.support_ >= 0) & (owner.support_ < n_rows)
        require(exist.all(), owner, "a support vector is not a row of its data")
        lengths = (0, n) if is_precomputed else (n,)
        same = vectors.ndim == 2 and len(vectors) in lengths
        require(same, owner, "support vectors are missing")
        same = is_precomputed or equals(owner, "n_features_in_", vectors.shape[1])
        require(same, owner, "its support vectors have other features")
        require(len(counts) == len(owner.classes_), owner, "it has other classes")


def _check_weights(owner: Any) -> NDArray[Any]:
    """Raise if the weights do not match the counts of support vectors; return the counts."""
    counts, weights = np.asarray(owner._n_support), np.asarray(owner._dual_coef_)
    n, pairs = len(owner.support_), len(counts) * (len(counts) - 1) // 2
    require(counts.ndim == 1 and len(counts) > 1, owner, "it has other classes")
    same = counts.dtype.kind == "i" and counts.min() >= 0 and counts.sum(dtype=np.int64) == n > 0
    require(same and counts.max() <= n, owner, "support vectors are missing")
    require(weights.shape == (len(counts) - 1, n), owner, f"weights have shape {weights.shape}")
    require(np.shape(owner._intercept_) == (pairs,), owner, "intercepts are missing")
    for name in ("_probA", "_probB"):
        require(len(getattr(owner, name)) in (0, pairs), owner, f"{name} has another length")
    require(len(owner._probA) == len(owner._probB), owner, "_probA and _probB differ in length")
    return counts


def _are_sparse(owner: object, *tables: Any) -> bool:
    """Return whether tables are sparse; raise if their indices are invalid.

    Sparse tables were refused earlier, unless the user trusts their type.
    """
    if not all(map(issparse, tables)):
        return False
    for table in tables:
        require(hasattr(table, "check_format"), owner, "it has sparse tables of another format")
        table.check_format(full_check=True)
    return True


def check_neighbors(owner: Any) -> None:
    """Raise if the points, labels or parameters of nearest neighbors do not agree.

    Parameters
    ----------
    owner : KNeighborsClassifier or RadiusNeighborsClassifier
        Fitted estimator.
    """
    points, k, n_classes = owner._fit_X, owner.n_neighbors, len(owner.classes_)
    if not _are_sparse(owner, points):
        is_table = isinstance(points, np.ndarray) and points.ndim == 2
        is_finite = is_table and points.dtype.kind in "fiu" and np.isfinite(points).all()
        require(is_finite, owner, "its points are not a finite table")
    n = points.shape[0]
    require(equals(owner, "n_samples_fit_", n), owner, "points are missing")
    same = equals(owner, "n_features_in_", points.shape[1])
    require(same, owner, "its points have other features")
    labels = owner._y
    same = isinstance(labels, np.ndarray) and labels.shape == (n,) and labels.dtype.kind == "i"
    require(same and owner.outputs_2d_ is False, owner, "its labels have another shape")
    require(((labels >= 0) & (labels < n_classes)).all(), owner, "a label is not a class")
    require(k is None or is_integer(k, 1, n), owner, f"it has {str(k)[:40]} neighbors")
    is_number = owner.radius is None or _is_number(owner.radius)
    require(is_number, owner, "its radius is not a number")
    require(is_integer(owner.leaf_size, 1), owner, f"its leaf size is {str(owner.leaf_size)[:40]}")
    method, weights = owner._fit_method, owner.weights
    is_known = isinstance(method, str) and method in (*SEARCH_TREES, "brute")
    require(is_known, owner, f"its search method is {str(method)[:40]!r}")
    is_known = weights is None or (isinstance(weights, str) and weights in ("uniform", "distance"))
    require(is_known or callable(weights), owner, f"its weights are {str(weights)[:40]!r}")
    _check_metric(owner)
    outlier = getattr(owner, "outlier_label", None)
    is_known = outlier is None or (isinstance(outlier, str) and outlier == "most_frequent")
    is_class = is_known or outlier in owner.classes_.tolist()
    require(is_class, owner, "its outlier label is not a class")


def _check_metric(owner: Any) -> None:
    for metric in (owner.metric, owner.effective_metric_):
        is_known = isinstance(metric, str) and metric in METRICS
        reason = f"its metric is {str(metric)[:40]!r}; name it in trusted=[...]"
        require(is_known or callable(metric), owner, reason)
    require(owner.p is None or _is_number(owner.p), owner, "p of its metric is not a number")
    for parameters in (owner.metric_params, owner.effective_metric_params_):
        is_plain = not parameters or (isinstance(parameters, dict) and set(parameters) == {"p"})
        are_numbers = is_plain and all(map(_is_number, (parameters or {}).values()))
        require(are_numbers, owner, "its metric has parameters; name it in trusted=[...]")


def build_search_tree(owner: Any) -> None:
    """Build the search tree of nearest neighbors from their points.

    Parameters
    ----------
    owner : KNeighborsClassifier or RadiusNeighborsClassifier
        Fitted estimator, whose tree is replaced. A tree is never loaded from a file.
    """
    owner._tree = None
    if owner._fit_method in SEARCH_TREES:
        build = SEARCH_TREES[owner._fit_method]
        parameters = owner.effective_metric_params_
        owner._tree = build(
            owner._fit_X, owner.leaf_size, metric=owner.effective_metric_, **parameters
        )


def check_random_state(state: np.random.RandomState) -> None:
    """Raise if a random state would read beyond the end of its array.

    Parameters
    ----------
    state : numpy.random.RandomState
        State of the Mersenne Twister.
    """
    position = state.get_state(legacy=False)["state"]["pos"]
    require(0 <= position <= MERSENNE_TWISTER_WORDS, state, f"its position is {position}")
