"""Tables of the comparison on all labelled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sizes.contenders import RIVAL

Rows = list[dict[str, Any]]
"""Measurements: data, seed, situation, method, column, accuracy, size and seconds of the fit."""

OURS = ("Shortlister, fast", "Shortlister", "Shortlister, best")
ALTERNATIVES = (
    RIVAL,
    "five networks on select + LAC",
    "logistic, retrained",
    "networks, retrained",
    "RealMLP + LAC",
    "TabM + LAC",
    "xRFM + LAC",
    "LAC",
)
"""What one would do without this library: of these, the shortest is the strongest rival."""
OURS_ON_SCORES = ("Shortlister, scores only",)
ALTERNATIVES_ON_SCORES = ("C-Adapter + LAC", "C-Adapter + APS", "LAC")
"""Methods that see scores alone."""
SITUATIONS = {
    "frozen": "frozen backbone: the classifier is cross-fitted over all rows",
    "trained": "backbone trained on `fit`: those rows have no honest scores",
    "tabular": "table",
    "candidates": "candidates, half of the rows",
}


def show_all_rows(rows: Rows) -> None:
    """Print a table for each problem, and a summary of all."""
    tabular = [row for row in rows if row["situation"] == "tabular"]
    others = [row for row in rows if row["situation"] != "tabular"]
    for name in dict.fromkeys(row["data"] for row in others):
        show_problem(name, [row for row in others if row["data"] == name])
    if others:
        show_summary("features", others)
    if tabular:
        show_summary("tables", tabular)
    if any(row["method"] in OURS_ON_SCORES for row in rows):
        show_summary("scores alone", rows, OURS_ON_SCORES, ALTERNATIVES_ON_SCORES)
    if rows:
        show_columns(rows)


def show_problem(name: str, rows: Rows) -> None:
    """Print the sizes of all methods on one problem, and their ratios to those of the rival."""
    seeds, columns = len({row["seed"] for row in rows}), _unique(rows, "column")
    print(f"\n### {name} ({SITUATIONS[rows[0]['situation']]}), {seeds} seeds\n")
    has_rival = any(row["method"] == RIVAL for row in rows)
    ratios = [f"{column}: ratio" for column in columns] if has_rival else []
    print(f"| method | {' | '.join([*columns, *ratios])} | fit s |")
    print("|---|" + "---|" * (len(columns) + len(ratios) + 1))
    for method in _unique(rows, "method"):
        sizes = [_by_seed(rows, method, column) for column in columns]
        cells = [_spread(list(own.values())) for own in sizes]
        if has_rival:
            rivals = [_by_seed(rows, RIVAL, column) for column in columns]
            cells += [_ratio(own, rival) for own, rival in zip(sizes, rivals, strict=True)]
        seconds = np.mean([row["fit_seconds"] for row in rows if row["method"] == method])
        note = _seeds_note(rows, method)
        print(f"| {method}{note} | {' | '.join(cells)} | {seconds:.1f} |")


def show_summary(
    title: str,
    rows: Rows,
    ours: tuple[str, ...] = OURS,
    alternatives: tuple[str, ...] = ALTERNATIVES,
) -> None:
    """Print the Shortlister next to the strongest rival, for each problem and accuracy.

    The strongest rival is the alternative with the smallest mean size at this accuracy.
    """
    present = [method for method in ours if any(row["method"] == method for row in rows)]
    print(f"\n### Summary of {title}: the strongest rival with the same rows\n")
    print(f"| data | accuracy | LAC | strongest rival | | {' | '.join(present)} | ratio |")
    print("|---|---|---|---|---|" + "---|" * (len(present) + 1))
    longest = dict.fromkeys(present, 0.0)
    for name in _unique(rows, "data"):
        own = [row for row in rows if row["data"] == name]
        for column in _unique(own, "column"):
            means = {method: _mean(own, method, column) for method in (*alternatives, *present)}
            rivals = {m: means[m] for m in alternatives if not np.isnan(means[m])}
            if not rivals:
                continue
            best = min(rivals, key=lambda m: rivals[m])
            for method in present:
                if not np.isnan(means[method]):
                    longest[method] = max(longest[method], means[method] / rivals[best])
            cells = [_format(means[method]) + _seeds_note(own, method) for method in present]
            main = "Shortlister" if "Shortlister" in present else present[0] if present else "LAC"
            print(
                f"| {name} | {column} | {_format(means['LAC'])} | {rivals[best]:.3f} | {best} | "
                f"{' | '.join(cells)} | {_format(means[main] / rivals[best])} |"
            )
    for method, ratio in longest.items():
        print(f"\n{method}: at most {ratio:.3f} of the strongest rival.")


def show_columns(rows: Rows) -> None:
    """Print the mean sizes of all methods, each in a column, for each problem and accuracy."""
    methods = _unique(rows, "method")
    print("\n### All methods side by side\n")
    print(f"| data | accuracy | {' | '.join(methods)} |")
    print("|---|---|" + "---|" * len(methods))
    for name in _unique(rows, "data"):
        own = [row for row in rows if row["data"] == name]
        for column in _unique(own, "column"):
            cells = [_format(_mean(own, method, column)) for method in methods]
            print(f"| {name} | {column} | {' | '.join(cells)} |")


def _unique(rows: Rows, field: str) -> list[str]:
    return list(dict.fromkeys(row[field] for row in rows))


def _seeds_note(rows: Rows, method: str) -> str:
    """Return the number of seeds of a method in parentheses, unless it has all seeds."""
    measured = {row["seed"] for row in rows if row["method"] == method}
    everything = {row["seed"] for row in rows}
    return "" if measured in (set(), everything) else f" ({len(measured)} seeds)"


def _by_seed(rows: Rows, method: str, column: str) -> dict[int, float]:
    """Return the mean size of a method for each seed."""
    return {
        row["seed"]: row["size"]
        for row in rows
        if (row["method"], row["column"]) == (method, column)
    }


def _mean(rows: Rows, method: str, column: str) -> float:
    """Return the mean size of a method over all seeds; NaN if it was not measured."""
    sizes = list(_by_seed(rows, method, column).values())
    return float(np.mean(sizes)) if sizes else float("nan")


def _spread(values: list[float]) -> str:
    """Return mean ± standard deviation."""
    if not values or np.isnan(values).any():
        return "-"
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def _ratio(own: dict[int, float], rival: dict[int, float]) -> str:
    """Return the mean of the ratios with the same seed, and its standard error."""
    ratios = [own[seed] / rival[seed] for seed in own if seed in rival]
    if not ratios or np.isnan(ratios).any():
        return "-"
    error = np.std(ratios, ddof=1) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    return f"{np.mean(ratios):.3f} ± {error:.3f}"


def _format(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}"
