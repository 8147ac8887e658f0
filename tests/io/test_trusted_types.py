"""Test that saved classifiers contain trusted types only, and execute no code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
from classifiers import ESTIMATORS, X, Y, model_with, save
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC
from tamper import ESTIMATOR, called, change_parts, constant, mapping, replace_file, with_schema
from typer.testing import CliRunner
from zoo import NEW_X

import shortlist as sl
from shortlist.cli import app
from shortlist.io.persistence import ModelFileError
from shortlist.io.trusted_types import name_of

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        name: save(ESTIMATORS[name], folder / name)[1]
        for name in ("logistic", "pipeline", "forest")
    }


@pytest.mark.parametrize("name", ESTIMATORS)
def test_trusted_classifiers_of_scikit_learn_load(name, tmp_path):
    model, folder = save(ESTIMATORS[name], tmp_path / "model")
    again = sl.load(folder)
    assert np.array_equal(scores(again), scores(model))
    assert again.predict_set(NEW_X).labels() == model.predict_set(NEW_X).labels()
    again.estimator_.get_params()
    third = sl.load(again.save(tmp_path / "again"))
    assert np.array_equal(scores(third), scores(model))


def scores(model: sl.ShortlistClassifier) -> np.ndarray:
    fitted = model.estimator_
    scores_of = getattr(fitted, "predict_proba", None) or fitted.decision_function
    return scores_of(NEW_X)


@pytest.mark.parametrize("estimator", [KNeighborsClassifier(), SVC(probability=True)])
def test_sparse_tables_load_if_they_are_trusted(estimator, tmp_path):
    rows = csr_matrix(np.where(X > 0.5, X, 0))
    model = model_with(clone(estimator).fit(rows, Y), rows)
    folder = model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"trusted=\['scipy\.sparse\._csr\.csr_matrix'\]"):
        sl.load(folder)
    again = sl.load(folder, trusted=["scipy.sparse._csr.csr_matrix"])
    assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows))


def test_a_text_column_of_a_frame(tmp_path):
    frame = pd.DataFrame({"text": [f"word{y} common" for y in Y], "x": X[:, 0]})
    columns = ColumnTransformer([("words", TfidfVectorizer(), "text"), ("x", "passthrough", ["x"])])
    model = model_with(make_pipeline(columns, LogisticRegression()).fit(frame, Y), frame)
    folder = model.save(tmp_path / "model")
    assert np.array_equal(sl.load(folder).predict_proba(frame), model.predict_proba(frame))
    for i, (name, value) in enumerate(
        [
            ("vocabulary_", {"word0": 10**9, "common": 0}),
            ("vocabulary_", {"word0": -1, "common": 0}),
            ("vocabulary_", {}),
            ("input", "filename"),
            ("token_pattern", "(a+)+$"),
            ("ngram_range", (1, 10**9)),
            ("analyzer", "other"),
        ]
    ):
        changed = with_schema(folder, tmp_path / f"{i}", lambda schema: None)
        change_parts(changed, lambda parts, n=name, v=value: setattr(
            parts["fitted"][0].named_transformers_["words"], n, v))  # fmt: skip
        with pytest.raises(ModelFileError, match="TfidfVectorizer cannot be used"):
            sl.load(changed)


def test_a_frame_with_categories_needs_trust(tmp_path):
    """A transformer changes its columns, and compiled code trusts the result."""
    frame = pd.DataFrame({"a": pd.Categorical(Y % 3), "x": X[:, 0]})
    fitted = HistGradientBoostingClassifier(max_iter=2).fit(frame, Y)
    folder = model_with(fitted, frame).save(tmp_path / "model")
    trusted = ["functools.partial", "sklearn.utils.validation.check_array"]
    with pytest.raises(ModelFileError, match=r"functools\.partial"):
        sl.load(folder)
    with pytest.raises(ModelFileError, match="it transforms columns"):
        sl.load(folder, trusted=trusted)
    again = sl.load(folder, trusted=[*trusted, name_of(HistGradientBoostingClassifier)])
    assert np.array_equal(again.predict_proba(frame), fitted.predict_proba(frame))


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


def test_a_type_with_another_loader_is_refused(saved, tmp_path):
    """A class whose attributes may be set must not be called with arguments."""
    name = "sklearn.linear_model._logistic.LogisticRegression"
    folder = with_schema(
        saved["logistic"],
        tmp_path / "model",
        lambda s: s["content"].update(given=called(name, constant("l2"))),
    )
    with pytest.raises(ModelFileError, match=rf"{name} \(by ConstructorFromReduceNode\)"):
        sl.load(folder)


@pytest.mark.parametrize(
    "trusted", [True, "package.Type", None, [1], ["Type"], [""], ["a b.c"], [b"a.b"], {"a.b": 1}]
)
def test_trusted_is_a_list_of_names(saved, trusted):
    with pytest.raises(ValueError, match=r"trusted = .* is not a list of names"):
        sl.load(saved["logistic"], trusted=trusted)


def test_a_function_that_is_trusted_is_called(saved, tmp_path):
    name = "numpy.testing._private.utils.runstring"
    owned = tmp_path / "owned"
    evil = called(name, constant(CODE.format(path=str(owned))), mapping())
    folder = with_schema(
        saved["logistic"], tmp_path / "model", lambda s: s["content"].update(given=evil)
    )
    sl.load(folder, trusted=[name])  # The user trusts the function.
    assert owned.exists()


def test_the_command_line_explains_trusted(saved, tmp_path):
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


# The content of the archive


@pytest.mark.parametrize(
    ("part", "node", "words"),
    [
        ("fitted", constant(None), "a NoneType, which computes no scores"),
        ("fitted", mapping(), "a dict, which computes no scores"),
        ("given", constant(3), "the parameter estimator is a int"),
        (None, None, "it does not contain a classifier"),
    ],
)
def test_an_archive_without_a_classifier_is_refused(saved, tmp_path, part, node, words):
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


# Nodes that are replaced


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("loads", [260, pytest.param(0, marks=pytest.mark.study)])
def test_no_node_of_a_schema_executes_code(saved, tmp_path, loads):
    """Try a sample, or with 0 all targets in every type of node, and ten targets in every node."""
    command = [sys.executable, str(HERE / "trust_fuzz.py"), str(tmp_path), str(loads)]
    command += [str(folder) for folder in saved.values()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=6000)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes["canary"] > 0, "the hook records nothing"
    assert outcomes["targets"] >= 200
    assert outcomes["loads"] >= 260
    assert outcomes["ran"] == []
    assert outcomes["crashed"] == []
    assert outcomes["refused"] > 0.9 * outcomes["loads"]


# Attributes that are replaced


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mutations", [48, pytest.param(10_000, marks=pytest.mark.study)])
def test_no_attribute_of_a_classifier_crashes_a_process(tmp_path, mutations):
    """Every classifier is tried, or four of them if there are few mutations. No load raises another
    error than a ModelFileError, and no prediction crashes, needs gigabytes or takes seconds.
    """
    names = ["boosting", "coded", "svc", "neighbors"] if mutations < 1000 else []
    command = [sys.executable, str(HERE / "estimator_fuzz.py"), str(tmp_path), str(mutations)]
    done = subprocess.run([*command, *names], capture_output=True, text=True, timeout=6000)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["mutations"] >= mutations
    assert result["wrong"] == []
    assert result["refused"] > 0.25 * mutations
    assert result["predicts"] > 0.1 * mutations
