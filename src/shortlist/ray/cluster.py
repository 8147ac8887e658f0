"""The connection to a Ray cluster, and tasks that run on it."""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from shortlist._utils.progress import track
from shortlist._utils.validation import check_count

if TYPE_CHECKING:
    import numpy as np

Task: TypeAlias = Callable[[Any], object]
"""A function of one item. It may run more than once for an item."""


def connect(address: str | None = None) -> None:
    """Connect this process to a Ray cluster, unless it is connected already.

    Parameters
    ----------
    address : str, optional
        Address of a running cluster, "auto" for the cluster on this machine, or "local" to start
        one for this process alone. By default the environment variable RAY_ADDRESS, or else
        "local".

    Raises
    ------
    ImportError
        If Ray is not installed.
    ConnectionError
        If no cluster answers at the address.
    ValueError
        If the address is not valid, or this process is connected to another cluster.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("Ray is not installed: pip install 'shortlist[ray]'") from error
    if ray.is_initialized():
        current = ray.get_runtime_context().gcs_address
        if _host_and_port(address) is not None and address != current:
            raise ValueError(
                f"address = {address!r}, but this process is connected to the cluster at "
                f"{current!r}; leave address out, or call ray.shutdown() first"
            )
        return
    _check_listening(address)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    try:
        # Workers print nothing: errors of tasks are raised in this process.
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        reason = " ".join(str(error).split())[:200]
        if address == "auto":
            reason = (
                "none runs on this machine; start one with `ray start --head`, or use the address "
                '"local"'
            )
        raise ConnectionError(f"no Ray cluster answers at {address!r}: {reason}") from error
    except ValueError as error:
        raise ValueError(
            f"address = {address!r} is not valid; give HOST:PORT, ray://HOST:PORT, auto (the "
            f"cluster on this machine) or local ({error})"
        ) from error


def _host_and_port(address: str | None) -> tuple[str, int] | None:
    """Return the host and the port of an address; None if it is of another form.

    >>> _host_and_port("first:6379"), _host_and_port("auto"), _host_and_port("ray://first:10001")
    (('first', 6379), None, None)
    """
    host, _, port = (address or "").rpartition(":")
    return (host, int(port)) if host and port.isdigit() and "/" not in host else None


def _check_listening(address: str | None) -> None:
    """Raise if nothing listens at an address. Ray itself would keep trying for minutes."""
    target = _host_and_port(address)
    if target is None:
        return
    try:
        socket.create_connection(target, timeout=10).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address!r}: {error}; `ray start --head` starts one and "
            "prints its address"
        ) from error


def count_cores() -> int:
    """Return the number of CPU cores of the cluster."""
    return max(1, _count_resources("CPU"))


def _count_resources(name: str) -> int:
    import ray

    return int(ray.cluster_resources().get(name, 0))  # type: ignore[no-untyped-call]


def check_capacity(workers: int, threads: int, use_gpu: bool) -> None:
    """Raise if processes cannot all run at the same time. Ray itself would wait forever."""
    cores, gpus = count_cores(), _count_resources("GPU")
    if workers * threads > cores:
        raise ValueError(
            f"{workers} workers with {threads} {'thread' if threads == 1 else 'threads'} each run "
            f"at the same time, but the cluster has {cores} cores; use fewer workers or threads"
        )
    if use_gpu and workers > gpus:
        raise ValueError(
            f"use_gpu = True: each of {workers} workers needs a GPU, but the cluster has {gpus}; "
            "use fewer workers, or leave use_gpu out"
        )


def run_tasks(
    task: Task,
    items: Sequence[object],
    description: str,
    *,
    workers: int | None,
    threads: int = 1,
) -> Iterator[tuple[int, Any]]:
    """Run a task for each item on the cluster.

    Ray Data streams the items through the workers. If a worker dies, another one repeats the items
    that it had not finished.

    Parameters
    ----------
    task : callable
        Function of one item. It may run more than once for an item.
    items : sequence
        Items to process.
    description : str
        Name of the work, for the progress bar.
    workers : int, optional
        Number of processes. By default as many as the cores allow.
    threads : int, default=1
        Number of threads of each process.

    Yields
    ------
    int
        Index of an item, in the order in which items are finished.
    object
        Result of the task.

    Raises
    ------
    ValueError, OSError
        If the task raises one of these, which are errors of the data.
    """
    import ray.data

    if workers is not None:
        check_count(workers, "workers")
    concurrency = min(len(items), count_cores() // threads if workers is None else workers)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    shared = ray.put((task, list(items)))
    indices = ray.data.from_items(
        [{"item": i} for i in range(len(items))], override_num_blocks=len(items)
    )
    results = indices.map_batches(
        _run_batch,  # type: ignore[arg-type]
        batch_size=1,
        fn_kwargs={"shared": [shared], "threads": threads},
        concurrency=max(1, concurrency),
        num_cpus=threads,
    )
    with track(description, len(items)) as step:
        for row in results.iter_rows():
            index, error_type, result = pickle.loads(row["result"])
            if error_type is not None:
                raise (OSError if error_type.endswith("OSError") else ValueError)(result)
            step("")
            yield index, result


def _run_batch(
    batch: dict[str, np.ndarray], shared: list[Any], threads: int
) -> dict[str, list[bytes]]:
    """Run the task for a batch of items, in a worker."""
    import ray
    import torch

    torch.set_num_threads(threads)
    task, items = _get_shared(shared[0], ray.get)
    results: list[tuple[int, str | None, object]] = []
    for index in batch["item"].tolist():
        try:
            results.append((index, None, task(items[index])))
        except (ValueError, OSError) as error:  # An error of the data, which would be repeated.
            results.append((index, type(error).__name__, str(error)))
    return {"result": [pickle.dumps(result) for result in results]}


_last_shared: list[tuple[Any, Any]] = []


def _get_shared(reference: Any, get: Callable[[Any], Any]) -> Any:
    """Return the task and the items, which a worker unpickles once for all of its items."""
    if not _last_shared or _last_shared[0][0] != reference:
        _last_shared[:] = [(reference, get(reference))]
    return _last_shared[0][1]
