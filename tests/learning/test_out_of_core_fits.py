"""Fits on data larger than memory equal fits in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn

import shortlist as sl
from shortlist._utils import out_of_core
from shortlist._utils.out_of_core import (
    LazyMatrix,
    take_rows,
)
from shortlist.datasets import Rows, read_rows
from shortlist.learning import training
from shortlist.learning.networks import Stack, Standardize, perceptron
from shortlist.learning.settings import TrainingSettings, build_with_seed
from shortlist.learning.training import train
from shortlist.predictors.shortlister.opinions import Neighbors

SETTINGS = TrainingSettings(learning_rate=0.01, batch_size=16, max_epochs=3, seed=5)


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keep only windows of a few chunks in memory; return the folder of temporary files."""
    monkeypatch.setattr(out_of_core, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(out_of_core, "COPY_BYTES", 1 << 10)
    monkeypatch.setattr(out_of_core, "WINDOW_BYTES", 1 << 16)
    monkeypatch.setattr(out_of_core, "CHUNK_BYTES", 1 << 9)
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def examples(rows: int = 1200, classes: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores, labels and informative features, sorted by label as image files often are."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 8, generator=generator)
    scores = 2 * torch.randn(rows, classes, generator=generator)
    z = scores + 2 * x @ torch.randn(8, classes, generator=generator)
    y = torch.multinomial(torch.softmax(z, dim=1), 1, generator=generator)[:, 0]
    order = torch.argsort(y, stable=True)
    return scores[order], y[order], x[order]


# Training


class Recorder:
    """A loss that records the rows of training batches and of validation batches."""

    def __init__(self, calls: float = float("inf")) -> None:
        self.batches: list[Tensor] = []
        self.validated: list[Tensor] = []
        self.remaining = calls

    def __call__(self, outputs: Tensor, y: Tensor, ids: Tensor) -> Tensor:
        self.remaining -= 1
        if self.remaining < 0:
            raise KeyboardInterrupt
        (self.batches if torch.is_grad_enabled() else self.validated).append(ids)
        if outputs.ndim == 2:
            return nn.functional.cross_entropy(outputs, y)
        each = y.expand(outputs.shape[:-1]).reshape(-1)
        loss = nn.functional.cross_entropy(outputs.flatten(0, 1), each, reduction="none")
        return loss.view(outputs.shape[:-1])


def trained(
    record: Recorder, lazy: bool, folds: bool = False, checkpoint: Path | None = None
) -> nn.Module:
    _, y, x = examples(700, 4)
    prototype = build_with_seed(lambda: perceptron(8, 4, 8, dropout=0.2), 0)
    network: nn.Module = Stack(prototype, 3) if folds else prototype
    train(
        network,
        LazyMatrix(len(x), lambda rows: x[rows]) if lazy else x,
        [y, torch.arange(len(y))],
        record,
        SETTINGS,
        members=["a", "b", "c"] if folds else None,
        folds=torch.arange(len(y)) % 3 if folds else None,
        checkpoint=checkpoint,
    )
    return network


@pytest.mark.parametrize("folds", [False, True])
def test_an_epoch_of_windows_contains_every_row_once(small_window: Path, folds: bool) -> None:
    record = Recorder()
    trained(record, lazy=False, folds=folds)
    learned = 700 if folds else 630
    each = -(-learned // 16)
    assert [len(rows) for rows in record.batches] == 3 * ([16] * (each - 1) + [learned % 16 or 16])
    epochs = [torch.cat(record.batches[i * each : (i + 1) * each]) for i in range(3)]
    assert not torch.equal(epochs[0], epochs[1])
    for epoch in epochs:
        assert torch.equal(epoch.sort().values, epochs[0].sort().values)
        assert len(torch.unique(epoch)) == learned
    held_out = torch.cat([rows.flatten() for rows in record.validated])
    assert len(torch.unique(held_out)) == (700 if folds else 70)
    if not folds:
        assert not torch.isin(held_out, epochs[0]).any()


@pytest.mark.parametrize("folds", [False, True])
def test_lazy_inputs_train_like_tensors(small_window: Path, folds: bool) -> None:
    dense, lazy = trained(Recorder(), False, folds), trained(Recorder(), True, folds)
    for a, b in zip(dense.state_dict().values(), lazy.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_an_interrupted_training_is_resumed(small_window: Path, tmp_path: Path) -> None:
    whole = trained(Recorder(), lazy=True)
    path = tmp_path / "fit.ckpt"
    with pytest.raises(KeyboardInterrupt):
        trained(Recorder(calls=70), lazy=True, checkpoint=path)
    assert path.exists()
    recorder = Recorder()
    resumed = trained(recorder, lazy=True, checkpoint=path)
    assert len(recorder.batches) == 2 * 40  # Two of three epochs.
    assert not path.exists()
    for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_means_and_neighbors_are_computed_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    _, y, x = examples()
    x = 5 * x + 3
    whole = Standardize.from_data(x)
    near = Neighbors(whole, 12, 0).fit(x, y)
    monkeypatch.setattr(out_of_core, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr("shortlist._utils.blocks.BLOCK_ELEMENTS", 1000)
    monkeypatch.setattr("shortlist.predictors.shortlister.opinions.neighbors.MAX_ROWS", 700)
    parts = Standardize.from_data(LazyMatrix(len(x), lambda rows: x[rows]))
    torch.testing.assert_close(parts.mean, whole.mean)
    torch.testing.assert_close(parts.scale, whole.scale)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    sampled = Neighbors(parts, 12, 0).fit(take_rows(x, order), y[order])
    assert near.root is not None
    torch.testing.assert_close(sampled.root, near.root)
    assert torch.equal(sampled.index, sampled.index.sort().values)
    cosines = (
        sampled.directions @ near.directions.T
    )  # Each sampled direction is one of all directions.
    assert len(cosines) == 700
    best = cosines.max(dim=1)
    torch.testing.assert_close(best.values, torch.ones(700))
    assert torch.equal(near.index[best.indices], sampled.index)


# Models


def shortlister(**given: object) -> sl.Shortlister:
    return sl.Shortlister(
        effort="fast",
        max_epochs=6,
        folds=3,
        width=32,
        rank_width=16,
        rescore=True,
        learn_sizes=True,
        **given,
    )


def outcome(model: sl.Shortlister, listed: bool = False) -> tuple[float, float]:
    """Return accuracy and mean size on new rows."""
    scores, y, x = examples(6000)
    new = slice(1, None, 2)
    sets = model.predict_set(given_as(scores[new], listed), features=x[new], accuracy=0.8)
    return float(sets.accuracy(y[new])), float(sets.mean_size)


def mean_validation_loss(model: sl.Shortlister) -> list[float]:
    """Return the mean validation loss over the networks of each stage."""
    return [float(np.mean(np.min(of.validation_loss, axis=0))) for of in model.history_.values()]


def given_as(scores: Tensor, listed: bool) -> Tensor | sl.Ranking:
    if not listed:
        return scores
    best = torch.topk(torch.softmax(scores, dim=1), 8, dim=1)
    return sl.Ranking.from_candidates(best.indices, best.values, n_classes=scores.shape[1])


@pytest.mark.parametrize("listed", [False, True])
def test_a_shortlister_learns_through_windows_what_it_learns_in_memory(
    request: pytest.FixtureRequest, listed: bool
) -> None:
    scores, y, x = (part[::2] for part in examples(6000))
    whole = shortlister(accuracy=0.9).fit(given_as(scores, listed), y, x)
    plain = outcome(whole, listed)
    folder: Path = request.getfixturevalue("small_window")
    fitted = [shortlister(accuracy=0.9).fit(given_as(scores, listed), y, x) for _ in range(2)]
    # The rows are sorted by label. Without shuffling across windows, the loss is 4% higher. In
    # memory, each member has batches of its own, which makes a difference of up to 2%.
    losses = [mean_validation_loss(model) for model in (fitted[0], whole)]
    np.testing.assert_allclose(*losses, rtol=0.02)
    accuracy, size = outcome(fitted[0], listed)
    assert abs(accuracy - plain[0]) < 0.02
    assert abs(size - plain[1]) < 0.05 * plain[1]
    alone = sl.SplitConformal("aps").fit(scores, y).predict_set(scores, accuracy=0.8)
    assert listed or size < 0.8 * alone.mean_size  # The features help.
    assert outcome(fitted[1], listed) == (accuracy, size)
    assert np.array_equal(fitted[0]._calibration.levels, fitted[1]._calibration.levels)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("listed", [False, True])
def test_extra_rows_are_read_through_windows(request: pytest.FixtureRequest, listed: bool) -> None:
    scores, y, x = (part[::2] for part in examples(3000))
    _, extra_y, extra_x = (part[1::2] for part in examples(3000))
    more = {"extra_features": extra_x, "extra_y": extra_y}
    learners = [DecisionTreeClassifier(max_depth=6, random_state=0)]
    model = shortlister(accuracy=0.9, learners=learners)
    plain = outcome(model.fit(given_as(scores, listed), y, x, **more), listed)
    folder: Path = request.getfixturevalue("small_window")
    results = [outcome(model.fit(given_as(scores, listed), y, x, **more), listed) for _ in range(2)]
    assert results[0] == results[1]
    assert abs(results[0][0] - plain[0]) < 0.02
    assert abs(results[0][1] - plain[1]) < 0.05 * plain[1]
    assert list(folder.iterdir()) == []


def test_batches_do_not_depend_on_the_number_of_threads(small_window: Path) -> None:
    before = torch.get_num_threads()
    orders = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            record = Recorder()
            trained(record, lazy=True, folds=True)
            orders.append(torch.cat(record.batches))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*orders)


def test_only_the_features_are_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, y, x = (part[::2] for part in examples(6000, 6))
    x = torch.cat([x, torch.randn(len(x), 40, generator=torch.Generator().manual_seed(0))], dim=1)
    plain = shortlister(accuracy=0.9).fit(scores, y, x).predict_set(scores, features=x)
    monkeypatch.setattr(out_of_core, "MAX_BYTES_IN_MEMORY", 4 * scores.numel())
    model = shortlister(accuracy=0.9).fit(scores, y, x)
    sets = model.predict_set(scores, features=x)
    assert abs(sets.mean_size - plain.mean_size) < 0.05 * plain.mean_size
    assert abs(sets.accuracy(y) - plain.accuracy(y)) < 0.02


def easy_and_hard(rows: int = 2000, classes: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores, labels and features of easy and hard rows, sorted by the first feature.

    The sign of the first feature determines how hard a row is.
    """
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 8, generator=generator)
    sharpness = torch.where(x[:, :1] > 0, 6.0, 0.7)
    scores = sharpness * torch.randn(rows, classes, generator=generator)
    y = torch.multinomial(torch.softmax(scores, dim=1), 1, generator=generator)[:, 0]
    order = torch.argsort(x[:, 0])
    return scores[order], y[order], x[order]


FAMILIES: dict[str, Callable[[], sl.Family]] = {
    "top-k": lambda: sl.TopK([1, 2, 4, 8]),
    "threshold": lambda: sl.Threshold([2.0, 0.0, -2.0]),
    "conformal": lambda: sl.Conformal("aps", [0.5, 0.8, 0.9]),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("inputs", ["features", "scores", "both"])
def test_a_path_learns_through_windows_what_it_learns_in_memory(
    request: pytest.FixtureRequest, inputs: str, family: str
) -> None:
    scores, y, x = easy_and_hard()
    path = sl.CardinalityPath(
        FAMILIES[family](), cost_weights=[0.3, 0.1], inputs=inputs, width=32, max_epochs=5
    )

    def held_out() -> np.ndarray:
        return np.min(path.fit(scores, y, x).history_.validation_loss, axis=0)

    # Losses are compared, because the chosen sets vary more from seed to seed.
    plain = held_out()
    folder: Path = request.getfixturevalue("small_window")
    result = held_out()
    # Shuffles differ by at most 0.0005; wrong rows would cost at least 0.002.
    np.testing.assert_allclose(result, plain, rtol=1e-3)
    assert np.array_equal(held_out(), result)
    assert list(folder.iterdir()) == []


def test_an_interrupted_selector_is_resumed(
    small_window: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, y, x = examples()
    path = tmp_path / "fit.ckpt"
    selector = sl.CardinalitySelector(inputs="both", width=16, max_epochs=3, checkpoint=path)
    whole = selector.fit(scores, y, x).choose(scores, x)
    epochs = []
    original = training.TrainingRun.epoch

    def epoch(run: object) -> None:
        if len(epochs) == 2:
            raise KeyboardInterrupt
        epochs.append(0)
        original(run)  # type: ignore[arg-type]

    with monkeypatch.context() as stopping:
        stopping.setattr("shortlist.learning.training.TrainingRun.epoch", epoch)
        with pytest.raises(KeyboardInterrupt):
            selector.fit(scores, y, x)
    assert path.exists()
    assert list(small_window.iterdir()) == []
    assert torch.equal(torch.as_tensor(selector.fit(scores, y, x).choose(scores, x)), whole)


def test_a_linear_classifier_learns_through_windows(request: pytest.FixtureRequest) -> None:
    _, y, x = (part.numpy() for part in examples(4000))
    h = sl.LinearClassifier(max_epochs=20, learning_rate=0.01)
    plain = min(h.fit(x, y).history_.validation_loss)
    request.getfixturevalue("small_window")
    # The rows are sorted by label. Without shuffling, the loss is 7% higher.
    assert min(h.fit(x, y).history_.validation_loss) == pytest.approx(plain, rel=0.02)


# Files


@pytest.mark.parametrize("named", [True, False])
def test_a_large_parquet_file_is_read_like_a_small_one(
    request: pytest.FixtureRequest, tmp_path: Path, named: bool
) -> None:
    scores, y, x = (part.numpy() for part in examples(300, 5))
    file = tmp_path / "rows.parquet"
    if named:
        frame = pd.DataFrame(scores, columns=list("abcde"))
        frame = frame.assign(**{f"x_{i}": column for i, column in enumerate(x.T)})
        frame = frame.assign(x_whole=pd.array([*range(299), None], dtype="Int64"))
        frame["x_whole"] = frame.x_whole.fillna(7).astype("int64")
        frame["y"] = np.array(list("abcde"))[y]
    else:
        frame = pd.DataFrame({"scores": list(scores), "features": list(x), "y": y})
    frame.to_parquet(file)
    small = read_rows(file)
    folder: Path = request.getfixturevalue("small_window")
    large = read_rows(file)
    assert isinstance(large.scores, np.memmap)
    assert isinstance(large.features, np.memmap)
    for part in ("scores", "features", "y", "classes"):
        one, other = getattr(small, part), getattr(large, part)
        assert (one is None and other is None) or np.array_equal(one, other)
    assert large.feature_names == small.feature_names
    assert list(folder.iterdir()) == []


def test_a_large_parquet_file_of_candidates_is_read_into_memory(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    rows = {"labels": [[0, 1], [2]] * 50, "scores": [[0.5, 0.3], [0.9]] * 50, "y": [0, 2] * 50}
    pd.DataFrame(rows).to_parquet(file)
    request.getfixturevalue("small_window")
    result = read_rows(file)
    assert [list(row) for row in result.labels] == rows["labels"]


def test_rows_of_different_length_in_parts_of_a_file_are_an_error(
    small_window: Path, tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    scores = [[0.1, 0.9]] * 500 + [[0.1, 0.9, 0.0]] * 500
    pd.DataFrame({"scores": scores, "y": [0, 1] * 500}).to_parquet(file)
    with pytest.raises(ValueError, match="scores differ in length from row to row"):
        read_rows(file)


@pytest.mark.parametrize("feature_names", [None, list("stuvwxyz")])
def test_the_command_line_fits_a_path_on_some_rows_of_large_arrays(
    request: pytest.FixtureRequest, feature_names: list[str] | None
) -> None:
    from shortlist.cli.fit import _fit_rows

    scores, y, x = (part.numpy() for part in examples(600))
    rows = Rows(scores, y=y, features=x, feature_names=feature_names)
    path = sl.CardinalityPath(cost_weights=[0.1], max_epochs=2, width=8)
    _fit_rows(path, rows, 0.25, 0)
    plain = path._path_calibration
    request.getfixturevalue("small_window")
    again = replace(rows, scores=np.array(scores))
    _fit_rows(path, again, 0.25, 0)
    assert path._path_calibration.n_rows == plain.n_rows == 150
    assert abs(path._path_calibration.hits[0] - plain.hits[0]) < 25
