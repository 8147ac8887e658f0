"""Compare this library with others: time, additional peak memory, mean size and coverage.

    make bench                                          # all benchmarks, with other libraries
    python benchmarks/speed/run.py --only lac-1 aps-1   # some benchmarks
    python benchmarks/speed/run.py --rows 2000 --classes 50 --only lac-1 --without-peers

Every measurement runs in a process of its own. Each round of a benchmark measures all libraries one
after the other, so that other load on the machine affects them alike: first as the machine is, then
beside two processes that keep cores busy. Every library has its defaults, and no environment
variable limits its threads. The results of benchmarks that are not run stay in the file.
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

from growth import draw_growth
from neighbors import LOADS, neighbors
from random_scores import write
from table import full_tables
from tasks import BENCHMARKS, CONFORMAL, OWN_PYTHON, Benchmark, Task

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"
MEASURED = ("seconds", "calibrate", "predict", "cpu", "memory", "loops", "median", "all")
"""Values of a task that depend on the load of the machine."""
VARIABLES = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "SHORTLIST_THREADS")
"""Environment variables that users rarely set, and that change the times of libraries."""
SAVED_ARGUMENTS = ("rows", "new_rows", "classes", "members", "method", "epochs")


def main() -> None:
    """Run benchmarks, save their results and print them."""
    options = parse_options()
    if not options.without_peers and not PEERS.exists():
        sys.exit(
            "the environment with the other libraries is missing: "
            "create it with `make bench`, or use --without-peers"
        )
    exists = options.output.exists()
    saved = json.loads(options.output.read_text()) if exists else {"benchmarks": {}}
    with TemporaryDirectory() as folder:
        options.folder = folder
        if any(name in CONFORMAL for name in options.only):
            write(Path(folder), options.rows, options.classes)
        for name in options.only:
            print(f"{name}: {BENCHMARKS[name].title}", flush=True)
            results = {**saved["benchmarks"], name: run_benchmark(BENCHMARKS[name], options)}
            saved["benchmarks"] = {name: results[name] for name in BENCHMARKS if name in results}
            saved["python"], saved["cores"] = platform.python_version(), os.cpu_count()
            options.output.write_text(json.dumps(saved, indent=1) + "\n")
    print(full_tables(saved))
    if "growth" in options.only:
        draw_growth(saved["benchmarks"]["growth"], options.output.with_name("growth.png"))


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="BENCHMARK"
    )
    parser.add_argument("--without-peers", action="store_true", help="measure only this library")
    parser.add_argument(
        "--without-neighbors", action="store_true", help="do not measure beside busy processes"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1000)
    numbers = {"nargs": "+", "type": int}
    parser.add_argument("--growth-rows", **numbers, default=[1000, 3000, 10_000, 30_000, 100_000])
    parser.add_argument("--growth-classes", **numbers, default=[10, 100, 1000, 10_000, 100_000])
    parser.add_argument("--growth-members", **numbers, default=[2, 8, 32, 128, 512])
    parser.add_argument("--fit-rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=20, help="epochs of fits and training loops")
    parser.add_argument("--latency-rows", type=int, default=12_000)
    parser.add_argument("--latency-classes", type=int, default=100)
    parser.add_argument("--latency-repeats", type=int, default=300)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results.json")
    return parser.parse_args()


def run_benchmark(benchmark: Benchmark, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one result for each task, combined over the rounds, with one part for each load."""
    tasks = benchmark.tasks(options)
    if options.without_peers:
        tasks = [task for task in tasks if task.library in OWN_PYTHON]
    loads = benchmark.loads[:1] if options.without_neighbors else benchmark.loads
    rounds: dict[tuple[int, str], dict[str, list[dict[str, Any]]]] = {}
    for _ in range(benchmark.repeats or options.repeats):
        for load in loads:
            with neighbors(LOADS[load]):
                for i, task in enumerate(tasks):
                    for result in run_task(task):
                        key = i, result.pop("label", task.label)
                        rounds.setdefault(key, {}).setdefault(load, []).append(result)
    return [combine_loads(tasks[i], label, results) for (i, label), results in rounds.items()]


def combine_loads(
    task: Task, label: str, rounds: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Return the result on a quiet machine, with what was measured under other loads."""
    by_load = {load: combine_rounds(task, label, results) for load, results in rounds.items()}
    result = by_load.pop("quiet")
    for load in by_load:
        result[load] = {name: by_load[load][name] for name in MEASURED if name in by_load[load]}
    return result


def run_task(task: Task) -> list[dict[str, Any]]:
    """Run one task in a process of its own, and return its results."""
    python = sys.executable if task.library in OWN_PYTHON else str(PEERS)
    if task.script is None:
        command = [python, str(HERE / "worker.py"), json.dumps(task.arguments)]
    else:
        command = [python, str(HERE.parent / task.script), *task.arguments["options"]]
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        message = f"{' '.join(command)}\n{done.stderr}"
        if task.library == "shortlist":
            sys.exit(message)
        print(message, file=sys.stderr)  # Another library that fails is left out.
        return []
    if task.parse is not None:
        return task.parse(done.stdout)
    return [json.loads(done.stdout.splitlines()[-1])]


def combine_rounds(task: Task, label: str, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the fastest round with the median, scaled up if fewer rows were measured."""
    for result in rounds:
        for name, factor in task.factors.items():
            result[name] = None if result[name] is None else result[name] * factor
        if "calibrate" in result:
            result["seconds"] = result["calibrate"] + result["predict"]
    arguments = {k: v for k, v in task.arguments.items() if k in SAVED_ARGUMENTS}
    combined: dict[str, Any] = {"library": task.library, "label": label, **arguments}
    if task.factors:
        combined["fewer_rows"] = round(max(task.factors.values()), 2)
    fastest = min(rounds, key=lambda result: float(result["seconds"]))
    combined |= {name: round_to_4_digits(value) for name, value in fastest.items()}
    if "cpu" in fastest:
        combined["cpu"] = round_to_4_digits(min(float(result["cpu"]) for result in rounds))
    seconds = [float(result["seconds"]) for result in rounds]
    combined["median"] = round_to_4_digits(median(seconds))
    combined["all"] = [round_to_4_digits(value) for value in seconds]
    return combined


def round_to_4_digits(value: Any) -> Any:
    """Round a float to four digits, so that the file stays small."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
