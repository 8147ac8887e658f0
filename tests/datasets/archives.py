"""Small archives in the format of CIFAR's, and malicious pickles."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NAMES10 = [
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
]


def python2(value: object) -> bytes:
    """Return a pickle as Python 2 wrote it: protocol 2, byte strings, module names of NumPy 1.

    Python 3 cannot write such a pickle, so it is assembled from opcodes.
    """
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value: object) -> bytes:
    if isinstance(value, bytes):
        short = len(value) < 256
        size = struct.pack("<B", len(value)) if short else struct.pack("<i", len(value))
        return (b"U" if short else b"T") + size + value
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if value is None:
        return b"N"
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_python2, value)) + b"t"
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(k) + _python2(v) for k, v in value.items()) + b"u"
    assert isinstance(value, np.ndarray)
    type_code = value.dtype.str[1:].encode()
    fortran = not value.flags.c_contiguous
    call = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + _python2((0,))
    call += _python2(b"b") + b"tR"
    state = b"(" + _python2(1) + _python2(value.shape)
    state += b"cnumpy\ndtype\n" + _python2((type_code, 0, 1)) + b"R"
    state += _python2((3, value.dtype.str[:1].encode(), None, None, None, -1, -1, 0)) + b"b"
    state += _python2(bool(fortran)) + _python2(value.tobytes("A")) + b"t"
    return call + state + b"b"


def rows(n: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


def cifar10(write: object = python2, per_batch: int = 4) -> dict[str, bytes]:
    """Return the files of CIFAR-10 by name, as pickles that `write` creates."""
    assert callable(write)
    members = {}
    for i, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        y = np.random.default_rng(100 + i).integers(0, 10, per_batch).tolist()
        members[name] = write(
            {
                b"batch_label": f"training batch {i + 1} of 5".encode(),
                b"labels": y,
                b"data": rows(per_batch, i),
                b"filenames": [f"{NAMES10[v]}_s_{i}.png".encode() for v in y],
            }
        )
    names = [name.encode() for name in NAMES10]
    meta = {b"num_cases_per_batch": per_batch, b"label_names": names, b"num_vis": 3072}
    return members | {"batches.meta": write(meta)}


def cifar100(write: object = python2, n: int = 6) -> dict[str, bytes]:
    """Return the files of CIFAR-100 by name, as pickles that `write` creates."""
    assert callable(write)
    members = {}
    for i, name in enumerate(["train", "test"]):
        fine = np.random.default_rng(200 + i).integers(0, 100, n).tolist()
        members[name] = write(
            {
                b"filenames": [b"a_s_000001.png"] * n,
                b"batch_label": b"training batch 1 of 1",
                b"fine_labels": fine,
                b"coarse_labels": [v // 5 for v in fine],
                b"data": rows(n, 10 + i),
            }
        )
    meta = {
        b"fine_label_names": [f"fine {k}".encode() for k in range(100)],
        b"coarse_label_names": [f"coarse {k}".encode() for k in range(20)],
    }
    return members | {"meta": write(meta)}


FOLDERS = {"cifar-10": "cifar-10-batches-py", "cifar-100": "cifar-100-python"}


def tar(path: Path, members: dict[str, bytes]) -> Path:
    """Write files to a .tar.gz archive. A name with a slash is used as the path in the archive."""
    folder = FOLDERS["cifar-100" if "cifar-100" in path.name else "cifar-10"]
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name if "/" in name else f"{folder}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def unpacked(folder: Path, members: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in members.items():
        (folder / name).write_bytes(content)
    return folder


class Call:
    """An object whose pickle calls a function with arguments."""

    def __init__(self, function: object, *args: object) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


def hostile(mark: Path) -> dict[str, tuple[bytes, str]]:
    """Return malicious pickles by name, each with a word that the error must contain.

    Most of them create the file `mark` when Python's own unpickler reads them.
    """
    import os
    import subprocess

    touch, python = f"touch {mark}", f"open({str(mark)!r}, 'w').close()"
    objects = np.empty(2, dtype=object)
    objects[:] = [Call(os.system, touch), Call(exec, python)]
    by_name = b"\x80\x04\x8c\x05numpy\x8c\x0blib.os.name\x93."  # The name has dots.
    reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n"
    return {
        "os.system": (pickle.dumps(Call(os.system, touch), 2), "posix.system"),
        "python 2": (b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR.", "os.system"),
        "eval": (pickle.dumps(Call(eval, python), 2), "__builtin__.eval"),
        "exec": (pickle.dumps(Call(exec, python), 4), "builtins.exec"),
        "import": (pickle.dumps(Call(__import__, "antigravity"), 2), "__builtin__.__import__"),
        "getattr": (pickle.dumps(Call(getattr, np.ndarray, "tofile"), 2), "getattr"),
        "open": (pickle.dumps(Call(open, str(mark), "w"), 4), "open"),
        "Popen": (
            pickle.dumps(Call(subprocess.Popen, ["touch", str(mark)]), 4),
            "subprocess.Popen",
        ),
        "numpy.load": (b"cnumpy\nload\n(Vx.npy\nI00\nI01\ntR.", "numpy.load"),
        "numpy.fromfile": (b"cnumpy.core.multiarray\nfromfile\n(V/etc/passwd\ntR.", "fromfile"),
        "runstring": (b"cnumpy.testing._private.utils\nrunstring\n(Vx\n}tR.", "runstring"),
        "dotted": (by_name, "numpy.lib.os.name"),
        "inside data": (pickle.dumps({b"data": Call(os.system, touch)}, 2), "posix.system"),
        "as a key": (pickle.dumps({Call(os.system, touch): 1}, 2), "posix.system"),
        "object array": (pickle.dumps({b"data": objects}, 2), "array of type"),
        "object array 5": (pickle.dumps({b"data": objects}, 5), "array of type"),
        "object state": (
            reconstruct + b"(cnumpy\nndarray\n(I0\ntVb\ntR(I1\n(I1\ntcnumpy\ndtype\n(VO8\nI0\nI1\n"
            b"tRI0\n(lp0\ntb.",
            "array of type",
        ),
        "structured": (
            pickle.dumps({b"data": np.zeros(2, [("a", "u1"), ("b", "f4")])}, 2),
            "array of type",
        ),
        "state of a function": (reconstruct + b"}(V__defaults__\n(I1\ntub.", "state to a function"),
        "slots of a function": (
            reconstruct + b"(N}(V__call__\nI1\nutb.",
            "state to a function",
        ),
        "a function": (b"}(Vdata\n" + reconstruct + b"u.", "function"),
        "persistent": (b"Pmine\n.", "outside of itself"),
        "numbered class": (b"\x80\x02\x82\x07.", "class by the number 7"),
        "memory": (b"\x80\x02]r\xff\xff\xff\x7f.", "numbers an object 2147483647"),
        "memory, in text": (b"(lp99999999999\n.", "numbers an object 99999999999"),
        "encode": (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "encodes"),
        "instance": (b"(V" + touch.encode() + b"\nios\nsystem\n.", "os.system"),
        "object": (b"(cos\nsystem\nV" + touch.encode() + b"\no.", "os.system"),
        "shape": (
            reconstruct + b"(cnumpy\nndarray\n(I0\ntVb\ntR(I1\n(L99999999999L\ntcnumpy\ndtype\n"
            b"(Vu1\nI0\nI1\ntRI0\nU\x03abctb.",
            "in 3 bytes",
        ),
    }
