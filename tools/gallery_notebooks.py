"""Add a Jupyter notebook, with its outputs, to the site for each page of the gallery.

This is a hook of mkdocs. The notebook has the text, the code, the output and the figures of the
page. A block that runs in the environment of another library becomes text.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from gallery import BLOCK, GALLERY
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

FIGURE = re.compile(r"\((images/[^)]+)\)")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")


def notebook(text: str, folder: Path = GALLERY) -> dict[str, Any]:
    """Return a page as a notebook.

    Parameters
    ----------
    text : str
        Markdown of the page.
    folder : Path
        Folder of the page, in which its figures are.

    Returns
    -------
    dict
        Notebook of format 4.5.
    """
    cells: list[dict[str, Any]] = []
    end = 0
    for block in BLOCK.finditer(text):
        _add_prose(cells, text[end : block.start()])
        end = block.end()
        if block["title"] is not None:
            _add_prose(cells, block.group())
            continue
        cells.append(
            {
                "cell_type": "code",
                "execution_count": 1 + sum(cell["cell_type"] == "code" for cell in cells),
                "metadata": {},
                "outputs": _outputs(block, folder),
                "source": block["code"].rstrip("\n").splitlines(keepends=True),
            }
        )
    _add_prose(cells, text[end:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": python, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _add_prose(cells: list[dict[str, Any]], text: str) -> None:
    """Add text without links to other pages, which a notebook does not have beside it."""
    source = LINK.sub(r"\1", text.strip())
    if source:
        lines = source.splitlines(keepends=True)
        cells.append({"cell_type": "markdown", "metadata": {}, "source": lines})


def _outputs(block: re.Match[str], folder: Path) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    if block["output"] is not None:
        printed = block["output"].splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed})
    for name in FIGURE.findall(block["figures"]):
        picture = base64.b64encode((folder / name).read_bytes()).decode()
        data = {"image/png": picture, "text/plain": ["<Figure>"]}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    return outputs


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks to the site."""
    for page in sorted(GALLERY.glob("*.md")):
        content = json.dumps(notebook(page.read_text()), indent=1)
        files.append(File.generated(config, f"gallery/{page.stem}.ipynb", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Add the link to the notebook below the title of a page."""
    path = Path(page.file.src_uri)
    if path.parent.name != "gallery":
        return markdown
    title, _, text = markdown.partition("\n")
    return f"{title}\n\n[Download this page as a notebook]({path.stem}.ipynb)\n{text}"
