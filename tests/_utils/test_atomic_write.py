"""Files that are whole or absent, whoever else writes them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from shortlist._utils import atomic_write as _writing
from shortlist._utils import staging as _staging
from shortlist._utils.atomic_write import atomic_write


def test_threads_that_write_the_same_path(tmp_path):
    """All have their own file open at once, and all end well."""
    target = tmp_path / "sets.csv"
    texts = [str(i) * 10_000 for i in range(4)]
    together = threading.Barrier(len(texts))
    errors: list[BaseException] = []

    def write(text: str) -> None:
        try:
            for _ in range(20):
                together.wait()
                with atomic_write(target) as temporary:
                    temporary.write_text(text[:5_000])
                    together.wait()
                    with temporary.open("a") as file:
                        file.write(text[5_000:])
                assert target.read_text() in texts
        except BaseException as error:
            errors.append(error)
            together.abort()

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert list(tmp_path.iterdir()) == [target]


KILLED = """
import os, sys
from shortlist._utils.atomic_write import atomic_write
with atomic_write(sys.argv[1]) as temporary:
    temporary.write_text("half")
    os._exit(1)
"""


def test_files_of_killed_processes_are_removed_but_not_those_of_running_ones(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False)
    (left,) = tmp_path.iterdir()
    mine = tmp_path / ".report.html"
    mine.write_text("mine")
    with atomic_write(target) as temporary:
        assert not left.exists()
        temporary.write_text("outer")
        monkeypatch.setattr(_writing, "_swept", set())  # As in a new process.
        with atomic_write(tmp_path / "other.html") as other:
            other.write_text("other")
    assert target.read_text() == "outer"
    assert {path.name for path in tmp_path.iterdir()} == {target.name, mine.name, "other.html"}


def test_without_locks_abandoned_files_are_removed_after_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(_staging, "fcntl", None)
    with _staging.staging(tmp_path, "report.html", _staging.PART) as left:
        pass
    left.mkdir()
    for age, kept in ((3_600, True), (90_000, False)):
        os.utime(left, (time.time() - age,) * 2)
        monkeypatch.setattr(_writing, "_swept", set())
        with atomic_write(tmp_path / "other.html") as temporary:
            temporary.write_text("other")
        assert left.exists() is kept


def test_names_of_any_length(tmp_path):
    for name in ("a" * 255, "é" * 127, "a b\n.csv"):
        with atomic_write(tmp_path / name) as temporary:
            temporary.write_text(name)
        assert (tmp_path / name).read_text() == name
    assert len(list(tmp_path.iterdir())) == 3


def test_a_folder_that_cannot_be_written_is_named_by_its_file(tmp_path, monkeypatch):
    def refused(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(Path, "mkdir", lambda self, **k: None if k else refused(self))
    target = tmp_path / "locked" / "sets.csv"
    with pytest.raises(PermissionError) as error, atomic_write(target):
        pass
    assert error.value.filename == str(target)


def test_the_lock_of_a_directory_is_released(tmp_path, monkeypatch):
    monkeypatch.setattr(_staging, "LOCK_WAIT", 0.05)
    inside = []
    with _staging.locked(tmp_path), _staging.locked(tmp_path):  # The second times out.
        inside.append(1)
    monkeypatch.setattr(_staging, "LOCK_WAIT", 60.0)
    with _staging.locked(tmp_path):
        inside.append(2)
    assert inside == [1, 2]
