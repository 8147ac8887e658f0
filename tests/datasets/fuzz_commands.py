"""Run commands on mutated data files, and watch what they do.

`python tests/datasets/fuzz_commands.py COUNT SEED` prints a JSON object: the number of commands by
exit code, and every finding. A finding is a traceback, an unknown exit code, a message that is not
one clean line, a file written outside the output folder, anything executed or unpickled, a command
that takes long, or two formats with the same content that give other sets.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import re
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import data_files
import numpy as np
from typer.testing import CliRunner, Result

from shortlist.cli import app

SECONDS = 20.0
BYTES = 12 << 30
"""Address space for the whole process. Memory maps of torch and Arrow count too."""
EXECUTED = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen",
            "pickle.find_class", "ctypes.dlopen", "socket.connect", "webbrowser.open")  # fmt: skip
CHANGED = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate",
           "os.chmod", "shutil.rmtree", "shutil.move", "shutil.copyfile")  # fmt: skip
UNEXPECTED = re.compile(r"^shortlist: \w*(Error|Exception|Interrupt|Iteration)\b")
COMMANDS = ["fit", "fit", "calibrate", "predict", "predict", "predict", "inspect", "export"]
ENDINGS = [".jsonl", ".csv", ".parquet"]
SLOW = ["compare", "fit shortlister"]
"""One command in forty is one of these."""


class Watch:
    """What happens in this process that no data file may make happen."""

    def __init__(self, home: Path) -> None:
        self.home, self.on, self.seen = str(home), False, list[str]()
        sys.addaudithook(self.hook)

    def hook(self, event: str, args: tuple[object, ...]) -> None:
        if not self.on:
            return
        if event.startswith(EXECUTED):
            self.seen.append(f"{event} {args!r:.100}")
        elif event == "open":
            path, mode, flags = (*args, None, None)[:3]
            writes = isinstance(mode, str) and set(mode) & set("wax+")
            writes = writes or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))
            if writes and not self._inside(path):
                self.seen.append(f"{event} {args!r:.100}")
        elif event in CHANGED and not self._inside(args[0]):
            self.seen.append(f"{event} {args!r:.100}")

    def _inside(self, path: object) -> bool:
        if isinstance(path, int):  # a file that is open already
            return True
        return os.path.realpath(os.fsdecode(path)).startswith((self.home, "/dev/null"))  # type: ignore[arg-type]


def words_for(command: str, data: Path, model: Path, rng: random.Random, out: Path) -> list[str]:
    """A command line about a data file."""
    method = rng.choice(["lac", "aps", "topk", "saps", "plug-in"])
    return {
        "fit": ["fit", data, "-o", out / "m", "--method", method, "--accuracy", "0.7"],
        "fit shortlister": ["fit", data, "-o", out / "m", "--max-epochs", "1"],
        "calibrate": ["calibrate", model, data, "-o", out / "m"],
        "predict": ["predict", model, data, "-o", out / f"s{rng.choice(ENDINGS)}"],
        "compare": ["compare", data, "--max-epochs", "1", "-o", out / "t.csv"],
        "inspect": ["inspect", rng.choice([data, model])],
        "export": ["export", rng.choice([data, model]), "-o", out / "g.onnx", "--accuracy", "0.7"],
    }[command]  # fmt: skip


def wrong_with(result: Result, seconds: float) -> str | None:
    """What is wrong with how a command ended, if anything is."""
    said = result.stderr.strip().splitlines()
    lines = [line for line in said if not line.startswith("shortlist: warning: ")]
    if "Traceback" in result.output or "Traceback" in result.stderr:
        return "a traceback"
    if result.exit_code not in (0, 1, 2):
        return f"exit code {result.exit_code}: {result.exception!r:.200}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"an exception: {result.exception!r:.200}"
    if result.exit_code == 0 and lines:
        return f"something said besides the result: {lines[0][:200]}"
    if result.exit_code == 1 and (len(lines) != 1 or not lines[0].startswith("shortlist: ")):
        return f"{len(lines)} lines: {lines[:3]!r:.300}"
    if result.exit_code == 1 and UNEXPECTED.search(lines[0]):
        return f"an error that nobody foresaw: {lines[0][:300]}"
    if result.exit_code == 1 and len(lines[0]) > 1000:
        return f"a message of {len(lines[0])} letters: {lines[0][:100]}"
    if seconds > SECONDS:
        return f"{seconds:.0f} seconds"
    return None


def sets_of(path: Path) -> list[object]:
    return [json.loads(line)["labels"] for line in path.read_text().splitlines()]


class Fuzzer:
    """Mutates, runs and counts."""

    def __init__(self, home: Path) -> None:
        self.home, self.runner, self.watch = home, CliRunner(), Watch(home)
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self.models: dict[str, Path] = {}
        for layout, ending in (("scores", ".npz"), ("candidates", ".npz"), ("features", ".npz")):
            data = data_files.write(home / f"{layout}{ending}", data_files.content(layout, ending))
            model = home / f"model-{layout}"
            done = self._call(["fit", data, "-o", model, "--method", "lac", "--accuracy", "0.7"])
            assert done.exit_code == 0, done.output
            self.models[layout] = model
            # What is loaded late, and the caches of libraries, are no doing of a data file.
            out = home / f"warm-{layout}"
            out.mkdir()
            for command in dict.fromkeys([*COMMANDS, *(SLOW if layout == "scores" else [])]):
                self._call(words_for(command, data, model, random.Random(0), out))

        self._check_watch()

    def _check_watch(self) -> None:
        """Fail if the watch does not see what a program in a file does, were it let run."""
        mark = self.home / "mark"
        (self.home / "harm.npy").write_bytes(pickle.dumps(data_files.Harm(mark)))
        self.watch.on = True
        np.load(self.home / "harm.npy", allow_pickle=True)
        with contextlib.suppress(OSError):
            open("/proc/nothing", "w").close()
        self.watch.on = False
        assert mark.exists()
        events = [one.split()[0] for one in self.watch.seen]
        assert events == ["pickle.find_class", "os.system", "open"], events

    def _call(self, words: list[object]) -> Result:
        return self.runner.invoke(app, [str(word) for word in words])

    def watched(self, words: list[object], told: str) -> Result:
        """Run a command and note what is wrong with it."""
        begun = time.monotonic()
        self.watch.on, self.watch.seen = True, []
        try:
            done = self._call(words)
        finally:
            self.watch.on = False
        wrong = wrong_with(done, time.monotonic() - begun)
        self.counts[f"{words[0]}: exit {done.exit_code}"] += 1
        for one in [*([wrong] if wrong else []), *self.watch.seen]:
            self.findings.append(f"{told}: {' '.join(map(str, words))}: {one}")
        return done

    def case(self, seed: int) -> None:
        """One mutation, and one command about it."""
        rng = random.Random(seed)
        folder = Path(tempfile.mkdtemp(dir=self.home))
        out, mark = folder / "out", folder / "mark"
        out.mkdir()
        layout, ending = rng.choice(data_files.LAYOUTS)
        data = folder / f"data{ending}"
        told = f"seed {seed}, {layout}{ending}"
        how = data_files.mutated(data, layout, ending, rng, mark)
        self.counts[f"{layout} {ending or 'npy'}, {how}"] += 1
        model = self.models[layout if rng.random() < 0.9 else "scores"]
        command = rng.choice(COMMANDS if rng.random() < 0.975 else SLOW)
        self.watched(words_for(command, data, model, rng, out), told)
        if mark.exists():
            self.findings.append(f"{told}: the file's program was run")
        strangers = {p.name for p in folder.iterdir()} - {"out", "mark", data.name}
        if strangers:
            self.findings.append(f"{told}: {sorted(strangers)} beside the output")
        shutil.rmtree(folder)

    def pair(self, seed: int) -> None:
        """One mutation of columns, as CSV and as Parquet: the same sets, if both are taken."""
        rng = random.Random(seed)
        folder = Path(tempfile.mkdtemp(dir=self.home))
        layout = rng.choice(["scores", "candidates"])
        table = data_files.mutate_frame(data_files.frame(layout), rng)
        done = []
        for ending in (".csv", ".parquet"):
            out = folder / f"s{ending}.jsonl"
            try:
                data = data_files.write(folder / f"a{ending}", table)
            except Exception:  # a table that no library writes is no file
                break
            words = ["predict", self.models[layout], data, "-o", out]
            done.append((self.watched(words, f"pair {seed}").exit_code, out))
        codes = [code for code, _ in done]
        if codes == [0, 0] and sets_of(done[0][1]) != sets_of(done[1][1]):
            self.findings.append(f"pair {seed}, {layout}: CSV and Parquet give other sets")
        self.counts["pairs: " + {2: "both taken", 1: "one taken"}.get(codes.count(0), "none")] += 1
        shutil.rmtree(folder)


def main(count: int, seed: int) -> dict[str, object]:
    """Run so many mutations, every tenth as a pair."""
    # In a folder of its own, which is also where temporary files go.
    home = Path(os.path.realpath(tempfile.mkdtemp()))
    tempfile.tempdir = str(home)
    os.chdir(home)
    try:
        fuzzer = Fuzzer(home)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        begun = time.monotonic()
        for i in range(count):
            number = seed * 1_000_000 + i
            fuzzer.pair(number) if i % 10 == 9 else fuzzer.case(number)
        return {
            "mutations": count,
            "seconds": round(time.monotonic() - begun, 1),
            "counts": dict(sorted(fuzzer.counts.items())),
            "findings": fuzzer.findings,
        }
    finally:
        os.chdir("/")
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2])), indent=1))
