"""The edge: what comes in without a copy, what is refused, and in which words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist._utils.arrays import (
    array_type_of,
    as_features,
    as_matrix,
    check_choice,
    check_count,
    check_probability,
    check_weight,
    row_blocks,
    row_index,
    run_in_threads,
    sort_values,
    to_array_type,
    to_tensor,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_numpy_comes_in_over_the_same_memory(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = to_tensor(array, "x")
    assert np.shares_memory(tensor.numpy(), array)
    assert tensor.numpy().dtype == dtype
    assert np.array_equal(tensor.numpy(), array)


def test_torch_comes_in_over_the_same_memory_and_without_its_gradient():
    tensor = torch.ones(2, 3, requires_grad=True)
    inside = to_tensor(tensor, "x")
    assert inside.data_ptr() == tensor.data_ptr()
    assert not inside.requires_grad


def test_a_read_only_array_is_fine_and_quiet():
    array = np.ones((2, 3))
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = to_tensor(array, "x")
    assert tensor.data_ptr() == array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a[::-1, ::-1],
        lambda a: a.astype(">f4"),
        lambda a: a.astype(np.longdouble),
        lambda a: np.asfortranarray(a),
        lambda a: np.rec.fromarrays([np.zeros((2, 3), np.int8), a], names="pad,x")["x"],
    ],
    ids=["reversed", "big-endian", "longdouble", "fortran", "field of a record"],
)
def test_unusual_layouts_hold_the_same_numbers(make):
    array = make(np.arange(6, dtype=np.float64).reshape(2, 3))
    assert np.array_equal(to_tensor(array, "x").numpy(), array.astype(np.float64))


def test_kinds_go_round():
    assert array_type_of(torch.ones(1)) == "torch"
    assert array_type_of([1.0]) == array_type_of(np.ones(1)) == "numpy"
    assert isinstance(to_array_type(torch.ones(1), "numpy"), np.ndarray)
    assert isinstance(to_array_type(torch.ones(1), "torch"), torch.Tensor)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([["a", "b"]], "must hold numbers; got dtype <U1"),
        ([[1.0, 2.0], [3.0]], "is not a rectangular array"),
        (None, "must hold numbers; got dtype object (type NoneType)"),
        ([1.0, 2.0], "of shape (rows, classes); got shape (2,)"),
        (np.zeros((2, 3, 4)), "got shape (2, 3, 4)"),
        (np.zeros((0, 3)), "is empty: shape (0, 3)"),
        (torch.zeros(3, 0), "is empty: shape (3, 0)"),
        (np.ones((2, 3), dtype=bool), "must hold real numbers; got dtype bool"),
        (torch.zeros(2, 3, dtype=torch.complex64), "got dtype torch.complex64"),
    ],
)
def test_what_is_no_matrix_is_refused(bad, said):
    with pytest.raises(ValueError, match="scores") as error:
        as_matrix(bad, "scores", "classes")
    assert said in str(error.value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_found(bad, dtype):
    matrix = np.zeros((5, 4), dtype=dtype)
    matrix[3, 2] = matrix[4, 0] = bad
    cure = "mend what makes them" if np.isnan(bad) else r"np\.maximum"
    with pytest.raises(ValueError, match=rf"scores holds {bad} at row 3, column 2.*{cure}"):
        as_matrix(matrix, "scores", "classes")


def test_a_value_that_is_not_finite_is_found_beyond_the_first_block(monkeypatch):
    matrix = np.zeros((50, 4))
    matrix[41, 1] = np.nan
    monkeypatch.setattr("shortlist._utils.arrays.READ_ELEMENTS", 12)
    with pytest.raises(ValueError, match="row 41, column 1"):
        as_matrix(matrix, "scores", "classes")


def test_integers_become_floats_and_floats_keep_their_type():
    assert as_matrix([[1, 2]], "x", "c").dtype == torch.float64
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert as_matrix(torch.ones(1, 2, dtype=dtype), "x", "c").dtype == dtype


def test_features():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    assert as_features([[1.0, 2.0]], rows=1, columns=2).tolist() == [[1.0, 2.0]]
    for call, said in [
        (lambda: as_features([[1.0]], rows=5), "features have 1 rows, but the scores have 5"),
        (lambda: as_features([[1.0]], columns=3), "features have 1 columns, but fit saw 3"),
        (lambda: as_features([[np.nan]]), "features holds nan at row 0, column 0"),
        (lambda: as_features(scipy_sparse.eye(3, format="csr")), "of shape (3, 3)"),
    ]:
        with pytest.raises(ValueError, match="features") as error:
            call()
        assert said in str(error.value)
        assert "log-probabilities" not in str(error.value)


@given(st.integers(0, 300), st.integers(0, 40), st.integers(1, 100))
@settings(deadline=None)
def test_row_blocks_cover_every_row_once(rows, width, elements):
    blocks = list(row_blocks(rows, width, elements=elements))
    assert [i for block in blocks for i in range(rows)[block]] == list(range(rows))
    assert all((b.stop - b.start) * width <= max(elements, width) for b in blocks)


@given(st.data(), st.integers(1, 8))
@settings(deadline=None)
def test_row_index_picks_what_numpy_picks(data, n):
    picks = st.one_of(
        st.slices(n),
        st.lists(st.integers(-n, n - 1), max_size=6),
        st.lists(st.booleans(), min_size=n, max_size=n),
        st.lists(st.integers(0, n - 1), max_size=6).map(lambda v: np.array(v, dtype=np.uint8)),
        st.lists(st.integers(0, n - 1), max_size=6).map(lambda v: torch.tensor(v).to(torch.int32)),
    )
    rows = data.draw(picks)
    by_numpy = rows if isinstance(rows, slice) else np.asarray(rows)
    if not isinstance(rows, slice) and not len(rows):
        by_numpy = by_numpy.astype(int)
    expected = np.arange(n)[by_numpy]
    assert torch.arange(n)[row_index(rows, n, CPU)].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([0, 7], "row 7 is not one of 3 rows"),
        ([-4], "row -4 is not one of 3 rows"),
        ([True, False], "the mask has 2 entries, but there are 3 rows"),
        ([0.5], "got torch.float64 of shape (1,)"),
        ([[0, 1]], "got torch.int64 of shape (1, 2)"),
    ],
)
def test_rows_that_cannot_be_picked(rows, said):
    with pytest.raises(IndexError) as error:
        row_index(rows, 3, CPU)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (lambda v: check_weight(v), [0, 0.5, 7, np.float32(2), torch.tensor(0.25)], []),
        (lambda v: check_weight(v), [], [-0.1, float("nan"), float("inf"), "much", None]),
        (lambda v: check_probability(v, "share"), [0.25, np.float64(0.5)], []),
        (lambda v: check_probability(v, "share"), [], [0, 1, 1.5, -0.5, float("nan"), "x", None]),
        (lambda v: check_count(v, "depth", 2), [2, np.int64(5)], []),
        (lambda v: check_count(v, "depth", 2), [], [1, 0, -3, 2.0, True, "2", None]),
        (lambda v: check_choice(v, "loss", ("log", "exp")), ["log", "exp"], []),
        (lambda v: check_choice(v, "loss", ("log", "exp")), [], ["Log", "", None, 3]),
    ],
)
def test_checks_of_numbers_and_names_repeat_what_came(check, good, bad):
    for value in good:
        assert check(value) == value
    for value in bad:
        with pytest.raises(ValueError, match="must") as error:
            check(value)
        assert repr(value) in str(error.value)


def test_what_fails_in_a_thread_is_said(monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)

    def work(part: slice) -> int:
        if part.start:
            raise ValueError(f"rows from {part.start} on")
        return part.stop

    with pytest.raises(ValueError, match="rows from 2 on"):
        run_in_threads(work, 6, size=1 << 20)
    assert run_in_threads(lambda part: part.start, 6, size=1 << 20) == [0, 2, 4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_has_threads_of_its_own(monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    sort_values(torch.rand(400, 400))  # the parent's thread is there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:  # no word of pytest's may follow
        signal.alarm(60)
        x = np.random.default_rng(0).random((400, 400))
        right = np.array_equal(sort_values(torch.from_numpy(x)).numpy(), np.sort(x))
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


ENDING = """
import threading, torch
from shortlist._utils.arrays import run_in_threads
torch.set_num_threads(2)
run_in_threads(lambda part: part, 4, 1 << 20)

def later():
    threading.main_thread().join()
    print([part.start for part in run_in_threads(lambda part: part, 4, 1 << 20)])

threading.Thread(target=later).start()
"""


def test_threads_may_go_on_when_the_main_one_has_ended():
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[0, 2]", done.stderr
