"""All registered conformity scores, so that a new one is tested without editing a list."""

from __future__ import annotations

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
    """Return a score with those of the parameters that it has."""
    given = {
        "penalty": penalty,
        "k_reg": k_reg,
        "randomized": randomized,
        "random_state": seed,
    }
    known = SCORES[name]._get_param_names()
    return SCORES[name](**{key: value for key, value in given.items() if key in known})
