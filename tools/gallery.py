"""Run the home page and the gallery, and paste what they print and draw.

    python tools/gallery.py                                        # docs/index.md, docs/gallery
    python tools/gallery.py docs/gallery/text.md                   # some pages
    python tools/gallery.py --peers .venv-peers/bin/python         # also blocks of other libraries

The Python blocks of a page run in order, in one namespace and in a temporary folder. The output of
a block comes after it, in a block with the title "Output"; so do its figures. Blocks that have the
title of another library ("MAPIE 1.6") run in the environment of that library (`make bench` creates
it). They are programs of their own and share only the temporary folder with the page. Without
`--peers`, they keep their output. `make gallery` runs this script.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
GALLERY = ROOT / "docs" / "gallery"
HOME = ROOT / "docs" / "index.md"
BLOCK = re.compile(
    r'^```python(?: title="(?P<title>[^"\n]+)")?\n(?P<code>.*?)^```\n'
    r'(?:\n```text title="Output"\n(?P<output>.*?)^```\n)?'
    r"(?P<figures>(?:\n!\[[^\n]*\]\(images/[^\n]+\)\n)*)",
    flags=re.DOTALL | re.MULTILINE,
)
"""A block of code with its pasted output and figures."""
FIGURE_DPI = 90


@dataclass(frozen=True)
class Result:
    """What a block printed and the files of the figures that it drew."""

    text: str
    figures: tuple[str, ...] = ()

    @property
    def markdown(self) -> str:
        """The result as part of a page."""
        text = "\n".join(line.rstrip() for line in self.text.rstrip().splitlines())
        output = f'\n```text title="Output"\n{text}\n```\n' if text else ""
        return output + "".join(f"\n![Figure]({name})\n" for name in self.figures)


def main() -> None:
    """Run pages and paste their results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="pages; default: all")
    parser.add_argument("--peers", type=Path, help="Python interpreter with the other libraries")
    options = parser.parse_args()
    peers = None if options.peers is None else Path(os.path.abspath(options.peers))
    for page in options.pages or [HOME, *sorted(GALLERY.glob("*.md"))]:
        page.write_text(run_page(page.resolve(), peers))
        print(page)


def run_page(page: Path, peers: Path | None) -> str:
    """Return the text of a page with new results."""
    import matplotlib

    matplotlib.use("Agg")
    text = page.read_text()
    namespace: dict[str, object] = {"__name__": "__main__"}
    result, end = [], 0
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, block in enumerate(BLOCK.finditer(text)):
            title = "" if block["title"] is None else f' title="{block["title"]}"'
            result += [text[end : block.start()], f"```python{title}\n{block['code']}```\n"]
            end = block.end()
            if not title:
                stem = f"images/{page.stem}-{number}"
                result.append(run_block(block["code"], namespace, page.parent, stem).markdown)
            elif peers is not None:
                result.append(run_elsewhere(block["code"], peers).markdown)
            else:
                result.append(Result(block["output"] or "").markdown)
    return "".join(result) + text[end:]


def run_block(code: str, namespace: dict[str, object], folder: Path, stem: str) -> Result:
    """Run a block, save its figures, and return what it printed."""
    from matplotlib import pyplot

    pyplot.close("all")  # Those that were open before are not figures of the block.
    output = io.StringIO()
    with contextlib.redirect_stdout(output), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # A page must not show warnings.
        exec(compile(code, stem, "exec"), namespace)
    figures = []
    for index in pyplot.get_fignums():
        name = f"{stem}-{index}.png"
        (folder / name).parent.mkdir(exist_ok=True)
        pyplot.figure(index).savefig(folder / name, dpi=FIGURE_DPI, bbox_inches="tight")
        figures.append(name)
    pyplot.close("all")
    return Result(output.getvalue(), tuple(figures))


def run_elsewhere(code: str, python: Path) -> Result:
    """Run a block in another environment and return what it printed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return Result(done.stdout)


if __name__ == "__main__":
    main()
