"""The program, its own options, and how it prints results, warnings and errors."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from shortlist._version import __version__


class FlagMixin:
    """Show no type for flags in the help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the command, those of `--help` included."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class Command(FlagMixin, TyperCommand):
    """A command of the program."""


class Group(FlagMixin, TyperGroup):
    """The program with its commands."""


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",  # Paragraphs fill the width.
    pretty_exceptions_enable=False,
    help="Predict small sets of labels that contain the true label as often as you ask, from the "
    "scores of any classifier. The command demo needs no data. For your own data, compare methods "
    "with the command compare, fit a model with fit, and write prediction sets with predict.",
)
MAX_MESSAGE_LENGTH = 900
"""Longer messages are truncated, because they can contain text from a file."""
_debugging = False


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"shortlist {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of errors.")] = False,
) -> None:
    """Store the options of the program itself."""
    global _debugging
    _debugging = debug


SHELL_ADVICE = {
    'on_unreachable="all"': "--on-unreachable all",
    "give features=... here too": "the file needs them too",
    "fit it with calibration=0.25, or call calibrate with rows of their own": (
        "fit it with --calibration 0.25, or run shortlist calibrate MODEL DATA -o NEW with other "
        "rows"
    ),
    "can be guaranteed after calibrate": "can be guaranteed after shortlist calibrate",
    'on_bad_rows="skip"': "--on-bad-rows skip",
    "pass overwrite=True": "use --force",
    "pass ignore=[...]": "use --ignore y",
    "if the columns have names, pass classes=[...]": "if columns have names, give them as classes",
    "give cost_weight=..., one of": "use --cost-weight, one of",
    "address = ": "--ray ",
}
"""Advice for Python in the library's messages, and the same advice for the command line."""


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print each warning on one line, without its location in the code."""
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
            return f"shortlist: warning: {_shell_message(str(message))}\n"

        warnings.formatwarning = line
        try:
            yield
        finally:
            warnings.formatwarning = plain


ARGUMENT = re.compile(r"\b(label|groups|keep|ignore)=(?:\[('[^']*'|\"[^\"]*\")\]|('[^']*'))")
"""Arguments of the functions that read rows, which are options on the command line."""


def _as_option(argument: re.Match[str]) -> str:
    value = shlex.quote((argument[2] or argument[3])[1:-1])
    return f"--{'id' if argument[1] == 'keep' else argument[1]} {value}"


def _shell_message(message: str) -> str:
    """Return a message on one line, with advice for the command line."""
    message = ARGUMENT.sub(_as_option, " ".join(message.split()))
    for python, shell in SHELL_ADVICE.items():
        message = message.replace(python, shell)
    if len(message) <= MAX_MESSAGE_LENGTH:
        return message
    return f"{message[:MAX_MESSAGE_LENGTH]}…"


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Print errors and warnings on one line each, and exit with code 1 after an error.

    With --debug the traceback is printed instead.
    """
    try:
        with _warnings_in_one_line():
            yield
    except BrokenPipeError:  # The program that reads the output has ended.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (the exit would flush the closed pipe)
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        typer.echo("shortlist: interrupted; existing files are unchanged", err=True)
        raise typer.Exit(130) from None
    except Exception as error:
        if _debugging:
            raise
        # Errors of these types explain themselves; others are printed with their type.
        message = _shell_message(str(error))
        if isinstance(error, MemoryError):
            message = f"there is not enough memory: {message or 'none is left'}"
        elif not isinstance(error, ValueError | OSError | ImportError):
            message = f"{type(error).__name__}: {message}"
        typer.echo(f"shortlist: {message}", err=True)
        raise typer.Exit(1) from error


def say(text: str, record: object, as_json: bool, *, err: bool = False) -> None:
    """Print a result as text or as JSON; with `err`, to the standard error."""
    typer.echo(json.dumps(record, default=str) if as_json else text, err=err)
