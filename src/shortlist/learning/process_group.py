"""Several processes that fit one model together, each with rows of its own.

All run the same fit. Where it needs something of all rows (a sum, some of the rows themselves) it
asks `together()`, which in one process alone gives back what it is given. So all processes come to
the same model, and nothing else in a fit knows that there are others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from torch import Tensor, distributed


class Store(Protocol):
    """Where the state of a training is kept from epoch to epoch."""

    def load(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, object]] | None: ...

    def save(self, tensors: dict[str, Tensor], notes: dict[str, object]) -> None: ...

    def remove(self) -> None: ...


class Alone:
    """One process."""

    rank = 0
    workers = 1

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all processes, in each of them."""
        return x

    def total(self, count: int) -> int:
        """The same of a whole number."""
        return int(self.sum(torch.tensor(count)))

    def gather(self, x: Tensor) -> Tensor:
        """The rows of all processes, one process after the other."""
        return x

    def largest(self, count: int) -> int:
        """The largest number that a process has."""
        return int(self.gather(torch.tensor([count])).max())

    def least(self, count: int) -> int:
        """The smallest one."""
        return int(self.gather(torch.tensor([count])).min())

    def share(self, value: Any) -> Any:
        """What the first process has."""
        return value

    def each(self, value: Any) -> list[Any]:
        """What each process has."""
        return [value]

    def store(self, what: str) -> Store | None:
        """Where a training of this name keeps its state; None: nowhere."""
        return None


class Group(Alone):
    """The processes of torch's default process group."""

    def __init__(self) -> None:
        self.rank, self.workers = distributed.get_rank(), distributed.get_world_size()

    def sum(self, x: Tensor) -> Tensor:
        total = x.detach().clone()
        distributed.all_reduce(total)
        return total

    def gather(self, x: Tensor) -> Tensor:
        counts = [torch.zeros((), dtype=torch.int64, device=x.device) for _ in range(self.workers)]
        distributed.all_gather(counts, torch.tensor(len(x), device=x.device))
        longest = int(torch.stack(counts).max())
        padded = torch.cat([x.detach(), x.new_zeros((longest - len(x), *x.shape[1:]))])
        found = [torch.empty_like(padded) for _ in range(self.workers)]
        distributed.all_gather(found, padded.contiguous())
        return torch.cat([part[: int(n)] for part, n in zip(found, counts, strict=True)])

    def share(self, value: Any) -> Any:
        given = [value]
        distributed.broadcast_object_list(given, src=0)
        return given[0]

    def each(self, value: Any) -> list[Any]:
        found = [None] * self.workers
        distributed.all_gather_object(found, value)
        return found


_current: ContextVar[Alone] = ContextVar("together", default=Alone())  # noqa: B039 (has no state)


def together() -> Alone:
    """The processes that fit together here.

    >>> together().workers, together().sum(torch.tensor(3)).item()
    (1, 3)
    """
    return _current.get()


@contextmanager
def fitting_together(group: Alone) -> Iterator[None]:
    """Fits inside are those of a group."""
    token = _current.set(group)
    try:
        yield
    finally:
        _current.reset(token)
