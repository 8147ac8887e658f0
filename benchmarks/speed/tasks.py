"""The benchmarks: for each one, the tasks that measure the libraries one after the other."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from neighbors import LOADS

LIBRARIES = {
    "lac": ("mapie", "torchcp", "puncc", "crepes"),
    "aps": ("mapie", "torchcp", "puncc"),
    "raps": ("mapie", "torchcp", "puncc"),
    "saps": ("torchcp",),
}
"""Other libraries that implement each score."""
LIBRARIES_WITH_LOGITS = ("torchcp",)
WITH_PLAIN_NUMPY = ("lac", "aps")
"""Scores that are also computed with plain NumPy."""
VARIANTS: tuple[dict[str, Any], ...] = ({}, {"temperature": None})
"""Parameters of this library: its defaults, and what has the same task as the other libraries."""
OWN_PYTHON = ("shortlist", "numpy")
"""Libraries that run in the environment of this one."""
MANY_LEVELS = [round(float(level), 4) for level in np.linspace(0.5, 0.99, 20)]
CREPES_ROWS = 200
"""New rows for crepes. All rows would take half an hour: its time grows with both row counts."""
ROW_DIVISOR = 10
"""Other libraries get fewer rows, by this factor, for twenty levels."""


@dataclass(frozen=True)
class Task:
    """One measurement, by the worker or, with `script`, by a script of the parent folder.

    Parameters
    ----------
    library : str
        The measured library.
    arguments : dict
        Arguments of the worker's function, or the options of the script.
    label : str, default=""
        Distinguishes tasks of the same benchmark and library.
    factors : dict of str to float, optional
        Factors by which measured values are multiplied, because fewer rows were measured.
    script : str, optional
        Name of a script.
    parse : callable, optional
        Function that returns the results in the output of the script.
    """

    library: str
    arguments: dict[str, Any]
    label: str = ""
    factors: dict[str, float] = field(default_factory=dict)
    script: str | None = None
    parse: Callable[[str], list[dict[str, Any]]] | None = None


@dataclass(frozen=True)
class Benchmark:
    """Tasks that are measured in rounds.

    Parameters
    ----------
    title : str
        Title of its table.
    tasks : callable
        Function of the options that returns the tasks.
    repeats : int, optional
        Number of rounds, in place of the requested one.
    loads : tuple of str, default=("quiet",)
        Conditions in which each task is measured: names in `LOADS`.
    """

    title: str
    tasks: Callable[[argparse.Namespace], list[Task]]
    repeats: int | None = None
    loads: tuple[str, ...] = ("quiet",)


def conformal(
    score: str, score_type: str, levels: list[float], options: argparse.Namespace
) -> list[Task]:
    """Return tasks that calibrate and predict, for all libraries that implement the score."""
    tasks = []
    libraries = LIBRARIES[score] if score_type == "proba" else LIBRARIES_WITH_LOGITS
    own: list[tuple[str, dict[str, Any]]] = [("shortlist", variant) for variant in VARIANTS]
    if score in WITH_PLAIN_NUMPY and score_type == "proba" and len(levels) == 1:
        own.append(("numpy", {}))
    for library, parameters in [*own, *((name, {}) for name in libraries)]:
        if library == "mapie" and score == "raps" and len(levels) > 1:
            continue  # Its tuning needs two rows of each class, which fewer rows do not have.
        rows = new_rows = options.rows
        factors = {}
        if library == "crepes":
            new_rows = min(CREPES_ROWS, rows)
            factors = dict.fromkeys(("predict", "cpu"), rows / new_rows)
        elif library not in OWN_PYTHON and len(levels) > 1:
            rows = new_rows = max(1, rows // ROW_DIVISOR)
            scaled = ("calibrate", "predict", "cpu", "memory")
            factors = dict.fromkeys(scaled, options.rows / rows)
        arguments = {
            "measure": "conformal",
            "library": library,
            "score": score,
            "score_type": score_type,
            "levels": levels,
            "folder": options.folder,
            "rows": rows,
            "new_rows": new_rows,
            "parameters": parameters,
        }
        factors = {name: factor for name, factor in factors.items() if factor != 1}
        label = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
        tasks.append(Task(library, arguments, label, factors=factors))
    return tasks


def growth(options: argparse.Namespace) -> list[Task]:
    """Return tasks with increasing numbers of rows, of classes and of members of the family."""
    tasks = []
    for method in ("lac", "aps", "shortlister"):
        shapes = [("rows", rows, options.classes) for rows in options.growth_rows]
        shapes += [("classes", options.growth_rows[1], n) for n in options.growth_classes]
        for axis, rows, classes in shapes:
            arguments = {
                "measure": "predict_set",
                "method": method,
                "rows": rows,
                "classes": classes,
            }
            tasks.append(Task("shortlist", arguments, label=f"{method}, {axis}"))
    for members in options.growth_members:
        arguments = {
            "measure": "selector",
            "members": members,
            "rows": options.growth_rows[-2],
            "classes": max(options.classes, *options.growth_members),
        }
        tasks.append(Task("shortlist", arguments, label="selector, |K|"))
    return tasks


def fits(options: argparse.Namespace) -> list[Task]:
    """Return tasks that compare whole fits with separate training loops."""
    rows, epochs = str(options.fit_rows), str(options.epochs)
    size = {"rows": options.fit_rows, "epochs": options.epochs}
    return [
        Task(
            "shortlist",
            {**size, "options": ["--rows", rows, "--epochs", epochs, "--max-epochs", epochs]},
            script="shortlister_against_loops.py",
            parse=parse_shortlister,
        ),
        Task(
            "shortlist",
            {**size, "options": ["--rows", rows, "--epochs", epochs, "--repeats", "1"]},
            script="path_against_loops.py",
            parse=parse_path,
        ),
    ]


def parse_shortlister(output: str) -> list[dict[str, Any]]:
    """Return the results in the output of `shortlister_against_loops.py`."""
    matches = re.findall(r"^(.+?) +([\d.]+) s", output, flags=re.MULTILINE)
    seconds = {name: float(value) for name, value in matches}
    loops = seconds["20 training loops"]
    return [
        {"label": f"Shortlister, {name}", "seconds": seconds[name], "loops": loops}
        for name in ("stage 2", "both stages")
    ]


def parse_path(output: str) -> list[dict[str, Any]]:
    """Return the results in the output of `path_against_loops.py`."""
    matches = re.findall(r"path +([\d.]+) s +20 loops +([\d.]+) s", output)
    return [
        {"label": "CardinalityPath of 20", "seconds": float(path), "loops": float(loops)}
        for path, loops in matches
    ]


def latency(options: argparse.Namespace) -> list[Task]:
    """Return a task that predicts few rows with Python and with onnxruntime."""
    arguments = ["--rows", str(options.latency_rows), "--classes", str(options.latency_classes)]
    arguments += ["--repeats", str(options.latency_repeats)]
    return [
        Task("shortlist", {"options": arguments}, script="onnx_latency.py", parse=parse_latency)
    ]


def parse_latency(output: str) -> list[dict[str, Any]]:
    """Return the results in the output of `onnx_latency.py`."""
    matches = re.findall(r"^ *(\d+) +([\d.]+) ms +([\d.]+) ms", output, flags=re.MULTILINE)
    return [
        {"label": f"{rows} rows, {runtime}", "seconds": float(milliseconds) / 1000}
        for rows, graph, python in matches
        for runtime, milliseconds in (("onnxruntime", graph), ("predict_set", python))
    ]


IMPORTS = {
    "import": {
        "shortlist": "import shortlist",
        "mapie": "import mapie.classification",
        "puncc": "import deel.puncc.classification",
        "crepes": "import crepes",
    },
    "first use": {"shortlist": "from shortlist import SplitConformal"},
}


def imports(options: argparse.Namespace) -> list[Task]:
    """Return tasks that import each library, and the first name of this one that needs torch."""
    return [
        Task(library, {"measure": "import_time", "code": code}, label=label)
        for label, codes in IMPORTS.items()
        for library, code in codes.items()
    ]


CONFORMAL = {
    f"{score}-{len(levels)}": Benchmark(
        f"{score.upper()}, {'one level' if len(levels) == 1 else f'{len(levels)} levels'}",
        partial(conformal, score, "proba", levels),
        loads=tuple(LOADS),
    )
    for levels in ([0.9], MANY_LEVELS)
    for score in LIBRARIES
} | {
    f"{score}-logits": Benchmark(
        f"{score.upper()}, one level, from logits",
        partial(conformal, score, "logits", [0.9]),
        loads=tuple(LOADS),
    )
    for score in LIBRARIES
}
BENCHMARKS = CONFORMAL | {
    "fits": Benchmark("fits, against 20 training loops", fits, repeats=1, loads=tuple(LOADS)),
    "growth": Benchmark("growth of predict_set with rows, classes and |K|", growth),
    "latency": Benchmark("latency of few rows", latency, repeats=1),
    "import": Benchmark("import", imports, repeats=10),
}
