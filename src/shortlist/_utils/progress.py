"""Show the progress of long tasks on a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from shortlist._utils.tables import WIDTH, shorten

if TYPE_CHECKING:
    from rich.progress import Progress

Show: TypeAlias = bool | Literal["auto"]


class Step(Protocol):
    """Function that reports finished steps."""

    def __call__(self, note: str, count: int = 1) -> None:
        """Report `count` finished steps, and show a note beside the bar."""


class Bars(Protocol):
    """A display of all running tasks."""

    def task(self, description: str, total: int) -> AbstractContextManager[Step]:
        """Show a task while the block runs."""
        ...

    def close(self) -> None:
        """Remove the display."""
        ...


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
        Whether to show a progress bar. "auto" shows one in a notebook and,
        if rich is installed, on a terminal.

    Yields
    ------
    Step
        Takes a short note to show beside the bar.

    Raises
    ------
    ImportError
        If `show` is True, rich is not installed, and the code does not run in a notebook.

    Examples
    --------
    >>> with track("counting", total=2, show=False) as step:
    ...     step("one")
    ...     step("two")
    """
    if show not in (True, False, "auto"):
        raise ValueError(f'progress must be True, False or "auto"; got {show!r}')
    notebook = in_notebook()
    if not show or (show == "auto" and not notebook and not sys.stderr.isatty()):
        yield _silent
        return
    outer = _current_bars.get()
    if outer is not None:  # A nested task is shown with the outer one.
        with outer.task(description, total) as step:
            yield step
        return
    bars = _TextBars() if notebook else _terminal_bars(show)
    token = _current_bars.set(bars)
    try:
        with bars.task(description, total) as step:
            yield step
    finally:
        _current_bars.reset(token)
        bars.close()


def in_notebook() -> bool:
    """Return whether the code runs in a notebook, such as one of Jupyter.

    Examples
    --------
    >>> in_notebook()
    False
    """
    module = sys.modules.get("IPython")  # A notebook has imported it.
    shell = None if module is None else module.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _terminal_bars(show: Show) -> Bars:
    """Return bars for a terminal. Without rich, nothing is shown, or an error is raised."""
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        if show != "auto":
            raise ImportError("progress=True needs rich: pip install 'shortlist[cli]'") from None
        return _NoBars()
    return _RichBars(
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


def _silent(note: str, count: int = 1) -> None:
    """Report nothing."""


class _NoBars:
    """Bars that are not shown."""

    @contextmanager
    def task(self, description: str, total: int) -> Iterator[Step]:
        """Yield a function that reports nothing."""
        yield _silent

    def close(self) -> None:
        """Do nothing."""


@dataclass(eq=False)
class _Task:
    """A running task, with its finished steps."""

    description: str
    total: int
    count: int = 0
    note: str = ""

    def __str__(self) -> str:
        done = min(10, 10 * self.count // max(self.total, 1))
        bar = "█" * done + "░" * (10 - done)
        return f"{self.description} {bar} {self.count}/{self.total} {self.note}".rstrip()


class _TextBars:
    """All running tasks in one line of text, which each step replaces."""

    def __init__(self) -> None:
        self.tasks: list[_Task] = []
        self.started, self.width = time.monotonic(), 0

    @contextmanager
    def task(self, description: str, total: int) -> Iterator[Step]:
        """Add a task to the line while the block runs."""
        task = _Task(description, total)
        self.tasks.append(task)

        def step(note: str, count: int = 1) -> None:
            task.count, task.note = task.count + count, note
            if time.monotonic() - self.started > SHOW_AFTER_S:
                self._write(shorten(" | ".join(map(str, self.tasks)), WIDTH))

        try:
            yield step
        finally:
            self.tasks.remove(task)

    def close(self) -> None:
        """Remove the line."""
        if self.width:
            self._write("")
            sys.stderr.write("\r")

    def _write(self, line: str) -> None:
        """Replace the line. Spaces hide the rest of a longer one."""
        sys.stderr.write(f"\r{line:<{self.width}}")
        sys.stderr.flush()
        self.width = len(line)


class _RichBars:
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


_current_bars: ContextVar[Bars | None] = ContextVar("current_bars", default=None)
"""The bars that are displayed, to which nested tasks are added."""
