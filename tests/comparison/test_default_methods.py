"""The methods that `compare` measures by default, and the stages that it can add."""

from __future__ import annotations

import numpy as np
import pytest
from compared_methods import ComparedMethods
from numpy.typing import NDArray
from recorded_calls import Call, RecordingConformal, select_calls
from small_methods import N_CLASSES, draw_rows, only_lac, shortlister, two_methods

import shortlist as sl
from shortlist.comparison import ACCURACIES, default_methods


def test_default_methods() -> None:
    methods = default_methods(has_features=True, seed=7)
    assert list(methods) == [
        "Shortlister",
        "networks, retrained",
        "logistic, retrained",
        "top-k",
        "LAC",
        "APS",
        "RAPS",
        "SAPS",
        "plug-in, log cost",
        "paper's selectors",
        "paper's, with scores",
    ]
    assert all(method.random_state == 7 for method in methods.values())  # type: ignore[attr-defined]
    scores = {n: m.score for n, m in methods.items() if isinstance(m, sl.SplitConformal)}
    assert scores == {
        n: n.lower().replace("-", "") for n in ("top-k", "LAC", "APS", "RAPS", "SAPS")
    }
    for_size = [n for n, m in methods.items() if getattr(m, "temperature", None) == "size"]
    assert for_size == ["APS", "RAPS", "SAPS"]
    for has_features, inputs in ((True, ["features", "both"]), (False, ["scores"])):
        methods = default_methods(has_features)
        paths = [m for m in methods.values() if isinstance(m, sl.CardinalityPath)]
        assert [path.inputs for path in paths] == inputs
        assert {len(path.cost_weights) for path in paths} == {20}  # type: ignore[arg-type]


def test_a_retrained_classifier_needs_features_and_scores_of_all_classes() -> None:
    for has_features, is_dense in ((False, True), (True, False)):
        names = default_methods(has_features, is_dense=is_dense)
        assert not any("retrained" in name for name in names)


def test_all_default_methods_run_on_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained_briefly(
        has_features: bool, seed: int = 0, *, is_dense: bool
    ) -> dict[str, sl.SetPredictor]:
        methods = default_methods(has_features, seed, is_dense=is_dense)
        for method in methods.values():
            if "max_epochs" in method.get_params():  # type: ignore[attr-defined]
                method.set_params(max_epochs=5)  # type: ignore[attr-defined]
        return methods

    monkeypatch.setattr("shortlist.comparison.methods.default_methods", trained_briefly)
    comparison = sl.compare(*draw_rows(100, 1), random_state=3)
    assert list(comparison.curves) == [*default_methods(has_features=True), "LAC, re-scored"]
    assert comparison.accuracies == ACCURACIES
    # The paper's selectors learn too little from these rows to reach every accuracy.
    frame = comparison.to_frame().set_index("method")
    frame = frame[~frame.index.str.startswith("paper's")]
    assert frame["size"].between(1, N_CLASSES).all()
    assert frame["guaranteed_size"][frame["accuracy"] == 0.9].between(1, N_CLASSES).all()
    # These rows are too few for the Shortlister to train networks.
    assert comparison.models["Shortlister"].history_ == {}  # type: ignore[attr-defined]
    assert all(m.random_state == 3 for m in comparison.models.values())  # type: ignore[attr-defined]


def test_the_default_adds_lac_on_rescored_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def small_default_methods(
        has_features: bool, seed: int = 0, *, is_dense: bool
    ) -> dict[str, sl.SetPredictor]:
        requests.append((has_features, seed, is_dense))
        return two_methods()

    monkeypatch.setattr("shortlist.comparison.methods.default_methods", small_default_methods)
    comparison = sl.compare(*draw_rows(450, 1), random_state=4)
    assert list(comparison.curves) == ["Shortlister", "RAPS", "LAC, re-scored"]
    comparison = sl.compare(*draw_rows(450, 1)[:2])
    assert list(comparison.curves) == ["Shortlister", "RAPS"]
    assert requests == [(True, 4, True), (False, 0, True)]


def test_stages_add_ablations_and_rescored_methods(compared: ComparedMethods) -> None:
    comparison = compared.comparison
    added = ["Shortlister, no re-scoring", "LAC, re-scored", "RAPS, re-scored", "SAPS, re-scored"]
    names = [*compared.methods, *added]
    assert list(comparison.curves) == list(comparison.models) == names
    assert [m.method for m in comparison.measurements[::2]] == names
    whole = comparison.models["Shortlister"]
    ablation = comparison.models["Shortlister, no re-scoring"]
    assert whole.rescored_
    assert not ablation.rescored_
    parameters = whole.get_params()
    changed = {key for key, value in ablation.get_params().items() if value != parameters[key]}
    assert changed == {"rescore"}
    by_hand = shortlister(rescore=False, calibration=None).fit(*compared.train)
    curve = by_hand.frontier(*compared.test)
    assert comparison.at("Shortlister, no re-scoring", 0.75).size == curve.size_at(0.75)
    # The features are informative, so re-scored sets are smaller.
    assert comparison.at("LAC, re-scored", 0.75).size < 0.9 * comparison.at("LAC", 0.75).size
    for name in added[1:]:
        assert comparison.at(name, 0.75).guaranteed_accuracy > 0.65


@pytest.mark.parametrize(
    ("methods", "has_features", "stages", "expected"),
    [
        ({"Shortlister": shortlister()}, False, True, ["Shortlister"]),
        (only_lac(), True, True, ["LAC"]),
        (
            {"Shortlister": shortlister(rescore=False)},
            True,
            True,
            ["Shortlister", "Shortlister, no re-scoring"],
        ),
        ({"Shortlister": shortlister()}, True, False, ["Shortlister"]),
    ],
    ids=["no features", "no Shortlister", "no re-scoring", "no stages"],
)
def test_stages_need_features_and_a_shortlister(
    methods: dict[str, sl.SetPredictor], has_features: bool, stages: bool, expected: list[str]
) -> None:
    scores, y, x = draw_rows(400, 1)
    features = x if has_features else None
    comparison = sl.compare(scores, y, features, methods=methods, stages=stages)
    assert list(comparison.curves) == expected


def _mean_log_proba(ranking: sl.Ranking, y: NDArray[np.int64]) -> float:
    """Return the mean log-probability of the labels."""
    log_p = ranking.scores_of(slice(None)).numpy()
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1, rtol=1e-4)
    return float(log_p[np.arange(len(y)), y].mean())


def test_rescored_training_rows_are_out_of_fold(
    calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, test = draw_rows(400, 1), draw_rows(400, 2)
    rng = np.random.default_rng(0)
    known_x, test_x = (
        np.column_stack([part[2], rng.normal(size=(400, 20))]) for part in (known, test)
    )
    monkeypatch.setattr("shortlist.comparison.plan.SplitConformal", RecordingConformal)
    methods: dict[str, sl.SetPredictor] = {
        # The network is wide, and is trained long enough to memorize the rows.
        "Shortlister": shortlister(rescore=True, width=128, max_epochs=20, patience=20),
        "recording": RecordingConformal("margin"),
    }
    comparison = sl.compare(
        *known[:2], known_x, test=(*test[:2], test_x), methods=methods, stages=True
    )
    model = comparison.models["Shortlister"]
    assert isinstance(model, sl.Shortlister)
    train = select_calls(calls, "fit", "margin")[0].row_numbers // 2
    scores, y, x = known[0][train], known[1][train], known_x[train]
    memorized = _mean_log_proba(model.rescored(scores, x), y)
    out_of_fold = model.out_of_fold(scores, x).scores_of(slice(None))
    for score in ("lac", "raps", "saps"):
        fit, calibrate, frontier = (
            select_calls(calls, method, score)[0] for method in ("fit", "calibrate", "frontier")
        )
        np.testing.assert_array_equal(fit.ranking.scores_of(slice(None)), out_of_fold)
        np.testing.assert_array_equal(fit.y, y)
        assert (len(calibrate.ranking), len(frontier.ranking)) == (100, 400)
        assert fit.features is calibrate.features is frontier.features is None
        on_train, on_calibration, on_test = (
            _mean_log_proba(call.ranking, call.y)  # type: ignore[arg-type]
            for call in (fit, calibrate, frontier)
        )
        # Training rows must look like new rows to these methods, not like memorized ones.
        assert abs(on_train - on_test) < 0.15
        assert abs(on_calibration - on_test) < 0.15
        assert memorized > on_train + 0.3
