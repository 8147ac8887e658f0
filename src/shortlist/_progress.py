"""Progress of long jobs: a bar on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

Show: TypeAlias = bool | Literal["auto"]

PATIENCE_S = 1.0
"""A job shorter than this shows nothing."""


@contextmanager
def track(what: str, total: int, show: Show = "auto") -> Iterator[Callable[[str], None]]:
    """Yield a function to be called after each of `total` steps, with a word on how it goes.

    "auto" draws on a terminal only, and not where rich is not installed.

    >>> with track("counting", total=2, show=False) as step:
    ...     step("one")
    ...     step("two")
    """
    if show not in (True, False, "auto"):
        raise ValueError(f'progress must be True, False or "auto"; got {show!r}')
    if not show or (show == "auto" and not sys.stderr.isatty()):
        yield lambda note: None
        return
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        if show != "auto":
            raise ImportError("progress=True needs rich: pip install 'shortlist[cli]'") from None
        yield lambda note: None
        return
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(what, total=total, note="")
    begun = time.monotonic()

    def step(note: str) -> None:
        bar.update(task, advance=1, note=note)
        if not bar.live.is_started and time.monotonic() - begun > PATIENCE_S:
            bar.start()

    try:
        yield step
    finally:
        if bar.live.is_started:
            bar.stop()
