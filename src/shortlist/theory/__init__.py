"""The paper's theory as code: regrets, bounds, Bayes selectors, gaps, and tests of every theorem.

`docs/theory.md` states the corrected theorems, with proofs and counter-examples.
"""

from __future__ import annotations

from shortlist.theory.bayes import bayes_choice, deterministic_choice
from shortlist.theory.bounds import (
    cost_sensitive_bound,
    gamma,
    psi,
    psi_inverse,
    rate,
    realizable_bound,
    top_k_bound,
)
from shortlist.theory.certificates import (
    Certificate,
    certificate,
    gce_threshold,
    inconsistency_example,
)
from shortlist.theory.gaps import (
    FiniteDistribution,
    max_loss_example,
    minimizability_gap,
    top_two_example,
)
from shortlist.theory.generalization import (
    generalization_bound,
    lipschitz,
    loss_bound,
    rademacher_linear,
    selector_generalization_bound,
)
from shortlist.theory.hypotheses import hypothesis_definitions
from shortlist.theory.regret import (
    best_cardinality_error,
    best_top_k_error,
    cardinality_error,
    cardinality_regret,
    expected_costs,
    top_k_error,
    top_k_regret,
)
from shortlist.theory.surrogates import (
    surrogate_error,
    surrogate_infimum,
    surrogate_regret,
)
from shortlist.theory.verification import Report, Row, verify

__all__ = [
    "Certificate",
    "FiniteDistribution",
    "Report",
    "Row",
    "bayes_choice",
    "best_cardinality_error",
    "best_top_k_error",
    "cardinality_error",
    "cardinality_regret",
    "certificate",
    "cost_sensitive_bound",
    "deterministic_choice",
    "expected_costs",
    "gamma",
    "gce_threshold",
    "generalization_bound",
    "hypothesis_definitions",
    "lipschitz",
    "loss_bound",
    "max_loss_example",
    "minimizability_gap",
    "inconsistency_example",
    "psi",
    "psi_inverse",
    "rademacher_linear",
    "rate",
    "realizable_bound",
    "selector_generalization_bound",
    "surrogate_error",
    "surrogate_infimum",
    "surrogate_regret",
    "top_k_bound",
    "top_k_error",
    "top_k_regret",
    "top_two_example",
    "verify",
]
