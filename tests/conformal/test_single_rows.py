"""Single rows have the sets that they have in a batch, and do not wait for threads of PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import shortlist as sl
from shortlist.conformal import ConformityScore

DATA = sl.datasets.gaussian(1200, 0.5, n_classes=12, dimension=6)
FIT, NEW = DATA.split(1000, 200)
INPUTS: dict[str, Callable[[np.ndarray], object]] = {
    "float64": lambda p: p.astype(np.float64),
    "float32": lambda p: p.astype(np.float32),
    "torch": torch.from_numpy,
    "logits": lambda p: np.log(p) + 3,
    "candidates": lambda p: sl.Ranking.from_candidates(
        np.argsort(-p, axis=1)[:, :6], -np.sort(-p, axis=1)[:, :6], n_classes=12
    ),
}


@pytest.mark.parametrize("score", ["lac", "aps", "raps", "saps", "topk", "margin"])
@pytest.mark.parametrize("name", INPUTS)
def test_a_single_row_has_the_set_of_the_batch(score: str, name: str) -> None:
    make = INPUTS[name]
    model = sl.SplitConformal(score, on_unreachable="all").fit(
        make(np.asarray(FIT.posterior)), FIT.y
    )
    p = np.asarray(NEW.posterior)
    together = model.predict_set(make(p), accuracy=0.8).labels()
    single = [model.predict_set(make(p[[i]]), accuracy=0.8).labels()[0] for i in range(len(p))]
    assert single == together


class Threads(ConformityScore):
    """LAC that records how many threads the operations of its levels may use."""

    name = "threads"
    seen: list[int] = []  # noqa: RUF012

    def levels(self, ranking: sl.Ranking, features: Tensor | None = None) -> Tensor:
        self.seen.append(torch.get_num_threads())
        return ranking.sorted_proba()


def test_levels_of_a_single_row_with_features_are_single_threaded() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = sl.ConformalPredictor(Threads()).fit(FIT.posterior, FIT.y, FIT.x)
        Threads.seen.clear()
        model.predict_set(NEW.posterior[:1], NEW.x[:1], accuracy=0.8)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert Threads.seen == [1]
