"""The paper's recipe on a feature file: accuracy and mean size, for each kind of selector input.

    python benchmarks/selector_inputs.py ../shared/data/cifar10.npz

A linear classifier is trained on the `fit` part, the selectors on `select` (which the classifier
did not see), all figures are of `test`. K = {1, 2, 4, 8}, cost log, cost-sensitive logistic loss.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import shortlist as sl
from shortlist.predictors.cardinality.inputs import INPUTS

COST_WEIGHTS = [0.5, 0.2, 0.1, 0.05, 0.02, 0.01]
ACCURACIES = [0.95, 0.98, 0.99]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a feature file (.npz)")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    data = sl.datasets.load(arguments.data)
    begun = time.monotonic()
    curves: dict[str, list[sl.Frontier]] = {}
    for seed in range(arguments.seeds):
        for name, curve in one_seed(data, seed).items():
            curves.setdefault(name, []).append(curve)
    print(f"{data.name}: test accuracy and mean size, {arguments.seeds} seeds, mean ± deviation")
    for name, runs in curves.items():
        if name == "one threshold":
            continue
        print(f"\n{name}")
        for i, parameter in enumerate(runs[0].parameter):
            if name == "fixed top-k" and i >= 10:
                break
            label = f"k = {i + 1}" if name == "fixed top-k" else f"lambda = {parameter:g}"
            accuracy = spread([run.accuracy[i] for run in runs], 4)
            print(f"  {label:<14} {accuracy}   size {spread([r.mean_size[i] for r in runs], 3)}")
    print("\nmean size at equal accuracy (read off the test curve, for every method alike)")
    print(f"  {'method':<28}" + "".join(f"{a:>18.0%}" for a in ACCURACIES))
    for name, runs in curves.items():
        sizes = np.array([run.size_at(ACCURACIES) for run in runs])
        cells = "".join(f"{spread(column, 3):>18}" for column in sizes.T)
        print(f"  {name:<28}{cells}")
    print(f"\n{time.monotonic() - begun:.0f} s")


def one_seed(data: sl.datasets.FeatureFile, seed: int) -> dict[str, sl.Frontier]:
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
            random_state=seed,
        ).fit(scores, y, data.select.x)
        curves[f'selector, inputs="{inputs}"'] = path.frontier(test_scores, test_y, data.test.x)
    return curves


def spread(values: list[float] | np.ndarray, digits: int) -> str:
    if np.isnan(values).any():
        return "not reached"
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


if __name__ == "__main__":
    main()
