"""Score files larger than memory: calibrated, predicted and learned from as they lie on disk.

    python benchmarks/larger_than_memory.py                        # 8 GB, and a fit on 2 GB of it
    python benchmarks/larger_than_memory.py --gigabytes 64 --folder /data/scratch
    python benchmarks/larger_than_memory.py --gigabytes 0.5 --fit-gigabytes 0.5

Random float32 scores of 1,000 classes (and 64 features) are written to a temporary folder, mapped
into memory and given to each method in a process of its own. Printed are seconds, the files'
megabytes by these (a fit goes over them many times), and by how much memory that is no file's
(`RssAnon`) rose at most, from the first step to the last. `--cold` asks the kernel to forget the
files before each method, as it has to where they are larger than memory.

Needs /proc, so Linux. A fit also writes the scores that it learned to temporary files (`TMPDIR`),
about as large as the files themselves.
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

CLASSES, FEATURES, BLOCK = 1000, 64, 10_000
METHODS = ("lac", "aps", "Shortlister")


def write(folder: Path, rows: int) -> None:
    """Logits, features that know more, and labels drawn by both."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(FEATURES, CLASSES, generator=generator) / 4
    shape = {"scores": (rows, CLASSES), "features": (rows, FEATURES)}
    scores, features = (
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, of)
        for name, of in shape.items()
    )
    y = np.empty(rows, dtype=np.int64)
    for start in range(0, rows, BLOCK):
        part = slice(start, min(start + BLOCK, rows))
        x = torch.randn(part.stop - start, FEATURES, generator=generator)
        z = 4 * torch.randn(part.stop - start, CLASSES, generator=generator)
        p = torch.softmax(z + x @ weights, dim=1)
        scores[part], features[part] = z, x
        y[part] = torch.multinomial(p, 1, generator=generator)[:, 0]
    scores.flush()
    features.flush()
    np.save(folder / "y.npy", y)


def forget(folder: Path) -> None:
    """Ask the kernel to drop what it has of the files."""
    for file in folder.glob("*.npy"):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def anonymous() -> int:
    """Bytes of memory that are no file's."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


class Watch:
    """The most memory that there was, looked at every few milliseconds."""

    def __init__(self) -> None:
        self.start = self.peak = anonymous()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, anonymous())
            time.sleep(0.002)


def measure(folder: Path, method: str, rows: int, epochs: int) -> dict[str, float]:
    """One method, in this process."""
    import shortlist as sl

    scores, x = (np.load(folder / f"{n}.npy", mmap_mode="r")[:rows] for n in ("scores", "features"))
    y = np.load(folder / "y.npy")[:rows]
    size = scores.nbytes
    steps: dict[str, Callable[[], object]]
    if method == "Shortlister":
        size += x.nbytes
        model = sl.Shortlister(max_epochs=epochs, progress=False)
        model.fit(scores[:2000], y[:2000], x[:2000])  # what is loaded once is loaded here
        steps = {"fit": lambda: model.fit(scores, y, x)}
    else:
        model = sl.SplitConformal(method)
        model.fit(scores[:2000], y[:2000]).predict_set(scores[:2000], accuracy=0.9)
        steps = {
            "calibrate": lambda: model.fit(scores, y),
            "predict": lambda: model.predict_set(scores, accuracy=0.9),
        }
    watch, found = Watch(), {"gigabytes": size / 1e9}
    for name, step in steps.items():
        begun = time.monotonic()
        step()
        found[name] = time.monotonic() - begun
    return found | {"anonymous": watch.peak - watch.start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--fit-gigabytes", type=float, default=2.0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where to put the files for the time")
    parser.add_argument("--cold", action="store_true", help="forget the files before each method")
    parser.add_argument("--child", nargs=2, metavar=("METHOD", "ROWS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        method, rows = given.child
        print(json.dumps(measure(given.folder, method, int(rows), given.epochs)))
        return
    rows, fit_rows = (
        max(BLOCK, round(size * 1e9 / (4 * CLASSES)))
        for size in (given.gigabytes, given.fit_gigabytes)
    )
    with TemporaryDirectory(dir=given.folder, prefix="larger-than-memory-") as name:
        folder = Path(name)
        write(folder, max(rows, fit_rows))
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        print(
            f"{CLASSES:,} classes, float32; {memory / 1e9:.0f} GB of memory, {os.cpu_count()} CPUs"
        )
        print(f"{'':24}{'GB':>8}{'seconds':>10}{'MB/s':>8}{'memory over start, MB':>24}")
        for method in METHODS:
            if given.cold:
                forget(folder)
            used = fit_rows if method == "Shortlister" else rows
            command = [sys.executable, __file__, "--child", method, str(used)]
            command += ["--folder", name, "--epochs", str(given.epochs)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{method} failed:\n{done.stderr}")
            found = json.loads(done.stdout)
            size, most = found.pop("gigabytes"), found.pop("anonymous")
            for step, seconds in found.items():
                print(
                    f"{f'{method}, {step}':24}{size:8.2f}{seconds:10.2f}{1e3 * size / seconds:8.0f}"
                    f"{most / 1e6:24.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
