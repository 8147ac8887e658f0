"""Checks of fitted transformers and classifiers that determine the size of a table."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import clone

from shortlist.io.compiled_arrays import equals, is_integer, require

MAX_COLUMNS = 1 << 22
"""Largest number of polynomial features."""
MAX_DEGREE = 64
MAX_NGRAM = 64
TOKEN_PATTERNS = (r"(?u)\b\w\w+\b", r"(?u)\b\w+\b", r"\b\w+\b", r"\w+", r"\w{1,}", r"\S+")
"""Token patterns of text vectorizers, which match in linear time."""
SCORING_METHODS = ("predict_proba", "decision_function", "predict")


def check_one_hot(owner: Any) -> None:
    """Raise if a category has a code outside of the sparse matrix that the encoder creates.

    Parameters
    ----------
    owner : OneHotEncoder
        Fitted estimator.
    """
    categories, n = owner.categories_, owner.n_features_in_
    require(isinstance(categories, list) and len(categories) == n, owner, "categories are missing")
    has_groups = getattr(owner, "_infrequent_enabled", None)
    is_flag = isinstance(has_groups, bool)
    require(is_flag, owner, "it does not say whether it groups rare categories")
    mappings = owner._default_to_infrequent_mappings if has_groups else [None] * n
    rare = owner._infrequent_indices if has_groups else [None] * n
    dropped = owner._drop_idx_after_grouping
    dropped = [None] * n if dropped is None else list(dropped)
    widths = owner._n_features_outs
    for by_column in (mappings, rare, dropped, widths):
        same = isinstance(by_column, list) and len(by_column) == n
        require(same, owner, "columns are missing")
    for column in range(n):
        names, codes = categories[column], mappings[column]
        is_array = isinstance(names, np.ndarray) and names.ndim == 1 and len(names) > 0
        require(is_array and _is_sorted(names), owner, "categories are not in order")
        width = len(names)
        require((codes is None) == (rare[column] is None), owner, "rare categories are missing")
        if codes is not None:
            width = _check_groups(owner, names, codes, rare[column])
        drop = dropped[column]
        exists = drop is None or is_integer(drop, 0, width - 1)
        require(exists, owner, "it drops a category that does not exist")
        width -= drop is not None
        require(is_integer(widths[column], width, width), owner, "its columns have another width")


def _check_groups(owner: object, names: Any, codes: Any, rare: Any) -> int:
    """Raise unless categories are mapped to existing columns; return the number of columns."""
    n = len(names)
    for indices in (codes, rare):
        are_integers = (
            isinstance(indices, np.ndarray) and indices.ndim == 1 and indices.dtype.kind == "i"
        )
        exist = are_integers and len(indices) > 0 and ((indices >= 0) & (indices < n)).all()
        require(exist, owner, "a rare category has no column")
    require(len(codes) == n, owner, "a category has no column")
    return int(codes.max()) + 1


def _is_sorted(names: Any) -> bool:
    """Return whether categories are sorted, as a binary search needs; strings need not be."""
    values = names.tolist()
    if all(isinstance(value, str | bytes) or value is None or value != value for value in values):
        return True
    present = [value for value in values if value == value and value is not None]
    texts = [isinstance(value, str) for value in present]
    if any(texts):
        return all(texts) and names.dtype.kind in "OUS"
    last = present == values[: len(present)]
    return last and all(a < b for a, b in pairwise(present))


def check_polynomial(owner: Any) -> None:
    """Raise if polynomial features have another number of columns than their degree implies.

    Parameters
    ----------
    owner : PolynomialFeatures
        Fitted estimator.
    """
    degree = owner.degree if isinstance(owner.degree, tuple | list) else (owner.degree,)
    is_small = 1 <= len(degree) <= 2 and all(is_integer(one, 0, MAX_DEGREE) for one in degree)
    require(is_small, owner, f"its degree is {str(owner.degree)[:40]}")
    require(is_integer(owner.n_features_in_, 1, 1 << 16), owner, "it has too many features")
    fresh = clone(owner).fit(np.zeros((1, int(owner.n_features_in_))))
    for name in ("n_output_features_", "_n_out_full", "_min_degree", "_max_degree"):
        require(
            equals(owner, name, getattr(fresh, name)), owner, f"{name} does not match its degree"
        )
    require(is_integer(fresh._n_out_full, 1, MAX_COLUMNS), owner, "it has too many columns")


def check_function(owner: Any) -> None:
    """Raise if a function is called with arguments from the file, or with several arrays.

    Parameters
    ----------
    owner : FunctionTransformer
        Estimator.
    """
    for arguments in (owner.kw_args, owner.inv_kw_args):
        require(not arguments, owner, "its function has arguments; name it in trusted=[...]")
    for function in (owner.func, owner.inverse_func):
        is_unary = not isinstance(function, np.ufunc) or function.nin == function.nout == 1
        require(is_unary, owner, "its function takes several arrays")


def check_vectorizer(owner: Any) -> None:
    """Raise if a text vectorizer has words without columns, or could run for a very long time.

    Parameters
    ----------
    owner : CountVectorizer or TfidfVectorizer
        Fitted estimator.
    """
    words = owner.vocabulary_
    require(isinstance(words, dict) and words, owner, "it has no vocabulary")
    are_strings = all(isinstance(word, str) for word in words)
    columns = list(words.values())
    exist = all(is_integer(one, 0, len(words) - 1) for one in columns)
    is_valid = are_strings and exist and len(set(columns)) == len(words)
    require(is_valid, owner, "a word has no column")
    require(owner.input == "content", owner, "it reads files")
    is_known = owner.analyzer in ("word", "char", "char_wb")
    require(is_known, owner, f"its analyzer is {str(owner.analyzer)[:40]!r}")
    is_known = owner.token_pattern is None or owner.token_pattern in TOKEN_PATTERNS
    require(is_known, owner, "its token pattern may never end; name it in trusted=[...]")
    lengths = owner.ngram_range
    is_pair = isinstance(lengths, tuple | list) and len(lengths) == 2
    is_valid = is_pair and all(is_integer(one, 1, MAX_NGRAM) for one in lengths)
    require(is_valid, owner, f"its n-grams have {str(lengths)[:40]} words")
    weights = getattr(owner, "_tfidf", None)
    if weights is not None and weights.use_idf:
        require(np.shape(weights.idf_) == (len(words),), owner, "a word has no weight")


def check_dummy(owner: Any) -> None:
    """Raise if a constant classifier returns another number of columns than it has classes.

    Parameters
    ----------
    owner : DummyClassifier
        Fitted estimator.
    """
    n = len(owner.classes_)
    require(equals(owner, "n_classes_", n), owner, "it has other classes")
    require(equals(owner, "n_outputs_", 1), owner, "it has several outputs")
    prior = owner.class_prior_
    same = isinstance(prior, np.ndarray) and prior.shape == (n,)
    require(same, owner, "it has other classes")


def check_stacking(owner: Any) -> None:
    """Raise if a stack calls other methods of its estimators than those that compute scores.

    Parameters
    ----------
    owner : StackingClassifier
        Fitted estimator.
    """
    are_known = all(name in SCORING_METHODS for name in owner.stack_method_)
    require(are_known, owner, f"it calls {str(owner.stack_method_)[:60]}")
