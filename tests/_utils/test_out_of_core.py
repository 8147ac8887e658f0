"""Lazy matrices, memory-mapped tables and shuffled windows."""

from __future__ import annotations

import errno
import itertools
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist._utils import out_of_core
from shortlist._utils.out_of_core import (
    LazyMatrix,
    TableBuilder,
    as_lazy,
    copy_rows,
    gather_columns,
    hstack,
    is_large_matrix,
    materialize,
    shuffled_windows,
    take_rows,
    to_device,
    vstack,
)


@pytest.fixture
def temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Treat every table as large; return the folder of temporary files."""
    monkeypatch.setattr(out_of_core, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(out_of_core, "COPY_BYTES", 1 << 10)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 400), st.integers(0, 99))
def test_windows_contain_every_row_once(rows: int, chunk: int, window: int, seed: int) -> None:
    windows = shuffled_windows(rows, chunk, window, torch.Generator().manual_seed(seed))
    assert torch.equal(torch.cat(windows).sort().values, torch.arange(rows))
    assert all(len(one) == window for one in windows[:-1])


def test_windows_consist_of_chunks_from_all_over_the_data() -> None:
    windows = shuffled_windows(10_000, 10, 1000, torch.Generator().manual_seed(0))
    for window in windows:
        assert len(torch.unique(window // 10)) == 100  # Whole chunks.
        assert window.min() < 1000 < 9000 < window.max()
        correlation = np.corrcoef(window.numpy(), np.arange(1000))[0, 1]
        assert abs(correlation) < 0.15  # Shuffled.
    again = shuffled_windows(10_000, 10, 1000, torch.Generator().manual_seed(0))
    other = shuffled_windows(10_000, 10, 1000, torch.Generator().manual_seed(1))
    assert all(torch.equal(a, b) for a, b in zip(windows, again, strict=True))
    assert not torch.equal(windows[0], other[0])


def test_a_lazy_matrix_equals_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    counts: list[int] = []

    def compute(rows: slice | Tensor) -> Tensor:
        counts.append(len(x[rows]))
        return x[rows]

    lazy = LazyMatrix(100, compute, work_width=1 << 17)  # Eight rows at a time.
    for rows in (slice(None), slice(7, 50), torch.tensor([3, 99, 3]), torch.tensor([[1, 2]])):
        assert torch.equal(lazy[rows], x[rows])
    assert max(counts) == 8
    assert (len(lazy), lazy.shape, lazy.dtype) == (100, x.shape, x.dtype)
    assert to_device(lazy, torch.device("cpu")) is lazy
    assert is_large_matrix(lazy)
    assert not is_large_matrix(x)


def test_large_tables_equal_small_ones(temporary_files: Path) -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    z = torch.randn(50, 2, generator=torch.Generator().manual_seed(1)).double()
    rows, columns = torch.tensor([4, 1, 30]), torch.arange(50) % 5
    stacked = hstack(take_rows(x, torch.arange(50)), z)
    assert isinstance(stacked, LazyMatrix)
    assert torch.equal(take_rows(stacked, rows)[:], torch.cat([x, z], dim=1)[rows])
    assert torch.equal(materialize(stacked), torch.cat([x, z], dim=1))
    assert torch.equal(
        gather_columns(stacked, columns), materialize(stacked).gather(1, columns[:, None])[:, 0]
    )
    assert list(temporary_files.iterdir()) == []  # The file of the table has no name.


def test_large_tables_are_stacked_like_small_ones(temporary_files: Path) -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    z = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)).double()
    for first, second in itertools.product((x, as_lazy(x)), (z, as_lazy(z))):
        stacked = vstack(first, second)
        assert isinstance(stacked, LazyMatrix)
        assert (stacked.shape, stacked.dtype) == ((70, 3), torch.float64)
        whole = torch.cat([x.double(), z])
        assert torch.equal(materialize(stacked), whole)
        for rows in (
            slice(45, 60),
            torch.tensor([69, 0, 50, 49]),
            torch.tensor([[3, 55], [49, 50]]),
        ):
            assert torch.equal(stacked[rows], whole[rows])


def test_small_tables_are_stacked_in_memory() -> None:
    x, z = torch.eye(3), torch.ones(2, 3, dtype=torch.float16)
    assert torch.equal(vstack(x, z), torch.cat([x, z.float()]))
    assert torch.equal(vstack(as_lazy(x), z), torch.cat([x, z.float()]))


def test_a_full_disk_raises_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match=r"temporary file of 8\.0 GB does not fit .* TMPDIR"):
        out_of_core.allocate_tensor((2_000_000, 1000))


def test_large_arrays_are_copied_and_built_in_temporary_files(temporary_files: Path) -> None:
    array = np.random.default_rng(0).random((500, 4))
    rows = np.random.default_rng(1).permutation(500)[:321]
    copied = copy_rows(array, rows)
    builder = TableBuilder(500, array[:100])
    builder.append(array[100:350])
    assert builder.fits(array)
    assert not builder.fits(array[:, :3])
    assert isinstance(copied, np.memmap)
    assert isinstance(builder.build(), np.memmap)
    assert np.array_equal(copied, array[rows])
    assert np.array_equal(builder.build(), array[:350])
    assert list(temporary_files.iterdir()) == []
