"""Guarantees of accuracy for everything whose sets are nested: one score, one calibration.

A method gives each label of a row a *level*, never increasing along the row's ranking. The set at
a threshold q holds the labels whose level is at least q, so that sets at lower thresholds hold
those at higher ones, and the right label's level is a conformal score: its rank among the levels
of held-out rows makes an exact guarantee. Calibration and prediction ask the same function.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist._utils.arrays import (
    RANKED_ELEMENTS,
    Array,
    ArrayLike,
    as_features,
    check_choice,
    check_probability,
    check_weight,
    row_index,
    to_array_type,
)
from shortlist._utils.frames import column_names, match_columns
from shortlist._utils.lazy import Matrix, take_rows
from shortlist.conformal.calibration import (
    EVERY_LABEL,
    Calibration,
    Conditional,
    RowSchema,
    counted,
    group_codes,
)
from shortlist.conformal.levels import AnyLevels, Block, label_levels, mean_sizes
from shortlist.conformal.prediction import Point, sets_at_points
from shortlist.conformal.quantiles import (
    LISTING_ERROR,
    UnreachableError,
    accuracy_bound,
    miscoverage,
    p_values,
    round_down,
    threshold,
)
from shortlist.frontier import Frontier
from shortlist.learning.settings import seed_of
from shortlist.predictors.base import SetPredictor
from shortlist.predictors.training_rows import TrainingRows
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import ScoreType
from shortlist.sets import PredictionSets

UNLEARNED = 2.0**-16
"""How far apart, relatively, two computations of a probability may be: e^-30 is a float32, whose
logarithm has an error of 2^-19."""
BAND_VALUES = 1 << 25
"""Levels, and sizes for its bands, that a frontier keeps; with more rows it makes levels anew, and
has no bands."""


CHOOSING_VALUES = 1 << 21
"""Levels that choose a threshold by mean size: enough to measure sizes by, and more rows are left
to certify an accuracy."""


class NestedSelector(SetPredictor):
    """A method whose sets are nested, with all that follows from it.

    Subclasses give `_learn` and `_levels`.
    """

    accuracy: float
    calibration: float | None
    by: str | None
    allow_empty: bool
    on_unreachable: str
    random_state: object

    _calibration: Calibration | None
    _levels_follow: ClassVar[tuple[str, ...]] = ("allow_empty",)
    """Parameters that may be set after a fit, but not after a calibration."""

    @abstractmethod
    def _learn(
        self, ranking: Ranking, index: Tensor, kind: ScoreType, features: Tensor | None
    ) -> None:
        """Learn whatever there is to learn."""

    @abstractmethod
    def _levels(self, ranking: Ranking, features: Tensor | None) -> tuple[Ranking, AnyLevels]:
        """A ranking of the rows (this one, or a better one) and the levels of its labels."""

    @property
    def _tolerance(self) -> float:
        """By how much, relatively, two computations of the same level may differ."""
        return 0.0

    def _exhaustive(self, ranking: Ranking) -> bool:
        """Whether the largest set of a row contains every label."""
        return ranking.is_whole

    @property
    def _block_elements(self) -> int:
        """Of how many scores levels are made at a time, on a CPU: the fewer, the more is made."""
        return RANKED_ELEMENTS

    def _check(self) -> None:
        """Raise if a parameter cannot be right."""
        check_probability(self.accuracy, "accuracy")
        check_choice(self.on_unreachable, "on_unreachable", ("raise", "all"))
        if self.calibration is not None:
            check_probability(self.calibration, "calibration")
        if self.by is not None:
            check_choice(self.by, "by", ("class", "group"))

    def _learns(self) -> bool:
        """Whether a fit learns anything from its rows."""
        return True

    def _parts(self, rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which rows a fit learns from, and which it keeps to calibrate with."""
        return hold_out(rows, self.calibration, seed_of(self.random_state))

    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> NestedSelector:
        """Learn from scores (of rows that the classifier did not train on), labels and features.

        A share of the rows, `calibration`, is kept aside and makes the guarantee; with
        `calibration=None` all rows are learned from, and `calibrate` must follow. `classes` names
        the score columns; rows with another label are not learned from, and count as misses in
        the calibration.
        """
        self._check()
        # Where columns are named, other labels are of classes that the classifier does not know.
        unknown = "raise" if classes is None else "miss"
        ranking, index, kind = self._validate_fit(scores, y, classes, unknown=unknown)
        self._feature_names = column_names(features)
        x = self._features(features, ranking)
        codes = None if groups is None else group_codes(groups, len(ranking))
        if self.by == "group" and codes is None and self.calibration is not None:
            raise ValueError('by = "group" needs the group of each row: fit(..., groups=...)')
        learning, held_out = self._parts(len(ranking))
        known = (index >= 0).cpu().numpy()
        learning = learning if known.all() else learning[known[learning]]
        at = row_index(learning, len(ranking), ranking.device)
        learned = _part(ranking, learning)
        # Whoever looks at features takes those that are put off, too.
        self._learn(learned, index[at], kind, _rows_of(x, learning))  # type: ignore[arg-type]
        self._calibration = None
        if len(held_out):
            at = row_index(held_out, len(ranking), ranking.device)
            kept = None if codes is None else (codes[0][held_out], codes[1])
            held = _part(ranking, held_out)
            self._calibrate(held, index[at], _rows_of(x, held_out), kept, out_of=len(ranking))
        self._training_rows = TrainingRows(learned) if self._learns() else None
        self._finalize_fit(ranking, kind)
        return self

    def calibrate(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> NestedSelector:
        """Make guarantees by these rows, in place of those that fit kept.

        Neither the classifier nor `fit` may have seen them. `groups` gives each row's group, for
        `by="group"`.
        """
        self._check()
        ranking, index = self._labelled(scores, y, unknown="miss")
        x = self._features(features, ranking)
        codes = None if groups is None else group_codes(groups, len(ranking))
        self._warn_if_seen(ranking)
        self._calibrate(ranking, index, x, codes)
        return self

    def _calibrate(
        self,
        ranking: Ranking,
        index: Tensor,
        features: Matrix | None,
        groups: tuple[NDArray[np.int64], list[object]] | None,
        out_of: int | None = None,
    ) -> None:
        levels = self._least_levels(ranking, index, features)
        order, chose = self._calibration_order(len(ranking), ranking.depth)
        chosen = order[:chose]
        self._calibration = Calibration(
            levels=levels[order],
            labels=index.cpu().numpy()[order],
            groups=None if groups is None else groups[0][order],
            group_names=[] if groups is None else groups[1],
            out_of=out_of,
            shape=RowSchema.of(ranking),
            choosing=chose,
            exhaustive=self._exhaustive(ranking),
            **self._chosen_sizes(levels[chosen], ranking[chosen], _rows_of(features, chosen)),
        )

    def _least_levels(
        self, ranking: Ranking, index: Tensor, features: Matrix | None
    ) -> NDArray[np.float64]:
        """Levels of the labels of calibration rows, as low as rounding may ever make them.

        A prediction computes a level again, in another batch, type, thread or device, and no two
        of these round alike. Let every computation of a row's level be at least `s(row)`. The
        numbers here are at most `s` of the calibration rows, so a threshold made of them is at
        most one made of `s`, which a new row's `s`, and so its level, reaches with the accuracy
        asked for. A label that no set can contain (index -1) has the level minus infinity.
        """
        blocks = self._blocks(ranking, features)
        levels = label_levels(blocks, index.clamp(min=0), least=True)
        levels = torch.where(index < 0, -torch.inf, levels * (1 - self._tolerance))
        return levels.cpu().numpy()

    def _calibration_order(self, rows: int, depth: int) -> tuple[NDArray[np.intp], int]:
        """Calibration rows in random order, and how many, the first ones, choose by mean size."""
        rng = np.random.default_rng([seed_of(self.random_state), rows])
        return rng.permutation(rows), min((rows + 1) // 2, max(1000, CHOOSING_VALUES // depth))

    def _chosen_sizes(
        self, levels: NDArray[np.float64], ranking: Ranking, features: Matrix | None
    ) -> dict[str, Any]:
        """Thresholds, the mean sizes that they give, and what it depends on, by the rows that
        choose."""
        # Only they have a say in what there is to choose from. At infinity a set holds what it
        # cannot do without.
        candidates = np.unique([*levels[levels > -np.inf], np.inf])[::-1].copy()
        return {
            "candidates": candidates,
            "mean_sizes": mean_sizes(self._blocks(ranking, features), candidates),
            "made_for": {n: copy.deepcopy(getattr(self, n)) for n in self._levels_follow},
        }

    def _blocks(self, ranking: Ranking, features: Matrix | None) -> Iterator[Block]:
        """Rankings and levels of all rows, a block at a time."""
        for rows in ranking.blocks(self._block_elements):
            x = None if features is None else features[rows]
            part = ranking[rows]
            # One type for all, so that float64 rows are ranked as their float32 copies are.
            part = part.with_precision("float32") if part.precision == "float32" else part
            ranked, levels = self._levels(part, x)
            levels = levels.within(ranked.listed())
            yield rows, ranked, levels if self.allow_empty else levels.never_empty()

    def _calibrated(self) -> Calibration:
        if getattr(self, "_calibration", None) is None:
            raise ValueError(
                f"this {type(self).__name__} is not calibrated, and can guarantee no accuracy; fit "
                "it with calibration=0.25, or call calibrate(scores, y) with rows of their own"
            )
        assert self._calibration is not None
        for name, was in self._calibration.made_for.items():
            now = getattr(self, name)
            if not (now is was or np.array_equal(now, was)):
                raise ValueError(
                    f"{name} = {now!r}, but it was {was!r} at calibration; call "
                    "calibrate(scores, y) again"
                )
        return self._calibration

    def _operating_point(
        self,
        accuracy: float | None,
        delta: float | None,
        mean_size: float | None,
        by: str | None,
    ) -> tuple[float | Conditional, str]:
        """The threshold, or those of each class or group, and the guarantee in words."""
        if accuracy is not None and mean_size is not None:
            raise ValueError(
                f"accuracy = {accuracy!r} and mean_size = {mean_size!r}: only one can be chosen"
            )
        by = self.by if by is None and mean_size is None else by
        if mean_size is not None:
            if by is not None:
                raise ValueError(f"mean_size = {mean_size!r} is for all rows alike; leave by out")
            return self._for_mean_size(mean_size, 0.05 if delta is None else delta)
        wanted = check_probability(self.accuracy if accuracy is None else accuracy, "accuracy")
        kept = self._calibrated()
        words = f"accuracy >= {wanted} guaranteed"
        if delta is not None:
            words += f" with probability {float(miscoverage(check_probability(delta, 'delta')))}"
        if by is not None:
            check_choice(by, "by", ("class", "group"))
        otherwise = self.on_unreachable
        try:
            if by is not None:
                conditional = Conditional.of(kept, by, self._classes, wanted, delta, otherwise)
                return conditional, f"{words} {conditional.words}"
            q = threshold(
                np.sort(kept.levels),
                wanted,
                delta=delta,
                on_unreachable=otherwise,
                exhaustive=kept.exhaustive,
            )
        except UnreachableError as error:
            where = "" if kept.out_of is None else f" (fit kept {len(kept):,} of {kept.out_of:,})"
            raise UnreachableError(
                f'{error}{where}; or every label, with set_params(on_unreachable="all")'
            ) from None
        words = f"{words} by {counted(len(kept))}"
        tested = not kept.exhaustive or bool(np.isneginf(kept.levels).any())
        if tested and delta is None and otherwise == "raise":
            words += f"; that it can be reached is shown with confidence {1 - LISTING_ERROR:g}"
        return q, words if q > -np.inf else f"{words}; {EVERY_LABEL}"

    def _for_mean_size(self, mean_size: float, delta: float) -> tuple[float, str]:
        """The lowest threshold whose sets are short enough on the calibration rows that choose; the
        others, which had no part in it, say how accurate they are."""
        kept = self._calibrated()
        check_probability(delta, "delta")
        if check_weight(mean_size, "mean_size") > self._classes.n:
            raise ValueError(
                f"mean_size = {mean_size!r} is more than the {self._classes.n} classes"
            )
        short = np.flatnonzero(kept.mean_sizes <= mean_size)
        if not len(short):
            smallest = float(kept.mean_sizes[0])
            raise ValueError(
                f"mean_size = {mean_size!r} is less than the smallest mean size, {smallest:.4g}"
            )
        q = float(kept.candidates[short[-1]])
        certifying = kept.levels[kept.chose :]
        if not len(certifying):
            raise ValueError("one calibration row cannot both choose and certify; give more")
        hits = int((certifying >= q).sum())
        bound = round_down(accuracy_bound(hits, len(certifying), delta), digits=4)
        chose = counted(kept.chose or kept.chose_apart)
        others = f"{len(certifying):,} other{'' if len(certifying) == 1 else 's'}"
        return q, (
            f"mean size {mean_size:g} aimed at by {chose}; accuracy >= {bound} with confidence "
            f"{float(miscoverage(delta))}, certified by {others}"
        )

    def _predict(
        self,
        ranking: Ranking,
        features: Tensor | None,
        points: Sequence[Point],
        groups: ArrayLike | None,
        guaranteed: bool = True,
    ) -> list[PredictionSets]:
        """The sets at each of some operating points. Levels are made once for all of them."""
        if guaranteed:
            ranking = self._calibrated().shape.matched(ranking)
        return sets_at_points(ranking, self._blocks(ranking, features), points, groups)

    def predict_sets(
        self,
        scores: ArrayLike | Ranking,
        features: ArrayLike | None = None,
        *,
        accuracies: Sequence[float],
        delta: float | None = None,
        by: str | None = None,
        groups: ArrayLike | None = None,
    ) -> list[PredictionSets]:
        """`predict_set` at each of several accuracies, in much less time than one after the other.

        Each guarantee holds for itself, not all of them at once.
        """
        ranking, x = self._rows(scores, features)
        if np.ndim(accuracies) != 1:
            raise ValueError(f"accuracies must be a list of numbers; got {accuracies!r}")
        points = [self._operating_point(a, delta, None, by) for a in accuracies]
        return self._predict(ranking, x, points, groups) if points else []

    def p_values(self, scores: ArrayLike | Ranking, features: ArrayLike | None = None) -> Array:
        """The conformal p-value of every label: (rows, classes).

        A label is in the set guaranteed at accuracy 1 - alpha if and only if its p-value is above
        alpha, as a decimal number (`1 - 0.9` is a little less than 0.1 in floating point). The
        first label of a row always is, unless `allow_empty=True`. That is the guarantee over all
        rows, whatever `by` is. Where some labels can be in no set (lists of candidates), sets may
        contain more labels than that, unless `on_unreachable="all"`: see
        `shortlist.conformal.listed_rank`.
        """
        ranking, x = self._rows(scores, features)
        ranking = self._calibrated().shape.matched(ranking)
        kept = np.sort(self._calibrated().levels)
        outside = float(p_values(kept, np.array([-np.inf]))[0])
        shape = (len(ranking), ranking.n_classes)
        found = torch.full(shape, outside, dtype=torch.float64, device=ranking.device)
        for rows, ranked, levels in self._blocks(ranking, x):
            labels, _ = ranked.top(ranked.depth)
            asked = levels.by_rank(ranked.depth).to(torch.float64).cpu().numpy()
            values = torch.from_numpy(p_values(kept, asked)).to(ranking.device)
            listed = labels >= 0
            at = torch.arange(len(labels), device=labels.device)[:, None].expand_as(labels)
            found[rows][at[listed], labels[listed].to(torch.int64)] = values[listed]
        return to_array_type(found, ranking.kind)

    def _rows(
        self, scores: ArrayLike | Ranking, features: ArrayLike | None
    ) -> tuple[Ranking, Tensor | None]:
        """Rows to predict, checked."""
        ranking = self._ranking(scores)
        return ranking, self._features(features, ranking)

    def _features(self, features: ArrayLike | None, ranking: Ranking) -> Tensor | None:
        """Features of the rows, checked; a frame's columns are those of fit, in that order."""
        if features is None:
            return None
        matched = match_columns(features, getattr(self, "_feature_names", None), "features")
        return as_features(matched, rows=len(ranking))

    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """Accuracy and mean size at every threshold that matters, on these rows."""
        ranking, index = self._labelled(scores, y)
        x = self._features(features, ranking)
        blocks: Iterable[Block] = self._blocks(ranking, x)
        if len(ranking) * ranking.depth <= BAND_VALUES:
            blocks = list(blocks)  # made once
        own = label_levels(blocks, index)
        rising = np.sort(own.cpu().numpy())
        thresholds = _worth_trying(rising)
        hits = len(rising) - np.searchsorted(rising, thresholds, side="left")
        blocks = blocks if isinstance(blocks, list) else self._blocks(ranking, x)
        points = hits / len(rising), mean_sizes(blocks, thresholds), thresholds
        rows = None
        if len(rising) * len(thresholds) <= BAND_VALUES:  # what a band is resampled from
            asked = torch.from_numpy(thresholds).to(ranking.device)
            blocks = blocks if isinstance(blocks, list) else self._blocks(ranking, x)
            sizes = [levels.sizes_at_each(asked) for _, _, levels in blocks]
            rows = (own[:, None] >= asked).cpu().numpy(), torch.cat(sizes).cpu().numpy()
        return Frontier(*points, self._parameter, self._name(), rows=rows)

    _parameter = "threshold"

    def _name(self) -> str:
        return type(self).__name__


def hold_out(
    rows: int, share: float | None, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to learn from, and a random share of them to calibrate with (none if None).

    >>> [part.tolist() for part in hold_out(5, 0.4, seed=0)]
    [[0, 1, 3], [2, 4]]
    """
    if share is None:
        return np.arange(rows), np.arange(0)
    order = np.random.default_rng(seed).permutation(rows)
    held_out = min(max(1, round(share * rows)), rows - 1)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def _part(ranking: Ranking, rows: NDArray[np.intp]) -> Ranking:
    """Some of the rows, in order; not a copy if they are all."""
    return ranking if len(rows) == len(ranking) else ranking[rows]


def _rows_of(features: Matrix | None, rows: NDArray[np.intp]) -> Matrix | None:
    if features is None or (len(rows) == len(features) and (np.diff(rows) == 1).all()):
        return features
    return take_rows(features, torch.from_numpy(rows).to(features.device))


def _worth_trying(rising: NDArray[np.float64]) -> NDArray[np.float64]:
    """Thresholds for a curve, decreasing: labels' levels, at most a few hundred, densest where
    few labels are missed."""
    finite = rising[rising > -np.inf]
    if not len(finite):
        return np.array([np.inf])
    missed = np.concatenate([np.linspace(0, 1, 200), np.geomspace(1 / len(finite), 1, 300)])
    picked = np.unique((missed * (len(finite) - 1)).round().astype(np.int64))
    return np.unique(finite[picked])[::-1].copy()
