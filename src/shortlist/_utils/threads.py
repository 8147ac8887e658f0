"""Run NumPy code in several threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch

Result = TypeVar("Result")

MIN_PARALLEL_ELEMENTS = 1 << 16
"""Smaller arrays are processed in the calling thread."""
MAX_THREADS = 256


def run_in_threads(work: Callable[[slice], Result], rows: int, size: int) -> list[Result]:
    """Apply a function to consecutive parts of the rows, one part for each thread of torch.

    Parameters
    ----------
    work : callable
        Takes a slice of rows. It should spend its time in NumPy, which releases the global lock.
    rows : int
        Number of rows.
    size : int
        Number of values in all rows. Small arrays are processed in one part.

    Returns
    -------
    list
        Results of the parts, in the order of the rows.

    Examples
    --------
    >>> run_in_threads(lambda part: part.stop - part.start, 5, size=10)
    [5]
    """
    threads = 1 if size < MIN_PARALLEL_ELEMENTS else min(torch.get_num_threads(), rows)
    ends = [rows * k // threads for k in range(threads + 1)]
    parts = [slice(a, b) for a, b in pairwise(ends)]
    others = [_submit(work, part) for part in parts[1:]]
    return [work(parts[0]), *(result() for result in others)]


def _submit(work: Callable[[slice], Result], part: slice) -> Callable[[], Result]:
    """Start work in a thread and return a function that waits for its result."""
    try:
        return _pool().submit(work, part).result
    except RuntimeError:  # The interpreter is shutting down and starts no more threads.
        return lambda: work(part)


@cache
def _pool() -> ThreadPoolExecutor:
    """Return the thread pool of this process: starting threads for each call would be slower."""
    return ThreadPoolExecutor(max_workers=MAX_THREADS)


def _after_fork() -> None:
    """Discard the thread pool of the parent process.

    GNU OpenMP, which PyTorch uses on Linux, would wait forever for the parent's threads when it
    is asked for more than one.
    """
    _pool.cache_clear()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
