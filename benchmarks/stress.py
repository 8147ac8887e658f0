"""Threads and processes that save, load and predict at once; every result is checked.

    python benchmarks/stress.py                      # 8 threads and 4 processes, five minutes
    python benchmarks/stress.py --seconds 5 --threads 2 --processes 1

All share two folders that they overwrite, new folders that one of them may make, a file, and the
fitted models; each has a folder of its own as well. The processes also fork children that predict,
and children that are killed while they save. A load must give one of the models, whole; a
prediction must equal the one made at the start; at the end nothing else may be in any folder.
Exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.linear_model import LogisticRegression

import shortlist as sl
from shortlist._utils.atomic_write import atomic_write
from shortlist.io.models import Model, digest

SHARED = ("shared-a", "shared-b")
LEVELS = [0.5, 0.7, 0.9]
TINY = {"max_epochs": 2, "width": 8}
DATA = sl.datasets.gaussian(700, 0.6, n_classes=6, dimension=5)
FIT, NEW = DATA.split(500, 200)
TEXT_BYTES = 20_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--processes", type=int, default=4)
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        models = fitted_models()
        for title, model in models.items():
            model.save(folder / "reference" / title)
        references = References(models, {title: answers(m) for title, m in models.items()})
        for shared in SHARED:
            models["lac"].save(folder / shared)
        write_text(folder, 0)
        total = run(given, folder, references)
        check_folders(folder, references, total)
    return report(given, total)


# Models and what they answer


def fitted_models() -> dict[str, Model]:
    scores, x, y = FIT.posterior, FIT.x, FIT.y
    return {
        "lac": sl.SplitConformal("lac").fit(scores, y),
        "aps": sl.SplitConformal("aps").fit(scores, y),
        "raps": sl.SplitConformal("raps", randomized=True).fit(scores, y),
        "shortlister": sl.Shortlister(
            **TINY, rank_width=8, folds=2, rescore=True, learn_sizes=True
        ).fit(scores, y, x),
        "selector": sl.CardinalitySelector(sl.TopK([1, 2, 4]), **TINY).fit(scores, y, x),
        "plug-in": sl.PlugInSelector(sl.Conformal("lac", [0.5, 0.8, 0.95])).fit(scores, y),
        "classifier": sl.ShortlistClassifier(
            LogisticRegression(), method=sl.SplitConformal("aps")
        ).fit(x, y),
    }


def answers(model: Model) -> list[list[list[object]]]:
    """The sets of the new rows, at several levels where a model has them."""
    if isinstance(model, sl.ShortlistClassifier):
        return [model.predict_set(NEW.x).labels()]
    if isinstance(model, sl.SplitConformal):
        sets = model.predict_sets(NEW.posterior, accuracies=LEVELS)
        # Their labels are cut from one list when they are first used, here by two threads.
        other = threading.Thread(target=sets[0].labels)
        other.start()
        found = [one.labels() for one in sets]
        other.join()
        return found
    features = [NEW.x] if isinstance(model, sl.Shortlister | sl.CardinalitySelector) else []
    point = {"accuracy": 0.6} if isinstance(model, sl.Shortlister) else {}
    return [model.predict_set(NEW.posterior, *features, **point).labels()]


@dataclass
class References:
    """Fitted models, which all threads share, and what they answered at the start."""

    models: dict[str, Model]
    answers: dict[str, list[list[list[object]]]]
    titles: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.titles = {digest(model): title for title, model in self.models.items()}

    def check_answers(self, title: str, model: Model) -> None:
        if answers(model) != self.answers[title]:
            raise AssertionError(f"{title} predicts other sets than at the start")

    def check_loaded(self, path: Path) -> None:
        model = sl.load(path)
        title = self.titles.get(digest(model))
        if title is None:
            raise AssertionError(f"{path.name} holds a model that nobody saved")
        self.check_answers(title, model)


# Operations


@dataclass
class Outcome:
    """How often each operation was done, and what went wrong."""

    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)

    def attempt(self, kind: str, work: Callable[[], str | None]) -> None:
        try:
            self.done[work() or kind] += 1
        except Exception:
            self.failed[kind] += 1
            self.messages.append(f"{kind}: {traceback.format_exc()}")

    def add(self, other: Outcome) -> None:
        self.done += other.done
        self.failed += other.failed
        self.messages += other.messages


class Worker:
    """One thread, or the main thread of a process: operations drawn at random."""

    def __init__(self, folder: Path, references: References, seed: int, *, forks: bool) -> None:
        self.folder, self.references = folder, references
        self.draw = random.Random(seed)
        self.own = folder / f"own-{seed}"
        self.operations: dict[str, tuple[int, Callable[[], str | None]]] = {
            "save, shared folder": (4, self.save_shared),
            "save, own folder": (2, self.save_own),
            "save, new folder": (2, self.save_new),
            "load, shared folder": (6, lambda: self.load(self.shared())),
            "load, own folder": (2, lambda: self.load(self.own)),
            "predict": (4, self.predict),
            "write and read a file": (2, self.write),
        }
        if forks:
            self.operations["save, killed"] = (2, self.save_and_be_killed)
            self.operations["predict, forked"] = (2, self.predict_in_child)

    def run(self, seconds: float) -> Outcome:
        outcome = Outcome()
        outcome.attempt("save, own folder", self.save_own)
        kinds = list(self.operations)
        weights = [weight for weight, _ in self.operations.values()]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            (kind,) = self.draw.choices(kinds, weights)
            outcome.attempt(kind, self.operations[kind][1])
        return outcome

    def shared(self) -> Path:
        return self.folder / self.draw.choice(SHARED)

    def some(self) -> str:
        return self.draw.choice(list(self.references.models))

    def save_shared(self) -> None:
        self.references.models[self.some()].save(self.shared(), overwrite=True)

    def save_own(self) -> None:
        title = self.some()
        self.references.models[title].save(self.own, overwrite=True)

    def save_new(self) -> str | None:
        """All workers try the same new folder for half a second; one succeeds, or overwrites."""
        path = self.folder / "new" / str(int(time.time() * 2))
        try:
            self.references.models[self.some()].save(path, overwrite=self.draw.random() < 0.2)
        except FileExistsError:
            return "save, refused: exists"
        return None

    def load(self, path: Path) -> None:
        self.references.check_loaded(path)

    def predict(self) -> None:
        title = self.some()
        self.references.check_answers(title, self.references.models[title])

    def write(self) -> None:
        write_text(self.folder, self.draw.randrange(10))
        text = (self.folder / "text.txt").read_text()
        if len(text) != TEXT_BYTES or len(set(text)) != 1:
            raise AssertionError("a file is not as one of its writers wrote it")

    def save_and_be_killed(self) -> None:
        path = self.shared()
        title = self.some()

        def save_for_ever() -> bool:
            while True:
                self.references.models[title].save(path, overwrite=True)

        child = forked(save_for_ever)
        time.sleep(self.draw.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def predict_in_child(self) -> None:
        title = self.some()
        right = self.references.answers[title]
        child = forked(lambda: answers(self.references.models[title]) == right)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 0:
            raise AssertionError(f"a forked child that predicts with {title} ended with {code}")


def forked(work: Callable[[], bool]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        signal.alarm(60)  # A child that hangs is a failure, and not the end of the run.
        os._exit(0 if work() else 1)
    except BaseException:
        os._exit(2)


def write_text(folder: Path, digit: int) -> None:
    with atomic_write(folder / "text.txt") as aside:
        aside.write_text(str(digit) * TEXT_BYTES)


# Running all of them


def run(given: argparse.Namespace, folder: Path, references: References) -> Outcome:
    context = multiprocessing.get_context("spawn")
    right = references.answers
    with context.Pool(given.processes) as pool:
        pool.map(ready, range(4 * given.processes))  # all have started
        jobs = [(folder, right, 1000 + i, given.seconds) for i in range(given.processes)]
        elsewhere = pool.starmap_async(in_process, jobs, chunksize=1)
        outcomes: list[Outcome] = []

        def in_thread(seed: int) -> None:
            outcomes.append(Worker(folder, references, seed, forks=False).run(given.seconds))

        threads = [threading.Thread(target=in_thread, args=(i,)) for i in range(given.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcomes += elsewhere.get(given.seconds + 120)
    if len(outcomes) != given.threads + given.processes:
        raise RuntimeError(f"only {len(outcomes)} workers came to an end")
    total = Outcome()
    for outcome in outcomes:
        total.add(outcome)
    return total


def ready(_: int) -> None:
    time.sleep(0.05)


def in_process(folder: Path, right: dict[str, list], seed: int, seconds: float) -> Outcome:
    models = {title: sl.load(folder / "reference" / title) for title in right}
    forks = hasattr(os, "fork")
    return Worker(folder, References(models, right), seed, forks=forks).run(seconds)


def check_folders(folder: Path, references: References, total: Outcome) -> None:
    """Each folder holds one whole model and nothing else."""
    for shared in SHARED:  # This save removes what the last killed ones left.
        references.models["lac"].save(folder / shared, overwrite=True)
    write_text(folder, 0)
    known = {"reference", "new", "text.txt", *SHARED}
    strangers = {p.name for p in folder.iterdir() if not p.name.startswith("own-")} - known

    def check_strangers() -> None:
        if strangers:
            raise AssertionError(f"left behind: {sorted(strangers)}")

    def check(path: Path) -> None:
        references.check_loaded(path)
        files = json.loads((path / "model.json").read_text())["files"].values()
        listed = {"model.json", *(one["file"] for one in files)}
        if set(os.listdir(path)) != listed:
            raise AssertionError(f"left behind in {path.name}: {set(os.listdir(path)) - listed}")

    total.attempt("check at the end", check_strangers)
    for path in [*folder.glob("own-*"), *folder.glob("new/*"), *(folder / s for s in SHARED)]:
        total.attempt("check at the end", lambda path=path: check(path))


def report(given: argparse.Namespace, total: Outcome) -> int:
    errors = sum(total.failed.values())
    print(f"{given.threads} threads and {given.processes} processes, {given.seconds:g} s\n")
    print("| operation | done | errors |\n|---|---:|---:|")
    for kind in sorted(total.done.keys() | total.failed.keys()):
        print(f"| {kind} | {total.done[kind]:,} | {total.failed[kind]:,} |")
    print(f"| all | {sum(total.done.values()):,} | {errors:,} |")
    for message in total.messages[:5]:
        print(message, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
