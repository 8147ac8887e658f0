"""Compare the training time of a `CardinalityPath` with 20 separate training loops.

    python benchmarks/path_against_loops.py

Both train the selectors of the paper for 20 lambdas on 20,000 × 256 random features, with 100
classes, K = {1, 2, 4, 8}, Adam, batches of 128 rows, and the same number of epochs without early
stopping. They run one after the other in one process. A training loop is ordinary PyTorch code: a
`TensorDataset`, a `DataLoader(shuffle=True)`, an `nn.Sequential`, and costs that are computed once.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import nn

import shortlist as sl
from shortlist.costs import cost_matrix, cost_table
from shortlist.learning.networks import perceptron


def train_selector(x: torch.Tensor, costs: torch.Tensor, epochs: int) -> nn.Module:
    """Train the selector of the paper for one lambda."""
    network = perceptron(x.shape[1], costs.shape[1])
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
    dataset = torch.utils.data.TensorDataset(x, costs)
    loader = torch.utils.data.DataLoader(dataset, batch_size=128, shuffle=True)
    for _ in range(epochs):
        for batch, batch_costs in loader:
            log_p = torch.log_softmax(network(batch), dim=1)
            loss = -((1 - batch_costs) * log_p).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network


def main() -> None:
    """Print the times and their ratio for each repetition."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((options.rows, 256), dtype=np.float32)
    scores = rng.standard_normal((options.rows, 100), dtype=np.float32)
    y = (scores + 2 * rng.gumbel(size=scores.shape)).argmax(axis=1)
    family, weights = sl.TopK([1, 2, 4, 8]), np.geomspace(1, 0.01, 20)
    table = cost_table("log", family.k)
    hits = torch.from_numpy(family.hits(scores, y))
    size_costs = table[torch.from_numpy(family.sizes(scores).astype(np.int64))].float()

    print(f"{torch.get_num_threads()} threads, {options.rows:,} × 256, {options.epochs} epochs")
    path = sl.CardinalityPath(
        family, cost_weights=weights, max_epochs=options.epochs, validation_fraction=0
    )
    # Load what torch and scikit-learn load at their first use, so that it is not measured.
    path.fit(scores[:256], y[:256], x[:256])
    train_selector(torch.from_numpy(x[:256]), torch.zeros(256, len(family)), 1)
    for _ in range(options.repeats):
        start = time.monotonic()
        path.fit(scores, y, x)
        path_seconds = time.monotonic() - start
        start = time.monotonic()
        for weight in weights:
            costs = cost_matrix(hits, size_costs, float(weight), float(table[-1]))
            train_selector(torch.from_numpy(x), costs, options.epochs)
        loop_seconds = time.monotonic() - start
        print(
            f"path {path_seconds:6.2f} s   20 loops {loop_seconds:6.2f} s   "
            f"ratio {loop_seconds / path_seconds:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
