"""What the documents say is true: snippets run, names, commands, options and links exist."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import shortlist as sl
from shortlist.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *PAGES]
WITHOUT_SNIPPETS = [
    "docs/index.md",
    "docs/commands.md",
    "docs/speed.md",
    "docs/map.md",
    "docs/theory.md",
    "docs/paper.md",
    "docs/figures.md",
]
MATHEMATICS = {"docs/theory.md", "docs/paper.md", "docs/figures.md"}


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def snippets(text: str) -> list[tuple[int, str]]:
    """Line number and source of each fenced Python block."""
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, b.start(1)) + 1, b.group(1)) for b in blocks]


def with_snippets() -> list[str]:
    quiet = [*WITHOUT_SNIPPETS, *(p for p in PAGES if p.startswith("docs/reference/"))]
    return [name for name in DOCUMENTS if name not in quiet]


@pytest.mark.parametrize("name", ["README.md", "docs/commands.md"])
def test_lines_for_a_shell_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that work on files of scores, in order; they make and name their files themselves."""
    lines = re.findall(r"^shortlist ((?:\w+) [^|>\n]*)$", text_of(name), flags=re.MULTILINE)
    lines = [line for line in lines if "--ray" not in line and not line.startswith("paper")]
    assert {line.split()[0] for line in lines} >= {"compare", "fit", "calibrate", "predict"}
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    data = sl.datasets.gaussian(1500, 0.7, n_classes=5, dimension=4)
    for file, part in zip(("scores", "new", "newer"), data.split(600, 300), strict=True):
        np.savez(f"{file}.npz", scores=part.posterior, y=part.y, features=part.x)
    for line in lines:
        done = CliRunner().invoke(app, line.split())
        assert done.exit_code == 0, f"shortlist {line}\n{done.output}"
        made = re.search(r"-o (\S+)", line)
        assert made is None or Path(made[1]).exists(), line


@pytest.mark.parametrize("name", with_snippets())
def test_snippets_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one namespace for each document."""
    if "hugging-face" in name:
        pytest.importorskip("transformers")
    if "scale" in name:
        pytest.importorskip("ray")
    found = snippets(text_of(name))
    assert found, f"{name} has no Python snippets"
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, source in found:
        # Blank lines first, so that a traceback points at the document's own line.
        exec(compile("\n" * (line - 1) + source, name, "exec"), namespace)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", text_of(name)):
        assert ((ROOT / name).parent / target).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    assert sorted(f"docs/{page}" for page in listed) == PAGES


@pytest.mark.parametrize("name", [d for d in DOCUMENTS if d not in MATHEMATICS])
def test_names_exist(name: str) -> None:
    """Each `sl.something` in the text, and, in a cell of the map, each name that follows it."""
    for code in re.findall(r"`(sl\.[\w.]+)", text_of(name)):
        reduce(getattr, code.split(".")[1:], sl)


def test_the_map_names_every_public_name_of_the_theory() -> None:
    text = text_of("docs/map.md")
    rows = [line for line in text.splitlines() if "`sl.theory." in line]
    named = set(re.findall(r"`(?:sl\.theory\.)?(\w+)", " ".join(rows)))
    helpers = {"Certificate", "FiniteDistribution", "Report", "Row"}
    helpers |= {"certificate", "gce_threshold", "inconsistency_example"}  # which the paper has not
    assert set(sl.theory.__all__) - helpers <= named


def test_every_public_name_is_in_the_reference() -> None:
    reference = "".join(text_of(p) for p in PAGES if p.startswith("docs/reference/"))
    shown = {line.split(".")[-1] for line in reference.splitlines() if line.startswith(":::")}
    assert set(sl.__all__) - {"__version__", "SetPredictor"} <= shown


def test_documented_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in DOCUMENTS:
        for target in re.findall(r"^make (\w+)", text_of(name), flags=re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), (name, target)
        for script in re.findall(r"benchmarks/\w+\.py", text_of(name)):
            assert (ROOT / script).exists(), (name, script)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documented_options_exist(name: str) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for line in re.findall(r"shortlist (\w+)((?: [^\n`|]*)?)", text_of(name)):
        command, rest = line
        if command not in commands:
            continue
        known = {o for p in commands[command].params for o in p.opts} | {"--help"}
        for option in re.findall(r"(?<!\S)--[\w-]+", rest):
            assert option in known, (name, command, option)


def test_examples_of_public_classes_are_run() -> None:
    """Each public class and function has an example in its docstring; doctest runs them."""
    without = [
        name
        for name in sl.__all__
        if callable(getattr(sl, name)) and ">>>" not in (getattr(sl, name).__doc__ or "")
    ]
    assert without == ["Family", "SetPredictor", "Comparison", "load"]
