"""Tests of the documents: snippets run, and names, commands, options and links exist."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import shortlist as sl
from shortlist.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *PAGES]
WITHOUT_SNIPPETS = [
    "docs/commands.md",
    "docs/speed.md",
    "docs/map.md",
    "docs/theory.md",
    "docs/paper.md",
    "docs/figures.md",
]
# These pages use the words of the paper and of deferral, where accuracy is not only that of sets.
WITHOUT_COVERAGE = {"docs/paper.md", "docs/theory.md", "docs/howto/deferral.md"}
MATHEMATICS = {"docs/theory.md", "docs/paper.md", "docs/figures.md"}


def read(name: str) -> str:
    """Return the text of a document."""
    return (ROOT / name).read_text()


def snippets(text: str) -> list[tuple[int, str]]:
    """Return the line number and the source of each fenced Python block."""
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, b.start(1)) + 1, b.group(1)) for b in blocks]


def documents_with_snippets() -> list[str]:
    """Return the documents that must have Python snippets."""
    excluded = [*WITHOUT_SNIPPETS, *(p for p in PAGES if p.startswith("docs/reference/"))]
    return [name for name in DOCUMENTS if name not in excluded]


def write_table(file: str, samples: sl.datasets.GaussianSamples) -> None:
    """Write scores with the columns `key`, `species`, `comment` and `country`."""
    table = pd.DataFrame(samples.posterior, columns=[f"class {j}" for j in range(5)])
    table.insert(0, "key", range(len(table)))
    table["species"] = [f"class {label}" for label in samples.y]
    table["comment"], table["country"] = "none", np.where(samples.x[:, 0] > 0, "Chile", "Peru")
    table.to_csv(file, index=False)


@pytest.mark.usefixtures("few_epochs")
@pytest.mark.parametrize("name", ["README.md", "docs/commands.md"])
def test_shell_commands_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands that work on files of scores in order, except those on Ray or in a pipe."""
    lines = re.findall(r"^shortlist ((?:\w+) [^|>\n]*)$", read(name), flags=re.MULTILINE)
    lines = [line for line in lines if "--ray" not in line and not line.startswith("paper")]
    assert {line.split()[0] for line in lines} >= {"compare", "fit", "calibrate", "predict"}
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    data = sl.datasets.gaussian(1500, 0.7, n_classes=5, dimension=4)
    for file, samples in zip(("scores", "new", "newer"), data.split(600, 300), strict=True):
        np.savez(f"{file}.npz", scores=samples.posterior, y=samples.y, features=samples.x)
    sl.datasets.save("features.npz", sl.datasets.FeatureFile(*data.split(600, 600)))
    write_table("rows.csv", data[:600])
    write_table("new.csv", data[600:])
    for line in lines:
        result = CliRunner().invoke(app, line.split())
        assert result.exit_code == 0, f"shortlist {line}\n{result.output}"
        output = re.search(r"-o (\S+)", line)
        assert output is None or Path(output[1]).exists(), line


@pytest.mark.usefixtures("few_epochs")
@pytest.mark.parametrize("name", documents_with_snippets())
def test_snippets_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the snippets of a document in order, in one namespace, with short training."""
    if "hugging-face" in name:
        pytest.importorskip("transformers")
    if "scale" in name:
        pytest.importorskip("ray")
    blocks = snippets(read(name))
    assert blocks, f"{name} has no Python snippets"
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, source in blocks:
        # Blank lines come first, so that a traceback has the line numbers of the document.
        exec(compile("\n" * (line - 1) + source, name, "exec"), namespace)


@pytest.mark.parametrize("name", ["README.md", *PAGES])
def test_pages_that_say_accuracy_say_that_it_is_called_coverage(name: str) -> None:
    text = read(name)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    if "accuracy" not in prose or name in WITHOUT_COVERAGE:
        return
    assert len(re.findall(r'"coverage"|calls it coverage', prose)) == 1, name


@pytest.mark.parametrize("name", DOCUMENTS)
def test_linked_files_exist(name: str) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", read(name)):
        assert ((ROOT / name).parent / target).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    pages = re.findall(r": ([\w/-]+\.md)$", read("mkdocs.yml"), flags=re.MULTILINE)
    assert sorted(f"docs/{page}" for page in pages) == PAGES


@pytest.mark.parametrize("name", [d for d in DOCUMENTS if d not in MATHEMATICS])
def test_names_exist(name: str) -> None:
    """Look up every name that is written as `sl.name` in the text."""
    for code in re.findall(r"`(sl\.[\w.]+)", read(name)):
        reduce(getattr, code.split(".")[1:], sl)


def test_the_map_names_every_public_name_of_the_theory() -> None:
    text = read("docs/map.md")
    rows = [line for line in text.splitlines() if "`sl.theory." in line]
    names = set(re.findall(r"`(?:sl\.theory\.)?(\w+)", " ".join(rows)))
    helpers = {"Certificate", "FiniteDistribution", "Report", "Row"}
    beyond_the_paper = {"certificate", "gce_threshold", "inconsistency_example"}
    assert set(sl.theory.__all__) - helpers - beyond_the_paper <= names


def test_every_public_name_is_in_the_reference() -> None:
    reference = "".join(read(p) for p in PAGES if p.startswith("docs/reference/"))
    names = {line.split(".")[-1] for line in reference.splitlines() if line.startswith(":::")}
    assert set(sl.__all__) - {"__version__"} <= names


def test_documented_commands_exist() -> None:
    makefile = read("Makefile")
    for name in DOCUMENTS:
        for target in re.findall(r"^make (\w+)", read(name), flags=re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), (name, target)
        for script in re.findall(r"benchmarks/\w+\.py", read(name)):
            assert (ROOT / script).exists(), (name, script)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documented_options_exist(name: str) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for command, arguments in re.findall(r"shortlist (\w+)((?: [^\n`|]*)?)", read(name)):
        if command not in commands:
            continue
        known = {o for p in commands[command].params for o in p.opts} | {"--help"}
        for option in re.findall(r"(?<!\S)--[\w-]+", arguments):
            assert option in known, (name, command, option)


def test_public_names_have_examples() -> None:
    """Doctest runs the examples in the docstrings of public classes and functions."""
    without = [
        name
        for name in sl.__all__
        if callable(getattr(sl, name)) and ">>>" not in (getattr(sl, name).__doc__ or "")
    ]
    assert without == ["Family", "SetPredictor", "Comparison", "load"]
