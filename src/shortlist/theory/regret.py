"""Conditional errors and regrets at one input x, of the target losses and of all surrogates.

Everything is for one distribution `p` over the labels, `p(x, .)`, and one vector of scores. The
best-in-class errors are those of hypothesis sets that are symmetric and complete
(`hypothesis_words` says what that means): there the infimum over hypotheses is the infimum over
all vectors of scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from shortlist._utils.arrays import check_choice, check_count
from shortlist.losses import NAMES, from_name
from shortlist.losses.common import check_between
from shortlist.losses.comp_sum import COMP_SUM_KINDS

Vector = NDArray[np.float64]


def distribution(p: ArrayLike) -> Vector:
    """A distribution over labels, checked: not negative, and summing to one.

    Probabilities in single or half precision, as networks give them, are made to sum to one.
    """
    given = np.asarray(p)
    array = given.astype(np.float64)
    if given.dtype in (np.float32, np.float16) and array.ndim == 1:
        total = float(array.sum())
        if abs(total - 1) <= 4 * len(array) * float(np.finfo(given.dtype).eps):
            array /= total
    if array.ndim != 1 or len(array) < 2:
        raise ValueError(f"p must be the probabilities of two labels or more; got {p!r}")
    if not (array >= 0).all() or not abs(array.sum() - 1) <= 1e-9:
        raise ValueError(f"p must be at least 0 and sum to 1; got {p!r}")
    return array


def _scores(scores: ArrayLike, n: int) -> Vector:
    """Scores of so many labels (or members of K), checked."""
    array = np.asarray(scores, dtype=np.float64)
    if array.shape != (n,) or not np.isfinite(array).all():
        raise ValueError(f"scores must be finite, one for each of {n} labels; got {scores!r}")
    return array


def top_k(values: ArrayLike, k: int) -> NDArray[np.intp]:
    """The labels of the k largest values, largest first; among ties the highest index.

    >>> top_k([0.2, 0.5, 0.5], 2).tolist()
    [2, 1]
    """
    array = np.asarray(values, dtype=np.float64)
    if not 1 <= check_count(k, "k") <= len(array):
        raise ValueError(f"k = {k} of {len(array)} labels")
    order = np.argsort(-array[::-1], kind="stable")
    return len(array) - 1 - order[:k]


def top_k_error(p: ArrayLike, scores: ArrayLike, k: int) -> float:
    """The conditional error of the top-k loss: the probability that the k best miss the label."""
    array = distribution(p)
    return float(1 - array[top_k(_scores(scores, len(array)), k)].sum())


def best_top_k_error(p: ArrayLike, k: int) -> float:
    """The least of all scores: `1 - sum_{i <= k} p_(i)` (paper, Lemma in Section 4)."""
    return top_k_error(p, p, k)


def top_k_regret(p: ArrayLike, scores: ArrayLike, k: int) -> float:
    """`sum_{i <= k} p(p_i) - p(h_i)`: by how much the k best scores are worse than the best k.

    >>> round(top_k_regret([0.5, 0.4, 0.1], [3.0, 1.0, 2.0], k=2), 12)
    0.3
    """
    array = distribution(p)
    kept = top_k(_scores(scores, len(array)), k)
    return float(array[top_k(array, k)].sum() - array[kept].sum())


def expected_costs(p: ArrayLike, costs: ArrayLike) -> Vector:
    """`q(k) = sum_y p(y) c(k, y)` from a table of costs (members of K, labels).

    >>> expected_costs([0.7, 0.3], [[0, 1], [0.5, 0.5]]).tolist()
    [0.3, 0.5]
    """
    array, table = distribution(p), np.asarray(costs, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(array):
        raise ValueError(
            f"costs must have a row for each member of K and a column for each of {len(array)} "
            f"labels; got shape {table.shape}"
        )
    if not np.isfinite(table).all():
        raise ValueError("costs must be finite")
    found: Vector = table @ array
    return found


def cardinality_error(p: ArrayLike, costs: ArrayLike, choice: int) -> float:
    """The conditional error of the cardinality-aware loss: the expected cost of a choice."""
    expected = expected_costs(p, costs)
    if not 0 <= choice < len(expected):
        raise ValueError(f"choice = {choice!r} is not one of {len(expected)} members")
    return float(expected[choice])


def best_cardinality_error(p: ArrayLike, costs: ArrayLike) -> float:
    """The least of all choices: `min_k q(k)` (paper, Lemma in the appendix)."""
    return float(expected_costs(p, costs).min())


def cardinality_regret(p: ArrayLike, costs: ArrayLike, choice: int) -> float:
    """The conditional regret of the cardinality-aware loss for a choice: `q(choice) - min_k q(k)`.

    `costs` are `c(x, k, y) = 1[y not in g_k(x)] + lambda cost(|g_k(x)|)`, normalised or not.
    """
    return cardinality_error(p, costs, choice) - best_cardinality_error(p, costs)


def surrogate_error(
    loss: str,
    p: ArrayLike,
    scores: ArrayLike,
    *,
    costs: ArrayLike | None = None,
    q: float = 0.7,
    rho: float = 1.0,
) -> float:
    """The conditional error of a surrogate loss, `sum_y p(y) loss(scores, y)`.

    With `costs`, a table (members of K, labels) in [0, 1], its cost-sensitive twin, of the scores
    of the members of K.
    """
    array = distribution(p)
    members = len(array) if costs is None else len(expected_costs(p, costs))
    r = torch.from_numpy(_scores(scores, members))
    module = from_name(
        check_choice(loss, "loss", NAMES),
        q=q,
        rho=rho,
        cost_sensitive=costs is not None,
        reduction="none",
    )
    each = r.expand(len(array), -1)
    if costs is None:
        target = torch.arange(len(array))
    else:
        target = torch.as_tensor(np.asarray(costs, dtype=np.float64)).T.contiguous()
    return float(module(each, target).numpy() @ array)


def surrogate_infimum(
    loss: str,
    p: ArrayLike,
    *,
    costs: ArrayLike | None = None,
    q: float = 0.7,
) -> float:
    """The infimum of `surrogate_error` over all scores, in closed form.

    With weights w = p (comp-sum) or v = 1 - p (constrained); with costs, `w = 1 - q(k)` and
    `v = q(k)` of the expected costs q(k). W is the sum of w, n the number of weights:

    ================ ==================================== =======================
    loss             infimum                              reached at
    ================ ==================================== =======================
    log              -sum w log(w / W)                    softmax w / W
    exp              (sum sqrt w)^2 - W                   softmax in ratio sqrt w
    gce              (W - (sum w^a)^(1/a)) / q            softmax in ratio w^a
    mae              W - max w                            the best label alone
    constrained_exp  n (prod v)^(1/n)                     e^r in ratio 1 / v
    squared_hinge    n^2 / sum(1/v)                       1 + r in ratio 1 / v
    hinge            n min v                              r = -1 but for the best
    margin           min v                                r <= -rho but for the best
    ================ ==================================== =======================

    with `a = 1 / (1 - q)`. (The last does not depend on rho.)

    >>> surrogate_infimum("mae", [0.5, 0.4, 0.1])
    0.5
    >>> round(surrogate_infimum("exp", [0.5, 0.5]), 12)
    1.0
    """
    check_choice(loss, "loss", NAMES)
    array = distribution(p)
    check_between("q", q, 0.0, 1.0, "between 0 and 1, both excluded")
    cost = None if costs is None else expected_costs(array, costs)
    if costs is not None and not ((np.asarray(costs) >= 0) & (np.asarray(costs) <= 1)).all():
        raise ValueError("costs must lie in [0, 1]: divide by 1 + lambda cost(largest size)")
    if loss in COMP_SUM_KINDS:
        return _comp_sum_infimum(loss, array if cost is None else 1 - cost, q)
    return _constrained_infimum(loss, 1 - array if cost is None else cost)


def surrogate_regret(
    loss: str,
    p: ArrayLike,
    scores: ArrayLike,
    *,
    costs: ArrayLike | None = None,
    q: float = 0.7,
    rho: float = 1.0,
) -> float:
    """The conditional regret of a surrogate: its error less the infimum over all scores.

    >>> round(surrogate_regret("hinge", [0.5, 0.4, 0.1], [2.0, -1.0, -1.0]), 12)   # with a tie
    0.0
    """
    error = surrogate_error(loss, p, scores, costs=costs, q=q, rho=rho)
    return error - surrogate_infimum(loss, p, costs=costs, q=q)


def _comp_sum_infimum(loss: str, w: Vector, q: float) -> float:
    total = float(w.sum())
    if loss == "log":
        some = w[w > 0]
        return float(-(some * np.log(some / total)).sum())
    if loss == "exp":
        return float(np.sqrt(w).sum() ** 2 - total)
    if loss == "gce":
        a = 1 / (1 - q)
        largest = float(w.max())
        norm = largest * float(((w / largest) ** a).sum()) ** (1 - q) if largest else 0.0
        return (total - norm) / q
    return total - float(w.max())


def _constrained_infimum(loss: str, v: Vector) -> float:
    n, least = len(v), float(v.min())
    if loss == "margin":
        return least
    if loss == "hinge":
        return n * least
    if least == 0:
        return 0.0
    if loss == "constrained_exp":
        return n * math.exp(float(np.log(v).mean()))
    return n**2 / float((1 / v).sum())


def hypothesis_words() -> dict[str, str]:
    """What the theorems ask of a hypothesis set or a distribution, in words that can be checked.

    >>> sorted(hypothesis_words())
    ['closed under scaling', 'complete', 'realizable', 'regular', 'symmetric']
    """
    return dict(_WORDS)


_WORDS: Sequence[tuple[str, str]] = (
    (
        "regular",
        "At every x, every order of the first k labels is that of some hypothesis. Linear models "
        "with a constant feature, networks and all functions are; a model that never ranks some "
        "label first is not. Symmetric and complete sets are regular.",
    ),
    (
        "symmetric",
        "The labels' scoring functions come from one and the same family: exchanging the weights "
        "of two labels gives another hypothesis of the set. Not so if some labels have features "
        "of their own.",
    ),
    (
        "complete",
        "At every x, the score of a label can be any real number. Linear models with unbounded "
        "weights are, where x is not zero; with a bounded norm, as every regularised or clipped "
        "model has, they are not.",
    ),
    (
        "closed under scaling",
        "With h, every multiple of it by a positive number is in the set. Linear models and "
        "networks with a free last layer are; a bounded norm, or a fixed temperature, prevents it.",
    ),
    (
        "realizable",
        "Some hypothesis of the set scores the right label above the label of rank k + 1, with "
        "probability one (top-k-H-realizable). For k = 1: the data can be separated.",
    ),
)
