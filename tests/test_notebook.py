"""What notebooks and terminals show: cards in HTML, tables of 80 columns, and progress."""

from __future__ import annotations

import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression

import shortlist as sl
from shortlist._utils import progress
from shortlist._utils.progress import track
from shortlist._utils.tables import WIDTH, format_columns, shorten

HOSTILE = '<script>alert("x")</script>'
CLASSES = [HOSTILE, "<img src=x onerror=alert(1)>", "</td></table><b>", "a & b"]
DATA = sl.datasets.gaussian(900, 0.7, n_classes=4, dimension=5)
NAMES = np.array(CLASSES, dtype=object)[DATA.y]


class Page(HTMLParser):
    """The tags and the text of a page, and whether all tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def model() -> sl.SplitConformal:
    return sl.SplitConformal("lac").fit(DATA.posterior[:600], NAMES[:600], classes=CLASSES)


@pytest.fixture(scope="module")
def classifier() -> sl.ShortlistClassifier:
    method = sl.SplitConformal("lac")
    return sl.ShortlistClassifier(LogisticRegression(), method=method).fit(DATA.x, NAMES)


@pytest.fixture(scope="module")
def comparison() -> sl.Comparison:
    methods = {HOSTILE: sl.SplitConformal("lac"), "a name " * 20: sl.SplitConformal("topk")}
    accuracies = [0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99]
    return sl.compare(DATA.posterior, DATA.y, methods=methods, accuracies=accuracies)


def page_of(value: object) -> Page:
    """Return the page of a representation, which may contain no tag of the data."""
    page = Page(value._repr_html_())  # type: ignore[attr-defined]
    assert not {"script", "img", "b"} & set(page.tags)
    return page


# Sets and guarantees


def test_sets_show_labels_as_text(model: sl.SplitConformal) -> None:
    sets = model.predict_set(DATA.posterior[600:], accuracy=0.99)
    page = page_of(sets)
    assert HOSTILE in page.text
    assert "300 rows, 4 classes" in page.text
    assert str(sets.guarantee) in page.text
    assert page.text.count("290 more") == 1
    assert page.tags.count("tr") == 12  # a heading, ten rows, and the number of the others
    assert "0 rows" in page_of(sets[:0]).text


def test_a_guarantee_shows_its_fields(model: sl.SplitConformal) -> None:
    page = page_of(model.predict_set(DATA.posterior, accuracy=0.9, delta=0.05).guarantee)
    for text in ("at least 0.9", "0.95", "450 calibration rows"):
        assert text in page.text
    assert "calibration rows" not in page_of(sl.Guarantee("none")).text
    assert HOSTILE in page_of(sl.Guarantee("none", notes=(HOSTILE,))).text


# Curves and comparisons


def test_a_frontier_shows_its_curve(model: sl.SplitConformal) -> None:
    curve = model.frontier(DATA.posterior[600:], NAMES[600:])
    curve.name = HOSTILE
    page = page_of(curve)
    assert page.tags.count("polyline") == 1
    assert HOSTILE in page.text
    assert f"{curve.size_at(0.95):.3f}" in page.text
    assert page_of(sl.Frontier([0.5], [1.0], [1])).text.count("-") == 5  # No accuracy is reached.


def test_a_comparison_shows_every_number(comparison: sl.Comparison) -> None:
    page = page_of(comparison)
    assert page.tags.count("table") == 2
    assert HOSTILE in page.text
    for measurement in comparison.measurements:
        if measurement.size == measurement.size:
            assert f"{measurement.size:.3f}" in page.text
    assert f"{comparison.at(HOSTILE, 0.95).worst_class:.3f}" in page.text


# Models


def test_a_fitted_model_shows_what_it_learned(model: sl.SplitConformal) -> None:
    page = page_of(model)
    for text in ("SplitConformal", "LAC()", f"{model.temperature_:.4g}", "450", HOSTILE):
        assert text in page.text
    assert "accuracies up to 0.995, not 0.999" in page.text
    assert model._repr_mimebundle_()["text/html"] == model._repr_html_()
    assert model._repr_mimebundle_()["text/plain"] == repr(model)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(600, "accuracies up to 0.995, not 0.999"), (30, "accuracies up to 0.95, not 0.98")],
)
def test_a_description_names_the_accuracies_that_can_be_guaranteed(
    rows: int, expected: str
) -> None:
    model = sl.SplitConformal("lac", temperature=None).fit(DATA.posterior[:rows], DATA.y[:rows])
    assert model.describe()["guarantees"] == expected
    highest = float(expected.split()[3].strip(","))
    model.predict_set(DATA.posterior, accuracy=highest)
    with pytest.raises(ValueError, match=r"cannot be guaranteed|calibration rows"):
        model.predict_set(DATA.posterior, accuracy=float(expected.split()[-1]))


def test_a_model_that_cannot_guarantee_says_so() -> None:
    model = sl.SplitConformal("lac", calibration=None).fit(DATA.posterior, DATA.y)
    assert model.describe()["guarantees"] == "none: not calibrated"
    model.calibrate(DATA.posterior + 1e-6, DATA.y)
    model.allow_empty = True
    assert model.describe()["guarantees"].startswith("none: allow_empty")
    assert "allow_empty" in page_of(model).text  # A representation raises no error.


@pytest.mark.parametrize("score", ["lac", "raps", "saps"])
def test_a_description_has_the_sizes_at_guaranteed_accuracies(score: str) -> None:
    model = sl.SplitConformal(score).fit(DATA.posterior, DATA.y)
    described = model.describe()
    assert ("penalty" in described) == (score != "lac")
    curve = dict(
        part.split(": ") for part in described["mean size at guaranteed accuracy"].split(", ")
    )
    assert next(iter(curve)) == "0.8"
    sizes = [float(size) for size in curve.values()]
    assert sizes == sorted(sizes)
    for accuracy, size in zip(curve, sizes, strict=True):
        new = model.predict_set(DATA.posterior, accuracy=float(accuracy)).mean_size
        assert new == pytest.approx(size, rel=0.1)


def test_saving_and_showing_a_model_by_class_do_not_warn(tmp_path: Path) -> None:
    """Its thresholds warn about classes that share one, but nothing is predicted here."""
    model = sl.SplitConformal("lac", by="class", temperature=None)
    model.fit(DATA.posterior[:24], DATA.y[:24])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.save(tmp_path / "model")
        assert "mean size at guaranteed accuracy" not in model.describe()
    with pytest.warns(UserWarning, match="share one threshold"):
        model.predict_set(DATA.posterior[:3], accuracy=0.9)


def test_a_shortlister_shows_its_stages() -> None:
    model = sl.Shortlister(width=8, rank_width=8, max_epochs=2, folds=2, rescore=True)
    model.fit(DATA.posterior, DATA.y, features=DATA.x)
    described = model.describe()
    assert described["stage 1"].startswith("labels re-scored by ")
    assert len(model.score_.rescorer_.opinions) >= 1  # type: ignore[union-attr]
    assert described["features"] == "5"
    assert page_of(model).text.count("stage") == 2
    plain = sl.Shortlister(rescore=False, learn_sizes=False).fit(DATA.posterior, DATA.y)
    assert plain.describe()["stage 1"] == "not kept: the given scores"
    assert plain.describe()["stage 2"] == "not kept: one threshold"


def test_a_classifier_shows_its_parts(classifier: sl.ShortlistClassifier) -> None:
    page = page_of(classifier)
    for text in ("LogisticRegression()", "SplitConformal", HOSTILE, "temperature"):
        assert text in page.text


@pytest.mark.parametrize(
    "fitted",
    [
        sl.FixedSelector(sl.TopK([1, 2])),
        sl.PlugInSelector(),
        sl.CardinalitySelector(inputs="scores", max_epochs=1),
        sl.CardinalityPath(inputs="scores", max_epochs=1),
        sl.LinearClassifier(max_epochs=1),
        sl.RetrainedClassifier("logistic"),
        sl.ConformalPredictor(sl.conformal.APS(), sl.conformal.ClassConditional()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_model_has_a_card(fitted: sl.SetPredictor) -> None:
    features = {} if isinstance(fitted, sl.LinearClassifier) else {"features": DATA.x}
    values = DATA.x if isinstance(fitted, sl.LinearClassifier) else DATA.posterior
    page = page_of(fitted.fit(values, DATA.y, **features))
    assert "4 (0, 1, 2, 3)" in page.text


@pytest.mark.parametrize("unfitted", [sl.Shortlister(), sl.ShortlistClassifier()])
def test_scikit_learn_shows_an_unfitted_model(unfitted: sl.Shortlister) -> None:
    assert "sk-estimator" in str(unfitted._repr_html_())


def test_a_notebook_can_be_told_to_show_text(model: sl.SplitConformal) -> None:
    with config_context(display="text"):
        assert list(model._repr_mimebundle_()) == ["text/plain"]
        assert model._repr_html_() is None


# Terminals


def test_printed_tables_fit_80_columns(model: sl.SplitConformal, comparison: sl.Comparison) -> None:
    long = sl.PredictionSets.from_lists(
        [[f"a rather long label {i}" for i in range(9)], ["x" * 200], []],
        classes=[*(f"a rather long label {i}" for i in range(9)), "x" * 200],
        guarantee=sl.Guarantee("marginal", 0.9, n_calibration=900, notes=("a condition " * 20,)),
    )
    curve = model.frontier(DATA.posterior[600:], NAMES[600:])
    curve.name = "a name " * 20
    for printed in (comparison, curve, long, model.predict_set(DATA.posterior)):
        assert max(map(len, str(printed).splitlines())) <= WIDTH == 80
    assert ", …" in str(long)
    assert "(empty)" in str(long)
    for accuracy in comparison.accuracies:
        assert f" {accuracy:g}" in str(comparison)


def test_columns_continue_below() -> None:
    columns = [(f"column {i}", [str(i), "1"]) for i in range(12)]
    lines = format_columns("name", ["first", "second"], columns)
    block = ["name", "first", "second"]
    assert [line[:6].rstrip() for line in lines] == [*block, "", *block]
    joined = [word for i in (1, 5) for word in lines[i].split()[1:]]
    assert joined == [str(i) for i in range(12)]
    assert len(shorten("abcdefghij", 5)) == 5


# Progress


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a notebook, and show bars without a delay."""
    module = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
    monkeypatch.setattr(progress, "SHOW_AFTER_S", -1.0)


@pytest.mark.usefixtures("notebook")
@pytest.mark.parametrize("show", ["auto", True])
def test_a_notebook_shows_one_line_that_is_replaced(
    show: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with track("methods", 2, show) as step:
        with track("folds", 4, show) as fold:
            fold("first")
            fold("second", 3)
        step("LAC")
    out, err = capsys.readouterr()
    assert (out, "\n" in err, "\x1b" in err) == ("", False, False)
    lines = [line.rstrip() for line in err.split("\r")]
    assert lines[1] == "methods ░░░░░░░░░░ 0/2 | folds ██░░░░░░░░ 1/4 first"
    assert lines[2] == "methods ░░░░░░░░░░ 0/2 | folds ██████████ 4/4 second"
    assert lines[3] == "methods █████░░░░░ 1/2 LAC"
    assert lines[4:] == ["", ""]  # The line is removed at the end.
    assert len(err.split("\r")[3]) >= len(lines[2])  # Nothing of the longer line is left.


@pytest.mark.usefixtures("notebook")
def test_a_notebook_shows_nothing_if_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    with track("methods", 2, False) as step:
        step("LAC")
    assert capsys.readouterr() == ("", "")


def test_the_shell_of_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    for shell in (None, SimpleNamespace()):
        module = SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
        assert not progress.in_notebook()
