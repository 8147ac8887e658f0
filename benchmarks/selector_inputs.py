"""Measure accuracy and mean size of the paper's selector for each type of input.

    python benchmarks/selector_inputs.py ../shared/data/cifar10.npz

A linear classifier is trained on the split `fit` of a feature file, and the selectors on the split
`select`, which the classifier was not trained on. All figures are for the split `test`. The
settings are K = {1, 2, 4, 8}, cost log, and the cost-sensitive logistic loss.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import shortlist as sl
from shortlist.predictors.cardinality.inputs import INPUTS

COST_WEIGHTS = [0.5, 0.2, 0.1, 0.05, 0.02, 0.01]
ACCURACIES = [0.95, 0.98, 0.99]
MAX_K = 10


def main() -> None:
    """Print the points of each curve, and mean sizes at equal accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a feature file (.npz)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=50, help="maximum number of epochs")
    options = parser.parse_args()
    data = sl.datasets.load(options.data)
    start = time.monotonic()
    curves: dict[str, list[sl.Frontier]] = {}
    for seed in range(options.seeds):
        for name, curve in compute_curves(data, seed, options.epochs).items():
            curves.setdefault(name, []).append(curve)
    print(f"{data.name}: test accuracy and mean size, {options.seeds} seeds, mean ± deviation")
    for name, seeds in curves.items():
        if name == "one threshold":
            continue
        print(f"\n{name}")
        for i, parameter in enumerate(seeds[0].parameter):
            if name == "fixed top-k" and i >= MAX_K:
                break
            label = f"k = {i + 1}" if name == "fixed top-k" else f"lambda = {parameter:g}"
            accuracy = format_spread([curve.accuracy[i] for curve in seeds], 4)
            size = format_spread([curve.mean_size[i] for curve in seeds], 3)
            print(f"  {label:<14} {accuracy}   size {size}")
    print("\nmean size at equal accuracy (read from the test curve of every method)")
    print(f"  {'method':<28}" + "".join(f"{a:>18.0%}" for a in ACCURACIES))
    for name, seeds in curves.items():
        sizes = np.array([curve.size_at(ACCURACIES) for curve in seeds])
        cells = "".join(f"{format_spread(column, 3):>18}" for column in sizes.T)
        print(f"  {name:<28}{cells}")
    print(f"\n{time.monotonic() - start:.0f} s")


def compute_curves(
    data: sl.datasets.FeatureFile, seed: int, max_epochs: int
) -> dict[str, sl.Frontier]:
    """Return the test curve of each method for one seed."""
    h = sl.LinearClassifier(max_epochs=15, random_state=seed).fit(data.fit.x, data.fit.y)
    scores, test_scores = h.predict_proba(data.select.x), h.predict_proba(data.test.x)
    y, test_y = data.select.y, data.test.y
    thresholds = sl.Threshold(np.geomspace(0.9999, 1e-7, 400).tolist())
    curves = {
        "fixed top-k": sl.FixedSelector().fit(scores, y).frontier(test_scores, test_y),
        "one threshold": sl.FixedSelector(thresholds).fit(scores, y).frontier(test_scores, test_y),
    }
    for inputs in INPUTS:
        path = sl.CardinalityPath(
            sl.TopK([1, 2, 4, 8]),
            cost="log",
            cost_weights=COST_WEIGHTS,
            inputs=inputs,
            max_epochs=max_epochs,
            random_state=seed,
        ).fit(scores, y, data.select.x)
        curves[f'selector, inputs="{inputs}"'] = path.frontier(test_scores, test_y, data.test.x)
    return curves


def format_spread(values: list[float] | np.ndarray, digits: int) -> str:
    """Return mean ± standard deviation."""
    if np.isnan(values).any():
        return "not reached"
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


if __name__ == "__main__":
    main()
