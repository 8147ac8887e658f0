"""Mini-batches of examples that can be larger than memory."""

from __future__ import annotations

import pytest
import torch

from shortlist._utils import out_of_core
from shortlist.learning.batches import BatchSampler, Examples


def test_examples_in_memory_are_shuffled_as_a_whole() -> None:
    examples = Examples((torch.zeros(50, 3),), (torch.zeros(50),))
    assert not examples.is_windowed
    (order,) = examples.shuffle(40, 8, torch.Generator().manual_seed(4))
    assert torch.equal(order, torch.randperm(40, generator=torch.Generator().manual_seed(4)))
    assert examples.load(order) == (examples, order)


def test_each_loaded_row_is_in_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_core, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(out_of_core, "WINDOW_BYTES", 384)  # 32 rows of 12 bytes.
    monkeypatch.setattr(out_of_core, "CHUNK_BYTES", 48)
    numbers = torch.arange(90)
    examples = Examples((numbers[:, None] * 2.0,), (numbers,), numbers % 3)
    windows = examples.shuffle(90, 16, torch.Generator().manual_seed(0))
    assert [len(rows) for rows in windows] == [32, 32, 26]
    for rows in windows:
        loaded, positions = examples.load(rows)
        assert torch.equal(loaded.targets[0].diff() > 0, torch.ones(len(rows) - 1).bool())
        batch = loaded[positions]
        assert torch.equal(batch.inputs[0][:, 0], rows * 2.0)
        assert torch.equal(batch.targets[0], rows)
        assert torch.equal(batch.folds, rows % 3)


def test_prefetched_epochs_have_the_same_batches() -> None:
    examples = Examples((torch.zeros(50, 3),), (torch.zeros(50),))
    samplers = [BatchSampler(examples, torch.arange(50), 7, passes=2, seed=3) for _ in range(2)]
    samplers[1].prefetch(1)
    epochs = [[torch.cat(list(one.batches(epoch))) for epoch in (0, 1)] for one in samplers]
    for plain, prefetched in zip(*epochs, strict=True):
        assert torch.equal(plain, prefetched)
    assert not torch.equal(*epochs[0])
