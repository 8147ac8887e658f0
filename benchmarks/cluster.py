"""A table of ten million rows, each with 64 candidates, on a cluster of this machine.

    python benchmarks/cluster.py --folder DIR               # writes 5 GB to DIR, and keeps them
    python benchmarks/cluster.py --folder DIR --rows 200000

Calibration and sets: the plain streaming path of one process (what `shortlist predict` does), one
worker, and all of them; rows per second and core, and the memory of each worker over time. With
`--fit`, a Shortlister without features on Ray Train as well.
"""

from __future__ import annotations

import argparse
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

import shortlist as sl
from shortlist.datasets import stream_rows
from shortlist.io.set_files import sets_writer

CLASSES, DEPTH, FILE_ROWS, GROUP = 10_000, 64, 1_000_000, 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--plain-rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fit", type=int, metavar="ROWS", help="fit a Shortlister to so many rows")
    parser.add_argument("-o", "--output", type=Path, help="write what was measured, as JSON")
    given = parser.parse_args()
    table, few = given.folder / "table", given.folder / "few"
    write(table, given.rows)
    write(few, given.plain_rows)
    bytes_ = sum(file.stat().st_size for file in table.glob("*.parquet"))
    print(f"{given.rows:,} rows × {DEPTH} of {CLASSES:,} classes: {bytes_ / 1e9:.2f} GB on disk")
    import ray

    ray.init(
        num_cpus=given.workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    torch.set_num_threads(1)
    model = sl.SplitConformal("lac", temperature=None, calibration=None, score_type="proba")
    labels, scores, y = draw(5000, seed=99)
    model.fit(sl.Ranking.from_candidates(labels, scores, CLASSES), y)
    found: dict[str, object] = {"rows": given.rows, "bytes": bytes_}
    warm(model, few, given.folder)
    with watched() as memory:
        begun = time.monotonic()
        sl.ray.calibrate(table, model, workers=given.workers)
        report(found, "calibrate", given.rows, time.monotonic() - begun, given.workers, memory)
    begun = time.monotonic()
    plain(model, few, given.folder / "plain.parquet")
    alone = time.monotonic() - begun
    report(found, "predict, plain", given.plain_rows, alone, 1, [])
    with watched() as memory:
        begun = time.monotonic()
        predict(model, few, given.folder / "sets", workers=1)
        seconds = time.monotonic() - begun
    report(found, "predict, one worker", given.plain_rows, seconds, 1, memory)
    print(f"  one worker: {alone / seconds:.0%} of the rows per second of the plain path")
    found["share of plain"] = alone / seconds
    with watched() as memory:
        begun = time.monotonic()
        done = predict(model, table, given.folder / "sets", workers=given.workers)
        seconds = time.monotonic() - begun
    report(found, "predict", given.rows, seconds, given.workers, memory)
    print(f"  {done}")
    if given.fit:
        part = given.folder / "part"
        write(part, given.fit)
        with watched(b"TrainWorker") as memory:
            begun = time.monotonic()
            learner = sl.Shortlister(max_epochs=3, progress=False)
            sl.ray.fit(part, learner, workers=given.workers, n_classes=CLASSES)
            report(found, "fit", given.fit, time.monotonic() - begun, given.workers, memory)
        shutil.rmtree(part)
    if given.output is not None:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


def draw(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Candidates, their probabilities, and labels drawn by these (some are not listed)."""
    rng = np.random.default_rng(seed)
    logits = rng.uniform(2, 7, (rows, 1)) * rng.standard_normal((rows, DEPTH))
    scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = -np.sort(-scores / scores.sum(axis=1, keepdims=True) * 0.999, axis=1)
    first = rng.integers(0, CLASSES - DEPTH * 7, (rows, 1))
    labels = first + 7 * np.arange(DEPTH)  # distinct, and quickly made
    place = (scores.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)
    listed = place < DEPTH
    y = np.where(
        listed, labels[np.arange(rows), place.clip(max=DEPTH - 1)], rng.integers(0, CLASSES, rows)
    )
    return labels.astype(np.int32), scores.astype(np.float32), y


def write(folder: Path, rows: int) -> None:
    """The table, unless it is there."""
    if folder.exists():
        return
    aside = folder.with_name(f".{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for k, start in enumerate(range(0, rows, FILE_ROWS)):
        end, writer = min(start + FILE_ROWS, rows), None
        for at in range(start, end, GROUP):
            labels, scores, y = draw(min(GROUP, end - at), seed=at // GROUP)
            part = pa.table(
                {
                    "id": np.arange(at, at + len(y)),
                    "labels": pa.FixedSizeListArray.from_arrays(pa.array(labels.ravel()), DEPTH),
                    "scores": pa.FixedSizeListArray.from_arrays(pa.array(scores.ravel()), DEPTH),
                    "y": y,
                }
            )
            writer = writer or parquet.ParquetWriter(aside / f"{k:04}.parquet", part.schema)
            writer.write_table(part)
        assert writer is not None
        writer.close()
    aside.rename(folder)


def warm(model: sl.SetPredictor, folder: Path, aside: Path) -> None:
    """Workers that are started, and have loaded what they need."""
    first = sorted(folder.glob("*.parquet"))[0]
    small = aside / "warm.parquet"
    parquet.write_table(
        parquet.ParquetFile(first).read_row_group(0)[:20_000], small, row_group_size=2000
    )
    sl.ray.calibrate(small, model)
    sl.ray.predict_set(small, model, aside / "sets", accuracy=0.9, rows_per_file=2000)
    shutil.rmtree(aside / "sets")


def plain(model: sl.SetPredictor, folder: Path, output: Path) -> None:
    """Sets in one process, as `shortlist predict` makes them."""
    with sets_writer(output, "no guarantee") as write_sets:
        count = 0
        for file in sorted(folder.glob("*.parquet")):
            for part in stream_rows(file):
                sets = model.predict_set(part.ranking(model.classes_), accuracy=0.9)
                sets.contains(part.y)
                write_sets(sets, count)
                count += len(part)


def predict(model: sl.SetPredictor, folder: Path, output: Path, workers: int) -> object:
    shutil.rmtree(output, ignore_errors=True)
    return sl.ray.predict_set(folder, model, output, accuracy=0.9, workers=workers)


@contextmanager
def watched(name: bytes = b"MapBatches(_work)") -> Iterator[list[tuple[float, float]]]:
    """Seconds, and the largest anonymous memory of a worker, in megabytes, as time goes by."""
    found: list[tuple[float, float]] = []
    ended, begun = threading.Event(), time.monotonic()

    def look() -> None:
        while not ended.wait(0.5):
            now = [memory(process) for process in processes(name)]
            if now:
                found.append((time.monotonic() - begun, max(now)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def processes(name: bytes) -> list[Path]:
    held = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if command.startswith(b"ray::") and name in command:
            held.append(process)
    return held


def memory(process: Path) -> float:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(x.split()[1]) / 1000 for x in lines if x.startswith("RssAnon")), 0.0)


def report(
    found: dict[str, object],
    what: str,
    rows: int,
    seconds: float,
    workers: int,
    memory: list[tuple[float, float]],
) -> None:
    """Print a line, and keep it."""
    speed = rows / seconds
    quarters = [max(m for _, m in part) for part in np.array_split(memory, 4) if len(part)]
    shown = ", ".join(f"{m:.0f}" for m in quarters)
    print(
        f"{what}: {seconds:.1f} s, {speed:,.0f} rows/s, {speed / workers:,.0f} per core"
        + (f"; MB of the largest worker, by quarters of the time: {shown}" if quarters else "")
    )
    found[what] = {"seconds": seconds, "rows": rows, "workers": workers, "memory": quarters}


if __name__ == "__main__":
    main()
