"""Check that the built documentation works without a network. This is a hook of mkdocs.

Pages may link to other sites, but the browser must not load anything from them.
"""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import BuildError

LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
    "object": "data",
}
"""Elements that a browser loads, and the attribute with their address."""
NOT_LOADED = {"canonical", "prev", "next", "alternate", "license"}
"""Types of <link> that only name another page."""


class LoadedAddresses(HTMLParser):
    """Collect the addresses of everything that a browser loads with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add the address of an element that is loaded."""
        values = dict(attrs)
        address = values.get(LOADED.get(tag, ""))
        relation = set((values.get("rel") or "").split())
        if address and not (tag == "link" and relation & NOT_LOADED):
            self.addresses.append(address)


def remote_addresses(html: str) -> list[str]:
    """Return the addresses on other sites that a browser loads with a page."""
    parser = LoadedAddresses()
    parser.feed(html)
    return [a for a in parser.addresses if a.startswith(("http://", "https://", "//"))]


def on_post_build(config: MkDocsConfig) -> None:
    """Raise if a page of the site loads something from another site."""
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        remote = remote_addresses(page.read_text())
        if remote:
            raise BuildError(
                f"{page.name} loads {remote[0]}, but the pages must work without a network; add "
                "the file to docs/ and refer to it there"
            )
