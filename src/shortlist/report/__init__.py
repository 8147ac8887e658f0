"""A comparison, or one fitted model, as a page for a browser: one file, no network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shortlist._writing import written_whole
from shortlist.report._content import content_of
from shortlist.report._page import page
from shortlist.report._single import judge

if TYPE_CHECKING:
    from shortlist._arrays import ArrayLike
    from shortlist.comparison import Comparison
    from shortlist.ranking import Ranking
    from shortlist.selectors import SetPredictor

__all__ = ["write_report", "report_model", "judge"]


def write_report(
    found: Comparison,
    path: str | os.PathLike[str],
    *,
    title: str = "Prediction sets, compared",
    examples: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a comparison as a page; see `Comparison.report`, which is a door to this.

    >>> import shortlist as sl
    >>> from tempfile import TemporaryDirectory
    >>> data = sl.datasets.gaussian(1000)
    >>> found = sl.compare(data.posterior, data.y, methods={"LAC": sl.SplitConformal("lac")})
    >>> with TemporaryDirectory() as folder:
    ...     written = write_report(found, f"{folder}/report.html", title="Gaussians")
    ...     "<title>Gaussians</title>" in written.read_text()
    True
    """
    target = check_target(path, overwrite)
    text = page(content_of(found, examples), title)
    with written_whole(target) as aside:
        aside.write_text(text, encoding="utf-8")
    return target


def report_model(
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
    """Write one fitted model as a page; see `SetPredictor.report`, which is a door to this."""
    check_target(path, overwrite)
    found = judge(model, scores, y, features)
    named = f"Prediction sets of {next(iter(found.curves))}" if title is None else title
    return write_report(found, path, title=named, examples=examples, overwrite=overwrite)


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
