"""CUDA graphs, which replay a recorded training step as a single launch on a GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

WARM_UP_STEPS = 3
"""Number of steps that run without a graph before a step is recorded."""


class GraphedStep:
    """A training step that is replayed from a CUDA graph if possible.

    Batches of `batch_size` rows on a GPU are replayed from a graph. Other batches run without a
    graph. Apart from the rows, all tensors of the step must keep their memory addresses.

    Parameters
    ----------
    step : callable
        Function from the row indices of a batch to its loss.
    batch_size : int
        Number of rows in the batches that are replayed. 0 disables the graph.
    device : torch.device
        Device of the rows.
    """

    def __init__(self, step: Callable[[Tensor], Tensor], batch_size: int, device: torch.device):
        self._step, self._batch_size = step, batch_size
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._steps_taken = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, rows: Tensor) -> Tensor:
        """Run the step and return its loss."""
        if self._stream is None or len(rows) != self._batch_size:
            return self._step(rows)
        if self._steps_taken < WARM_UP_STEPS:
            return self._warm_up(rows)
        if self._graph is None:
            self._record(rows)
        assert self._graph is not None
        self._rows.copy_(rows)
        self._graph.replay()
        return self._loss.clone()

    def _warm_up(self, rows: Tensor) -> Tensor:
        """Run a step on a separate stream, as PyTorch requires before a graph is recorded."""
        self._steps_taken += 1
        current = torch.cuda.current_stream(rows.device)
        self._stream.wait_stream(current)  # type: ignore[union-attr]
        with torch.cuda.stream(self._stream):
            loss = self._step(rows)
        current.wait_stream(self._stream)  # type: ignore[arg-type]
        return loss

    def _record(self, rows: Tensor) -> None:
        """Record a step as a CUDA graph."""
        self._rows = rows.clone()
        self._graph = torch.cuda.CUDAGraph()
        with _no_garbage_collection(), torch.cuda.graph(self._graph):
            self._loss = self._step(self._rows)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage before a block and none during it.

    A graph of an earlier training that is deleted while another is recorded would end the
    recording with an error.
    """
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def allow_tf32(device: torch.device) -> Iterator[None]:
    """Multiply float32 matrices in TF32 on a GPU. Its precision is sufficient for gradients."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
