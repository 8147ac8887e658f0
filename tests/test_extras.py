"""Without the packages of an extra, an error says which extra to install."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import shortlist as sl
from shortlist._utils.extras import EXTRAS

DATA = sl.datasets.gaussian(400, n_classes=3, dimension=3)
MODEL = sl.SplitConformal("lac", accuracy=0.8).fit(DATA.posterior, DATA.y)
SETS = MODEL.predict_set(DATA.posterior)
CURVE = MODEL.frontier(DATA.posterior, DATA.y)
COMPARISON = sl.compare(DATA.posterior, DATA.y, methods={"LAC": sl.SplitConformal("lac")})
CALLS = {
    "PredictionSets.to_frame": (lambda path: SETS.to_frame(), "pandas"),
    "PredictionSets.plot_sizes": (lambda path: SETS.plot_sizes(), "matplotlib"),
    "PredictionSets.plot_classes": (lambda path: SETS.plot_classes(DATA.y), "matplotlib"),
    "Frontier.to_frame": (lambda path: CURVE.to_frame(), "pandas"),
    "Frontier.plot": (lambda path: CURVE.plot(), "matplotlib"),
    "Comparison.to_frame": (lambda path: COMPARISON.to_frame(), "pandas"),
    "Comparison.plot": (lambda path: COMPARISON.plot(), "matplotlib"),
    "plot_guarantee": (lambda path: MODEL.plot_guarantee(DATA.posterior, DATA.y), "matplotlib"),
    "read CSV": (lambda path: sl.datasets.read_rows(path / "d.csv"), "pandas"),
    "read Parquet": (lambda path: sl.datasets.read_rows(path / "d.parquet"), "pyarrow"),
    "progress": (lambda path: MODEL_WITH_PROGRESS.fit(DATA.posterior, DATA.y), "rich"),
    "save": (lambda path: CLASSIFIER.save(path / "model"), "skops"),
    "export_onnx": (lambda path: MODEL.export_onnx(path / "m.onnx"), "onnx"),
    "ray": (lambda path: sl.ray.compare(path / "d.parquet", address="local"), "ray"),
}
CLASSIFIER = sl.ShortlistClassifier(method=sl.SplitConformal("lac")).fit(DATA.x, DATA.y)
MODEL_WITH_PROGRESS = sl.Shortlister(progress=True, max_epochs=1, folds=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    frame = pd.DataFrame(DATA.posterior, columns=list("abc")).assign(
        y=np.array(list("abc"))[DATA.y]
    )
    frame.to_csv(folder / "d.csv", index=False)
    frame.to_parquet(folder / "d.parquet")
    return folder


@pytest.mark.parametrize("name", CALLS)
def test_an_error_names_the_extra(folder, monkeypatch, name):
    call, package = CALLS[name]
    for module in [m for m in sys.modules if m.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)  # The import raises an ImportError.
    with pytest.raises(ImportError) as error:
        call(folder)
    assert f"pip install 'shortlist[{EXTRAS[package]}]'" in str(error.value)


def test_save_names_the_extra_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setattr("shortlist.io.models.Encoder", None)  # Nothing is encoded.
    with pytest.raises(ImportError, match="classifier LogisticRegression needs skops"):
        CLASSIFIER.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_the_command_line_names_its_extra(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from shortlist.cli import main\nsys.argv = ['shortlist', '--help']\nmain()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.strip() == (
        f"shortlist: the command line needs {missing}, which is not installed: "
        "pip install 'shortlist[cli]'"
    )
