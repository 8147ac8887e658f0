"""The gallery: results are pasted into its pages, and each page is a notebook."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from gallery import BLOCK, GALLERY, HOME, run_page
from gallery_notebooks import notebook

PAGE = """# A page

```python
import matplotlib.pyplot as plt

x = 6
print(x * 7)
plt.plot([1, 2])
```

```text title="Output"
an old result
```

Prose with a [link](../other.md).

```python
print(x + 1)
```

```python title="Other 1.0"
print("elsewhere")
```

```text title="Output"
kept
```

```python
y = x
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def outputs(text: str) -> list[str | None]:
    return [block["output"] for block in BLOCK.finditer(text)]


def test_results_replace_old_ones(page: Path) -> None:
    text = run_page(page, None)
    assert outputs(text) == ["42\n", "7\n", "kept\n", None]
    assert "![Figure](images/page-0-1.png)" in text
    assert (page.parent / "images" / "page-0-1.png").read_bytes().startswith(b"\x89PNG")
    assert "Prose with a [link](../other.md)." in text
    page.write_text(text)
    assert run_page(page, None) == text  # Results are pasted once.


def test_blocks_of_other_libraries_run_in_their_environment(page: Path) -> None:
    text = run_page(page, Path(sys.executable))
    assert outputs(text) == ["42\n", "7\n", "elsewhere\n", None]


def test_a_warning_is_an_error(page: Path) -> None:
    page.write_text('```python\nimport warnings\nwarnings.warn("look")\n```\n')
    with pytest.raises(UserWarning, match="look"):
        run_page(page, None)


def test_a_page_becomes_a_notebook(page: Path) -> None:
    result = notebook(run_page(page, None), page.parent)
    cells = json.loads(json.dumps(result))["cells"]
    kinds = [cell["cell_type"] for cell in cells]
    assert kinds == ["markdown", "code", "markdown", "code", "markdown", "code"]
    assert "".join(cells[1]["source"]).startswith("import matplotlib.pyplot")
    printed, drawn = cells[1]["outputs"]
    assert printed["text"] == ["42\n"]
    assert drawn["data"]["image/png"].startswith("iVBOR")
    assert cells[2]["source"] == ["Prose with a link."]
    assert "elsewhere" in "".join(cells[4]["source"])  # Not run here, so not code.
    assert [cell["execution_count"] for cell in cells if "outputs" in cell] == [1, 2, 3]
    assert len({cell["id"] for cell in cells}) == len(cells)


@pytest.mark.parametrize("path", [HOME, *sorted(GALLERY.glob("*.md"))], ids=lambda path: path.stem)
def test_every_block_that_prints_has_its_output(path: Path) -> None:
    blocks = list(BLOCK.finditer(path.read_text()))
    assert blocks
    for block in blocks:
        assert ("print(" in block["code"]) == (block["output"] is not None), block["code"]
