"""The program, its own options, and how it fails: one line, and an exit code."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from shortlist._version import __version__

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",  # paragraphs fill the width
    pretty_exceptions_enable=False,
    help="Scores in; out comes the shortest list of labels that still holds the right one.",
)
LONGEST = 900
"""So many letters of a message are printed: a file's own text may be in it."""
_debugging = False


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shortlist {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback where something goes wrong.")
    ] = False,
) -> None:
    """Options of the program itself."""
    global _debugging
    _debugging = debug


IN_A_SHELL = {
    'set_params(on_unreachable="all")': "--on-unreachable all",
    "give features=... here too": "the file needs them too",
    "fit it with calibration=0.25, or call calibrate(scores, y) with rows of their own": (
        "fit it with --calibration 0.25, or say shortlist calibrate MODEL DATA -o NEW with rows of "
        "their own"
    ),
    "can be guaranteed after calibrate(scores, y)": "can be guaranteed after shortlist calibrate",
    'on_bad_rows="skip"': "--on-bad-rows skip",
    "say overwrite=True": "say --force",
    "if the columns have names, pass classes=[...]": "if columns have names, give them as classes",
    "Give cost_weight=..., one of": "Say --cost-weight, one of",
    "address = ": "--ray ",
}
"""What the library says to those who write Python, and how that is done here."""


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Without the place in the code, which is not the user's."""
    with warnings.catch_warnings():
        plain = warnings.formatwarning

        def line(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            line: str | None = None,
        ) -> str:
            if _debugging or category is not UserWarning:
                return plain(message, category, filename, lineno, line)
            return f"shortlist: warning: {_for_a_shell(str(message))}\n"

        warnings.formatwarning = line
        try:
            yield
        finally:
            warnings.formatwarning = plain


def _for_a_shell(words: str) -> str:
    """On one line, and in the words of the command line."""
    words = " ".join(words.split())
    for python, shell in IN_A_SHELL.items():
        words = words.replace(python, shell)
    return words if len(words) <= LONGEST else f"{words[:LONGEST]}…"


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """What is wrong, on one line, and exit code 1; a traceback only if it was asked for. Warnings
    are lines too."""
    try:
        with _warnings_in_one_line():
            yield
    except BrokenPipeError:  # whoever reads has had enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (nothing is left to be flushed)
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        typer.echo("shortlist: interrupted; what was there before is still there", err=True)
        raise typer.Exit(130) from None
    except Exception as error:
        if _debugging:
            raise
        # Of errors that were written for people, the words are enough.
        known = isinstance(error, ValueError | OSError | ImportError)
        words = _for_a_shell(str(error))
        if isinstance(error, MemoryError):
            known, words = True, f"there is not enough memory: {words or 'none is left'}"
        typer.echo(f"shortlist: {words if known else f'{type(error).__name__}: {words}'}", err=True)
        raise typer.Exit(1) from error


def say(text: str, found: object, as_json: bool, *, err: bool = False) -> None:
    """Print a result: for people, or as JSON; to the error stream, if the other is taken."""
    typer.echo(json.dumps(found, default=str) if as_json else text, err=err)
