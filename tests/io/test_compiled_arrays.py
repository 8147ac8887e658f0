"""Test the checks of fitted arrays that compiled code trusts."""

from __future__ import annotations

import io
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
from classifiers import ESTIMATORS, X, Y, model_with, save
from sklearn.cluster import KMeans
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree._tree import Tree
from tamper import (
    ESTIMATOR,
    archive_of,
    change_parts,
    constant,
    members_of,
    nodes_of,
    replace_file,
    with_schema,
)

import shortlist as sl
from shortlist.io.persistence import ModelFileError


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Return saved models, which are fitted when a test first uses them."""
    root = tmp_path_factory.mktemp("models")

    class Folders(dict):
        def __missing__(self, name: str) -> Path:
            self[name] = save(ESTIMATORS[name], root / name.replace(" ", "-"))[1]
            return self[name]

    return Folders()


def tampered(folders: dict[str, Path], name: str, copy: Path, change) -> Path:
    """Copy a model and change its fitted classifier."""
    folder = with_schema(folders[name], copy, lambda schema: None)
    change_parts(folder, lambda parts: change(parts["fitted"]))
    return folder


def setting(*path_and_values):
    """Return a function that sets attributes, which are given as "a.0.b", value, and so on."""

    def change(fitted):
        for path, value in zip(path_and_values[::2], path_and_values[1::2], strict=True):
            *way, last = path.split(".")
            here = fitted
            for step in way:
                here = here[int(step)] if step.isdigit() else getattr(here, step)
            setattr(here, last, value(fitted) if isinstance(value, FunctionType) else value)

    return change


def change_arrays(folder: Path, change) -> None:
    """Change the arrays of an estimator; `change` returns another array, or None to keep it."""
    members = members_of((folder / ESTIMATOR).read_bytes())
    for name, data in members.items():
        if not name.endswith(".npy"):
            continue
        changed = change(np.load(io.BytesIO(data)))
        if changed is not None:
            buffer = io.BytesIO()
            np.save(buffer, changed)
            members[name] = buffer.getvalue()
    replace_file(folder, ESTIMATOR, archive_of(members))


# Attacks that crashed a process


def test_boosting_from_an_initial_model_of_other_classes(folders, tmp_path):
    """Compiled code writes to a column for each tree, even if the table does not have it."""
    few = DummyClassifier(strategy="prior").fit(X, np.arange(len(X)) % 2)
    for i, change in enumerate(
        (
            setting("init_", few),
            setting("init_.class_prior_", np.full(2, 0.5)),
            setting("init_", LogisticRegression().fit(X, np.arange(len(X)) % 2)),
            setting("init_._strategy", "uniform", "init_.n_classes_", 2),
            setting("init_.n_outputs_", 2),
            setting("init_", None),
        )
    ):
        folder = tampered(folders, "boosting", tmp_path / f"{i}", change)
        with pytest.raises(ModelFileError, match=r"GradientBoostingClassifier.*init|Dummy"):
            sl.load(folder)


@pytest.mark.parametrize("name", ["boosting", "boosting from zero", "histograms"])
def test_boosting_with_the_loss_of_other_classes(folders, tmp_path, name):
    kind = GradientBoostingClassifier if "boosting" in name else HistGradientBoostingClassifier
    two = kind(**({"n_estimators": 1} if "boosting" in name else {"max_iter": 1}))
    two.fit(X, np.arange(len(X)) % 2)
    for i, change in enumerate(
        (
            setting("_loss", two._loss),
            setting("_loss.n_classes", 2),
            setting("_loss.link", two._loss.link),
            setting("_loss.is_multiclass", False),
        )
    ):
        folder = tampered(folders, name, tmp_path / f"{i}", change)
        with pytest.raises(ModelFileError, match=r"loss|Loss"):
            sl.load(folder)


def test_a_function_in_place_of_a_kernel(folders, tmp_path):
    change = setting("kernel", np.add, "_BaseLibSVM__Xfit", X)
    for name in ("svc", "svc without probabilities"):
        folder = tampered(folders, name, tmp_path / name, change)
        with pytest.raises(ModelFileError, match=r"SVC\.kernel.*trusted=\['numpy\.add'\]"):
            sl.load(folder)
        sl.load(folder, trusted=["numpy.add"])


@pytest.mark.parametrize("kernel", ["rbf", "precomputed", np.add])
def test_support_vectors_that_are_not_rows(folders, tmp_path, kernel):
    change = setting("support_", lambda g: np.full_like(g.support_, 2**31 - 9), "kernel", kernel,
                     "_BaseLibSVM__Xfit", np.zeros((1, X.shape[1])))  # fmt: skip
    folder = tampered(folders, "svc", tmp_path / "model", change)
    with pytest.raises(ModelFileError, match=r"SVC.*support vector is not a row"):
        sl.load(folder, trusted=["numpy.add"])


def test_clusterers_are_not_trusted(folders, tmp_path):
    """Their compiled code trusts the number of columns."""
    means = KMeans(3, n_init=1).fit(X)
    means.cluster_centers_ = np.zeros((3, 1))
    change = setting("estimators_", [means], "stack_method_", ["predict"])
    folder = tampered(folders, "stacking", tmp_path / "model", change)
    with pytest.raises(ModelFileError, match=r"trusted=\['sklearn\.cluster\._kmeans\.KMeans'\]"):
        sl.load(folder)


def test_a_forest_with_the_attributes_of_neighbors(folders, tmp_path):
    """Its trees read column 40,000,000."""

    def change(forest):
        n, tree = 40_000_000, forest.estimators_[0]
        state = tree.tree_.__getstate__()
        nodes = state["nodes"].copy()
        nodes["feature"][nodes["left_child"] != -1] = n - 1
        wide = Tree(n, tree.tree_.n_classes.astype(np.intp), tree.tree_.n_outputs)
        wide.__setstate__({**state, "nodes": nodes})
        tree.tree_, tree.n_features_in_ = wide, n
        forest._fit_method, forest._fit_X = "brute", np.zeros((1, X.shape[1]))
        forest.n_samples_fit_, forest._y = 1, np.zeros(1, dtype=np.int64)

    folder = tampered(folders, "forest", tmp_path / "model", change)
    with pytest.raises(ModelFileError, match="RandomForestClassifier"):
        sl.load(folder)


def test_attributes_that_hide_methods(folders, tmp_path):
    """Python finds an attribute before the method that checks the input."""
    for i, (name, value) in enumerate(
        [("_validate_X_predict", np.positive), ("predict_proba", np.positive), ("_impl", "nu_svc")]
    ):
        kind = "svc" if name == "_impl" else "forest"
        folder = tampered(folders, kind, tmp_path / f"{i}",
                          lambda g, name=name, value=value: setattr(g, name, value))  # fmt: skip
        with pytest.raises(ModelFileError, match=name):
            sl.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        setting("1._n_features_outs", [1] * 5),
        setting("1._n_features_outs", [10**9] * 5),
        setting("1._drop_idx_after_grouping", np.array([-9] * 5, dtype=object)),
        setting("1._drop_idx_after_grouping", np.array([0] * 4, dtype=object)),
        lambda g: g[1]._default_to_infrequent_mappings[4].__setitem__(0, 10**6),
        lambda g: g[1]._default_to_infrequent_mappings[4].__setitem__(0, -(10**6)),
        lambda g: g[1].categories_.__setitem__(4, g[1].categories_[4][::-1].copy()),
        setting("1._infrequent_enabled", False),
        setting("1.n_features_in_", 10**12),
    ],
)  # fmt: skip
def test_codes_of_categories_outside_of_the_matrix(folders, tmp_path, change):
    """The encoder creates a sparse matrix from them, and SciPy trusts its indices."""
    folder = tampered(folders, "coded", tmp_path / "model", change)
    with pytest.raises(ModelFileError, match="OneHotEncoder"):
        sl.load(folder)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        # A forest of a billion classes needs the memory for a billion classes.
        ("forest", setting("n_classes_", 10**9)),
        ("forest", setting("estimators_.0.n_classes_", 10**9)),
        ("prior", setting("n_classes_", 10**12, "_strategy", "uniform")),
        ("polynomial", setting("0.n_output_features_", 10**10, "0._n_out_full", 10**10)),
        ("polynomial", setting("0._max_degree", 60)),
        ("polynomial", setting("0.degree", 10**9)),
        ("polynomial", setting("0.n_features_in_", 10**9)),
        ("histograms", setting("_in_fit", True)),
        ("histograms", setting("n_trees_per_iteration_", 10**12)),
        ("histograms", setting("_bin_mapper.is_categorical_", np.zeros((5, 1000), np.uint8))),
        ("selected", setting("0.kw_args", {"dtype": "O"})),
        ("neighbors", setting("n_neighbors", -3)),
        ("neighbors", setting("n_neighbors", 10**12)),
        ("neighbors", setting("n_neighbors", 2.5)),
        ("neighbors", setting("leaf_size", 10**30)),
        ("neighbors", setting("weights", "other")),
        ("neighbors", setting("outputs_2d_", True)),
        ("neighbors", setting("p", "x")),
        ("neighbors by force", setting("effective_metric_", "seuclidean",
                                        "effective_metric_params_", {"V": np.ones(1)})),
        ("neighbors by force", setting("metric_params", {"w": np.ones(1)})),
        ("neighbors by force", setting("metric", "precomputed")),
        ("neighbors by force", setting("_fit_X", lambda g: g._fit_X * np.nan)),
        ("radius by force", setting("outlier_label", 10**6)),
        ("radius by force", setting("radius", "x")),
        ("svc", setting("_n_support", np.array([2**31 - 1] * 2 + [3] * 4))),
        ("svc", setting("degree", "x")),
        ("svc", setting("_gamma", None)),
        ("svc", setting("shape_fit_", (1, 5))),
        ("svc", setting("kernel", "other")),
        ("stacking", setting("stack_method_", ["fit"])),
        ("logistic", setting("n_features_in_", "x")),
        ("logistic", setting("n_features_in_", True)),
    ],
)  # fmt: skip
def test_invalid_attributes_are_refused(folders, tmp_path, name, change):
    folder = tampered(folders, name, tmp_path / "model", change)
    with pytest.raises(ModelFileError, match=r"cannot be used|classifier cannot be read"):
        sl.load(folder)


def test_categories_that_are_not_small_numbers(folders, tmp_path):
    def change(fitted):
        mapper = fitted._bin_mapper
        mapper.is_categorical_ = np.array([1, 0, 0, 0, 0], dtype=np.uint8)
        mapper.bin_thresholds_[0] = np.array([1e9, 2e9, 250.0])

    folder = tampered(folders, "histograms", tmp_path / "model", change)
    with pytest.raises(ModelFileError, match="categor"):
        sl.load(folder)


@pytest.mark.parametrize(
    ("name", "path"), [("union", "0"), ("neighbors", ""), ("forest", ""), ("bagging", "")]
)
def test_the_number_of_jobs_is_reset(folders, tmp_path, name, path):
    def change(fitted):
        part = fitted[int(path)] if path else fitted
        part.n_jobs = 100_000

    folder = tampered(folders, name, tmp_path / "model", change)
    fitted = sl.load(folder).estimator_
    assert (fitted[int(path)] if path else fitted).n_jobs is None


def test_a_named_type_is_not_checked(tmp_path):
    """Its parameters may have values that the checks do not know."""
    odd = KNeighborsClassifier(metric="seuclidean", metric_params={"V": X.var(axis=0)}).fit(X, Y)
    folder = model_with(odd).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"KNeighborsClassifier.*metric"):
        sl.load(folder)
    again = sl.load(folder, trusted=["sklearn.neighbors._classification.KNeighborsClassifier"])
    assert np.array_equal(again.predict_proba(X), odd.predict_proba(X))


# Arrays, one value at a time


def field(name, value):
    def change(array):
        if name not in (array.dtype.names or ()):
            return None
        array = array.copy()
        array[name][0] = value
        return array

    return change


@pytest.mark.parametrize("name", ["forest", "boosting"])
@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("left_child", 10**6, "outside of the tree"),
        ("left_child", -5, "outside of the tree"),
        ("right_child", 0, "outside of the tree, or before the node"),
        ("right_child", 1, "nodes are not one tree"),
        ("feature", 10**6, "uses a feature that"),
        ("feature", -3, "uses a feature that"),
    ],
)
def test_tree_nodes_outside_of_their_arrays_are_refused(
    folders, tmp_path, name, column, value, words
):
    folder = with_schema(folders[name], tmp_path / "model", lambda schema: None)
    change_arrays(folder, field(column, value))
    with pytest.raises(ModelFileError, match=words):
        sl.load(folder)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("left", 10**6, "outside of the tree"),
        ("right", 0, "outside of the tree, or before the node"),
        ("feature_idx", 10**6, "uses a feature that"),
        ("is_categorical", 1, "a category of a numeric feature"),
    ],
)
def test_histogram_tree_nodes_outside_of_their_arrays_are_refused(
    folders, tmp_path, column, value, words
):
    folder = with_schema(folders["histograms"], tmp_path / "model", lambda schema: None)
    change_arrays(folder, field(column, value))
    with pytest.raises(ModelFileError, match=words):
        sl.load(folder)


def set_attribute(name: str, value: object):
    def change(schema):
        nodes = [n for n in nodes_of(schema) if isinstance(n.get("content"), dict)
                 and isinstance(n["content"].get(name), dict)]  # fmt: skip
        assert nodes
        for node in nodes:
            node["content"][name] = constant(value)

    return change


@pytest.mark.parametrize(
    ("estimator", "name", "value"),
    [
        ("forest", "n_features_in_", 2),
        ("forest", "node_count", 0),
        ("forest", "max_depth", 0),
        ("boosting", "n_trees_per_iteration_", 1),
        ("histograms", "n_features_in_", 2),
        ("svc", "n_features_in_", 2),
        ("neighbors", "n_features_in_", 2),
        ("neighbors", "n_samples_fit_", 10**9),
        ("neighbors", "_fit_method", "other"),
    ],
)
def test_numbers_that_compiled_code_would_trust_are_refused(
    folders, tmp_path, estimator, name, value
):
    with_schema(folders[estimator], tmp_path / "changed", set_attribute(name, value))
    with pytest.raises(ModelFileError, match="cannot be read"):
        sl.load(tmp_path / "changed")


@pytest.mark.parametrize("estimator", ["svc", "neighbors", "neighbors by force"])
def test_arrays_that_compiled_code_would_trust_are_refused(folders, tmp_path, estimator):
    def shorter(array):
        return array[:-1] if array.ndim and len(array) > 2 else None

    def other_labels(array):
        return array + 10**6 if array.dtype.kind == "i" and len(array) > 10 else None

    changes = [shorter] if estimator == "svc" else [shorter, other_labels]
    for i, change in enumerate(changes):
        folder = with_schema(folders[estimator], tmp_path / f"model{i}", lambda schema: None)
        change_arrays(folder, change)
        with pytest.raises(ModelFileError, match=r"cannot be used|classifier cannot be read"):
            sl.load(folder)
