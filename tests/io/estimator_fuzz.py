"""Load classifiers whose fitted attributes were tampered with, and predict with them.

`python estimator_fuzz.py SCRATCH MUTATIONS [NAME...]` prints the outcomes as JSON: how many models
were refused, how many predict, how many raise an error when they predict, and every mutation with a
worse outcome: a crash, a lack of memory, or a long time. Many mutations run in batches, each in a
process of its own, so that a crash ends one batch only.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import skops.io
from classifiers import ESTIMATORS, X, save
from tamper import ESTIMATOR, replace_file

import shortlist as sl
from shortlist.io.persistence import ModelFileError

ROWS = np.vstack([X, X[::-1] * 50, np.round(X)])
SLOW = 10.0
"""Seconds that no load and no prediction of so small a model takes."""
MEMORY = 4 << 30
MIN_ISOLATED = 1000
"""From this number of mutations on, they run in processes of their own."""
VALUES = [
    None, True, False, 0, 1, 2, -1, -7, 3, 10**6, 10**12, 2**31 - 9, 1.5, float("nan"), 1e300, "",
    "x", "zero", "brute", "predict", "precomputed", "uniform", "fit", [], [0], [2**31 - 9] * 4, (),
    (1,), {}, {"a": 1}, np.zeros(0), np.zeros(3), np.zeros((3, 1)), np.full(6, 2**31 - 9), np.add,
    np.positive,
    np.array([2**40] * 5, dtype=object), np.float64, np.int64(-5), np.str_("x"), "sklearn",
]  # fmt: skip


def other_arrays(array: np.ndarray) -> list[np.ndarray]:
    """Return an array in other shapes, of other types, and with other values."""
    flat = array.ravel()
    arrays = [array[:0], array[:1], array[:-1], array[None], array[..., None], flat, array.T,
              np.concatenate([flat, flat]), array[::-1].copy(), np.zeros_like(array)]  # fmt: skip
    if array.dtype.kind in "iuf":
        for value in (2**31 - 9, -(2**31), 10**6, -1, 255, 7):
            with np.errstate(all="ignore"):
                arrays.append(np.full_like(array, np.array(value).astype(array.dtype)))
                arrays.append(array + np.array(value).astype(array.dtype))
        arrays += [array.astype(kind) for kind in ("f4", "f8", "i4", "i8", "O", "U")]
    if array.dtype.kind == "f":
        arrays += [array * np.nan, array * np.inf]
    for name in array.dtype.names or ():
        for value in (2**31 - 9, -5, 0, 1, 255):
            variant = array.copy()
            with np.errstate(all="ignore"):
                variant[name] = np.array(value).astype(array.dtype[name])
            arrays.append(variant)
    return arrays


def objects_of(root: object) -> Iterator[object]:
    """Return every object with attributes, each once."""
    waiting, seen = [root], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or one is None or isinstance(one, str | int | float | type | np.generic):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            waiting.extend(one.ravel().tolist() if one.dtype.hasobject else [])
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        elif hasattr(one, "__dict__") and type(one).__module__.startswith("sklearn"):
            yield one
            waiting.extend(vars(one).values())


def mutate(fitted: object, rng: random.Random) -> str:
    """Change one attribute at random, and return a description of the change."""
    owners = [one for one in objects_of(fitted) if vars(one)]
    owner = rng.choice(owners)
    names = [n for n in vars(owner) if n != "_sklearn_version"]
    learned = [n for n in names if n.endswith("_") or n.startswith("_")]
    name = rng.choice(learned if learned and rng.random() < 0.8 else names)
    value, way = vars(owner)[name], rng.random()
    place = f"{type(owner).__name__}.{name}"
    if way < 0.05:
        del vars(owner)[name]
        return f"{place} deleted"
    if way < 0.1:
        other = rng.choice(owners)
        vars(owner)[name] = copy.deepcopy(other)
        return f"{place} = {type(other).__name__}"
    if way < 0.15:
        method = rng.choice([m for m in dir(type(owner)) if not m.startswith("__")])
        vars(owner)[method] = rng.choice(VALUES)
        return f"{place} hides {method}"
    if isinstance(value, np.ndarray) and way < 0.8:
        i = rng.randrange(len(other_arrays(value)))
        vars(owner)[name] = other_arrays(value)[i]
        return f"{place} = array {i}: {str(vars(owner)[name])[:60]}"
    if isinstance(value, list) and value and way < 0.7:
        i = rng.randrange(len(value))
        inner = value[i]
        arrays = other_arrays(inner) if isinstance(inner, np.ndarray) else VALUES
        j = rng.randrange(len(arrays))
        value[i] = arrays[j]
        return f"{place}[{i}] = {j}: {str(value[i])[:60]}"
    i = rng.randrange(len(VALUES))
    vars(owner)[name] = VALUES[i]
    return f"{place} = {str(VALUES[i])[:60]}"


def outcome(folder: Path) -> str:
    """Load a model, predict with it, and return the outcome."""
    begin, end = time.monotonic(), "predicts"
    try:
        model = sl.load(folder)
    except ModelFileError as error:
        end = "refused" if "\n" not in str(error) and len(str(error)) < 900 else f"long: {error}"
    except BaseException as error:
        end = f"load: {type(error).__name__}: {str(error)[:200]}"
    else:
        try:
            for rows in (ROWS, ROWS.astype(np.float32), ROWS[:1]):
                model.predict_set(rows)
        except (MemoryError, RecursionError, SystemError) as error:
            end = f"predict: {type(error).__name__}: {str(error)[:200]}"
        except Exception:
            end = "raises"
    took = time.monotonic() - begin
    return end if took < SLOW else f"{end}, after {took:.0f} s"


def batch(scratch: Path, name: str, seeds: range) -> Iterator[tuple[int, str, str | None]]:
    """Try mutations. Yield each before the attempt, without an outcome, and after it."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    data = (scratch / name / ESTIMATOR).read_bytes()
    asked = skops.io.get_untrusted_types(data=data)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    for seed in seeds:
        parts = skops.io.loads(data, trusted=asked)
        what = mutate(parts["fitted"], random.Random(seed))
        try:
            tampered = skops.io.dumps(parts)
        except Exception:
            yield seed, what, "not written"
            continue
        replace_file(scratch / name, ESTIMATOR, tampered)
        yield seed, what, None
        yield seed, what, outcome(scratch / name)
    replace_file(scratch / name, ESTIMATOR, data)


def isolated(scratch: Path, name: str, seeds: range) -> Iterator[tuple[int, str, str | None]]:
    """Try mutations of one classifier in processes that may crash."""
    genuine = (scratch / name / ESTIMATOR).read_bytes()
    while seeds:
        command = [sys.executable, __file__, "batch", str(scratch), name]
        command += [str(seeds.start), str(seeds.stop)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        yield from lines
        if done.returncode == 0:
            return
        if not lines:
            raise RuntimeError(done.stderr[-2000:])
        seed, what, _ = lines[-1]
        yield seed, what, f"crashed: {done.returncode} {done.stderr[-300:]}"
        replace_file(scratch / name, ESTIMATOR, genuine)
        seeds = range(seed + 1, seeds.stop)


def main() -> None:
    if sys.argv[1] == "batch":
        for line in batch(Path(sys.argv[2]), sys.argv[3], range(*map(int, sys.argv[4:6]))):
            print(json.dumps(line), flush=True)
        return
    scratch, count = Path(sys.argv[1]), int(sys.argv[2])
    names = sys.argv[3:] or list(ESTIMATORS)
    warnings.simplefilter("ignore")
    for name in names:
        save(ESTIMATORS[name], scratch / name)
    each, run = -(-count // len(names)), isolated if count >= MIN_ISOLATED else batch
    ends: dict[str, int] = {}
    wrong = []
    for name in names:
        begin = 10**6 * list(ESTIMATORS).index(name)
        for seed, what, end in run(scratch, name, range(begin, begin + each)):
            if end is None:
                print(name, seed, what, file=sys.stderr)  # The last line names a crash.
            elif end in ("refused", "predicts", "raises", "not written"):
                ends[end] = ends.get(end, 0) + 1
            else:
                wrong.append(f"{name} {seed}: {what}: {end}")
    print(json.dumps({"mutations": sum(ends.values()) + len(wrong), **ends, "wrong": wrong}))


if __name__ == "__main__":
    main()
