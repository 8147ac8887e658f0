"""Divide the reference into a page for each class and one for the functions of each module.

This is a hook of mkdocs. The pages in docs/reference list objects with the directive of
mkdocstrings, `::: shortlist.module.Name`. A class gets a page of its own, the functions and
constants of a module share one, and a module stands for all names in its `__all__`. The page that
lists the objects becomes a table of links with the first sentence of each docstring.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DIRECTIVE = re.compile(r"^::: (\S+)\n((?: +\S.*\n)*)", flags=re.MULTILINE)
OWN_HEADING = "    options:\n      heading_level: 1\n"
DOCSTRING_ONLY = (
    "    options:\n      members: []\n      show_root_heading: false\n"
    "      show_root_toc_entry: false\n"
)
NO_MEMBERS = "members: []"
BAR = "\\|"
MAX_NAMES_IN_TITLE = 3


@dataclass
class ReferencePage:
    """A page about one class, or about the functions and constants of one module."""

    title: str
    uri: str
    listing: str
    names: list[str] = field(default_factory=list)

    @property
    def markdown(self) -> str:
        """The directives of the page."""
        if len(self.names) == 1:
            return f"::: {self.names[0]}\n{OWN_HEADING}"
        return "\n".join([f"# {self.title}\n", *(f"::: {name}\n" for name in self.names)])


@cache
def package() -> griffe.Module:
    """Return the objects of the package, read from its source."""
    loaded = griffe.load("shortlist", search_paths=[ROOT / "src"], docstring_parser="numpy")
    assert isinstance(loaded, griffe.Module)
    return loaded


def find(name: str) -> griffe.Object | griffe.Alias:
    """Return the object that `shortlist.module.Name` means."""
    result = package()[name.removeprefix("shortlist.")]
    assert isinstance(result, griffe.Object | griffe.Alias)
    return result


def public_names(module: griffe.Object | griffe.Alias) -> list[str]:
    """Return the full names of what a module offers."""
    if module.exports is not None:
        return [f"{module.path}.{name}" for name in map(str, module.exports)]
    members = module.members.items()
    return [
        f"{module.path}.{name}"
        for name, member in members
        if not name.startswith("_") and not member.is_alias and member.has_docstring
    ]


@cache
def listings() -> dict[str, list[str]]:
    """Return the pages of docs/reference, with the full names of the objects that they list."""
    result = {}
    for path in sorted((ROOT / "docs" / "reference").glob("*.md")):
        names = []
        for name, options in DIRECTIVE.findall(path.read_text() + "\n"):
            if NO_MEMBERS not in options:
                names += public_names(find(name)) if find(name).is_module else [name]
        result[f"reference/{path.name}"] = names
    return result


@cache
def page_of() -> dict[str, ReferencePage]:
    """Return the page of each object, by its full name."""
    result: dict[str, ReferencePage] = {}
    functions: dict[str, ReferencePage] = {}
    for uri, names in listings().items():
        for name in names:
            module, _, last = name.rpartition(".")
            folder = "reference/" + module.removeprefix("shortlist.").replace(".", "/")
            if name in result:  # Objects of two listings have their page below the first one.
                continue
            if find(name).is_class:
                result[name] = ReferencePage(last, f"{folder}/{last}.md", uri, [name])
            else:
                page = ReferencePage(f"Functions of {module}", f"{folder}/functions.md", uri)
                result[name] = functions.setdefault(module, page)
                result[name].names.append(name)
    for page in functions.values():
        if len(page.names) <= MAX_NAMES_IN_TITLE:
            page.title = ", ".join(name.rpartition(".")[2] for name in page.names)
    return result


def pages(uri: str) -> list[ReferencePage]:
    """Return the pages below a page of docs/reference: those of classes, then of functions."""
    below = {page.uri: page for page in page_of().values() if page.listing == uri}
    return sorted(below.values(), key=lambda page: page.uri.endswith("/functions.md"))


def summary(name: str) -> str:
    """Return the first sentence of a docstring."""
    docstring = find(name).docstring
    return "" if docstring is None else " ".join(docstring.value.split("\n\n")[0].split())


def table(names: list[str]) -> str:
    """Return a table of objects, with links from a page of docs/reference."""
    rows = ["| name | summary |", "|---|---|"]
    for name in names:
        page, last = page_of()[name], name.rpartition(".")[2]
        anchor = "" if len(page.names) == 1 else f"#{name}"
        link = page.uri.removeprefix("reference/") + anchor
        rows.append(f"| [`{last}`]({link}) | {summary(name).replace('|', BAR)} |")
    return "\n".join(rows)


def with_pages(entry: Any) -> Any:
    """Return an entry of the navigation in which listings are followed by their pages."""
    if isinstance(entry, list):
        return [with_pages(one) for one in entry]
    if isinstance(entry, dict):
        return {title: with_pages(content) for title, content in entry.items()}
    if entry in listings():
        return [{"Overview": entry}, *({page.title: page.uri} for page in pages(entry))]
    return entry


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages to the navigation."""
    config.nav = with_pages(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site."""
    for uri in [file.src_uri for file in files if file.src_uri in listings()]:
        for page in pages(uri):
            files.append(File.generated(config, page.uri, content=page.markdown))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the directives of a listing by tables of links."""
    uri = page.file.src_uri
    if uri not in listings():
        return markdown
    rows: list[str] = []
    result, end = [], 0

    def flush() -> None:
        if rows:
            result.append("\n" + table(rows) + "\n\n")
            rows.clear()

    for match in DIRECTIVE.finditer(markdown + "\n"):
        between = markdown[end : match.start()]
        if between.strip():
            flush()
            result.append(between)
        end = match.end()
        name, options = match.groups()
        if NO_MEMBERS in options:
            flush()
            result.append(match.group())
        elif find(name).is_module:
            flush()
            result.append(f"\n## {name}\n\n::: {name}\n{DOCSTRING_ONLY}")
            rows += public_names(find(name))
            flush()
        else:
            rows.append(name)
    flush()
    return "".join(result) + markdown[end:]
