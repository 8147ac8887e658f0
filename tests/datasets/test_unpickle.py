"""Pickles of plain data are read as Python's pickle reads them, and nothing is executed."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path

import archives
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shortlist.datasets.images.unpickle import _FUNCTIONS, UnsafePickleError, read_plain_pickle

TYPES = ["|u1", "|i1", "<i2", ">i2", "<i4", "<i8", ">u4", "<f2", "<f4", ">f8", "|b1"]
arrays = st.sampled_from(TYPES).flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
    )
)
leaves = st.one_of(
    st.binary(max_size=300), st.integers(-(2**31), 2**31 - 1), st.booleans(), st.none(), arrays
)
plain = st.dictionaries(st.binary(max_size=8), st.recursive(leaves, st.lists, max_leaves=5))


def same(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        # NumPy does not keep the byte order of an empty array.
        a, b = (v.astype(v.dtype.newbyteorder("=")) for v in (a, b))
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


@given(plain, st.integers(2, 5))
@settings(max_examples=100, deadline=None)
def test_plain_data_is_read(value: dict[bytes, object], protocol: int) -> None:
    assert same(read_plain_pickle(pickle.dumps(value, protocol)), value)


@given(plain)
@settings(max_examples=100, deadline=None)
def test_pickles_of_python_2_are_read_as_pickle_reads_them(value: dict[bytes, object]) -> None:
    content = archives.python2(value)
    assert same(pickle.loads(content, encoding="bytes"), value)  # The pickle is valid.
    assert same(read_plain_pickle(content), value)


def test_both_memory_orders() -> None:
    for array in (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))):
        for content in (archives.python2(array), *(pickle.dumps(array, p) for p in (2, 4, 5))):
            assert np.array_equal(read_plain_pickle(content), array)


def test_both_names_of_the_core_module_of_numpy() -> None:
    value = {b"data": np.arange(5, dtype=np.uint8), b"labels": [np.int64(3), np.int64(1)]}
    content = pickle.dumps(value, protocol=2)
    old = content.replace(b"numpy._core.", b"numpy.core.")
    assert (b"numpy._core." in content) != (b"numpy._core." in old)
    for one in (content, old):
        result = read_plain_pickle(one)
        assert isinstance(result, dict)
        assert np.array_equal(result[b"data"], value[b"data"])
        assert result[b"labels"] == [3, 1]


def test_python_executes_the_malicious_pickles(tmp_path: Path) -> None:
    """Without this, the next test could pass on harmless pickles."""
    for name in ("os.system", "python 2", "eval", "exec", "instance", "object", "object array"):
        mark = tmp_path / name.replace(" ", "_")
        pickle.loads(archives.hostile(mark)[name][0], encoding="bytes")
        assert mark.exists(), name


@pytest.mark.parametrize("name", list(archives.hostile(Path("mark"))))
def test_a_malicious_pickle_raises_a_one_line_error(name: str, tmp_path: Path) -> None:
    content, word = archives.hostile(tmp_path / "mark")[name]
    pickletools.dis(content, out=open("/dev/null", "w"))  # noqa: SIM115 - The pickle is valid.
    with pytest.raises(UnsafePickleError) as caught:
        read_plain_pickle(content)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "mark").exists()


def test_circular_deep_and_repeated_containers() -> None:
    circle: list[object] = []
    circle.append({b"circle": circle})
    with pytest.raises(UnsafePickleError, match="contains itself"):
        read_plain_pickle(pickle.dumps(circle, 2))
    with pytest.raises(UnsafePickleError, match="nested more than 50 deep"):
        read_plain_pickle(b"]" * 100_000 + b"a" * 99_999 + b".")
    many: list[object] = []
    for _ in range(40):  # Printed, these are 2 ** 40 lists.
        many = [many, many]
    with pytest.raises(UnsafePickleError, match="repeats its parts"):
        read_plain_pickle(pickle.dumps(many, 2))


def test_names_in_errors_are_quoted(tmp_path: Path) -> None:
    name = "line\nbreak"
    content = b"\x80\x04\x8c\x02os" + b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93."
    with pytest.raises(UnsafePickleError, match=r"'os\.line\\nbreak'"):
        read_plain_pickle(content)


def test_a_pickle_does_not_affect_the_next_one() -> None:
    before = dict(_FUNCTIONS)
    for content, _ in archives.hostile(Path("mark")).values():
        with pytest.raises(ValueError, match=r".+"):
            read_plain_pickle(content)
    assert before == _FUNCTIONS
    assert same(read_plain_pickle(pickle.dumps(np.arange(3), 2)), np.arange(3))


def read_or_error(content: bytes) -> object:
    """Return the value of a pickle, or the error that reading it raises."""
    try:
        return read_plain_pickle(content)
    except ValueError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_a_damaged_pickle_raises_or_gives_plain_data() -> None:
    """All truncations, and all changes of a single byte, raise ValueError or give plain data."""
    value = {b"data": np.arange(12, dtype=np.uint8).reshape(3, 4), b"labels": [1, 2, 3]}
    content = archives.python2(value)
    plain = (dict, list, tuple, set, frozenset, bytes, int, float, str, np.ndarray, type(None))
    for at in range(len(content)):
        with pytest.raises(ValueError, match="not a readable pickle"):
            read_plain_pickle(content[:at])
        for byte in range(256):
            assert isinstance(
                read_or_error(content[:at] + bytes([byte]) + content[at + 1 :]), plain
            )
