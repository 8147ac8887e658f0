"""Doing the tasks: each once, in several processes, each outcome kept as soon as it is there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import active_children, get_context
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.progress import Show, Step, track
from shortlist._version import __version__
from shortlist.paper.sources import Sources
from shortlist.paper.tasks import Outcome, Scored, Task, solve

POLL_S = 0.5


class Store:
    """A folder with a file for each task that is done. What is there is not done again.

    A file counts only if it was written by this version of the library, for this task and these
    data; any other is overwritten.
    """

    def __init__(self, folder: Path, sources: Sources, names: Sequence[str]) -> None:
        self.folder = folder
        self.prints = {name: sources.fingerprint(name) for name in names}

    def _path(self, task: Task) -> Path:
        return self.folder / f"{task.key}.json"

    def _identity(self, task: Task) -> dict[str, object]:
        identity = {"task": asdict(task), "data": self.prints[task.data], "version": __version__}
        known: dict[str, object] = json.loads(json.dumps(identity))
        return known

    def get(self, task: Task) -> Outcome | None:
        """What was kept of a task, or None."""
        try:
            kept = json.loads(self._path(task).read_text(encoding="utf-8"))
            if kept["identity"] != self._identity(task):
                return None
            return Outcome(**kept["outcome"])
        except (OSError, ValueError, KeyError, TypeError):  # absent, damaged, or from elsewhere
            return None

    def put(self, task: Task, outcome: Outcome) -> None:
        """Keep what came out: written aside and moved into place."""
        kept = {"identity": self._identity(task), "outcome": asdict(outcome)}
        with atomic_write(self._path(task)) as aside:
            aside.write_text(json.dumps(kept, indent=1), encoding="utf-8")


def run_all(
    tasks: Sequence[Task], sources: Sources, store: Store, *, workers: int, progress: Show
) -> dict[Task, Outcome]:
    """The outcomes of all tasks: kept ones, and those that are still to be had."""
    found = {task: store.get(task) for task in tasks}
    open_ = [task for task, outcome in found.items() if outcome is None]
    groups = _groups(open_)
    with track("figures", sum(map(work, open_)), progress) as step:
        if workers == 1 or len(groups) < 2:
            with _one_thread():
                for group in groups:
                    for task in _do(group, sources, store):
                        step(describe(task), work(task))
        else:
            _share(groups, sources, store, min(workers, len(groups)), step)
    return {task: _kept(store, task) for task in tasks}


def describe(task: Task) -> str:
    """A task in a few words, for the progress bar."""
    return f"{task.data}, {task.method}, seed {task.seed}"


def work(task: Task) -> int:
    """About how long a task takes, in units that mean nothing by themselves."""
    rows = task.rows
    if task.method == "cardinality-aware":
        learning = len(task.members) > 1
        return 1 + learning * rows * task.epochs * (1 + len(task.weights)) // 100_000
    return 1 + (rows // 250 if task.method == "Shortlister" else 0)


def _groups(tasks: Sequence[Task]) -> list[list[Task]]:
    """Tasks that share a classifier are done one after the other; the longest group first."""
    groups: dict[tuple[str, str, int], list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.data, task.scoring, task.seed), []).append(task)
    return sorted(groups.values(), key=lambda group: -sum(map(work, group)))


def _do(group: Sequence[Task], sources: Sources, store: Store) -> Iterator[Task]:
    """Do the tasks of a group, and keep each outcome."""
    first = group[0]
    scored = Scored(sources.read(first.data, first.seed), first.scoring, first.seed)
    for task in group:
        store.put(task, solve(task, scored))
        yield task


def _work_off(group: Sequence[Task], sources: Sources, store: Store) -> None:
    """What a process does."""
    with _one_thread():
        for _ in _do(group, sources, store):
            pass


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for everything: small steps gain nothing from more, and sums then come out the
    same on every machine, however many processes there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _share(
    groups: Sequence[Sequence[Task]], sources: Sources, store: Store, workers: int, step: Step
) -> None:
    """Share the groups among processes; tell of each outcome that appears."""
    waiting = [task for group in groups for task in group]
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    others = set(active_children())
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        jobs = {pool.submit(_work_off, group, sources, store) for group in groups}
        while jobs:
            done, jobs = wait(jobs, timeout=POLL_S, return_when=FIRST_EXCEPTION)
            for task in [t for t in waiting if store.get(t) is not None]:
                waiting.remove(task)
                step(describe(task), work(task))
            for job in done:
                job.result()  # raises what was raised there
        pool.shutdown()
    except BaseException:
        # At once: what the processes were at is not kept, and will be done again.
        for process in set(active_children()) - others:
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _kept(store: Store, task: Task) -> Outcome:
    outcome = store.get(task)
    if outcome is None:
        raise RuntimeError(f"the outcome of {describe(task)} was removed from {store.folder}")
    return outcome
