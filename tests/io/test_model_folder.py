"""Test what the folder of a model contains, and what a save replaces."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tamper import rewrite
from zoo import SCORES, ZOO, Y

import shortlist as sl
from shortlist.io import persistence
from shortlist.io.models import inspect

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def lac() -> sl.SplitConformal:
    return sl.SplitConformal("lac").fit(SCORES, Y)


# Content of the folder


def test_the_document_describes_the_model(tmp_path):
    ZOO["shortlister"].fit_model().save(tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    assert document["format"] == "shortlist model"
    assert document["format_version"] == 1
    assert document["library_version"] == sl.__version__
    assert document["type"] == "Shortlister"
    assert document["parameters"]["width"] == 8
    assert document["classes"] == ["0", "1", "2", "3", "4", "5"]
    assert "100 calibration rows" in document["guarantee"]
    assert document["data"]["distinct_rows"] == 300
    assert set(os.listdir(tmp_path / "model")) == {"model.json", "weights.safetensors"}
    about = inspect(tmp_path / "model")
    assert about["type"] == "Shortlister"
    assert "state" not in about
    total = sum(f.stat().st_size for f in (tmp_path / "model").glob("*.safetensors"))
    assert about["bytes"] == total


def test_the_fingerprint_is_that_of_the_rows(tmp_path):
    fingerprints = []
    for i, scores in enumerate((SCORES, SCORES, SCORES[::-1])):
        y = Y if i < 2 else Y[::-1]
        model = sl.SplitConformal("lac", random_state=i, calibration=None).fit(scores, y)
        fingerprints.append(inspect(model.save(tmp_path / str(i)))["data"]["fingerprint"])
    assert fingerprints[0] == fingerprints[1] == fingerprints[2]  # The same rows in any order.
    other = sl.SplitConformal("lac", calibration=None).fit(SCORES[1:], Y[1:])
    assert inspect(other.save(tmp_path / "other"))["data"]["fingerprint"] != fingerprints[0]


def test_nothing_is_overwritten_by_default(lac, tmp_path):
    lac.save(tmp_path / "model")
    before = (tmp_path / "model" / "model.json").read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        lac.save(tmp_path / "model")
    assert (tmp_path / "model" / "model.json").read_bytes() == before
    other = sl.SplitConformal("aps").fit(SCORES, Y)
    other.save(tmp_path / "model", overwrite=True)
    assert sl.load(tmp_path / "model").score == "aps"
    assert len(list((tmp_path / "model").iterdir())) == 2  # The old weights were removed.
    other_folder = tmp_path / "photos"
    other_folder.mkdir()
    (other_folder / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(FileExistsError, match="left unchanged"):
        lac.save(other_folder, overwrite=True)
    assert (other_folder / "cat.jpg").read_bytes() == b"cat"
    notes = tmp_path / "model" / "notes.txt"
    notes.write_text("mine")
    lac.save(tmp_path / "model", overwrite=True)
    assert notes.read_text() == "mine"


def test_no_trace_is_left_of_a_save_that_fails(lac, tmp_path, monkeypatch):
    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(persistence.os, "rename", fails)
    with pytest.raises(OSError, match="disk full"):
        lac.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# Files that do not belong to the model


def test_files_that_a_hostile_manifest_lists_are_kept(lac, tmp_path):
    """Only the two files that a save writes are ever removed."""
    folder = lac.save(tmp_path / "model")
    foreign = [".env", "backbone.safetensors", "notes"]
    for name in foreign:
        (folder / name).write_text("mine")

    def change(document):
        entry = {"bytes": 4, "sha256": "0"}
        document["files"].update({name: {**entry, "file": name} for name in foreign})

    rewrite(folder, change)
    lac.save(folder, overwrite=True)
    assert all((folder / name).read_text() == "mine" for name in foreign)
    assert len(list(folder.iterdir())) == 2 + len(foreign)


@pytest.mark.parametrize("content", ["not json", "", "[" * 100_000, "\x00"])
def test_a_manifest_that_is_not_json_is_replaced_only_beside_the_files_of_a_model(
    lac, tmp_path, content
):
    other_folder = tmp_path / "other_folder"
    other_folder.mkdir()
    (other_folder / "model.json").write_text(content)
    with pytest.raises(FileExistsError, match="left unchanged"):
        lac.save(other_folder, overwrite=True)
    assert (other_folder / "model.json").read_text() == content
    folder = lac.save(tmp_path / "model")
    (folder / "model.json").write_text(content)
    lac.save(folder, overwrite=True)
    assert sl.load(folder).score == "lac"


def test_a_directory_in_place_of_the_weights(lac, tmp_path):
    folder = lac.save(tmp_path / "model")
    weights = folder / "weights.safetensors"
    weights.unlink()
    weights.mkdir()
    (weights / "keep").write_text("mine")
    lac.save(folder, overwrite=True)
    assert sl.load(folder).score == "lac"
    assert (weights / "keep").read_text() == "mine"
    assert not list(folder.glob(".*.saving"))


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_link_to_nothing_is_refused_by_its_name(lac, tmp_path, overwrite):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match=r"link' is a link to a folder that does not exist"):
        lac.save(link, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
    assert link.is_symlink()


def test_a_link_to_a_folder_is_followed(lac, tmp_path):
    real = lac.save(tmp_path / "real")
    (tmp_path / "link").symlink_to(real)
    sl.SplitConformal("aps").fit(SCORES, Y).save(tmp_path / "link", overwrite=True)
    assert sl.load(real).score == "aps"


# Killed while saving

SAVER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from zoo import SCORES, Y
import shortlist as sl
models = [sl.SplitConformal(s).fit(SCORES, Y) for s in ("lac", "aps")]
print("ready", flush=True)
i = 0
while True:
    models[i % 2].save(sys.argv[2], overwrite=True)
    i += 1
"""


@pytest.mark.parametrize("times", [2, pytest.param(50, marks=pytest.mark.study)])
def test_a_save_that_is_killed_leaves_the_old_model_or_the_new_one(times, tmp_path):
    rng = random.Random(1)
    folder = tmp_path / "model"
    sl.SplitConformal("lac").fit(SCORES, Y).save(folder)
    for _ in range(times):
        command = [sys.executable, "-c", SAVER, str(HERE), str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.005, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert sl.load(folder).score in ("lac", "aps")
    sl.SplitConformal("lac").fit(SCORES, Y).save(folder, overwrite=True)
    assert len(list(folder.iterdir())) == 2  # Leftovers of the killed processes were removed.
