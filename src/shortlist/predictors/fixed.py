"""The selector that learns nothing: the same member of a family for every row."""

from __future__ import annotations

from typing import Any, Self

import torch

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.validation import check_count
from shortlist.families import Family, TopK
from shortlist.frontier import Frontier
from shortlist.guarantee import Guarantee
from shortlist.predictors.base import SetPredictor
from shortlist.predictors.family_choices import as_family, frontier_of_choices
from shortlist.ranking import Ranking
from shortlist.sets import PredictionSets


class FixedSelector(SetPredictor):
    """The same member of a family for every row, such as top-k for one k, or one threshold.

    Parameters
    ----------
    family : Family, optional
        Family of sets. Top-k of every size by default.
    index : int, default=0
        Index of the member.
    score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
        Type of the scores. "auto" decides at fit; see `score_type_`.

    Attributes
    ----------
    family_ : Family
        The family in use.
    classes_ : array
        Classes, in the order of the score columns.
    score_type_ : str
        Type of the scores.

    Examples
    --------
    >>> scores = [[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]]
    >>> model = FixedSelector(TopK([1, 2]), index=1).fit(scores, [1, 2])
    >>> model.predict_set(scores).labels()
    [[1, 2], [0, 2]]
    >>> model.frontier(scores, [1, 2]).accuracy.tolist()
    [0.5, 1.0]
    """

    family_: Family
    trains_networks = False

    def __init__(
        self, family: Family | None = None, index: int = 0, *, score_type: str = "auto"
    ) -> None:
        self.family = family
        self.index = index
        self.score_type = score_type

    def fit(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> Self:
        """Check the family against the scores; see `SetPredictor.fit`. Nothing is learned."""
        ranking, index, score_type = self._validate_fit(scores, y, classes)
        family = as_family(self.family, TopK.dense(ranking.depth))
        family.check(ranking)
        family = family.fit(ranking, index, score_type)
        self._check_index(family)
        self.family_ = family
        self._finalize_fit(ranking, score_type)
        return self

    @property
    def can_use_features(self) -> bool:
        """Whether a fit can learn from features: it learns nothing."""
        return False

    @property
    def sets_are_prefixes(self) -> bool:
        """Whether every set is a prefix of the row's ranking."""
        return self.family_.nested

    def _check_index(self, family: Family) -> int:
        """Return the index of the member; raise if the family has no such member."""
        if check_count(self.index, "index", minimum=0) >= len(family):
            raise ValueError(
                f"index = {self.index}, but {family} has {len(family)} members, counted from 0"
            )
        return self.index

    def predict_set(
        self, scores: ArrayLike | Ranking, features: ArrayLike | None = None
    ) -> PredictionSets:
        """Return the member's set in each row; see `SetPredictor.predict_set`."""
        ranking = self._validate_scores(scores)
        member = self._check_index(self.family_)
        choice = torch.full((len(ranking),), member, device=ranking.device)
        return self.family_.select(ranking, choice, guarantee=self._guarantee())

    def onnx_sets(self, graph: Any, point: Any) -> Any:
        """Return the sets as outputs of an ONNX graph; see `SetPredictor.onnx_sets`."""
        point.check(self)
        member = self._check_index(self.family_)
        metadata = {"operating_point": {"member": member}}
        return graph.member_sets(
            self.family_, member, self.score_type_, self._guarantee(), metadata
        )

    def _guarantee(self) -> Guarantee:
        """Return the statement that no accuracy is guaranteed."""
        point = f"member {self._check_index(self.family_)} of {self.family_}"
        return Guarantee("none", operating_point=point)

    def frontier(
        self, scores: ArrayLike | Ranking, y: ArrayLike, features: ArrayLike | None = None
    ) -> Frontier:
        """Return accuracy and mean size of every member; see `SetPredictor.frontier`."""
        ranking, index = self._validate_labeled(scores, y)
        members = range(len(self.family_))
        choices = [torch.full((len(ranking),), k, device=ranking.device) for k in members]
        return frontier_of_choices(
            self.family_, ranking, index, choices, members, parameter_name="index", name="fixed"
        )
