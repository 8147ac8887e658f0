"""Tables of the results: all of them as text, and the essential rows for the README.

python benchmarks/speed/table.py              # prints all
python benchmarks/speed/table.py --paste      # pastes the essential rows (`make bench-table`)
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

from growth import curves, slope
from works import CONFORMAL, WORKS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGES = ROOT / "README.md", ROOT / "docs" / "speed.md"
MARKS = "<!-- bench -->", "<!-- /bench -->"
NAMES = {"mapie": "MAPIE", "torchcp": "TorchCP", "puncc": "puncc", "crepes": "crepes"}
Results = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paste", action="store_true", help="into README.md and docs/speed.md")
    given = parser.parse_args()
    kept = json.loads((HERE / "results.json").read_text())
    if given.paste:
        for page in PAGES:
            paste(page, essential(kept))
        shutil.copy(HERE / "growth.png", ROOT / "docs" / "images")
    else:
        print(printed(kept))


def paste(page: Path, table: str) -> None:
    """Put a table between the marks of a page."""
    start, end = map(re.escape, MARKS)
    text, count = re.subn(
        f"({start}\n).*?({end})",
        lambda found: f"{found[1]}{table}\n{found[2]}",
        page.read_text(),
        flags=re.DOTALL,
    )
    if count != 1:
        raise SystemExit(f"{page.name} must hold {MARKS[0]} … {MARKS[1]} once; found {count}")
    page.write_text(text)


def printed(kept: dict[str, Any]) -> str:
    """Everything that was measured."""
    lines = [f"Python {kept['python']}, {kept['cores']} cores; {versions(kept['works'])}"]
    for name, results in kept["works"].items():
        lines += ["", f"## {WORKS[name].title}", ""]
        if name == "growth":
            lines += growth_lines(results)
        elif name == "learning":
            lines += [
                f"{one['label']}: {one['seconds']:.2f} s; 20 loops {one['loops']:.2f} s; "
                f"ratio {one['loops'] / one['seconds']:.1f} ({one['epochs']} epochs)"
                for one in results
            ]
        elif name in ("latency", "import"):
            lines += [
                f"{one['library']}, {one['label']}: {1000 * one['median']:.3g} ms{loaded(one)}"
                for one in results
            ]
        else:
            lines += conformal_lines(results)
    return "\n".join(lines)


def conformal_lines(results: Results) -> list[str]:
    ours = results[0]
    lines = [
        f"{ours['rows']:,} rows to calibrate with, {ours['new_rows']:,} new ones; sizes and "
        "coverage are means, over levels too.",
        "",
        "| library | best s | median s | calibrate | predict | ratio | CPU s | CPU ratio | peak MB "
        "| size | coverage |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        times = [one[k] for k in ("seconds", "median", "calibrate", "predict")]
        cells = [f"{time:.3f}" if time < 1 else f"{time:,.2f}" for time in times]
        cells += [f"{one['seconds'] / ours['seconds']:.2f}", f"{one['cpu']:.2f}"]
        cells += [f"{one['cpu'] / ours['cpu']:.2f}", memory(one)]
        cells += [f"{one['mean_size']:.2f}", f"{one['coverage']:.3f}"]
        lines.append(f"| {one['library']}{fewer(one)} | {' | '.join(cells)} |")
    others = [one["library"] for one in results[1:] if not alike(one, ours)]
    differ = ["", f"Sets that differ: {', '.join(others) or 'none'}."] if results[1:] else []
    return [*lines, *differ]


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two libraries did the same work: about the same mean size and coverage."""
    chance = 3 * 0.5 / min(one["new_rows"], other["new_rows"]) ** 0.5
    near = abs(one["coverage"] - other["coverage"]) < 0.02 + chance
    return near and 0.75 < one["mean_size"] / other["mean_size"] < 1.33


def fewer(one: dict[str, Any]) -> str:
    """That a figure is extrapolated, and by how much."""
    return f" ({one['fewer_rows']:g}× fewer rows)" if "fewer_rows" in one else ""


def memory(one: dict[str, Any]) -> str:
    small = one["library"] == "crepes"  # so few rows tell nothing of the memory for all
    return "-" if small or one["memory"] is None else f"{one['memory']:,.0f}"


def growth_lines(results: Results) -> list[str]:
    lines = []
    for axis, methods in curves(results).items():
        for method, points in methods.items():
            for what in ("seconds", "memory"):
                at = slope(points, axis, what)
                shown = ", ".join(f"{one[what] or 0:.3g}" for one in points)
                grows = "too small to tell" if at is None else f"{at:.2f}"
                lines.append(f"{method} by {axis}: {what} {shown}; slope {grows}")
    return lines


def loaded(one: dict[str, Any]) -> str:
    return f"; loads {', '.join(one['loaded']) or 'neither'}" if "loaded" in one else ""


def versions(works: dict[str, Results]) -> str:
    """Of every library that took part."""
    found = {
        one["library"]: one["version"]
        for results in works.values()
        for one in results
        if "version" in one
    }
    return ", ".join(f"{library} {version}" for library, version in found.items())


def essential(kept: dict[str, Any]) -> str:
    """The rows that matter to somebody who chooses a library."""
    works = kept["works"]
    lines = [
        "| work | shortlist | fastest peer | ratio | memory over the input, both |",
        "|---|---|---|---|---|",
    ]
    for name, results in works.items():
        if name in CONFORMAL and len(results) > 1:
            ours, *peers = results
            peer = min(peers, key=lambda one: float(one["seconds"]))
            cells = [seconds(ours), f"{NAMES[peer['library']]}, {seconds(peer)}{fewer(peer)}"]
            cells += [ratio(peer["seconds"] / ours["seconds"])]
            cells += [f"{memory(ours)} MB, {memory(peer)} MB"]
            lines.append(f"| {WORKS[name].title} | {' | '.join(cells)} |")
    for one in works.get("learning", []):
        cells = [seconds(one), f"20 plain loops, {one['loops']:.1f} s"]
        cells += [ratio(one["loops"] / one["seconds"]), ""]
        lines.append(f"| fit: {one['label']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def seconds(one: dict[str, Any]) -> str:
    return f"{one['seconds']:.2f} s"


def ratio(value: float) -> str:
    return f"{value:.2g}×" if value < 10 else f"{value:.0f}×"


if __name__ == "__main__":
    main()
