"""Compute the paper's experiments without the packages of the command line.

    python -m shortlist.paper --data DIR -o OUT --scale full --seeds 0 1 2 --numbers-only
    python -m shortlist.paper --data DIR -o OUT --scale full --seeds 0 1 2 --stored

The first command stores outcomes in OUT/kept. Commands with other figures or seeds can run side by
side, also on other machines. The second one makes figures and page from all stored outcomes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from shortlist.paper.figures import FIGURES
from shortlist.paper.scale import SCALES
from shortlist.paper.study import compute, run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a study with the options of the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The options. By default, those of the process.
    """
    parser = argparse.ArgumentParser(prog="python -m shortlist.paper", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the feature files")
    parser.add_argument("--output", "-o", type=Path, default=Path("shortlist-paper"))
    parser.add_argument("--figures", nargs="+", choices=list(FIGURES), help="default: all")
    parser.add_argument("--scale", choices=list(SCALES), default="default")
    parser.add_argument("--seeds", nargs="+", type=int, help="the seeds, such as 0 1 2")
    parser.add_argument("--workers", type=int, help="number of processes")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    parser.add_argument("--page", type=Path, help="default: paper.md in the output folder")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--numbers-only", action="store_true", help="make no figures and no page")
    group.add_argument("--stored", action="store_true", help="compute nothing")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    where = (options.data, options.output, options.figures)
    if options.numbers_only:
        folder = compute(
            *where,
            scale=options.scale,
            seeds=options.seeds,
            workers=options.workers,
            device=options.device,
        )
        count = len(list(folder.glob("[!.]*.json")))
        print(f"{count} outcomes in {folder}   ({time.monotonic() - begun:.0f} s)")
        return
    report = run(
        *where,
        scale=options.scale,
        seeds=options.seeds,
        workers=options.workers,
        device=options.device,
        page=options.page,
        stored=options.stored,
    )
    for finding in report.findings:
        print(f"{finding.verdict:>21}  {finding.claim}")
    print(f"{report.page}   ({time.monotonic() - begun:.0f} s)")


if __name__ == "__main__":
    main()
