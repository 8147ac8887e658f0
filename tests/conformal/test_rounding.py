"""Sets do not depend on the batch, type, memory order, threads, file or graph of a row.

With few distinct rows, the true labels of many calibration rows have exactly the level of the
threshold, so that an error in the last digit would remove the label from all of their sets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from worlds import World

import shortlist as sl

Labels = list[list[object]]
ACCURACIES = (0.5, 0.8, 0.9)
NETWORKS = {"effort": "fast", "max_epochs": 4, "width": 32, "progress": False}
CONFORMAL: dict[str, Callable[[], sl.SetPredictor]] = {
    **{name: lambda name=name: sl.SplitConformal(name) for name in ("lac", "aps", "raps", "saps")},
    "margin": lambda: sl.SplitConformal("margin"),
    "topk": lambda: sl.SplitConformal("topk", randomized=True),
    "lac, as given": lambda: sl.SplitConformal("lac", temperature=None),
    "aps, as given": lambda: sl.SplitConformal("aps", temperature=None, randomized=True),
    "plug-in": lambda: sl.PlugInSelector(cost="log", cost_weight=None, calibration=0.5),
}
LEARNED: dict[str, Callable[[], sl.SetPredictor]] = {
    "both stages": lambda: sl.Shortlister(rescore=True, learn_sizes=True, **NETWORKS),
    "re-scored": lambda: sl.Shortlister(rescore=True, learn_sizes=False, **NETWORKS),
    "sizes": lambda: sl.Shortlister(rescore=False, learn_sizes=True, **NETWORKS),
}


def ways(
    model: sl.SetPredictor, scores: NDArray, features: NDArray | None, accuracy: float
) -> dict[str, Labels]:
    """Return the sets of the distinct rows, predicted in many ways."""
    kinds = np.arange(len(scores))
    many = np.tile(kinds, 70)

    def sets(s: object, x: object = None) -> Labels:
        given = None if features is None else x
        return model.predict_set(s, given, accuracy=accuracy).labels()[: len(kinds)]  # type: ignore[arg-type, call-arg]

    x = np.zeros((len(scores), 1)) if features is None else features
    single, x32 = scores.astype(np.float32), x.astype(np.float32)
    result = {
        "float64": sets(scores[many], x[many]),
        "float32": sets(single[many], x32[many]),
        "one by one": [sets(single[[k]], x32[[k]])[0] for k in kinds],
        "a few": sets(single, x32),
        "by column": sets(np.asfortranarray(single[many]), np.asfortranarray(x32[many])),
        "strided": sets(np.repeat(single[many], 2, axis=0)[::2], np.repeat(x32[many], 2, 0)[::2]),
        "torch": sets(torch.tensor(single[many]), torch.tensor(x32[many])),
        "frame": sets(pd.DataFrame(scores[many]), pd.DataFrame(x[many])),
        "mixed types": sets(scores[many], x32[many]),
    }
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        result["threads"] = sets(single[many], x32[many])
    finally:
        torch.set_num_threads(threads)
    return result


def check_alike(result: dict[str, Labels]) -> Labels:
    first = next(iter(result.values()))
    assert {name: labels for name, labels in result.items() if labels != first} == {}
    return first


@pytest.mark.parametrize("name", CONFORMAL)
@given(seed=st.integers(0, 10_000), logits=st.booleans())
@settings(max_examples=8, deadline=None)
def test_sets_do_not_depend_on_how_rows_are_given(name: str, seed: int, logits: bool) -> None:
    world = World.of(seed)
    scores = world.logits if logits else world.proba
    kinds, y = world.draw(300, seed)
    model = CONFORMAL[name]().fit(scores[kinds].astype(np.float32), y)
    for accuracy in ACCURACIES:
        check_alike(ways(model, scores, None, accuracy))


@pytest.mark.filterwarnings("ignore:.*are among those that fit learned from")
@pytest.mark.parametrize("name", LEARNED)
def test_the_accuracy_is_kept_however_rows_are_given(name: str, tmp_path: Path) -> None:
    """The networks of learned stages round differently in every batch."""
    for seed in range(2):
        world = World.of(seed)
        kinds, y = world.draw(800, seed)
        model = LEARNED[name]()
        model.set_params(calibration=None)
        model.fit(world.logits[kinds].astype(np.float32), y, world.features[kinds])
        kept: dict[float, list[float]] = {accuracy: [] for accuracy in ACCURACIES}
        for repetition in range(4):
            kinds, y = world.draw(99, 1000 + repetition)
            model.calibrate(world.logits[kinds], y, world.features[kinds])  # type: ignore[attr-defined]
            if repetition == 0:
                model.save(tmp_path / f"{seed}")
                again = sl.load(tmp_path / f"{seed}")
            for accuracy in ACCURACIES:
                result = ways(model, world.logits, world.features, accuracy)
                if repetition == 0:
                    result |= {
                        f"{way}, loaded": labels
                        for way, labels in ways(
                            again, world.logits, world.features, accuracy
                        ).items()
                    }
                kept[accuracy].append(world.accuracy(check_alike(result)))
        for accuracy, values in kept.items():
            # Four calibrations of 99 rows: the standard deviation of the mean is at most 0.025.
            assert np.mean(values) > accuracy - 0.05


@pytest.mark.parametrize("name", ["lac", "aps", "raps", "plug-in", "both stages", "sizes"])
def test_a_graph_has_the_same_sets(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    world = World.of(5)
    kinds, y = world.draw(800, 5)
    features = world.features if name in LEARNED else None
    make = {**CONFORMAL, **LEARNED}[name]
    model = make().fit(world.logits[kinds], y, None if features is None else features[kinds])
    for dtype in ("float32", "float64"):
        for accuracy in ACCURACIES:
            path = tmp_path / f"{dtype}-{accuracy}.onnx"
            model.export_onnx(path, accuracy=accuracy, dtype=dtype)
            session = onnxruntime.InferenceSession(path)
            feeds = {"scores": world.logits.astype(dtype)}
            if any(one.name == "features" for one in session.get_inputs()):
                feeds["features"] = world.features.astype(dtype)
            labels, sizes, _ = session.run(None, feeds)
            got = [row[:size].tolist() for row, size in zip(labels, sizes, strict=True)]
            assert got == check_alike(ways(model, world.logits, features, accuracy))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", [*CONFORMAL, *LEARNED])
def test_a_gpu_has_the_same_sets(name: str) -> None:
    for seed in range(3):
        world = World.of(seed)
        kinds, y = world.draw(800, seed)
        features = world.features if name in LEARNED else None
        make = {**CONFORMAL, **LEARNED}[name]
        model = make().fit(world.logits[kinds], y, None if features is None else features[kinds])
        there = torch.tensor(world.logits, device="cuda")
        x = None if features is None else torch.tensor(features, device="cuda")
        for accuracy in ACCURACIES:
            here = check_alike(ways(model, world.logits, features, accuracy))
            assert model.predict_set(there, x, accuracy=accuracy).labels() == here  # type: ignore[call-arg]


def test_half_precision_rows_are_rounded_as_the_calibration_rows_were() -> None:
    world = World.of(7)
    kinds, y = world.draw(300, 7)
    half = world.logits.astype(np.float16)
    model = sl.SplitConformal("aps", temperature=None).fit(half[kinds], y)
    for accuracy in ACCURACIES:
        expected = model.predict_set(half, accuracy=accuracy).labels()
        for dtype in (np.float32, np.float64):
            result = model.predict_set(world.logits.astype(dtype), accuracy=accuracy)
            assert result.labels() == expected
    model.fit(world.logits[kinds], y)
    with pytest.warns(UserWarning, match="had float32 scores, but these are float16"):
        model.predict_set(half, accuracy=0.8)


def test_a_ranking_with_rounding_has_a_last_rank_for_each_label() -> None:
    ranking = sl.Ranking.from_scores(torch.tensor([[1.0, 1.0005, 0.9995, 0.5]] * 4))
    index = torch.arange(4)
    assert ranking.last_rank_of(index).tolist() == [1, 0, 2, 3]
    ranking.rounding = 2.0**-10
    assert ranking.last_rank_of(index).tolist() == [2, 1, 2, 3]
    listed = sl.Ranking.from_candidates([[5, 2, 7]] * 2, [[0.5, 0.4999, 0.1]] * 2, n_classes=9)
    listed.rounding = 2.0**-10
    assert listed.last_rank_of(torch.tensor([5, 3])).tolist() == [1, np.inf]


def test_features_that_float32_cannot_tell_apart_stay_in_float64() -> None:
    rng = np.random.default_rng(0)
    x = 1e9 + rng.integers(0, 4, size=(600, 1)).astype(np.float64)
    y = (x[:, 0] - 1e9).astype(np.int64)
    scores = rng.normal(size=(600, 4))
    model = sl.Shortlister(rescore=True, effort="fast", progress=False).fit(scores, y, x)
    assert model.predict_set(scores, x, accuracy=0.9).mean_size < 1.5
    with pytest.warns(UserWarning, match="fit saw float64 features that torch.float32 cannot"):
        model.predict_set(scores, x.astype(np.float32), accuracy=0.9)
