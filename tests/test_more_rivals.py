"""Tests of the rivals of benchmarks/every_method.py that other libraries or papers describe."""

from __future__ import annotations

import io
import json
import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import shortlist as sl

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

FAKE_XRFM = """
import numpy as np

class xRFM:
    '''Probabilities from the distances to the class means.'''

    def __init__(self, device, random_state, tuning_metric, verbose):
        assert (device, tuning_metric, verbose) == ("cpu", "logloss", False)

    def fit(self, x, y, x_val, y_val):
        assert len(y) >= 9 * len(y_val) and len(x_val) == len(y_val) > 0
        self.means = np.stack([x[y == label].mean(axis=0) for label in range(y.max() + 1)])

    def predict_proba(self, x):
        p = np.exp(-((x[:, None] - self.means) ** 2).mean(axis=2))
        return p / p.sum(axis=1, keepdims=True)
"""


@pytest.fixture(scope="module")
def sizes() -> Iterator[SimpleNamespace]:
    """Return the modules of benchmarks/sizes that these tests use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        from sizes import (
            c_adapter,
            contenders,
            other_classifier_worker,
            other_classifiers,
            plain_networks,
            problems,
        )

        yield SimpleNamespace(
            c_adapter=c_adapter,
            contenders=contenders,
            worker=other_classifier_worker,
            others=other_classifiers,
            networks=plain_networks,
            problems=problems,
        )


@pytest.fixture
def fake_xrfm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give processes that are started by a test a package `xrfm`."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "xrfm.py").write_text(FAKE_XRFM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))


def run_every_method(*arguments: str) -> str:
    """Run the script in this process, and return its output."""
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output):
        patch.syspath_prepend(str(BENCHMARKS))
        patch.setattr(sys, "argv", ["every_method.py", *arguments])
        runpy.run_path(str(BENCHMARKS / "every_method.py"), run_name="__main__")
    return output.getvalue()


def logits_of_two_kinds(n_rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return logits and labels: rows whose first logit is the largest are five times too sure."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n_rows, 6, generator=generator)
    y = torch.multinomial(logits.softmax(dim=1), 1, generator=generator).flatten()
    overconfident = logits.argmax(dim=1, keepdim=True) == 0
    return torch.where(overconfident, 5 * logits, logits), y


@given(seed=st.integers(0, 1000), score=st.sampled_from(["lac", "aps"]))
def test_adapter_keeps_the_order_and_ties(sizes: SimpleNamespace, seed: int, score: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-4, 5, (30, 7), generator=generator).double()
    model = sizes.c_adapter.CAdapter(score)
    model.temperature, model.mean, model.spread = 1.7, logits.mean(dim=0), logits.std()
    shapes = ((7, 6), (6,))
    model.weights = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    adapted = model.adapt(logits)
    assert not torch.allclose(adapted - adapted[:, :1], logits - logits[:, :1])
    expected, differences = (a[:, :, None] - a[:, None, :] for a in (logits, adapted))
    differences = torch.where(differences.abs() < 1e-12, 0, differences)
    assert torch.equal(differences.sign(), expected.sign())


def test_adapter_starts_as_temperature_scaling(sizes: SimpleNamespace) -> None:
    logits, y = logits_of_two_kinds(400, seed=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes.c_adapter, "LEARNING_RATE", 0.0)
        model = sizes.c_adapter.CAdapter(epochs=1).fit(logits, y)
    scaled = logits / sl.fit_temperature(logits, y, score_type="logits")
    torch.testing.assert_close(model.adapt(logits).softmax(dim=1), scaled.softmax(dim=1))


def test_adapter_mean_size_is_that_of_all_thresholds(sizes: SimpleNamespace) -> None:
    logits, y = logits_of_two_kinds(60, seed=1)
    model = sizes.c_adapter.CAdapter(epochs=1).fit(logits, y)
    p = model.adapt(logits).softmax(dim=1)
    thresholds = p[torch.arange(60), y]
    counts = (p[:, :, None] >= thresholds * (1 - 1e-6)).sum(dim=1).double()
    assert model._mean_size(logits, y) == pytest.approx(float(counts.mean()), abs=1e-3)


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_adapter_learns_which_rows_are_too_sure(sizes: SimpleNamespace, score: str) -> None:
    """No temperature serves both kinds of rows; the adapter does, and its sets are shorter."""
    (logits, y), (test, test_y) = (logits_of_two_kinds(3000, seed) for seed in (2, 3))
    conformal = sl.SplitConformal(
        score, randomized=score == "aps", temperature=None, calibration=None, score_type="logits"
    )
    temperature = sl.fit_temperature(logits, y, score_type="logits")
    conformal.fit(logits / temperature, y)
    before = conformal.frontier(test / temperature, test_y).size_at(0.9)
    model = sizes.c_adapter.CAdapter(score, epochs=25).fit(logits, y)
    conformal.fit(model.adapt(logits), y)
    after = conformal.frontier(model.adapt(test), test_y).size_at(0.9)
    assert after < 0.99 * before


def test_adapter_raises_for_an_unknown_score(sizes: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match=r"score = 'raps' is unknown; .*'lac', 'aps'"):
        sizes.c_adapter.CAdapter("raps")


def test_logits_of_probabilities_and_of_scores(sizes: SimpleNamespace) -> None:
    p = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    logits = sizes.contenders.as_logits(p)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.softmax(dim=1).double(), p, rtol=0, atol=2e-6)
    scores = torch.tensor([[3.0, -1.0, 2.0]])
    assert torch.equal(sizes.contenders.as_logits(scores), scores)


def test_held_out_rows_are_those_of_the_five_networks(
    sizes: SimpleNamespace, fake_xrfm: None
) -> None:
    x, y = torch.randn(100, 3), torch.arange(100) % 4
    y[y == 2] = 3  # A class without rows.
    networks = sizes.networks.PlainNetworks(epochs=1, seed=5).fit(x, y, 4)
    model = sizes.others.OtherClassifier("xrfm", Path(sys.executable), seed=5)
    held_out, test, seconds = model.fit_predict(x, y, x[:7], 4)
    assert torch.equal(model.validation, networks.validation)
    assert (held_out.shape, test.shape, seconds >= 0) == ((10, 4), (7, 4), True)
    for log_proba in (held_out, test):
        torch.testing.assert_close(log_proba.exp().sum(dim=1), torch.ones(len(log_proba)))
        assert (log_proba[:, 2] < -20).all()
        assert (log_proba[:, [0, 1, 3]] > -20).all()


def test_xrfm_gets_standardized_rows_and_no_validation_row(
    sizes: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its probabilities do not depend on the units of the features."""
    module = ModuleType("xrfm")
    exec(FAKE_XRFM, module.__dict__)
    monkeypatch.setitem(sys.modules, "xrfm", module)
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=(50, 2)), "y": np.arange(50) % 3, "validation": np.arange(5)}
    rows["x_test"] = rows["x"][:4] + 0.1
    units = np.array([1000.0, 0.01])
    scaled = {**rows, "x": 5 + rows["x"] * units, "x_test": 5 + rows["x_test"] * units}
    results = [sizes.worker.train("xrfm", r, 0, None, "cpu") for r in (rows, scaled)]
    np.testing.assert_allclose(results[0]["test"], results[1]["test"])
    assert results[0]["held_out"].shape == (5, 3)
    np.testing.assert_array_equal(results[0]["classes"], [0, 1, 2])


@pytest.mark.parametrize("name", ["realmlp", "tabm"])
def test_pytabkit_gets_the_validation_rows(
    sizes: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    calls = {}

    class Classifier:
        def __init__(self, **parameters: object) -> None:
            calls["parameters"] = parameters

        def fit(self, x: np.ndarray, y: np.ndarray, val_idxs: np.ndarray) -> None:
            calls["fit"] = (x, y, val_idxs)

        def predict_proba(self, x: np.ndarray) -> np.ndarray:
            return np.full((len(x), 2), 0.5)

    names = {"realmlp": "RealMLP_TD_Classifier", "tabm": "TabM_D_Classifier"}
    module = ModuleType("pytabkit")
    setattr(module, names[name], Classifier)
    monkeypatch.setitem(sys.modules, "pytabkit", module)
    rows = {"x": np.eye(4), "y": np.array([7, 3, 7, 3]), "validation": np.array([1])}
    result = sizes.worker.train(name, {**rows, "x_test": np.eye(4)[:2]}, 9, 3, "cpu")
    x, y, validation = calls["fit"]
    np.testing.assert_array_equal(x, np.eye(4))
    assert (y.tolist(), validation.tolist()) == ([1, 0, 1, 0], [1])
    assert result["classes"].tolist() == [3, 7]
    assert (result["held_out"].shape, result["test"].shape) == ((1, 2), (2, 2))
    parameters = calls["parameters"]
    assert (parameters["random_state"], parameters["n_epochs"]) == (9, 3)
    assert parameters["val_metric_name"] == "cross_entropy"
    assert parameters.get("use_ls", False) is False
    assert parameters.get("n_cv", 1) == (5 if name == "realmlp" else 1)


def test_errors_of_the_other_process_are_shown(sizes: SimpleNamespace) -> None:
    model = sizes.others.OtherClassifier("catboost", Path(sys.executable))
    x, y = torch.zeros(10, 1), torch.zeros(10, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="name = 'catboost' is unknown; there are realmlp"):
        model.fit_predict(x, y, x, 1)


def test_every_method_measures_the_rivals(tmp_path: Path, fake_xrfm: None) -> None:
    file = tmp_path / "measurements.json"
    alone = ["LAC", "Shortlister, scores only", "C-Adapter + LAC", "C-Adapter + APS"]
    arguments = ["tabular:iris/naive_bayes", "--rows", "all", "--seeds", "1", "--epochs", "1"]
    arguments += ["--peers", sys.executable, "-o", str(file), "--only"]
    output = run_every_method(*arguments, "xRFM + LAC", *alone)
    rows = json.loads(file.read_text())
    assert {row["method"] for row in rows} == {"xRFM + LAC", *alone}
    for method in ("xRFM + LAC", *alone):
        values = [row["size"] for row in rows if row["method"] == method]
        assert len(values) == 4
        assert all(1 <= value <= 3 for value in values)
    features, scores = output.split("### Summary of scores alone")
    assert re.search(r"^\| iris/naive_bayes \| 0.99 .*(xRFM \+ LAC|LAC) \|", features, re.M)
    size = {row["method"]: row["size"] for row in rows if row["column"] == "0.99"}
    columns = "| data | accuracy | " + " | ".join(size) + " |"
    cells = " | ".join(f"{value:.3f}" for value in size.values())
    assert columns in scores
    assert f"| iris/naive_bayes | 0.99 | {cells} |" in scores
    best = min(size["LAC"], size["C-Adapter + LAC"], size["C-Adapter + APS"])
    cells = (
        f"{size['Shortlister, scores only']:.3f} | {size['Shortlister, scores only'] / best:.3f}"
    )
    assert f"{cells} |" in scores


def test_every_method_says_what_it_skips(tmp_path: Path, sizes: SimpleNamespace) -> None:
    arguments = ["tabular:iris/naive_bayes", "--rows", "all", "--seeds", "1", "--epochs", "1"]
    arguments += ["--only", "LAC", "RealMLP + LAC", "xRFM + LAC", "--peers"]
    absent = tmp_path / "bin" / "python"
    output = run_every_method(*arguments, str(absent))
    for name in ("RealMLP + LAC", "xRFM + LAC"):
        assert f"{name} is skipped: {absent} is missing; `make .venv-peers/.complete`" in output
    assert "| iris/naive_bayes | 0.9 |" in output
    python = Path(sys.executable)
    assert sizes.others.missing("torch", python) is None
    reason = f"the package no_such_package is not installed for {python}; install it there"
    assert sizes.others.missing("no_such_package", python) == reason


@pytest.mark.parametrize("name", ["realmlp", "tabm", "xrfm"])
def test_classifiers_of_other_libraries(sizes: SimpleNamespace, name: str) -> None:
    """Train the real classifiers, where `make bench` has installed them."""
    if reason := sizes.others.missing(sizes.others.PACKAGES[name], sizes.others.PYTHON):
        pytest.skip(reason)
    y = torch.arange(200) % 2
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0)) + 6 * y[:, None]
    model = sizes.others.OtherClassifier(name, sizes.others.PYTHON, epochs=3)
    held_out, test, _ = model.fit_predict(x, y, x[:50], 2)
    assert (test.argmax(dim=1) == y[:50]).float().mean() > 0.9
    assert (held_out.argmax(dim=1) == y[model.validation]).float().mean() > 0.8
