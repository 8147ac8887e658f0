"""All registered conformity scores: a new score is tested without a change to the tests."""

from __future__ import annotations

import math

import pytest

from shortlist.conformal import SCORES, ConformityScore

NAMES = list(SCORES)
RANDOMIZED = [name for name, cls in SCORES.items() if "randomized" in cls._get_param_names()]
VARIANTS = [(name, False) for name in NAMES] + [(name, True) for name in RANDOMIZED]


def make_score(
    name: str,
    penalty: float = 0.0,
    k_reg: int = 0,
    randomized: bool = False,
    seed: int = 0,
) -> ConformityScore:
    """Return a registered score. Parameters that it does not have are ignored."""
    parameters = {
        "penalty": penalty,
        "k_reg": k_reg,
        "randomized": randomized,
        "random_state": seed,
    }
    names = SCORES[name]._get_param_names()
    return SCORES[name](**{key: value for key, value in parameters.items() if key in names})


def brute(name: str, p: list[float], u: float, penalty: float, k_reg: int) -> list[float]:
    """Return the score of each label, best first, as the papers define it."""
    scores = []
    for j in range(1, len(p) + 1):
        before = math.fsum(p[: j - 1])
        if name == "lac":
            score = p[j - 1]
        elif name == "aps":
            score = -(before + u * p[j - 1])
        elif name == "raps":
            score = -(before + u * p[j - 1] + penalty * max(0, j - k_reg))
        elif name == "saps":
            score = -u * p[0] if j == 1 else -(p[0] + (j - 2 + u) * penalty)
        elif name == "topk":
            score = -(j - 1 + u)
        elif name == "margin":
            score = p[j - 1] - (p[1] if j == 1 else p[0])
        else:
            pytest.fail(f"add the definition of {name!r} here")
        scores.append(score)
    return scores
