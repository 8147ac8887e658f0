"""Measure calibration, prediction and fits with score files that are larger than memory.

    python benchmarks/larger_than_memory.py                        # 8 GB, and a fit on 2 GB of it
    python benchmarks/larger_than_memory.py --gigabytes 64 --folder /data/scratch
    python benchmarks/larger_than_memory.py --gigabytes 0.5 --fit-gigabytes 0.5

Random float32 scores of 1,000 classes (or `--classes`), and 64 features, are written to a temporary
folder. Each method gets them as memory-mapped arrays in a process of its own. The output has
seconds, megabytes of the files per second (a fit reads them many times), and the peak of the
anonymous memory (`RssAnon`) over its start. With `--cold`, the kernel drops the files from its
cache before each method, as it has to if they are larger than memory.

The script needs /proc, that is, Linux. A fit also writes its out-of-fold scores to temporary files
(`TMPDIR`), which are about as large as the input.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

FEATURES, BLOCK_ROWS = 64, 10_000
METHODS = ("lac", "aps", "Shortlister")


def write(folder: Path, rows: int, classes: int) -> None:
    """Write logits, features with additional information, and labels that depend on both."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(FEATURES, classes, generator=generator) / 4
    shape = {"scores": (rows, classes), "features": (rows, FEATURES)}
    scores, features = (
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, of)
        for name, of in shape.items()
    )
    y = np.empty(rows, dtype=np.int64)
    for start in range(0, rows, BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, rows))
        x = torch.randn(block.stop - start, FEATURES, generator=generator)
        z = 4 * torch.randn(block.stop - start, classes, generator=generator)
        p = torch.softmax(z + x @ weights, dim=1)
        scores[block], features[block] = z, x
        y[block] = torch.multinomial(p, 1, generator=generator)[:, 0]
    scores.flush()
    features.flush()
    np.save(folder / "y.npy", y)


def drop_from_cache(folder: Path) -> None:
    """Ask the kernel to drop the files from its cache."""
    for file in folder.glob("*.npy"):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def anonymous_memory() -> int:
    """Return the bytes of memory that are not mapped from a file."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


class PeakMemory:
    """Peak of the anonymous memory, which a thread reads every few milliseconds."""

    def __init__(self) -> None:
        self.start = self.peak = anonymous_memory()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, anonymous_memory())
            time.sleep(0.002)


def measure(folder: Path, method: str, rows: int, epochs: int) -> dict[str, float]:
    """Measure one method in this process: gigabytes, seconds of each step, and peak memory."""
    import shortlist as sl

    scores, x = (
        np.load(folder / f"{name}.npy", mmap_mode="r")[:rows] for name in ("scores", "features")
    )
    y = np.load(folder / "y.npy")[:rows]
    n_bytes = scores.nbytes
    steps: dict[str, Callable[[], object]]
    if method == "Shortlister":
        n_bytes += x.nbytes
        model = sl.Shortlister(max_epochs=epochs, progress=False)
        model.fit(scores[:2000], y[:2000], x[:2000])  # Imports at the first use are not measured.
        steps = {"fit": lambda: model.fit(scores, y, x)}
    else:
        model = sl.SplitConformal(method)
        model.fit(scores[:2000], y[:2000]).predict_set(scores[:2000], accuracy=0.9)
        steps = {
            "calibrate": lambda: model.fit(scores, y),
            "predict": lambda: model.predict_set(scores, accuracy=0.9),
        }
    memory, result = PeakMemory(), {"gigabytes": n_bytes / 1e9}
    for name, step in steps.items():
        start = time.monotonic()
        step()
        result[name] = time.monotonic() - start
    return result | {"peak_memory": memory.peak - memory.start}


def main() -> None:
    """Write the files, and run each method in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--fit-gigabytes", type=float, default=2.0)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="parent of the temporary folder")
    parser.add_argument(
        "--cold", action="store_true", help="drop the files from the cache before each method"
    )
    parser.add_argument("--child", nargs=2, metavar=("METHOD", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        method, rows = options.child
        print(json.dumps(measure(options.folder, method, int(rows), options.epochs)))
        return
    rows, fit_rows = (
        max(BLOCK_ROWS, round(gigabytes * 1e9 / (4 * options.classes)))
        for gigabytes in (options.gigabytes, options.fit_gigabytes)
    )
    with TemporaryDirectory(dir=options.folder, prefix="larger-than-memory-") as name:
        folder = Path(name)
        write(folder, max(rows, fit_rows), options.classes)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        print(
            f"{options.classes:,} classes, float32; {memory / 1e9:.0f} GB of memory, "
            f"{os.cpu_count()} CPUs"
        )
        print(f"{'':24}{'GB':>8}{'seconds':>10}{'MB/s':>8}{'additional memory, MB':>24}")
        for method in METHODS:
            if options.cold:
                drop_from_cache(folder)
            method_rows = fit_rows if method == "Shortlister" else rows
            command = [sys.executable, __file__, "--child", method, str(method_rows)]
            command += ["--folder", name, "--epochs", str(options.epochs)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{method} failed:\n{done.stderr}")
            seconds_by_step = json.loads(done.stdout)
            gigabytes = seconds_by_step.pop("gigabytes")
            peak_memory = seconds_by_step.pop("peak_memory")
            for step, seconds in seconds_by_step.items():
                print(
                    f"{f'{method}, {step}':24}{gigabytes:8.2f}{seconds:10.2f}"
                    f"{1e3 * gigabytes / seconds:8.3g}{peak_memory / 1e6:24.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
