"""The program, its own options, and how it fails: one line, and an exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from shortlist._version import __version__

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Scores in; out comes the shortest list of labels that still holds the right one.",
)
_debugging = False

Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


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


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """What is wrong, on one line, and exit code 1; a traceback only if it was asked for."""
    try:
        yield
    except Exception as error:
        if _debugging:
            raise
        # Of errors that were written for people, the words are enough.
        known = isinstance(error, ValueError | OSError | ImportError)
        words = " ".join(str(error).split())
        typer.echo(f"shortlist: {words if known else f'{type(error).__name__}: {words}'}", err=True)
        raise typer.Exit(1) from error


def say(text: str, found: object, as_json: bool) -> None:
    """Print a result: for people, or as JSON."""
    typer.echo(json.dumps(found, default=str) if as_json else text)
