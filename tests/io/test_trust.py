"""What a saved scikit-learn classifier may be made of: types of an explicit list, and no code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import skops.io
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from tamper import (
    ESTIMATOR,
    archive_of,
    called,
    constant,
    mapping,
    members_of,
    nodes_of,
    replace_file,
    with_schema,
)
from typer.testing import CliRunner
from zoo import FIT, NEW_X

import shortlist as sl
from shortlist.cli import app
from shortlist.io.persistence import ModelFileError

HERE = Path(__file__).parent
X, Y = FIT.x.astype(np.float64), FIT.y
COLUMNS = ColumnTransformer(
    [("scaled", StandardScaler(), [0, 1]), ("coded", OneHotEncoder(handle_unknown="ignore"), [2]),
     ("kept", "passthrough", slice(3, 5))]
)  # fmt: skip
ESTIMATORS = {
    "logistic": LogisticRegression(),
    "pipeline": make_pipeline(COLUMNS, SimpleImputer(), LogisticRegression()),
    "forest": RandomForestClassifier(4, max_depth=3, random_state=np.random.RandomState(0)),
    "extra trees": ExtraTreesClassifier(4, max_depth=3, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=3, random_state=0),
    "histograms": HistGradientBoostingClassifier(max_iter=3, random_state=0),
    "ada": AdaBoostClassifier(n_estimators=3, random_state=0),
    "bagging": BaggingClassifier(DecisionTreeClassifier(max_depth=2), 3, max_features=3),
    "svc": SVC(probability=True, random_state=0),
    "neighbours": KNeighborsClassifier(),
    "neighbours by ball": KNeighborsClassifier(algorithm="ball_tree", metric="manhattan"),
    "neighbours by force": KNeighborsClassifier(algorithm="brute"),
    "radius": RadiusNeighborsClassifier(radius=100.0),
    "bayes": GaussianNB(),
    "network": MLPClassifier((4,), max_iter=5, random_state=0),
    "descent": SGDClassifier(loss="log_loss", random_state=0),
    "sigmoid": CalibratedClassifierCV(LogisticRegression(), cv=2),
    "isotonic": CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=2),
    "frozen": FrozenEstimator(LogisticRegression().fit(X, Y)),
    "search": GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=2, scoring="neg_log_loss"),
    "split": GridSearchCV(GaussianNB(), {"var_smoothing": [0.1, 1]}, cv=StratifiedKFold(2)),
    "voting": VotingClassifier(
        [("a", GaussianNB()), ("b", DecisionTreeClassifier())], voting="soft"
    ),
    "stacking": StackingClassifier([("a", GaussianNB())], cv=2),
    "one against all": OneVsRestClassifier(LogisticRegression()),
    "process": GaussianProcessClassifier(1.0 * RBF() + WhiteKernel(), optimizer=None),
    "selected": make_pipeline(FunctionTransformer(np.arcsinh), SelectKBest(k=2), GaussianNB()),
}


def save(estimator: object, path: Path) -> tuple[sl.ShortlistClassifier, Path]:
    """A model around an estimator, which is fitted once only."""
    fitted = estimator if isinstance(estimator, FrozenEstimator) else clone(estimator).fit(X, Y)
    method = sl.SplitConformal("lac").fit(fitted.predict_proba(X), Y)
    model = sl.ShortlistClassifier.of(fitted, method)
    return model, model.save(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        name: save(ESTIMATORS[name], folder / name)[1]
        for name in ("logistic", "pipeline", "forest")
    }


@pytest.mark.parametrize("name", ESTIMATORS)
def test_classifiers_of_scikit_learn_come_back_unasked(name, tmp_path):
    model, folder = save(ESTIMATORS[name], tmp_path / "model")
    again = sl.load(folder)
    assert np.array_equal(again.predict_proba(NEW_X), model.predict_proba(NEW_X))
    assert again.predict_set(NEW_X).labels() == model.predict_set(NEW_X).labels()
    again.estimator_.get_params()
    third = sl.load(again.save(tmp_path / "again"))
    assert np.array_equal(third.predict_proba(NEW_X), model.predict_proba(NEW_X))


@pytest.mark.parametrize("estimator", [KNeighborsClassifier(), SVC(probability=True)])
def test_sparse_tables_come_back_if_they_are_named(estimator, tmp_path):
    rows = csr_matrix(np.where(X > 0.5, X, 0))
    fitted = clone(estimator).fit(rows, Y)
    method = sl.SplitConformal("lac").fit(fitted.predict_proba(rows), Y)
    model = sl.ShortlistClassifier.of(fitted, method)
    folder = model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"trusted=\['scipy\.sparse\._csr\.csr_matrix'\]"):
        sl.load(folder)
    again = sl.load(folder, trusted=["scipy.sparse._csr.csr_matrix"])
    assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows))


# Code


CODE = "open({path!r}, 'w').close()"


@pytest.mark.parametrize("at", ["fitted", "given", "root", "attribute"])
def test_a_function_of_numpy_that_runs_text_is_not_called(saved, tmp_path, at):
    owned = tmp_path / "owned"
    evil = called(
        "numpy.testing._private.utils.runstring",
        constant(CODE.format(path=str(owned))),
        mapping(),
    )

    def change(schema):
        if at == "root":
            return {**evil, "protocol": schema["protocol"], "_skops_version": "0"}
        if at == "attribute":
            schema["content"]["fitted"]["content"]["content"]["C"] = evil
        else:
            schema["content"][at] = evil
        return None

    folder = with_schema(saved["logistic"], tmp_path / "model", change)
    with pytest.raises(ModelFileError, match=r"numpy\.testing\._private\.utils\.runstring"):
        sl.load(folder)
    assert not owned.exists()


def test_one_type_in_the_loader_of_another_is_refused(saved, tmp_path):
    """A class that may be filled with attributes may not be called with arguments."""
    name = "sklearn.linear_model._logistic.LogisticRegression"
    folder = with_schema(
        saved["logistic"],
        tmp_path / "model",
        lambda s: s["content"].update(given=called(name, constant("l2"))),
    )
    with pytest.raises(ModelFileError, match=rf"{name} \(by ConstructorFromReduceNode\)"):
        sl.load(folder)


def test_a_number_that_stands_for_two_things_is_refused(saved, tmp_path):
    """skops makes the first node of a number and takes it for all others."""

    def change(schema):
        first, second = [n for n in nodes_of(schema) if n["__loader__"] == "JsonNode"][:2]
        second.update(__id__=first["__id__"], content='"another"')

    folder = with_schema(saved["logistic"], tmp_path / "model", change)
    with pytest.raises(ModelFileError, match="and of something else"):
        sl.load(folder)


def test_an_old_protocol_is_refused(saved, tmp_path):
    for protocol in (0, 1, True, None, "2"):
        folder = with_schema(
            saved["logistic"], tmp_path / "model", lambda s, p=protocol: s.update(protocol=p)
        )
        with pytest.raises(ModelFileError, match="protocol"):
            sl.load(folder)


@pytest.mark.parametrize(
    "trusted", [True, "package.Type", None, [1], ["Type"], [""], ["a b.c"], [b"a.b"], {"a.b": 1}]
)
def test_trusted_is_a_list_of_names(saved, trusted):
    with pytest.raises(ValueError, match=r"trusted = .* is no list of names"):
        sl.load(saved["logistic"], trusted=trusted)


def test_a_function_of_the_users_choice_runs_if_it_is_named(saved, tmp_path):
    name = "numpy.testing._private.utils.runstring"
    owned = tmp_path / "owned"
    evil = called(name, constant(CODE.format(path=str(owned))), mapping())
    folder = with_schema(
        saved["logistic"], tmp_path / "model", lambda s: s["content"].update(given=evil)
    )
    sl.load(folder, trusted=[name])  # which is what trust means
    assert owned.exists()


def test_the_command_line_says_what_to_do(saved, tmp_path):
    evil = called("os.system", constant("true"))
    folder = with_schema(
        saved["logistic"], tmp_path / "model", lambda s: s["content"].update(given=evil)
    )
    rows = tmp_path / "rows.npz"
    np.savez(rows, scores=np.full((2, 6), 1 / 6), y=np.zeros(2, dtype=int))
    done = CliRunner().invoke(app, ["predict", str(folder), str(rows), "-o", f"{tmp_path}/a.csv"])
    words = " ".join(done.output.split())
    assert done.exit_code == 1
    assert "sl.load(..., trusted=['os.system'])" in words
    assert "Traceback" not in words


# What is in the file is what it claims


@pytest.mark.parametrize(
    ("part", "node", "words"),
    [
        ("fitted", constant(None), "a NoneType, which gives no scores"),
        ("fitted", mapping(), "a dict, which gives no scores"),
        ("given", constant(3), "the estimator given is a int"),
        (None, None, "it holds something else"),
    ],
)
def test_something_else_than_a_classifier_is_refused(saved, tmp_path, part, node, words):
    def change(schema):
        if part is None:
            return {**mapping(), "protocol": schema["protocol"]}
        schema["content"][part] = node
        return None

    folder = with_schema(saved["logistic"], tmp_path / "model", change)
    with pytest.raises(ModelFileError, match=words):
        sl.load(folder)


def test_a_classifier_of_other_classes_is_refused(saved, tmp_path):
    other = LogisticRegression().fit(X, Y + 10)
    _, folder = save(LogisticRegression(), tmp_path / "model")
    replace_file(folder, ESTIMATOR, skops.io.dumps({"fitted": other, "given": None}))
    with pytest.raises(ModelFileError, match="has other classes than the model"):
        sl.load(folder)
    replace_file(folder, ESTIMATOR, skops.io.dumps({"fitted": LogisticRegression(), "given": None}))
    with pytest.raises(ModelFileError, match="has no classes"):
        sl.load(folder)


def change_arrays(folder: Path, change) -> None:
    """Change the arrays of an estimator: `change` is given each and gives another or None."""
    members = members_of((folder / ESTIMATOR).read_bytes())
    for name, data in members.items():
        if not name.endswith(".npy"):
            continue
        array = np.load(io.BytesIO(data))
        changed = change(array)
        if changed is not None:
            buffer = io.BytesIO()
            np.save(buffer, changed)
            members[name] = buffer.getvalue()
    replace_file(folder, ESTIMATOR, archive_of(members))


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
        ("left_child", 10**6, "leads out of it"),
        ("left_child", -5, "leads out of it"),
        ("right_child", 0, "leads out of it, or back"),
        ("right_child", 1, "is not one tree"),
        ("feature", 10**6, "asks for no feature"),
        ("feature", -3, "asks for no feature"),
    ],
)
def test_trees_that_lead_out_of_their_arrays_are_refused(tmp_path, name, column, value, words):
    _, folder = save(ESTIMATORS[name], tmp_path / "model")
    change_arrays(folder, field(column, value))
    with pytest.raises(ModelFileError, match=words):
        sl.load(folder)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("left", 10**6, "leads out of it"),
        ("right", 0, "leads out of it, or back"),
        ("feature_idx", 10**6, "asks for no feature"),
        ("is_categorical", 1, "a category of a number"),
    ],
)
def test_trees_of_histograms_too(tmp_path, column, value, words):
    _, folder = save(ESTIMATORS["histograms"], tmp_path / "model")
    change_arrays(folder, field(column, value))
    with pytest.raises(ModelFileError, match=words):
        sl.load(folder)


def set_attribute(name: str, value: object):
    def change(schema):
        found = [n for n in nodes_of(schema) if isinstance(n.get("content"), dict)
                 and isinstance(n["content"].get(name), dict)]  # fmt: skip
        assert found
        for node in found:
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
        ("neighbours", "n_features_in_", 2),
        ("neighbours", "n_samples_fit_", 10**9),
        ("neighbours", "_fit_method", "other"),
    ],
)
def test_numbers_that_compiled_code_would_trust_are_refused(tmp_path, estimator, name, value):
    _, folder = save(ESTIMATORS[estimator], tmp_path / "model")
    with_schema(folder, tmp_path / "changed", set_attribute(name, value))
    with pytest.raises(ModelFileError, match="cannot be read"):
        sl.load(tmp_path / "changed")


@pytest.mark.parametrize("estimator", ["svc", "neighbours", "neighbours by force"])
def test_arrays_that_compiled_code_would_trust_are_refused(tmp_path, estimator):
    def shorter(array):
        return array[:-1] if array.ndim and len(array) > 2 else None

    def other_labels(array):
        return array + 10**6 if array.dtype.kind == "i" and len(array) > 10 else None

    changes = [shorter] if estimator == "svc" else [shorter, other_labels]
    for i, change in enumerate(changes):
        _, folder = save(ESTIMATORS[estimator], tmp_path / f"model{i}")
        change_arrays(folder, change)
        with pytest.raises(ModelFileError, match="cannot be"):
            sl.load(folder)


# Archives that are larger than they look


def rebuilt(saved: dict[str, Path], copy: Path, change) -> Path:
    folder = with_schema(saved["logistic"], copy, lambda schema: None)
    members = members_of((folder / ESTIMATOR).read_bytes())
    given = change(members)
    data = given if isinstance(given, bytes) else archive_of(members)
    replace_file(folder, ESTIMATOR, data)
    return folder


def claimed(shape: str) -> bytes:
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + b"\0" * 8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: archive_of({**m, "zeros.npy": b"\0" * 10**7}, zipfile.ZIP_DEFLATED),
         "is compressed"),
        (lambda m: m.pop("schema.json") and None, r"no schema\.json"),
        (lambda m: m.update({n: claimed("(10**12,)") for n in m if n.endswith(".npy")}),
         "is no array"),
        (lambda m: m.update({n: claimed("(1000000000000,)") for n in m if n.endswith(".npy")}),
         "but holds 8 bytes"),
        (lambda m: m.update({n: claimed("(-1,)") for n in m if n.endswith(".npy")}),
         "but holds 8 bytes"),
        (lambda m: m.update({n: archive_of({"a.npy": m[n]}) for n in m if n.endswith(".npy")}),
         "is no array"),
        (lambda m: m.update({"schema.json": b"[" * 10**6}), "cannot be read"),
        (lambda m: m.update({"schema.json": b"{}"}), "protocol"),
        (lambda m: b"PK\x03\x04" + bytes(100), "cannot be read"),
    ],
)  # fmt: skip
def test_archives_that_are_larger_than_they_look_are_refused(saved, tmp_path, change, words):
    folder = rebuilt(saved, tmp_path / "model", change)
    with pytest.raises(ModelFileError, match=words):
        sl.load(folder)


def test_one_large_array_is_not_read_many_times(saved, tmp_path):
    def change(schema):
        array = next(n for n in nodes_of(schema) if n["__loader__"] == "NdArrayNode")
        schema["content"]["given"] = mapping(a={**array, "__id__": 10**17})

    folder = with_schema(saved["logistic"], tmp_path / "model", change)
    with pytest.raises(ModelFileError, match="is listed twice"):
        sl.load(folder)


# Every node, replaced by everything


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("loads", [260, pytest.param(0, marks=pytest.mark.study)])
def test_no_node_of_a_schema_can_be_made_to_run_anything(saved, tmp_path, loads):
    """A sample, or (0) all targets in every kind of node, and ten of them in every node."""
    command = [sys.executable, str(HERE / "trust_fuzz.py"), str(tmp_path), str(loads)]
    command += [str(folder) for folder in saved.values()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=6000)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["canary"] > 0, "the hook sees nothing"
    assert told["targets"] >= 200
    assert told["loads"] >= 260
    assert told["ran"] == []
    assert told["crashed"] == []
    assert told["refused"] > 0.9 * told["loads"]
