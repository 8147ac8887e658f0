"""A classifier with its set predictor as one ONNX graph, from X to prediction sets."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from typer.testing import CliRunner

import shortlist as sl
from shortlist.cli import app

DATA = sl.datasets.gaussian(2400, 0.8, n_classes=5, dimension=6)
FIT, NEW = DATA[:1200], DATA[1200:]
SMALL = {"width": 8, "rank_width": 8, "max_epochs": 3, "folds": 2}
CLASSIFIERS = [
    LogisticRegression(),
    make_pipeline(StandardScaler(), LogisticRegression()),
    FrozenEstimator(LogisticRegression().fit(FIT.x, FIT.y)),
    GaussianNB(),
    RandomForestClassifier(10, random_state=0),
    GradientBoostingClassifier(n_estimators=5, random_state=0),
    MLPClassifier((8,), max_iter=20, random_state=0),
    SVC(),
]


def fit(
    classifier: object = None, method: sl.SetPredictor | None = None, **options: object
) -> sl.ShortlistClassifier:
    method = sl.SplitConformal("lac") if method is None else method
    classifier = LogisticRegression() if classifier is None else classifier
    model = sl.ShortlistClassifier(classifier, method=method, cv=2)  # type: ignore[arg-type]
    return model.set_params(**options).fit(FIT.x, FIT.y)


def run(path: Path, x: np.ndarray, **inputs: np.ndarray) -> list[list[int]]:
    """Return the labels of the sets that a graph computes."""
    session = onnxruntime.InferenceSession(path)
    labels, sizes, _ = session.run(None, {"X": x, **inputs})
    return [row[:size].tolist() for row, size in zip(labels, sizes, strict=True)]


def assert_same_sets(
    path: Path, model: sl.ShortlistClassifier, x: np.ndarray, accuracy: float, few: int = 3
) -> None:
    """Assert that the sets are those of `predict_set`, but for levels next to the threshold."""
    expected = model.predict_set(x, accuracy=accuracy).labels()
    found = run(path, x)
    assert sum(a != b for a, b in zip(found, expected, strict=True)) <= few
    assert max(map(len, found)) > 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=lambda c: type(c).__name__)
def test_the_sets_are_those_of_predict_set(classifier: object, tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    model = fit(classifier)
    path = model.export_onnx(tmp_path / "model.onnx", FIT.x[:50], accuracy=0.95)
    assert_same_sets(path, model, NEW.x, 0.95)
    graph = onnx.load(path)
    onnx.checker.check_model(graph)
    assert [value.name for value in graph.graph.input] == ["X"]
    metadata = {entry.key: entry.value for entry in graph.metadata_props}
    assert json.loads(metadata["classes"]) == [0, 1, 2, 3, 4]
    guarantee = model.predict_set(NEW.x, accuracy=0.95).guarantee
    assert metadata["guarantee"] == str(guarantee)


@pytest.mark.parametrize("missing", [False, True])
def test_x_is_also_the_features(missing: bool, tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    x, new = FIT.x.copy(), NEW.x.copy()
    if missing:
        x[::7, 2] = new[::5, 1] = np.nan
    classifier = make_pipeline(SimpleImputer(), LogisticRegression())
    method = sl.Shortlister(rescore=True, **SMALL)
    model = sl.ShortlistClassifier(classifier, method=method, cv=2).fit(x, FIT.y)
    assert model.method_.rescored_
    path = model.export_onnx(tmp_path / "model.onnx", x[:50], accuracy=0.95)
    assert_same_sets(path, model, new, 0.95)


def test_two_classes_and_doubles(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    y = (FIT.y > 1).astype(int)
    for i, classifier in enumerate((LogisticRegression(), SVC())):
        model = sl.ShortlistClassifier(classifier, method=sl.SplitConformal("aps"), cv=2)
        model.fit(FIT.x.astype(float), y)
        path = model.export_onnx(tmp_path / str(i), FIT.x, accuracy=0.95, dtype="float64")
        assert_same_sets(path, model, NEW.x.astype(float), 0.95)


def test_the_threshold_can_be_an_input(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    model = fit()
    path = model.export_onnx(tmp_path / "model.onnx", FIT.x)
    for accuracy in (0.8, 0.99):
        threshold = np.array(sl.onnx.threshold_for(model.method_, accuracy=accuracy))  # type: ignore[arg-type]
        expected = model.predict_set(NEW.x, accuracy=accuracy).labels()
        found = run(path, NEW.x, threshold=threshold)
        assert sum(a != b for a, b in zip(found, expected, strict=True)) <= 3


def test_a_graph_with_other_scores_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("skl2onnx")
    model, other = fit(), fit(LogisticRegression(C=1e-3))
    from shortlist.onnx import classifier

    convert = classifier._convert
    monkeypatch.setattr(classifier, "_convert", lambda _, rows: convert(other, rows))
    with pytest.raises(ValueError, match="computes other scores than the classifier"):
        model.export_onnx(tmp_path / "model.onnx", FIT.x, accuracy=0.9)
    assert not (tmp_path / "model.onnx").exists()


def test_a_classifier_that_cannot_be_converted(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")

    class Own(LogisticRegression):
        pass

    model = fit(Own())
    with pytest.raises(ValueError, match=r"cannot convert the classifier Own: .* predictor alone"):
        model.export_onnx(tmp_path / "model.onnx", FIT.x, accuracy=0.9)


def test_features_of_a_function_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    method = sl.Shortlister(rescore=True, **SMALL)
    model = fit(method=method, features=np.square)
    with pytest.raises(ValueError, match="computed in Python"):
        model.export_onnx(tmp_path / "model.onnx", FIT.x, accuracy=0.9)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([["a"] * 6], "X must be a dense table of numbers"),
        (np.zeros((0, 6)), "X must be a dense table of numbers"),
        (np.zeros((3, 5)), "X has 5 columns, but fit saw 6"),
    ],
)
def test_x_must_be_rows_like_those_of_fit(x: object, message: str, tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    with pytest.raises(ValueError, match=message):
        fit().export_onnx(tmp_path / "model.onnx", x)


def test_without_x_the_set_predictor_is_written_alone(tmp_path: Path) -> None:
    model = fit()
    path = model.export_onnx(tmp_path / "model.onnx", accuracy=0.95)
    session = onnxruntime.InferenceSession(path)
    scores = model.estimator_.predict_proba(NEW.x).astype(np.float32)  # type: ignore[attr-defined]
    labels, sizes, _ = session.run(None, {"scores": scores})
    expected = model.predict_set(NEW.x, accuracy=0.95).labels()
    found = [row[:size].tolist() for row, size in zip(labels, sizes, strict=True)]
    assert sum(a != b for a, b in zip(found, expected, strict=True)) <= 3


def test_the_function_for_scores_names_the_method(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"takes X, not scores; call its method export_onnx"):
        sl.export_onnx(fit(), tmp_path / "model.onnx")  # type: ignore[arg-type]


def test_the_command_exports_models_that_predict_sets(tmp_path: Path) -> None:
    linear = sl.LinearClassifier(max_epochs=1).fit(FIT.x, FIT.y)
    method = sl.SplitConformal("lac").fit(linear.predict_proba(NEW.x), NEW.y)
    both = sl.ShortlistClassifier.from_fitted(linear, method)
    for name, model in {"linear": linear, "both": both}.items():
        model.save(tmp_path / name)
        command = ["export", str(tmp_path / name), "-o", str(tmp_path / f"{name}.onnx")]
        result = CliRunner().invoke(app, command)
        assert (result.exit_code == 0) == (name == "both"), result.output
        assert (tmp_path / f"{name}.onnx").exists() == (name == "both")
    assert (
        "LinearClassifier, which predicts no sets"
        in CliRunner()
        .invoke(app, ["export", str(tmp_path / "linear"), "-o", str(tmp_path / "linear.onnx")])
        .output
    )


def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit()
    monkeypatch.setitem(__import__("sys").modules, "skl2onnx", None)
    with pytest.raises(ImportError, match=r"needs skl2onnx: pip install 'shortlist\[skl2onnx\]'"):
        model.export_onnx(tmp_path / "model.onnx", FIT.x)


def test_encoded_features_are_inputs_of_the_set_predictor_alone(tmp_path: Path) -> None:
    """A category is a feature that fit encodes, so that a warning names it."""
    x = pd.DataFrame(FIT.x, columns=list("abcdef"))
    x["site"] = np.where(FIT.x[:, 0] > 0, "north", "south")
    transformer = make_column_transformer((OneHotEncoder(), ["site"]), remainder="passthrough")
    classifier = make_pipeline(transformer, LogisticRegression())
    model = sl.ShortlistClassifier(classifier, method=sl.Shortlister(**SMALL), cv=2)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match=r"encoded from X \(6 numbers, 1 category \('site'\)\)"):
        path = model.fit(x, FIT.y).export_onnx(tmp_path / "model.onnx", accuracy=0.95)
    inputs = {one.name: one.shape[1] for one in onnxruntime.InferenceSession(path).get_inputs()}
    assert inputs["features"] == 8
    plain = sl.ShortlistClassifier(classifier, method=sl.SplitConformal("lac"), cv=2).fit(x, FIT.y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain.export_onnx(tmp_path / "plain.onnx", accuracy=0.95)


def test_a_retrained_classifier_is_refused_in_plain_words(tmp_path: Path) -> None:
    scores = np.eye(5)[FIT.y] + 0.1
    model = sl.RetrainedClassifier("logistic").fit(scores, FIT.y, FIT.x)
    with pytest.raises(ValueError, match="RetrainedClassifier cannot be exported to ONNX; export"):
        model.export_onnx(tmp_path / "model.onnx", accuracy=0.9)
