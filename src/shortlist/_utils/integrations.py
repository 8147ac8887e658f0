"""Mixins whose methods call the integrations: `save`, `export_onnx`, `report`, `plot_guarantee`.

This is the only module that imports from layers below its own, and it does so inside its methods.
Each method is documented at the function that it calls.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from shortlist._utils.arrays import ArrayLike
    from shortlist.ranking import Ranking


class SavingMixin:
    """Give a model the method `save`."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the fitted model to a folder. See :func:`shortlist.save`."""
        from shortlist.io.models import save

        return save(self, path, overwrite=overwrite)  # type: ignore[arg-type]


class PredictorMixin(SavingMixin):
    """Give a set predictor the methods `save`, `export_onnx`, `report` and `plot_guarantee`."""

    def export_onnx(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write the fitted model as one ONNX graph. See :func:`shortlist.export_onnx`."""
        from shortlist.onnx import export_onnx

        return export_onnx(self, path, **options)  # type: ignore[arg-type]

    def report(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        path: str | os.PathLike[str] = "report.html",
        **options: Any,
    ) -> Path:
        """Write a report of the fitted model on labeled rows. See :func:`shortlist.report`."""
        from shortlist.html_report import report

        return report(self, scores, y, features, path, **options)  # type: ignore[arg-type]

    def plot_guarantee(
        self,
        scores: ArrayLike | Ranking,
        y: ArrayLike,
        features: ArrayLike | None = None,
        *,
        accuracies: Sequence[float] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Plot measured against guaranteed accuracy. See :func:`shortlist.plot_guarantee`."""
        from shortlist.html_report import plot_guarantee

        return plot_guarantee(self, scores, y, features, accuracies=accuracies, ax=ax)  # type: ignore[arg-type]


class ClassifierExportMixin(SavingMixin):
    """Give a classifier with prediction sets the methods `save` and `export_onnx`."""

    def export_onnx(self, path: str | os.PathLike[str], X: object = None, **options: Any) -> Path:
        """Write the fitted model as one ONNX graph, from X to prediction sets.

        See :func:`shortlist.onnx.export_classifier`.
        """
        from shortlist.onnx.classifier import export_classifier

        return export_classifier(self, path, X, **options)  # type: ignore[arg-type]


class ComparisonMixin:
    """Give a comparison the method `report`."""

    def report(self, path: str | os.PathLike[str] = "report.html", **options: Any) -> Path:
        """Write the comparison as one HTML page.

        See :func:`shortlist.html_report.report_comparison`.
        """
        from shortlist.html_report import report_comparison

        return report_comparison(self, path, **options)  # type: ignore[arg-type]
