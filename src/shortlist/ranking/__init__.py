"""Rankings: the labels of each row, best first, from scores or from ranked candidates."""

from shortlist.ranking.ranking import Ranking, as_ranking

__all__ = ["Ranking", "as_ranking"]
