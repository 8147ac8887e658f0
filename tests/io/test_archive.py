"""Test the checks of scikit-learn classifiers before skops reads them."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from classifiers import ESTIMATORS, X, save
from tamper import (
    ESTIMATOR,
    IDS,
    archive_of,
    change_parts,
    constant,
    mapping,
    members_of,
    nodes_of,
    replace_file,
    with_schema,
)

import shortlist as sl
from shortlist.io.persistence import ModelFileError


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    path = save(ESTIMATORS["logistic"], folder / "logistic")[1]
    drawn = with_schema(path, folder / "generator", lambda schema: None)
    generator = np.random.default_rng(3)
    change_parts(drawn, lambda parts: setattr(parts["fitted"], "random_state", generator))
    return {"logistic": path, "generator": drawn}


def test_an_id_of_two_objects_is_refused(saved, tmp_path):
    """skops uses the first node with an id for all others."""

    def change(schema):
        first, second = [n for n in nodes_of(schema) if n["__loader__"] == "JsonNode"][:2]
        second.update(__id__=first["__id__"], content='"another"')

    folder = with_schema(saved["logistic"], tmp_path / "model", change)
    with pytest.raises(ModelFileError, match="and another object"):
        sl.load(folder)


def test_an_old_protocol_is_refused(saved, tmp_path):
    for protocol in (0, 1, True, None, "2"):
        folder = with_schema(
            saved["logistic"], tmp_path / "model", lambda s, p=protocol: s.update(protocol=p)
        )
        with pytest.raises(ModelFileError, match="protocol"):
            sl.load(folder)


# Archives that would unpack to more than their size


def rebuilt(saved: dict[str, Path], copy: Path, change) -> Path:
    folder = with_schema(saved["logistic"], copy, lambda schema: None)
    members = members_of((folder / ESTIMATOR).read_bytes())
    given = change(members)
    data = given if isinstance(given, bytes) else archive_of(members)
    replace_file(folder, ESTIMATOR, data)
    return folder


def claimed(shape: str) -> bytes:
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + b"\0" * 8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: archive_of({**m, "zeros.npy": b"\0" * 10**7}, zipfile.ZIP_DEFLATED),
         "is compressed"),
        (lambda m: m.pop("schema.json") and None, r"no schema\.json"),
        (lambda m: m.update({n: claimed("(10**12,)") for n in m if n.endswith(".npy")}),
         "is not an array"),
        (lambda m: m.update({n: claimed("(1000000000000,)") for n in m if n.endswith(".npy")}),
         "but has 8 bytes"),
        (lambda m: m.update({n: claimed("(-1,)") for n in m if n.endswith(".npy")}),
         "but has 8 bytes"),
        (lambda m: m.update({n: archive_of({"a.npy": m[n]}) for n in m if n.endswith(".npy")}),
         "is not an array"),
        (lambda m: m.update({"schema.json": b"[" * 10**6}), "cannot be read"),
        (lambda m: m.update({"schema.json": b"{}"}), "protocol"),
        (lambda m: b"PK\x03\x04" + bytes(100), "cannot be read"),
    ],
)  # fmt: skip
def test_archives_that_unpack_to_more_than_their_size_are_refused(saved, tmp_path, change, words):
    folder = rebuilt(saved, tmp_path / "model", change)
    with pytest.raises(ModelFileError, match=words):
        sl.load(folder)


def test_one_large_array_is_not_read_many_times(saved, tmp_path):
    def change(schema):
        array = next(n for n in nodes_of(schema) if n["__loader__"] == "NdArrayNode")
        schema["content"]["given"] = mapping(a={**array, "__id__": 10**17})

    folder = with_schema(saved["logistic"], tmp_path / "model", change)
    with pytest.raises(ModelFileError, match="is listed twice"):
        sl.load(folder)


# Random generators


def generator_nodes(schema: dict) -> list[dict]:
    return [node for node in nodes_of(schema) if node["__loader__"] == "RandomGeneratorNode"]


@pytest.mark.parametrize("name", ["test", "seed", "set_state", "shuffle", 3])
def test_a_generator_calls_nothing_that_the_file_names(saved, tmp_path, monkeypatch, name):
    """Old versions of skops call any function of `numpy.random`."""
    calls = []
    if isinstance(name, str):
        monkeypatch.setattr(np.random, name, lambda *given: calls.append(given))

    def change(schema):
        for node in generator_nodes(schema):
            node["content"]["bit_generator"]["content"]["bit_generator"] = constant(name)
            node["__id__"] = next(IDS)

    sl.load(with_schema(saved["generator"], tmp_path / "model", change))
    assert calls == []


@pytest.mark.parametrize("key", ["pool_size", "spawn_key", "entropy"])
def test_a_generator_does_not_take_long(saved, tmp_path, key):
    """The time that NumPy takes is quadratic in these values."""

    def change(schema):
        value = 60_000 if key == "pool_size" else [7] * 60_000
        for node in generator_nodes(schema):
            node["content"]["seed_seq"]["content"][key] = constant(value)
            node["__id__"] = next(IDS)

    folder = with_schema(saved["generator"], tmp_path / "model", change)
    begin = time.monotonic()
    sl.load(folder)
    assert time.monotonic() - begin < 2


def test_a_random_state_does_not_read_beyond_its_words(saved, tmp_path):
    folder = with_schema(saved["logistic"], tmp_path / "model", lambda schema: None)
    state = np.random.RandomState(0)
    change_parts(folder, lambda parts: setattr(parts["fitted"], "random_state", state))

    def change(schema):
        for node in nodes_of(schema):
            if isinstance(node.get("content"), dict) and "pos" in node["content"]:
                node["content"]["pos"] = constant(10**6)

    with pytest.raises(ModelFileError, match="position"):
        sl.load(with_schema(folder, tmp_path / "changed", change))


def test_control_characters_in_a_version_are_escaped(saved, tmp_path):
    """The warning about another version quotes the file."""

    def change(schema):
        for node in nodes_of(schema):
            content = node.get("content")
            if isinstance(content, dict) and "_sklearn_version" in content:
                content["_sklearn_version"] = constant("\x1b]0;title\x07")

    folder = with_schema(saved["logistic"], tmp_path / "model", change)
    with pytest.warns(UserWarning, match="version") as messages:
        sl.load(folder).predict_proba(X)
    assert all("\x1b" not in str(message.message) for message in messages)
