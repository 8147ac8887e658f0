"""Rows to show, and their lists at every point of the slider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import row_index
from shortlist.comparison import Fitted, Rows
from shortlist.html_report.operating_points import Points, sets_guaranteed
from shortlist.predictors import PlugInSelector, SetPredictor
from shortlist.predictors.nested import NestedSelector
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets

SHOWN = 12
"""So many rows are shown, …"""
LISTED = 30
"""… and at most so many labels of each."""


def example_rows(
    hits: NDArray[np.bool_], sizes: NDArray[np.integer], first: NDArray[np.bool_]
) -> list[int]:
    """Rows of different kinds, a few of each: one label that is right; several, of which not the
    first is right; the longest lists; and lists without the right label.

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
            picked = np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int)
            chosen += rows[picked].tolist()
    longest = np.argsort(-sizes, kind="stable").tolist()
    chosen += [row for row in longest if row not in set(chosen)][: SHOWN - len(chosen)]
    return chosen if len(chosen) < SHOWN else sorted(chosen[:SHOWN], key=lambda r: sizes[r])


def example_names(
    given: Sequence[str] | None, rows: Sequence[int], n_rows: int, numbers: NDArray[np.intp] | None
) -> list[str]:
    """What to call the rows shown: what the user gave, or their numbers."""
    where = numbers if numbers is not None else np.arange(n_rows)
    if given is None:
        return [f"row {where[row]:,}" for row in rows]
    if isinstance(given, str):
        raise ValueError(f"examples must be a text for each row; got one string, {given[:40]!r}")
    if len(given) == n_rows:
        return [str(given[row]) for row in rows]
    if numbers is not None and len(given) > int(numbers.max()):
        return [str(given[int(numbers[row])]) for row in rows]
    raise ValueError(
        f"examples has {len(given):,} entries, but there are {n_rows:,} test rows; give one for "
        "each" + ("" if numbers is None else ", or one for each row that compare was given")
    )


@dataclass(frozen=True)
class Lists:
    """The lists of the rows shown, as label indices.

    If they are prefixes, `order` has each row's labels, of which a point of the slider takes the
    first few; otherwise `lists` has them for each accuracy and row. Neither, if they are unknown.
    """

    order: list[list[int]] | None = None
    lists: list[list[list[int]] | None] | None = None


def lists_of(
    fitted: Fitted, shown: Sequence[int], points: Points, accuracies: Sequence[float]
) -> Lists:
    """What the lists of the rows shown hold."""
    ranking, x = _take(fitted.judged, shown)
    model = fitted.model(accuracies[-1])
    if is_prefix(model):
        return Lists(order=_order(model, ranking, x))
    found: list[list[list[int]] | None] = []
    for accuracy, made in zip(accuracies, points.guaranteed, strict=True):
        sets = sets_guaranteed(fitted.model(accuracy), ranking, x, accuracy) if made else None
        found.append(None if sets is None else _indices(sets))
    return Lists(lists=found)


def is_prefix(model: SetPredictor) -> bool:
    """Whether every set of a model is the beginning of one ranking."""
    if isinstance(model, NestedSelector) and not isinstance(model, PlugInSelector):
        return model.by != "class"
    family = getattr(model, "family_", None)
    return family is not None and family.nested and getattr(model, "by", None) != "class"


def sets_of_sizes(model: SetPredictor, rows: Rows, sizes: Tensor) -> PredictionSets | None:
    """The sets of these sizes, where they are prefixes."""
    if not is_prefix(model):
        return None
    flat, lengths = [], []
    for block, ranked in _ranked(model, rows[0], rows[2]):
        lengths.append(torch.minimum(sizes[block], ranked.listed().to(torch.int64)))
        flat.append(ranked.prefix(lengths[-1]))
    return PredictionSets(torch.cat(flat), torch.cat(lengths), rows[0].classes)


def _ranked(model: SetPredictor, ranking: Ranking, x: Tensor | None) -> list[tuple[slice, Ranking]]:
    """The rankings that a model's sets are prefixes of."""
    ranking = model._ranking(ranking)
    if isinstance(model, NestedSelector):
        return [(rows, ranked) for rows, ranked, _ in model._blocks(ranking, x)]
    return [(slice(0, len(ranking)), ranking)]


def _order(model: SetPredictor, ranking: Ranking, x: Tensor | None) -> list[list[int]]:
    found: list[list[int]] = []
    for _, ranked in _ranked(model, ranking, x):
        labels, _ = ranked.top(min(LISTED, ranked.depth))
        found += [[k for k in row if k >= 0] for row in labels.tolist()]
    return found


def _take(rows: Rows, which: Sequence[int]) -> tuple[Ranking, Tensor | None]:
    ranking, _, x = rows
    at = np.asarray(which, dtype=np.intp)
    return ranking[at], None if x is None else x[row_index(at, len(x), x.device)]


def _indices(sets: PredictionSets) -> list[list[int]]:
    """Each row's labels, as indices, as many as are shown."""
    flat, ends = sets._flat.tolist(), sets._ends.tolist()
    return [flat[a : min(b, a + LISTED)] for a, b in zip([0, *ends], ends, strict=False)]
