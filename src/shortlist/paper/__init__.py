"""The experiments of the paper: its figures, with verdicts on its claims.

:func:`run`, or ``shortlist paper``, fits the methods, plots the figures and checks the claims.
``python -m shortlist.paper --numbers-only`` only fits the methods, and needs no optional package.
"""

from shortlist.paper.figures import FIGURES
from shortlist.paper.panels import Figure
from shortlist.paper.results import Results
from shortlist.paper.scale import Scale
from shortlist.paper.study import Report, compute, run

__all__ = ["run", "compute", "FIGURES", "Figure", "Report", "Results", "Scale"]
