"""Check the sizes, arrays and types of a skops archive before skops reads it."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Iterator
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.lib import format as npy

from shortlist.io.persistence import LONGEST_DOCUMENT, ModelFileError
from shortlist.io.trusted_types import NEVER_LOADED, trusted_by_loader

SCHEMA = "schema.json"
MOST_MEMBERS = 1 << 20
"""An archive of more files is refused."""
LONGEST_EMPTY_AXIS = 1 << 20
"""The longest axis of an array without elements."""
OLDEST_PROTOCOL = 2
"""The protocol of skops 0.11. Loaders of older protocols check less."""
Node: TypeAlias = "dict[str, object]"


def check_archive(data: bytes, trusted: frozenset[str]) -> tuple[bytes, list[str]]:
    """Check what skops would trust in an archive.

    Parameters
    ----------
    data : bytes
        The archive.
    trusted : frozenset of str
        Names of types that the user trusts besides those of `trusted_by_loader`.

    Returns
    -------
    data : bytes
        The archive to load, without its search trees and random generators.
    refused : list of str
        The names in it that are not trusted, sorted. If there are any, it must not be loaded.

    Raises
    ------
    ModelFileError
        If the archive is damaged, or is not one that `save` writes.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_members(archive, len(data))
        schema = _schema(archive)
        refused, changed = _Walk(archive, trusted).over(schema)
    return (_with_schema(data, schema) if changed else data), sorted(refused)


def _check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Raise if the archive could unpack to more than its own size."""
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise ModelFileError(f"it has {len(members):,} files; at most {MOST_MEMBERS:,} are read")
    if len({member.filename for member in members}) < len(members):
        raise ModelFileError("two of its files have the same name")
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1:
            raise ModelFileError(f"{member.filename[:80]!r} is compressed")
    unpacked = sum(member.file_size for member in members)
    if unpacked > size:
        raise ModelFileError(f"it unpacks to {unpacked:,} bytes, but is {size:,} bytes long")


def _schema(archive: zipfile.ZipFile) -> Node:
    """Return the schema of an archive, of a protocol that is read."""
    if SCHEMA not in archive.namelist():
        raise ModelFileError(f"it has no {SCHEMA}")
    size = archive.getinfo(SCHEMA).file_size
    if size > LONGEST_DOCUMENT:
        raise ModelFileError(
            f"{SCHEMA} is {size:,} bytes long; at most {LONGEST_DOCUMENT:,} are read"
        )
    schema = json.loads(archive.read(SCHEMA))
    protocol = schema.get("protocol") if isinstance(schema, dict) else None
    if type(protocol) is not int or protocol < OLDEST_PROTOCOL:
        raise ModelFileError(f"its protocol is {str(protocol)[:40]!r}, which is not read")
    return schema  # type: ignore[no-any-return]


def _with_schema(data: bytes, schema: Node) -> bytes:
    """Return the archive with another schema."""
    buffer = io.BytesIO(data)
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a") as archive:
        warnings.simplefilter("ignore", UserWarning)  # Of two files of one name, the last counts.
        archive.writestr(SCHEMA, json.dumps(schema))
    return buffer.getvalue()


class _Walk:
    """Check every node of a schema, at any depth."""

    def __init__(self, archive: zipfile.ZipFile, trusted: frozenset[str]) -> None:
        self.archive, self.trusted = archive, trusted
        self.seen: dict[int, object] = {}
        """What the nodes of one number have in common. skops makes only the first of them."""
        self.readers: dict[str, int] = {}

    def over(self, schema: Node) -> tuple[set[str], bool]:
        """Return the names that are not trusted, and whether the schema was changed."""
        refused: set[str] = set()
        changed = False
        for node in _nodes(schema):
            loader, name = node["__loader__"], f"{node.get('__module__')}.{node.get('__class__')}"
            own = node.get("__id__")
            if not isinstance(loader, str) or type(own) is not int or own < 1:
                raise ModelFileError(f"{name[:80]!r} has no loader or no number")
            kind = _identity(node, loader, name)
            if self.seen.setdefault(own, kind) != kind:
                raise ModelFileError(f"number {own} is a {name[:80]!r} and something else")
            known = trusted_by_loader()
            if name not in known.get(loader, ()) and name not in self.trusted:
                elsewhere = any(name in names for names in known.values())
                refused.add(f"{name} (by {loader})" if elsewhere else name)
            if "file" in node:
                self._check_file(node, own)
            if loader == "TreeNode":
                self._check_tree(node)
            if name in NEVER_LOADED:
                changed = True
                node.clear()
                node.update(_null_node(own))
        return refused, changed

    def _check_file(self, node: Node, own: int) -> None:
        """Raise if a file is read twice, or if its array has another length than it says."""
        file = node["file"]
        if not isinstance(file, str) or file not in self.archive.namelist():
            raise ModelFileError(f"{str(file)[:80]!r} is missing")
        if self.readers.setdefault(file, own) != own:
            raise ModelFileError(f"{file[:80]!r} is listed twice")
        if node["__loader__"] == "NdArrayNode":
            self._array_header(file)

    def _array_header(self, file: str) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
        """Return the shape and type of the array in a file, which has as many bytes."""
        size = self.archive.getinfo(file).file_size
        with self.archive.open(file) as stream:
            try:
                version = npy.read_magic(stream)
                read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
                shape, _, dtype = read[version](stream)
            except (ValueError, KeyError) as error:
                raise ModelFileError(f"{file[:80]!r} is not an array: {str(error)[:80]}") from error
            left = size - stream.tell()
        count = prod(shape)
        fits = min(shape, default=0) >= 0 and count * dtype.itemsize == left
        if not fits or (count and not dtype.itemsize) or dtype.hasobject:
            raise ModelFileError(
                f"{file[:80]!r} is an array of {dtype} of shape {str(shape)[:80]}, but has "
                f"{left:,} bytes"
            )
        if not count and max(shape) > LONGEST_EMPTY_AXIS:
            raise ModelFileError(f"{file[:80]!r} is an empty array of shape {str(shape)[:80]}")
        return shape, dtype

    def _check_tree(self, node: Node) -> None:
        """Raise if the arguments of a tree disagree, since compiled code trusts them."""
        try:
            listed = node["__reduce__"]["args"]["content"]  # type: ignore[index]
            n_features, n_outputs = (json.loads(listed[i]["content"]) for i in (0, 2))
            shape, dtype = self._array_header(listed[1]["file"])
            right = [one["__loader__"] for one in listed] == ["JsonNode", "NdArrayNode", "JsonNode"]
        except (LookupError, TypeError, ValueError) as error:
            raise ModelFileError(f"a tree has no {str(error)[:80]}") from error
        whole = type(n_features) is int and type(n_outputs) is int
        if not (right and whole and n_features >= 0 and 0 < n_outputs < 1 << 20):
            raise ModelFileError(
                f"a tree of {str(n_features)[:40]} features has {str(n_outputs)[:40]} outputs"
            )
        counts = np.zeros(1)
        if shape == (n_outputs,) and dtype.kind == "i":
            with self.archive.open(listed[1]["file"]) as stream:
                counts = npy.read_array(stream, allow_pickle=False)
        if not (counts.min() >= 1 and counts.max() < 1 << 31):
            raise ModelFileError(
                f"a tree of {n_outputs} outputs has a table of classes of shape {shape}"
            )


def _nodes(schema: object) -> Iterator[Node]:
    """Return every node. A node that is cleared has nothing below it."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if "__loader__" in one:
                yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _identity(node: Node, loader: str, name: str) -> object:
    """Return what two nodes share if they were one object when they were saved."""
    content = node.get("content")
    if loader in ("TupleNode", "ListNode") and isinstance(content, list):
        content = tuple(str(one.get("__id__")) for one in content if isinstance(one, dict))
    elif not isinstance(content, str):
        content = None
    return loader, name, str(node.get("type")), str(node.get("file")), content


def _null_node(own: int) -> Node:
    """Return a node of None."""
    return {
        "__class__": "str",
        "__module__": "builtins",
        "__loader__": "JsonNode",
        "content": "null",
        "is_json": True,
        "__id__": own,
    }
