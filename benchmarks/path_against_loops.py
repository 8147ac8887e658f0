"""A path of 20 lambdas trained together, against 20 plain loops over a `DataLoader`.

    python benchmarks/path_against_loops.py

Both train the paper's selector on 20,000 × 256 random features, K = {1, 2, 4, 8}, 100 classes,
batch 128, Adam, the same number of epochs, without early stopping; one after the other in one
process. A plain loop is what a person would write: `TensorDataset`, `DataLoader(shuffle=True)`,
an `nn.Sequential`, costs made once.
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


def plain_loop(x: torch.Tensor, costs: torch.Tensor, epochs: int) -> nn.Module:
    network = perceptron(x.shape[1], costs.shape[1])
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
    dataset = torch.utils.data.TensorDataset(x, costs)
    loader = torch.utils.data.DataLoader(dataset, batch_size=128, shuffle=True)
    for _ in range(epochs):
        for batch, c in loader:
            log_p = torch.log_softmax(network(batch), dim=1)
            loss = -((1 - c) * log_p).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((arguments.rows, 256), dtype=np.float32)
    scores = rng.standard_normal((arguments.rows, 100), dtype=np.float32)
    y = (scores + 2 * rng.gumbel(size=scores.shape)).argmax(axis=1)
    family, weights = sl.TopK([1, 2, 4, 8]), np.geomspace(1, 0.01, 20)
    table = cost_table("log", family.k)
    hits = torch.from_numpy(family.hits(scores, y))
    sizes = table[torch.from_numpy(family.sizes(scores).astype(np.int64))].float()

    print(f"{torch.get_num_threads()} threads, {arguments.rows:,} × 256, {arguments.epochs} epochs")
    path = sl.CardinalityPath(
        family, cost_weights=weights, max_epochs=arguments.epochs, validation_fraction=0
    )
    # Neither side pays for what torch and scikit-learn load at their first use.
    path.fit(scores[:256], y[:256], x[:256])
    plain_loop(torch.from_numpy(x[:256]), torch.zeros(256, len(family)), 1)
    for _ in range(arguments.repeats):
        begun = time.monotonic()
        path.fit(scores, y, x)
        together = time.monotonic() - begun
        begun = time.monotonic()
        for weight in weights:
            costs = cost_matrix(hits, sizes, float(weight), float(table[-1]))
            plain_loop(torch.from_numpy(x), costs, arguments.epochs)
        apart = time.monotonic() - begun
        print(
            f"path {together:6.2f} s   20 loops {apart:6.2f} s   ratio {apart / together:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
