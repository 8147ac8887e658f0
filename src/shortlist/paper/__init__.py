"""The paper's experiments: its figures, computed here, with LAC and the Shortlister beside.

`run` (or `shortlist paper`) fits what the figures need, draws them, and judges the paper's claims.
"""

from shortlist.paper.figures import FIGURES, Figure, Scale
from shortlist.paper.results import Results
from shortlist.paper.study import Report, run

__all__ = ["run", "FIGURES", "Figure", "Report", "Results", "Scale"]
