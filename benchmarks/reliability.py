"""Measure the accuracy of every method over many calibrations.

python benchmarks/reliability.py                     # print the tables (about ten minutes)
python benchmarks/reliability.py --paste             # also paste them into docs/reliability.md
python benchmarks/reliability.py --repetitions 20    # a quick run

Each repetition draws calibration rows and new rows from one pool without replacement, so that they
are exactly exchangeable. The calibration rows are float64 and come in one batch; the new rows are
float32 and come in batches of 97. Networks are trained once for each distribution, on other rows.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray

import shortlist as sl
from shortlist.datasets import Rows

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reliability.md"
ACCURACY, DELTA = 0.9, 0.1
CALIBRATION_SIZES = (20, 99, 400)
CLASSES, FEATURES = 8, 4
FIT_ROWS, POOL_ROWS, NEW_ROWS, BATCH = 1000, 12_000, 194, 97
CONFIDENCE_FACTOR = 10
"""Factor by which new rows and batches are larger if each calibration is tested by itself."""
NETWORKS = {"max_epochs": 6, "width": 64, "rank_width": 32, "progress": False}
Floats = NDArray[np.floating]


# Distributions of scores, features and labels


def smooth(rng: np.random.Generator, rows: int) -> Rows:
    """Draw scores without ties; the features have as much information as the scores."""
    logits = rng.normal(size=(rows, CLASSES)) * rng.uniform(0.5, 4, size=(rows, 1))
    features = rng.normal(size=(rows, FEATURES))
    truth = logits + features @ rng.normal(size=(FEATURES, CLASSES))
    y = (truth + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return Rows(logits, features=features, y=y)


def within_rows(rng: np.random.Generator, rows: int) -> Rows:
    """Draw probabilities that are multiples of 1/16, so that most rows have ties."""
    truth = rng.dirichlet(np.full(CLASSES, 0.6), size=rows)
    counts = np.stack([rng.multinomial(16, p) for p in truth])
    y = (truth.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=CLASSES - 1)
    features = truth[:, :FEATURES] + 1e-3 * rng.normal(size=(rows, FEATURES))
    return Rows(counts / 16, features=features, y=y)


def between_rows(rng: np.random.Generator, rows: int) -> Rows:
    """Draw from seven distinct rows, so that very many labels tie with each threshold."""
    truth = rng.dirichlet(np.full(CLASSES, 0.6), size=7)
    logits = np.round(np.log(truth + 0.02) + rng.normal(size=truth.shape), 1)
    features = rng.normal(size=(7, FEATURES)) * [0.1, 1, 10, 100] + 50
    row = rng.integers(7, size=rows)
    y = (truth[row].cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=CLASSES - 1)
    return Rows(logits[row], features=features[row], y=y)


def imbalanced(rng: np.random.Generator, rows: int) -> Rows:
    """Draw classes with 60% down to 0.5% of the rows; rare classes are hard to predict."""
    weights = np.array([0.6, 0.2, 0.1, 0.05, 0.03, 0.01, 0.005, 0.005])
    y = rng.choice(CLASSES, size=rows, p=weights)
    signal = np.linspace(4, 1, CLASSES)[y][:, None] * np.eye(CLASSES)[y]
    logits = rng.normal(size=(rows, CLASSES)) * 1.5 + signal
    features = logits[:, :FEATURES] + rng.normal(size=(rows, FEATURES))
    return Rows(logits, features=features, y=y)


def misleading(rng: np.random.Generator, rows: int) -> Rows:
    """Draw scores with very high confidence that are random for a third of the rows."""
    y = rng.integers(CLASSES, size=rows)
    predicted = np.where(rng.random(rows) < 1 / 3, rng.integers(CLASSES, size=rows), y)
    logits = rng.normal(size=(rows, CLASSES)) + 12 * np.eye(CLASSES)[predicted]
    features = np.eye(CLASSES)[y][:, :FEATURES] + rng.normal(size=(rows, FEATURES))
    return Rows(logits, features=features, y=y)


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int], Rows]] = {
    "no ties": smooth,
    "ties within rows": within_rows,
    "ties between rows": between_rows,
    "imbalanced": imbalanced,
    "misleading": misleading,
}

# Methods


@dataclass(frozen=True)
class Method:
    """A set predictor to fit, and the guarantee to ask for."""

    create: Callable[[], sl.SetPredictor]
    guarantee: dict[str, object] = field(default_factory=dict)
    with_features: bool = False

    @property
    def n_new(self) -> int:
        """Number of new rows on which each calibration is tested."""
        return NEW_ROWS * (CONFIDENCE_FACTOR if "delta" in self.guarantee else 1)


def conformal(score: str, **parameters: object) -> Callable[[], sl.SetPredictor]:
    """Return a constructor of `SplitConformal`."""
    return partial(sl.SplitConformal, score, calibration=None, allow_empty=True, **parameters)


def shortlister(*, rescore: bool, learn_sizes: bool, **guarantee: object) -> Method:
    """Return a Shortlister with given stages; it has features if it has a stage."""
    stages = {"rescore": rescore, "learn_sizes": learn_sizes}
    create = partial(sl.Shortlister, calibration=None, allow_empty=True, **stages, **NETWORKS)
    return Method(create, guarantee, with_features=rescore or learn_sizes)


METHODS: dict[str, Method] = {
    **{name: Method(conformal(name)) for name in ("lac", "aps", "raps", "saps")},
    **{name: Method(conformal(name, temperature=None)) for name in ("topk", "margin")},
    **{
        f"{name}, randomized": Method(conformal(name, randomized=True))
        for name in ("aps", "raps", "saps", "topk")
    },
    "plug-in, log cost": Method(
        partial(sl.PlugInSelector, cost="log", cost_weight=None, allow_empty=True)
    ),
    "Shortlister, no stage": shortlister(rescore=False, learn_sizes=False),
    "Shortlister, stage 1": shortlister(rescore=True, learn_sizes=False),
    "Shortlister, stage 2": shortlister(rescore=False, learn_sizes=True),
    "Shortlister, both stages": shortlister(rescore=True, learn_sizes=True),
    "lac, by class": Method(conformal("lac"), {"by": "class"}),
    "lac, delta = 0.1": Method(conformal("lac"), {"delta": DELTA}),
    "aps, delta = 0.1": Method(conformal("aps"), {"delta": DELTA}),
    "Shortlister, delta = 0.1": shortlister(rescore=True, learn_sizes=True, delta=DELTA),
}


def accuracy_in_batches(method: Method, model: sl.SetPredictor, new: Rows) -> float:
    """Return the accuracy of the sets of new rows, predicted in float32 and in batches."""
    hits = []
    batch = BATCH * (len(new) // NEW_ROWS)
    for start in range(0, len(new), batch):
        part = new[slice(start, start + batch)]
        scores, features = part.scores.astype(np.float32), part.features.astype(np.float32)
        sets = model.predict_set(
            scores,
            features if method.with_features else None,
            accuracy=ACCURACY,
            **method.guarantee,  # type: ignore[arg-type]
        )
        hits.append(np.asarray(sets.contains(part.y)))
    return float(np.concatenate(hits).mean())


def repeat(
    method: Method, fit: Rows, pool: Rows, sizes: tuple[int, ...], repetitions: int
) -> Iterator[tuple[int, list[float]]]:
    """Yield each calibration size with the accuracies of its repetitions."""
    model = method.create()

    def arguments(rows: Rows) -> tuple[object, ...]:
        return rows.scores, rows.y, rows.features if method.with_features else None

    model.fit(*arguments(fit))
    rng = np.random.default_rng(7)
    for rows in sizes:
        accuracies = []
        for _ in range(repetitions):
            order = rng.permutation(len(pool))
            new = pool[order[rows : rows + method.n_new]]
            model.calibrate(*arguments(pool[order[:rows]]))  # type: ignore[attr-defined]
            try:
                accuracies.append(accuracy_in_batches(method, model, new))
            except sl.conformal.UnreachableError:
                break
        yield rows, accuracies


def cell(method: Method, accuracies: list[float]) -> tuple[str, bool]:
    """Return the text of a table cell, and whether the accuracies agree with the guarantee."""
    if not accuracies:
        return "too few rows", True
    if "delta" in method.guarantee:
        # Only the measured accuracy is known. Its standard error is allowed for, so that the share
        # below is a lower bound of the share of calibrations with too low an accuracy.
        noise = 2 * math.sqrt(ACCURACY * (1 - ACCURACY) / method.n_new)
        share = float(np.mean(np.array(accuracies) < ACCURACY - noise))
        error = math.sqrt(DELTA * (1 - DELTA) / len(accuracies))
        return f"{share:.1%} below", share <= DELTA + 3 * error
    mean, error = mean_and_error(accuracies)
    return f"{mean:.4f} ± {error:.4f}", mean >= ACCURACY - 3 * error


def mean_and_error(accuracies: list[float]) -> tuple[float, float]:
    """Return the mean of some accuracies and its standard error."""
    return float(np.mean(accuracies)), float(np.std(accuracies, ddof=1) / len(accuracies) ** 0.5)


def accuracy_table(repetitions: int, sizes: tuple[int, ...]) -> tuple[str, int]:
    """Return the table of all methods, and the number of cells that violate the guarantee."""
    lines = [
        f"| method | rows | {' | '.join(DISTRIBUTIONS)} |",
        "|---|---|" + "---|" * len(DISTRIBUTIONS),
    ]
    drawn = [
        draw(np.random.default_rng(seed), FIT_ROWS + POOL_ROWS)
        for seed, draw in enumerate(DISTRIBUTIONS.values())
    ]
    tasks = [
        delayed(_repeat_in_process)(
            name, rows[slice(0, FIT_ROWS)], rows[slice(FIT_ROWS, None)], sizes, repetitions
        )
        for name in METHODS
        for rows in drawn
    ]
    results = iter(Parallel(n_jobs=-1, return_as="generator")(tasks))
    violations = 0
    for name, method in METHODS.items():
        start = time.monotonic()
        by_distribution = [next(results) for _ in DISTRIBUTIONS]
        for rows in sizes:
            cells = [cell(method, accuracies[rows]) for accuracies in by_distribution]
            violations += sum(not valid for _, valid in cells)
            texts = [text if valid else f"**{text}**" for text, valid in cells]
            lines.append(f"| {name} | {rows} | {' | '.join(texts)} |")
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    return "\n".join(lines), violations


def _repeat_in_process(
    name: str, fit: Rows, pool: Rows, sizes: tuple[int, ...], repetitions: int
) -> dict[int, list[float]]:
    """Run all repetitions of one method on one distribution."""
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    return dict(repeat(METHODS[name], fit, pool, sizes, repetitions))


def candidates_table(repetitions: int) -> tuple[str, int]:
    """Return the table for candidates, and the number of cells that violate the guarantee."""
    shares = (0.85, 0.899, 0.91, 0.93, 0.96, 0.99)
    lines = [
        f"| rows | {' | '.join(f'{100 * s:g}% listed' for s in shares)} |",
        "|---|" + "---|" * len(shares),
    ]
    violations = 0
    rng = np.random.default_rng(11)
    for rows in (100, 400, 1600):
        cells = []
        for share in shares:
            accuracies = []
            for _ in range(repetitions):
                model = sl.SplitConformal("lac", temperature=None, allow_empty=True)
                model.fit(*draw_candidates(rng, rows, share))
                ranking, y = draw_candidates(rng, NEW_ROWS, share)
                try:
                    accuracies.append(model.predict_set(ranking, accuracy=ACCURACY).accuracy(y))
                except sl.conformal.UnreachableError:
                    continue
            text, valid = candidates_cell(accuracies, repetitions)
            violations += not valid
            cells.append(text if valid else f"**{text}**")
        lines.append(f"| {rows} | {' | '.join(cells)} |")
    return "\n".join(lines), violations


def candidates_cell(accuracies: list[float], repetitions: int) -> tuple[str, bool]:
    """Return the text of a table cell, and whether the accuracies agree with the guarantee."""
    share = len(accuracies) / repetitions
    text = f"{share:.1%} succeeded"
    # The test for reachability may be wrong with this probability.
    rate = sl.conformal.LISTING_ERROR
    rare = share <= rate + 3 * math.sqrt(rate * (1 - rate) / repetitions)
    if not accuracies:
        return text, rare
    mean, error = mean_and_error(accuracies) if len(accuracies) > 1 else (accuracies[0], 0.1)
    return f"{text}, {mean:.4f} ± {error:.4f}", rare or mean >= ACCURACY - 3 * error


def draw_candidates(
    rng: np.random.Generator, rows: int, share: float
) -> tuple[sl.Ranking, NDArray[np.int64]]:
    """Draw five candidates of twenty labels; the true label is among them for a share of rows."""
    labels = np.argsort(rng.random((rows, 20)), axis=1)[:, :6]
    scores = -np.sort(-rng.dirichlet(np.full(6, 0.7), size=rows), axis=1)[:, :5]
    place = np.where(rng.random(rows) < share, rng.integers(0, 5, size=rows), 5)
    ranking = sl.Ranking.from_candidates(labels[:, :5], scores, n_classes=20)
    return ranking, labels[np.arange(rows), place]


def paste(name: str, table: str) -> None:
    """Replace the table between its marks in the page."""
    marks = f"<!-- {name} -->", f"<!-- /{name} -->"
    text, count = re.subn(
        f"({re.escape(marks[0])}\n).*?({re.escape(marks[1])})",
        lambda match: f"{match[1]}{table}\n{match[2]}",
        PAGE.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    if count != 1:
        raise SystemExit(
            f"{PAGE.name} must contain {marks[0]} … {marks[1]} once, not {count} times"
        )
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Print the tables; exit with an error if a guarantee is violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--sizes", type=int, nargs="+", default=CALIBRATION_SIZES)
    parser.add_argument("--paste", action="store_true", help="paste the tables into the page")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    tables = {
        "accuracy": accuracy_table(options.repetitions, tuple(options.sizes)),
        "candidates": candidates_table(options.repetitions),
    }
    for name, (table, _) in tables.items():
        print(f"\n{table}")
        if options.paste:
            paste(name, f"{options.repetitions} calibrations for each cell:\n\n{table}")
    violations = sum(count for _, count in tables.values())
    print(f"\n{violations} of the cells are more than three standard errors below the guarantee")
    raise SystemExit(violations > 0)


if __name__ == "__main__":
    main()
