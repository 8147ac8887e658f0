"""The page in a browser shows the numbers that Python computed, after any user action."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from devtools import Tab, browser, find_browser
from reported import HOSTILE, content
from synthetic import draw

import shortlist as sl
from shortlist.html_report.content import make_content
from shortlist.html_report.method_content import Method, Point
from shortlist.html_report.page import page

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium is installed (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tab, Path]]:
    folder = tmp_path_factory.mktemp("browser")
    path = folder / "report.html"
    path.write_text(page(content(), "Hostile names"), encoding="utf-8")
    assert PROGRAM is not None
    with browser(PROGRAM, folder / "profile") as tab:
        yield tab, path


@pytest.fixture
def tab(window: tuple[Tab, Path]) -> Iterator[Tab]:
    """Open the page again; the test fails if the page logs an error."""
    tab, path = window
    tab.scheme("light")
    tab.size(1280, 900)
    tab.goto(path)
    yield tab
    assert tab.events_of("Runtime.exceptionThrown") == []
    assert tab.events_of("Log.entryAdded") == []
    assert tab.events_of("Runtime.consoleAPICalled") == []
    assert tab.events_of("Page.javascriptDialogOpening") == []
    fetched = {event["request"]["url"] for event in tab.events_of("Network.requestWillBeSent")}
    assert fetched - {"data:,"} == {path.resolve().as_uri()}


def move_to(tab: Tab, target: int, method: int | None = None) -> None:
    tab.run(
        f"(() => {{ const s = document.getElementById('target'); s.value = {target};"
        "s.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    if method is not None:
        tab.run(f"document.getElementById('m{method}').click()")


def current(tab: Tab) -> tuple[int, Method, Point | None]:
    target = int(tab.run("document.getElementById('target').value"))
    chosen = int(tab.run("document.querySelector('[name=method]:checked').value"))
    method = content().methods[chosen]
    at = method.at[target]
    return target, method, None if at < 0 else method.points[at]


def check(tab: Tab) -> None:
    """Assert that the page shows the numbers that Python computed."""
    report = content()
    target, method, point = current(tab)
    assert tab.value("#asked") == report.accuracies[target]
    assert tab.text("#of-method") == method.name
    for i, one in enumerate(report.methods):
        shown = tab.run(f"document.getElementById('s{i}').dataset.value")
        assert shown == "" if np.isnan(one.size[target]) else float(shown) == one.size[target]
    if point is None:
        assert tab.text("#accuracy") == tab.text("#size") == "–"
        assert "reach" in tab.text("#statement")
        return
    assert tab.value("#accuracy") == point.hits / report.n_test
    assert tab.text("#accuracy") == f"{100 * point.hits / report.n_test:.2f}%"
    assert tab.value("#size") == point.labels / report.n_test
    assert tab.value("#single") == point.counts[report.bins.index((1, 1))] / report.n_test
    assert tab.value("#largest") == point.largest
    bars = "[...document.querySelectorAll('#sizes rect')].map(r => +r.dataset.rows)"
    assert tab.run(bars) == list(point.counts)
    classes = tab.run(
        "[...document.querySelectorAll('#classes li')].map(li => [li.firstChild.textContent,"
        " +li.lastChild.dataset.hits, +li.lastChild.dataset.of])"
    )
    expected = [
        [report.names[label], rows - missed, rows]
        for label, rows, missed in zip(
            report.classes, report.class_rows, point.missed, strict=False
        )
    ]
    assert sorted(classes) == sorted(expected)
    shares = [held / of for _, held, of in classes]
    assert shares == sorted(shares)
    sizes = "[...document.querySelectorAll('#examples > li')].map(li => +li.dataset.size)"
    if point.sets or method.order:
        assert tab.run(sizes) == list(point.sizes)
    guaranteed = "is guaranteed" in tab.text("#statement")
    assert guaranteed == point.guaranteed


def test_the_first_accuracy_and_method(tab: Tab) -> None:
    target, method, _ = current(tab)
    assert (target, method) == (content().start, content().methods[content().main])
    check(tab)
    assert tab.text("#asked") == "95%"


def test_every_position_for_every_method(tab: Tab) -> None:
    last = len(content().accuracies) - 1
    for method in range(len(content().methods)):
        for target in {0, 13 + method, 40 + method, last - method, last}:
            move_to(tab, target, method)
            check(tab)


def test_arrow_keys_move_the_slider(tab: Tab) -> None:
    tab.run("document.getElementById('target').focus()")
    start = content().start
    for key, target in [
        ("ArrowRight", start + 1),
        ("ArrowUp", start + 2),
        ("ArrowLeft", start + 1),
        ("ArrowDown", start),
        ("End", len(content().accuracies) - 1),
        ("Home", 0),
    ]:
        tab.press(key)
        assert current(tab)[0] == target
        check(tab)
    report = tab.run("document.getElementById('target').getAttribute('aria-valuetext')")
    assert re.fullmatch(r"50%: \d\.\d\d labels on average with Shortlister", report)


def test_the_slider_is_dragged(tab: Tab) -> None:
    place = "const b = document.getElementById('target').getBoundingClientRect();"
    left, top, width, height = tab.run(
        f"(() => {{ {place} return [b.x, b.y, b.width, b.height] }})()"
    )
    last = len(content().accuracies) - 1
    at = content().start / last
    tab.mouse("mousePressed", left + 8 + at * (width - 16), top + height / 2)
    tab.mouse("mouseMoved", left + 0.4 * width, top + height / 2)
    tab.mouse("mouseReleased", left + 0.4 * width, top + height / 2)
    assert abs(current(tab)[0] - 0.4 * last) <= 2
    check(tab)


def test_all_controls_can_be_reached_by_keys(tab: Tab) -> None:
    reached = []
    for _ in range(4):
        tab.press("Tab")
        reached.append(
            tab.run("document.activeElement.id || document.activeElement.getAttribute('role')")
        )
        ring = tab.run("getComputedStyle(document.activeElement).outlineStyle")
        assert ring != "none", reached
        if reached[-1] == f"m{content().main}":
            tab.press("ArrowDown")
            assert current(tab)[1] == content().methods[content().main + 1]
            check(tab)
    # Tables can be scrolled by keys.
    assert reached == ["target", f"m{content().main}", "region", "region"]


def test_the_button_shows_all_classes(tab: Tab, window: tuple[Tab, Path], tmp_path: Path) -> None:
    # There are five classes, fewer than the ten that are shown without the button.
    assert tab.run("document.getElementById('more').hidden")
    scores, y = draw(600, n=15)
    report = make_content(sl.compare(scores, y, methods={"LAC": sl.SplitConformal("lac")}))
    path = tmp_path / "many.html"
    path.write_text(page(report, "Many classes"), encoding="utf-8")
    tab.goto(path)
    rows = "document.querySelectorAll('#classes li').length"
    assert tab.run(rows) == 10
    assert tab.text("#more") == "Show all 15"
    tab.run("document.getElementById('more').focus()")
    tab.press(" ")
    assert tab.run(rows) == 15
    assert tab.run("document.getElementById('more').getAttribute('aria-expanded')") == "true"
    held = tab.run(
        "[...document.querySelectorAll('#classes [data-hits]')]"
        ".reduce((sum, e) => sum + Number(e.dataset.hits), 0)"
    )
    method = report.methods[0]
    assert held == method.points[method.at[report.start]].hits
    tab.press(" ")
    assert tab.run(rows) == 10
    tab.goto(window[1])


def test_on_a_phone_nothing_is_wider_than_the_screen(tab: Tab, window: tuple[Tab, Path]) -> None:
    tab.size(390, 844, phone=True)
    tab.goto(window[1])
    assert tab.run("document.documentElement.scrollWidth") <= 390
    assert tab.run("window.visualViewport.scale") == 1
    wide = tab.run(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') &&"
        " e.getBoundingClientRect().right > 391).map(e => e.tagName + '#' + e.id)"
    )
    assert wide == []
    tall = tab.run("document.getElementById('target').getBoundingClientRect().height")
    assert tall >= 24  # Large enough to touch.
    sizes = "[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)"
    assert min(tab.run(sizes)) >= 11  # Charts are drawn for this width, not shrunk to it.
    check(tab)


def test_dark_mode(tab: Tab) -> None:
    def colors() -> list[str]:
        values: list[str] = tab.run(
            "(() => { const s = getComputedStyle(document.body);"
            " const line = document.querySelector('#curves .line.mine');"
            " return [s.backgroundColor, s.color, getComputedStyle(line).stroke] })()"
        )
        return values

    light = colors()
    tab.scheme("dark")
    dark = colors()
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] == "rgb(21, 23, 27)"
    assert all(a != b for a, b in zip(light, dark, strict=True))
    check(tab)


def test_hostile_names_are_only_text(tab: Tab) -> None:
    assert tab.run("document.querySelectorAll('img, b, em, iframe').length") == 0
    names = tab.run("[...document.querySelectorAll('#classes .name')].map(n => n.textContent)")
    assert HOSTILE[0] in names
    assert HOSTILE[2] in names
    assert "<b>path</b>" in tab.text("#methods")


def test_the_printed_page_has_the_numbers_on_the_screen(tab: Tab, tmp_path: Path) -> None:
    move_to(tab, content().start + 5)
    tab.call("Emulation.setEmulatedMedia", media="print")
    hidden = "getComputedStyle(document.getElementById('target')).display"
    assert tab.run(hidden) == "none"
    assert tab.run("getComputedStyle(document.getElementById('accuracy')).display") != "none"
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    check(tab)
    tab.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_without_scripts_the_text_is_shown(tab: Tab, window: tuple[Tab, Path]) -> None:
    def visible_text() -> str:
        nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
        return " ".join(str(n.get("name", {}).get("value")) for n in nodes if not n["ignored"])

    assert "JavaScript" not in visible_text()
    assert "mean size (labels in a set)" in visible_text()
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.goto(window[1])
        text = visible_text()
        assert "need JavaScript" in text
        assert "What is not guaranteed" in text
        assert "mean size at accuracy" in text
        assert "mean size (labels in a set)" not in text  # It is filled by a script.
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
        tab.goto(window[1])
