"""The Shortlister against 20 plain loops over a `DataLoader`, at the same number of epochs.

    python benchmarks/shortlister_against_loops.py

20,000 × 256 features and 100 classes. The loops train the paper's selector for 20 lambdas, as in
`path_against_loops.py`. Against them: stage 2 alone (every operating point), and both stages;
all with the same fixed number of epochs, one after the other in one process. Then both stages as
they are by default, with early stopping.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from path_against_loops import plain_loop

import shortlist as sl
from shortlist.costs import cost_matrix, cost_table


def problem(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and features; the features know a part of what the scores do not."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 256), dtype=np.float32)
    known = x @ rng.standard_normal((256, 100), dtype=np.float32) / 8
    scores = known + rng.standard_normal((rows, 100), dtype=np.float32)
    y = (known + scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return scores, y, x


def seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--most-epochs", type=int, default=50, help="where it may stop early")
    arguments = parser.parse_args()
    epochs = arguments.epochs
    scores, y, x = problem(arguments.rows)
    family = sl.TopK([1, 2, 4, 8])
    table = cost_table("log", family.k)
    hits = torch.from_numpy(family.hits(scores, y))
    sizes = table[torch.from_numpy(family.sizes(scores).astype(np.int64))].float()

    def loops() -> None:
        for weight in np.geomspace(1, 0.01, 20):
            costs = cost_matrix(hits, sizes, float(weight), float(table[-1]))
            plain_loop(torch.from_numpy(x), costs, epochs)

    def shortlister(rescore: bool, **settings: int) -> Callable[[], object]:
        model = sl.Shortlister(
            rescore=rescore, learn_sizes=True, calibration=None, progress=False, **settings
        )
        return lambda: model.fit(scores, y, x)

    print(
        f"{torch.get_num_threads()} threads, {arguments.rows:,} × 256, {epochs} epochs", flush=True
    )
    # Neither side pays for what torch and scikit-learn load at their first use.
    sl.Shortlister(rescore=True, max_epochs=1).fit(scores[:300], y[:300], x[:300])
    plain_loop(torch.from_numpy(x[:256]), torch.zeros(256, len(family)), 1)
    fixed = {"max_epochs": epochs, "patience": epochs}
    apart = seconds(loops)
    print(f"20 plain loops        {apart:7.2f} s", flush=True)
    for what, rescore in (("stage 2", False), ("both stages", True)):
        spent = seconds(shortlister(rescore, **fixed))
        print(f"{what:<21} {spent:7.2f} s   ratio {spent / apart:.4f}", flush=True)
    spent = seconds(shortlister(True, max_epochs=arguments.most_epochs))
    print(f"both, early stopping  {spent:7.2f} s")


if __name__ == "__main__":
    main()
