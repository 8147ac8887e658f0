"""Files are complete or absent, also if several processes write them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from shortlist._utils import atomic_write as atomic_write_module
from shortlist._utils import staging
from shortlist._utils.atomic_write import atomic_write


def test_threads_that_write_the_same_path(tmp_path):
    """Each thread has its own temporary file, and none of them fails."""
    target = tmp_path / "sets.csv"
    texts = [str(i) * 10_000 for i in range(4)]
    barrier = threading.Barrier(len(texts))
    errors: list[BaseException] = []

    def write(text: str) -> None:
        try:
            for _ in range(20):
                barrier.wait()
                with atomic_write(target) as temporary:
                    temporary.write_text(text[:5_000])
                    barrier.wait()
                    with temporary.open("a") as file:
                        file.write(text[5_000:])
                assert target.read_text() in texts
        except BaseException as error:
            errors.append(error)
            barrier.abort()

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
    (abandoned,) = tmp_path.iterdir()
    hidden = tmp_path / ".report.html"
    hidden.write_text("hidden")
    with atomic_write(target) as temporary:
        assert not abandoned.exists()
        temporary.write_text("outer")
        monkeypatch.setattr(atomic_write_module, "_swept", set())  # As in a new process.
        with atomic_write(tmp_path / "other.html") as other:
            other.write_text("other")
    assert target.read_text() == "outer"
    assert {path.name for path in tmp_path.iterdir()} == {target.name, hidden.name, "other.html"}


def test_without_locks_abandoned_files_are_removed_after_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "fcntl", None)
    with staging.staging(tmp_path, "report.html", staging.PART) as abandoned:
        pass
    abandoned.mkdir()
    for age, remains in ((3_600, True), (90_000, False)):
        os.utime(abandoned, (time.time() - age,) * 2)
        monkeypatch.setattr(atomic_write_module, "_swept", set())
        with atomic_write(tmp_path / "other.html") as temporary:
            temporary.write_text("other")
        assert abandoned.exists() is remains


def test_names_of_any_length(tmp_path):
    for name in ("a" * 255, "é" * 127, "a b\n.csv"):
        with atomic_write(tmp_path / name) as temporary:
            temporary.write_text(name)
        assert (tmp_path / name).read_text() == name
    assert len(list(tmp_path.iterdir())) == 3


def test_errors_name_the_target_and_not_the_temporary_file(tmp_path, monkeypatch):
    def raise_error(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(Path, "mkdir", lambda self, **k: None if k else raise_error(self))
    target = tmp_path / "locked" / "sets.csv"
    with pytest.raises(PermissionError) as error, atomic_write(target):
        pass
    assert error.value.filename == str(target)


def test_the_lock_of_a_directory_is_released(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "LOCK_WAIT", 0.05)
    entered = []
    with staging.locked(tmp_path), staging.locked(tmp_path):  # The second times out.
        entered.append(1)
    monkeypatch.setattr(staging, "LOCK_WAIT", 60.0)
    with staging.locked(tmp_path):
        entered.append(2)
    assert entered == [1, 2]
