"""Compare the training time of the Shortlister with 20 separate training loops.

    python benchmarks/shortlister_against_loops.py

The data are 20,000 × 256 features and 100 classes. The loops train the selector of the paper for 20
lambdas, as in `path_against_loops.py`. They are compared with stage 2 of the Shortlister alone,
which has all operating points, and with both stages. All run for the same fixed number of epochs,
one after the other in one process. The last line is for both stages with early stopping, the
default.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from path_against_loops import train_selector

import shortlist as sl
from shortlist.costs import cost_matrix, cost_table


def draw(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw scores, labels, and features with information that the scores do not have."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 256), dtype=np.float32)
    signal = x @ rng.standard_normal((256, 100), dtype=np.float32) / 8
    scores = signal + rng.standard_normal((rows, 100), dtype=np.float32)
    y = (signal + scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return scores, y, x


def measure_seconds(function: Callable[[], object]) -> float:
    """Return the wall-clock time of a function."""
    start = time.monotonic()
    function()
    return time.monotonic() - start


def main() -> None:
    """Print the times and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--max-epochs", type=int, default=50, help="maximum number of epochs with early stopping"
    )
    options = parser.parse_args()
    epochs = options.epochs
    scores, y, x = draw(options.rows)
    family = sl.TopK([1, 2, 4, 8])
    table = cost_table("log", family.k)
    hits = torch.from_numpy(family.hits(scores, y))
    size_costs = table[torch.from_numpy(family.sizes(scores).astype(np.int64))].float()

    def train_all_selectors() -> None:
        for weight in np.geomspace(1, 0.01, 20):
            costs = cost_matrix(hits, size_costs, float(weight), float(table[-1]))
            train_selector(torch.from_numpy(x), costs, epochs)

    def fit_shortlister(*, rescore: bool, **settings: int) -> Callable[[], object]:
        model = sl.Shortlister(
            rescore=rescore, learn_sizes=True, calibration=None, progress=False, **settings
        )
        return lambda: model.fit(scores, y, x)

    threads = torch.get_num_threads()
    print(f"{threads} threads, {options.rows:,} × 256, {epochs} epochs", flush=True)
    # Load what torch and scikit-learn load at their first use, so that it is not measured.
    sl.Shortlister(rescore=True, max_epochs=1).fit(scores[:300], y[:300], x[:300])
    train_selector(torch.from_numpy(x[:256]), torch.zeros(256, len(family)), 1)
    loops = measure_seconds(train_all_selectors)
    print(f"20 training loops     {loops:7.2f} s", flush=True)
    for name, rescore in (("stage 2", False), ("both stages", True)):
        seconds = measure_seconds(
            fit_shortlister(rescore=rescore, max_epochs=epochs, patience=epochs)
        )
        print(f"{name:<21} {seconds:7.2f} s   ratio {seconds / loops:.4f}", flush=True)
    seconds = measure_seconds(fit_shortlister(rescore=True, max_epochs=options.max_epochs))
    print(f"both, early stopping  {seconds:7.2f} s")


if __name__ == "__main__":
    main()
