"""The engine: Ray, found or started, and pieces of work spread over it."""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from shortlist._utils.progress import track
from shortlist._utils.validation import check_count

if TYPE_CHECKING:
    import numpy as np

Work = Callable[[Any], object]
"""A function of one item."""


def connect(address: str | None = None) -> None:
    """Use the cluster that this process is connected to, or connect it.

    `address` is that of a running cluster ("auto": the one on this machine), or "local" for one of
    this process alone. None: as Ray finds it, by RAY_ADDRESS; else local.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            "this runs on Ray, which is not installed: pip install 'shortlist[ray]'"
        ) from error
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if _host_and_port(address) is not None and address != here:
            raise ValueError(
                f"address = {address!r}, but this process is connected to the cluster at {here!r}; "
                "leave address out, or call ray.shutdown() first"
            )
        return
    _probe(address)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    try:
        # Workers print nothing that is not an error, which comes back anyway.
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        words = " ".join(str(error).split())[:200]
        if address == "auto":
            words = (
                'none runs on this machine; `ray start --head` starts one, and "local" needs none'
            )
        raise ConnectionError(f"no Ray cluster answers at {address!r}: {words}") from error
    except ValueError as error:
        raise ValueError(
            f"address = {address!r} is none: it is HOST:PORT, ray://HOST:PORT, auto (the cluster "
            f"on this machine) or local ({error})"
        ) from error


def _host_and_port(address: str | None) -> tuple[str, int] | None:
    """
    >>> _host_and_port("first:6379"), _host_and_port("auto"), _host_and_port("ray://first:10001")
    (('first', 6379), None, None)
    """
    host, _, port = (address or "").rpartition(":")
    return (host, int(port)) if host and port.isdigit() and "/" not in host else None


def _probe(address: str | None) -> None:
    """Raise at once if nobody listens there: Ray itself goes on trying for minutes."""
    there = _host_and_port(address)
    if there is None:
        return
    try:
        socket.create_connection(there, timeout=10).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address!r}: {error}; `ray start --head` starts one, and "
            "says its address"
        ) from error


def cores() -> int:
    """How many CPUs the cluster has."""
    return max(1, _resources("CPU"))


def gpus() -> int:
    """How many GPUs the cluster has."""
    return _resources("GPU")


def _resources(kind: str) -> int:
    import ray

    return int(ray.cluster_resources().get(kind, 0))  # type: ignore[no-untyped-call]


def check_room(workers: int, threads: int, use_gpu: bool) -> None:
    """Raise if processes that must run at the same time cannot: Ray would wait for ever."""
    if workers * threads > cores():
        raise ValueError(
            f"{workers} workers of {threads} {'thread' if threads == 1 else 'threads'} learn at "
            f"the same time, but the cluster has {cores()} cores; take fewer workers, or threads"
        )
    if use_gpu and workers > gpus():
        raise ValueError(
            f"use_gpu = True: each of {workers} workers needs a GPU, but the cluster has {gpus()}; "
            "take fewer workers, or leave use_gpu out"
        )


def _work(batch: dict[str, np.ndarray], shared: list[Any], threads: int) -> dict[str, list[bytes]]:
    """What becomes of the items whose numbers come; run in a worker."""
    import ray
    import torch

    torch.set_num_threads(threads)
    work, items = _unpacked(shared[0], ray.get)
    found: list[tuple[int, str | None, object]] = []
    for at in batch["item"].tolist():
        try:
            found.append((at, None, work(items[at])))
        except (ValueError, OSError) as error:  # what is wrong is the data, not this worker
            found.append((at, type(error).__name__, str(error)))
    return {"found": [pickle.dumps(one) for one in found]}


_latest: list[tuple[Any, Any]] = []


def _unpacked(reference: Any, get: Callable[[Any], Any]) -> Any:
    """The latest work, which a worker unpacks once for all of its items."""
    if not _latest or _latest[0][0] != reference:
        _latest[:] = [(reference, get(reference))]
    return _latest[0][1]


def spread(
    work: Work, items: Sequence[object], what: str, *, workers: int | None, threads: int = 1
) -> Iterator[tuple[int, Any]]:
    """The number of each item, and what the work makes of it, in whatever order it is done.

    Ray Data streams the items through the workers, and does again what one that died had not
    finished: so work must be such that it can be done twice. What is wrong with the data ends it,
    in the words of the worker.
    """
    import ray.data

    if workers is not None:
        check_count(workers, "workers")
    count = min(len(items), cores() // threads if workers is None else workers)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    shared = ray.put((work, list(items)))
    numbers = ray.data.from_items(
        [{"item": i} for i in range(len(items))], override_num_blocks=len(items)
    )
    done = numbers.map_batches(
        _work,  # type: ignore[arg-type]
        batch_size=1,
        fn_kwargs={"shared": [shared], "threads": threads},
        concurrency=max(1, count),
        num_cpus=threads,
    )
    with track(what, len(items)) as step:
        for row in done.iter_rows():
            at, wrong, found = pickle.loads(row["found"])
            if wrong is not None:
                raise (OSError if wrong.endswith("OSError") else ValueError)(found)
            step("")
            yield at, found
