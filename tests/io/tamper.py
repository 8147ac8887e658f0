"""Change saved models as an attacker would who can compute checksums."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import skops.io

from shortlist.io import persistence

ESTIMATOR = "estimator.skops"


def rewrite(folder: Path, change: Callable[[dict], object]) -> None:
    """Change `model.json`, and update its checksum."""
    path = folder / "model.json"
    document = json.loads(path.read_text())
    document.pop("checksum")
    change(document)
    document["checksum"] = persistence._checksum(document)
    path.write_text(json.dumps(document))


def replace_file(folder: Path, name: str, data: bytes) -> None:
    """Replace one of the other files, and update the checksums."""
    (folder / name).write_bytes(data)
    own = {"file": name, "bytes": len(data), "sha256": sha256(data).hexdigest()}
    rewrite(folder, lambda document: document["files"].update({name: own}))


def members_of(data: bytes) -> dict[str, bytes]:
    """Return the files of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of some files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def with_schema(genuine: Path, copy: Path, change: Callable[[dict], object]) -> Path:
    """Copy a model and change the schema of its estimator; `change` may return another schema."""
    if copy.exists():
        shutil.rmtree(copy)
    shutil.copytree(genuine, copy)
    members = members_of((copy / ESTIMATOR).read_bytes())
    schema = json.loads(members["schema.json"])
    other = change(schema)
    members["schema.json"] = json.dumps(other if isinstance(other, dict) else schema).encode()
    replace_file(copy, ESTIMATOR, archive_of(members))
    return copy


def nodes_of(schema: object) -> Iterator[dict]:
    """Yield every node of a schema, in the order of the file."""
    if isinstance(schema, dict):
        if "__loader__" in schema:
            yield schema
        for value in schema.values():
            yield from nodes_of(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from nodes_of(value)


IDS = iter(range(10**15, 10**16))


def constant(value: object) -> dict:
    """Return a node that contains a value of JSON."""
    return {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode",
            "content": json.dumps(value), "is_json": True, "__id__": next(IDS)}  # fmt: skip


def sequence(*nodes: dict, kind: str = "tuple") -> dict:
    """Return a node that contains other nodes."""
    return {"__class__": kind, "__module__": "builtins",
            "__loader__": f"{kind.capitalize()}Node", "content": list(nodes),
            "__id__": next(IDS)}  # fmt: skip


def mapping(**nodes: dict) -> dict:
    """Return a node of a dictionary."""
    text = {"__class__": "str", "__module__": "builtins", "__loader__": "TypeNode"}
    keys = [{**text, "__id__": next(IDS)} for _ in nodes]
    return {"__class__": "dict", "__module__": "builtins", "__loader__": "DictNode",
            "content": nodes, "key_types": sequence(*keys, kind="list"),
            "__id__": next(IDS)}  # fmt: skip


def called(name: str, *arguments: dict) -> dict:
    """Return a node that calls a function when it is loaded."""
    module, _, own = name.rpartition(".")
    return {"__class__": own, "__module__": module, "__loader__": "ConstructorFromReduceNode",
            "content": sequence(*arguments), "__id__": next(IDS)}  # fmt: skip


def change_parts(folder: Path, change: Callable[[dict], object]) -> None:
    """Change the estimators of a model as Python objects, and update the checksums."""
    data = (folder / ESTIMATOR).read_bytes()
    parts = skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))
    change(parts)
    replace_file(folder, ESTIMATOR, skops.io.dumps(parts))
