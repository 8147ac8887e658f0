"""Compare the latency of a Shortlister in onnxruntime and with `predict_set`.

    python benchmarks/onnx_latency.py                 # 256 features, 100 classes, 12,000 rows
    python benchmarks/onnx_latency.py --rows 2000 --features 16 --classes 10 --repeats 20

Both use one thread. Times are medians. The sizes of both are compared on all test rows.
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
    """Print the latency for batches of 1, 100 and 1,000 rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    scores, x, y = draw(2 * options.rows, options.features, options.classes)
    fit, new = slice(options.rows), slice(options.rows, None)
    model = sl.Shortlister(rescore=True, learn_sizes=True, max_epochs=options.epochs)
    model.fit(scores[fit], y[fit], x[fit])
    scores, x = scores[new], x[new]
    with TemporaryDirectory() as folder:
        path = model.export_onnx(Path(folder) / "model.onnx", accuracy=0.95)
        n_bytes = path.stat().st_size
        session_options = onnxruntime.SessionOptions()
        session_options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            path, session_options, providers=["CPUExecutionProvider"]
        )

    def predict_onnx(rows: int) -> object:
        return session.run(None, {"scores": scores[:rows], "features": x[:rows]})

    def predict_python(rows: int) -> sl.PredictionSets:
        return model.predict_set(scores[:rows], x[:rows], accuracy=0.95)

    print(
        f"Shortlister, {options.features} features, {options.classes} classes, "
        f"{len(model.score_.rescorer_.opinions)} opinions; "
        f"file of {n_bytes / 1e6:.1f} MB"
    )
    sets = predict_python(len(scores))
    different = 0
    for i in range(0, len(scores), 1000):
        block = {"scores": scores[i : i + 1000], "features": x[i : i + 1000]}
        different += int((session.run(["sizes"], block)[0] != sets.sizes[i : i + 1000]).sum())
    print(f"sizes differ in {different} of {len(scores):,} rows; mean size {sets.mean_size:.3f}")
    print("rows   onnxruntime   predict_set   ratio")
    for rows in (1, 100, 1000):
        repeats = max(3, options.repeats // rows)
        onnx, python = (
            median_seconds(partial(function, rows), repeats)
            for function in (predict_onnx, predict_python)
        )
        print(f"{rows:4d}   {1e3 * onnx:8.3f} ms   {1e3 * python:8.3f} ms   {python / onnx:5.1f}")


def draw(rows: int, features: int, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw scores, features and labels of a classifier with inexact class means."""
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=rows)
    means = rng.normal(size=(classes, features)) * 4 / features**0.5
    x = (means[y] + rng.normal(size=(rows, features))).astype(np.float32)
    scores = x @ (means + 0.2 * rng.normal(size=means.shape) * 4 / features**0.5).T
    return scores.astype(np.float32), x, y


def median_seconds(function: Callable[[], object], repeats: int) -> float:
    """Return the median time of a function, after one call that is not measured."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


if __name__ == "__main__":
    main()
