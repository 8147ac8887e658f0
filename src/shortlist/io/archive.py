"""Checks of the sizes, arrays and types in a skops archive, before skops reads it."""

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

from shortlist.io.persistence import MAX_DOCUMENT_BYTES, ModelFileError
from shortlist.io.trusted_types import NEVER_LOADED, trusted_by_loader

SCHEMA = "schema.json"
MAX_MEMBERS = 1 << 20
"""Largest number of files in an archive."""
MAX_EMPTY_AXIS = 1 << 20
"""Largest axis of an array without elements."""
MIN_PROTOCOL = 2
"""Protocol of skops 0.11. skops checks less in archives of older protocols."""
Node: TypeAlias = "dict[str, object]"


def check_archive(data: bytes, trusted: frozenset[str]) -> tuple[bytes, list[str]]:
    """Check an archive, and list the types in it that are not trusted.

    Parameters
    ----------
    data : bytes
        The archive.
    trusted : frozenset of str
        Names of types that the user trusts, in addition to those of `trusted_by_loader`.

    Returns
    -------
    data : bytes
        The archive to load, without search trees and random generators.
    refused : list of str
        Sorted names of types that are not trusted. If there are any, the archive must not be
        loaded.

    Raises
    ------
    ModelFileError
        If the archive is damaged, or `save` does not write such an archive.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_members(archive, len(data))
        schema = _schema(archive)
        refused, changed = _SchemaCheck(archive, trusted)(schema)
    return (_with_schema(data, schema) if changed else data), sorted(refused)


def _check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Raise if the archive could unpack to more than its own size."""
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise ModelFileError(f"it has {len(members):,} files; at most {MAX_MEMBERS:,} are read")
    if len({member.filename for member in members}) < len(members):
        raise ModelFileError("two of its files have the same name")
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1:
            raise ModelFileError(f"{member.filename[:80]!r} is compressed")
    unpacked = sum(member.file_size for member in members)
    if unpacked > size:
        raise ModelFileError(f"it unpacks to {unpacked:,} bytes, but is {size:,} bytes long")


def _schema(archive: zipfile.ZipFile) -> Node:
    """Return the schema of an archive, whose protocol must be known."""
    if SCHEMA not in archive.namelist():
        raise ModelFileError(f"it has no {SCHEMA}")
    size = archive.getinfo(SCHEMA).file_size
    if size > MAX_DOCUMENT_BYTES:
        raise ModelFileError(
            f"{SCHEMA} is {size:,} bytes long; at most {MAX_DOCUMENT_BYTES:,} are read"
        )
    schema = json.loads(archive.read(SCHEMA))
    protocol = schema.get("protocol") if isinstance(schema, dict) else None
    if type(protocol) is not int or protocol < MIN_PROTOCOL:
        raise ModelFileError(f"its protocol is {str(protocol)[:40]!r}, which is not supported")
    return schema  # type: ignore[no-any-return]


def _with_schema(data: bytes, schema: Node) -> bytes:
    """Return the archive with another schema."""
    buffer = io.BytesIO(data)
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a") as archive:
        # The archive then has two files of this name, of which the last is read.
        warnings.simplefilter("ignore", UserWarning)
        archive.writestr(SCHEMA, json.dumps(schema))
    return buffer.getvalue()


class _SchemaCheck:
    """Check every node of a schema, at any depth."""

    def __init__(self, archive: zipfile.ZipFile, trusted: frozenset[str]) -> None:
        self.archive, self.trusted = archive, trusted
        self.identities: dict[int, object] = {}
        """What all nodes with the same id have in common. skops makes only the first of them."""
        self.readers: dict[str, int] = {}
        """Id of the node that reads each file."""

    def __call__(self, schema: Node) -> tuple[set[str], bool]:
        """Return the names that are not trusted, and whether the schema was changed."""
        refused: set[str] = set()
        changed = False
        for node in _nodes(schema):
            loader, name = node["__loader__"], f"{node.get('__module__')}.{node.get('__class__')}"
            node_id = node.get("__id__")
            if not isinstance(loader, str) or type(node_id) is not int or node_id < 1:
                raise ModelFileError(f"{name[:80]!r} has no loader or no id")
            identity = _identity(node, loader, name)
            if self.identities.setdefault(node_id, identity) != identity:
                raise ModelFileError(f"id {node_id} stands for a {name[:80]!r} and another object")
            known = trusted_by_loader()
            if name not in known.get(loader, ()) and name not in self.trusted:
                elsewhere = any(name in names for names in known.values())
                refused.add(f"{name} (by {loader})" if elsewhere else name)
            if "file" in node:
                self._check_file(node, node_id)
            if loader == "TreeNode":
                self._check_tree(node)
            if name in NEVER_LOADED:
                changed = True
                node.clear()
                node.update(_null_node(node_id))
        return refused, changed

    def _check_file(self, node: Node, node_id: int) -> None:
        """Raise if a file is read twice, or if an array is not as long as its header says."""
        file = node["file"]
        if not isinstance(file, str) or file not in self.archive.namelist():
            raise ModelFileError(f"{str(file)[:80]!r} is missing")
        if self.readers.setdefault(file, node_id) != node_id:
            raise ModelFileError(f"{file[:80]!r} is listed twice")
        if node["__loader__"] == "NdArrayNode":
            self._array_header(file)

    def _array_header(self, file: str) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
        """Return the shape and type of the array in a file; raise if its length differs."""
        size = self.archive.getinfo(file).file_size
        with self.archive.open(file) as stream:
            try:
                version = npy.read_magic(stream)
                readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
                shape, _, dtype = readers[version](stream)
            except (ValueError, KeyError) as error:
                raise ModelFileError(f"{file[:80]!r} is not an array: {str(error)[:80]}") from error
            n_bytes = size - stream.tell()
        n_values = prod(shape)
        is_valid = min(shape, default=0) >= 0 and n_values * dtype.itemsize == n_bytes
        if not is_valid or (n_values and not dtype.itemsize) or dtype.hasobject:
            raise ModelFileError(
                f"{file[:80]!r} is an array of {dtype} of shape {str(shape)[:80]}, but has "
                f"{n_bytes:,} bytes"
            )
        if not n_values and max(shape) > MAX_EMPTY_AXIS:
            raise ModelFileError(f"{file[:80]!r} is an empty array of shape {str(shape)[:80]}")
        return shape, dtype

    def _check_tree(self, node: Node) -> None:
        """Raise if the arguments of a tree do not agree, because compiled code trusts them."""
        try:
            arguments = node["__reduce__"]["args"]["content"]  # type: ignore[index]
            n_features, n_outputs = (json.loads(arguments[i]["content"]) for i in (0, 2))
            shape, dtype = self._array_header(arguments[1]["file"])
            loaders = [one["__loader__"] for one in arguments]
        except (LookupError, TypeError, ValueError) as error:
            raise ModelFileError(f"a tree lacks {str(error)[:80]}") from error
        are_integers = type(n_features) is int and type(n_outputs) is int
        are_valid = are_integers and n_features >= 0 and 0 < n_outputs < 1 << 20
        if loaders != ["JsonNode", "NdArrayNode", "JsonNode"] or not are_valid:
            raise ModelFileError(
                f"a tree of {str(n_features)[:40]} features has {str(n_outputs)[:40]} outputs"
            )
        counts = np.zeros(1)
        if shape == (n_outputs,) and dtype.kind == "i":
            with self.archive.open(arguments[1]["file"]) as stream:
                counts = npy.read_array(stream, allow_pickle=False)
        if not (counts.min() >= 1 and counts.max() < 1 << 31):
            raise ModelFileError(
                f"a tree of {n_outputs} outputs has a table of classes of shape {shape}"
            )


def _nodes(schema: object) -> Iterator[Node]:
    """Yield every node. The nodes below a node that was replaced are left out."""
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if "__loader__" in value:
                yield value
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def _identity(node: Node, loader: str, name: str) -> object:
    """Return what two nodes have in common if they were one object when they were saved."""
    content = node.get("content")
    if loader in ("TupleNode", "ListNode") and isinstance(content, list):
        content = tuple(str(one.get("__id__")) for one in content if isinstance(one, dict))
    elif not isinstance(content, str):
        content = None
    return loader, name, str(node.get("type")), str(node.get("file")), content


def _null_node(node_id: int) -> Node:
    """Return a node that is loaded as None."""
    return {
        "__class__": "str",
        "__module__": "builtins",
        "__loader__": "JsonNode",
        "content": "null",
        "is_json": True,
        "__id__": node_id,
    }
