"""Save, load and predict in many threads and processes at the same time, and check every result.

    python benchmarks/stress.py                      # 8 threads and 4 processes, five minutes
    python benchmarks/stress.py --seconds 5 --threads 2 --processes 1

All workers share two folders that they overwrite, new folders that only one of them may create, a
text file, and the fitted models. Each worker also has a folder of its own. The processes fork
children that predict, and children that are killed while they save. Three properties are checked: a
load returns one of the models, complete; a prediction equals that of the start; and at the end,
each folder contains one model and no other files. The exit code is 1 if a check fails.
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
TINY_NETWORKS = {"max_epochs": 2, "width": 8}
FIT, NEW = sl.datasets.gaussian(700, 0.6, n_classes=6, dimension=5).split(500, 200)
TEXT_BYTES = 20_000
Answers = list[list[list[object]]]
"""Labels of the sets of the new rows, for each level."""


def main() -> int:
    """Run all workers, check the folders, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--processes", type=int, default=4)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        models = fit_models()
        for title, model in models.items():
            model.save(folder / "reference" / title)
        references = References(models, {title: predict(m) for title, m in models.items()})
        for shared in SHARED:
            models["lac"].save(folder / shared)
        write_text(folder, 0)
        total = run_workers(options, folder, references)
        check_folders(folder, references, total)
    return report(options, total)


# Models and their predictions


def fit_models() -> dict[str, Model]:
    """Return fitted models of several types, by title."""
    scores, x, y = FIT.posterior, FIT.x, FIT.y
    return {
        "lac": sl.SplitConformal("lac").fit(scores, y),
        "aps": sl.SplitConformal("aps").fit(scores, y),
        "raps": sl.SplitConformal("raps", randomized=True).fit(scores, y),
        "shortlister": sl.Shortlister(
            **TINY_NETWORKS, rank_width=8, folds=2, rescore=True, learn_sizes=True
        ).fit(scores, y, x),
        "selector": sl.CardinalitySelector(sl.TopK([1, 2, 4]), **TINY_NETWORKS).fit(scores, y, x),
        "plug-in": sl.PlugInSelector(sl.Conformal("lac", [0.5, 0.8, 0.95])).fit(scores, y),
        "classifier": sl.ShortlistClassifier(
            LogisticRegression(), method=sl.SplitConformal("aps")
        ).fit(x, y),
    }


def predict(model: Model) -> Answers:
    """Return the labels of the sets of the new rows, at several levels if the model has them."""
    if isinstance(model, sl.ShortlistClassifier):
        return [model.predict_set(NEW.x).labels()]
    if isinstance(model, sl.SplitConformal):
        sets = model.predict_sets(NEW.posterior, accuracies=LEVELS)
        # The labels of all levels are computed at the first use, here in two threads.
        thread = threading.Thread(target=sets[0].labels)
        thread.start()
        labels = [sets_at_level.labels() for sets_at_level in sets]
        thread.join()
        return labels
    features = [NEW.x] if isinstance(model, sl.Shortlister | sl.CardinalitySelector) else []
    point = {"accuracy": 0.6} if isinstance(model, sl.Shortlister) else {}
    return [model.predict_set(NEW.posterior, *features, **point).labels()]


@dataclass
class References:
    """Fitted models, which all threads share, and their predictions at the start."""

    models: dict[str, Model]
    answers: dict[str, Answers]
    titles: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.titles = {digest(model): title for title, model in self.models.items()}

    def check_prediction(self, title: str, model: Model) -> None:
        """Raise if a model predicts other sets than at the start."""
        if predict(model) != self.answers[title]:
            raise AssertionError(f"{title} does not predict the same sets as at the start")

    def check_loaded(self, path: Path) -> None:
        """Raise if a folder does not contain one of the models."""
        model = sl.load(path)
        title = self.titles.get(digest(model))
        if title is None:
            raise AssertionError(f"{path.name} contains a model that was never saved")
        self.check_prediction(title, model)


# Operations


@dataclass
class Outcome:
    """Numbers of successful and failed operations, with the messages of failures."""

    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)

    def attempt(self, name: str, operation: Callable[[], str | None]) -> None:
        """Run an operation and count it, by its name or by the name that it returns."""
        try:
            self.done[operation() or name] += 1
        except Exception:
            self.failed[name] += 1
            self.messages.append(f"{name}: {traceback.format_exc()}")

    def add(self, other: Outcome) -> None:
        """Add the counts of another worker."""
        self.done += other.done
        self.failed += other.failed
        self.messages += other.messages


class Worker:
    """Runs random operations in a thread, or in the main thread of a process."""

    def __init__(self, folder: Path, references: References, seed: int, *, forks: bool) -> None:
        self.folder, self.references = folder, references
        self.random = random.Random(seed)
        self.own_folder = folder / f"own-{seed}"
        self.operations: dict[str, tuple[int, Callable[[], str | None]]] = {
            "save, shared folder": (4, self.save_shared),
            "save, own folder": (2, self.save_own),
            "save, new folder": (2, self.save_new),
            "load, shared folder": (6, lambda: references.check_loaded(self.shared_folder())),
            "load, own folder": (2, lambda: references.check_loaded(self.own_folder)),
            "predict": (4, self.predict),
            "write and read a file": (2, self.write_and_read_text),
        }
        if forks:
            self.operations["save, killed"] = (2, self.save_and_be_killed)
            self.operations["predict, forked"] = (2, self.predict_in_child)

    def run(self, seconds: float) -> Outcome:
        """Run operations for some seconds, and count them."""
        outcome = Outcome()
        outcome.attempt("save, own folder", self.save_own)
        names = list(self.operations)
        weights = [weight for weight, _ in self.operations.values()]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            (name,) = self.random.choices(names, weights)
            outcome.attempt(name, self.operations[name][1])
        return outcome

    def shared_folder(self) -> Path:
        """Draw one of the shared folders."""
        return self.folder / self.random.choice(SHARED)

    def model(self) -> tuple[str, Model]:
        """Draw a title and its model."""
        return self.random.choice(list(self.references.models.items()))

    def save_shared(self) -> None:
        """Overwrite the model of a shared folder."""
        self.model()[1].save(self.shared_folder(), overwrite=True)

    def save_own(self) -> None:
        """Overwrite the model of the worker's own folder."""
        self.model()[1].save(self.own_folder, overwrite=True)

    def save_new(self) -> str | None:
        """Save to a folder that all workers try to create in the same half second."""
        path = self.folder / "new" / str(int(time.time() * 2))
        try:
            self.model()[1].save(path, overwrite=self.random.random() < 0.2)
        except FileExistsError:
            return "save, folder exists"
        return None

    def predict(self) -> None:
        """Predict with a shared model."""
        self.references.check_prediction(*self.model())

    def write_and_read_text(self) -> None:
        """Write a file, and read what this or another worker wrote."""
        write_text(self.folder, self.random.randrange(10))
        text = (self.folder / "text.txt").read_text()
        if len(text) != TEXT_BYTES or len(set(text)) != 1:
            raise AssertionError("a file is a mixture of what several workers wrote")

    def save_and_be_killed(self) -> None:
        """Fork a child that saves, and kill it."""
        path = self.shared_folder()
        _, model = self.model()

        def save_forever() -> bool:
            while True:
                model.save(path, overwrite=True)

        child = fork(save_forever)
        time.sleep(self.random.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def predict_in_child(self) -> None:
        """Fork a child that predicts with a shared model."""
        title, model = self.model()
        expected = self.references.answers[title]
        child = fork(lambda: predict(model) == expected)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 0:
            raise AssertionError(f"a forked child that predicts with {title} exited with {code}")


def fork(function: Callable[[], bool]) -> int:
    """Run a function in a forked child, and return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        signal.alarm(60)  # A child that hangs must fail, and must not stop the run.
        os._exit(0 if function() else 1)
    except BaseException:
        os._exit(2)


def write_text(folder: Path, digit: int) -> None:
    """Write the shared text file."""
    with atomic_write(folder / "text.txt") as staged:
        staged.write_text(str(digit) * TEXT_BYTES)


# Workers


def run_workers(options: argparse.Namespace, folder: Path, references: References) -> Outcome:
    """Run all threads and processes, and add up their outcomes."""
    context = multiprocessing.get_context("spawn")
    answers, seconds = references.answers, options.seconds
    with context.Pool(options.processes) as pool:
        pool.map(sleep_briefly, range(4 * options.processes))  # Wait until all have started.
        tasks = [(folder, answers, 1000 + i, seconds) for i in range(options.processes)]
        process_outcomes = pool.starmap_async(run_in_process, tasks, chunksize=1)
        outcomes: list[Outcome] = []

        def run_in_thread(seed: int) -> None:
            outcomes.append(Worker(folder, references, seed, forks=False).run(seconds))

        threads = [
            threading.Thread(target=run_in_thread, args=(seed,)) for seed in range(options.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcomes += process_outcomes.get(seconds + 120)
    if len(outcomes) != options.threads + options.processes:
        raise RuntimeError(f"only {len(outcomes)} workers finished")
    total = Outcome()
    for outcome in outcomes:
        total.add(outcome)
    return total


def sleep_briefly(_: int) -> None:
    """Occupy a process, so that the next task goes to another one."""
    time.sleep(0.05)


def run_in_process(folder: Path, answers: dict[str, Answers], seed: int, seconds: float) -> Outcome:
    """Load the models, and run a worker."""
    models = {title: sl.load(folder / "reference" / title) for title in answers}
    forks = hasattr(os, "fork")
    return Worker(folder, References(models, answers), seed, forks=forks).run(seconds)


def check_folders(folder: Path, references: References, total: Outcome) -> None:
    """Check that each folder contains one complete model and no other files."""
    for shared in SHARED:  # This save removes files that killed children left.
        references.models["lac"].save(folder / shared, overwrite=True)
    write_text(folder, 0)
    expected = {"reference", "new", "text.txt", *SHARED}
    names = {path.name for path in folder.iterdir() if not path.name.startswith("own-")}

    def check_names() -> None:
        if names - expected:
            raise AssertionError(f"unexpected files: {sorted(names - expected)}")

    def check_model(path: Path) -> None:
        references.check_loaded(path)
        files = json.loads((path / "model.json").read_text())["files"].values()
        listed = {"model.json", *(file["file"] for file in files)}
        if set(os.listdir(path)) != listed:
            raise AssertionError(f"{path.name}: expected {listed}, got {os.listdir(path)}")

    total.attempt("check at the end", check_names)
    for path in [*folder.glob("own-*"), *folder.glob("new/*"), *(folder / s for s in SHARED)]:
        total.attempt("check at the end", lambda path=path: check_model(path))


def report(options: argparse.Namespace, total: Outcome) -> int:
    """Print the counts and the first messages, and return the exit code."""
    errors = sum(total.failed.values())
    print(f"{options.threads} threads and {options.processes} processes, {options.seconds:g} s\n")
    print("| operation | done | errors |\n|---|---:|---:|")
    for name in sorted(total.done.keys() | total.failed.keys()):
        print(f"| {name} | {total.done[name]:,} | {total.failed[name]:,} |")
    print(f"| all | {sum(total.done.values()):,} | {errors:,} |")
    for message in total.messages[:5]:
        print(message, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
