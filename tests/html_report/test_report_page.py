"""The page is complete, safe for any names, and readable."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from reported import HOSTILE, compared, content, plain, rows

import shortlist as sl
from shortlist.html_report import content as content_module
from shortlist.html_report import method_content, report_comparison
from shortlist.html_report.content import make_content
from shortlist.html_report.page import embed_json, page
from shortlist.html_report.prose import guarantee_sections, percent, summary

PACKAGE = Path(sl.__file__).parent / "html_report"


class ParsedPage(HTMLParser):
    """The elements of a page, their attributes, and the text in each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self.open[-1] if self.open else "", []).append(data)

    def data(self) -> dict[str, object]:
        """Return the data for the scripts."""
        data: dict[str, object] = json.loads(self.text["script"][0])
        return data


@cache
def text(which: str = "compared") -> str:
    return page(content(which), 'Sets & <em>more</em> {{data}} "here"')


@cache
def parse(which: str = "compared") -> ParsedPage:
    return ParsedPage(text(which))


# Safety


def test_names_are_only_text() -> None:
    parsed = parse()
    assert not parsed.open  # All elements are closed.
    assert parsed.tags["script"] == 2
    assert not {"img", "iframe", "object", "em", "b", "image", "svg"} & set(parsed.tags)
    assert not [a for a in parsed.attributes if a[1].startswith("on")]
    assert parsed.text["title"] == ['Sets & <em>more</em> {{data}} "here"']
    assert parsed.text["h1"] == parsed.text["title"]
    shown = "".join(parsed.text["bdi"])
    for name in HOSTILE[:3]:
        assert name in shown
    assert "<b>path</b>" in shown
    assert "alert(1)" not in text().replace(
        "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;", ""
    ).replace("\\u003c/script\\u003e\\u003cimg src=x onerror=alert(1)\\u003e", "")


def test_the_scripts_have_the_numbers_of_the_content() -> None:
    report, data = content(), parse().data()
    assert data["names"] == report.names
    assert data["names"][0] == HOSTILE[0]  # type: ignore[index]
    assert len(data["names"][4]) == 80  # type: ignore[index]
    assert data["accuracies"] == report.accuracies
    for method, sent in zip(report.methods, data["methods"], strict=True):  # type: ignore[call-overload]
        assert sent["at"] == method.at
        for point, its in zip(method.points, sent["points"], strict=True):
            assert (its["hits"], its["labels"]) == (point.hits, point.labels)
            assert its["missed"] == list(point.missed)
        for size, its in zip(method.size, sent["size"], strict=True):
            assert its == (None if math.isnan(size) else size)  # With all digits.


@pytest.mark.parametrize(
    "name", [*HOSTILE, "\u2028\u2029", "\x00\x1b[0m", "\ud800 alone", "", " ", "]]>", "&lt;"]
)
def test_embedded_data_are_read_back_and_do_not_end_the_script(name: str) -> None:
    clean = method_content.printable(name)
    assert clean
    assert clean.isprintable() or set("\u200c\u200d") & set(clean)
    clean.encode("utf-8")
    sent = embed_json({"names": [clean], "x": 0.1})
    assert json.loads(sent) == {"names": [clean], "x": 0.1}
    assert not re.search(r"[<>&\u2028\u2029]", sent)


def test_labels_of_any_type() -> None:
    rng = np.random.default_rng(0)
    labels: list[object] = [(1, "a"), None, "\ud800", 3]
    y = np.empty(80, dtype=object)
    y[:] = [labels[k] for k in rng.integers(4, size=80)]
    comparison = sl.compare(
        rng.normal(size=(80, 4)), y, methods={"LAC": sl.SplitConformal()}, classes=labels
    )
    shown = ParsedPage(page(make_content(comparison), "t")).data()["names"]
    assert shown == ["(1, 'a')", "None", "(no name)", "3"]


# Self-contained


def test_the_page_loads_no_other_files() -> None:
    source = text()
    links = set(re.findall(r"\b(?:https?|ftp|wss?):?//[^\s\"'<>)]*", source))
    assert links == {"http://www.w3.org/2000/svg"}  # A name, not an address.
    assert "@import" not in source
    assert "url(" not in source
    for tag, name, value in parse().attributes:
        if name in ("src", "href", "srcset", "action", "poster"):
            assert (tag, value) == ("link", "data:,")
    policy = next(
        v for _, n, v in parse().attributes if n == "content" and v and "default-src" in v
    )
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_the_page_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_content, "RESAMPLES", 3)
    rng = np.random.default_rng(0)
    n = 100
    logits = rng.normal(size=(12_000, n)) * rng.uniform(0.5, 4, size=(12_000, 1))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    names = [f"class number {k}" for k in range(n)]
    methods = {
        score: sl.SplitConformal(score, randomized=score == "aps") for score in ("lac", "aps")
    }
    comparison = sl.compare(
        logits[:2000],
        np.array(names)[y[:2000]],
        test=(logits[2000:], np.array(names)[y[2000:]]),
        methods=methods,
        classes=names,
    )
    source = page(make_content(comparison), "large")
    each = [len(json.dumps(m)) for m in ParsedPage(source).data()["methods"]]  # type: ignore[attr-defined]
    assert len(source.encode()) + 7 * max(each) < 600_000  # The size with nine methods.


def test_many_classes_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_content, "RESAMPLES", 3)
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(3000, 1500)).astype(np.float32)
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    comparison = sl.compare(logits, y, methods={"LAC": sl.SplitConformal()})
    source = page(make_content(comparison), "many")
    assert len(source.encode()) < 250_000
    data = ParsedPage(source).data()
    assert len(data["classes"]) == content_module.MAX_CLASSES  # type: ignore[arg-type]
    assert data["others"] == "1,300 other classes together"


# The sentences


def cells(source: str) -> list[list[str]]:
    """Return the cells in each row of the first table's body."""
    body = source[source.index("<tbody>") : source.index("</tbody>")]
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in re.findall(r"<tr.*?</tr>", body, flags=re.S)
    ]


def test_the_table_is_that_of_compare() -> None:
    comparison = compared()
    table = cells(text())
    assert len(table) == len(comparison.curves)
    for name, row in zip(comparison.curves, table, strict=True):
        one = comparison.at(name, 0.95)
        sizes = [comparison.at(name, a).size for a in comparison.accuracies] + [one.guaranteed_size]
        shown = [row[1], row[2], row[4]]
        assert shown == ["–" if math.isnan(v) else f"{v:.3f}" for v in sizes]
        shares = [one.guaranteed_accuracy, one.worst_class, one.single_share]
        expected = ["–" if math.isnan(v) else f"{100 * v:.1f}%" for v in shares]
        assert [row[3], row[6], row[7]] == expected
    assert "nan" not in re.sub(r"<script.*", "", text(), flags=re.S).lower().split()


def test_summary() -> None:
    text = " ".join(summary(content("plain")))
    sizes = sorted((plain().at(name, 0.95).size, name) for name in plain().curves)
    assert f"the mean set size is {sizes[0][0]:.2f} with {sizes[0][1]}" in text
    assert f"{sizes[1][0]:.2f} with {sizes[1][1]} (the second smallest)" in text
    if len(sizes) > 2:
        assert f"and {sizes[-1][0]:.2f} with {sizes[-1][1]} (the largest)." in text
    ranking, y, _ = plain().fitted["LAC"].test
    assert f"{100 * np.mean(ranking.rank(y) == 0):.1f}% of the 90 test rows" in text


def test_sentences_about_the_guarantee() -> None:
    sections = guarantee_sections(content())
    first = " ".join(sections["What is guaranteed"])
    assert "guaranteed by 150 calibration rows" in first
    # The accuracy on all new rows has the distribution Beta(143, 8).
    assert "typically by 2 percentage points" in first
    assert "Methods without a guarantee: fixed." in first
    one = compared().at("Shortlister", 0.95)
    share = (one.guaranteed_accuracy * 150 + 1) / 152  # Laplace's rule.
    error = math.sqrt(share * (1 - share) / 150)
    beginning = (
        f"95% guaranteed: the sets of Shortlister contain the true label for "
        f"{100 * one.guaranteed_accuracy:.1f}% of the 150 test rows (standard error "
        f"{100 * error:.2g} percentage points), with {one.guaranteed_size:.2f} labels on average"
    )
    (line,) = (line for line in sections["What was measured"] if line.startswith(beginning))
    explained = "within the variation" in line or "less than chance explains" in line
    assert explained == (one.guaranteed_accuracy < 0.95)
    warned = " ".join(sections["What is not guaranteed"])
    for word in ("Single rows", "Changed data", "size of the sets", "partly best by chance"):
        assert word in warned
    how = " ".join(sections["How methods are compared"])
    assert "Tuned separately for 75% and 95%: RAPS, “RAPS, re-scored” and “SAPS, re-scored”." in how


def test_too_few_calibration_rows() -> None:
    sections = guarantee_sections(content("plain"))
    measured = sections["What was measured"]
    assert "99% cannot be guaranteed with these rows." in measured  # There are 52 rows.
    assert any(sentence.startswith("98% guaranteed: the sets of LAC") for sentence in measured)


def test_without_calibration_nothing_is_guaranteed() -> None:
    scores, y = (part[:200] for part in rows(200, 5)[:2])
    comparison = sl.compare(
        scores, y, methods={"LAC": sl.SplitConformal()}, calibration=None, classes=HOSTILE
    )
    sections = guarantee_sections(make_content(comparison))
    assert sections["What is guaranteed"][0].startswith("Nothing is guaranteed:")
    assert "What was measured" not in sections
    assert len(sections["What is not guaranteed"]) == 2


@pytest.mark.parametrize(("share", "text"), [(0.95, "95%"), (0.999, "99.9%"), (0.29, "29%")])
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


# The file


def test_a_file_is_replaced_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    assert plain().report(path, title="one") == path
    first = path.read_text(encoding="utf-8")
    assert "<title>one</title>" in first
    with pytest.raises(FileExistsError, match=r"report.html' exists already; .*overwrite=True"):
        plain().report(path, title="two")
    assert path.read_text(encoding="utf-8") == first
    plain().report(str(path), title="two", overwrite=True)
    assert "<title>two</title>" in path.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="is a folder; name a file in it"):
        plain().report(tmp_path, overwrite=True)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_an_existing_file_raises_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: object) -> None:
        raise AssertionError("computed")

    monkeypatch.setattr("shortlist.html_report.make_content", never)
    monkeypatch.setattr("shortlist.html_report.evaluate_model", never)
    (tmp_path / "there.html").write_text("mine")
    scores, y, x = rows(60, 1)
    model = sl.SplitConformal().fit(scores, y, x, classes=HOSTILE)
    for call in (
        lambda: report_comparison(plain(), tmp_path / "there.html"),
        lambda: model.report(scores, y, x, tmp_path / "there.html"),
    ):
        with pytest.raises(FileExistsError):
            call()
    assert (tmp_path / "there.html").read_text() == "mine"


def test_an_error_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="entries, but there are"):
        plain().report(tmp_path / "report.html", examples=["a"])
    assert not list(tmp_path.iterdir())


def test_the_same_comparison_gives_the_same_page(tmp_path: Path) -> None:
    a, b = (plain().report(tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert a == b


def test_report_methods_of_models_and_of_the_estimator(tmp_path: Path) -> None:
    scores, y, x = rows(300, 1)
    model = sl.SplitConformal("lac").fit(scores[:200], y[:200], classes=HOSTILE)
    path = model.report(scores[200:], y[200:], path=tmp_path / "model.html", examples=["t"] * 100)
    data = ParsedPage(path.read_text(encoding="utf-8")).data()
    assert [m["name"] for m in data["methods"]] == ["lac", "sets of one size"]  # type: ignore[attr-defined]
    assert {name for name, _ in data["examples"]} == {"t"}  # type: ignore[attr-defined]
    sets = model.predict_set(scores[200:], accuracy=0.9)
    method = data["methods"][0]  # type: ignore[index]
    point = method["points"][method["at"][data["accuracies"].index(0.9)]]  # type: ignore[attr-defined]
    assert point["hits"] / 100 == sets.accuracy(y[200:])

    labels = np.array(["no", "yes"])[(x[:, 0] > 0).astype(int)]
    clf = sl.ShortlistClassifier(method=sl.SplitConformal("lac")).fit(x[:200], labels[:200])
    path = clf.report(x[200:], labels[200:], tmp_path / "clf.html", title="mine")
    source = path.read_text(encoding="utf-8")
    assert "<title>mine</title>" in source
    data = ParsedPage(source).data()
    assert data["names"] == ["no", "yes"]
    method = data["methods"][0]  # type: ignore[index]
    point = method["points"][method["at"][data["accuracies"].index(0.9)]]  # type: ignore[attr-defined]
    sets = clf.predict_set(x[200:], accuracy=0.9)
    assert point["labels"] / 100 == sets.mean_size
    assert point["hits"] / 100 == sets.accuracy(labels[200:])


# The style


def luminance(color: str) -> float:
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_colors_have_the_contrast_that_wcag_requires() -> None:
    style = (PACKAGE / "page.css").read_text(encoding="utf-8")
    modes = [
        dict(re.findall(r"--(\w+(?:-\w+)?): (#\w{6})", block))
        for block in re.findall(r":root \{(.*?)\}", style, flags=re.S)
    ]
    assert len(modes) == 3  # light, dark, print
    assert all(mode.keys() == modes[0].keys() for mode in modes)
    for mode in modes:
        for name in ("text", "soft", "accent", "miss"):
            for back in ("back", "card"):
                assert contrast(mode[name], mode[back]) >= 4.5, (name, back)
        assert contrast(mode["right"], mode["right-back"]) >= 4.5
        curves = [mode[f"c{k}"] for k in range(8)]
        assert len(set(curves)) == 8
        for color in curves:
            assert contrast(color, mode["back"]) >= 3, color


def test_headings_are_nested_and_referenced_elements_exist() -> None:
    levels = [int(tag[1]) for tag in re.findall(r"<(h[1-6])", text().split("<script")[0])]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    ids = {value for _, name, value in parse().attributes if name == "id"}
    script = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.glob("*.js"))
    referenced = set(re.findall(r'byId\("([\w-]+)"\)', script)) | {
        "accuracy",
        "size",
        "single",
        "largest",
    }
    assert referenced <= ids
    for _, name, value in parse().attributes:
        if name in ("for", "aria-labelledby", "aria-describedby", "aria-controls"):
            assert value in ids
    assert parse().tags["noscript"] == 1


def test_a_report_needs_neither_matplotlib_nor_pandas() -> None:
    for path in PACKAGE.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"^(?:import|from) (?:matplotlib|pandas|plotly)", source, re.M)


def test_a_shortfall_that_chance_does_not_explain() -> None:
    """The labels of the test rows do not depend on the scores."""
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(6) * 0.2, 900)
    y = np.array([rng.choice(6, p=p) for p in scores])
    comparison = sl.compare(
        scores[:600],
        y[:600],
        test=(scores[600:], rng.integers(0, 6, 300), None),
        methods={"LAC": sl.SplitConformal("lac")},
        accuracies=[0.9],
    )
    sections = " ".join(guarantee_sections(make_content(comparison))["What was measured"])
    assert "less than chance explains" in sections
