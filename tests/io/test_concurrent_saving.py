"""Test several processes that save to one folder and load from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from zoo import SCORES, Y

import shortlist as sl
from shortlist._utils import staging as _staging
from shortlist.io import model_folder as _model_folder
from shortlist.io import persistence
from shortlist.io.persistence import ModelFileError

HERE = Path(__file__).parent
SCORE_NAMES = ("lac", "aps")


@pytest.fixture(scope="module")
def models() -> dict[str, sl.SplitConformal]:
    return {name: sl.SplitConformal(name).fit(SCORES, Y) for name in SCORE_NAMES}


def in_parallel(*functions: Callable[[], object]) -> list[object]:
    """Run functions in threads at the same time; return their results, or raise the first error."""
    start = threading.Barrier(len(functions))

    def begin(work: Callable[[], object]) -> object:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(functions)) as pool:
        return [done.result() for done in [pool.submit(begin, work) for work in functions]]


def is_whole(folder: Path, entries: int = 2) -> bool:
    """Return whether a folder contains one of the models and nothing else."""
    assert sl.load(folder).score in SCORE_NAMES
    return len(list(folder.iterdir())) == entries


# Several at the same time


def test_threads_that_save_and_load_one_folder(models, tmp_path):
    folder = models["lac"].save(tmp_path / "model")
    saving = threading.Event()
    saving.set()

    def save(name: str) -> None:
        for _ in range(60):
            models[name].save(folder, overwrite=True)

    def save_all() -> None:
        try:
            in_parallel(*(lambda name=name: save(name) for name in (*SCORE_NAMES, "lac")))
        finally:
            saving.clear()

    def read() -> int:
        loads = 0
        while saving.is_set():
            assert sl.load(folder).score in SCORE_NAMES
            loads += 1
        return loads

    _, *loads = in_parallel(save_all, read, read)
    assert min(loads) > 0
    assert is_whole(folder)
    assert list(tmp_path.iterdir()) == [folder]


SAVER = """
import sys
sys.path.insert(0, sys.argv[1])
from zoo import SCORES, Y
import shortlist as sl
model = sl.SplitConformal(sys.argv[2]).fit(SCORES, Y)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    model.save(sys.argv[3], overwrite=True)
"""


def test_processes_that_save_one_folder(models, tmp_path):
    folder = tmp_path / "model"  # The folder does not exist at first.
    command = [sys.executable, "-c", SAVER, str(HERE)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    savers = [subprocess.Popen([*command, name, str(folder)], **pipes) for name in SCORE_NAMES]
    for saver in savers:
        assert saver.stdout.readline() == "ready\n"
    for saver in savers:
        saver.stdin.write("go\n")
        saver.stdin.flush()
    loads = 0
    while any(saver.poll() is None for saver in savers):
        if folder.exists():
            assert sl.load(folder).score in SCORE_NAMES
            loads += 1
    for saver in savers:
        saver.communicate()
        assert saver.returncode == 0
    assert loads > 0
    assert is_whole(folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_of_savers_of_a_new_folder_one_wins(models, tmp_path):
    def save(folder: Path, name: str) -> object:
        try:
            models[name].save(folder)
        except FileExistsError:
            return None
        return name

    for turn in range(20):
        folder = tmp_path / str(turn)
        results = in_parallel(*(lambda name=name: save(folder, name) for name in SCORE_NAMES))  # noqa: B023
        (winner,) = [name for name in results if name is not None]
        assert sl.load(folder).score == winner
        assert is_whole(folder)
    assert len(list(tmp_path.iterdir())) == 20


@pytest.mark.parametrize("before", ["absent", "empty"])
def test_savers_of_a_new_folder_that_may_overwrite_all_succeed(models, before, tmp_path):
    for turn in range(20):
        folder = tmp_path / str(turn)
        if before == "empty":
            folder.mkdir()
        in_parallel(*(lambda n=n: models[n].save(folder, overwrite=True) for n in SCORE_NAMES))  # noqa: B023
        assert is_whole(folder)
    assert len(list(tmp_path.iterdir())) == 20


# One at a time, in the worst order


def test_a_save_in_the_middle_of_another_save(models, tmp_path, monkeypatch):
    """The other save replaces the manifest after this one has written its files."""
    folder = models["lac"].save(tmp_path / "model")
    moved = []

    def sync(path: Path) -> None:
        if not moved:
            moved.append(path)
            # Without the lock, as on a file system that has none.
            monkeypatch.setattr(_staging, "LOCK_WAIT", 0.01)
            models["aps"].save(folder, overwrite=True)

    monkeypatch.setattr(_model_folder, "sync_directory", sync)
    models["lac"].save(folder, overwrite=True)
    assert moved
    assert sl.load(folder).score == "lac"
    assert is_whole(folder)


def test_a_model_that_is_overwritten_while_it_is_read(models, tmp_path, monkeypatch):
    folder = models["lac"].save(tmp_path / "model")
    read_document = persistence._read_document

    def overwritten(*given: object) -> object:
        document = read_document(*given)
        monkeypatch.setattr(persistence, "_read_document", read_document)
        models["aps"].save(folder, overwrite=True)
        return document

    monkeypatch.setattr(persistence, "_read_document", overwritten)
    assert sl.load(folder).score == "aps"


def test_a_model_that_is_overwritten_at_every_reading(models, tmp_path, monkeypatch):
    folder = models["lac"].save(tmp_path / "model")
    read_document = persistence._read_document

    def overwritten(*given: object) -> object:
        document = read_document(*given)
        models["aps"].save(folder, overwrite=True)
        return document

    monkeypatch.setattr(persistence, "_read_document", overwritten)
    monkeypatch.setattr(persistence, "MAX_READS", 3)
    with pytest.raises(ModelFileError, match="overwritten 3 times while it was read"):
        sl.load(folder)


# Files that do not belong to the model


def test_files_that_the_model_does_not_list_are_kept(models, tmp_path):
    folder = models["lac"].save(tmp_path / "model")
    foreign = [".env", ".1234.notes", "backbone.safetensors", "weights-0123456789ab.safetensors",
              "old.skops", "model.json.bak"]  # fmt: skip
    for name in foreign:
        (folder / name).write_text(name)
    (folder / ".git").mkdir()
    for name in ("aps", "lac", "aps"):
        models[name].save(folder, overwrite=True)
    assert all((folder / name).read_text() == name for name in foreign)
    assert is_whole(folder, entries=2 + len(foreign) + 1)


def test_a_document_of_another_program_is_not_replaced(models, tmp_path):
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "model.json").write_text('{"format": "layers-model"}')
    with pytest.raises(FileExistsError, match="left unchanged"):
        models["lac"].save(folder, overwrite=True)
    assert [file.name for file in folder.iterdir()] == ["model.json"]


def test_a_document_that_lists_foreign_files_does_not_delete_them(models, tmp_path):
    folder = models["lac"].save(tmp_path / "model")
    (folder / ".env").write_text("secret")
    (tmp_path / "outside").write_text("mine")
    document, _ = persistence.read_model(folder)
    for i, name in enumerate((".env", "../outside")):
        document["files"][f"other{i}"] = {"file": name, "bytes": 1, "sha256": ""}
    document["checksum"] = persistence._checksum(document)
    (folder / "model.json").write_text(persistence._text(document))
    models["aps"].save(folder, overwrite=True)
    assert (folder / ".env").read_text() == "secret"
    assert (tmp_path / "outside").read_text() == "mine"


# Leftovers of processes that were killed

STUCK = """
import hashlib, json, sys, time
from pathlib import Path
from shortlist.io import model_folder as _model_folder

source, target, at = sys.argv[1:]
document = json.loads(Path(source, "model.json").read_text())
document.pop("checksum")
data = {name: Path(source, name).read_bytes() for name in document["files"]}

def describe(names):
    for name in names:
        document["files"][name]["file"] = names[name]
    checksum = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return json.dumps({**document, "checksum": checksum}).encode()

def stuck(*_):
    print("stuck", flush=True)
    time.sleep(600)

setattr(_model_folder, at, stuck)
_model_folder.write_folder(Path(target), data, describe, overwrite=True)
"""


def stuck_saver(source: Path, folder: Path, at: str) -> subprocess.Popen[str]:
    """Start a process that stops in the middle of a save; it does not import torch."""
    command = [sys.executable, "-c", STUCK, str(source), str(folder), at]
    saver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert saver.stdout.readline() == "stuck\n"
    saver.stdout.close()
    return saver


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="a process cannot be killed so")
@pytest.mark.parametrize(
    ("before", "at", "kept"),
    [
        ("model", "write_synced", "lac"),
        ("model", "sync_directory", "lac"),
        ("model", "_settle", "aps"),
        ("empty", "sync_directory", None),
        ("absent", "sync_directory", None),
    ],
)
def test_leftovers_are_kept_while_their_saver_lives_and_then_removed(
    models, before, at, kept, tmp_path, monkeypatch
):
    monkeypatch.setattr(_staging, "LOCK_WAIT", 0.1)
    source = models["aps"].save(tmp_path / "source")
    folder = tmp_path / "model"
    if before == "model":
        models["lac"].save(folder)
    elif before == "empty":
        folder.mkdir()
    saver = stuck_saver(source, folder, at)
    try:
        parent = tmp_path if before == "absent" else folder
        (staged,) = parent.glob(".*.saving")
        inside = {file.name for file in staged.iterdir()}
        if before != "empty":  # There, the process holds the lock.
            models["lac"].save(folder, overwrite=True)
            assert {file.name for file in staged.iterdir()} == inside
            kept = "lac"
    finally:
        saver.send_signal(signal.SIGKILL)
        saver.wait()
    if kept is not None:
        assert sl.load(folder).score == kept
    models["lac"].save(folder, overwrite=True)
    assert is_whole(folder)
    assert set(tmp_path.iterdir()) == {folder, source}


def test_without_locks_leftovers_are_removed_after_a_day(models, tmp_path, monkeypatch):
    monkeypatch.setattr(_staging, "fcntl", None)
    folder = models["lac"].save(tmp_path / "model")
    for parent, name in ((folder, "model.json"), (tmp_path, "model")):
        with _staging.staging(parent, name, _staging.SAVING) as path:
            pass
        path.mkdir()
        models["aps"].save(folder, overwrite=True)
        assert path.exists()
        day_before = time.time() - 86_500
        os.utime(path, (day_before, day_before))
        models["aps"].save(folder, overwrite=True)
        assert not path.exists()
    in_parallel(*(lambda n=n: models[n].save(folder, overwrite=True) for n in SCORE_NAMES * 3))
    assert is_whole(folder)


def test_leftovers_of_another_machine_are_kept_for_a_day(models, tmp_path, monkeypatch):
    folder = models["lac"].save(tmp_path / "model")
    with monkeypatch.context() as patch:
        patch.setattr(_staging, "HOST", "abcdef")
        with _staging.staging(folder, "model.json", _staging.SAVING) as path:
            pass
    path.mkdir()
    models["aps"].save(folder, overwrite=True)
    assert path.exists()
    os.utime(path, (0, 0))
    models["aps"].save(folder, overwrite=True)
    assert is_whole(folder)
