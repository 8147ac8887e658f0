"""Draw docs/images/report.png: the HTML report of a comparison, in a browser.

python tools/report_picture.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import shortlist as sl

TARGET = Path(__file__).parent.parent / "docs" / "images" / "report.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = (1180, 1180)


def main() -> None:
    """Compare three methods on digits, write the report and save a picture of its first screen."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit("no Chromium is installed (Debian: apt-get install chromium)")
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        compare().report(report, title="Prediction sets: handwritten digits")
        subprocess.run(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/profile",
                f"--window-size={SIZE[0]},{SIZE[1]}",
                f"--screenshot={TARGET}",
                report.as_uri(),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")


def compare() -> sl.Comparison:
    """Return the comparison of the home page: a weak classifier of digits, and three methods."""
    fit, select, test = sl.datasets.digits().split(100, 1100)
    h = sl.LinearClassifier(max_epochs=5, validation_fraction=0).fit(fit.x, fit.y)
    return sl.compare(
        h.decision_function(select.x),
        select.y,
        select.x,
        test=(h.decision_function(test.x), test.y, test.x),
        methods={
            "Shortlister": sl.Shortlister(effort="fast"),
            "LAC": sl.SplitConformal("lac"),
            "top-k": sl.SplitConformal("topk"),
        },
        accuracies=[0.99],
    )


if __name__ == "__main__":
    main()
