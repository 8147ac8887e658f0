"""Measure the time of each part of a fit of the Shortlister.

    python benchmarks/fit_times.py                    # 20,000 rows × 256 features, 100 classes
    python benchmarks/fit_times.py --busy             # beside two processes that never rest
    python benchmarks/fit_times.py --features 2048 --efforts fast standard

The parts are measured inside a fit with all stages. CPU seconds are those of all threads: on a
machine that other processes use, they say more than the wall-clock time. The last column is the
negative log-likelihood of new rows after stage 1, so that a faster fit that learns less is noticed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import shortlist as sl
from shortlist.predictors.shortlister import rescoring
from shortlist.predictors.shortlister.opinions import Neighbors, ScaledScores
from shortlist.predictors.shortlister.pool import PoolFit
from shortlist.predictors.shortlister.rank_model import RankModel

PARTS: list[tuple[str, Any, str]] = [
    ("vector scaling", ScaledScores, "fit"),
    ("logistic regression", rescoring, "fit_logistic"),
    ("networks", rescoring, "fit_networks"),
    ("neighbors", Neighbors, "without_fold"),
    ("neighbors", Neighbors, "tables"),
    ("neighbors", Neighbors, "refit"),
    ("pool", PoolFit, "select"),
    ("stage 2", RankModel, "fit"),
]
"""Name of each part, and the function that does it: the owner and the attribute."""
NEIGHBORS = 2
"""Number of busy processes."""


@dataclass
class Clock:
    """Wall-clock and CPU seconds of the parts of a fit, which do not run inside each other."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Add the time of a block to a part."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            total = self.seconds.setdefault(part, [0.0, 0.0])
            total[0] += time.perf_counter() - wall
            total[1] += time.process_time() - cpu

    @contextmanager
    def measure_parts(self) -> Iterator[None]:
        """Measure the functions of `PARTS` inside the block."""
        originals = [(owner, name, vars(owner)[name]) for _, owner, name in PARTS]
        for part, owner, name in PARTS:
            setattr(owner, name, self._timed(part, getattr(owner, name)))
        try:
            yield
        finally:
            for owner, name, original in originals:
                setattr(owner, name, original)

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.measure(part):
                return function(*args, **kwargs)

        # The class is already bound to a class method, so that the class must not bind it again.
        return staticmethod(timed) if hasattr(function, "__self__") else timed


def draw(
    rows: int, n_features: int, n_classes: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw scores, labels, and features with information that the scores do not have.

    A part of the information is not linear in the features.
    """
    world, rng = np.random.default_rng(0), np.random.default_rng([1, seed])
    weights = world.standard_normal((2, n_features, n_classes), dtype=np.float32)
    weights /= np.sqrt(n_features)
    x = rng.standard_normal((rows, n_features), dtype=np.float32)
    signal = 2 * x @ weights[0] + (np.abs(x) - np.sqrt(2 / np.pi)).astype(np.float32) @ weights[1]
    scores = signal + rng.standard_normal(signal.shape, dtype=np.float32)
    y = (signal + scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return scores, y, x


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy_neighbors(count: int) -> Iterator[None]:
    """Run processes that keep a core busy each."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def negative_log_likelihood(ranking: sl.Ranking, y: np.ndarray) -> float:
    """Return the mean negative log-probability of the labels in a ranking of log-probabilities."""
    log_p = ranking.scores_of(slice(None))
    return -float(log_p.gather(1, torch.from_numpy(y)[:, None]).mean())


def measure_fit(effort: str, options: argparse.Namespace) -> None:
    """Print the time of each part of one fit."""
    data = draw(options.rows + options.test_rows, options.features, options.classes)
    (scores, new_scores), (y, new_y), (x, new_x) = (
        (part[: options.rows], part[options.rows :]) for part in data
    )
    model = sl.Shortlister(
        effort=effort,
        rescore=True,
        learn_sizes=True if options.stage_2 else "auto",
        calibration=None,
        score_type="logits",
        progress=False,
    )
    clock = Clock()
    with clock.measure_parts(), clock.measure("all"):
        model.fit(scores, y, x)
    wall, cpu = clock.seconds.pop("all")
    for part, (part_wall, part_cpu) in clock.seconds.items():
        print(f"{effort:<9} {part:<20} {part_wall:8.2f} {part_cpu:8.2f}", flush=True)
    rest = [total - sum(column) for total, column in zip((wall, cpu), _columns(clock), strict=True)]
    print(f"{effort:<9} {'rest':<20} {rest[0]:8.2f} {rest[1]:8.2f}")
    loss = negative_log_likelihood(model.rescored(new_scores, new_x), new_y)
    print(f"{effort:<9} {'all':<20} {wall:8.2f} {cpu:8.2f} {loss:11.4f}", flush=True)


def _columns(clock: Clock) -> list[tuple[float, ...]]:
    """Return the wall-clock seconds of all parts, and their CPU seconds."""
    return list(zip(*clock.seconds.values(), strict=True))


def main() -> None:
    """Print a table with the time of each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--test-rows", type=int, default=5000)
    parser.add_argument("--efforts", nargs="+", default=["fast", "standard", "best"])
    parser.add_argument("--stage-2", action="store_true", help='learn sizes with "fast", too')
    parser.add_argument("--busy", action="store_true", help="run two busy processes beside the fit")
    options = parser.parse_args()
    # Load what torch and scikit-learn load at their first use, so that it is not measured.
    scores, y, x = draw(300, 8, 5)
    sl.Shortlister(rescore=True, learn_sizes=True, max_epochs=1, progress=False).fit(scores, y, x)
    print(
        f"{options.rows:,} rows × {options.features} features, {options.classes} classes; "
        f"{torch.get_num_threads()} threads{', busy neighbors' if options.busy else ''}"
    )
    header = f"{'effort':<9} {'part':<20} {'wall s':>8} {'CPU s':>8} {'loss of new':>11}"
    print(header, flush=True)
    with busy_neighbors(NEIGHBORS if options.busy else 0):
        for effort in options.efforts:
            measure_fit(effort, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory of the process: {peak / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
