"""Comparisons: measurements are those of each method by itself, on the same rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from drawn import draw, ragged
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray

import shortlist as sl
from shortlist import metrics
from shortlist.comparison import ACCURACIES, Measurement, default_methods

mpl.use("Agg")

N_CLASSES = 5
TINY: dict[str, object] = {
    "learning_rate": 3e-3,
    "batch_size": 128,
    "width": 16,
    "rank_width": 8,
    "max_epochs": 3,
    "folds": 3,
    "progress": False,
}
"""Networks that train in a moment."""
GUARANTEED = [
    "guaranteed_accuracy",
    "guaranteed_size",
    "size_stratified_violation",
    "worst_class",
    "single_share",
    "predict_seconds",
]
Part = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


def rows(n: int, seed: int) -> Part:
    """Return logits, labels, and features that add information. The first feature is only the
    number of the row: 0, 2, 4, … for seed 1, and 1, 3, 5, … for seed 2."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    scores = 2 * rng.normal(size=(n, N_CLASSES))
    truth = scores + 2 * x @ np.random.default_rng(9).normal(size=(3, N_CLASSES))
    y = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return scores, y, np.column_stack([2 * np.arange(n) + seed - 1, x])


def take(part: Part, which: NDArray[np.integer]) -> Part:
    return part[0][which], part[1][which], part[2][which]


def shortlister(**given: object) -> sl.Shortlister:
    return sl.Shortlister(**(TINY | given))  # type: ignore[arg-type]


def path() -> sl.CardinalityPath:
    return sl.CardinalityPath(
        cost_weights=[0.5, 0.05, 0.005], inputs="both", width=8, max_epochs=2, progress=False
    )


def conformal(score: str = "lac", **given: object) -> sl.SplitConformal:
    return sl.SplitConformal(score, **given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Call:
    """The arguments of a call to a set predictor."""

    score: str
    what: str
    ranking: sl.Ranking
    y: NDArray[np.int64] | None
    features: torch.Tensor | None

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers of the rows."""
        assert self.features is not None
        return np.asarray(self.features)[:, 0].astype(np.int64)


class Spy(sl.SplitConformal):
    """Records its calls. Clones share the record."""

    book: list[Call] = []  # noqa: RUF012

    def _note(self, what: str, ranking: object, y: object, features: object) -> None:
        self.book.append(Call(self.score, what, ranking, y, features))  # type: ignore[arg-type]

    def fit(self, scores, y, features=None, **others):  # type: ignore[no-untyped-def]
        self._note("fit", scores, y, features)
        assert self.calibration is None, "it would hold out calibration rows of its own"
        return super().fit(scores, y, features, **others)

    def calibrate(self, scores, y, features=None, **others):  # type: ignore[no-untyped-def]
        self._note("calibrate", scores, y, features)
        return super().calibrate(scores, y, features, **others)

    def predict_set(self, scores, features=None, **others):  # type: ignore[no-untyped-def]
        self._note("predict", scores, None, features)
        return super().predict_set(scores, features, **others)

    def frontier(self, scores, y, features=None):  # type: ignore[no-untyped-def]
        self._note("frontier", scores, y, features)
        return super().frontier(scores, y, features)


@pytest.fixture
def book() -> Iterator[list[Call]]:
    Spy.book.clear()
    yield Spy.book
    Spy.book.clear()


def given_for(what: str, book: list[Call], score: str | None = None) -> list[Call]:
    return [call for call in book if call.what == what and score in (None, call.score)]


@dataclass(frozen=True)
class Case:
    """A comparison, and its rows for each purpose."""

    comparison: sl.Comparison
    methods: dict[str, sl.SetPredictor]
    train: Part
    calibration: Part
    test: Part

    def by_hand(self, name: str, **others: object) -> sl.SetPredictor:
        """Return one of the methods, fitted and calibrated without `compare`."""
        made = type(self.methods[name])(**(self.methods[name].get_params() | others))
        if "calibration" in made.get_params():
            made.set_params(calibration=None)
        model = made.fit(self.train[0], self.train[1], self.train[2])
        if hasattr(model, "calibrate"):
            model.calibrate(*self.calibration)
        return model


@cache
def case() -> Case:
    """Compare most methods at two accuracies that are far apart, with all stages."""
    known, test = rows(400, 1), rows(150, 2)
    methods: dict[str, sl.SetPredictor] = {
        "Shortlister": shortlister(),
        "top-k": conformal("topk", calibration=0.5),
        "LAC": conformal(),
        "APS": conformal("aps", randomized=True),
        "RAPS": conformal("raps", randomized=True, accuracy=0.5),
        "SAPS": conformal("saps", randomized=True),
        "plug-in": sl.PlugInSelector(cost="log"),
        "path": path(),
        "fixed": sl.FixedSelector(),
        "spy": Spy(),
    }
    Spy.book.clear()
    comparison = sl.compare(
        *known, test=test, accuracies=[0.75, 0.95], methods=methods, stages=True
    )
    (fit,), (calibrate,) = (given_for(what, Spy.book) for what in ("fit", "calibrate"))
    Spy.book.clear()
    parts = (take(known, call.numbers // 2) for call in (fit, calibrate))
    return Case(comparison, methods, *parts, test)


# The same rows for every method


@pytest.mark.parametrize("test", [0.3, rows(80, 2)], ids=["share", "given"])
@pytest.mark.parametrize("calibration", [0.25, 0.4])
def test_every_method_gets_the_same_rows_and_none_of_the_test(
    book: list[Call], test: float | Part, calibration: float
) -> None:
    known = rows(200, 1)
    names = ["lac", "topk", "aps", "margin"]
    sl.compare(*known, test=test, methods={n: Spy(n) for n in names}, calibration=calibration)
    by_what = {
        what: {n: given_for(what, book, n)[0].numbers for n in names}
        for what in ("fit", "calibrate", "frontier", "predict")
    }
    for asked in by_what.values():
        for n in names:
            np.testing.assert_array_equal(asked[n], asked["lac"])
    train, kept, test_rows, predicted = (set(by_what[w]["lac"].tolist()) for w in by_what)
    assert test_rows == predicted
    assert not train & kept
    assert not (train | kept) & test_rows
    everything = set(known[2][:, 0].astype(int).tolist())
    if isinstance(test, float):
        assert train | kept | test_rows == everything
        assert len(test_rows) == 60
    else:
        assert train | kept == everything
        assert test_rows == set(test[2][:, 0].astype(int).tolist())
    assert len(kept) == round(calibration * len(train | kept))


def test_scores_labels_and_features_of_a_row_stay_together(book: list[Call]) -> None:
    scores, y, x = rows(200, 1)
    sl.compare(scores, y, x, methods={"spy": Spy()})
    for call in book:
        at = call.numbers // 2
        np.testing.assert_array_equal(call.ranking.scores_of(slice(None)), scores[at])
        np.testing.assert_array_equal(call.features, x[at])
        if call.y is not None:
            np.testing.assert_array_equal(call.y, y[at])


def test_each_part_is_drawn_at_random(book: list[Call]) -> None:
    sl.compare(*rows(1000, 1), methods={"spy": Spy()})
    for what in ("fit", "calibrate", "frontier"):
        (call,) = given_for(what, book)
        assert abs((call.numbers // 2).mean() - 500) < 60  # not the first, nor the last ones


def test_without_calibration_all_rows_are_learned_from_and_nothing_is_guaranteed(
    book: list[Call],
) -> None:
    methods = {"spy": Spy(), "fixed": sl.FixedSelector(), "RAPS": conformal("raps")}
    comparison = sl.compare(*rows(120, 1), test=rows(60, 2), methods=methods, calibration=None)
    (fit,) = given_for("fit", book)
    np.testing.assert_array_equal(fit.numbers, 2 * np.arange(120))
    assert not given_for("calibrate", book)
    assert not given_for("predict", book)
    frame = comparison.to_frame()
    assert frame[GUARANTEED].isna().all(axis=None)
    assert frame["size"].notna().all()
    assert comparison.summary == "120 rows to fit, 60 test rows, 5 classes"
    assert "guaranteed" not in repr(comparison)


# Measurements


METHODS = ["Shortlister", "top-k", "LAC", "APS", "RAPS", "SAPS", "plug-in", "path", "fixed"]


@pytest.mark.parametrize("name", METHODS)
def test_sizes_are_read_from_the_curve_of_the_method(name: str) -> None:
    c = case()
    for accuracy in c.comparison.accuracies:
        tuned = {"accuracy": accuracy} if name in ("RAPS", "SAPS") else {}
        curve = c.by_hand(name, **tuned).frontier(*c.test)
        assert c.comparison.at(name, accuracy).size == curve.size_at(accuracy) > 0


@pytest.mark.parametrize("name", [name for name in METHODS if name != "fixed"])
def test_guaranteed_columns_describe_the_guaranteed_sets(name: str) -> None:
    c = case()
    seen = 0
    for accuracy in c.comparison.accuracies:
        one = c.comparison.at(name, accuracy)
        tuned = {"accuracy": accuracy} if name in ("RAPS", "SAPS") else {}
        model = c.by_hand(name, **tuned)
        try:
            sets = model.predict_set(c.test[0], c.test[2], accuracy=accuracy)  # type: ignore[call-arg]
        except sl.conformal.UnreachableError:
            assert math.isnan(one.guaranteed_accuracy)
            continue
        seen += 1
        y = c.test[1]
        assert one.guaranteed_accuracy == metrics.accuracy(sets, y)
        assert one.guaranteed_size == metrics.mean_size(sets)
        violation = metrics.size_stratified_violation(sets, y, accuracy)
        assert one.size_stratified_violation == violation
        assert one.worst_class == min(metrics.class_accuracy(sets, y))
        assert one.single_share == metrics.single_share(sets)
        assert one.predict_seconds >= 0
    assert seen


def test_a_class_without_test_rows_has_no_part_in_the_worst() -> None:
    scores, y, _ = rows(300, 1)
    others = np.flatnonzero(y[:100] != 3)
    test = (scores[others], y[others])
    comparison = sl.compare(scores, y, test=test, accuracies=[0.9], methods={"LAC": conformal()})
    assert 0 < comparison.measurements[0].worst_class < 1


def test_one_threshold_is_shorter_than_top_k_where_the_probabilities_are_right() -> None:
    data = sl.datasets.gaussian(4000)
    methods = {"top-k": conformal("topk"), "LAC": conformal()}
    comparison = sl.compare(data.posterior, data.y, methods=methods)
    for accuracy in ACCURACIES:
        lac, top_k = comparison.at("LAC", accuracy), comparison.at("top-k", accuracy)
        assert 1 < lac.size < top_k.size
        assert 1 < lac.guaranteed_size < top_k.guaranteed_size
        for one in (lac, top_k):
            assert one.guaranteed_accuracy > accuracy - 0.03
    sizes = [comparison.at("LAC", accuracy).size for accuracy in ACCURACIES]
    assert sizes == sorted(sizes)


def fitted_parameters(model: sl.SetPredictor) -> dict[str, object]:
    score = model.score_  # type: ignore[attr-defined]
    return {name: value for name, value in vars(score).items() if name.endswith("_")}


@pytest.mark.parametrize("name", ["RAPS", "SAPS"])
def test_raps_and_saps_are_tuned_for_each_accuracy(name: str) -> None:
    c = case()
    tuned = {a: c.by_hand(name, accuracy=a) for a in c.comparison.accuracies}
    low, high = (fitted_parameters(model) for model in tuned.values())
    assert low != high, "else the test shows nothing"
    curves = {a: model.frontier(*c.test) for a, model in tuned.items()}
    for accuracy, curve in curves.items():
        assert c.comparison.at(name, accuracy).size == curve.size_at(accuracy)
    # The curve of all is that of the best tuning at each accuracy.
    for accuracy in np.linspace(0.6, 0.99, 20):
        best = min(curve.size_at(accuracy) for curve in curves.values())
        assert c.comparison.curves[name].size_at(accuracy) <= best + 1e-12
    assert len(c.comparison.curves[name]) == sum(map(len, curves.values()))


def test_other_methods_are_fitted_once_for_all_accuracies(book: list[Call]) -> None:
    sl.compare(*rows(200, 1), methods={"spy": Spy(), "tuned": Spy("raps")})
    for score, times in (("lac", 1), ("raps", len(ACCURACIES))):
        assert len(given_for("fit", book, score)) == times
        assert len(given_for("calibrate", book, score)) == times
        assert len(given_for("frontier", book, score)) == times


def test_accuracies_that_cannot_be_guaranteed_are_nan() -> None:
    # 15 calibration rows can guarantee 0.9, for which 9 are needed, but not 0.95, which takes 19.
    comparison = sl.compare(*rows(60, 1), test=rows(80, 2), methods={"LAC": conformal()})
    reached, beyond = comparison.at("LAC", 0.9), comparison.at("LAC", 0.95)
    assert reached.guaranteed_accuracy > 0.8
    assert all(math.isnan(getattr(beyond, column)) for column in GUARANTEED)
    assert beyond.size >= reached.size >= 1
    assert beyond.fit_seconds >= 0


def test_accuracies_beyond_the_candidates_are_not_available() -> None:
    scores, y = draw(600, n=8)
    candidates = sl.Ranking.from_candidates(
        **ragged(np.exp(scores) / np.exp(scores).sum(1)[:, None], 3)
    )
    methods = {"Shortlister": shortlister(), "LAC": conformal(), "fixed": sl.FixedSelector()}
    comparison = sl.compare(candidates, y, methods=methods, accuracies=[0.5, 0.99])
    for name in methods:
        assert 1 <= comparison.at(name, 0.5).size <= 3
        assert math.isnan(comparison.at(name, 0.99).size)
        assert math.isnan(comparison.at(name, 0.99).guaranteed_size)
    assert 1 <= comparison.at("LAC", 0.5).guaranteed_size <= 3


def test_methods_without_a_guarantee_are_measured_by_size_only() -> None:
    def halves(ranking: sl.Ranking) -> NDArray[np.bool_]:
        group = np.arange(ranking.n_classes) % 2
        return group[None] == group[ranking.labels[:, :1]]

    def every(ranking: sl.Ranking) -> NDArray[np.bool_]:
        return np.ones((len(ranking), ranking.n_classes), dtype=bool)

    methods = {
        "fixed": sl.FixedSelector(),
        "one lambda": sl.CardinalitySelector(inputs="both", width=4, max_epochs=1),
        "not nested": sl.PlugInSelector(sl.Custom.from_masks(halves, every)),
    }
    frame = sl.compare(*rows(200, 1), methods=methods, accuracies=[0.5]).to_frame()
    assert frame[GUARANTEED].isna().all(axis=None)
    assert frame["size"].between(1, N_CLASSES).all()


# Input


def same(one: sl.Comparison, other: sl.Comparison) -> None:
    """Assert that all measurements but the times are equal."""
    assert one.summary == other.summary
    seconds = ["fit_seconds", "predict_seconds"]
    a, b = (comparison.to_frame().drop(columns=seconds) for comparison in (one, other))
    pd.testing.assert_frame_equal(a, b, check_exact=True)
    assert list(one.curves) == list(other.curves)
    for name, curve in one.curves.items():
        np.testing.assert_array_equal(curve.mean_size, other.curves[name].mean_size)


def few() -> dict[str, sl.SetPredictor]:
    return {"Shortlister": shortlister(), "RAPS": conformal("raps", randomized=True)}


def test_test_rows_with_and_without_features() -> None:
    (scores, y, x), (test_scores, test_y, test_x) = rows(400, 1), rows(100, 2)
    with_none = sl.compare(scores, y, test=(test_scores, test_y, None), methods=few())
    same(sl.compare(scores, y, test=(test_scores, test_y), methods=few()), with_none)
    same(sl.compare(scores, y, test=[test_scores, test_y], methods=few()), with_none)
    with_them = sl.compare(scores, y, x, test=(test_scores, test_y, test_x), methods=few())
    assert with_them.models["Shortlister"].rescored_  # type: ignore[attr-defined]
    assert with_them.at("Shortlister", 0.9).size < with_none.at("Shortlister", 0.9).size
    assert with_them.summary == "300 rows to fit, 100 calibration rows, 100 test rows, 5 classes"


def test_tensors_frames_and_lists() -> None:
    known, test = rows(400, 1), rows(100, 2)
    plain = sl.compare(*known, test=test, methods=few())
    for to in (torch.from_numpy, pd.DataFrame, np.ndarray.tolist):
        parts = [
            (to(scores), torch.from_numpy(y) if to is torch.from_numpy else y.tolist(), to(x))
            for scores, y, x in (known, test)
        ]
        same(sl.compare(*parts[0], test=parts[1], methods=few()), plain)


def test_labels_with_names() -> None:
    known, test = rows(400, 1), rows(100, 2)
    plain = sl.compare(*known, test=test, methods=few())
    names = np.array(["eel", "ant", "dog", "cat", "bee"])  # not in sorted order
    (scores, y, x), (test_scores, test_y, test_x) = known, test
    test = (test_scores, names[test_y], test_x)
    same(sl.compare(scores, names[y], x, test=test, methods=few(), classes=names), plain)
    ranking = sl.Ranking.from_scores(scores, classes=names)
    same(sl.compare(ranking, names[y], x, test=test, methods=few()), plain)
    # A frame names its columns itself.
    frame = pd.DataFrame(scores, columns=names)
    test = (pd.DataFrame(test_scores, columns=names), names[test_y], test_x)
    comparison = sl.compare(frame, names[y], x, test=test, methods=few())
    same(comparison, plain)
    sets = comparison.models["RAPS"].predict_set(frame[:1], accuracy=0.9)
    assert set(sets.labels()[0]) <= set(names.tolist())


def test_candidates() -> None:
    scores, y = draw(500, n=8)
    candidates = sl.Ranking.from_candidates(
        **ragged(np.exp(scores) / np.exp(scores).sum(1)[:, None], 4)
    )
    (known, test), (y, test_y) = (candidates[:400], candidates[400:]), (y[:400], y[400:])
    methods = {"LAC": conformal(), "path": path().set_params(inputs="scores")}
    comparison = sl.compare(
        known, y, test=(test, test_y), methods=methods, accuracies=[0.7], calibration=None
    )
    for name, method in methods.items():
        if name == "LAC":
            method.set_params(calibration=None)
        curve = method.fit(known, y).frontier(test, test_y)
        assert comparison.at(name, 0.7).size == curve.size_at(0.7) > 1
    shared = sl.compare(candidates, np.concatenate([y, test_y]), methods=LAC, accuracies=[0.7])
    assert shared.summary == "262 rows to fit, 88 calibration rows, 150 test rows, 8 classes"
    assert 0.6 < shared.measurements[0].guaranteed_accuracy < 0.8


SCORES, Y, X = rows(60, 1)
LAC = {"LAC": conformal()}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sl.compare(SCORES, Y[:5]), "y has 5 labels, but the scores have 60 rows"),
        (lambda: sl.compare(SCORES, Y, X[:7]), "features have 7 rows, but the scores have 60"),
        (
            lambda: sl.compare(SCORES, Y, X, test=(SCORES, Y)),
            "the fit rows have features, but the test rows have none",
        ),
        (
            lambda: sl.compare(SCORES, Y, test=(SCORES, Y, X)),
            "the test rows have features, but the fit rows have none",
        ),
        (
            lambda: sl.compare(SCORES, Y, test=(SCORES, Y[:5])),
            "test: y has 5 labels, but the scores have 60 rows",
        ),
        (
            lambda: sl.compare(SCORES, Y, X, test=(SCORES, Y, X[:7])),
            "test: features have 7 rows, but the scores have 60",
        ),
        (
            lambda: sl.compare(SCORES, Y, X, test=(SCORES, Y, X[:, :2])),
            "test: features have 2 columns, but fit saw 4",
        ),
        (
            lambda: sl.compare(SCORES, Y, test=(SCORES[:, :4], Y)),
            "test: scores have 4 classes, but fit saw 5",
        ),
        (lambda: sl.compare(SCORES, Y, test=(SCORES, Y + 1)), "test: y[.*] = 5 is not one of"),
        (lambda: sl.compare(SCORES, Y, test=(SCORES,)), "(scores, y, features); got 1 parts"),
        (lambda: sl.compare(SCORES, Y, test=1.5), "test must lie strictly between 0 and 1; got"),
        (lambda: sl.compare(SCORES, Y, calibration=0), "calibration must lie strictly between"),
        (lambda: sl.compare(SCORES, Y, accuracies=[0.9, 95]), "each of accuracies must lie"),
        (lambda: sl.compare(SCORES, Y, accuracies=[]), "a list of at least one; got []"),
        (lambda: sl.compare(SCORES, Y, accuracies=0.9), "a list of at least one; got 0.9"),
        (lambda: sl.compare(SCORES, Y, methods={}), "at least one set predictor; got {}"),
        (
            lambda: sl.compare(SCORES, np.array(list("abcd"))[Y % 4], methods=LAC),
            "y holds 4 distinct labels",
        ),
        (
            lambda: sl.compare(
                sl.Ranking.from_scores(SCORES, classes=list("abcde")),
                np.array(list("abcde"))[Y],
                classes=list("edcba"),
            ),
            "the ranking names its columns ['a', 'b', 'c', 'd', 'e'], but the classes are ['e'",
        ),
        (
            lambda: sl.compare(
                pd.DataFrame(SCORES, columns=list("abcde")),
                np.array(list("abcde"))[Y],
                test=(pd.DataFrame(SCORES, columns=list("edcbz")), np.array(list("abcde"))[Y]),
            ),
            "test: scores lack 'a', which fit saw, and have 'z', which fit did not see",
        ),
    ],
)
def test_wrong_input_is_refused_before_anything_is_fitted(
    call: Callable[[], object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: object) -> None:
        raise AssertionError("a method was fitted")

    monkeypatch.setattr("shortlist.comparison.plan.measure", never)
    pattern = ".*".join(map(re.escape, message.split(".*")))
    with pytest.raises(ValueError, match=pattern):
        call()


# Stages


def test_stages_add_ablations_and_rescored_methods() -> None:
    c = case()
    added = ["Shortlister, no re-scoring", "LAC, re-scored", "RAPS, re-scored", "SAPS, re-scored"]
    assert list(c.comparison.curves) == [*c.methods, *added] == list(c.comparison.models)
    assert [one.method for one in c.comparison.measurements[::2]] == [*c.methods, *added]
    whole, part = (
        c.comparison.models["Shortlister"],
        c.comparison.models["Shortlister, no re-scoring"],
    )
    assert whole.rescored_  # type: ignore[attr-defined]
    assert not part.rescored_  # type: ignore[attr-defined]
    # It is the one given, but for that stage.
    changed = {k for k, v in part.get_params().items() if v != whole.get_params()[k]}
    assert changed == {"rescore"}
    by_hand = shortlister(rescore=False, calibration=None).fit(*c.train)
    assert c.comparison.at("Shortlister, no re-scoring", 0.75).size == by_hand.frontier(
        *c.test
    ).size_at(0.75)
    # The features are informative here.
    assert c.comparison.at("LAC, re-scored", 0.75).size < 0.9 * c.comparison.at("LAC", 0.75).size
    for name in added[1:]:
        assert c.comparison.at(name, 0.75).guaranteed_accuracy > 0.65


def test_without_features_or_without_a_shortlister_there_are_no_stages_to_add() -> None:
    scores, y, x = rows(400, 1)
    comparison = sl.compare(scores, y, methods={"Shortlister": shortlister()}, stages=True)
    assert list(comparison.curves) == ["Shortlister"]
    comparison = sl.compare(scores, y, x, methods=LAC, stages=True)
    assert list(comparison.curves) == ["LAC"]
    kept_out = {"Shortlister": shortlister(rescore=False)}
    comparison = sl.compare(scores, y, x, methods=kept_out, stages=True)
    assert list(comparison.curves) == ["Shortlister", "Shortlister, no re-scoring"]
    comparison = sl.compare(scores, y, x, methods={"Shortlister": shortlister()})
    assert list(comparison.curves) == ["Shortlister"]


def own_log_proba(ranking: sl.Ranking, y: NDArray[np.int64]) -> float:
    """Return the mean log-probability of the labels."""
    log_p = ranking.scores_of(slice(None)).numpy()
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1, rtol=1e-4)
    return float(log_p[np.arange(len(y)), y].mean())


def test_rows_are_re_scored_by_what_did_not_learn_from_them(
    book: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, test = rows(400, 1), rows(400, 2)
    rng = np.random.default_rng(0)
    wide = [np.column_stack([part[2], rng.normal(size=(400, 20))]) for part in (known, test)]
    monkeypatch.setattr("shortlist.comparison.plan.SplitConformal", Spy)
    # Long enough to memorize the rows.
    methods = {
        "Shortlister": shortlister(rescore=True, width=128, max_epochs=20, patience=20),
        "spy": Spy("margin"),
    }
    comparison = sl.compare(
        *known[:2], wide[0], test=(*test[:2], wide[1]), methods=methods, stages=True
    )
    model = comparison.models["Shortlister"]
    assert isinstance(model, sl.Shortlister)
    at = given_for("fit", book, "margin")[0].numbers // 2
    scores, y, x = known[0][at], known[1][at], wide[0][at]
    memorized = own_log_proba(model.rescored(scores, x), y)
    out_of_fold = model.out_of_fold(scores, x).scores_of(slice(None))
    for score in ("lac", "raps", "saps"):
        fit, calibrate, curve = (
            given_for(what, book, score)[0] for what in ("fit", "calibrate", "frontier")
        )
        np.testing.assert_array_equal(fit.ranking.scores_of(slice(None)), out_of_fold)
        np.testing.assert_array_equal(fit.y, y)
        assert (len(calibrate.ranking), len(curve.ranking)) == (100, 400)
        assert fit.features is calibrate.features is curve.features is None
        train, kept, new = (own_log_proba(c.ranking, c.y) for c in (fit, calibrate, curve))  # type: ignore[arg-type]
        # As on rows that were never seen, and not as on rows whose labels are known.
        assert abs(train - new) < 0.15
        assert abs(kept - new) < 0.15
        assert memorized > train + 0.3


# The methods


def test_default_methods() -> None:
    methods = default_methods(has_features=True, seed=7)
    assert list(methods) == [
        "Shortlister",
        "top-k",
        "LAC",
        "APS",
        "RAPS",
        "SAPS",
        "plug-in, log cost",
        "paper's selectors",
    ]
    assert all(method.random_state == 7 for method in methods.values())  # type: ignore[attr-defined]
    scores = {n: m.score for n, m in methods.items() if isinstance(m, sl.SplitConformal)}
    assert scores == {
        n: n.lower().replace("-", "") for n in ("top-k", "LAC", "APS", "RAPS", "SAPS")
    }
    for has_features, inputs in ((True, "both"), (False, "scores")):
        selectors = default_methods(has_features)["paper's selectors"]
        assert isinstance(selectors, sl.CardinalityPath)
        assert selectors.inputs == inputs
        assert len(selectors.cost_weights) == 20  # type: ignore[arg-type]


def test_all_default_methods_run_on_few_rows() -> None:
    # Too little for the Shortlister to learn from, which leaves it the classifier.
    comparison = sl.compare(*rows(100, 1), random_state=3)
    assert list(comparison.curves) == list(default_methods(has_features=True))
    assert comparison.accuracies == ACCURACIES
    frame = (
        comparison.to_frame().set_index("method").drop("paper's selectors")
    )  # those may not get far
    assert frame["size"].between(1, N_CLASSES).all()
    assert frame["guaranteed_size"][frame["accuracy"] == 0.9].between(1, N_CLASSES).all()
    assert comparison.at("Shortlister", 0.9).size == pytest.approx(comparison.at("LAC", 0.9).size)
    assert all(m.random_state == 3 for m in comparison.models.values())  # type: ignore[attr-defined]


def test_the_default_adds_lac_on_re_scored_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def tiny(has_features: bool, seed: int = 0) -> dict[str, sl.SetPredictor]:
        asked.append((has_features, seed))
        return few()

    monkeypatch.setattr("shortlist.comparison.plan.default_methods", tiny)
    comparison = sl.compare(*rows(450, 1), random_state=4)
    assert list(comparison.curves) == ["Shortlister", "RAPS", "LAC, re-scored"]
    assert list(sl.compare(*rows(450, 1)[:2]).curves) == ["Shortlister", "RAPS"]
    assert asked == [(True, 4), (False, 0)]


def test_methods_are_cloned() -> None:
    c = case()
    fresh = {
        "Shortlister": shortlister(),
        "RAPS": conformal("raps", randomized=True, accuracy=0.5),
        "path": path(),
    }
    for name, method in c.methods.items():
        assert c.comparison.models[name] is not method
        assert not [a for a in vars(method) if a.endswith("_") or a.startswith("_")]
        assert type(c.comparison.models[name]) is type(method)
    for name, method in fresh.items():
        assert c.methods[name].get_params() == method.get_params()


def test_the_same_seed_repeats_and_another_does_not(book: list[Call]) -> None:
    methods = few() | {"path": path(), "topk": conformal("topk", randomized=True)}
    part = rows(450, 1)
    first = sl.compare(*part, methods=methods, random_state=5, stages=True)
    same(sl.compare(*part, methods=methods, random_state=5, stages=True), first)
    for test in (0.3, rows(50, 2)):
        book.clear()
        for seed in (5, 6):
            sl.compare(*part, test=test, methods={"spy": Spy()}, random_state=seed)
        drawn = [set(call.numbers.tolist()) for call in given_for("calibrate", book)]
        assert drawn[0] != drawn[1]


# Output


def test_at() -> None:
    comparison = case().comparison
    assert isinstance(comparison.at("LAC", 0.95), Measurement)
    for method in comparison.curves:
        for accuracy in (0.75, 0.95):
            one = comparison.at(method, accuracy)
            assert (one.method, one.accuracy) == (method, accuracy)
    for wrong in (("lac", 0.95), ("LAC", 0.9)):
        message = re.escape(f"no measurement of {wrong[0]!r} at {wrong[1]!r}; the methods are")
        with pytest.raises(ValueError, match=message + r" \['Shortlister', .*\[0.75, 0.95\]"):
            comparison.at(*wrong)


def test_to_frame() -> None:
    comparison = case().comparison
    frame = comparison.to_frame()
    assert list(frame.columns) == [field.name for field in fields(Measurement)]
    assert frame["method"].tolist() == [
        name for name in comparison.curves for _ in comparison.accuracies
    ]
    assert frame["accuracy"].tolist() == [0.75, 0.95] * len(comparison.curves)
    for row, one in zip(frame.itertuples(index=False), comparison.measurements, strict=True):
        assert row.size == one.size
        assert row.single_share == pytest.approx(one.single_share, nan_ok=True)


def ends_with_its_heading(comparison: sl.Comparison) -> None:
    """Assert that every number of the table ends where its heading does."""
    head, *lines = repr(comparison).splitlines()[2 : 3 + len(comparison.curves)]
    titles = [f"{accuracy:g}" for accuracy in comparison.accuracies]
    titles += ["accuracy", "size", "violation", "class", "single", "fit s", "predict s"]
    places, at = [], len("mean size at accuracy")
    for title in titles:
        at = head.index(title, at) + len(title)
        places.append(at)
    for line in lines:
        ends = [match.end() for match in re.finditer(r"[^\s|]+", line)]
        assert ends[-len(places) :] == places


def test_repr_is_a_table() -> None:
    comparison = case().comparison
    summary, empty, _, *lines = repr(comparison).splitlines()
    lines, legend = lines[: len(comparison.curves)], lines[len(comparison.curves) :]
    assert legend[0] == ""
    assert "standard error about 0.02)" in legend[3]  # (0.95 * 0.05 / 150) ** 0.5
    assert "violation:" in legend[4]
    assert (
        summary
        == "300 rows to fit, 100 calibration rows, 150 test rows, 5 classes"
        == comparison.summary
    )
    assert empty == ""
    assert [line[: line.index("  ")] for line in lines] == list(comparison.curves)
    for name, line in zip(comparison.curves, lines, strict=True):
        one = comparison.at(name, 0.95)
        sizes = [comparison.at(name, a).size for a in comparison.accuracies]
        values = [*sizes, one.guaranteed_accuracy, one.guaranteed_size]
        values += [one.size_stratified_violation, one.worst_class, one.single_share]
        shown = ["-" if math.isnan(v) else f"{v:.3f}" for v in values]
        shown += [f"{one.fit_seconds:.1f}"]
        shown += ["-" if math.isnan(one.predict_seconds) else f"{one.predict_seconds:.3f}"]
        assert line[len(name) :].replace("|", "").split() == shown
    ends_with_its_heading(comparison)
    assert " -" in lines[list(comparison.curves).index("fixed")]


@pytest.mark.parametrize("accuracies", [[0.9], [0.8, 0.95, 0.99], [0.8, 0.9]])
def test_the_table_shows_what_was_guaranteed_at_095_or_else_at_the_first(
    accuracies: list[float],
) -> None:
    comparison = sl.compare(*rows(400, 1), methods=LAC, accuracies=accuracies)
    accuracy = 0.95 if 0.95 in accuracies else accuracies[0]
    head, line = repr(comparison).splitlines()[2:4]
    assert f"| {accuracy:g} guaranteed: accuracy" in head
    assert f"{comparison.at('LAC', accuracy).guaranteed_size:.3f}" in line.split("|")[1]
    ends_with_its_heading(comparison)


def test_plot_draws_every_curve_with_its_name() -> None:
    comparison = case().comparison
    ax = comparison.plot()
    lines = {line.get_label(): line for line in ax.get_lines()}
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == list(comparison.curves)
    for name, curve in comparison.curves.items():
        x, y = np.asarray(lines[name].get_data())
        best = curve.envelope()
        np.testing.assert_array_equal(x, best.mean_size)
        np.testing.assert_array_equal(y, best.accuracy)
        assert (to_hex(lines[name].get_color()) == "#000000") == (name == "Shortlister")
        assert (lines[name].get_linestyle() == "--") == name.endswith("re-scored")
        for accuracy in comparison.accuracies:
            size = curve.size_at(accuracy)
            assert math.isnan(size) or ax.get_xlim()[0] < size < ax.get_xlim()[1]
    assert ax.get_ylim() == pytest.approx((0.7, 1.002))
    assert not ax.collections
    axes = Figure().subplots()
    assert comparison.plot(axes, band=True) is axes
    assert len(axes.collections) == 1  # of the Shortlister


def test_plot_shows_undominated_points_only() -> None:
    curve = sl.Frontier([0.8, 0.85, 0.95], [1.0, 3.0, 2.0], [1, 2, 3])
    ax = sl.Comparison((0.9,), "one curve", 3, curves={"by hand": curve}).plot()
    drawn = [np.asarray(line.get_data()).T.tolist() for line in ax.get_lines()]
    assert [[1.0, 0.8], [2.0, 0.95]] in drawn
    assert [3.0, 0.85] not in [point for points in drawn for point in points]
    assert ax.get_xlim() == pytest.approx((0.95 * 4 / 3, 1.05 * 5 / 3))


def test_plot_of_curves_that_end_early() -> None:
    scores, y = draw(400, n=8)
    candidates = sl.Ranking.from_candidates(
        **ragged(np.exp(scores) / np.exp(scores).sum(1)[:, None], 3)
    )
    ends = conformal(calibration=None).fit(candidates, y).frontier(candidates, y).accuracy.max()
    reached = sl.compare(candidates, y, methods=LAC, accuracies=[0.02, 0.99]).plot()
    assert reached.get_ylim()[0] == 0
    assert reached.get_xlim()[1] < 4
    beyond = sl.compare(candidates, y, methods=LAC, accuracies=[0.99]).plot()
    assert beyond.get_ylim()[0] < ends < 0.94
    assert beyond.get_ylim()[1] > ends - 0.1


def test_every_field_is_measured() -> None:
    one = case().comparison.at("LAC", 0.75)
    values = [getattr(one, field.name) for field in fields(Measurement)]
    assert values[:2] == ["LAC", 0.75]
    assert all(isinstance(value, float) and math.isfinite(value) for value in values[1:])
