"""Tests of the types in the documents: type checkers accept every Python snippet."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from test_documents import ROOT, documents_with_snippets, read, snippets

UNTYPED = {
    "transformers/__init__.pyi": "from typing import Any\ndef __getattr__(name: str) -> Any: ...\n",
    "transformers/modeling_outputs.pyi": "from typing import Any\nSequenceClassifierOutput = Any\n",
}
"""Stubs of a package whose types change with its version."""
ACCEPTED = """
from typing import Any
import numpy as np
import pandas as pd
import pyarrow as pa
import shortlist as sl


class PolarsFrame:  # The signatures of Polars.
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise NotImplementedError

    def __len__(self) -> int:
        return 1


class Own(sl.ShortlistClassifier):
    pass


frame, column = pd.DataFrame([[0.5, 0.5]]), pd.Series([0])
conformal: sl.SplitConformal = sl.SplitConformal("lac").fit(frame, column).calibrate(frame, column)
conformal = conformal.fit(PolarsFrame(), [0, 1], features=PolarsFrame())
conformal = conformal.fit(pa.table({"a": [0.5]}), pa.array([0]))
conformal = conformal.fit(np.zeros((2, 2)), np.zeros(2)).fit([[0.5, 0.5]], [0])
fixed: sl.FixedSelector = sl.FixedSelector(sl.TopK([1])).fit(frame, column)
path: sl.CardinalityPath = sl.CardinalityPath().fit(frame, column).calibrate(frame, column)
linear: sl.LinearClassifier = sl.LinearClassifier().fit(frame, column)
family: sl.Conformal = sl.Conformal("lac").calibrate(frame, column)
own: Own = Own().fit(frame, column).calibrate(frame, column)
size: float = conformal.frontier(frame, column).size_at(0.9)
"""
WRONG = "import shortlist as sl\n\nsl.Shortlister().fit(3, None)\n"
"""Line 3 has two errors. They show that the checkers read the types of the library."""


def write_snippets(folder: Path) -> list[str]:
    """Write the snippets of each document to one file, at their lines; return the files."""
    files = []
    for name in documents_with_snippets():
        lines: list[str] = []
        for line, source in snippets(read(name)):
            lines += [""] * (line - 1 - len(lines)) + source.splitlines()
        file = "".join(c if c.isalnum() else "_" for c in name) + ".py"
        (folder / file).write_text("\n".join(lines) + "\n")
        files.append(file)
    (folder / "accepted.py").write_text(ACCEPTED)
    files.append("accepted.py")
    (folder / "wrong.py").write_text(WRONG)
    for stub, text in UNTYPED.items():
        (folder / "stubs" / stub).parent.mkdir(parents=True, exist_ok=True)
        (folder / "stubs" / stub).write_text(text)
    return files


def pyright() -> str | None:
    """Return the path of pyright, of this environment or of the system."""
    own = sysconfig.get_path("scripts")
    for name in ("pyright", "basedpyright"):
        path = shutil.which(name, path=own) or shutil.which(name)
        if path is not None:
            return path
    return None


def run_mypy(folder: Path, *files: Path) -> list[str]:
    """Return the errors of mypy --strict in some files."""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir=.mypy_cache/snippets"]
    # PyTorch does not annotate some of its methods, such as `Tensor.backward`.
    command += ["--follow-imports=silent", "--untyped-calls-exclude=torch"]
    environment = {"MYPYPATH": f"{folder / 'stubs'}:{ROOT / 'src'}", "PATH": ""}
    result = subprocess.run(
        [*command, "--no-error-summary", *map(str, files)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode in (0, 1), result.stderr or result.stdout
    return [line for line in result.stdout.splitlines() if ": error:" in line]


def run_pyright(executable: str, folder: Path) -> list[str]:
    """Return the errors of pyright in its standard mode."""
    settings = {
        "include": [str(folder)],
        "exclude": [str(folder / "stubs")],
        "stubPath": str(folder / "stubs"),
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",
    }
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps(settings))
    result = subprocess.run(
        [executable, "--outputjson", "-p", str(config), "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
    )
    assert result.returncode in (0, 1), result.stderr or result.stdout
    return [
        f"{Path(found['file']).name}:{found['range']['start']['line'] + 1}: {found['message']}"
        for found in json.loads(result.stdout)["generalDiagnostics"]
        if found["severity"] == "error"
    ]


def test_mypy_accepts_every_snippet(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    files = write_snippets(tmp_path)
    errors = run_mypy(tmp_path, *(tmp_path / file for file in ["wrong.py", *files]))
    assert any("wrong.py:3: error" in line and "arg-type" in line for line in errors), errors
    assert [line for line in errors if "wrong.py:" not in line] == []


def test_pyright_accepts_every_snippet(tmp_path: Path) -> None:
    executable = pyright()
    if executable is None:
        pytest.skip("pyright is not installed: pip install basedpyright")
    write_snippets(tmp_path)
    errors = run_pyright(executable, tmp_path)
    assert any(line.startswith("wrong.py:3") for line in errors), errors
    assert [line for line in errors if not line.startswith("wrong.py")] == []
