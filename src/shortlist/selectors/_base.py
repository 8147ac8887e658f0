"""What everything that predicts sets has in common: `fit`, `predict_set`, `frontier`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import Tensor

from shortlist._arrays import ArrayLike
from shortlist._frames import are_numbered, check_classes, classes_of_columns, column_order
from shortlist._labels import Classes, label_array
from shortlist._warnings import warn
from shortlist.families import Family
from shortlist.frontier import Frontier
from shortlist.ranking import Ranking, as_ranking
from shortlist.scores import ScoreType, check_kind, score_type
from shortlist.selectors._seen import Seen
from shortlist.sets import PredictionSets

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray


class SetPredictor(BaseEstimator, ABC):
    """A method that turns scores (and features) into prediction sets.

    Attributes
    ----------
    classes_ : the user's classes, in the order of the score columns
    score_type_ : "logits", "proba" or "log_proba", as decided at fit
    """

    score_type: str
    classes_: NDArray[np.generic]
    score_type_: ScoreType
    _classes: Classes
    _seen: Seen | None = None
    """The rows that were learned from."""
    _score_columns: list[str] | None
    """The names of the score columns, if fit saw a frame."""

    @abstractmethod
    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> SetPredictor:
        """Learn from the scores (and features) of labelled rows."""

    @abstractmethod
    def predict_set(
        self, scores: ArrayLike | Ranking, features: ArrayLike | None = None
    ) -> PredictionSets:
        """The prediction set of each row."""

    @abstractmethod
    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """Accuracy and mean size at every operating point that the method has."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the fitted model to a folder; `shortlist.load` reads it. See `shortlist.save`."""
        from shortlist.saving import save

        return save(self, path, overwrite=overwrite)

    def export_onnx(
        self,
        path: str | os.PathLike[str],
        *,
        accuracy: float | None = None,
        delta: float | None = None,
        mean_size: float | None = None,
        cost_weight: float | None = None,
        by: str | None = None,
        candidates: int | None = None,
        dtype: str = "float32",
        overwrite: bool = False,
    ) -> Path:
        """Write the fitted model as one ONNX graph, from scores (and features) to sets.

        Needs `pip install 'shortlist[onnx]'`. Scores are not checked in the graph.

        Parameters
        ----------
        path : path
            The file to write. It appears whole or not at all.
        accuracy, delta, mean_size, cost_weight, by
            The operating point, as in `predict_set`. None of them: it is an input of the graph,
            `threshold`, or `member` of a `CardinalityPath`. It is the threshold, not the accuracy,
            since the rank of an accuracy among the calibration rows is counted in exact
            arithmetic, which a graph has not; `shortlist.export.threshold_for(model, accuracy=…)`
            translates, and the file brings a table of common accuracies along.
        candidates : int, optional
            For lists of candidates, the length of the longest. Known, and not needed, if the
            model was calibrated with, or a Shortlister fitted on, such lists.
        dtype : "float32" or "float64"
            Type of the inputs `scores` and `features`.
        overwrite : bool
            Whether a file of this name may be replaced.

        Returns
        -------
        Path

        Notes
        -----
        Inputs, each only where the model has a use for it:

        | name | type | shape | |
        |---|---|---|---|
        | candidates | int64 | (rows, candidates) | label indices of lists, padded with -1 |
        | scores | `dtype` | (rows, classes or candidates) | of the kind that fit saw |
        | features | `dtype` | (rows, columns) | in the order that fit saw |
        | groups | int64 | (rows,) | by="group": place in `groups` of the metadata; -1: none |
        | noise | float64 | (rows,) | of randomized scores: uniform in (0, 1] |
        | threshold | float64 | () | without an operating point; of `cost_weight`, lambda itself |
        | member | int64 | () | of a path: place in `cost_weights` of the metadata |

        Outputs are `labels`, int64 (rows, longest set), label indices, best first, padded with -1;
        `sizes`, int64 (rows,); and `index`, int64 (rows,): the member of the family that was
        chosen. Where every size is a member (`Shortlister`, `SplitConformal`), or sets are no
        member's (by="class"), it is `sizes - 1`. The metadata have `classes` (JSON), `promise`,
        `operating_point` (JSON), `score_type`, `model`, `format` and `shortlist_version`.

        Sets are those of `predict_set`, but for rounding: thresholds are lowered by a few
        millionths, so that labels whose level is the threshold itself stay in their sets, however
        another runtime rounds it. The promise holds.

        A batch is worked on at once: a Shortlister that re-scores takes memory for rows times
        neighbours (50,000 at most), so that batches of a thousand rows or so are best.

        `noise` may be any random numbers: the promise holds. `predict_set` makes them of the row
        itself.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np, onnxruntime, shortlist as sl
        >>> data = sl.datasets.gaussian(3000)
        >>> model = sl.SplitConformal("lac").fit(data.posterior, data.y)
        >>> with TemporaryDirectory() as folder:
        ...     path = model.export_onnx(f"{folder}/model.onnx", accuracy=0.9)
        ...     session = onnxruntime.InferenceSession(path)
        >>> labels, sizes, index = session.run(None, {"scores": np.float32(data.posterior[:1])})
        >>> sets = model.predict_set(data.posterior[:1], accuracy=0.9)
        >>> labels[0, : sizes[0]].tolist() == sets.labels()[0]
        True
        """
        from shortlist.export import export_onnx

        return export_onnx(
            self,
            path,
            accuracy=accuracy,
            delta=delta,
            mean_size=mean_size,
            cost_weight=cost_weight,
            by=by,
            candidates=candidates,
            dtype=dtype,
            overwrite=overwrite,
        )

    def report(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        path: str | os.PathLike[str] = "report.html",
        *,
        title: str | None = None,
        examples: Sequence[str] | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write what the fitted model does on these labelled rows as one page for a browser, which
        needs no network. The rows must be others than those of `fit` and `calibrate`.

        Parameters
        ----------
        title : str, optional
        examples : sequence of str, optional
            What to show of each row: a text, a file's name. Default: the row's number.
        overwrite : bool
            Whether a file that is there already may be replaced.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> import shortlist as sl
        >>> data = sl.datasets.gaussian(3000)
        >>> select, test = data.split(2000)
        >>> model = sl.SplitConformal("lac").fit(select.posterior, select.y)
        >>> with TemporaryDirectory() as folder:
        ...     model.report(test.posterior, test.y, path=f"{folder}/report.html").name
        'report.html'
        """
        from shortlist.report import report_model

        given = {"title": title, "examples": examples, "overwrite": overwrite}
        return report_model(self, scores, y, features, path, **given)  # type: ignore[arg-type]

    def plot_promise(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        accuracies: Sequence[float] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the accuracy that was kept on these labelled rows against the one promised, over
        many accuracies, and between which limits it falls 19 times in 20 if promises are kept
        exactly. The rows must be others than those of `fit` and `calibrate`.

        The limits count in that both these rows and the calibration rows are a draw (hits are
        beta-binomial; binomial where a promise holds with a probability). Above them, lists are
        longer than need be: at low accuracies as none is empty, or where scores tie.

        Parameters
        ----------
        accuracies : sequence of float, optional
            Default: from 0.5 to 0.999, denser near 1; those that cannot be promised are left out.
        ax : matplotlib axes, optional
        """
        from shortlist.report._plot import plot_promise

        return plot_promise(self, scores, y, features, accuracies=accuracies, ax=ax)

    def _open(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        classes: ArrayLike | None,
        *,
        unknown: str = "raise",
    ) -> tuple[Ranking, Tensor, ScoreType]:
        """Begin a fit: the ranking, the label indices, and what the scores are."""
        ranking = as_ranking(scores)
        if classes is not None:
            given = Classes(ranking.n_classes, classes)
            if ranking.columns is not None:
                check_classes(ranking.columns, given.array().tolist())
            ranking = self._named(ranking, given)
        elif ranking.classes.values is None:
            columns = ranking.columns
            named = None if columns is None else classes_of_columns(columns, label_array(y))
            ranking = ranking.with_classes(Classes.infer(y, ranking.n_classes, named))
        index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device, unknown=unknown)
        return ranking, index, score_type(ranking, self.score_type)

    def _close(self, ranking: Ranking, kind: ScoreType) -> None:
        """End a fit: called last, so that a fit that fails leaves no half-fitted model."""
        self._classes, self.score_type_ = ranking.classes, kind
        self.classes_ = ranking.classes.array()
        columns = ranking.columns
        named = columns is not None and not are_numbered(columns)
        self._score_columns = [str(name) for name in columns or []] if named else None

    def _ranking(self, scores: ArrayLike | Ranking) -> Ranking:
        """The ranking of rows to predict, checked against what fit saw."""
        if not hasattr(self, "_classes"):
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet; call fit(scores, y) first"
            )
        ranking = self._in_order_of_fit(as_ranking(scores))
        if ranking.n_classes != self._classes.n:
            raise ValueError(
                f"scores have {ranking.n_classes} classes, but fit saw {self._classes.n}; "
                "give a column for each, in the same order"
            )
        check_kind(ranking, getattr(self, "score_type_", "logits"))
        return self._named(ranking, self._classes)

    def _in_order_of_fit(self, ranking: Ranking) -> Ranking:
        """The ranking with its columns in the order of fit, if they have names."""
        if ranking.columns is None:
            return ranking
        known = getattr(self, "_score_columns", None)
        seen = self._classes.array().tolist() if known is None else known
        order = column_order(ranking.columns, seen, "scores", strict=known is not None)
        return ranking if order is None else ranking.with_columns(order)

    def _named(self, ranking: Ranking, classes: Classes) -> Ranking:
        """The ranking with its columns named, unless it names them otherwise itself."""
        if ranking.classes.values is not None and ranking.classes != classes:
            raise ValueError(
                f"the ranking names its columns {ranking.classes.array().tolist()}, but the "
                f"classes are {classes.array().tolist()}; give columns in one order"
            )
        return ranking.with_classes(classes)

    def _warn_if_seen(self, ranking: Ranking) -> None:
        """Warn if calibration rows are those of the fit."""
        seen = 0 if self._seen is None else self._seen.among(ranking)
        if seen:
            warn(
                f"{seen:,} of {len(ranking):,} calibration rows are among those that fit learned "
                "from, so that the accuracy promised may not be kept; calibrate with rows of "
                "their own"
            )

    def _labelled(
        self, scores: ArrayLike | Ranking, y: ArrayLike, *, unknown: str = "raise"
    ) -> tuple[Ranking, Tensor]:
        """The ranking and the label indices; -1 for labels of no known class, if these are to
        count as misses."""
        ranking = self._ranking(scores)
        index = ranking.classes.encode(y, rows=len(ranking), device=ranking.device, unknown=unknown)
        return ranking, index


def as_family(family: object, default: Family) -> Family:
    """The family to choose from."""
    if family is None:
        return default
    if not isinstance(family, Family):
        raise ValueError(f"family must be a Family, such as TopK([1, 2, 4]); got {family!r}")
    return family


def check_depth(family: Family, ranking: Ranking) -> None:
    """Raise if a dense ranking is too shallow for the family (short candidates are expected)."""
    if ranking.is_dense:
        family.check(ranking)


def outcomes(
    family: Family, ranking: Ranking, index: Tensor, choices: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Whether the set of each choice holds the label, and its size: each (rows, choices)."""
    check_depth(family, ranking)
    sizes, hits = family.sizes_of(ranking), family.hits_of(ranking, index)
    columns = [choice[:, None].to(torch.int64) for choice in choices]
    return (
        torch.cat([hits.gather(1, column) for column in columns], dim=1),
        torch.cat([sizes.gather(1, column) for column in columns], dim=1),
    )


def frontier_of_choices(
    family: Family,
    ranking: Ranking,
    index: Tensor,
    choices: Sequence[Tensor],
    parameter: Sequence[float],
    *,
    parameter_name: str,
    name: str,
) -> Frontier:
    """The curve of several choices among one family's members."""
    hits, sizes = outcomes(family, ranking, index, choices)
    return Frontier(
        (hits.sum(dim=0).to(torch.float64) / len(hits)).tolist(),
        (sizes.sum(dim=0).to(torch.float64) / len(sizes)).tolist(),
        parameter,
        parameter_name,
        name,
        rows=(hits.cpu().numpy(), sizes.cpu().numpy()),
    )
