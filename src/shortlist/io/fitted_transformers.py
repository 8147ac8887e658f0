"""Checks of fitted transformers and of small classifiers that decide how large a table becomes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import clone

from shortlist.io.compiled_arrays import equals, is_whole, require

MOST_COLUMNS = 1 << 22
"""Columns that polynomial features may have."""
MOST_DEGREES = 64
LONGEST_NGRAM = 64
TOKEN_PATTERNS = (r"(?u)\b\w\w+\b", r"(?u)\b\w+\b", r"\b\w+\b", r"\w+", r"\w{1,}", r"\S+")
"""Regular expressions of a text vectorizer that match in linear time."""
SCORING_METHODS = ("predict_proba", "decision_function", "predict")


def check_one_hot(owner: Any) -> None:
    """Raise if a code of a category lies outside the sparse matrix that the encoder makes."""
    categories, n = owner.categories_, owner.n_features_in_
    require(isinstance(categories, list) and len(categories) == n, owner, "categories are missing")
    grouped = getattr(owner, "_infrequent_enabled", None)
    require(isinstance(grouped, bool), owner, "it groups categories or it does not")
    mappings = owner._default_to_infrequent_mappings if grouped else [None] * n
    rare = owner._infrequent_indices if grouped else [None] * n
    dropped = owner._drop_idx_after_grouping
    dropped = [None] * n if dropped is None else list(dropped)
    widths = owner._n_features_outs
    for listed in (mappings, rare, dropped, widths):
        require(isinstance(listed, list) and len(listed) == n, owner, "columns are missing")
    for column in range(n):
        names, codes = categories[column], mappings[column]
        plain = isinstance(names, np.ndarray) and names.ndim == 1 and len(names) > 0
        require(plain and _is_sorted(names), owner, "categories are not in order")
        width = len(names)
        require((codes is None) == (rare[column] is None), owner, "rare categories are missing")
        if codes is not None:
            width = _check_groups(owner, names, codes, rare[column])
        drop = dropped[column]
        require(drop is None or is_whole(drop, 0, width - 1), owner, "it drops no category")
        width -= drop is not None
        require(is_whole(widths[column], width, width), owner, "its columns have another width")


def _check_groups(owner: object, names: Any, codes: Any, rare: Any) -> int:
    """Raise unless rare categories are mapped to existing columns; return how many there are."""
    for listed, most in ((codes, len(names)), (rare, len(names))):
        plain = isinstance(listed, np.ndarray) and listed.ndim == 1 and listed.dtype.kind == "i"
        inside = plain and len(listed) > 0 and ((listed >= 0) & (listed < most)).all()
        require(inside, owner, "a rare category has no column")
    require(len(codes) == len(names), owner, "a category has no column")
    return int(codes.max()) + 1


def _is_sorted(names: Any) -> bool:
    """Whether categories are in order, as a binary search needs them; texts are looked up."""
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
    """Raise if polynomial features make another number of columns than their degree says."""
    degree = owner.degree if isinstance(owner.degree, tuple | list) else (owner.degree,)
    small = 1 <= len(degree) <= 2 and all(is_whole(one, 0, MOST_DEGREES) for one in degree)
    require(small, owner, f"its degree is {str(owner.degree)[:40]}")
    require(is_whole(owner.n_features_in_, 1, 1 << 16), owner, "it has too many features")
    fresh = clone(owner).fit(np.zeros((1, int(owner.n_features_in_))))
    for name in ("n_output_features_", "_n_out_full", "_min_degree", "_max_degree"):
        require(equals(owner, name, getattr(fresh, name)), owner, f"{name} does not fit its degree")
    require(is_whole(fresh._n_out_full, 1, MOST_COLUMNS), owner, "it makes too many columns")


def check_function(owner: Any) -> None:
    """Raise if a function is called with arguments of the file's choice."""
    for arguments in (owner.kw_args, owner.inv_kw_args):
        require(not arguments, owner, "its function has arguments; name it in trusted=[...]")
    for function in (owner.func, owner.inverse_func):
        plain = not isinstance(function, np.ufunc) or function.nin == function.nout == 1
        require(plain, owner, "its function takes several arrays")


def check_vectorizer(owner: Any) -> None:
    """Raise if a word of a text vectorizer has no column, or if it could run for ever."""
    words = owner.vocabulary_
    require(isinstance(words, dict) and words, owner, "it has no vocabulary")
    texts = all(isinstance(word, str) for word in words)
    columns = list(words.values())
    numbered = all(is_whole(one, 0, len(words) - 1) for one in columns)
    require(texts and numbered and len(set(columns)) == len(words), owner, "a word has no column")
    require(owner.input == "content", owner, "it reads files")
    require(owner.analyzer in ("word", "char", "char_wb"), owner, "its analyzer is another")
    known = owner.token_pattern is None or owner.token_pattern in TOKEN_PATTERNS
    require(known, owner, "its token pattern may take for ever; name it in trusted=[...]")
    lengths = owner.ngram_range
    require(isinstance(lengths, tuple | list) and len(lengths) == 2
            and all(is_whole(one, 1, LONGEST_NGRAM) for one in lengths), owner,
            f"its n-grams are of {str(lengths)[:40]} words")  # fmt: skip
    weights = getattr(owner, "_tfidf", None)
    if weights is not None and weights.use_idf:
        require(np.shape(weights.idf_) == (len(words),), owner, "a word has no weight")


def check_dummy(owner: Any) -> None:
    """Raise if a constant classifier makes more columns than it has classes."""
    n = len(owner.classes_)
    require(equals(owner, "n_classes_", n), owner, "it has other classes")
    require(equals(owner, "n_outputs_", 1), owner, "it has several outputs")
    prior = owner.class_prior_
    same = isinstance(prior, np.ndarray) and prior.shape == (n,)
    require(same, owner, "it has other classes")


def check_stacking(owner: Any) -> None:
    """Raise if a stack calls other methods of its estimators than those that score rows."""
    known = all(name in SCORING_METHODS for name in owner.stack_method_)
    require(known, owner, f"it calls {str(owner.stack_method_)[:60]}")
