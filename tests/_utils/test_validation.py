"""Checks of parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shortlist._utils.validation import (
    check_choice,
    check_count,
    check_non_negative,
    check_probability,
)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (
            lambda v: check_non_negative(v, "cost_weight"),
            [0, 0.5, 7, np.float32(2), torch.tensor(0.25)],
            [],
        ),
        (
            lambda v: check_non_negative(v, "cost_weight"),
            [],
            [-0.1, float("nan"), float("inf"), "much", None],
        ),
        (lambda v: check_probability(v, "share"), [0.25, np.float64(0.5)], []),
        (lambda v: check_probability(v, "share"), [], [0, 1, 1.5, -0.5, float("nan"), "x", None]),
        (lambda v: check_count(v, "depth", 2), [2, np.int64(5)], []),
        (lambda v: check_count(v, "depth", 2), [], [1, 0, -3, 2.0, True, "2", None]),
        (lambda v: check_choice(v, "loss", ("log", "exp")), ["log", "exp"], []),
        (lambda v: check_choice(v, "loss", ("log", "exp")), [], ["Log", "", None, 3]),
    ],
)
def test_checks_return_valid_values_and_name_invalid_ones(check, good, bad):
    for value in good:
        assert check(value) == value
    for value in bad:
        with pytest.raises(ValueError, match="must") as error:
            check(value)
        assert repr(value) in str(error.value)
