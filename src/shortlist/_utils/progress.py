"""Show the progress of long tasks on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Progress

Show: TypeAlias = bool | Literal["auto"]


class Step(Protocol):
    """Function that reports finished steps."""

    def __call__(self, note: str, count: int = 1) -> None:
        """Report `count` finished steps, and show a note beside the bar."""


SHOW_AFTER_S = 1.0
"""Tasks shorter than this many seconds show no bar."""


@contextmanager
def track(description: str, total: int, show: Show = "auto") -> Iterator[Step]:
    """Yield a function to call after each of `total` steps.

    Parameters
    ----------
    description : str
        Name of the task.
    total : int
        Number of steps.
    show : bool or "auto", default="auto"
        Whether to show a progress bar. "auto" shows one on a terminal if rich is installed.

    Yields
    ------
    Step
        Takes a short note to show beside the bar.

    Raises
    ------
    ImportError
        If `show` is True and rich is not installed.

    Examples
    --------
    >>> with track("counting", total=2, show=False) as step:
    ...     step("one")
    ...     step("two")
    """
    if show not in (True, False, "auto"):
        raise ValueError(f'progress must be True, False or "auto"; got {show!r}')
    if not show or (show == "auto" and not sys.stderr.isatty()):
        yield _silent
        return
    outer = _current_bars.get()
    if outer is not None:  # A nested task gets a bar below the outer one.
        with outer.task(description, total) as step:
            yield step
        return
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        if show != "auto":
            raise ImportError("progress=True needs rich: pip install 'shortlist[cli]'") from None
        yield _silent
        return
    bars = _Bars(
        progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
            speed_estimate_period=300,  # Steps can take minutes.
        )
    )
    token = _current_bars.set(bars)
    try:
        with bars.task(description, total) as step:
            yield step
    finally:
        _current_bars.reset(token)
        bars.close()


def _silent(note: str, count: int = 1) -> None:
    """Report nothing."""


class _Bars:
    """One progress bar for each running task."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.started = progress, time.monotonic()

    @contextmanager
    def task(self, description: str, total: int) -> Iterator[Step]:
        """Add a bar while the block runs."""
        task = self.progress.add_task(description, total=total, note="")

        def step(note: str, count: int = 1) -> None:
            self.progress.update(task, advance=count, note=note)
            if not self.progress.live.is_started and time.monotonic() - self.started > SHOW_AFTER_S:
                self.progress.start()

        try:
            yield step
        finally:
            if len(self.progress.tasks) > 1:  # The last bar stays until the display closes.
                self.progress.remove_task(task)

    def close(self) -> None:
        """Remove the display from the terminal."""
        if self.progress.live.is_started:
            self.progress.stop()


_current_bars: ContextVar[_Bars | None] = ContextVar("current_bars", default=None)
"""The bars that are displayed, to which nested tasks are added."""
