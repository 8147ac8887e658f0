"""Labeled rows without honest scores, from which some methods learn, too."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from shortlist._utils.arrays import ArrayLike, as_matrix
from shortlist._utils.frames import match_columns
from shortlist.ranking import Ranking


class ExtraRows(NamedTuple):
    """Features and labels of rows without honest scores, as `fit` takes them.

    Parameters
    ----------
    extra_features : array-like of shape (n_extra, n_features)
        Features.
    extra_y : array-like of shape (n_extra,)
        Labels.
    """

    extra_features: ArrayLike
    extra_y: ArrayLike

    @classmethod
    def validate(
        cls,
        features: ArrayLike | None,
        extra_features: ArrayLike | None,
        extra_y: ArrayLike | None,
    ) -> ExtraRows | None:
        """Return extra rows; None if none are given.

        Parameters
        ----------
        features : array-like or None
            Features of the rows with scores.
        extra_features, extra_y : array-like or None
            Features and labels of the extra rows.

        Returns
        -------
        ExtraRows or None

        Raises
        ------
        ValueError
            If one of the two, or the features of the other rows, are missing.
        """
        if extra_features is None and extra_y is None:
            return None
        if extra_features is None or extra_y is None:
            missing = "extra_y" if extra_y is None else "extra_features"
            raise ValueError(f"{missing} is missing; give extra_features and extra_y together")
        if features is None:
            raise ValueError("extra_features need features: fit(scores, y, features=X, ...)")
        return cls(extra_features, extra_y)

    def encode(
        self, ranking: Ranking, n_features: int, names: list[str] | None
    ) -> tuple[Tensor, Tensor]:
        """Return the features and label indices of the rows.

        Parameters
        ----------
        ranking : Ranking
            Rows with scores, for their classes and their device.
        n_features : int
            Number of features of these rows.
        names : list of str or None
            Names of these features.

        Returns
        -------
        features : Tensor of shape (n_extra, n_features)
        index : Tensor of shape (n_extra,)

        Raises
        ------
        ValueError
            If the features are others, or a label is of an unknown class.
        """
        matched = match_columns(self.extra_features, names, "extra_features")
        x = as_matrix(matched, "extra_features", "columns")
        if x.shape[1] != n_features:
            raise ValueError(
                f"extra_features have {x.shape[1]} columns, but features have {n_features}; give "
                "the same features in the same order"
            )
        index = ranking.classes.encode(self.extra_y, device=ranking.device, name="extra_y")
        if len(index) != len(x):
            raise ValueError(f"extra_y has {len(index)} labels for {len(x)} rows of extra_features")
        return x, index
