"""Write a comparison, or the evaluation of one model, as one HTML page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shortlist._utils.atomic_write import atomic_write, check_target
from shortlist._utils.labels import count_unknown_labels
from shortlist.html_report.content import make_content
from shortlist.html_report.guarantee_plot import plot_guarantee
from shortlist.html_report.page import page
from shortlist.html_report.single_model import evaluate_model

if TYPE_CHECKING:
    from shortlist._utils.arrays import ArrayLike
    from shortlist.comparison import Comparison
    from shortlist.predictors import SetPredictor
    from shortlist.ranking import Ranking

__all__ = ["evaluate_model", "plot_guarantee", "report", "report_comparison"]


def report_comparison(
    comparison: Comparison,
    path: str | os.PathLike[str],
    *,
    title: str = "Comparison of prediction sets",
    examples: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a comparison as one HTML page that works offline.

    The page has curves with confidence bands, a slider for the accuracy, the table of results, hard
    classes, classes that are confused with each other, examples, and the guarantees.

    Parameters
    ----------
    comparison : Comparison
        The result of :func:`shortlist.compare`.
    path : path-like
        HTML file to write.
    title : str, default="Comparison of prediction sets"
        Title of the page.
    examples : sequence of str, optional
        Text to show for each test row, such as a file name. If `compare` split off the test rows,
        give one text for each of its rows. By default the number of the row.
    overwrite : bool, default=False
        Whether to replace an existing file.

    Returns
    -------
    Path
        Path of the file.

    Raises
    ------
    FileExistsError
        If the file exists and `overwrite` is False.

    Examples
    --------
    >>> import shortlist as sl
    >>> from tempfile import TemporaryDirectory
    >>> data = sl.datasets.gaussian(2000)
    >>> comparison = sl.compare(data.posterior, data.y, methods={"LAC": sl.SplitConformal("lac")})
    >>> with TemporaryDirectory() as folder:
    ...     comparison.report(f"{folder}/report.html", title="Gaussians").name
    'report.html'
    """
    target = check_target(path, overwrite=overwrite, example="report.html")
    with count_unknown_labels():  # The comparison has warned about them.
        text = page(make_content(comparison, examples), title)
    with atomic_write(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target


def report(
    model: SetPredictor,
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None = None,
    path: str | os.PathLike[str] = "report.html",
    *,
    title: str | None = None,
    examples: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Evaluate a fitted model on labeled rows, and write the result as one HTML page.

    Parameters
    ----------
    model : SetPredictor
        The fitted model.
    scores : array-like of shape (n_rows, n_classes) or Ranking
        Scores of rows that are used neither to fit nor to calibrate.
    y : array-like of shape (n_rows,)
        True labels.
    features : array-like of shape (n_rows, n_features), optional
        Features, if the model uses them.
    path : path-like, default="report.html"
        HTML file to write.
    title : str, optional
        Title of the page.
    examples : sequence of str, optional
        Text to show for each row, such as a file name. By default the number of the row.
    overwrite : bool, default=False
        Whether to replace an existing file.

    Returns
    -------
    Path
        Path of the file.

    Raises
    ------
    FileExistsError
        If the file exists and `overwrite` is False.

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
    check_target(path, overwrite=overwrite, example="report.html")
    comparison = evaluate_model(model, scores, y, features)
    name = next(iter(comparison.curves))
    heading = f"Prediction sets of {name}" if title is None else title
    return report_comparison(
        comparison, path, title=heading, examples=examples, overwrite=overwrite
    )
