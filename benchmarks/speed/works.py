"""What is measured: for each work, the tasks of one round, its libraries one after the other."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

SCORES = {
    "lac": ("mapie", "torchcp", "puncc", "crepes"),
    "aps": ("mapie", "torchcp", "puncc"),
    "raps": ("mapie", "torchcp", "puncc"),
    "saps": ("torchcp",),
}
LOGITS = ("torchcp",)
"""The peers that take logits."""
PENALTIES = {"saps": 0.1}
MANY = [round(float(level), 4) for level in np.linspace(0.5, 0.99, 20)]
CREPES_ROWS = 200
"""Its time is the product of both numbers of rows and of the classes: half an hour for all."""
FEWER = 10
"""By this factor fewer rows for a peer that is asked for twenty levels."""


@dataclass(frozen=True)
class Task:
    """One measurement. Without `script` it is the worker's, else what a script prints is read."""

    library: str
    arguments: dict[str, Any]
    label: str = ""
    """What tells it from others of the same work and library."""
    times: dict[str, float] = field(default_factory=dict)
    """By how much measured figures are multiplied, where fewer rows were measured."""
    script: str | None = None
    read: Callable[[str], list[dict[str, Any]]] | None = None


@dataclass(frozen=True)
class Work:
    title: str
    tasks: Callable[[argparse.Namespace], list[Task]]
    repeats: int | None = None
    """None: as often as is asked for."""


def conformal(score: str, kind: str, levels: list[float], given: argparse.Namespace) -> list[Task]:
    """Calibrate and predict, with this library and with all that have the score."""
    tasks = []
    for library in ("shortlist", *(SCORES[score] if kind == "proba" else LOGITS)):
        if library == "mapie" and score == "raps" and len(levels) > 1:
            continue  # it tunes, with at least two rows of each class: too few where rows are fewer
        rows = new_rows = given.rows
        times = {}
        if library == "crepes":
            new_rows = min(CREPES_ROWS, rows)
            times = dict.fromkeys(("predict", "cpu"), rows / new_rows)
        elif library != "shortlist" and len(levels) > 1:
            rows = new_rows = max(1, rows // FEWER)
            times = dict.fromkeys(("calibrate", "predict", "cpu", "memory"), given.rows / rows)
        arguments = {
            "measure": "conformal",
            "library": library,
            "score": score,
            "kind": kind,
            "levels": levels,
            "folder": given.folder,
            "rows": rows,
            "new_rows": new_rows,
            "penalty": PENALTIES.get(score, 0.01),
            "k_reg": 5,
        }
        tasks.append(Task(library, arguments, times={k: v for k, v in times.items() if v != 1}))
    return tasks


def growth(given: argparse.Namespace) -> list[Task]:
    """Rows with the classes fixed, classes with the rows fixed, and |K|."""
    tasks = []
    for method in ("lac", "aps", "shortlister"):
        shapes = [("rows", m, given.classes) for m in given.growth_rows]
        shapes += [("classes", given.growth_rows[1], n) for n in given.growth_classes]
        for axis, m, n in shapes:
            arguments = {"measure": "predicting", "method": method, "rows": m, "classes": n}
            tasks.append(Task("shortlist", arguments, label=f"{method}, {axis}"))
    for k in given.growth_members:
        m, n = given.growth_rows[-2], max(given.classes, *given.growth_members)
        arguments = {"measure": "selecting", "members": k, "rows": m, "classes": n}
        tasks.append(Task("shortlist", arguments, label="selector, |K|"))
    return tasks


def learning(given: argparse.Namespace) -> list[Task]:
    """Whole fits against plain loops: the scripts beside this folder measure both sides."""
    rows, epochs = str(given.fit_rows), str(given.epochs)
    both = {"rows": given.fit_rows, "epochs": given.epochs}
    return [
        Task(
            "shortlist",
            {**both, "options": ["--rows", rows, "--epochs", epochs, "--most-epochs", epochs]},
            script="shortlister_against_loops.py",
            read=shortlister_times,
        ),
        Task(
            "shortlist",
            {**both, "options": ["--rows", rows, "--epochs", epochs, "--repeats", "1"]},
            script="path_against_loops.py",
            read=path_times,
        ),
    ]


def shortlister_times(printed: str) -> list[dict[str, Any]]:
    found = re.findall(r"^(.+?) +([\d.]+) s", printed, flags=re.MULTILINE)
    spent = {name: float(seconds) for name, seconds in found}
    return [
        {"label": f"Shortlister, {name}", "seconds": spent[name], "loops": spent["20 plain loops"]}
        for name in ("stage 2", "both stages")
    ]


def path_times(printed: str) -> list[dict[str, Any]]:
    found = re.findall(r"path +([\d.]+) s +20 loops +([\d.]+) s", printed)
    return [
        {"label": "CardinalityPath of 20", "seconds": float(a), "loops": float(b)} for a, b in found
    ]


def latency(given: argparse.Namespace) -> list[Task]:
    """One row through Python and through onnxruntime."""
    options = ["--rows", str(given.latency_rows), "--classes", str(given.latency_classes)]
    options += ["--repeats", str(given.latency_repeats)]
    return [Task("shortlist", {"options": options}, script="onnx_latency.py", read=latencies)]


def latencies(printed: str) -> list[dict[str, Any]]:
    found = re.findall(r"^ *(\d+) +([\d.]+) ms +([\d.]+) ms", printed, flags=re.MULTILINE)
    return [
        {"label": f"{rows} rows, {how}", "seconds": float(time) / 1000}
        for rows, graph, python in found
        for how, time in (("onnxruntime", graph), ("predict_set", python))
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


def imports(given: argparse.Namespace) -> list[Task]:
    """`import shortlist`, and the first name that needs torch; the peers' imports."""
    return [
        Task(library, {"measure": "importing", "code": code}, label=label)
        for label, codes in IMPORTS.items()
        for library, code in codes.items()
    ]


CONFORMAL = {
    f"{score}-{len(levels)}": Work(
        f"{score.upper()}, {'one level' if len(levels) == 1 else f'{len(levels)} levels'}",
        partial(conformal, score, "proba", levels),
    )
    for levels in ([0.9], MANY)
    for score in SCORES
} | {
    f"{score}-logits": Work(
        f"{score.upper()}, one level, from logits", partial(conformal, score, "logits", [0.9])
    )
    for score in SCORES
}
WORKS = CONFORMAL | {
    "learning": Work("fit, against 20 plain loops", learning, repeats=1),
    "growth": Work("predict_set as rows, classes and |K| grow", growth),
    "latency": Work("one row", latency, repeats=1),
    "import": Work("import", imports, repeats=10),
}
