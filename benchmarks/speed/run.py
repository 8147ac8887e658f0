"""This library and its peers side by side: time, peak memory over the input, sizes, coverage.

    make bench                                          # everything, with the peers' environment
    python benchmarks/speed/run.py --only lac-1 aps-1   # some works; the peers if they are there
    python benchmarks/speed/run.py --rows 2000 --classes 50 --only lac-1 --without-peers

Every measurement has a process of its own. The libraries follow each other within each round of a
work, so that whatever else the machine does hits all of them alike. Results of works that are
not measured this time stay in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from drawn import write
from growth import draw_growth
from table import printed
from works import CONFORMAL, WORKS, Task, Work

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"


def main() -> None:
    given = options()
    if not given.without_peers and not PEERS.exists():
        sys.exit("no environment of the peers: `make bench` makes it; or say --without-peers")
    kept = json.loads(given.output.read_text()) if given.output.exists() else {"works": {}}
    with TemporaryDirectory() as folder:
        given.folder = folder
        if any(name in CONFORMAL for name in given.only):
            write(Path(folder), given.rows, given.classes)
        for name in given.only:
            print(f"{name}: {WORKS[name].title}", flush=True)
            kept["works"][name] = measured(WORKS[name], given)
            kept["works"] = {name: kept["works"][name] for name in WORKS if name in kept["works"]}
            kept["python"], kept["cores"] = platform.python_version(), os.cpu_count()
            given.output.write_text(json.dumps(kept, indent=1) + "\n")
    print(printed(kept))
    if "growth" in given.only:
        draw_growth(kept["works"]["growth"], given.output.with_name("growth.png"))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS), metavar="WORK")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1000)
    numbers = {"nargs": "+", "type": int}
    parser.add_argument("--growth-rows", **numbers, default=[1000, 3000, 10_000, 30_000, 100_000])
    parser.add_argument("--growth-classes", **numbers, default=[10, 100, 1000, 10_000, 100_000])
    parser.add_argument("--growth-members", **numbers, default=[2, 8, 32, 128, 512])
    parser.add_argument("--fit-rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=20, help="of both sides, for whole fits")
    parser.add_argument("--latency-rows", type=int, default=12_000)
    parser.add_argument("--latency-classes", type=int, default=100)
    parser.add_argument("--latency-repeats", type=int, default=300)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results.json")
    return parser.parse_args()


def measured(work: Work, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The results of a work's tasks: each figure's best and median over the rounds."""
    tasks = work.tasks(given)
    if given.without_peers:
        tasks = [task for task in tasks if task.library == "shortlist"]
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for _ in range(work.repeats or given.repeats):
        for at, task in enumerate(tasks):
            for one in run(task):
                found.setdefault((at, one.pop("label", task.label)), []).append(one)
    return [gathered(tasks[at], label, rounds) for (at, label), rounds in found.items()]


def run(task: Task) -> list[dict[str, Any]]:
    """What one process measured."""
    python = sys.executable if task.library == "shortlist" else str(PEERS)
    if task.script is None:
        command = [python, str(HERE / "worker.py"), json.dumps(task.arguments)]
    else:
        command = [python, str(HERE.parent / task.script), *task.arguments["options"]]
    waiting = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=waiting)
    if done.returncode:
        message = f"{' '.join(command)}\n{done.stderr}"
        if task.library == "shortlist":
            sys.exit(message)
        print(message, file=sys.stderr)  # a peer that fails is left out
        return []
    if task.read is not None:
        return task.read(done.stdout)
    return [json.loads(done.stdout.splitlines()[-1])]


def gathered(task: Task, label: str, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Rounds of one measurement as one result; fewer rows are made up for."""
    for one in rounds:
        for name, factor in task.times.items():
            one[name] = None if one[name] is None else one[name] * factor
        if "calibrate" in one:
            one["seconds"] = one["calibrate"] + one["predict"]
    kept = {k: v for k, v in task.arguments.items() if k in KEPT}
    result: dict[str, Any] = {"library": task.library, "label": label, **kept}
    if task.times:
        result["fewer_rows"] = round(max(task.times.values()), 2)
    best = min(rounds, key=lambda one: float(one["seconds"]))
    result |= {k: rounded(v) for k, v in best.items()}
    if "cpu" in best:
        result["cpu"] = rounded(min(float(one["cpu"]) for one in rounds))
    result["median"] = rounded(median(float(one["seconds"]) for one in rounds))
    result["all"] = [rounded(one["seconds"]) for one in rounds]
    return result


KEPT = ("rows", "new_rows", "classes", "members", "method", "epochs")


def rounded(value: Any) -> Any:
    """Four digits, so that the file stays small."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
