"""The protocol of conformity scores, and the registry of their names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from shortlist._utils.blocks import RANKED_ELEMENTS
from shortlist._utils.validation import check_choice
from shortlist.conformal.levels import Levels, NestedLevels
from shortlist.conformal.registry import register
from shortlist.ranking import Ranking

if TYPE_CHECKING:
    from shortlist._utils.out_of_core import Matrix


MAX_FLOAT = torch.finfo(torch.float64).max


class ConformityScore(BaseEstimator, ABC):
    """A rule that gives each label of a row a level.

    The prediction set at a threshold contains the labels whose level is at least the threshold.
    Levels do not increase along the ranking, so that sets are prefixes of the ranking, and sets at
    lower thresholds contain those at higher ones. Calibration and prediction call the same method
    `levels`.

    To write a score, subclass and implement `levels`. Everything else has a default. Parameters
    are stored unchanged in ``__init__``, as in every scikit-learn estimator; what `fit` learns
    goes into attributes that end in an underscore.

    Attributes
    ----------
    name : str
        Short name, for tables and for ``SplitConformal(name)`` after :func:`register_score`.
    rounding : float
        Bound on how much two computations of the same level may differ, relative to the level or
        to 1, whichever is larger. Other batch sizes, thread counts and devices round differently.
        The levels of calibration rows are lowered by this bound, so that the guarantee holds
        despite rounding. Zero if levels are computed without rounding errors.
    levels_are_cost_weights : bool
        Whether a level is a `cost_weight`, so that a threshold can be chosen as one.
    can_use_features : bool
        Whether `fit` or `levels` may use features.

    Examples
    --------
    >>> from shortlist.conformal import ConformityScore
    >>> class LogProba(ConformityScore):
    ...     name = "log-proba"
    ...     def levels(self, ranking, features=None):
    ...         return ranking.sorted_proba().clamp(min=1e-12).log()
    >>> LogProba().levels(Ranking.from_scores([[0.5, 0.25, 0.25]])).numpy().round(2)
    array([[-0.69, -1.39, -1.39]])
    """

    name: ClassVar[str] = ""
    rounding: float = 2.0**-16
    levels_are_cost_weights: ClassVar[bool] = False
    can_use_features: ClassVar[bool] = True

    def fit(self, ranking: Ranking, y: Tensor, features: Matrix | None = None) -> Self:
        """Learn from rows that are not used for calibration. Does nothing by default.

        Parameters
        ----------
        ranking : Ranking
            Rows to learn from.
        y : Tensor of shape (n_rows,)
            Label indices.
        features : matrix of shape (n_rows, n_features), optional
            Features of the rows.

        Returns
        -------
        self
            The fitted score.
        """
        return self

    def describe(self) -> dict[str, str]:
        """Return what `fit` learned, by topic.

        Returns
        -------
        dict of str to str
            By default the score with its parameters.
        """
        return {"score": repr(self)}

    def needs_fit(self) -> bool:
        """Return whether `fit` learns anything. If not, all rows can be used for calibration.

        Returns
        -------
        bool
            By default, whether the class overrides `fit`.
        """
        return type(self).fit is not ConformityScore.fit

    @abstractmethod
    def levels(self, ranking: Ranking, features: Tensor | None = None) -> Tensor:
        """Return the level of each label, in the order of the ranking.

        A row's levels must depend on that row alone.

        Parameters
        ----------
        ranking : Ranking
            Rows to score. ``ranking.sorted_proba()`` are their probabilities.
        features : Tensor of shape (n_rows, n_features), optional
            Features of the rows.

        Returns
        -------
        Tensor of shape (n_rows, depth)
            Levels, non-increasing along each row.
        """

    def rerank(self, ranking: Ranking, features: Tensor | None = None) -> Ranking:
        """Return the ranking whose prefixes are the sets.

        Parameters
        ----------
        ranking : Ranking
            Rows to score.
        features : Tensor of shape (n_rows, n_features), optional
            Features of the rows.

        Returns
        -------
        Ranking
            By default the given ranking.
        """
        return ranking

    def nested_levels(self, ranking: Ranking, features: Tensor | None = None) -> NestedLevels:
        """Return the levels as an object that computes sets.

        Override it for speed only: the levels must be those of `levels`.

        Parameters
        ----------
        ranking : Ranking
            Rows to score, after `rerank`.
        features : Tensor of shape (n_rows, n_features), optional
            Features of the rows.

        Returns
        -------
        NestedLevels
            Levels of the rows.
        """
        values = self.levels(ranking, features)
        if values.shape != (len(ranking), ranking.depth):
            raise ValueError(
                f"{type(self).__name__}.levels returned a tensor of shape {tuple(values.shape)}; "
                f"expected {(len(ranking), ranking.depth)}, a level for each ranked label"
            )
        # The comparison is negated, so that NaN raises too.
        if not bool((values[:, 1:] <= values[:, :-1]).all()) or bool(values[:, 0].isnan().any()):
            raise ValueError(
                f"{type(self).__name__}.levels returned levels that increase along a row, or NaN; "
                "levels must not increase in the order of the ranking. Override rerank to change "
                "that order"
            )
        return Levels(values, torch.arange(1, ranking.depth + 1, device=values.device))

    def lower(self, levels: Tensor, rounding: float) -> Tensor:
        """Return lower bounds of all computations of the same levels.

        Parameters
        ----------
        levels : Tensor
            Levels, or a value of an ONNX graph.
        rounding : float
            Bound on the relative difference of two computations.

        Returns
        -------
        Tensor
            Lower bounds, of the same shape.
        """
        # The clamp keeps infinite levels infinite, instead of NaN.
        return levels - rounding * levels.abs().clamp(min=1, max=MAX_FLOAT)

    def is_exhaustive(self, ranking: Ranking) -> bool:
        """Return whether the largest set of a row contains every class.

        Parameters
        ----------
        ranking : Ranking
            Rows to score.

        Returns
        -------
        bool
            By default, whether every class is ranked.
        """
        return ranking.is_complete

    @property
    def block_elements(self) -> int:
        """Number of scores in a block of rows whose levels are computed together on a CPU."""
        return RANKED_ELEMENTS

    def onnx_levels(self, rows: Any) -> Any:
        """Return the levels as a value of an ONNX graph.

        Implement it so that models with this score can be exported. The operations are usually
        the same as in `levels`: ``rows.sorted_proba`` takes the place of
        ``ranking.sorted_proba()``, and values are used like tensors.

        Parameters
        ----------
        rows : shortlist.onnx.ScoreRows
            Sorted probabilities and features of the rows, as values of the graph.

        Returns
        -------
        shortlist.onnx.Value of shape (n_rows, depth)
            The same levels as those of `levels`.

        Raises
        ------
        ValueError
            By default: a score has no graph unless it implements this method.
        """
        raise ValueError(
            f"the score {type(self).__name__} cannot be exported to ONNX: it does not implement "
            "onnx_levels(rows); see `shortlist.conformal.ConformityScore.onnx_levels`"
        )

    def onnx_nested_levels(self, rows: Any) -> tuple[Any, Any]:
        """Return levels of nested sets, and the sizes of the sets, in an ONNX graph.

        Override it, instead of `onnx_levels`, for sets that grow by more than one label.

        Parameters
        ----------
        rows : shortlist.onnx.ScoreRows
            Rows after `onnx_rerank`.

        Returns
        -------
        levels : shortlist.onnx.Value of shape (n_rows, n_members)
            Level of each set.
        sizes : array of shape (n_members,), or shortlist.onnx.Value of shape (n_rows, n_members)
            Its size, in all rows or in each.
        """
        return self.onnx_levels(rows), np.arange(1, rows.depth + 1)

    def onnx_rerank(self, rows: Any) -> Any:
        """Return `rerank` in an ONNX graph; implement it if the score overrides `rerank`.

        Parameters
        ----------
        rows : shortlist.onnx.ScoreRows
            The rows.

        Returns
        -------
        shortlist.onnx.ScoreRows
            The rows in the order of the sets.

        Raises
        ------
        ValueError
            If the score overrides `rerank` but not this method.
        """
        if type(self).rerank is not ConformityScore.rerank:
            raise ValueError(
                f"the score {type(self).__name__} cannot be exported to ONNX: it overrides rerank, "
                "but does not implement onnx_rerank(rows)"
            )
        return rows


Score = TypeVar("Score", bound=type[ConformityScore])

SCORES: dict[str, type[ConformityScore]] = {}
"""Registered scores by name."""


def register_score(score: Score) -> Score:
    """Register a conformity score under its `name`. Use it as a decorator of the class.

    A registered score can be used by name, as in ``SplitConformal("my-score")``, and models that
    use it can be saved. To load such a model, import the module that registers the score first.

    Parameters
    ----------
    score : type
        Subclass of `ConformityScore` with a `name` of its own.

    Returns
    -------
    type
        The same class.

    Examples
    --------
    >>> from shortlist.conformal import LAC, register_score
    >>> register_score(LAC) is LAC
    True
    """
    register(score, SCORES)
    return score


def score_class(name: object) -> type[ConformityScore]:
    """Return the registered score of a name; raise if there is none."""
    if isinstance(name, ConformityScore):
        raise ValueError(
            f"score must be a name; got {name!r}. To use a score object, write "
            f"ConformalPredictor({name!r})"
        )
    return SCORES[check_choice(name, "score", list(SCORES))]
