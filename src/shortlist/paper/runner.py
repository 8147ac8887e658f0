"""The runner of a study: it solves each task once, in several processes, and stores outcomes."""

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
from shortlist.paper.methods import ScoredFile, solve
from shortlist.paper.sources import Sources
from shortlist.paper.tasks import Outcome, Task

POLL_SECONDS = 0.5


class Store:
    """A folder with a file for each outcome, so that no task is solved twice.

    A file is used only if this version of the library wrote it for the same task and the same
    data. Other files are overwritten.

    Parameters
    ----------
    folder : Path
        The folder. It is created when the first outcome is stored.
    sources : Sources
        The data of the study.
    names : sequence of str
        Names of the data sets that tasks use.
    """

    def __init__(self, folder: Path, sources: Sources, names: Sequence[str]) -> None:
        self.folder = folder
        self.fingerprints = {name: sources.fingerprint(name) for name in names}

    def _path(self, task: Task) -> Path:
        return self.folder / f"{task.key}.json"

    def _identity(self, task: Task) -> dict[str, object]:
        """Return what a stored outcome must match, as JSON returns it (tuples become lists)."""
        identity = {
            "task": asdict(task),
            "data": self.fingerprints[task.data],
            "version": __version__,
        }
        as_stored: dict[str, object] = json.loads(json.dumps(identity))
        return as_stored

    def get(self, task: Task) -> Outcome | None:
        """Return the stored outcome of a task, or None if there is no valid one."""
        try:
            stored = json.loads(self._path(task).read_text(encoding="utf-8"))
            if stored["identity"] != self._identity(task):
                return None
            return Outcome.from_json(stored["outcome"])
        # The file is missing, damaged, or not an outcome.
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, task: Task, outcome: Outcome) -> None:
        """Store the outcome of a task."""
        stored = {"identity": self._identity(task), "outcome": asdict(outcome)}
        with atomic_write(self._path(task)) as temporary:
            temporary.write_text(json.dumps(stored, indent=1), encoding="utf-8")


def run_all(
    tasks: Sequence[Task],
    sources: Sources,
    store: Store,
    *,
    workers: int,
    device: str,
    progress: Show,
) -> dict[Task, Outcome]:
    """Solve the tasks that have no stored outcome, and return the outcomes of all tasks."""
    pending = [task for task in dict.fromkeys(tasks) if store.get(task) is None]
    groups = _groups(pending)
    with track("figures", sum(map(work, pending)), progress) as step:
        if workers == 1 or len(groups) < 2:
            with _single_thread():
                for group in groups:
                    for task in _solve_group(group, sources, store, device):
                        step(describe(task), work(task))
        else:
            count = min(workers, len(groups))
            _run_in_processes(groups, sources, store, count, device, step)
    return {task: _stored(store, task) for task in tasks}


def describe(task: Task) -> str:
    """Return a short description of a task, for the progress bar."""
    return f"{task.data}, {task.method}, seed {task.seed}"


def work(task: Task) -> int:
    """Return a rough estimate of how long a task takes, in arbitrary units."""
    if task.method != "selectors" or len(task.members) == 1:  # There is nothing to learn.
        return 1
    networks = task.selectors * sum(map(len, task.weights))
    size = task.width / 128 * (1 + task.refinements / 2)
    return 1 + int(task.rows * size * networks) // 10_000


def _groups(tasks: Sequence[Task]) -> list[list[Task]]:
    """Return groups of tasks that share a classifier, the group with the most work first."""
    groups: dict[tuple[str, str, int, int], list[Task]] = {}
    for task in tasks:
        key = (task.data, task.scoring, task.classifier_epochs, task.seed)
        groups.setdefault(key, []).append(task)
    return sorted(groups.values(), key=lambda group: -sum(map(work, group)))


def _solve_group(
    group: Sequence[Task], sources: Sources, store: Store, device: str
) -> Iterator[Task]:
    """Solve the tasks of a group, store each outcome, and yield each solved task."""
    first = group[0]
    file = sources.read(first.data, first.seed)
    scored = ScoredFile(file, first.scoring, first.seed, first.classifier_epochs, device)
    for task in group:
        store.put(task, solve(task, scored))
        yield task


def _run_group(group: Sequence[Task], sources: Sources, store: Store, device: str) -> None:
    """Solve a group of tasks in a process of its own."""
    with _single_thread():
        for _ in _solve_group(group, sources, store, device):
            pass


@contextmanager
def _single_thread() -> Iterator[None]:
    """Use one thread, so that results do not depend on the number of processes.

    The training steps are too small to gain from more threads.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _run_in_processes(
    groups: Sequence[Sequence[Task]],
    sources: Sources,
    store: Store,
    workers: int,
    device: str,
    step: Step,
) -> None:
    """Solve groups of tasks in several processes, and report each solved task."""
    unsolved = [task for group in groups for task in group]
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    others = set(active_children())
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        jobs = {pool.submit(_run_group, group, sources, store, device) for group in groups}
        while jobs:
            done, jobs = wait(jobs, timeout=POLL_SECONDS, return_when=FIRST_EXCEPTION)
            for task in [t for t in unsolved if store.get(t) is not None]:
                unsolved.remove(task)
                step(describe(task), work(task))
            for job in done:
                job.result()  # This raises the exception of the process, if there was one.
        pool.shutdown()
    except BaseException:
        # A task that is interrupted has no stored outcome, so the next run solves it again.
        for process in set(active_children()) - others:
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _stored(store: Store, task: Task) -> Outcome:
    outcome = store.get(task)
    if outcome is None:
        raise RuntimeError(f"the outcome of {describe(task)} was removed from {store.folder}")
    return outcome
