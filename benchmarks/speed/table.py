"""Format the results: all tables as text, and a summary for the README.

python benchmarks/speed/table.py              # print all tables
python benchmarks/speed/table.py --paste      # paste the summary (`make bench-table`)
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

from growth import curves, slope
from tasks import BENCHMARKS, CONFORMAL

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGES = ROOT / "README.md", ROOT / "docs" / "speed.md"
MARKS = "<!-- bench -->", "<!-- /bench -->"
NAMES = {"mapie": "MAPIE", "torchcp": "TorchCP", "puncc": "puncc", "crepes": "crepes"}
Result = dict[str, Any]


def main() -> None:
    """Print all tables, or paste the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--paste", action="store_true", help="paste the summary into README.md and docs/speed.md"
    )
    options = parser.parse_args()
    saved = json.loads((HERE / "results.json").read_text())
    if options.paste:
        for page in PAGES:
            paste(page, summary_table(saved))
        shutil.copy(HERE / "growth.png", ROOT / "docs" / "images")
    else:
        print(full_tables(saved))


def paste(page: Path, table: str) -> None:
    """Replace the table between the marks of a page."""
    start, end = map(re.escape, MARKS)
    text, count = re.subn(
        f"({start}\n).*?({end})",
        lambda match: f"{match[1]}{table}\n{match[2]}",
        page.read_text(),
        flags=re.DOTALL,
    )
    if count != 1:
        raise SystemExit(
            f"{page.name} must contain {MARKS[0]} … {MARKS[1]} once, not {count} times"
        )
    page.write_text(text)


def full_tables(saved: dict[str, Any]) -> str:
    """Return all results as text."""
    benchmarks = saved["benchmarks"]
    lines = [f"Python {saved['python']}, {saved['cores']} cores; {versions(benchmarks)}"]
    for name, results in benchmarks.items():
        lines += ["", f"## {BENCHMARKS[name].title}", ""]
        if name == "growth":
            lines += growth_lines(results)
        elif name == "fits":
            lines += [
                f"{r['label']}: {r['seconds']:.2f} s; 20 training loops {r['loops']:.2f} s; "
                f"ratio {r['loops'] / r['seconds']:.1f} ({r['epochs']} epochs)"
                for r in results
            ]
        elif name in ("latency", "import"):
            lines += [
                f"{r['library']}, {r['label']}: {1000 * r['median']:.3g} ms{loaded_modules(r)}"
                for r in results
            ]
        else:
            lines += conformal_lines(results)
    return "\n".join(lines)


def conformal_lines(results: list[Result]) -> list[str]:
    """Return the table of one benchmark of conformal prediction."""
    own = results[0]
    lines = [
        f"{own['rows']:,} calibration rows and {own['new_rows']:,} new rows; size and coverage are "
        "means over rows and levels. Busy: two other processes keep cores busy.",
        "",
        "| library | best s | median s | calibrate | predict | ratio | busy: best s | median s "
        "| ratio | CPU s | CPU ratio | peak MB | size | coverage |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        times = [result[k] for k in ("seconds", "median", "calibrate", "predict")]
        cells = [format_time(time) for time in times]
        cells.append(f"{result['seconds'] / own['seconds']:.2f}")
        busy = result.get("busy")
        cells += [format_time(busy[k]) if busy else "-" for k in ("seconds", "median")]
        both = busy and "busy" in own
        cells.append(f"{busy['seconds'] / own['busy']['seconds']:.2f}" if both else "-")
        cells += [f"{result['cpu']:.2f}", f"{result['cpu'] / own['cpu']:.2f}"]
        cells.append(format_memory(result))
        cells += [f"{result['mean_size']:.2f}", f"{result['coverage']:.3f}"]
        lines.append(f"| {library_name(result)}{scaling_note(result)} | {' | '.join(cells)} |")
    if len(results) > 1:
        different = [library_name(r) for r in results[1:] if not has_similar_sets(r, own)]
        lines += ["", f"Libraries with different sets: {', '.join(different) or 'none'}."]
    return lines


def library_name(result: Result) -> str:
    """Return the library of a result, with the parameters that are not its defaults."""
    return ", ".join(filter(None, (result["library"], result.get("label"))))


def format_time(seconds: float) -> str:
    """Return a time with three decimals below one second."""
    return f"{seconds:.3f}" if seconds < 1 else f"{seconds:,.2f}"


def has_similar_sets(result: Result, other: Result) -> bool:
    """Return whether two libraries have about the same mean size and coverage."""
    noise = 3 * 0.5 / min(result["new_rows"], other["new_rows"]) ** 0.5
    similar_coverage = abs(result["coverage"] - other["coverage"]) < 0.02 + noise
    return similar_coverage and 0.75 < result["mean_size"] / other["mean_size"] < 1.33


def scaling_note(result: Result) -> str:
    """Return a note on figures that are scaled up from fewer rows."""
    return f" ({result['fewer_rows']:g}× fewer rows)" if "fewer_rows" in result else ""


def format_memory(result: Result) -> str:
    """Return the memory, or a dash if it is unknown."""
    # crepes is measured on too few rows to estimate its memory for all of them.
    unknown = result["library"] == "crepes" or result["memory"] is None
    return "-" if unknown else f"{result['memory']:,.0f}"


def growth_lines(results: list[Result]) -> list[str]:
    """Return values and slopes for each method and axis."""
    lines = []
    for axis, methods in curves(results).items():
        for method, points in methods.items():
            for quantity in ("seconds", "memory"):
                exponent = slope(points, axis, quantity)
                values = ", ".join(f"{p[quantity] or 0:.3g}" for p in points)
                text = "unknown (too small)" if exponent is None else f"{exponent:.2f}"
                lines.append(f"{method} by {axis}: {quantity} {values}; slope {text}")
    return lines


def loaded_modules(result: Result) -> str:
    """Return which heavy modules an import loads."""
    return f"; loads {', '.join(result['loaded']) or 'neither'}" if "loaded" in result else ""


def versions(benchmarks: dict[str, list[Result]]) -> str:
    """Return the version of every measured library."""
    by_library = {
        result["library"]: result["version"]
        for results in benchmarks.values()
        for result in results
        if "version" in result
    }
    return ", ".join(f"{library} {version}" for library, version in by_library.items())


def summary_table(saved: dict[str, Any]) -> str:
    """Return this library, plain NumPy and the fastest other library, as Markdown."""
    benchmarks = saved["benchmarks"]
    lines = [
        "| task | shortlist | plain NumPy | fastest alternative | ratio | ratio, busy "
        "| additional memory of both |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, results in benchmarks.items():
        others = [result for result in results if result["library"] in NAMES]
        if name in CONFORMAL and others:
            best = min(others, key=lambda result: float(result["seconds"]))
            plain = [format_seconds(r) for r in results if r["library"] == "numpy"]
            library = f"{NAMES[best['library']]}, {format_seconds(best)}{scaling_note(best)}"
            for own in (result for result in results if result["library"] == "shortlist"):
                label = f", `{own['label']}`" if own.get("label") else ""
                cells = [f"{BENCHMARKS[name].title}{label}", format_seconds(own)]
                cells += [*(plain or [""]), library]
                cells.append(format_ratio(best["seconds"] / own["seconds"]))
                cells += [busy_ratio(own, others), f"{format_memory(own)} MB, "]
                cells[-1] += f"{format_memory(best)} MB"
                lines.append(f"| {' | '.join(cells)} |")
    for result in benchmarks.get("fits", []):
        ratio = format_ratio(result["loops"] / result["seconds"])
        busy = result.get("busy")
        cells = [format_seconds(result), "", f"20 training loops, {result['loops']:.1f} s", ratio]
        cells += [format_ratio(busy["loops"] / busy["seconds"]) if busy else "", ""]
        lines.append(f"| fit: {result['label']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def busy_ratio(own: Result, others: list[Result]) -> str:
    """Return how much faster than the fastest other library this one is beside busy processes."""
    times = [result["busy"]["seconds"] for result in others if "busy" in result]
    if not times or "busy" not in own:
        return ""
    return format_ratio(min(times) / own["busy"]["seconds"])


def format_seconds(result: Result) -> str:
    """Return the time of the fastest round, quiet and beside busy processes."""
    busy = f" (busy {result['busy']['seconds']:.2f} s)" if "busy" in result else ""
    return f"{result['seconds']:.2f} s{busy}"


def format_ratio(value: float) -> str:
    """Return a ratio with two digits."""
    return f"{value:.2g}×" if value < 10 else f"{value:.0f}×"


if __name__ == "__main__":
    main()
