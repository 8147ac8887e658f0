"""Labels of test rows that no class of the model has: misses in every measurement, never errors.

The rules of `fit` are others: there, such a label is an error, or a miss of the calibration.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import Result
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import shortlist as sl
from shortlist.cli import app
from shortlist.metrics import cardinality_loss, class_accuracy, size_stratified_violation
from shortlist.predictors.retrained import RetrainedClassifier

NAMES = np.array(["ant", "bee", "cat", "dog"])
RNG = np.random.default_rng(0)
Y = np.arange(600) % 4
SCORES = RNG.normal(size=(600, 4)) + 2.5 * np.eye(4)[Y]
X = RNG.normal(size=(600, 3)) + Y[:, None]
UNSEEN = NAMES[Y].astype(object)
UNSEEN[5:65:6] = "emu"
UNSEEN[7] = "gnu"
N_UNSEEN = 11

METHODS: dict[str, Callable[[], sl.SetPredictor]] = {
    "fixed": lambda: sl.FixedSelector(sl.TopK([1, 2, 4])),
    "lac": lambda: sl.SplitConformal("lac"),
    "aps": lambda: sl.SplitConformal("aps", randomized=False),
    "plug-in": sl.PlugInSelector,
    "threshold": lambda: sl.PlugInSelector(family=sl.Threshold([0.5, 0.1, 0.01])),
    "Denis-Hebiri": lambda: sl.PlugInSelector(family=sl.DenisHebiri([1.0, 2.0])),
    "selector": lambda: sl.CardinalitySelector(sl.TopK([1, 2]), inputs="scores", max_epochs=1),
    "path": lambda: sl.CardinalityPath(
        sl.TopK([1, 4]), cost_weights=[0.0, 0.1], inputs="scores", max_epochs=1
    ),
    "Shortlister": lambda: sl.Shortlister(rescore=False, learn_sizes=False),
    "retrained": lambda: RetrainedClassifier(model="logistic"),
}


@contextmanager
def one_warning(count: int = N_UNSEEN, of: int = 600) -> Iterator[None]:
    """Check that there is one warning, which counts the labels and names them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(w.message) for w in caught if "does not know" in str(w.message)]
    assert len(texts) == 1, texts
    assert re.match(rf"(.*: )?{count} of {of} labels \('emu'", texts[0]), texts[0]
    assert "count as misses" in texts[0]


@pytest.fixture(scope="module")
def sets() -> sl.PredictionSets:
    model = sl.SplitConformal("lac").fit(SCORES, NAMES[Y])
    return model.predict_set(SCORES, accuracy=0.9)


def test_unseen_labels_are_misses_of_sets(sets: sl.PredictionSets) -> None:
    known = NAMES[Y] == UNSEEN
    expected = np.asarray(sets.contains(NAMES[Y])) & known
    with one_warning():
        assert np.array_equal(sets.contains(UNSEEN), expected)
    with one_warning():
        assert sets.accuracy(UNSEEN) == expected.mean()
    with one_warning():
        by_class = class_accuracy(sets, UNSEEN)
    assert by_class.tolist() == [expected[(name == UNSEEN)].mean() for name in NAMES]
    with one_warning():
        loss = cardinality_loss(sets, UNSEEN, cost="linear", cost_weight=0.1)
    assert loss == pytest.approx(1 - expected.mean() + 0.1 * sets.mean_size)
    with one_warning():
        assert size_stratified_violation(sets, UNSEEN, 0.9) > 0


def test_a_single_row_of_an_unseen_class_is_a_miss(sets: sl.PredictionSets) -> None:
    with one_warning(1, 1):
        assert sets[[5]].accuracy(["emu"]) == 0.0
    with one_warning(2, 2):
        assert np.isnan(sets[:2].class_accuracy(["emu", "emu"])).all()


def test_integers_beside_the_classes_are_misses() -> None:
    sets = sl.PredictionSets.from_lists([[0], [1], [2]], n_classes=3)
    for y in ([0, 7, -1], np.array([0, 7, -1]), torch.tensor([0, 7, -1])):
        with pytest.warns(UserWarning, match=r"2 of 3 labels \(7, -1\) are of classes"):
            assert sets.accuracy(y) == 1 / 3
    with pytest.warns(UserWarning, match=r"1 of 3 labels \('other'\)"):
        assert sets.accuracy([0, 1, "other"]) == 2 / 3


@pytest.mark.parametrize("y", [[0, 1, 2, 3], [True] * 4])
def test_labels_that_can_be_no_class_are_an_error(y: list[object]) -> None:
    """If no label has the type of a class, the labels are probably encoded in another way."""
    sets = sl.PredictionSets.from_lists([["ant"]] * 4, classes=NAMES)
    with pytest.raises(ValueError, match=r"y\[0\] = .* is not one of the 4 classes: 'ant'"):
        sets.accuracy(y)
    numbered = sl.PredictionSets.from_lists([[0]] * 4, n_classes=4)
    with pytest.raises(ValueError, match="y holds str labels"):
        numbered.accuracy(["0", "1", "2", "3"])


def test_the_warning_names_a_few_labels_only(sets: sl.PredictionSets) -> None:
    many = [f"unseen {i}" for i in range(600)]
    with pytest.warns(UserWarning, match=r"600 of 600 labels \('unseen 0', 'unseen 1', 'unseen 2'"):
        assert sets.accuracy(many) == 0
    with pytest.warns(UserWarning, match="does not know") as caught:
        sets.accuracy(many)
    assert len(str(caught[0].message)) < 250


def test_ranks_and_hits_of_families() -> None:
    ranking = sl.Ranking.from_scores(SCORES, classes=NAMES)
    known = NAMES[Y] == UNSEEN
    with one_warning():
        ranks = np.asarray(ranking.rank(UNSEEN))
    assert np.array_equal(ranks, np.where(known, ranking.rank(NAMES[Y]), np.inf))
    for family in (sl.TopK([1, 4]), sl.Custom.from_masks(lambda r: np.ones((len(r), 4), bool))):
        with one_warning():
            hits = np.asarray(family.hits(ranking, UNSEEN))
        assert np.array_equal(hits, np.asarray(family.hits(ranking, NAMES[Y])) & known[:, None])


@pytest.mark.parametrize("name", METHODS)
def test_frontiers_count_unseen_labels_as_misses(name: str) -> None:
    model = METHODS[name]().fit(SCORES, NAMES[Y], X)
    with one_warning():
        curve = model.frontier(SCORES, UNSEEN, X)
    # An accuracy is a share of all rows, and no point of the curve can contain an unseen label.
    assert curve.accuracy.max() <= 1 - N_UNSEEN / 600
    assert curve.rows is not None
    assert not np.asarray(curve.rows[0])[NAMES[Y] != UNSEEN].any()
    known = NAMES[Y] == UNSEEN
    alone = model.frontier(SCORES[known], UNSEEN[known], X[known])
    assert curve.accuracy.max() == pytest.approx(alone.accuracy.max() * known.mean())


@pytest.mark.parametrize("name", METHODS)
def test_evaluation_counts_unseen_labels_as_misses(name: str) -> None:
    model = METHODS[name]()
    model.fit(SCORES[:300], NAMES[Y[:300]], X[:300])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        outcomes = model.evaluate(SCORES, UNSEEN, X, accuracies=[0.5, 0.9])
    for outcome in outcomes:
        assert outcome is None or not outcome.hits[NAMES[Y] != UNSEEN].any()


def test_sets_of_every_label_miss_unseen_labels() -> None:
    model = sl.SplitConformal("lac", on_unreachable="all").fit(SCORES, NAMES[Y])
    with one_warning():
        (outcome,) = model.evaluate(SCORES, UNSEEN, accuracies=[0.9999])
    assert outcome is not None
    assert outcome.sizes.tolist() == [4] * 600
    assert np.array_equal(outcome.hits, NAMES[Y] == UNSEEN)


def test_the_wrapper() -> None:
    model = sl.ShortlistClassifier(LogisticRegression()).fit(X, NAMES[Y])
    with one_warning():
        assert model.frontier(X, UNSEEN).accuracy.max() <= 1 - N_UNSEEN / 600
    with one_warning():
        assert 0 < model.predict_set(X, accuracy=0.9).accuracy(UNSEEN) < 1


def test_compare_and_report(tmp_path: Path) -> None:
    methods = {"LAC": sl.SplitConformal("lac"), "top-k": sl.FixedSelector()}
    with one_warning():
        comparison = sl.compare(
            SCORES, NAMES[Y], test=(SCORES + 1e-3, UNSEEN), methods=methods, accuracies=[0.9]
        )
    sets = comparison.models["LAC"].predict_set(SCORES + 1e-3, accuracy=0.9)
    with one_warning():
        assert comparison.at("LAC", 0.9).guaranteed_accuracy == sets.accuracy(UNSEEN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # The comparison has warned already.
        page = comparison.report(tmp_path / "comparison.html").read_text()
    assert "(unknown class)" in page
    model = sl.SplitConformal("lac").fit(SCORES, NAMES[Y])
    with one_warning():
        page = model.report(SCORES + 1e-3, UNSEEN, path=tmp_path / "model.html").read_text()
    assert "(unknown class)" in page
    plain = model.report(SCORES + 1e-3, NAMES[Y], path=tmp_path / "plain.html").read_text()
    assert "(unknown class)" not in plain


def test_fit_keeps_its_rules() -> None:
    with pytest.raises(ValueError, match="y holds 6 distinct labels"):
        sl.SplitConformal("lac").fit(SCORES, UNSEEN)
    with pytest.raises(ValueError, match="'emu' is not one of the 4 classes"):
        sl.FixedSelector().fit(SCORES, UNSEEN, classes=NAMES)
    with pytest.raises(ValueError, match="'emu' is not one of the 4 classes"):
        sl.SplitConformal("lac").fit(SCORES, NAMES[Y]).calibrate(SCORES[:3], ["emu"] * 3)


# The command line


def call(*words: object, code: int = 0) -> str:
    result: Result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result.output


def frame(labels: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(SCORES, columns=NAMES).assign(y=labels)


def test_predict_and_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame(NAMES[Y]).to_csv(tmp_path / "known.csv", index=False)
    new = frame(UNSEEN).sort_values("y")  # The last block has unseen labels alone.
    new[NAMES] += 1e-3
    new.to_csv(tmp_path / "new.csv", index=False)
    model = tmp_path / "model"
    call("fit", tmp_path / "known.csv", "-o", model, "--method", "lac")
    monkeypatch.setattr("shortlist.datasets.row_files.BLOCK_ROWS", 10)
    with one_warning():
        output = call("predict", model, tmp_path / "new.csv", "-o", tmp_path / "s.jsonl", "--json")
    record = json.loads(output.strip().splitlines()[-1])
    assert record["rows"] == 600
    assert 0 < record["accuracy"] <= 1 - N_UNSEEN / 600
    assert math.isclose(record["accuracy"] * 600, round(record["accuracy"] * 600))
    with one_warning():
        call("compare", tmp_path / "known.csv", "--test", tmp_path / "new.csv",
             "--max-epochs", 1, "--accuracies", 0.9)  # fmt: skip
