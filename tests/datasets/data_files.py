"""Data files of every layout, and mutations of them that mean no good."""

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


class Harm:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


# Layouts


def arrays(layout: str) -> dict[str, np.ndarray]:
    """The arrays of a layout."""
    if layout == "scores":
        return {"scores": SCORES, "y": DATA.y, "features": DATA.x, "classes": NAMES}
    if layout == "features":
        parts = dict(zip(("fit", "select", "test"), DATA.split(30, 30), strict=True))
        found = {f"x_{name}": part.x for name, part in parts.items()}
        return found | {f"y_{n}": p.y for n, p in parts.items()} | {"classes": NAMES}
    order = np.argsort(-SCORES, axis=1)[:, :3]
    labels = order.copy()
    labels[::7, 1] = -1
    scores = np.take_along_axis(SCORES, order, axis=1)
    return {"labels": labels, "scores": scores, "y": DATA.y, "classes": NAMES}


def frame(layout: str) -> pd.DataFrame:
    """The columns of a layout."""
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
    """Write arrays or columns in the format that the name says."""
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
"""Each content, and the ending of its file; a folder of .npy files has none."""


def content(layout: str, ending: str) -> dict[str, np.ndarray] | pd.DataFrame:
    return arrays(layout) if ending in (".npz", "") else frame(layout)


# Mutations. Each writes a file at a path; all draws are the generator's.

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
    """Arrays renamed, dropped, cast, reshaped, cut, or with a hostile value."""
    found = dict(given)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(found) or ["scores"])
        array = found.get(name, np.zeros(0))
        try:
            match rng.randrange(8):
                case 0:
                    found[rng.choice(NAMES_OF_COLUMNS[:7])] = found.pop(name)
                case 1:
                    found.pop(name)
                case 2:
                    found[name] = array.astype(rng.choice(TYPES))
                case 3:
                    found[name] = rng.choice(
                        [array.T, array[None], array[:0], array[..., :0], array.ravel(), array[0]]
                    )
                case 4:
                    changed = array.copy()
                    changed[rng.randrange(len(changed))] = rng.choice(HOSTILE)
                    found[name] = changed
                case 5:
                    found[name] = array[: rng.randrange(len(array))]
                case 6:
                    found["n_classes"] = np.array(rng.choice([0, -1, 2.5, 10**12, "4", [4, 4]]))
                case _:
                    changed = array.copy()
                    changed[:] = changed[:1]
                    found[name] = changed
        except (ValueError, TypeError, IndexError, OverflowError, KeyError):
            continue  # not every value goes into every array
    return found


def mutate_frame(given: pd.DataFrame, rng: random.Random) -> pd.DataFrame:
    """Columns renamed, dropped, doubled, cast, moved, or with a hostile value."""
    found = given.copy()
    for _ in range(rng.randint(1, 3)):
        if not found.shape[1]:
            break
        at = rng.randrange(found.shape[1])
        values = found.iloc[:, at].tolist()
        match rng.randrange(8):
            case 0:
                names = list(found.columns)
                names[at] = rng.choice(NAMES_OF_COLUMNS)
                found.columns = names
            case 1:
                found = found.iloc[:, [i for i in range(found.shape[1]) if i != at]]
            case 2:
                found = found.iloc[:, [*range(found.shape[1]), at]]
            case 3:
                cast = rng.choice([str, bool, lambda v: [v], lambda v: str(v)[:3]])
                found = replaced(found, at, [cast(v) for v in values])
            case 4 | 5:
                if values:
                    values[rng.randrange(len(values))] = rng.choice(HOSTILE)
                found = replaced(found, at, values)
            case 6:
                found = found.iloc[: rng.choice([0, 1, 2, 40])]
            case _:
                order = list(range(found.shape[1]))
                rng.shuffle(order)
                found = found.iloc[:, order]
    return found


def replaced(table: pd.DataFrame, at: int, values: list[object]) -> pd.DataFrame:
    names = list(table.columns)
    columns = [table.iloc[:, i].tolist() for i in range(len(names))]
    columns[at] = values
    made = pd.DataFrame({i: pd.Series(column, dtype=object) for i, column in enumerate(columns)})
    return made.set_axis(names, axis=1)


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut off, repeated, or written over with lengths."""
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
    """An .npy file with any header."""
    text = header.encode("latin1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


SHAPES = ["(10**12,)", "(1000000000000,)", "(1000000, 1000000)", "(-1,)", "(4,)", "(2.5,)"]
ODD_TYPES = ["<f8", "|O", "<U1000000000", "V999999999", ">c32", "<i8"]
NESTED = "{'descr': [('a', '<f8', (1000000, 1000000))], 'fortran_order': False, 'shape': (9,)}"
OBJECTS = "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"


def hostile_npy(rng: random.Random, mark: Path) -> bytes:
    """An array that is huge, a pickle, or a program in its header."""
    shape, kind = rng.choice(SHAPES), rng.choice(ODD_TYPES)
    harm = pickle.dumps(Harm(mark))
    return rng.choice(
        [
            npy(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}", b"\x00" * 64),
            npy(f"{{'descr': __import__('os').system('touch {mark}'), 'shape': (1,)}}"),
            npy(OBJECTS, harm),
            harm,
            npy("{" * 2000),
            npy(NESTED),
        ]
    )


def mutate_zip(content: bytes, rng: random.Random, mark: Path) -> bytes:
    """Members renamed, doubled, replaced, or compressed into a bomb."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        picked = rng.choice(names)
        for name in names:
            data, told = old.read(name), name
            if name == picked:
                match rng.randrange(5):
                    case 0:
                        told = rng.choice(
                            ["../evil.npy", "/tmp/evil.npy", "..\\evil.npy", "scores", "\x00.npy"]
                        )
                    case 1:
                        data = hostile_npy(rng, mark)
                    case 2:
                        data = mutate_bytes(data, rng)
                    case 3:
                        new.writestr(zipfile.ZipInfo(told), data)
                    case _:
                        told = name.replace(".npy", rng.choice([".txt", "", ".pkl"]))
            new.writestr(zipfile.ZipInfo(told), data)
    return out.getvalue()


def mutated(path: Path, layout: str, ending: str, rng: random.Random, mark: Path) -> str:
    """Write a mutation of a layout's file; say which it was."""
    given = content(layout, ending)
    how = rng.choice(["content", "content", "bytes", "hostile"])
    if how == "content":
        changed = mutate_arrays(given, rng) if isinstance(given, dict) else mutate_frame(given, rng)
        try:
            write(path, changed)
            return how
        except Exception:  # a table that no library writes is no file
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
            how = "bytes"
    write(path, given)
    if path.is_dir():
        one = rng.choice(sorted(path.glob("*.npy")))
        old = one.read_bytes()
        one.write_bytes(hostile_npy(rng, mark) if how == "hostile" else mutate_bytes(old, rng))
    elif how == "hostile" and ending == ".npz":
        path.write_bytes(mutate_zip(path.read_bytes(), rng, mark))
    else:
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))
    return how
