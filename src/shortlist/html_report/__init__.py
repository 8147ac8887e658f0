"""A comparison, or one fitted model, as a page for a browser: one file, no network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shortlist._utils.atomic_write import atomic_write
from shortlist.html_report.content import content_of
from shortlist.html_report.guarantee_plot import plot_guarantee
from shortlist.html_report.page import page
from shortlist.html_report.single_model import judge

if TYPE_CHECKING:
    from shortlist._utils.arrays import ArrayLike
    from shortlist.comparison import Comparison
    from shortlist.predictors import SetPredictor
    from shortlist.ranking import Ranking

__all__ = ["report", "report_comparison", "plot_guarantee", "judge"]


def report_comparison(
    found: Comparison,
    path: str | os.PathLike[str],
    *,
    title: str = "Prediction sets, compared",
    examples: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write all of it as one page for a browser, which needs no network.

    The curves with their bands, a slider for the accuracy, the table, the hardest classes and
    those that are taken for each other, examples, and what is guaranteed, in plain words.

    Parameters
    ----------
    path : where to write it
    title : str
    examples : sequence of str, optional
        What to show of a row: a text, a file's name. One for each test row, or, where
        `compare` chose these, for each row that it was given. Default: the row's number.
    overwrite : bool
        Whether a file that is there already may be replaced.

    Returns
    -------
    Path
        Where it was written.

    Examples
    --------
    >>> import shortlist as sl
    >>> from tempfile import TemporaryDirectory
    >>> data = sl.datasets.gaussian(2000)
    >>> found = sl.compare(data.posterior, data.y, methods={"LAC": sl.SplitConformal("lac")})
    >>> with TemporaryDirectory() as folder:
    ...     found.report(f"{folder}/report.html", title="Gaussians").name
    'report.html'
    """
    target = check_target(path, overwrite)
    text = page(content_of(found, examples), title)
    with atomic_write(target) as aside:
        aside.write_text(text, encoding="utf-8")
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
    """Write what the fitted model does on these labelled rows as one page for a browser, which
    needs no network. The rows must be others than those of `fit` and `calibrate`.

    Parameters
    ----------
    title : str, optional
    examples : sequence of str, optional
        What to show of each row: a text, a file's name. Default: the row's number.
    overwrite : bool
        Whether a file that is there already may be replaced.

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
    check_target(path, overwrite)
    found = judge(model, scores, y, features)
    named = f"Prediction sets of {next(iter(found.curves))}" if title is None else title
    return report_comparison(found, path, title=named, examples=examples, overwrite=overwrite)


def check_target(path: str | os.PathLike[str], overwrite: bool) -> Path:
    """Where to write; an error if that is a folder, or a file that may not be replaced. Asked
    before anything is computed."""
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"{str(path)!r} is a folder; name a file in it, such as report.html")
    if target.exists() and not overwrite:
        raise FileExistsError(
            f"{str(path)!r} is there already; give another path, or overwrite=True"
        )
    return target
