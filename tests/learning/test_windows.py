"""The shuffling window, and what else lets a fit do without its data in memory."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import shortlist as sl
from shortlist._utils import scratch as _scratch
from shortlist._utils.lazy import (
    LazyMatrix,
    gather_columns,
    hstack,
    is_large_matrix,
    materialize,
    take_rows,
    to_device,
)
from shortlist.io.rows import Rows, read_rows
from shortlist.learning import training
from shortlist.learning import windows as _windows
from shortlist.learning.networks import Stack, Standardize, perceptron
from shortlist.learning.settings import Training, seeded
from shortlist.learning.training import train
from shortlist.learning.windows import Examples, windows
from shortlist.predictors.shortlister.neighbours import Neighbours

SETTINGS = Training(learning_rate=0.01, batch_size=16, max_epochs=3, seed=5)


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing is held in memory but windows of a few chunks; the folder of temporary files."""
    monkeypatch.setattr(_scratch, "IN_MEMORY", 0)
    monkeypatch.setattr(_scratch, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(_windows, "WINDOW", 1 << 16)
    monkeypatch.setattr(_windows, "CHUNK", 1 << 9)
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def examples(rows: int = 1200, classes: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, labels and features that tell more than the scores; sorted by label, as files of
    pictures often are."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 8, generator=generator)
    seen = 2 * torch.randn(rows, classes, generator=generator)
    z = seen + 2 * x @ torch.randn(8, classes, generator=generator)
    y = torch.multinomial(torch.softmax(z, dim=1), 1, generator=generator)[:, 0]
    order = torch.argsort(y, stable=True)
    return seen[order], y[order], x[order]


# The order


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 400), st.integers(0, 99))
def test_windows_hold_every_row_once(rows: int, chunk: int, window: int, seed: int) -> None:
    found = windows(rows, chunk, window, torch.Generator().manual_seed(seed))
    assert torch.equal(torch.cat(found).sort().values, torch.arange(rows))
    assert all(len(one) == window for one in found[:-1])


def test_a_window_is_read_by_chunks_from_all_over_the_data() -> None:
    found = windows(10_000, 10, 1000, torch.Generator().manual_seed(0))
    for window in found:
        assert len(torch.unique(window // 10)) == 100  # whole chunks
        assert window.min() < 1000 < 9000 < window.max()
        correlation = np.corrcoef(window.numpy(), np.arange(1000))[0, 1]
        assert abs(correlation) < 0.15  # in no order
    again = windows(10_000, 10, 1000, torch.Generator().manual_seed(0))
    other = windows(10_000, 10, 1000, torch.Generator().manual_seed(1))
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
    assert not torch.equal(found[0], other[0])


def test_what_fits_is_shuffled_as_ever() -> None:
    whole = Examples((torch.zeros(50, 3),), (torch.zeros(50),))
    assert not whole.windowed
    (order,) = whole.order(40, 8, torch.Generator().manual_seed(4))
    assert torch.equal(order, torch.randperm(40, generator=torch.Generator().manual_seed(4)))
    assert whole.at_hand(order) == (whole, order)


def test_of_examples_at_hand_each_row_is_in_its_place(small_window: Path) -> None:
    numbers = torch.arange(90)
    all_ = Examples((numbers[:, None] * 2.0,), (numbers,), numbers % 3)
    for rows in all_.order(90, 16, torch.Generator().manual_seed(0)):
        at_hand, places = all_.at_hand(rows)
        assert torch.equal(at_hand.targets[0].diff() > 0, torch.ones(len(rows) - 1).bool())
        batch = at_hand[places]
        assert torch.equal(batch.inputs[0][:, 0], rows * 2.0)
        assert torch.equal(batch.targets[0], rows)
        assert torch.equal(batch.folds, rows % 3)


# Training


class Recorder:
    """A loss that writes down the rows that it trains on, and those that it only looks at."""

    def __init__(self, left: float = float("inf")) -> None:
        self.batches: list[Tensor] = []
        self.looked_at: list[Tensor] = []
        self.left = left

    def __call__(self, outputs: Tensor, y: Tensor, ids: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        (self.batches if torch.is_grad_enabled() else self.looked_at).append(ids)
        if outputs.ndim == 2:
            return nn.functional.cross_entropy(outputs, y)
        each = y.expand(outputs.shape[:-1]).reshape(-1)
        loss = nn.functional.cross_entropy(outputs.flatten(0, 1), each, reduction="none")
        return loss.view(outputs.shape[:-1])


def trained(
    record: Recorder, made: bool, folds: bool = False, checkpoint: Path | None = None
) -> nn.Module:
    _, y, x = examples(700, 4)
    prototype = seeded(lambda: perceptron(8, 4, 8, dropout=0.2), 0)
    network: nn.Module = Stack(prototype, 3) if folds else prototype
    train(
        network,
        LazyMatrix(len(x), lambda rows: x[rows]) if made else x,
        [y, torch.arange(len(y))],
        record,
        SETTINGS,
        members=["a", "b", "c"] if folds else None,
        folds=torch.arange(len(y)) % 3 if folds else None,
        checkpoint=checkpoint,
    )
    return network


@pytest.mark.parametrize("folds", [False, True])
def test_an_epoch_of_windows_takes_every_row_once(small_window: Path, folds: bool) -> None:
    record = Recorder()
    trained(record, made=False, folds=folds)
    learned = 700 if folds else 630
    each = -(-learned // 16)
    assert [len(rows) for rows in record.batches] == 3 * ([16] * (each - 1) + [learned % 16 or 16])
    epochs = [torch.cat(record.batches[i * each : (i + 1) * each]) for i in range(3)]
    assert not torch.equal(epochs[0], epochs[1])
    for epoch in epochs:
        assert torch.equal(epoch.sort().values, epochs[0].sort().values)
        assert len(torch.unique(epoch)) == learned
    held_out = torch.cat([rows.flatten() for rows in record.looked_at])
    assert len(torch.unique(held_out)) == (700 if folds else 70)
    if not folds:
        assert not torch.isin(held_out, epochs[0]).any()


@pytest.mark.parametrize("folds", [False, True])
def test_rows_that_are_made_train_like_rows_that_are_there(small_window: Path, folds: bool) -> None:
    there, made = trained(Recorder(), False, folds), trained(Recorder(), True, folds)
    for a, b in zip(there.state_dict().values(), made.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_an_interrupted_training_goes_on_in_its_window(small_window: Path, tmp_path: Path) -> None:
    whole = trained(Recorder(), made=True)
    path = tmp_path / "fit.ckpt"
    with pytest.raises(KeyboardInterrupt):
        trained(Recorder(left=70), made=True, checkpoint=path)
    assert path.exists()
    rest = Recorder()
    resumed = trained(rest, made=True, checkpoint=path)
    assert len(rest.batches) == 2 * 40  # of three epochs
    assert not path.exists()
    for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b)


# Rows that are made


def test_a_made_matrix_is_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    asked: list[int] = []

    def make(rows: slice | Tensor) -> Tensor:
        asked.append(len(x[rows]))
        return x[rows]

    made = LazyMatrix(100, make, wide=1 << 17)  # eight rows at a time
    for rows in (slice(None), slice(7, 50), torch.tensor([3, 99, 3]), torch.tensor([[1, 2]])):
        assert torch.equal(made[rows], x[rows])
    assert max(asked) == 8
    assert (len(made), made.shape, made.dtype) == (100, x.shape, x.dtype)
    assert to_device(made, torch.device("cpu")) is made
    assert is_large_matrix(made)
    assert not is_large_matrix(x)


def test_tables_of_many_rows_are_those_of_few(small_window: Path) -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    z = torch.randn(50, 2, generator=torch.Generator().manual_seed(1)).double()
    rows, columns = torch.tensor([4, 1, 30]), torch.arange(50) % 5
    both = hstack(take_rows(x, torch.arange(50)), z)
    assert isinstance(both, LazyMatrix)
    assert torch.equal(take_rows(both, rows)[:], torch.cat([x, z], dim=1)[rows])
    assert torch.equal(materialize(both), torch.cat([x, z], dim=1))
    assert torch.equal(
        gather_columns(both, columns), materialize(both).gather(1, columns[:, None])[:, 0]
    )
    assert list(small_window.iterdir()) == []  # the file of the table has no name


def test_means_and_neighbours_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    _, y, x = examples()
    x = 5 * x + 3
    whole = Standardize.of(x)
    near = Neighbours(whole, 12).fit(x, y, seed=0)
    monkeypatch.setattr(_scratch, "IN_MEMORY", 0)
    monkeypatch.setattr("shortlist._utils.arrays.BLOCK_ELEMENTS", 1000)
    monkeypatch.setattr("shortlist.predictors.shortlister.neighbours.MOST_ROWS", 700)
    parts = Standardize.of(LazyMatrix(len(x), lambda rows: x[rows]))
    torch.testing.assert_close(parts.mean, whole.mean)
    torch.testing.assert_close(parts.scale, whole.scale)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    some_near = Neighbours(parts, 12).fit(take_rows(x, order), y[order], seed=0)
    assert near.root is not None
    torch.testing.assert_close(some_near.root, near.root)
    assert torch.equal(some_near.index, some_near.index.sort().values)
    cosines = some_near.directions @ near.directions.T  # each of them is one of all
    assert len(cosines) == 700
    best = cosines.max(dim=1)
    torch.testing.assert_close(best.values, torch.ones(700))
    assert torch.equal(near.index[best.indices], some_near.index)


def test_a_full_disk_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match=r"8\.0 GB are needed .* TMPDIR"):
        _scratch.table((2_000_000, 1000))


# Models


def shortlister(**given: object) -> sl.Shortlister:
    return sl.Shortlister(
        max_epochs=6, folds=3, width=32, rank_width=16, rescore=True, learn_sizes=True, **given
    )


def outcome(model: sl.Shortlister, listed: bool = False) -> tuple[float, float]:
    """Accuracy and mean size on new rows."""
    scores, y, x = examples(6000)
    new = slice(1, None, 2)
    sets = model.predict_set(given_as(scores[new], listed), features=x[new], accuracy=0.8)
    return float(sets.accuracy(y[new])), float(sets.mean_size)


def held_out_loss(model: sl.Shortlister) -> list[float]:
    """The mean over the networks of each stage, on rows that they did not learn from."""
    return [float(np.mean(np.min(of.validation_loss, axis=0))) for of in model.history_.values()]


def given_as(scores: Tensor, listed: bool) -> Tensor | sl.Ranking:
    if not listed:
        return scores
    best = torch.topk(torch.softmax(scores, dim=1), 8, dim=1)
    return sl.Ranking.from_candidates(best.indices, best.values, n_classes=scores.shape[1])


@pytest.mark.parametrize("listed", [False, True])
def test_a_shortlister_learns_through_a_window_what_it_learns_without(
    request: pytest.FixtureRequest, listed: bool
) -> None:
    scores, y, x = (part[::2] for part in examples(6000))
    whole = shortlister(accuracy=0.9).fit(given_as(scores, listed), y, x)
    plain = outcome(whole, listed)
    folder: Path = request.getfixturevalue("small_window")
    fitted = [shortlister(accuracy=0.9).fit(given_as(scores, listed), y, x) for _ in range(2)]
    # Not shuffled at all, or inside windows alone, it would be 4% more: the rows are sorted.
    np.testing.assert_allclose(held_out_loss(fitted[0]), held_out_loss(whole), rtol=0.01)
    accuracy, size = outcome(fitted[0], listed)
    assert abs(accuracy - plain[0]) < 0.02
    assert abs(size - plain[1]) < 0.05 * plain[1]
    alone = sl.SplitConformal("aps").fit(scores, y).predict_set(scores, accuracy=0.8)
    assert listed or size < 0.8 * alone.mean_size  # features do help here
    assert outcome(fitted[1], listed) == (accuracy, size)
    assert np.array_equal(fitted[0]._calibration.levels, fitted[1]._calibration.levels)
    assert list(folder.iterdir()) == []


def test_the_threads_have_no_say_in_the_batches(small_window: Path) -> None:
    before = torch.get_num_threads()
    orders = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            record = Recorder()
            trained(record, made=True, folds=True)
            orders.append(torch.cat(record.batches))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*orders)


def test_features_alone_may_be_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, y, x = (part[::2] for part in examples(6000, 6))
    x = torch.cat([x, torch.randn(len(x), 40, generator=torch.Generator().manual_seed(0))], dim=1)
    plain = shortlister(accuracy=0.9).fit(scores, y, x).predict_set(scores, features=x)
    monkeypatch.setattr(_scratch, "IN_MEMORY", 4 * scores.numel())
    model = shortlister(accuracy=0.9).fit(scores, y, x)
    sets = model.predict_set(scores, features=x)
    assert abs(sets.mean_size - plain.mean_size) < 0.05 * plain.mean_size
    assert abs(sets.accuracy(y) - plain.accuracy(y)) < 0.02


def easy_and_hard(rows: int = 2000, classes: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, labels and features of rows of two kinds; the first feature tells which, and the rows
    are sorted by it."""
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
def test_a_path_learns_through_a_window_what_it_learns_without(
    request: pytest.FixtureRequest, inputs: str, family: str
) -> None:
    scores, y, x = easy_and_hard()
    path = sl.CardinalityPath(
        FAMILIES[family](), cost_weights=[0.3, 0.1], inputs=inputs, width=32, max_epochs=5
    )

    def held_out() -> np.ndarray:
        return np.min(path.fit(scores, y, x).history_.validation_loss, axis=0)

    # By the loss: what is chosen varies far more from seed to seed, where sets cost much the same.
    plain = held_out()
    folder: Path = request.getfixturevalue("small_window")
    found = held_out()
    # Shuffles differ by 0.0005 at most; inputs of other rows would cost 0.002 or more.
    np.testing.assert_allclose(found, plain, rtol=1e-3)
    assert np.array_equal(held_out(), found)
    assert list(folder.iterdir()) == []


def test_a_selector_that_was_interrupted_goes_on(
    small_window: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, y, x = examples()
    path = tmp_path / "fit.ckpt"
    selector = sl.CardinalitySelector(inputs="both", width=16, max_epochs=3, checkpoint=path)
    whole = selector.fit(scores, y, x).choose(scores, x)
    epochs = []
    original = training._Job.epoch

    def epoch(job: object) -> None:
        if len(epochs) == 2:
            raise KeyboardInterrupt
        epochs.append(0)
        original(job)  # type: ignore[arg-type]

    with monkeypatch.context() as stopping:
        stopping.setattr("shortlist.learning.training._Job.epoch", epoch)
        with pytest.raises(KeyboardInterrupt):
            selector.fit(scores, y, x)
    assert path.exists()
    assert list(small_window.iterdir()) == []
    assert torch.equal(torch.as_tensor(selector.fit(scores, y, x).choose(scores, x)), whole)


def test_a_linear_classifier_learns_through_a_window(request: pytest.FixtureRequest) -> None:
    _, y, x = (part.numpy() for part in examples(4000))
    h = sl.LinearClassifier(max_epochs=20, learning_rate=0.01)
    plain = min(h.fit(x, y).history_.validation_loss)
    request.getfixturevalue("small_window")
    # Not shuffled, it would be 7% more: the rows are sorted by label.
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
    many = read_rows(file)
    assert isinstance(many.scores, np.memmap)
    assert isinstance(many.features, np.memmap)
    for part in ("scores", "features", "y", "classes"):
        one, other = getattr(small, part), getattr(many, part)
        assert (one is None and other is None) or np.array_equal(one, other)
    assert many.feature_names == small.feature_names
    assert list(folder.iterdir()) == []


def test_a_large_parquet_file_of_candidates_is_held_in_memory(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    rows = {"labels": [[0, 1], [2]] * 50, "scores": [[0.5, 0.3], [0.9]] * 50, "y": [0, 2] * 50}
    pd.DataFrame(rows).to_parquet(file)
    request.getfixturevalue("small_window")
    found = read_rows(file)
    assert [list(row) for row in found.labels] == rows["labels"]


def test_lists_that_differ_between_parts_of_a_file_are_an_error(
    small_window: Path, tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    scores = [[0.1, 0.9]] * 500 + [[0.1, 0.9, 0.0]] * 500
    pd.DataFrame({"scores": scores, "y": [0, 1] * 500}).to_parquet(file)
    with pytest.raises(ValueError, match="scores differ in length from row to row"):
        read_rows(file)


@pytest.mark.parametrize("feature_names", [None, list("stuvwxyz")])
def test_the_shell_fits_a_path_on_some_rows_of_large_arrays(
    request: pytest.FixtureRequest, feature_names: list[str] | None
) -> None:
    from shortlist.cli.fit import _fitted

    scores, y, x = (part.numpy() for part in examples(600))
    rows = Rows(scores, y=y, features=x, feature_names=feature_names)
    path = sl.CardinalityPath(cost_weights=[0.1], max_epochs=2, width=8)
    _fitted(path, rows, None, 0.25, 0)
    plain = path._path_calibration
    request.getfixturevalue("small_window")
    again = replace(rows, scores=np.array(scores))
    _fitted(path, again, None, 0.25, 0)
    assert path._path_calibration.rows == plain.rows == 150
    assert abs(path._path_calibration.hits[0] - plain.hits[0]) < 25
