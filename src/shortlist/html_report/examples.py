"""Example rows, and their sets at every point of the slider."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.comparison import FittedMethod, LabeledRows
from shortlist.html_report.operating_points import OperatingPoints
from shortlist.predictors import SetPredictor
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

EXAMPLES = 12
"""Maximum number of example rows."""
EXAMPLE_LABELS = 30
"""Maximum number of labels of a set that are shown."""


def example_rows(
    hits: NDArray[np.bool_], sizes: NDArray[np.integer], first: NDArray[np.bool_]
) -> list[int]:
    """Choose rows of every kind.

    The kinds are: sets of one label that is the true label; larger sets that contain the true label
    but not as their first label; sets that miss the true label; and the largest sets.

    Parameters
    ----------
    hits : array of shape (n_rows,)
        Whether each set contains the true label.
    sizes : array of shape (n_rows,)
        Sizes of the sets.
    first : array of shape (n_rows,)
        Whether the first label of each ranking is the true label.

    Returns
    -------
    list of int
        Row numbers.

    Examples
    --------
    >>> hits, first = np.array([True, True, False, True]), np.array([True, False, False, True])
    >>> example_rows(hits, np.array([1, 3, 1, 2]), first)
    [0, 1, 2, 3]
    """
    kinds = [
        (hits & (sizes == 1), 3),
        (hits & ~first & (sizes > 1), 5),
        (~hits, 2),
    ]
    chosen: list[int] = []
    for kind, most in kinds:
        rows = np.flatnonzero(kind)
        if len(rows):
            at = np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int)
            chosen += rows[at].tolist()
    largest = np.argsort(-sizes, kind="stable").tolist()
    chosen += [row for row in largest if row not in set(chosen)][: EXAMPLES - len(chosen)]
    return chosen if len(chosen) < EXAMPLES else sorted(chosen[:EXAMPLES], key=lambda r: sizes[r])


def example_names(
    given: Sequence[str] | None, rows: Sequence[int], n_rows: int, numbers: NDArray[np.intp] | None
) -> list[str]:
    """Return the names of some rows: the names that the user gave, or their numbers."""
    where = numbers if numbers is not None else np.arange(n_rows)
    if given is None:
        return [f"row {where[row]:,}" for row in rows]
    if isinstance(given, str):
        raise ValueError(f"examples must be a sequence of texts; got one string, {given[:40]!r}")
    if len(given) == n_rows:
        return [str(given[row]) for row in rows]
    if numbers is not None and len(given) > int(numbers.max()):
        return [str(given[int(numbers[row])]) for row in rows]
    raise ValueError(
        f"examples has {len(given):,} entries, but there are {n_rows:,} test rows; give one for "
        "each" + ("" if numbers is None else ", or one for each row that was passed to compare")
    )


@dataclass(frozen=True)
class ExampleSets:
    """The sets of the example rows, as label indices.

    Attributes
    ----------
    order : list of list of int or None
        Ranked labels of each row, best first, if sets are prefixes of the ranking.
    sets : list or None
        Otherwise, the sets at each accuracy; None at accuracies whose sets are not known.
    """

    order: list[list[int]] | None = None
    sets: list[list[list[int]] | None] | None = None


def example_sets(
    fitted: FittedMethod, rows: Sequence[int], points: OperatingPoints, accuracies: Sequence[float]
) -> ExampleSets:
    """Return the sets of the example rows at every accuracy."""
    part = fitted.test.take(np.asarray(rows, dtype=np.intp))
    model = fitted.model(accuracies[-1])
    if model.sets_are_prefixes:
        return ExampleSets(order=_label_order(model, part))
    sets: list[list[list[int]] | None] = []
    with warnings.catch_warnings():  # Warnings would be repeated for each accuracy.
        warnings.simplefilter("ignore", UserWarning)
        for accuracy, guaranteed in zip(accuracies, points.guaranteed, strict=True):
            model = fitted.model(accuracy)
            own = None
            if guaranteed:
                own = model.predict_if_reachable(part.ranking, part.features, accuracy=accuracy)
            sets.append(None if own is None else _label_indices(own))
    return ExampleSets(sets=sets)


def sets_of_sizes(model: SetPredictor, rows: LabeledRows, sizes: Tensor) -> PredictionSets | None:
    """Return the sets of the given sizes; None if sets are not prefixes of a ranking."""
    if not model.sets_are_prefixes:
        return None
    flat, lengths = [], []
    for block, ranked in _prefix_rankings(model, rows):
        lengths.append(torch.minimum(sizes[block], ranked.lengths().to(torch.int64)))
        flat.append(ranked.prefix(lengths[-1]))
    return PredictionSets(torch.cat(flat), torch.cat(lengths), rows.ranking.classes)


def _prefix_rankings(model: SetPredictor, rows: LabeledRows) -> Iterator[tuple[slice, Ranking]]:
    return model._prefix_rankings(model._validate_scores(rows.ranking), rows.features)


def _label_order(model: SetPredictor, rows: LabeledRows) -> list[list[int]]:
    """Return the ranked labels of each row, up to the number that is shown."""
    order: list[list[int]] = []
    for _, ranked in _prefix_rankings(model, rows):
        labels, _ = ranked.top(min(EXAMPLE_LABELS, ranked.depth))
        order += [[k for k in row if k >= 0] for row in labels.tolist()]
    return order


def _label_indices(sets: PredictionSets) -> list[list[int]]:
    """Return the labels of each set as indices, up to the number that is shown."""
    flat, ends = sets._flat.tolist(), sets._ends.tolist()
    return [flat[a : min(b, a + EXAMPLE_LABELS)] for a, b in zip([0, *ends], ends, strict=False)]
