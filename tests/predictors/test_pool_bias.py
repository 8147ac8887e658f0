"""The pool's bias for all labels that are not listed."""

from __future__ import annotations

import math

import pytest
import torch
from test_pool import independent_estimates, mean_log_likelihood, to_candidates
from torch import Tensor

from shortlist.predictors.shortlister.opinions import align_columns, padding_mask
from shortlist.predictors.shortlister.pool import Pool, PoolFit

N_CLASSES, DEPTH = 12, 4


def candidates(n: int, seed: int = 0) -> tuple[list[Tensor], Tensor | None, Tensor]:
    """Return two estimates of candidates, their padding, and labels.

    The labels have the probabilities of the pool of all classes, with exponents 0.7 and 0.6.
    """
    log_p, log_q = independent_estimates(n, N_CLASSES, seed)
    truth = Pool([0.7, 0.6])([log_p, log_q]).double().exp()
    label = torch.multinomial(truth, 1, generator=torch.Generator().manual_seed(seed))
    listed, columns = to_candidates(log_p, DEPTH, ragged=True)
    tables = [listed, align_columns(log_q, columns)]
    is_label = columns[:, :-1] == label
    target = torch.where(is_label.any(dim=1), is_label.int().argmax(dim=1), DEPTH)
    return tables, padding_mask(columns, N_CLASSES), target


def select(
    tables: list[Tensor], padding: Tensor | None, target: Tensor, *, others_last: bool
) -> Pool:
    return PoolFit(tables, padding, target, others_last=others_last).select([[0], [1]])[1]


def mass_of_others(pool: Pool, tables: list[Tensor], padding: Tensor | None) -> float:
    return float(pool(tables, padding)[:, -1].double().exp().mean())


def test_the_bias_multiplies_the_last_probability() -> None:
    tables, padding, _ = candidates(50)
    plain, biased = (Pool([0.5, 0.8], bias)(tables, padding).double() for bias in (0.0, -1.3))
    odds = (biased - plain)[:, -1:] - (biased - plain)[:, :1]
    torch.testing.assert_close(odds, torch.full_like(odds, -1.3), atol=1e-5, rtol=0)
    torch.testing.assert_close(biased.exp().sum(dim=1), torch.ones(50).double())


@pytest.mark.parametrize("seed", range(3))
def test_the_mean_mass_of_others_is_their_share(seed: int) -> None:
    """The derivative of the likelihood by the bias is zero, up to the penalty of one row."""
    tables, padding, target = candidates(4000, seed)
    share = float((target == DEPTH).double().mean())
    without, with_bias = (
        select(tables, padding, target, others_last=others_last) for others_last in (False, True)
    )
    assert with_bias.bias != 0
    assert mass_of_others(with_bias, tables, padding) == pytest.approx(share, abs=2e-3)
    assert abs(mass_of_others(without, tables, padding) - share) > 0.01


def test_new_rows_are_more_likely_with_the_bias() -> None:
    tables, padding, target = candidates(3000)
    new_tables, new_padding, new_target = candidates(3000, seed=9)
    likelihoods = [
        mean_log_likelihood(
            select(tables, padding, target, others_last=others_last),
            (new_tables, new_padding),
            new_target,
        )
        for others_last in (False, True)
    ]
    assert likelihoods[1] > likelihoods[0] + 1e-3


def test_an_estimate_with_a_wrong_mass_of_others_is_corrected() -> None:
    """The only error of the estimate is a factor of the last column, which is found exactly."""
    log_p, _ = independent_estimates(20_000, N_CLASSES)
    table, columns = to_candidates(log_p, DEPTH, ragged=False)
    truth = torch.log_softmax(table, dim=1)
    target = torch.multinomial(truth.exp(), 1, generator=torch.Generator().manual_seed(0))[:, 0]
    wrong = truth.clone()
    wrong[:, -1] += math.log(5)
    padding = padding_mask(columns, N_CLASSES)
    fit = PoolFit([torch.log_softmax(wrong, dim=1)], padding, target, others_last=True)
    _, pool = fit.select([[0]])
    assert pool.bias == pytest.approx(-math.log(5), abs=0.1)
    assert pool.exponents == pytest.approx([1.0], abs=0.03)


def test_labels_that_are_always_listed_leave_others_little_mass() -> None:
    tables, padding, target = candidates(500)
    pool = select(tables, padding, target.where(target < DEPTH, 0), others_last=True)
    assert math.isfinite(pool.bias)
    assert mass_of_others(pool, tables, padding) < 0.02


def test_rows_with_all_scores_have_no_bias() -> None:
    log_p, log_q = independent_estimates(300, N_CLASSES)
    target = torch.multinomial(log_p.exp(), 1)[:, 0]
    assert select([log_p, log_q], None, target, others_last=False).bias == 0
