"""Compare every method on feature files and on files of candidates: mean size at equal accuracy.

    python benchmarks/every_method.py ../shared/data                # every file, seeds 0 to 4
    python benchmarks/every_method.py ../shared/data/cifar100.npz --seeds 1
    python benchmarks/every_method.py ../shared/data --guaranteed     # with calibration rows
    python benchmarks/every_method.py gaussian
    python benchmarks/every_method.py measurements.json             # tables of an output of `-o`

With `--rows all`, all methods may learn from the same labelled rows, those of `fit` and `select`
together, and are compared with what one would do without this library: five networks that are
trained on all these rows, and one threshold. `sizes/problems.py` says which rows have honest
scores. This also takes tables of scikit-learn with several classifiers: "tabular", "tabular:wine"
or "tabular:wine/forest". What is in the output of `-o` already is not measured again.

    python benchmarks/every_method.py ../shared/data tabular --rows all -o all_rows.json

RealMLP, TabM and xRFM are trained in the environment of `make bench`, or in that of `--peers`, and
skipped where it does not have them. C-Adapter and "Shortlister, scores only" see no features.

Without it, with a feature file (`x_fit, y_fit, x_select, …`), a linear classifier is trained on the
split `fit`, every method is fitted on `select`, and all are evaluated on `test`. All rows of
`select` are used for fitting, and the mean size is read from the test curve of every method. With
`--guaranteed`, 5,000 rows of `select` are used for calibration (1,000 if it has fewer than 10,000
rows, half of them if it has fewer than 2,000), and the table shows the mean size and the accuracy
of the sets for which the accuracy is guaranteed.

With a file of candidates (`labels, scores, y`), half of the rows are used for fitting and half for
testing, at the accuracy of fixed top-4.

"gaussian" is the synthetic data of the paper: 20,000 rows for the classifier, 50,000 for the
methods and 50,000 for testing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sizes.contenders import contenders
from sizes.contenders import measure as measure_contender
from sizes.other_classifiers import PYTHON
from sizes.problems import expand, make_problem
from sizes.tables import show_all_rows

import shortlist as sl
from shortlist.comparison import Measurement, default_methods

Split = tuple[object, object, object]
"""Scores or candidates, labels and features (None without features)."""
Rows = list[dict[str, Any]]
"""The fields of measurements, each with its data set and seed."""


def to_device(device: str, array: np.ndarray) -> object:
    """Return an array as it is for the CPU, or as a tensor on another device."""
    return array if device == "cpu" else torch.as_tensor(array, device=device)


def calibration_share(rows: int) -> float:
    """Return the share of rows that is used for calibration."""
    return min(5000 if rows >= 10_000 else 1000, rows / 2) / rows


def classifier_scores(
    file: sl.datasets.FeatureFile, seed: int, device: str
) -> tuple[Split, Split, list[float]]:
    """Return scores of a linear classifier for fitting and testing, and the accuracies."""
    h = sl.LinearClassifier(max_epochs=15, random_state=seed)
    fit = file.fit
    h.fit(to_device(device, fit.x), to_device(device, fit.y.astype(np.int64)))
    splits = []
    for samples in (file.select, file.test):
        x = to_device(device, samples.x)
        splits.append((h.decision_function(x), to_device(device, samples.y.astype(np.int64)), x))
    return splits[0], splits[1], [0.9, 0.95, 0.98, 0.99]


def candidates(path: Path, seed: int, device: str) -> tuple[Split, Split, list[float]]:
    """Return candidates for fitting and testing, and the accuracy of top-4."""
    with np.load(path) as arrays:
        labels, scores, y = (arrays[k] for k in ("labels", "scores", "y"))
    order = np.random.default_rng(seed).permutation(len(y))
    half = len(y) // 2
    splits = []
    for rows in (order[:half], order[half:]):
        ranking = sl.Ranking.from_candidates(
            to_device(device, labels[rows].astype(np.int64)),
            to_device(device, scores[rows]),
            n_classes=1000,
        )
        splits.append((ranking, to_device(device, y[rows].astype(np.int64)), None))
    test, test_y, _ = splits[1]
    top4 = float((np.asarray(torch.as_tensor(test.rank(test_y)).cpu()) < 4).mean())
    return splits[0], splits[1], [top4]


def data_sets(names: list[str]) -> Iterator[tuple[str, Path | None]]:
    """Yield the name and the path of each data set; synthetic data have no path."""
    for name in names:
        if name == "gaussian":
            yield name, None
            continue
        for path in sorted(Path(name).glob("*.npz")) if Path(name).is_dir() else [Path(name)]:
            yield path.stem, path


def read(name: str, path: Path | None, seed: int, device: str) -> tuple[Split, Split, list[float]]:
    """Return a data set for fitting and testing, and the accuracies."""
    if path is None:
        fit, select, test = sl.datasets.gaussian(120_000, seed=seed).split(20_000, 50_000)
        return classifier_scores(sl.datasets.FeatureFile(fit, select, test), seed, device)
    if "top5" in name:
        return candidates(path, seed, device)
    return classifier_scores(sl.datasets.load(path), seed, device)


def main() -> None:
    """Compare all methods on all data sets, and print a table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "data", nargs="+", help='.npz files, folders of them, "gaussian", or outputs of -o (.json)'
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--guaranteed", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--rows", choices=("select", "all"), default="select", help="rows that methods learn from"
    )
    parser.add_argument("--first-seed", type=int, default=0, help="the first of the seeds")
    parser.add_argument(
        "--max-rows", type=int, help="at most this many rows of each part of a file"
    )
    names = list(dict.fromkeys([*contenders(), *default_methods(has_features=True)]))
    parser.add_argument("--without", nargs="*", default=[], choices=names, help="omit these")
    parser.add_argument("--only", nargs="*", choices=names, help="measure these only")
    parser.add_argument("--epochs", type=int, help="maximum number of epochs of every method")
    parser.add_argument(
        "--peers", type=Path, default=PYTHON, help="Python that has pytabkit and xrfm (--rows all)"
    )
    parser.add_argument("--output", "-o", type=Path, help="a JSON file for all measurements")
    options = parser.parse_args()
    all_rows: Rows = []
    for file in [name for name in options.data if name.endswith(".json")]:
        options.data.remove(file)
        show_saved(Path(file))
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if options.rows == "all":
        compare_on_all_rows(seeds, options)
        return
    for name, path in data_sets(options.data):
        rows: Rows = []
        for seed in seeds:
            for measurement in measure(name, path, seed, options):
                rows.append({"data": name, "seed": seed, **vars(measurement)})
            if options.output:
                options.output.write_text(json.dumps(all_rows + rows, indent=1))
        all_rows += rows
        show(name, rows, guaranteed=options.guaranteed)


def compare_on_all_rows(seeds: range, options: argparse.Namespace) -> None:
    """Measure what is not in the output yet, and print the tables of all problems."""
    file = options.output
    rows: Rows = json.loads(file.read_text()) if file and file.exists() else []
    problems = list(expand(options.data))
    chosen = {}
    for name, contender in contenders(options.peers).items():
        if name in options.without or (options.only is not None and name not in options.only):
            continue
        reason = contender.missing()
        if reason is None:
            chosen[name] = contender
        elif problems:
            print(f"{name} is skipped: {reason}", flush=True)
    for seed in seeds:  # The first seed of every problem comes first.
        for name, path in problems:
            done = {row["method"] for row in rows if (row["data"], row["seed"]) == (name, seed)}
            missing = {method: c for method, c in chosen.items() if method not in done}
            if not missing:
                continue
            problem = make_problem(name, path, seed, options.device, options.max_rows)
            for method, contender in missing.items():
                if problem.situation not in contender.situations:
                    continue
                key = {"data": name, "seed": seed, "method": method}
                key["situation"] = problem.situation
                measured = measure_contender(contender, problem, seed, options.epochs)
                rows += [{**key, **record} for record in measured]
                sizes = " ".join(f"{record['size']:.3f}" for record in measured)
                seconds = measured[0]["fit_seconds"]
                print(f"{name}, seed {seed}, {method}: {sizes} ({seconds:.1f} s)", flush=True)
                if file:
                    write_json(file, rows)
    show_all_rows(rows)


def write_json(file: Path, rows: Rows) -> None:
    """Write measurements, so that a run that is interrupted leaves the old or the new file."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(rows, indent=1))
    new.replace(file)


def measure(
    name: str, path: Path | None, seed: int, options: argparse.Namespace
) -> list[Measurement]:
    """Return the measurements of all methods on one data set with one seed."""
    fit, test, accuracies = read(name, path, seed, options.device)
    rows = len(fit[1])  # type: ignore[arg-type]
    methods = default_methods(fit[2] is not None, seed)
    for name in list(methods):
        if name in options.without or (options.only is not None and name not in options.only):
            methods.pop(name)
    for method in methods.values():
        if options.epochs and "max_epochs" in method.get_params():
            method.set_params(max_epochs=options.epochs)
    return sl.compare(
        *fit,
        test=test,
        accuracies=accuracies,
        methods=methods,
        stages=True,
        calibration=calibration_share(rows) if options.guaranteed else None,
        random_state=seed,
    ).measurements


def show_saved(file: Path) -> None:
    """Print the tables of saved measurements."""
    saved: Rows = json.loads(file.read_text())
    if saved and "situation" in saved[0]:
        show_all_rows(saved)
        return
    for name in dict.fromkeys(row["data"] for row in saved):
        rows = [row for row in saved if row["data"] == name]
        show(name, rows, guaranteed=any(row["guaranteed_size"] >= 0 for row in rows))


def show(name: str, rows: Rows, *, guaranteed: bool) -> None:
    """Print the table of one data set."""
    seeds = len({row["seed"] for row in rows})
    # The accuracy of top-4 differs between seeds, and is the only one of its data.
    only_one = len({row["accuracy"] for row in rows if row["seed"] == 0}) == 1
    cells: dict[str, dict[str, Rows]] = {}
    for row in rows:
        column = "top-4" if only_one else f"{row['accuracy']:g}"
        cells.setdefault(row["method"], {}).setdefault(column, []).append(row)
    columns = list(next(iter(cells.values())))
    print(f"\n## {name}: mean size at accuracy, mean ± spread over {seeds} seeds\n")
    print(f"| method | {' | '.join(columns)} | fit s |")
    print("|---|" + "---|" * (len(columns) + 1))
    for method, by_column in cells.items():
        texts = [format_cell(by_column[column], guaranteed=guaranteed) for column in columns]
        seconds = np.mean([row["fit_seconds"] for row in by_column[columns[0]]])
        print(f"| {method} | {' | '.join(texts)} | {seconds:.1f} |", flush=True)


def format_cell(rows: Rows, *, guaranteed: bool) -> str:
    """Return the mean size, and with guarantees the accuracy, over all seeds."""
    if not guaranteed:
        return format_spread(rows, "size", 3)
    size = format_spread(rows, "guaranteed_size", 3)
    return f"{size} at {format_spread(rows, 'guaranteed_accuracy', 4)}"


def format_spread(rows: Rows, field: str, digits: int) -> str:
    """Return mean ± standard deviation over all seeds."""
    values = np.array([row[field] for row in rows])
    return f"{values.mean():.{digits}f} ± {values.std():.{digits}f}"


if __name__ == "__main__":
    main()
