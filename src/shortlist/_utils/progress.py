"""Progress of long jobs: a bar on a terminal, silence elsewhere."""

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
    """Tells that a step is done, or `worth` steps at once, with a word on how it goes."""

    def __call__(self, note: str, worth: int = 1) -> None: ...


PATIENCE_S = 1.0
"""A job shorter than this shows nothing."""


@contextmanager
def track(what: str, total: int, show: Show = "auto") -> Iterator[Step]:
    """Yield a function to be called after each of `total` steps, with a word on how it goes.

    "auto" draws on a terminal only, and not where rich is not installed.

    >>> with track("counting", total=2, show=False) as step:
    ...     step("one")
    ...     step("two")
    """
    if show not in (True, False, "auto"):
        raise ValueError(f'progress must be True, False or "auto"; got {show!r}')
    if not show or (show == "auto" and not sys.stderr.isatty()):
        yield _silent
        return
    outer = _shown.get()
    if outer is not None:  # a job within a job is a second bar below the first
        with outer.job(what, total) as step:
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
            speed_estimate_period=300,  # steps may be minutes apart
        )
    )
    token = _shown.set(bars)
    try:
        with bars.job(what, total) as step:
            yield step
    finally:
        _shown.reset(token)
        bars.close()


def _silent(note: str, worth: int = 1) -> None:
    """The step of a job that shows nothing."""


class _Bars:
    """A bar for each of the jobs under way."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.begun = progress, time.monotonic()

    @contextmanager
    def job(self, what: str, total: int) -> Iterator[Step]:
        task = self.progress.add_task(what, total=total, note="")

        def step(note: str, worth: int = 1) -> None:
            self.progress.update(task, advance=worth, note=note)
            if not self.progress.live.is_started and time.monotonic() - self.begun > PATIENCE_S:
                self.progress.start()

        try:
            yield step
        finally:
            if len(self.progress.tasks) > 1:  # the last one is seen to its end
                self.progress.remove_task(task)

    def close(self) -> None:
        if self.progress.live.is_started:
            self.progress.stop()


_shown: ContextVar[_Bars | None] = ContextVar("shown", default=None)
"""The bars on the screen."""
