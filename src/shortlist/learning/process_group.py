"""Process groups, in which several processes fit one model, each with its own rows.

All processes run the same code and fit the same model. Where a fit needs a quantity of all rows,
such as a sum, it calls a method of `current_group()`. In a single process, these methods return
their arguments unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, overload

import torch
from torch import Tensor, distributed


class StateStore(Protocol):
    """Storage for the state of a training run after each epoch."""

    def load(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, object]] | None:
        """Return the stored state, or None if there is none."""

    def save(self, tensors: dict[str, Tensor], notes: dict[str, object]) -> None:
        """Store a state, and replace the previous one."""

    def remove(self) -> None:
        """Delete the stored state."""


class SingleProcess:
    """A group that consists of this process."""

    rank = 0
    world_size = 1

    @overload
    def sum(self, x: int) -> int: ...
    @overload
    def sum(self, x: Tensor) -> Tensor: ...
    def sum(self, x: Tensor | int) -> Tensor | int:
        """Return the sum over all processes."""
        return int(self._sum(torch.tensor(x))) if isinstance(x, int) else self._sum(x)

    def _sum(self, x: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        return x

    def gather(self, x: Tensor) -> Tensor:
        """Return the rows of all processes, concatenated by rank."""
        return x

    def max(self, count: int) -> int:
        """Return the maximum over all processes."""
        return int(self.gather(torch.tensor([count])).max())

    def min(self, count: int) -> int:
        """Return the minimum over all processes."""
        return int(self.gather(torch.tensor([count])).min())

    def broadcast(self, value: Any) -> Any:
        """Return the value of the process with rank 0."""
        return value

    def gather_objects(self, value: Any) -> list[Any]:
        """Return the values of all processes, in the order of their ranks."""
        return [value]

    def store(self, name: str) -> StateStore | None:
        """Return the storage for the state of the training run `name`, or None."""
        return None


class ProcessGroup(SingleProcess):
    """The default process group of `torch.distributed`."""

    def __init__(self) -> None:
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()

    def _sum(self, x: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        total = x.detach().clone()
        distributed.all_reduce(total)
        return total

    def gather(self, x: Tensor) -> Tensor:
        """Return the rows of all processes, concatenated by rank."""
        counts = [torch.tensor(0, device=x.device) for _ in range(self.world_size)]
        distributed.all_gather(counts, torch.tensor(len(x), device=x.device))
        longest = int(torch.stack(counts).max())
        padded = torch.cat([x.detach(), x.new_zeros((longest - len(x), *x.shape[1:]))])
        parts = [torch.empty_like(padded) for _ in range(self.world_size)]
        distributed.all_gather(parts, padded.contiguous())
        return torch.cat([part[: int(n)] for part, n in zip(parts, counts, strict=True)])

    def broadcast(self, value: Any) -> Any:
        """Return the value of the process with rank 0."""
        values = [value]
        distributed.broadcast_object_list(values, src=0)
        return values[0]

    def gather_objects(self, value: Any) -> list[Any]:
        """Return the values of all processes, in the order of their ranks."""
        values = [None] * self.world_size
        distributed.all_gather_object(values, value)
        return values


_current: ContextVar[SingleProcess] = ContextVar(
    "process_group",
    default=SingleProcess(),  # noqa: B039  (It has no state.)
)


def current_group() -> SingleProcess:
    """Return the group of processes that fit the current model.

    Examples
    --------
    >>> current_group().world_size, current_group().sum(3)
    (1, 3)
    """
    return _current.get()


@contextmanager
def use_process_group(group: SingleProcess) -> Iterator[None]:
    """Use a process group for all fits inside the context."""
    token = _current.set(group)
    try:
        yield
    finally:
        _current.reset(token)
