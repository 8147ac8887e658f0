"""Load models whose values were tampered with, and report the outcomes.

`python state_fuzz.py SCRATCH MUTATIONS` prints the outcomes as JSON: how many models were refused,
how many predict as before, how many predict otherwise, and every mutation with a worse outcome than
a ValueError. It is a process of its own, whose memory is limited to another gigabyte.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, save
from tamper import replace_file, rewrite
from zoo import ZOO

import shortlist as sl
from shortlist.io.model_folder import WEIGHTS
from shortlist.io.models import inspect
from shortlist.io.persistence import ModelFileError

DEEP: object = []
for _ in range(400):
    DEEP = [DEEP]
HOSTILE = [
    10**12, 10**30, -1, 0, 1, 2**31, 2**63, 1.5, -0.5, 1e308, 1e-320, "", "x", "x" * 1000, "auto",
    "class", [], [[]], [1, 2], {}, None, True, False, DEEP, [0] * 100_000, "../../etc/passwd",
    {"$": "float", "value": "nan"}, {"$": "float", "value": "inf"}, {"$": "tuple", "values": []},
    {"$": "float", "value": "-inf"}, {"$": "tuple", "values": [[], {}]}, {"$": "dict", "of": {}},
    {"$": "mapping", "items": [[1, 2]]}, {"$": "mapping", "items": [[{"$": "tuple", "values": [[]]},
     1]]}, {"$": "labels", "values": [[1], [1]], "text": False}, {"$": "tensor", "name": "no"},
    {"$": "times", "name": "no", "dtype": "O"}, {"$": "Classes", "n": 10**12, "values": None},
    {"$": "ReLU"}, {"$": "TopK", "sizes": [10**12]}, {"$": "History"}, {"$": "Shortlister"},
]  # fmt: skip
NAMES = [f"{str(value)[:40]} ({i})" for i, value in enumerate(HOSTILE)]
SLOW = 5.0
"""Seconds that no load and no prediction of such a small model takes."""


def leaves(value: object, path: tuple = ()) -> Iterator[tuple]:
    """Yield the path of every value in a document, including containers."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, (*path, key))
    elif isinstance(value, list):
        for i, one in enumerate(value[:3]):
            yield from leaves(one, (*path, i))


def put(document: dict, path: tuple, value: object) -> None:
    here = document
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = copy.deepcopy(value)


def other_tensors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return a tensor in other shapes, of other types, and with other values."""
    flat = tensor.reshape(-1)
    variants = [
        flat, tensor[None], tensor[..., None], flat[:0], flat[:1], tensor.reshape(-1)[:-1],
        torch.cat([flat, flat]), torch.zeros((), dtype=tensor.dtype), torch.zeros((0, 7)),
        tensor.to(torch.float16), tensor.to(torch.bfloat16), tensor.to(torch.int8),
        tensor.to(torch.bool), tensor.to(torch.float64), tensor.to(torch.int64),
        torch.zeros_like(tensor), -tensor.to(torch.float64), torch.full_like(flat, 127),
        tensor.flip(0) if tensor.ndim else tensor + 1,
    ]  # fmt: skip
    if tensor.is_floating_point():
        variants += [torch.full_like(tensor, v) for v in (torch.nan, torch.inf, -torch.inf, 1e38)]
    elif tensor.dtype == torch.int64:
        variants += [torch.full_like(tensor, v) for v in (10**12, -1, 2**62, -(2**63))]
    return [one.contiguous() for one in variants]


def mutations(folder: Path, rng: random.Random) -> Iterator[tuple[str, object]]:
    """Yield every change to a model in random order: its description, and the changed value."""
    document = json.loads((folder / "model.json").read_text())
    tensors = load((folder / WEIGHTS).read_bytes())
    work: list[tuple[str, object]] = []
    for path in leaves(document):
        if path[0] in ("checksum", "format"):
            continue
        place = ".".join(map(str, path))
        for name, value in zip(NAMES, HOSTILE, strict=True):
            work.append((f"{place} = {name}", (path, value)))
    for name, tensor in tensors.items():
        for i, other in enumerate(other_tensors(tensor)):
            what = f"{name} = {tuple(other.shape)} {other.dtype} ({i})"
            work.append((what, {**tensors, name: other}))
    rng.shuffle(work)
    yield from work


def same(a: object, b: object) -> bool:
    return json.dumps(a, default=lambda v: np.asarray(v).tolist()) == json.dumps(
        b, default=lambda v: np.asarray(v).tolist()
    )


def outcome(name: str, folder: Path, before: object) -> str:
    begun = time.monotonic()
    end = "as before"
    try:
        inspect(folder)
        model = sl.load(folder)
    except ModelFileError as error:
        end = "refused" if "\n" not in str(error) and len(str(error)) < 900 else f"long: {error}"
    except BaseException as error:
        end = f"load: {type(error).__name__}: {str(error)[:300]}"
    else:
        try:
            end = "as before" if same(ZOO[name].predict(model), before) else "otherwise"
        except ValueError:
            end = "ValueError"
        except BaseException as error:
            end = f"predict: {type(error).__name__}: {str(error)[:300]}"
    took = time.monotonic() - begun
    return end if took < SLOW else f"{end}, after {took:.0f} s"


def main() -> None:
    scratch, count = Path(sys.argv[1]), int(sys.argv[2])
    names = sys.argv[3:] or list(ZOO)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    models = {name: ZOO[name].fit_model() for name in names}
    before = {name: ZOO[name].predict(model) for name, model in models.items()}
    rng = random.Random(2)
    work = {}
    for name, model in models.items():
        model.save(scratch / name)
        work[name] = mutations(scratch / name, rng)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
    outcomes: dict[str, int] = {}
    wrong, other, done = [], [], 0
    while done < count and work:
        for name in list(work):
            what, change = next(work[name], (None, None))
            if what is None:
                del work[name]
                continue
            changed = scratch / "changed"
            shutil.rmtree(changed, ignore_errors=True)
            shutil.copytree(scratch / name, changed)
            if isinstance(change, tuple):
                rewrite(changed, lambda document, change=change: put(document, *change))
            else:
                replace_file(changed, WEIGHTS, save(change))
            end = outcome(name, changed, before[name])
            done += 1
            if end in ("refused", "as before", "otherwise", "ValueError"):
                outcomes[end] = outcomes.get(end, 0) + 1
                other += [f"{name}: {what}"] if end == "otherwise" else []
            else:
                wrong.append(f"{name}: {what}: {end}")
    print(json.dumps({"mutations": done, **outcomes, "wrong": wrong[:60], "other": other}))


if __name__ == "__main__":
    main()
