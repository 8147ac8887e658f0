"""Data files of every layout, and malicious mutations of them."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

import shortlist as sl

NAMES = np.array(["ant", "bee", "cat", "dog"])
DATA = sl.datasets.gaussian(80, 0.6, n_classes=4, dimension=3)
SCORES = DATA.posterior.astype(np.float64)


class MaliciousObject:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


# Layouts


def arrays(layout: str) -> dict[str, np.ndarray]:
    """Return the arrays of a layout."""
    if layout == "scores":
        return {"scores": SCORES, "y": DATA.y, "features": DATA.x, "classes": NAMES}
    if layout == "features":
        splits = dict(zip(("fit", "select", "test"), DATA.split(30, 30), strict=True))
        x = {f"x_{name}": samples.x for name, samples in splits.items()}
        y = {f"y_{name}": samples.y for name, samples in splits.items()}
        return x | y | {"classes": NAMES}
    order = np.argsort(-SCORES, axis=1)[:, :3]
    labels = order.copy()
    labels[::7, 1] = -1
    scores = np.take_along_axis(SCORES, order, axis=1)
    return {"labels": labels, "scores": scores, "y": DATA.y, "classes": NAMES}


def frame(layout: str) -> pd.DataFrame:
    """Return the columns of a layout."""
    given = arrays(layout)
    if layout == "candidates":
        labels = [[str(NAMES[i]) if i >= 0 else None for i in row] for row in given["labels"]]
        return pd.DataFrame(
            {"labels": labels, "scores": given["scores"].tolist(), "y": NAMES[DATA.y]}
        )
    table = pd.DataFrame(SCORES, columns=NAMES)
    for j in range(DATA.x.shape[1]):
        table[f"x_{j}"] = DATA.x[:, j].astype(np.float64)
    return table.assign(y=NAMES[DATA.y])


def write(path: Path, content: dict[str, np.ndarray] | pd.DataFrame) -> Path:
    """Write arrays or columns to a file whose suffix determines the format."""
    if isinstance(content, dict):
        if path.suffix == ".npz":
            np.savez(path, **content)  # type: ignore[arg-type]
            return path
        path.mkdir()
        for name, array in content.items():
            np.save(path / f"{name}.npy", array)
        return path
    table = content.copy()
    if path.suffix == ".parquet":
        columns = [pa.array(table.iloc[:, i].tolist()) for i in range(table.shape[1])]
        parquet.write_table(pa.table(columns, names=[str(c) for c in table.columns]), path)
        return path
    for i, name in enumerate(table.columns):
        if name in ("labels", "scores"):
            table.isetitem(i, [json.dumps(v) for v in table.iloc[:, i]])
    table.to_csv(path, index=False)
    return path


LAYOUTS = [
    ("scores", ".npz"), ("candidates", ".npz"), ("features", ".npz"),
    ("scores", ""), ("candidates", ""),
    ("scores", ".csv"), ("candidates", ".csv"),
    ("scores", ".parquet"), ("candidates", ".parquet"),
]  # fmt: skip
"""Layouts with the suffixes of their files. A folder of .npy files has no suffix."""


def content(layout: str, suffix: str) -> dict[str, np.ndarray] | pd.DataFrame:
    """Return the content of a file."""
    return arrays(layout) if suffix in (".npz", "") else frame(layout)


# Mutations: all random choices are made with the given generator.

HOSTILE: list[object] = [
    float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 5e-324, 2**63 - 1, -(2**63), -2,
    10**30, "", " ", "\x00", "a" * 5000, "=cmd|'/c calc'!A0", "../../evil", "%s%n", "NA", "01",
    "1e5", "True", "\u202e", "ä\nb", "[]", "[[1]]", "{}", "null", '{"a": 1}', None,
    True, [], [1, [2]], {"a": 1},
]  # fmt: skip
TYPES = ["f2", "f4", ">f8", "c16", "i1", "u8", "?", "U3", "S2", "M8[ns]", "m8[s]", "O", "V4"]
NAMES_OF_COLUMNS = ["y", "scores", "labels", "features", "classes", "x_0", "x_", "", "ant",
                    "../evil", "a,b", "\x00", "n_classes", "0", "y "]  # fmt: skip


def mutate_arrays(given: dict[str, np.ndarray], rng: random.Random) -> dict[str, np.ndarray]:
    """Rename, drop, cast, reshape or cut arrays, or insert a hostile value."""
    mutation = dict(given)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(mutation) or ["scores"])
        array = mutation.get(name, np.zeros(0))
        try:
            match rng.randrange(8):
                case 0:
                    mutation[rng.choice(NAMES_OF_COLUMNS[:7])] = mutation.pop(name)
                case 1:
                    mutation.pop(name)
                case 2:
                    mutation[name] = array.astype(rng.choice(TYPES))
                case 3:
                    mutation[name] = rng.choice(
                        [array.T, array[None], array[:0], array[..., :0], array.ravel(), array[0]]
                    )
                case 4:
                    values = array.copy()
                    values[rng.randrange(len(values))] = rng.choice(HOSTILE)
                    mutation[name] = values
                case 5:
                    mutation[name] = array[: rng.randrange(len(array))]
                case 6:
                    mutation["n_classes"] = np.array(rng.choice([0, -1, 2.5, 10**12, "4", [4, 4]]))
                case _:
                    values = array.copy()
                    values[:] = values[:1]
                    mutation[name] = values
        except (ValueError, TypeError, IndexError, OverflowError, KeyError):
            continue  # The array cannot hold this value.
    return mutation


def mutate_frame(given: pd.DataFrame, rng: random.Random) -> pd.DataFrame:
    """Rename, drop, repeat, cast or move columns, or insert a hostile value."""
    table = given.copy()
    for _ in range(rng.randint(1, 3)):
        if not table.shape[1]:
            break
        at = rng.randrange(table.shape[1])
        values = table.iloc[:, at].tolist()
        match rng.randrange(8):
            case 0:
                names = list(table.columns)
                names[at] = rng.choice(NAMES_OF_COLUMNS)
                table.columns = names
            case 1:
                table = table.iloc[:, [i for i in range(table.shape[1]) if i != at]]
            case 2:
                table = table.iloc[:, [*range(table.shape[1]), at]]
            case 3:
                cast = rng.choice([str, bool, lambda v: [v], lambda v: str(v)[:3]])
                table = replace_column(table, at, [cast(v) for v in values])
            case 4 | 5:
                if values:
                    values[rng.randrange(len(values))] = rng.choice(HOSTILE)
                table = replace_column(table, at, values)
            case 6:
                table = table.iloc[: rng.choice([0, 1, 2, 40])]
            case _:
                order = list(range(table.shape[1]))
                rng.shuffle(order)
                table = table.iloc[:, order]
    return table


def replace_column(table: pd.DataFrame, at: int, values: list[object]) -> pd.DataFrame:
    """Return a table with other values in the column at a position."""
    names = list(table.columns)
    columns = [table.iloc[:, i].tolist() for i in range(len(names))]
    columns[at] = values
    changed = pd.DataFrame({i: pd.Series(column, dtype=object) for i, column in enumerate(columns)})
    return changed.set_axis(names, axis=1)


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, remove or repeat bytes, or overwrite them with lengths."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        if not changed:
            break
        at = rng.randrange(len(changed))
        match rng.randrange(6):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.choice(b"\x00\xff\n,\"'\x7f")
            case 2:
                del changed[at:]
            case 3:
                del changed[at : at + rng.randint(1, 200)]
            case 4:
                changed[at:at] = changed[at : at + rng.randint(1, 200)]
            case _:
                changed[at : at + 4] = struct.pack("<I", rng.choice([0, 2**31 - 1, 2**32 - 1]))
    return bytes(changed)


def npy(header: str, body: bytes = b"") -> bytes:
    """Return an .npy file with any header."""
    text = header.encode("latin1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


SHAPES = ["(10**12,)", "(1000000000000,)", "(1000000, 1000000)", "(-1,)", "(4,)", "(2.5,)"]
ODD_TYPES = ["<f8", "|O", "<U1000000000", "V999999999", ">c32", "<i8"]
NESTED = "{'descr': [('a', '<f8', (1000000, 1000000))], 'fortran_order': False, 'shape': (9,)}"
OBJECTS = "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"


def hostile_npy(rng: random.Random, mark: Path) -> bytes:
    """Return an array that is huge, is a pickle, or has a program in its header."""
    shape, descr = rng.choice(SHAPES), rng.choice(ODD_TYPES)
    malicious = pickle.dumps(MaliciousObject(mark))
    return rng.choice(
        [
            npy(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}", bytes(64)),
            npy(f"{{'descr': __import__('os').system('touch {mark}'), 'shape': (1,)}}"),
            npy(OBJECTS, malicious),
            malicious,
            npy("{" * 2000),
            npy(NESTED),
        ]
    )


def mutate_zip(content: bytes, rng: random.Random, mark: Path) -> bytes:
    """Rename, repeat, replace or damage a member of a zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        changed = rng.choice(names)
        for name in names:
            data, new_name = old.read(name), name
            if name == changed:
                match rng.randrange(5):
                    case 0:
                        new_name = rng.choice(
                            ["../evil.npy", "/tmp/evil.npy", "..\\evil.npy", "scores", "\x00.npy"]
                        )
                    case 1:
                        data = hostile_npy(rng, mark)
                    case 2:
                        data = mutate_bytes(data, rng)
                    case 3:
                        new.writestr(zipfile.ZipInfo(new_name), data)
                    case _:
                        new_name = name.replace(".npy", rng.choice([".txt", "", ".pkl"]))
            new.writestr(zipfile.ZipInfo(new_name), data)
    return out.getvalue()


def write_mutation(path: Path, layout: str, suffix: str, rng: random.Random, mark: Path) -> str:
    """Write a mutation of a layout's file, and return the type of the mutation."""
    given = content(layout, suffix)
    mutation = rng.choice(["content", "content", "bytes", "hostile"])
    if mutation == "content":
        changed = mutate_arrays(given, rng) if isinstance(given, dict) else mutate_frame(given, rng)
        try:
            write(path, changed)
            return mutation
        except Exception:  # The library cannot write this content to a file.
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
            mutation = "bytes"
    write(path, given)
    if path.is_dir():
        file = rng.choice(sorted(path.glob("*.npy")))
        old = file.read_bytes()
        file.write_bytes(
            hostile_npy(rng, mark) if mutation == "hostile" else mutate_bytes(old, rng)
        )
    elif mutation == "hostile" and suffix == ".npz":
        path.write_bytes(mutate_zip(path.read_bytes(), rng, mark))
    else:
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))
    return mutation
