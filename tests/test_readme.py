"""Every Python snippet of the documents is run, in order, in one namespace for each document."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/data.md"]


def snippets(text: str) -> list[tuple[int, str]]:
    """Line number and source of each fenced Python block."""
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, b.start(1)) + 1, b.group(1)) for b in blocks]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_snippets_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = snippets((ROOT / name).read_text())
    assert found, f"{name} has no Python snippets"
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, source in found:
        # Blank lines first, so that a traceback points at the document's own line.
        exec(compile("\n" * (line - 1) + source, name, "exec"), namespace)


def test_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\((?!https?://)([^)#]+)\)", text)
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target


def test_documented_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in DOCUMENTS:
        for target in re.findall(r"^make (\w+)", (ROOT / name).read_text(), flags=re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), (name, target)
    for script in re.findall(r"benchmarks/\w+\.py", (ROOT / "README.md").read_text()):
        assert (ROOT / script).exists(), script
