"""Conversion of arrays: without a copy where possible, with errors for invalid ones."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist._utils.arrays import (
    as_features,
    as_matrix,
    infer_array_type,
    row_index,
    to_array_type,
    to_tensor,
)
from shortlist._utils.blocks import row_blocks

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_numpy_arrays_are_not_copied(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = to_tensor(array, "x")
    assert np.shares_memory(tensor.numpy(), array)
    assert tensor.numpy().dtype == dtype
    assert np.array_equal(tensor.numpy(), array)


def test_tensors_are_not_copied_and_lose_their_gradient():
    tensor = torch.ones(2, 3, requires_grad=True)
    inside = to_tensor(tensor, "x")
    assert inside.data_ptr() == tensor.data_ptr()
    assert not inside.requires_grad


def test_a_read_only_array_causes_no_warning():
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
def test_unusual_layouts_contain_the_same_numbers(make):
    array = make(np.arange(6, dtype=np.float64).reshape(2, 3))
    assert np.array_equal(to_tensor(array, "x").numpy(), array.astype(np.float64))


def test_results_have_the_array_type_of_the_input():
    assert infer_array_type(torch.ones(1)) == "torch"
    assert infer_array_type([1.0]) == infer_array_type(np.ones(1)) == "numpy"
    assert isinstance(to_array_type(torch.ones(1), "numpy"), np.ndarray)
    assert isinstance(to_array_type(torch.ones(1), "torch"), torch.Tensor)


@pytest.mark.parametrize(
    ("bad", "message"),
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
def test_what_is_not_a_matrix_raises(bad, message):
    with pytest.raises(ValueError, match="scores") as error:
        as_matrix(bad, "scores", "classes")
    assert message in str(error.value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_found(bad, dtype):
    matrix = np.zeros((5, 4), dtype=dtype)
    matrix[3, 2] = matrix[4, 0] = bad
    cure = "correct the code that computes them" if np.isnan(bad) else r"np\.maximum"
    with pytest.raises(ValueError, match=rf"scores holds {bad} at row 3, column 2.*{cure}"):
        as_matrix(matrix, "scores", "classes")


def test_a_value_that_is_not_finite_is_found_beyond_the_first_block(monkeypatch):
    matrix = np.zeros((50_000, 4))
    matrix[41_000, 1] = np.nan
    monkeypatch.setattr("shortlist._utils.threads.MIN_PARALLEL_ELEMENTS", 12)
    with pytest.raises(ValueError, match="row 41000, column 1"):
        as_matrix(matrix, "scores", "classes")


def test_integers_become_floats_and_floats_keep_their_type():
    assert as_matrix([[1, 2]], "x", "c").dtype == torch.float64
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert as_matrix(torch.ones(1, 2, dtype=dtype), "x", "c").dtype == dtype


def test_features():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    assert as_features([[1.0, 2.0]], rows=1, columns=2).tolist() == [[1.0, 2.0]]
    for call, message in [
        (lambda: as_features([[1.0]], rows=5), "features have 1 rows, but the scores have 5"),
        (lambda: as_features([[1.0]], columns=3), "features have 1 columns, but fit saw 3"),
        (lambda: as_features([[np.nan]]), "features holds nan at row 0, column 0"),
        (lambda: as_features(scipy_sparse.eye(3, format="csr")), "of shape (3, 3)"),
    ]:
        with pytest.raises(ValueError, match="features") as error:
            call()
        assert message in str(error.value)
        assert "log-probabilities" not in str(error.value)


@given(st.integers(0, 300), st.integers(0, 40), st.integers(1, 100))
@settings(deadline=None)
def test_row_blocks_cover_every_row_once(rows, width, elements):
    blocks = list(row_blocks(rows, width, elements=elements))
    assert [i for block in blocks for i in range(rows)[block]] == list(range(rows))
    assert all((b.stop - b.start) * width <= max(elements, width) for b in blocks)


@given(st.data(), st.integers(1, 8))
@settings(deadline=None)
def test_row_index_selects_what_numpy_selects(data, n):
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
    ("rows", "message"),
    [
        ([0, 7], "row 7 is not one of 3 rows"),
        ([-4], "row -4 is not one of 3 rows"),
        ([True, False], "the mask has 2 entries, but there are 3 rows"),
        ([0.5], "got torch.float64 of shape (1,)"),
        ([[0, 1]], "got torch.int64 of shape (1, 2)"),
    ],
)
def test_invalid_row_selections_raise(rows, message):
    with pytest.raises(IndexError) as error:
        row_index(rows, 3, CPU)
    assert message in str(error.value)
