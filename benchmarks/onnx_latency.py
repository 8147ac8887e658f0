"""One row, and a batch, through onnxruntime and through `predict_set`: a Shortlister's latency.

    python benchmarks/onnx_latency.py                 # 256 features, 100 classes, 12,000 rows
    python benchmarks/onnx_latency.py --rows 2000 --features 16 --classes 10 --repeats 20

Both use one thread. Times are medians; the graph and Python's sets are compared on all test rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
import torch

import shortlist as sl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=300)
    given = parser.parse_args()
    torch.set_num_threads(1)
    scores, x, y = draw(2 * given.rows, given.features, given.classes)
    fit, new = slice(given.rows), slice(given.rows, None)
    model = sl.Shortlister(rescore=True, learn_sizes=True, max_epochs=given.epochs)
    model.fit(scores[fit], y[fit], x[fit])
    scores, x = scores[new], x[new]
    with TemporaryDirectory() as folder:
        path = model.export_onnx(Path(folder) / "model.onnx", accuracy=0.95)
        size = path.stat().st_size
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def graph(rows: int) -> list[np.ndarray]:
        found: list[np.ndarray] = session.run(None, {"scores": scores[:rows], "features": x[:rows]})
        return found

    def python(rows: int) -> sl.PredictionSets:
        return model.predict_set(scores[:rows], x[:rows], accuracy=0.95)

    print(
        f"Shortlister, {given.features} features, {given.classes} classes, "
        f"{len(model.score_.rescorer_.neighbours.index):,} neighbours; file of {size / 1e6:.1f} MB"
    )
    sets = python(len(scores))
    different = 0
    for i in range(0, len(scores), 1000):
        part = {"scores": scores[i : i + 1000], "features": x[i : i + 1000]}
        different += int((session.run(["sizes"], part)[0] != sets.sizes[i : i + 1000]).sum())
    print(f"sizes differ in {different} of {len(scores):,} rows; mean size {sets.mean_size:.3f}")
    print("rows   onnxruntime   predict_set   ratio")
    for rows in (1, 100, 1000):
        repeats = max(3, given.repeats // rows)
        a, b = (median(partial(run, rows), repeats) for run in (graph, python))
        print(f"{rows:4d}   {1e3 * a:8.3f} ms   {1e3 * b:8.3f} ms   {b / a:5.1f}")


def draw(rows: int, features: int, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=rows)
    centres = rng.normal(size=(classes, features)) * 4 / features**0.5
    x = (centres[y] + rng.normal(size=(rows, features))).astype(np.float32)
    scores = x @ (centres + 0.2 * rng.normal(size=centres.shape) * 4 / features**0.5).T
    return scores.astype(np.float32), x, y


def median(function: Callable[[], object], repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


if __name__ == "__main__":
    main()
