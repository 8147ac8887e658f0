"""The schema of the calibration rows, which new rows must match."""

from __future__ import annotations

from dataclasses import dataclass

from shortlist._utils.warnings import warn
from shortlist.ranking import Ranking

SOURCES = {True: "a score for every class", False: "ranked candidates"}
"""Names of the two kinds of rows, by whether they are dense."""


@dataclass(frozen=True)
class RowSchema:
    """Schema of the calibration rows. The guarantee holds for new rows of the same schema.

    Attributes
    ----------
    dense : bool
        Whether every class has a score.
    depth : int
        Number of ranked labels.
    lengths : tuple of int
        Smallest and largest number of candidates of a row.
    precision : str
        Floating-point type of the scores; see `Ranking.precision`.
    """

    dense: bool
    depth: int
    lengths: tuple[int, int]
    precision: str = "float32"

    @classmethod
    def of(cls, ranking: Ranking) -> RowSchema:
        """Return the schema of a ranking."""
        listed = ranking.lengths()
        lengths = int(listed.min()), int(listed.max())
        return cls(ranking.is_dense, ranking.depth, lengths, ranking.precision)

    def match(self, ranking: Ranking) -> Ranking:
        """Return new rows in the precision of the calibration rows.

        Parameters
        ----------
        ranking : Ranking
            New rows.

        Returns
        -------
        Ranking
            The same rows.

        Raises
        ------
        ValueError
            If nothing is guaranteed for the rows, since their schema is another one.
        """
        advice = "calibrate with rows such as these"
        if ranking.is_dense != self.dense:
            raise ValueError(
                f"the calibration rows had {SOURCES[self.dense]}, but these have "
                f"{SOURCES[ranking.is_dense]}, for which nothing is guaranteed; {advice}"
            )
        if self.dense and ranking.depth != self.depth:
            raise ValueError(
                f"the calibration rows were ranked to depth {self.depth}, but these to "
                f"{ranking.depth}, for which nothing is guaranteed; {advice}"
            )
        lengths, (shortest, longest) = RowSchema.of(ranking).lengths, self.lengths
        if not self.dense and (lengths[0] < shortest or lengths[1] > longest):
            warn(
                f"the calibration rows had {shortest} to {longest} candidates, but these have "
                f"{lengths[0]} to {lengths[1]}: if they come from another source, the guarantee "
                f"may not hold; {advice}"
            )
        if ranking.precision == self.precision:
            return ranking
        if ranking.precision == "float32":
            return ranking.with_precision(self.precision)
        warn(
            f"the calibration rows had {self.precision} scores, but these are {ranking.precision}: "
            "a score that differs by rounding can be on the other side of the threshold, so that "
            f"the guarantee may not hold; {advice}"
        )
        return ranking
