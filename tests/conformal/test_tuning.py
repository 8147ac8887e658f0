"""The choice of the parameters of a score by the sizes of its sets."""

from __future__ import annotations

import numpy as np
import torch

import shortlist as sl
from shortlist.conformal.scores import RAPS
from shortlist.conformal.scores.tuning import FINALISTS, PENALTIES, SCREENING_ROWS, shortest

GRID = [{"penalty_": penalty, "k_reg_": k} for penalty in PENALTIES for k in (0, 1, 2, 5, 9)]


def draw(n_rows: int, n_classes: int = 30) -> tuple[sl.Ranking, torch.Tensor]:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(n_rows, n_classes))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    ranking = sl.Ranking.from_scores(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
    return ranking, ranking.rank_of(torch.as_tensor(y))


def mean_size(values: dict[str, float], ranking: sl.Ranking, rank: torch.Tensor) -> float:
    """Return the mean size of the non-empty sets with 90% accuracy, by its definition."""
    score = RAPS(penalty=values["penalty_"], k_reg=values["k_reg_"])
    levels = score.levels(ranking)
    own = levels.gather(1, rank.to(torch.int64)[:, None])[:, 0]
    own[rank == 0] = torch.inf  # No set is without its row's first label.
    threshold = own.sort(descending=True).values[int(np.ceil(0.9 * len(own))) - 1]
    return float((levels >= threshold).sum(dim=1).clamp(min=1).double().mean())


def test_a_long_grid_is_screened_and_the_choice_is_nearly_the_shortest() -> None:
    ranking, rank = draw(2 * SCREENING_ROWS)
    assert len(GRID) > FINALISTS
    score = shortest(RAPS(), GRID, ranking, rank, 0.9)
    chosen = {"penalty_": score.penalty_, "k_reg_": score.k_reg_}
    sizes = [mean_size(values, ranking, rank) for values in GRID]
    assert max(sizes) > 1.05 * min(sizes)
    assert mean_size(chosen, ranking, rank) <= 1.005 * min(sizes)


def test_with_few_rows_every_value_is_tried_on_all_of_them() -> None:
    ranking, rank = draw(SCREENING_ROWS + 1)
    score = shortest(RAPS(), GRID, ranking, rank, 0.9)
    sizes = [mean_size(values, ranking, rank) for values in GRID]
    best = GRID[int(np.argmin(sizes))]
    assert (score.penalty_, score.k_reg_) == (best["penalty_"], best["k_reg_"])
