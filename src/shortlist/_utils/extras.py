"""Packages that only some functions need, and the extras that install them."""

from __future__ import annotations

from importlib import import_module

EXTRAS = {
    "matplotlib": "report",
    "pandas": "report",
    "pyarrow": "report",
    "rich": "cli",
    "typer": "cli",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "skl2onnx": "skl2onnx",
    "skops": "skops",
    "PIL": "images",
    "ray": "ray",
}
"""The extra of this library that installs a package."""


def require(package: str, purpose: str) -> None:
    """Raise if a package is not installed.

    Parameters
    ----------
    package : str
        Name under which the package is imported.
    purpose : str
        What needs it: the subject of the message.

    Raises
    ------
    ImportError
        If the package cannot be imported. The message says which extra installs it.

    Examples
    --------
    >>> require("numpy", "to_frame")
    """
    try:
        import_module(package)
    except ImportError as error:
        remedy = f"pip install {package}"
        if package in EXTRAS:
            remedy = f"pip install 'shortlist[{EXTRAS[package]}]'"
        raise ImportError(f"{purpose} needs {package}: {remedy}") from error
