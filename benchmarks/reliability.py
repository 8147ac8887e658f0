"""Is the accuracy kept? Every method, world and calibration size, many times over.

python benchmarks/reliability.py                     # prints the tables (about ten minutes)
python benchmarks/reliability.py --paste             # and puts them into docs/reliability.md
python benchmarks/reliability.py --repetitions 20    # a quick look

Each repetition draws calibration rows and new rows from one pool without replacement, so that they
are exchangeable exactly. The calibration rows are float64 and come in one batch; the new rows are
float32 and come in batches of 97. What learns does so once for each world, from rows of its own.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray

import shortlist as sl
from shortlist.datasets import Rows

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reliability.md"
ACCURACY, DELTA = 0.9, 0.1
CALIBRATION = (20, 99, 400)
CLASSES, FEATURES = 8, 4
POOL, NEW, BATCH = 12_000, 194, 97
MANY = 10
"""So many times as many new rows, and as large batches, judge each calibration by itself."""
NETWORKS = {"max_epochs": 6, "width": 64, "rank_width": 32, "progress": False}
Floats = NDArray[np.floating]


# Worlds


def smooth(rng: np.random.Generator, rows: int) -> Rows:
    """No ties. The classifier is right about half of what there is to know."""
    logits = rng.normal(size=(rows, CLASSES)) * rng.uniform(0.5, 4, size=(rows, 1))
    features = rng.normal(size=(rows, FEATURES))
    truth = logits + features @ rng.normal(size=(FEATURES, CLASSES))
    y = (truth + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return Rows(logits, features=features, y=y)


def within_rows(rng: np.random.Generator, rows: int) -> Rows:
    """Probabilities are multiples of 1/16, so that most rows have ties."""
    truth = rng.dirichlet(np.full(CLASSES, 0.6), size=rows)
    counts = np.stack([rng.multinomial(16, p) for p in truth])
    y = (truth.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=CLASSES - 1)
    features = truth[:, :FEATURES] + 1e-3 * rng.normal(size=(rows, FEATURES))
    return Rows(counts / 16, features=features, y=y)


def between_rows(rng: np.random.Generator, rows: int) -> Rows:
    """Every row is one of seven: each threshold is the level of very many labels."""
    truth = rng.dirichlet(np.full(CLASSES, 0.6), size=7)
    logits = np.round(np.log(truth + 0.02) + rng.normal(size=truth.shape), 1)
    features = rng.normal(size=(7, FEATURES)) * [0.1, 1, 10, 100] + 50
    kind = rng.integers(7, size=rows)
    y = (truth[kind].cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=CLASSES - 1)
    return Rows(logits[kind], features=features[kind], y=y)


def imbalanced(rng: np.random.Generator, rows: int) -> Rows:
    """Classes from 60% of the rows down to 0.5%; the rare ones are hard."""
    weights = np.array([0.6, 0.2, 0.1, 0.05, 0.03, 0.01, 0.005, 0.005])
    y = rng.choice(CLASSES, size=rows, p=weights)
    signal = np.linspace(4, 1, CLASSES)[y][:, None] * np.eye(CLASSES)[y]
    logits = rng.normal(size=(rows, CLASSES)) * 1.5 + signal
    features = logits[:, :FEATURES] + rng.normal(size=(rows, FEATURES))
    return Rows(logits, features=features, y=y)


def misleading(rng: np.random.Generator, rows: int) -> Rows:
    """A classifier that is sure, and no better than chance for a third of the rows."""
    y = rng.integers(CLASSES, size=rows)
    shown = np.where(rng.random(rows) < 1 / 3, rng.integers(CLASSES, size=rows), y)
    logits = rng.normal(size=(rows, CLASSES)) + 12 * np.eye(CLASSES)[shown]
    features = np.eye(CLASSES)[y][:, :FEATURES] + rng.normal(size=(rows, FEATURES))
    return Rows(logits, features=features, y=y)


WORLDS: dict[str, Callable[[np.random.Generator, int], Rows]] = {
    "no ties": smooth,
    "ties within rows": within_rows,
    "ties between rows": between_rows,
    "imbalanced": imbalanced,
    "misleading": misleading,
}

# Methods


@dataclass(frozen=True)
class Method:
    """What is fitted, and what is asked of it."""

    make: Callable[[], sl.SetPredictor]
    asked: dict[str, object]
    share_below: bool = False
    """Whether a share 1 - delta of the calibrations must keep the accuracy, not their mean."""


def conformal(score: str, **how: object) -> Callable[[], sl.SetPredictor]:
    return lambda: sl.SplitConformal(score, calibration=None, allow_empty=True, **how)


def shortlister(**stages: bool) -> Callable[[], sl.SetPredictor]:
    return lambda: sl.Shortlister(calibration=None, allow_empty=True, **stages, **NETWORKS)


METHODS: dict[str, Method] = {
    **{name: Method(conformal(name), {}) for name in ("lac", "aps", "raps", "saps")},
    **{name: Method(conformal(name, temperature=None), {}) for name in ("topk", "margin")},
    **{
        f"{name}, randomized": Method(conformal(name, randomized=True), {})
        for name in ("aps", "raps", "saps", "topk")
    },
    "plug-in, log cost": Method(
        lambda: sl.PlugInSelector(cost="log", cost_weight=None, allow_empty=True), {}
    ),
    "Shortlister, nothing learned": Method(shortlister(rescore=False, learn_sizes=False), {}),
    "Shortlister, re-scored": Method(shortlister(rescore=True, learn_sizes=False), {}),
    "Shortlister, sizes": Method(shortlister(rescore=False, learn_sizes=True), {}),
    "Shortlister, both": Method(shortlister(rescore=True, learn_sizes=True), {}),
    "lac, by class": Method(conformal("lac"), {"by": "class"}),
    "lac, delta = 0.1": Method(conformal("lac"), {"delta": DELTA}, share_below=True),
    "aps, delta = 0.1": Method(conformal("aps"), {"delta": DELTA}, share_below=True),
    "Shortlister, delta = 0.1": Method(
        shortlister(rescore=True, learn_sizes=True), {"delta": DELTA}, share_below=True
    ),
}


def in_batches(model: sl.SetPredictor, new: Rows, asked: dict[str, object]) -> NDArray[np.bool_]:
    """Whether the set of each new row contains its label."""
    held = []
    batch = BATCH * (len(new) // NEW)
    for start in range(0, len(new), batch):
        part = new[slice(start, start + batch)]
        single, x = part.scores.astype(np.float32), part.features.astype(np.float32)
        given = x if isinstance(model, sl.Shortlister) and model.uses_features else None
        sets = model.predict_set(single, given, **asked)  # type: ignore[arg-type]
        held.append(np.asarray(sets.contains(part.y)))
    return np.concatenate(held)


def repeat(
    method: Method, learn: Rows, pool: Rows, sizes: tuple[int, ...], repetitions: int
) -> Iterator[tuple[int, list[float]]]:
    """For each calibration size, the accuracy that each repetition kept."""
    model = method.make()
    learns = isinstance(model, sl.Shortlister) and model.rescore
    uses = learns or (isinstance(model, sl.Shortlister) and model.learn_sizes)
    model.fit(learn.scores, learn.y, learn.features if uses else None)
    rng, asked = np.random.default_rng(7), MANY * NEW if method.share_below else NEW
    for rows in sizes:
        found = []
        for _ in range(repetitions):
            order = rng.permutation(len(pool))
            kept, new = pool[order[:rows]], pool[order[rows : rows + asked]]
            model.calibrate(kept.scores, kept.y, kept.features if uses else None)  # type: ignore[attr-defined]
            try:
                held = in_batches(model, new, {"accuracy": ACCURACY, **method.asked})
            except sl.conformal.UnreachableError:
                break
            found.append(float(held.mean()))
        yield rows, found


def cell(method: Method, found: list[float]) -> tuple[str, bool]:
    """What a table says of some repetitions, and whether it is what was guaranteed."""
    if not found:
        return "refused", True
    if method.share_below:
        # A measured accuracy has an error of its own; the accuracy itself falls short less often.
        noise = 2 * math.sqrt(ACCURACY * (1 - ACCURACY) / (MANY * NEW))
        share = float(np.mean(np.array(found) < ACCURACY - noise))
        error = math.sqrt(DELTA * (1 - DELTA) / len(found))
        return f"{share:.1%} below", share <= DELTA + 3 * error
    mean, error = float(np.mean(found)), float(np.std(found, ddof=1) / math.sqrt(len(found)))
    return f"{mean:.4f} ± {error:.4f}", mean >= ACCURACY - 3 * error


def coverage(repetitions: int, sizes: tuple[int, ...]) -> tuple[str, int]:
    """The table of all methods, and how many cells are not as guaranteed."""
    lines = [f"| method | rows | {' | '.join(WORLDS)} |", "|---|---|" + "---|" * len(WORLDS)]
    drawn = {}
    for i, (name, world) in enumerate(WORLDS.items()):
        whole = world(np.random.default_rng(i), 1000 + POOL)
        drawn[name] = whole[slice(0, 1000)], whole[slice(1000, None)]
    works = [
        delayed(_kept)(name, *drawn[world], sizes, repetitions)
        for name in METHODS
        for world in WORLDS
    ]
    each = iter(Parallel(n_jobs=-1, return_as="generator")(works))
    short = 0
    for name, method in METHODS.items():
        begun = time.monotonic()
        by_world = [next(each) for _ in WORLDS]
        for rows in sizes:
            cells = [cell(method, found[rows]) for found in by_world]
            short += sum(not fine for _, fine in cells)
            shown = [text if fine else f"**{text}**" for text, fine in cells]
            lines.append(f"| {name} | {rows} | {' | '.join(shown)} |")
        print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return "\n".join(lines), short


def _kept(
    name: str, learn: Rows, pool: Rows, sizes: tuple[int, ...], repetitions: int
) -> dict[int, list[float]]:
    """The work of one process."""
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    return dict(repeat(METHODS[name], learn, pool, sizes, repetitions))


def unlisted(repetitions: int) -> tuple[str, int]:
    """Lists of candidates, and classes that were never learned: answers, and what they keep."""
    shares = (0.85, 0.899, 0.91, 0.93, 0.96, 0.99)
    lines = [
        f"| rows | {' | '.join(f'{100 * s:g}% listed' for s in shares)} |",
        "|---|" + "---|" * len(shares),
    ]
    short = 0
    rng = np.random.default_rng(11)
    for rows in (100, 400, 1600):
        cells = []
        for share in shares:
            kept = []
            for _ in range(repetitions):
                model = sl.SplitConformal("lac", temperature=None, allow_empty=True)
                model.fit(*lists(rng, rows, share))
                ranking, y = lists(rng, NEW, share)
                try:
                    kept.append(model.predict_set(ranking, accuracy=ACCURACY).accuracy(y))
                except sl.conformal.UnreachableError:
                    continue
            answered = len(kept) / repetitions
            mean = float(np.mean(kept)) if kept else math.nan
            error = float(np.std(kept, ddof=1) / math.sqrt(len(kept))) if len(kept) > 1 else 0.1
            rate = sl.conformal.LISTING_ERROR
            rare = answered <= rate + 3 * math.sqrt(rate * (1 - rate) / repetitions)
            fine = rare or mean >= ACCURACY - 3 * error
            short += not fine
            text = f"{answered:.1%} answered" + (f", {mean:.4f} ± {error:.4f}" if kept else "")
            cells.append(text if fine else f"**{text}**")
        lines.append(f"| {rows} | {' | '.join(cells)} |")
    return "\n".join(lines), short


def lists(
    rng: np.random.Generator, rows: int, share: float
) -> tuple[sl.Ranking, NDArray[np.int64]]:
    """Lists of five of twenty labels, a share of which contain the right one."""
    labels = np.argsort(rng.random((rows, 20)), axis=1)[:, :6]
    scores = -np.sort(-rng.dirichlet(np.full(6, 0.7), size=rows), axis=1)[:, :5]
    place = np.where(rng.random(rows) < share, rng.integers(0, 5, size=rows), 5)
    ranking = sl.Ranking.from_candidates(labels[:, :5], scores, n_classes=20)
    return ranking, labels[np.arange(rows), place]


def paste(name: str, table: str) -> None:
    """Put a table between its marks in the page."""
    marks = f"<!-- {name} -->", f"<!-- /{name} -->"
    text, count = re.subn(
        f"({re.escape(marks[0])}\n).*?({re.escape(marks[1])})",
        lambda found: f"{found[1]}{table}\n{found[2]}",
        PAGE.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    if count != 1:
        raise SystemExit(f"{PAGE.name} must hold {marks[0]} … {marks[1]} once; found {count}")
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--sizes", type=int, nargs="+", default=CALIBRATION)
    parser.add_argument("--paste", action="store_true", help="put the tables into the page")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    tables = {
        "coverage": coverage(given.repetitions, tuple(given.sizes)),
        "unlisted": unlisted(given.repetitions),
    }
    for name, (table, _) in tables.items():
        print(f"\n{table}")
        if given.paste:
            paste(name, f"{given.repetitions} calibrations for each cell:\n\n{table}")
    short = sum(count for _, count in tables.values())
    print(f"\n{short} of the cells are more than three standard errors below what is guaranteed")
    raise SystemExit(short > 0)


if __name__ == "__main__":
    main()
