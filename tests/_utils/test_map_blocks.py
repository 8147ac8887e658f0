"""Blocks of rows are processed in threads of our own, with single-threaded operations."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch

from shortlist._utils.ordering import sort_values
from shortlist._utils.threads import (
    available_threads,
    map_blocks,
    map_in_threads,
    multi_threaded,
    single_threaded,
    without_barriers,
)
from shortlist.ranking import Ranking

WIDTH = 1 << 15
"""Columns of matrices that are large enough for threads."""


def threads_of_new_thread() -> int:
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return results[0]


@pytest.fixture(params=["1", "2", "5"])
def threads(request, monkeypatch):
    monkeypatch.setenv("SHORTLIST_THREADS", request.param)
    return int(request.param)


@pytest.fixture
def two_torch_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_are_in_the_order_of_the_rows(threads):
    blocks = map_blocks(lambda rows: (rows.start, rows.stop), 7, WIDTH, elements=2 * WIDTH)
    assert blocks == [(0, 2), (2, 4), (4, 6), (6, 7)]
    assert map_in_threads(abs, []) == []


def test_every_thread_works(threads):
    barrier = threading.Barrier(threads, timeout=20)
    map_in_threads(lambda _: barrier.wait(), range(threads))


@pytest.mark.parametrize("fails", [False, True])
def test_the_settings_of_torch_do_not_change(threads, fails, two_torch_threads):
    before = torch.get_num_threads(), threads_of_new_thread()
    inside = []

    def work(rows: slice) -> None:
        inside.append(torch.get_num_threads())
        if fails:
            raise ValueError("no")

    try:
        map_blocks(work, 8, WIDTH, elements=WIDTH)
    except ValueError:
        assert fails
    assert set(inside) == {1}
    assert (torch.get_num_threads(), threads_of_new_thread()) == before


@pytest.mark.parametrize("fails", [False, True])
def test_a_single_threaded_block_restores_the_settings(fails, two_torch_threads):
    before = torch.get_num_threads(), threads_of_new_thread()
    try:
        with single_threaded():
            assert torch.get_num_threads() == 1
            assert threads_of_new_thread() == before[1]
            if fails:
                raise ValueError("no")
    except ValueError:
        assert fails
    assert (torch.get_num_threads(), threads_of_new_thread()) == before


def test_threads_do_not_divide_their_work_again(threads):
    def work(_: int) -> list[int]:
        assert available_threads() == 1
        return map_blocks(lambda rows: rows.start, 3, WIDTH, elements=WIDTH)

    assert map_in_threads(work, range(20)) == [[0, 1, 2]] * 20


def test_the_modes_of_torch_apply_in_threads(threads):
    with torch.inference_mode():
        result = torch.zeros(4)
        map_blocks(lambda rows: result[rows].add_(1), 4, WIDTH, elements=WIDTH)
    assert result.tolist() == [1.0] * 4
    with torch.no_grad():
        assert map_in_threads(lambda _: torch.is_grad_enabled(), range(3)) == [False] * 3


def test_the_first_error_is_raised_and_no_further_item_begun(threads):
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        if item:
            raise ValueError(f"item {item}")
        time.sleep(0.01)
        return item

    with pytest.raises(ValueError, match=r"item 1$"):
        map_in_threads(work, range(1000))
    assert len(begun) <= threads + 1
    assert map_in_threads(lambda item: item, range(3)) == [0, 1, 2]


def test_the_number_of_threads(monkeypatch, two_torch_threads):
    monkeypatch.delenv("SHORTLIST_THREADS", raising=False)
    monkeypatch.setattr("shortlist._utils.threads.usable_cores", lambda: 64)
    assert available_threads() == 2  # torch.set_num_threads limits it.
    monkeypatch.setattr("shortlist._utils.threads.usable_cores", lambda: 1)
    assert available_threads() == 1
    monkeypatch.setenv("SHORTLIST_THREADS", "3")
    assert available_threads() == 3
    for value in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("SHORTLIST_THREADS", value)
        with pytest.raises(ValueError, match=f"must be a positive integer; got '{value}'"):
            available_threads()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is not available")
def test_a_forked_process_starts_its_own_threads(monkeypatch):
    monkeypatch.setenv("SHORTLIST_THREADS", "2")
    sort_values(torch.rand(400, 400))  # Starts threads in the parent.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:  # The child: pytest must not continue here.
        signal.alarm(60)
        x = np.random.default_rng(0).random((400, 400))
        is_sorted = np.array_equal(sort_values(torch.from_numpy(x)).numpy(), np.sort(x))
        os._exit(0 if is_sorted else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


AFTER_MAIN_THREAD = """
import threading
from shortlist._utils.threads import map_in_threads
map_in_threads(abs, [-1])

def later():
    threading.main_thread().join()
    print(map_in_threads(abs, [-1, 2]))

threading.Thread(target=later).start()
"""


def test_threads_can_work_after_the_main_thread_has_ended():
    result = subprocess.run(
        [sys.executable, "-c", AFTER_MAIN_THREAD],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "SHORTLIST_THREADS": "2"},
    )
    assert result.stdout.strip() == "[1, 2]", result.stderr


def test_inside_single_threaded_work_is_still_divided_among_threads() -> None:
    before, n_threads = torch.get_num_threads(), available_threads()
    with single_threaded():
        assert (torch.get_num_threads(), available_threads()) == (1, n_threads)
        with single_threaded(), multi_threaded():
            assert (torch.get_num_threads(), available_threads()) == (before, n_threads)
            with single_threaded():
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == before
        assert (torch.get_num_threads(), available_threads()) == (1, n_threads)
        assert set(map_in_threads(lambda _: available_threads(), range(4))) == {1}
    with multi_threaded():
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before


def test_the_threads_of_torch_are_not_used_between_the_blocks_of_many_scores(monkeypatch):
    seen = []

    class Model:
        @without_barriers
        def predict(self, scores, times=1):
            """Predict."""
            seen.append(torch.get_num_threads())
            return times * len(scores)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        many, few = np.zeros((1024, 1024), dtype=np.float32), np.zeros((2, 2))
        assert Model().predict(many, times=2) == 2048
        assert Model().predict(scores=many) == 1024
        assert Model().predict(Ranking.from_scores(many)) == 1024
        assert Model().predict(few) == Model().predict([[1.0, 2.0], [2.0, 1.0]]) == 2
        assert seen == [1, 1, 1, 3, 3]
        assert torch.get_num_threads() == 3
        assert Model.predict.__doc__ == "Predict."
    finally:
        torch.set_num_threads(before)
