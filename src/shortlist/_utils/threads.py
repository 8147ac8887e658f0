"""Process blocks of rows in threads of our own, each with single-threaded operations.

PyTorch divides every operation among all of its threads and waits for the last one. If another
process keeps a core busy, each of these barriers waits for the scheduler. A thread of this module
takes whole blocks of rows instead, one after the other, and the threads meet only at the end.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, wraps
from typing import Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

from shortlist._utils.blocks import CACHED_ELEMENTS, row_blocks
from shortlist._utils.cores import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")

MIN_PARALLEL_ELEMENTS = 1 << 15
"""Smaller arrays are processed in the calling thread. PyTorch does not divide them either."""
MIN_BARRIER_ELEMENTS = 1 << 20
"""Work on fewer scores is finished before `without_barriers` would pay off."""
MAX_THREADS = 256
MAX_SCRATCH_BYTES = 8 * CACHED_ELEMENTS
"""Size of the memory that a thread keeps: a block in float64."""
VARIABLE = "SHORTLIST_THREADS"
"""Environment variable that sets the number of threads."""


class _Local(threading.local):
    is_worker = False
    outer_threads: int | None = None  # The number of threads outside of `single_threaded`.
    scratch: Tensor | None = None


_local = _Local()
_settings_lock = threading.Lock()


def available_threads() -> int:
    """Return the number of threads that work may be divided among.

    The environment variable `SHORTLIST_THREADS` sets it. By default it is the number of cores that
    the process may use (its affinity and its CPU quota), and at most ``torch.get_num_threads()``,
    which `OMP_NUM_THREADS` and the caller limit. Inside a thread of this module, it is 1.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        If `SHORTLIST_THREADS` is not a positive integer.

    Examples
    --------
    >>> available_threads() >= 1
    True
    """
    if _local.is_worker:
        return 1
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        of_torch = _local.outer_threads or torch.get_num_threads()
        return max(1, min(usable_cores(), of_torch, MAX_THREADS))
    if not wanted.isdecimal() or not int(wanted):
        raise ValueError(
            f"the environment variable {VARIABLE} must be a positive integer; got {wanted!r}"
        )
    return min(int(wanted), MAX_THREADS)


def map_in_threads(
    work: Callable[[Item], Result], items: Iterable[Item], *, size: int | None = None
) -> list[Result]:
    """Apply a function to items in threads, each of which takes the next item when it is ready.

    In these threads, operations of PyTorch are single-threaded, so that a result does not depend
    on the number of threads. The settings of the calling thread do not change.

    Parameters
    ----------
    work : callable
        Function of one item. It should spend its time in NumPy or PyTorch, which release the
        global lock of Python. It must not warn, since its frames are not those of the caller.
    items : iterable
        Items.
    size : int, optional
        Number of values of all items. If they are few, the calling thread processes them.

    Returns
    -------
    list
        Results, in the order of the items.

    Raises
    ------
    Exception
        The error of the first item that failed. Items that were not begun are left out then.

    Examples
    --------
    >>> map_in_threads(abs, [-1, 2, -3])
    [1, 2, 3]
    """
    if torch.compiler.is_compiling():  # A compiled graph has no threads of ours.
        return [work(item) for item in items]
    tasks = _Tasks(work, list(items))
    threads = min(available_threads(), len(tasks.items))
    is_small = size is not None and size < MIN_PARALLEL_ELEMENTS
    if is_small or (threads <= 1 and (_local.is_worker or torch.get_num_threads() == 1)):
        threads = 0  # Operations in this thread are single-threaded already.
    try:
        others = [_submit(tasks.run) for _ in range(threads)]
        if not threads or None in others:
            tasks.run()
        for other in others:
            if other is not None:
                other.result()
    finally:
        tasks.stop()
    return tasks.results()


def map_blocks(
    work: Callable[[slice], Result], rows: int, width: int, *, elements: int = CACHED_ELEMENTS
) -> list[Result]:
    """Apply a function to blocks of rows in threads; see `map_in_threads`.

    Parameters
    ----------
    work : callable
        Function of a slice of rows. It may write the rows of arrays that it shares with others.
    rows, width : int
        Shape of the matrix. If it has few values, the calling thread processes it.
    elements : int, optional
        Approximate number of values in a block. By default a block fits into the cache of a core.

    Returns
    -------
    list
        Results of the blocks, in the order of the rows.

    Examples
    --------
    >>> map_blocks(lambda rows: rows.stop - rows.start, 5, 10, elements=20)
    [2, 2, 1]
    """
    return map_in_threads(work, row_blocks(rows, width, elements=elements), size=rows * width)


def scratch(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Return a matrix of this thread, whose values are overwritten by the next call.

    Parameters
    ----------
    rows, width : int
        Shape of the matrix.
    dtype : torch.dtype
        Type of the values.

    Returns
    -------
    Tensor of shape (rows, width)
        Contiguous and not initialized.

    Examples
    --------
    >>> scratch(2, 3, torch.float32).shape
    torch.Size([2, 3])
    """
    size = rows * width * dtype.itemsize
    if size > MAX_SCRATCH_BYTES:
        return torch.empty((rows, width), dtype=dtype)
    if _local.scratch is None:
        _local.scratch = torch.empty(MAX_SCRATCH_BYTES, dtype=torch.uint8)
    return _local.scratch[:size].view(dtype).view(rows, width)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Make the operations of PyTorch in this thread single-threaded inside the block.

    The number of threads in other threads does not change, nor the number that new threads get,
    nor that of `map_in_threads`. Entering takes about 0.2 ms: use it around whole computations,
    such as a training loop.

    Examples
    --------
    >>> before = torch.get_num_threads()
    >>> with single_threaded():
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    outer, _local.outer_threads = _local.outer_threads, _local.outer_threads or before
    _set_own_threads(1)
    try:
        yield
    finally:
        _set_own_threads(before)
        _local.outer_threads = outer


@contextmanager
def multi_threaded() -> Iterator[None]:
    """Undo `single_threaded` inside the block.

    Use it for large operations in a computation that is single-threaded otherwise.

    Examples
    --------
    >>> before = torch.get_num_threads()
    >>> with single_threaded(), multi_threaded():
    ...     torch.get_num_threads() == before
    True
    """
    outer = _local.outer_threads
    if outer is None:
        yield
        return
    inner, _local.outer_threads = torch.get_num_threads(), None
    _set_own_threads(outer)
    try:
        yield
    finally:
        _set_own_threads(inner)
        _local.outer_threads = outer


def without_barriers(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a method `single_threaded` if its first argument contains many scores.

    Such methods compute blocks of rows in the threads of `map_in_threads`. If PyTorch divided the
    small operations in between among threads of its own, those would wait for the next operation
    in a loop, on the same cores.

    Parameters
    ----------
    method : callable
        Method whose first argument is an array or a ranking, named `scores`.

    Returns
    -------
    callable
        The method, with the same arguments.

    Examples
    --------
    >>> class Model:
    ...     @without_barriers
    ...     def threads(self, scores):
    ...         return torch.get_num_threads()
    >>> Model().threads(torch.zeros(1024, 1024))
    1
    >>> Model().threads(torch.zeros(1, 3)) == torch.get_num_threads()
    True
    """

    @wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        scores = args[1] if len(args) > 1 else kwargs.get("scores")
        shape = () if getattr(scores, "is_nested", False) else getattr(scores, "shape", ())
        if math.prod(shape) < MIN_BARRIER_ELEMENTS:
            return method(*args, **kwargs)
        with single_threaded():
            return method(*args, **kwargs)

    return call


class _Tasks(Generic[Item, Result]):
    """Items of which threads take one after the other, and their results."""

    def __init__(self, work: Callable[[Item], Result], items: Sequence[Item]) -> None:
        self.work, self.items = work, items
        self._results: dict[int, Result] = {}
        self._errors: dict[int, BaseException] = {}
        self._next, self._lock = 0, threading.Lock()
        # Threads of PyTorch do not inherit these modes.
        self._modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def run(self) -> None:
        """Process items until none is left, or one has failed."""
        inference, grad = self._modes
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            while (i := self._take()) is not None:
                try:
                    self._results[i] = self.work(self.items[i])
                except BaseException as error:
                    self._errors[i] = error
                    self.stop()

    def stop(self) -> None:
        """Let no further item be taken."""
        with self._lock:
            self._next = len(self.items)

    def results(self) -> list[Result]:
        """Return the results of all items, or raise the error of the first one that failed."""
        if self._errors:
            raise self._errors[min(self._errors)]
        return [self._results[i] for i in range(len(self.items))]

    def _take(self) -> int | None:
        with self._lock:
            if self._next == len(self.items):
                return None
            self._next += 1
            return self._next - 1


def _submit(run: Callable[[], None]) -> Future[None] | None:
    """Start a function in a thread; return None if no thread can be started."""
    try:
        return _pool().submit(run)
    except RuntimeError:  # The interpreter is shutting down.
        return None


@cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads of this process: starting threads for each call would be slower."""
    return ThreadPoolExecutor(MAX_THREADS, "shortlist", initializer=_initialize_worker)


def _initialize_worker() -> None:
    _local.is_worker = True
    _set_own_threads(1)


def _set_own_threads(threads: int) -> None:
    """Set the number of threads of PyTorch for this thread alone.

    `torch.set_num_threads` also sets the number that new threads begin with, which is restored.
    """
    with _settings_lock:
        torch.get_num_threads()  # A thread initializes its number once, which must not come later.
        try:
            initial = _in_new_thread(torch.get_num_threads)
            torch.set_num_threads(threads)
            if initial != threads:
                _in_new_thread(lambda: torch.set_num_threads(initial))
        except RuntimeError:  # The interpreter is shutting down: there will be no new threads.
            torch.set_num_threads(threads)


def _in_new_thread(function: Callable[[], Result]) -> Result:
    """Return the result of a function in a thread that has not used PyTorch before."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def _after_fork() -> None:
    """Discard the threads of the parent process, which the child does not have.

    GNU OpenMP, which PyTorch uses on Linux, would wait forever for the parent's threads when it
    is asked for more than one.
    """
    global _settings_lock
    _settings_lock = threading.Lock()
    _local.is_worker, _local.outer_threads = False, None
    _pool.cache_clear()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
