"""Every method on feature files and on lists of candidates: mean size at equal accuracy.

    python benchmarks/every_method.py ../shared/data                # every file, seeds 0 to 4
    python benchmarks/every_method.py ../shared/data/cifar100.npz --seeds 1
    python benchmarks/every_method.py ../shared/data --guaranteed     # rows kept for calibration
    python benchmarks/every_method.py gaussian
    python benchmarks/every_method.py measured.json                 # the tables of `-o` once more

A feature file (`x_fit, y_fit, x_select, …`): a linear classifier on `fit`, every method on
`select`, judged on `test`. All of `select` is learned from, and the operating point is read off
the test curve, for every method alike; with `--guaranteed` 5,000 rows of `select` (1,000 where
there are fewer than 10,000, half of them where there are fewer than 2,000) are kept for
calibration, and the table shows what was guaranteed and kept.

A file of candidates (`labels, scores, y`): half of the rows to learn from, half to test, at the
accuracy of fixed top-4.

"gaussian": the paper's artificial data, 20,000 rows for the classifier, 50,000 to learn from and
50,000 to test.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import shortlist as sl
from shortlist.comparison import Measurement, default_methods

Part = tuple[object, object, object]


def on(device: str, array: np.ndarray) -> object:
    """The array where the work is to be done: as it is, or as a tensor elsewhere."""
    return array if device == "cpu" else torch.as_tensor(array, device=device)


def calibration_share(rows: int) -> float:
    """The share of the rows that is kept to make guarantees."""
    return min(5000 if rows >= 10_000 else 1000, rows / 2) / rows


def features_and_scores(
    file: sl.datasets.FeatureFile, seed: int, device: str
) -> tuple[Part, Part, list[float]]:
    h = sl.LinearClassifier(max_epochs=15, random_state=seed)
    fit = file.fit
    h.fit(on(device, fit.x), on(device, fit.y.astype(np.int64)))
    parts = []
    for part in (file.select, file.test):
        x = on(device, part.x)
        parts.append((h.decision_function(x), on(device, part.y.astype(np.int64)), x))
    return parts[0], parts[1], [0.9, 0.95, 0.98, 0.99]


def candidates(path: Path, seed: int, device: str) -> tuple[Part, Part, list[float]]:
    with np.load(path) as arrays:
        labels, scores, y = (arrays[k] for k in ("labels", "scores", "y"))
    order = np.random.default_rng(seed).permutation(len(y))
    half = len(y) // 2
    parts = []
    for rows in (order[:half], order[half:]):
        ranking = sl.Ranking.from_candidates(
            on(device, labels[rows].astype(np.int64)), on(device, scores[rows]), n_classes=1000
        )
        parts.append((ranking, on(device, y[rows].astype(np.int64)), None))
    test, test_y, _ = parts[1]
    top4 = float((np.asarray(torch.as_tensor(test.rank(test_y)).cpu()) < 4).mean())
    return parts[0], parts[1], [top4]


def data_sets(names: list[str], device: str) -> Iterator[tuple[str, object]]:
    for name in names:
        if name == "gaussian":
            yield name, None
            continue
        for path in sorted(Path(name).glob("*.npz")) if Path(name).is_dir() else [Path(name)]:
            yield path.stem, path


def read(name: str, path: object, seed: int, device: str) -> tuple[Part, Part, list[float]]:
    if path is None:
        fit, select, test = sl.datasets.gaussian(120_000, seed=seed).split(20_000, 50_000)
        return features_and_scores(sl.datasets.FeatureFile(fit, select, test), seed, device)
    assert isinstance(path, Path)
    if "top5" in name:
        return candidates(path, seed, device)
    return features_and_scores(sl.datasets.load(path), seed, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "data", nargs="+", help='.npz files, folders of them, "gaussian", or .json files of -o'
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--guaranteed", action="store_true")
    parser.add_argument("--device", default="cpu")
    known = list(default_methods(has_features=True))
    parser.add_argument("--without", nargs="*", default=[], choices=known, help="leave these out")
    parser.add_argument("--epochs", type=int, help="train every method for so many at most")
    parser.add_argument("--output", "-o", type=Path, help="a JSON file for all measurements")
    arguments = parser.parse_args()
    everything = []
    for file in [name for name in arguments.data if name.endswith(".json")]:
        arguments.data.remove(file)
        show_again(Path(file))
    for name, path in data_sets(arguments.data, arguments.device):
        found = defaultdict(list)
        for seed in range(arguments.seeds):
            learn, test, accuracies = read(name, path, seed, arguments.device)
            rows = len(learn[1])  # type: ignore[arg-type]
            kept = calibration_share(rows) if arguments.guaranteed else None
            methods = default_methods(learn[2] is not None, seed)
            for unwanted in arguments.without:
                methods.pop(unwanted)
            for method in methods.values():
                if arguments.epochs and "max_epochs" in method.get_params():
                    method.set_params(max_epochs=arguments.epochs)
            compared = sl.compare(
                *learn,
                test=test,
                accuracies=accuracies,
                methods=methods,
                stages=True,
                calibration=kept,
                random_state=seed,
            )
            for one in compared.measurements:
                at = "top-4" if len(accuracies) == 1 else f"{one.accuracy:g}"
                found[one.method, at].append(one)
                everything.append({"data": name, "seed": seed, **vars(one)})
            if arguments.output:
                arguments.output.write_text(json.dumps(everything, indent=1))
        show(name, found, arguments.guaranteed)


def show_again(file: Path) -> None:
    """The tables of measurements that were kept."""
    kept = json.loads(file.read_text())
    for name in dict.fromkeys(one["data"] for one in kept):
        ones = [one for one in kept if one["data"] == name]
        found = defaultdict(list)
        alone = len({one["accuracy"] for one in ones if one["seed"] == 0}) == 1
        for one in ones:
            at = "top-4" if alone else f"{one['accuracy']:g}"
            measured = {key: one[key] for key in one if key not in ("data", "seed")}
            found[one["method"], at].append(Measurement(**measured))
        show(name, found, any(one["guaranteed_size"] >= 0 for one in ones))


def show(name: str, found: dict[tuple[str, str], list[Measurement]], guaranteed: bool) -> None:
    columns = list(dict.fromkeys(at for _, at in found))
    methods = list(dict.fromkeys(method for method, _ in found))
    seeds = len(found[methods[0], columns[0]])
    print(f"\n## {name}: mean size at accuracy, mean ± spread over {seeds} seeds\n")
    print(f"| method | {' | '.join(columns)} | fit s |")
    print("|---|" + "---|" * (len(columns) + 1))
    for method in methods:
        cells = []
        for at in columns:
            ones = found[method, at]
            if guaranteed:
                accuracy, size = (spread(ones, f"guaranteed_{k}") for k in ("accuracy", "size"))
                cells.append(f"{size} at {accuracy}")
            else:
                cells.append(spread(ones, "size"))
        seconds = np.mean([one.fit_seconds for one in found[method, columns[0]]])
        print(f"| {method} | {' | '.join(cells)} | {seconds:.1f} |", flush=True)


def spread(ones: list[Measurement], what: str) -> str:
    values = np.array([getattr(one, what) for one in ones])
    digits = 4 if "accuracy" in what else 3
    return f"{values.mean():.{digits}f} ± {values.std():.{digits}f}"


if __name__ == "__main__":
    main()
