"""Save the scikit-learn classifiers of the Shortlister's first stage, and load trusted ones."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from shortlist.io.archive import check_archive
from shortlist.io.estimators import dump_parts, load_parts
from shortlist.io.persistence import ModelFileError
from shortlist.predictors.shortlister.opinions import LearnerOpinion

_ARCHIVES: WeakKeyDictionary[LearnerOpinion, bytes] = WeakKeyDictionary()
"""Archives of opinions that were saved or loaded. Two archives of the same classifiers differ, but
a model that is saved again must have the same digest."""


def dump_learners(opinion: LearnerOpinion) -> dict[str, object]:
    """Return the fields of an opinion, with its classifiers as an archive.

    Parameters
    ----------
    opinion : LearnerOpinion
        Fitted classifiers.

    Returns
    -------
    dict of str to object

    Raises
    ------
    ValueError
        If a classifier has types that are not trusted when a model is loaded.
    """
    if opinion not in _ARCHIVES:
        try:
            data = dump_parts({"learners": opinion.estimators})
            _, refused = check_archive(data, frozenset())
        except ImportError:
            raise
        except Exception as error:  # The type of the error depends on the classifier.
            raise ValueError(_refusal(" ".join(str(error).split())[:200])) from error
        if refused:
            raise ValueError(_refusal(f"they have types that are not trusted: {refused[:5]}"))
        _ARCHIVES[opinion] = data
    archive = np.frombuffer(_ARCHIVES[opinion], dtype=np.uint8)
    return {"archive": archive, "n_classes": opinion.n_classes}


def _refusal(reason: str) -> str:
    return (
        "the fitted learners of this model cannot be saved in a model file; pickle the model, or "
        f"fit it without learners ({reason})"
    )


def load_learners(archive: NDArray[np.uint8], n_classes: int) -> LearnerOpinion:
    """Return the opinion that `dump_learners` wrote.

    Parameters
    ----------
    archive : array of uint8
        Classifiers, as an archive.
    n_classes : int
        Number of classes.

    Returns
    -------
    LearnerOpinion

    Raises
    ------
    ModelFileError
        If the archive is damaged, has types that are not trusted, or has attributes that `fit`
        cannot set.
    """
    data = archive.tobytes()
    parts = load_parts(data, frozenset(), lambda parts: _check_parts(parts, n_classes))
    opinion = LearnerOpinion(parts["learners"], n_classes)
    _ARCHIVES[opinion] = data
    return opinion


def _check_parts(parts: Any, n_classes: int) -> None:
    """Raise unless an archive contains fitted classifiers of class indices."""
    learners = parts.get("learners") if isinstance(parts, dict) and len(parts) == 1 else None
    if not isinstance(learners, list) or not learners:
        raise ModelFileError("it does not contain a list of classifiers")
    for learner in learners:
        name = type(learner).__name__
        if not callable(getattr(learner, "predict_proba", None)):
            raise ModelFileError(f"a learner is a {name}, which computes no probabilities")
        classes = getattr(learner, "classes_", None)
        if not isinstance(classes, np.ndarray) or classes.ndim != 1 or not len(classes):
            raise ModelFileError(f"the {name} has no classes")
        is_valid = classes.dtype.kind == "i" and 0 <= classes.min() <= classes.max() < n_classes
        if not is_valid or (np.diff(classes) <= 0).any():
            raise ModelFileError(f"the {name} has other classes than indices below {n_classes}")
