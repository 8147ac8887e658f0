"""The experiments of the paper: its figures, with LAC and the Shortlister for comparison.

:func:`run`, or ``shortlist paper``, fits the methods, plots the figures and checks the claims.
"""

from shortlist.paper.figures import FIGURES
from shortlist.paper.panels import Figure
from shortlist.paper.results import Results
from shortlist.paper.scale import Scale
from shortlist.paper.study import Report, run

__all__ = ["run", "FIGURES", "Figure", "Report", "Results", "Scale"]
