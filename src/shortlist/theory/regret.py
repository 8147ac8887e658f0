"""Conditional errors and regrets of the target losses at one input x.

Everything is for one distribution `p` over the labels, `p(x, .)`, and one vector of scores. The
best-in-class errors are those of hypothesis sets that are symmetric and complete
(`hypothesis_words` defines both): there the infimum over hypotheses is the infimum over all
vectors of scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shortlist._utils.validation import check_count

Vector = NDArray[np.float64]


def distribution(p: ArrayLike) -> Vector:
    """Check a distribution over labels: not negative, and summing to one.

    Probabilities in single or half precision are rescaled to sum to one.
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


def check_scores(scores: ArrayLike, n: int) -> Vector:
    """Check the scores of n labels, or of n members of K."""
    array = np.asarray(scores, dtype=np.float64)
    if array.shape != (n,) or not np.isfinite(array).all():
        raise ValueError(f"scores must be finite, one for each of {n} labels; got {scores!r}")
    return array


def top_k(values: ArrayLike, k: int) -> NDArray[np.intp]:
    """Return the labels of the k largest values, largest first; among ties the highest index.

    Examples
    --------
    >>> top_k([0.2, 0.5, 0.5], 2).tolist()
    [2, 1]
    """
    array = np.asarray(values, dtype=np.float64)
    if not 1 <= check_count(k, "k") <= len(array):
        raise ValueError(f"k = {k} of {len(array)} labels")
    order = np.argsort(-array[::-1], kind="stable")
    return len(array) - 1 - order[:k]


def top_k_error(p: ArrayLike, scores: ArrayLike, k: int) -> float:
    """Return the conditional top-k error: the probability that the k best miss the label.

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    scores : array-like of shape (n,)
        Scores of the labels.
    k : int
        Number of labels kept.

    Returns
    -------
    float
        The error.

    Raises
    ------
    ValueError
        If p is not a distribution, or the scores or k do not fit it.
    """
    array = distribution(p)
    return float(1 - array[top_k(check_scores(scores, len(array)), k)].sum())


def best_top_k_error(p: ArrayLike, k: int) -> float:
    """Return the least top-k error of all scores: `1 - sum_{i <= k} p_(i)` (Lemma, Section 4).

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    k : int
        Number of labels kept.

    Returns
    -------
    float
        The least error.

    Raises
    ------
    ValueError
        If p is not a distribution, or k is not from 1 to n.
    """
    return top_k_error(p, p, k)


def top_k_regret(p: ArrayLike, scores: ArrayLike, k: int) -> float:
    """Return the conditional top-k regret, `sum_{i <= k} p(p_i) - p(h_i)`.

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    scores : array-like of shape (n,)
        Scores of the labels.
    k : int
        Number of labels kept.

    Returns
    -------
    float
        The regret.

    Raises
    ------
    ValueError
        If p is not a distribution, or the scores or k do not fit it.

    Examples
    --------
    >>> round(top_k_regret([0.5, 0.4, 0.1], [3.0, 1.0, 2.0], k=2), 12)
    0.3
    """
    array = distribution(p)
    kept = top_k(check_scores(scores, len(array)), k)
    return float(array[top_k(array, k)].sum() - array[kept].sum())


def expected_costs(p: ArrayLike, costs: ArrayLike) -> Vector:
    """Return the expected cost of each member, `q(k) = sum_y p(y) c(k, y)`.

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    costs : array-like of shape (members, n)
        Cost of each member of K for each label.

    Returns
    -------
    ndarray of shape (members,)
        The expected costs.

    Raises
    ------
    ValueError
        If p is not a distribution, or the costs do not fit it or are not finite.

    Examples
    --------
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
    expected: Vector = table @ array
    return expected


def cardinality_error(p: ArrayLike, costs: ArrayLike, choice: int) -> float:
    """Return the conditional cardinality-aware error: the expected cost of a choice.

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    costs : array-like of shape (members, n)
        Cost of each member of K for each label.
    choice : int
        Index of the chosen member.

    Returns
    -------
    float
        The error.

    Raises
    ------
    ValueError
        If p is not a distribution, or the costs or the choice do not fit it.
    """
    expected = expected_costs(p, costs)
    if not 0 <= choice < len(expected):
        raise ValueError(f"choice = {choice!r} is not one of {len(expected)} members")
    return float(expected[choice])


def best_cardinality_error(p: ArrayLike, costs: ArrayLike) -> float:
    """Return the least cardinality-aware error, `min_k q(k)` (Lemma, appendix).

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    costs : array-like of shape (members, n)
        Cost of each member of K for each label.

    Returns
    -------
    float
        The least error.

    Raises
    ------
    ValueError
        If p is not a distribution, or the costs do not fit it.
    """
    return float(expected_costs(p, costs).min())


def cardinality_regret(p: ArrayLike, costs: ArrayLike, choice: int) -> float:
    """Return the conditional cardinality-aware regret of a choice, `q(choice) - min_k q(k)`.

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    costs : array-like of shape (members, n)
        Costs `1[y not in g_k(x)] + cost_weight * cost(|g_k(x)|)`, normalised or not.
    choice : int
        Index of the chosen member.

    Returns
    -------
    float
        The regret.

    Raises
    ------
    ValueError
        If p is not a distribution, or the costs or the choice do not fit it.
    """
    return cardinality_error(p, costs, choice) - best_cardinality_error(p, costs)
