"""Parquet tables: the rows that are read, bad rows, and errors about files and schemas."""

from __future__ import annotations

import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.exceptions import NotFittedError
from tables import SCORES, Y, as_lists

import shortlist as sl
from shortlist.datasets import Rows
from shortlist.datasets.bad_rows import find_bad_rows
from shortlist.ray.cluster import _check_listening
from shortlist.ray.fitting import RowsBuilder
from shortlist.ray.prediction import check_model
from shortlist.ray.table import Table
from shortlist.ray.training import keyboard_interrupts

CLASSES = np.arange(12)


def test_pieces_contain_all_rows_in_order(dense: Path) -> None:
    table = Table.open(dense, needs_y=True, piece_rows=3000)
    assert table.n_rows == len(Y)
    ranges = [piece.table_range for piece in table.pieces]
    assert [number for numbers in ranges for number in numbers] == list(range(len(Y)))
    assert len({piece.title for piece in table.pieces}) == len(table.pieces) == 12
    assert (table.width, table.is_dense, table.has_y, table.has_features) == (12, True, True, True)
    blocks = [
        block for piece in table.pieces for block in table.read(piece, CLASSES, block_rows=700)
    ]
    np.testing.assert_array_equal(np.concatenate([b.rows.scores for b in blocks]), SCORES)
    np.testing.assert_array_equal(np.concatenate([b.rows.y for b in blocks]), Y)
    assert [b.numbers[0] for b in blocks[:3]] == [0, 700, 1400]
    numbers = np.concatenate([b.table_numbers for b in blocks])
    np.testing.assert_array_equal(numbers, np.arange(len(Y)))


def test_other_columns_are_read_on_request(dense: Path) -> None:
    table = Table.open([dense / "part-1.parquet"], needs_y=False, extra=["id"])
    block = next(table.read(table.pieces[0], CLASSES, extra=["id"], block_rows=10))
    assert block.extra["id"].to_pylist()[0] == "row 8000"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"score": [1.0]},
            "has no column named scores, with a list of numbers in each row .*; its col",
        ),
        ({"scores": [1.0], "y": [0]}, "scores is double, but must be a list of numbers"),
        ({"scores": [["a"]], "y": [0]}, "must be a list of numbers"),
        ({"scores": [[1.0]]}, "no column named y for the true labels"),
        ({"scores": [[1.0]], "labels": [[0.5]], "y": [0]}, "a list of integers or names"),
    ],
)
def test_the_schema_is_checked_first(tmp_path: Path, columns, message) -> None:
    parquet.write_table(pa.table(columns), tmp_path / "one.parquet")
    with pytest.raises(ValueError, match=message):
        Table.open(tmp_path, needs_y=True)


def test_files_with_different_columns(tmp_path: Path) -> None:
    for k, width in enumerate((3, 4)):
        table = pa.table({"scores": as_lists(np.ones((2, width))), "y": [0, 1]})
        parquet.write_table(table, tmp_path / f"{k}.parquet")
    with pytest.raises(ValueError, match=r"scores is .*\[4\] in 1.parquet, but .*\[3\] in 0"):
        Table.open(tmp_path, needs_y=True)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file or folder at"):
        Table.open(tmp_path / "none", needs_y=False)
    with pytest.raises(ValueError, match="no Parquet file in the folder"):
        Table.open(tmp_path, needs_y=False)
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"bad\.parquet is not a readable Parquet file"):
        Table.open(tmp_path, needs_y=False)
    with pytest.raises(ValueError, match="on_bad_rows must be one of 'raise', 'skip'"):
        Table.open(tmp_path, needs_y=False, on_bad_rows="drop")


def write_bad_rows(folder: Path) -> Path:
    """Write ten rows, four of which are bad in different ways."""
    scores = np.full((10, 3), 1 / 3)
    scores[2, 1] = np.nan
    y = pa.array([0, 1, 2, 0, None, 7, 0, 1, 2, 0])
    values = pa.array(scores.ravel())
    column = pa.FixedSizeListArray.from_arrays(
        values, 3, mask=pa.array([False] * 8 + [True, False])
    )
    parquet.write_table(pa.table({"scores": column, "y": y}), folder / "rows.parquet")
    return folder


def test_bad_rows_are_named(tmp_path: Path) -> None:
    table = Table.open(write_bad_rows(tmp_path), needs_y=True)
    message = r'rows.parquet, row 4: y is missing; correct the row, or .*on_bad_rows="skip"'
    with pytest.raises(ValueError, match=message):
        list(table.read(table.pieces[0], np.arange(3)))
    for rows, message in ((4, "row 2: scores contain nan at position 1"), (1, "row 2: scores")):
        with pytest.raises(ValueError, match=message):
            list(table.read(table.pieces[0], np.arange(3), block_rows=rows))


def test_bad_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    table = Table.open(write_bad_rows(tmp_path), needs_y=True, on_bad_rows="skip")
    for rows in (1, 3, 50):
        blocks = list(table.read(table.pieces[0], np.arange(3), block_rows=rows))
        numbers = np.concatenate([block.numbers for block in blocks])
        assert numbers.tolist() == [0, 1, 3, 6, 7, 9]
        assert sum(block.n_skipped for block in blocks) == 4
        assert sum(len(block.rows) for block in blocks) == 6


NAN = float("nan")


@pytest.mark.parametrize("fixed", [False, True], ids=["lists", "fixed size"])
@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([1, 1], [0.5, 0.2], "the candidate 1 occurs twice"),
        ([1, 2, 3], [0.5, 0.2], "there are 3 labels, but 2 scores"),
        ([1], [0.5, 0.2], "there are 1 labels, but 2 scores"),
        ([], [], "there are no candidates"),
        ([-1, -1], [0.5, 0.2], "there are no candidates"),
        ([1, 0], [0.5, NAN], "scores contain nan at position 1"),
        ([1, 0], [0.5, None], "scores contain (nan|None) at position 1"),
        ([1, -1], [0.5, NAN], None),
        ([1, -1], [0.5, None], None),
        ([-1, 1], [None, 0.5], None),
    ],
)
def test_invalid_candidates_are_bad_rows(
    labels: list[int], scores: list[float], message: str | None, fixed: bool, tmp_path: Path
) -> None:
    if fixed and not len(labels) == len(scores) == 2:
        pytest.skip("all lists have the fixed size")
    size = 2 if fixed else -1
    longer = [] if fixed else [([2, 1, 0], [0.5, 0.2, 0.1])]  # Makes the lists ragged.
    rows = [([3, 1], [0.5, 0.2]), *longer, (None, None), (labels, scores), ([2, 0], [0.5, 0.2])]
    columns = {
        "labels": pa.array([a for a, _ in rows], pa.list_(pa.int64(), size)),
        "scores": pa.array([b for _, b in rows], pa.list_(pa.float64(), size)),
    }
    bad = len(longer) + 2
    parquet.write_table(pa.table(columns).slice(bad), tmp_path / "rows.parquet")
    table = Table.open(tmp_path / "rows.parquet", needs_y=False)
    if message is None:
        (block,) = table.read(table.pieces[0], np.arange(5))
        assert len(block.rows.ranking(np.arange(5))) == 2
    else:
        with pytest.raises(ValueError, match=f"rows.parquet, row 0: {message}; correct the row"):
            list(table.read(table.pieces[0], np.arange(5)))
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    table = Table.open(tmp_path / "rows.parquet", needs_y=False, on_bad_rows="skip")
    (block,) = table.read(table.pieces[0], np.arange(5))
    good = [i for i in range(len(rows)) if i != bad - 1 and not (message and i == bad)]
    assert block.numbers.tolist() == good
    assert len(block.rows.ranking(np.arange(5))) == len(good)


def test_unknown_labels() -> None:
    rows = Rows(np.ones((3, 2)), np.array([[0, 1], [3, 0], [1, -1]]), np.array([0, 0, 9]))
    defects = find_bad_rows(rows, np.arange(3))
    assert defects == {
        1: "the candidate 3 is not one of 3 classes",
        2: "y is 9, which is not one of 3 classes",
    }
    assert find_bad_rows(rows, None) == {}
    unequal = Rows([[0.5, 0.5], [1.0], [0.9, 0.1]], [[0, 1], [3], [1, 2]], np.array([0, 0, 9]))
    assert find_bad_rows(unequal, np.arange(3)) == defects
    padded = Rows(np.array([[0.5, NAN], [NAN, 0.1]]), [["a", None], ["b", "a"]], None)
    assert find_bad_rows(padded, np.array(["a", "b"])) == {1: "scores contain nan at position 0"}
    named = Rows([[0.5], [1.0]], [["a"], ["c"]], np.array(["a", "b"]))
    assert find_bad_rows(named, np.array(["a", "b"])) == {
        1: "the candidate 'c' is not one of 2 classes"
    }


def test_blocks_with_lists_of_different_lengths() -> None:
    builder = RowsBuilder(9)
    for length in (3, 5, 3):
        rows = Rows(
            np.ones((3, length)), np.tile(np.arange(length), (3, 1)), np.zeros(3, dtype=int)
        )
        builder.append(rows)
    collected = builder.build()
    assert sorted(map(len, collected.scores)) == [3] * 6 + [5] * 3
    assert len(collected.y) == 9
    assert collected.ranking(np.arange(6)).depth == 5


def test_another_number_of_scores_is_an_error_of_the_table(dense: Path) -> None:
    table = Table.open(dense, needs_y=False, on_bad_rows="skip")
    with pytest.raises(ValueError, match=r"rows have \d+ scores, but there are 2 classes"):
        list(table.read(table.pieces[0], np.arange(2)))


def test_an_interrupt_is_raised_and_the_handler_is_restored() -> None:
    handler = signal.getsignal(signal.SIGINT)

    def fit() -> None:
        with keyboard_interrupts():
            signal.signal(signal.SIGINT, lambda *_: sys.exit(0))  # As Ray Train does.
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit()
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_address_without_a_cluster_raises_immediately() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=rf"no Ray cluster answers at '127.0.0.1:{port}'"):
        _check_listening(f"127.0.0.1:{port}")
    assert time.monotonic() - start < 5


def test_invalid_models() -> None:
    with pytest.raises(ValueError, match=r"model = 'there' is a path; load it"):
        check_model("there")
    with pytest.raises(NotFittedError, match=r"not fitted yet; call sl\.ray\.fit"):
        check_model(sl.SplitConformal())


def test_invalid_paths() -> None:
    with pytest.raises(ValueError, match=r"got a dict\. Write a Ray dataset to such files"):
        Table.open({}, needs_y=False)


def test_titles_of_pieces_are_distinct(tmp_path: Path) -> None:
    table = pa.table({"scores": as_lists(np.ones((2, 3))), "y": [0, 1]})
    (tmp_path / "a").mkdir()
    for name in ("a/b", "a-b", "a%2Fb"):
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    titles = [piece.title for piece in Table.open(tmp_path, needs_y=True).pieces]
    assert len(set(titles)) == 3
    assert not any("/" in title for title in titles)
