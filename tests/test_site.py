"""The built documentation: it works without a network, and each class has a page."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from check_site import on_post_build, remote_addresses
from devtools import browser, find_browser
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import BuildError
from reference_pages import listings, page_of, pages

import shortlist as sl

ROOT = Path(__file__).parent.parent
PROGRAM = find_browser()
TEXT = {"index.md": "# Home\n\nNothing to find.", "other.md": "# Other\n\nA rare word: quetzal."}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a small site with the settings of the documentation, but without the reference."""
    folder = tmp_path_factory.mktemp("documentation")
    docs, site = folder / "docs", folder / "site"
    for name in ("javascripts", "stylesheets"):
        (docs / name).mkdir(parents=True)
        for file in (ROOT / "docs" / name).iterdir():
            (docs / name / file.name).write_text(file.read_text())
    for name, text in TEXT.items():
        (docs / name).write_text(text)
    config = load_config(
        str(ROOT / "mkdocs.yml"),
        docs_dir=str(docs),
        site_dir=str(site),
        nav=list(TEXT),
        hooks=["tools/check_site.py"],
        plugins=["search", "offline"],
    )
    build(config)
    return site


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")
def test_search_works_in_a_local_folder(site: Path, tmp_path: Path) -> None:
    assert PROGRAM is not None
    with browser(PROGRAM, tmp_path / "profile") as tab:
        tab.goto(site / "index.html")
        tab.run("document.querySelector('[data-md-toggle=search]').click()")
        tab.run(
            "const box = document.querySelector('[data-md-component=search-query]');"
            "box.focus(); box.value = 'quetzal';"
            "box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); 0"
        )
        deadline, found = time.monotonic() + 30, []
        while not found and time.monotonic() < deadline:
            time.sleep(0.1)
            found = tab.run(
                "[...document.querySelectorAll('.md-search-result__link')].map(a => a.href)"
            )
        requested = {e["request"]["url"] for e in tab.events_of("Network.requestWillBeSent")}
    assert [Path(address.split("?")[0]).name for address in found] == ["other.html"]
    assert all(address.startswith((site.as_uri(), "data:", "about:")) for address in requested)


def test_addresses_that_a_browser_loads() -> None:
    html = (
        '<script src="https://a/x.js"></script><link rel="stylesheet" href="//b/x.css">'
        '<img src="http://c/x.png"><a href="https://d">a link</a>'
        '<link rel="canonical" href="https://e"><script src="local.js"></script>'
    )
    assert remote_addresses(html) == ["https://a/x.js", "//b/x.css", "http://c/x.png"]


def test_a_page_that_loads_from_another_site_is_an_error(site: Path, tmp_path: Path) -> None:
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path))
    on_post_build(config)
    (tmp_path / "page.html").write_text('<img src="https://elsewhere/x.png">')
    with pytest.raises(BuildError, match=r"page\.html loads https://elsewhere/x\.png"):
        on_post_build(config)


def test_each_public_class_has_a_page_of_its_own() -> None:
    for name in set(sl.__all__) - {"__version__"}:
        member = getattr(sl, name)
        if isinstance(member, type):
            matching = [page for full, page in page_of().items() if full.endswith(f".{name}")]
            assert [page.names for page in matching if len(page.names) == 1], name


def test_all_names_of_a_module_are_listed() -> None:
    listed = [name for names in listings().values() for name in names]
    for module in (sl.conformal, sl.losses, sl.theory, sl.paper, sl.ray):
        assert {f"{module.__name__}.{name}" for name in module.__all__} <= set(listed)


def test_pages_of_the_reference_differ_also_where_case_does_not_count() -> None:
    addresses = [page.uri.lower() for uri in listings() for page in pages(uri)]
    assert len(addresses) == len(set(addresses)) == len({p.uri for p in page_of().values()})
    assert max(len(page.names) for page in page_of().values()) < 40
