"""Measure calibration and prediction of ten million rows with 64 candidates on a Ray cluster.

    python benchmarks/cluster.py --folder DIR               # writes 5 GB to DIR and keeps them
    python benchmarks/cluster.py --folder DIR --rows 200000

The cluster consists of this machine. The script compares streaming in one process (as `shortlist
predict` does) with one worker and with all workers. It prints rows per second and core, and the
memory of the workers over time. With `--fit`, it also fits a Shortlister without features with Ray
Train.
"""

from __future__ import annotations

import argparse
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

import shortlist as sl
from shortlist.datasets import stream_rows
from shortlist.io.set_files import sets_writer

CLASSES, DEPTH, FILE_ROWS, GROUP_ROWS = 10_000, 64, 1_000_000, 100_000
Memory = list[tuple[float, float]]
"""Seconds since the start, and megabytes of the largest worker."""


def main() -> None:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument(
        "--few-rows", type=int, default=1_000_000, help="rows for one process and one worker"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--fit", type=int, metavar="ROWS", help="also fit a Shortlister to this number of rows"
    )
    parser.add_argument("-o", "--output", type=Path, help="write the results to a JSON file")
    options = parser.parse_args()
    table, few = options.folder / "table", options.folder / "few"
    write(table, options.rows)
    write(few, options.few_rows)
    n_bytes = sum(file.stat().st_size for file in table.glob("*.parquet"))
    print(f"{options.rows:,} rows × {DEPTH} of {CLASSES:,} classes: {n_bytes / 1e9:.2f} GB on disk")
    import ray

    ray.init(
        num_cpus=options.workers,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    torch.set_num_threads(1)
    model = sl.SplitConformal("lac", temperature=None, calibration=None, score_type="proba")
    labels, scores, y = draw(5000, seed=99)
    model.fit(sl.Ranking.from_candidates(labels, scores, CLASSES), y)
    results = Results({"rows": options.rows, "bytes": n_bytes})
    sets, workers = options.folder / "sets", options.workers
    warm_up(model, few, options.folder)
    with results.measure("calibrate", options.rows, workers):
        sl.ray.calibrate(table, model, workers=workers)
    with results.measure("predict, one process", options.few_rows):
        predict_in_one_process(model, few, options.folder / "one-process.parquet")
    with results.measure("predict, one worker", options.few_rows):
        predict(model, few, sets, workers=1)
    one_process, one_worker = (
        results.values[f"predict, {name}"]["seconds"] for name in ("one process", "one worker")
    )
    print(f"  one worker: {one_process / one_worker:.0%} of the rows per second of one process")
    results.values["share of one process"] = one_process / one_worker
    with results.measure("predict", options.rows, workers):
        summary = predict(model, table, sets, workers=workers)
    print(f"  {summary}")
    if options.fit:
        fit_table = options.folder / "fit"
        write(fit_table, options.fit)
        with results.measure("fit", options.fit, workers, process_name=b"TrainWorker"):
            learner = sl.Shortlister(max_epochs=3, progress=False)
            sl.ray.fit(fit_table, learner, workers=workers, n_classes=CLASSES)
        shutil.rmtree(fit_table)
    if options.output is not None:
        options.output.write_text(json.dumps(results.values, indent=1) + "\n")


def draw(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw candidates, their probabilities, and labels from these; some labels are not listed."""
    rng = np.random.default_rng(seed)
    logits = rng.uniform(2, 7, (rows, 1)) * rng.standard_normal((rows, DEPTH))
    scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = -np.sort(-scores / scores.sum(axis=1, keepdims=True) * 0.999, axis=1)
    first = rng.integers(0, CLASSES - DEPTH * 7, (rows, 1))
    labels = first + 7 * np.arange(DEPTH)  # Distinct labels without a slow permutation.
    rank = (scores.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)
    listed_y = labels[np.arange(rows), rank.clip(max=DEPTH - 1)]
    y = np.where(rank < DEPTH, listed_y, rng.integers(0, CLASSES, rows))
    return labels.astype(np.int32), scores.astype(np.float32), y


def write(folder: Path, rows: int) -> None:
    """Write a table of Parquet files, unless the folder exists."""
    if folder.exists():
        return
    staging = folder.with_name(f".{folder.name}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    for k, start in enumerate(range(0, rows, FILE_ROWS)):
        end, writer = min(start + FILE_ROWS, rows), None
        for first in range(start, end, GROUP_ROWS):
            labels, scores, y = draw(min(GROUP_ROWS, end - first), seed=first // GROUP_ROWS)
            group = pa.table(
                {
                    "id": np.arange(first, first + len(y)),
                    "labels": pa.FixedSizeListArray.from_arrays(pa.array(labels.ravel()), DEPTH),
                    "scores": pa.FixedSizeListArray.from_arrays(pa.array(scores.ravel()), DEPTH),
                    "y": y,
                }
            )
            writer = writer or parquet.ParquetWriter(staging / f"{k:04}.parquet", group.schema)
            writer.write_table(group)
        assert writer is not None
        writer.close()
    staging.rename(folder)


def warm_up(model: sl.SetPredictor, table: Path, folder: Path) -> None:
    """Start the workers and import what they need, so that start-up is not measured."""
    first = sorted(table.glob("*.parquet"))[0]
    small = folder / "warm-up.parquet"
    parquet.write_table(
        parquet.ParquetFile(first).read_row_group(0)[:20_000], small, row_group_size=2000
    )
    sl.ray.calibrate(small, model)
    sl.ray.predict_set(small, model, folder / "sets", accuracy=0.9, rows_per_file=2000)
    shutil.rmtree(folder / "sets")


def predict_in_one_process(model: sl.SetPredictor, table: Path, output: Path) -> None:
    """Predict as `shortlist predict` does."""
    with sets_writer(output, "no guarantee") as write_sets:
        count = 0
        for file in sorted(table.glob("*.parquet")):
            for rows in stream_rows(file):
                sets = model.predict_set(rows.ranking(model.classes_), accuracy=0.9)
                sets.contains(rows.y)
                write_sets(sets, np.arange(count, count + len(rows)), {})
                count += len(rows)


def predict(model: sl.SetPredictor, table: Path, output: Path, workers: int) -> object:
    """Predict on the cluster, and replace earlier sets."""
    shutil.rmtree(output, ignore_errors=True)
    return sl.ray.predict_set(table, model, output, accuracy=0.9, workers=workers)


@dataclass
class Results:
    """Results by name; each is printed as soon as it is measured."""

    values: dict[str, Any]

    @contextmanager
    def measure(
        self,
        name: str,
        rows: int,
        workers: int = 1,
        process_name: bytes = b"MapBatches(",
    ) -> Iterator[None]:
        """Measure the time of a block, and the memory of the workers meanwhile."""
        start = time.monotonic()
        with record_memory(process_name) as memory:
            yield
        seconds = time.monotonic() - start
        peaks = [
            max(m for _, m in quarter) for quarter in np.array_split(memory, 4) if len(quarter)
        ]
        speed = rows / seconds
        text = f"{name}: {seconds:.1f} s, {speed:,.0f} rows/s, {speed / workers:,.0f} per core"
        if peaks:
            megabytes = ", ".join(f"{peak:.0f}" for peak in peaks)
            text += f"; MB of the largest worker in each quarter of the time: {megabytes}"
        print(text)
        self.values[name] = {"seconds": seconds, "rows": rows, "workers": workers, "memory": peaks}


@contextmanager
def record_memory(process_name: bytes) -> Iterator[Memory]:
    """Record the anonymous memory of the largest worker, ten times a second."""
    memory: Memory = []
    stop, start = threading.Event(), time.monotonic()

    def watch() -> None:
        while not stop.wait(0.1):
            megabytes = [anonymous_memory(process) for process in worker_processes(process_name)]
            if megabytes:
                memory.append((time.monotonic() - start, max(megabytes)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield memory
    finally:
        stop.set()
        thread.join()


def worker_processes(name: bytes) -> list[Path]:
    """Return the folders in /proc of the Ray workers with this name."""
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if command.startswith(b"ray::") and name in command:
            processes.append(process)
    return processes


def anonymous_memory(process: Path) -> float:
    """Return the megabytes of memory that are not mapped from a file."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(x.split()[1]) / 1000 for x in lines if x.startswith("RssAnon")), 0.0)


if __name__ == "__main__":
    main()
