"""A training step on a GPU as one launch: its kernels are recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

WARM_UP = 3
"""Steps that are taken one kernel at a time before they are recorded."""


class Steps:
    """Takes steps: `step(rows)` does one for a batch of rows and gives its loss.

    On a GPU batches of the usual size are replayed from a recording, in which everything but the
    rows stays in the same place. Elsewhere, and for a batch of another size, the step is simply
    taken.
    """

    def __init__(self, step: Callable[[Tensor], Tensor], batch_size: int, device: torch.device):
        self._step, self._size = step, batch_size
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._taken = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, rows: Tensor) -> Tensor:
        if self._side is None or len(rows) != self._size:
            return self._step(rows)
        if self._taken < WARM_UP:
            return self._warm_up(rows)
        if self._graph is None:
            self._record(rows)
        assert self._graph is not None
        self._rows.copy_(rows)
        self._graph.replay()
        return self._loss.clone()

    def _warm_up(self, rows: Tensor) -> Tensor:
        """A step on a stream of its own, as recording asks for."""
        self._taken += 1
        current = torch.cuda.current_stream(rows.device)
        self._side.wait_stream(current)  # type: ignore[union-attr]
        with torch.cuda.stream(self._side):
            loss = self._step(rows)
        current.wait_stream(self._side)  # type: ignore[arg-type]
        return loss

    def _record(self, rows: Tensor) -> None:
        self._rows = rows.clone()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = self._step(self._rows)


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Products of float32 matrices by a GPU's tensor cores, at 10 bits: enough for a gradient."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
