"""Conditional errors and regrets of the target losses at one input x.

All functions take the distribution `p` of the labels at x and one vector of scores. The smallest
errors are those of symmetric and complete hypothesis sets (`hypothesis_definitions` defines both
terms). For these sets, the infimum over hypotheses equals the infimum over all vectors of scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shortlist._utils.validation import check_count

Vector = NDArray[np.float64]


def distribution(p: ArrayLike) -> Vector:
    """Return a distribution over labels in float64, and raise if it is not a distribution.

    Probabilities in single or half precision are rescaled so that they sum to one.
    """
    original = np.asarray(p)
    array = original.astype(np.float64)
    if original.dtype in (np.float32, np.float16) and array.ndim == 1:
        total = float(array.sum())
        if abs(total - 1) <= 4 * len(array) * float(np.finfo(original.dtype).eps):
            array /= total
    if array.ndim != 1 or len(array) < 2:
        raise ValueError(f"p must be a vector of at least two probabilities; got {p!r}")
    if not (array >= 0).all() or not abs(array.sum() - 1) <= 1e-9:
        raise ValueError(f"p must be non-negative and sum to 1; got {p!r}")
    return array


def check_scores(scores: ArrayLike, n: int) -> Vector:
    """Return n scores in float64, and raise if they are not n finite numbers."""
    array = np.asarray(scores, dtype=np.float64)
    if array.shape != (n,) or not np.isfinite(array).all():
        raise ValueError(f"scores must be finite, one for each of the {n} labels; got {scores!r}")
    return array


def top_k(values: ArrayLike, k: int) -> NDArray[np.intp]:
    """Return the labels of the k largest values in descending order. Ties go to the highest index.

    Examples
    --------
    >>> top_k([0.2, 0.5, 0.5], 2).tolist()
    [2, 1]
    """
    array = np.asarray(values, dtype=np.float64)
    if not 1 <= check_count(k, "k") <= len(array):
        raise ValueError(f"k = {k} must be at most the number of labels, {len(array)}")
    order = np.argsort(-array[::-1], kind="stable")
    return len(array) - 1 - order[:k]


def top_k_error(p: ArrayLike, scores: ArrayLike, k: int) -> float:
    """Return the conditional top-k error: the probability that the top-k set misses the label.

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    scores : array-like of shape (n,)
        Scores of the labels.
    k : int
        Size of the top-k set.

    Returns
    -------
    float
        The error.

    Raises
    ------
    ValueError
        If p is not a distribution, or the scores or k do not match it.
    """
    array = distribution(p)
    return float(1 - array[top_k(check_scores(scores, len(array)), k)].sum())


def best_top_k_error(p: ArrayLike, k: int) -> float:
    """Return the smallest top-k error over all scores, `1 - sum_{i <= k} p_(i)` (Lemma, Section 4).

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    k : int
        Size of the top-k set.

    Returns
    -------
    float
        The smallest error.

    Raises
    ------
    ValueError
        If p is not a distribution, or k is not from 1 to n.
    """
    return top_k_error(p, p, k)


def top_k_regret(p: ArrayLike, scores: ArrayLike, k: int) -> float:
    """Return the conditional top-k regret, `sum_{i <= k} p(p_i) - p(h_i)`.

    `p_i` and `h_i` are the labels with the i-th largest probability and the i-th highest score.

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    scores : array-like of shape (n,)
        Scores of the labels.
    k : int
        Size of the top-k set.

    Returns
    -------
    float
        The regret.

    Raises
    ------
    ValueError
        If p is not a distribution, or the scores or k do not match it.

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
        If p is not a distribution, or the costs do not match it or are not finite.

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
        raise ValueError("costs must be finite; remove NaN and infinite values")
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
        If p is not a distribution, or the costs or the choice do not match it.
    """
    expected = expected_costs(p, costs)
    if not 0 <= choice < len(expected):
        raise ValueError(
            f"choice = {choice!r} is out of range; choose a member from 0 to {len(expected) - 1}"
        )
    return float(expected[choice])


def best_cardinality_error(p: ArrayLike, costs: ArrayLike) -> float:
    """Return the smallest cardinality-aware error, `min_k q(k)` (Lemma, appendix).

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    costs : array-like of shape (members, n)
        Cost of each member of K for each label.

    Returns
    -------
    float
        The smallest error.

    Raises
    ------
    ValueError
        If p is not a distribution, or the costs do not match it.
    """
    return float(expected_costs(p, costs).min())


def cardinality_regret(p: ArrayLike, costs: ArrayLike, choice: int) -> float:
    """Return the conditional cardinality-aware regret of a choice, `q(choice) - min_k q(k)`.

    Parameters
    ----------
    p : array-like of shape (n,)
        Probabilities of the labels.
    costs : array-like of shape (members, n)
        Costs `1[y not in g_k(x)] + cost_weight * cost(|g_k(x)|)`, with or without normalization.
    choice : int
        Index of the chosen member.

    Returns
    -------
    float
        The regret.

    Raises
    ------
    ValueError
        If p is not a distribution, or the costs or the choice do not match it.
    """
    return cardinality_error(p, costs, choice) - best_cardinality_error(p, costs)
