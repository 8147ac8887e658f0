"""Run commands on mutated data files, and report wrong behavior.

`python tests/datasets/fuzz_commands.py COUNT SEED` prints a JSON object with the number of commands
by exit code, and with all findings. A finding is a traceback, an unknown exit code, an error
message that is not one line, a file written outside of the output folder, code that is executed or
unpickled, a slow command, or different sets for two formats with the same content.
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
SUFFIXES = [".jsonl", ".csv", ".parquet"]
SLOW = ["compare", "fit shortlister"]
"""Slow commands. One command in forty is one of them."""


class AuditLog:
    """Records events in this process that no data file may cause, while `is_active` is set."""

    def __init__(self, home: Path) -> None:
        self.home, self.is_active, self.events = str(home), False, list[str]()
        sys.addaudithook(self.hook)

    def hook(self, event: str, args: tuple[object, ...]) -> None:
        if not self.is_active:
            return
        if event.startswith(EXECUTED):
            self.events.append(f"{event} {args!r:.100}")
        elif event == "open":
            path, mode, flags = (*args, None, None)[:3]
            writes = isinstance(mode, str) and set(mode) & set("wax+")
            writes = writes or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))
            if writes and not self._inside(path):
                self.events.append(f"{event} {args!r:.100}")
        elif event in CHANGED and not self._inside(args[0]):
            self.events.append(f"{event} {args!r:.100}")

    def _inside(self, path: object) -> bool:
        if isinstance(path, int):  # The file is open already.
            return True
        return os.path.realpath(os.fsdecode(path)).startswith((self.home, "/dev/null"))  # type: ignore[arg-type]


def arguments_for(
    command: str, data: Path, model: Path, rng: random.Random, out: Path
) -> list[str]:
    """Return the arguments of a command for a data file."""
    method = rng.choice(["lac", "aps", "topk", "saps", "plug-in"])
    return {
        "fit": ["fit", data, "-o", out / "m", "--method", method, "--accuracy", "0.7"],
        "fit shortlister": ["fit", data, "-o", out / "m", "--max-epochs", "1"],
        "calibrate": ["calibrate", model, data, "-o", out / "m"],
        "predict": ["predict", model, data, "-o", out / f"s{rng.choice(SUFFIXES)}"],
        "compare": ["compare", data, "--max-epochs", "1", "-o", out / "t.csv"],
        "inspect": ["inspect", rng.choice([data, model])],
        "export": ["export", rng.choice([data, model]), "-o", out / "g.onnx", "--accuracy", "0.7"],
    }[command]  # fmt: skip


def find_defect(result: Result, seconds: float) -> str | None:
    """Return a description of what is wrong with the result of a command, or None."""
    messages = result.stderr.strip().splitlines()
    lines = [line for line in messages if not line.startswith("shortlist: warning: ")]
    if "Traceback" in result.output or "Traceback" in result.stderr:
        return "a traceback"
    if result.exit_code not in (0, 1, 2):
        return f"exit code {result.exit_code}: {result.exception!r:.200}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"an exception: {result.exception!r:.200}"
    if result.exit_code == 0 and lines:
        return f"a message in addition to the result: {lines[0][:200]}"
    if result.exit_code == 1 and (len(lines) != 1 or not lines[0].startswith("shortlist: ")):
        return f"{len(lines)} lines: {lines[:3]!r:.300}"
    if result.exit_code == 1 and UNEXPECTED.search(lines[0]):
        return f"an unexpected error: {lines[0][:300]}"
    if result.exit_code == 1 and len(lines[0]) > 1000:
        return f"a message of {len(lines[0])} characters: {lines[0][:100]}"
    if seconds > SECONDS:
        return f"{seconds:.0f} seconds"
    return None


def read_sets(path: Path) -> list[object]:
    """Return the labels in a file of prediction sets."""
    return [json.loads(line)["labels"] for line in path.read_text().splitlines()]


class Fuzzer:
    """Runs commands on mutated files, and counts their results."""

    def __init__(self, home: Path) -> None:
        self.home, self.runner, self.log = home, CliRunner(), AuditLog(home)
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self.models: dict[str, Path] = {}
        for layout, suffix in (("scores", ".npz"), ("candidates", ".npz"), ("features", ".npz")):
            data = data_files.write(home / f"{layout}{suffix}", data_files.content(layout, suffix))
            model = home / f"model-{layout}"
            result = self._call(["fit", data, "-o", model, "--method", "lac", "--accuracy", "0.7"])
            assert result.exit_code == 0, result.output
            self.models[layout] = model
            # Run all commands once, so that late imports and caches of libraries are not recorded.
            out = home / f"warm-{layout}"
            out.mkdir()
            for command in dict.fromkeys([*COMMANDS, *(SLOW if layout == "scores" else [])]):
                self._call(arguments_for(command, data, model, random.Random(0), out))

        self._check_log()

    def _check_log(self) -> None:
        """Assert that the log records what a malicious file does if it is executed."""
        mark = self.home / "mark"
        malicious = pickle.dumps(data_files.MaliciousObject(mark))
        (self.home / "malicious.npy").write_bytes(malicious)
        self.log.is_active = True
        np.load(self.home / "malicious.npy", allow_pickle=True)
        with contextlib.suppress(OSError):
            open("/proc/nothing", "w").close()
        self.log.is_active = False
        assert mark.exists()
        events = [event.split()[0] for event in self.log.events]
        assert events == ["pickle.find_class", "os.system", "open"], events

    def _call(self, arguments: list[object]) -> Result:
        return self.runner.invoke(app, list(map(str, arguments)))

    def run(self, arguments: list[object], description: str) -> Result:
        """Run a command, and record its findings."""
        start = time.monotonic()
        self.log.is_active, self.log.events = True, []
        try:
            result = self._call(arguments)
        finally:
            self.log.is_active = False
        defect = find_defect(result, time.monotonic() - start)
        self.counts[f"{arguments[0]}: exit {result.exit_code}"] += 1
        for finding in [*([defect] if defect else []), *self.log.events]:
            self.findings.append(f"{description}: {' '.join(map(str, arguments))}: {finding}")
        return result

    def run_mutation(self, seed: int) -> None:
        """Run one command on one mutation."""
        rng = random.Random(seed)
        folder = Path(tempfile.mkdtemp(dir=self.home))
        out, mark = folder / "out", folder / "mark"
        out.mkdir()
        layout, suffix = rng.choice(data_files.LAYOUTS)
        data = folder / f"data{suffix}"
        description = f"seed {seed}, {layout}{suffix}"
        mutation = data_files.write_mutation(data, layout, suffix, rng, mark)
        self.counts[f"{layout} {suffix or 'npy'}, {mutation}"] += 1
        model = self.models[layout if rng.random() < 0.9 else "scores"]
        command = rng.choice(COMMANDS if rng.random() < 0.975 else SLOW)
        self.run(arguments_for(command, data, model, rng, out), description)
        if mark.exists():
            self.findings.append(f"{description}: the program in the file was executed")
        unexpected = {p.name for p in folder.iterdir()} - {"out", "mark", data.name}
        if unexpected:
            self.findings.append(
                f"{description}: {sorted(unexpected)} outside of the output folder"
            )
        shutil.rmtree(folder)

    def run_pair(self, seed: int) -> None:
        """Predict one mutation of columns as CSV and as Parquet, and compare the sets."""
        rng = random.Random(seed)
        folder = Path(tempfile.mkdtemp(dir=self.home))
        layout = rng.choice(["scores", "candidates"])
        table = data_files.mutate_frame(data_files.frame(layout), rng)
        results = []
        for suffix in (".csv", ".parquet"):
            out = folder / f"s{suffix}.jsonl"
            try:
                data = data_files.write(folder / f"a{suffix}", table)
            except Exception:  # The library cannot write this content to a file.
                break
            arguments = ["predict", self.models[layout], data, "-o", out]
            results.append((self.run(arguments, f"pair {seed}").exit_code, out))
        codes = [code for code, _ in results]
        if codes == [0, 0] and read_sets(results[0][1]) != read_sets(results[1][1]):
            self.findings.append(f"pair {seed}, {layout}: CSV and Parquet give different sets")
        self.counts[f"pairs: {codes.count(0)} accepted"] += 1
        shutil.rmtree(folder)


def main(count: int, seed: int) -> dict[str, object]:
    """Run commands on mutations, every tenth as a pair; return counts and findings."""
    # All files, temporary ones too, are in a folder of this process.
    home = Path(os.path.realpath(tempfile.mkdtemp()))
    tempfile.tempdir = str(home)
    os.chdir(home)
    try:
        fuzzer = Fuzzer(home)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        start = time.monotonic()
        for i in range(count):
            number = seed * 1_000_000 + i
            fuzzer.run_pair(number) if i % 10 == 9 else fuzzer.run_mutation(number)
        return {
            "mutations": count,
            "seconds": round(time.monotonic() - start, 1),
            "counts": dict(sorted(fuzzer.counts.items())),
            "findings": fuzzer.findings,
        }
    finally:
        os.chdir("/")
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2])), indent=1))
