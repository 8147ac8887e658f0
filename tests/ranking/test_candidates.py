"""Candidates are read alike from arrays, lists, .npz, .npy, Parquet and CSV files, and by Ray."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from shortlist import Ranking
from shortlist.datasets import read_rows
from shortlist.ray.table import Table

NAMES = ["ant", "bee", "cat", "dog", "eel"]
NAN = float("nan")
Rows = list[list[tuple[int, float]]]
"""Label and score of each candidate; a label of -1 pads."""
GAPS: Rows = [
    [(3, 0.5), (-1, 0.0), (2, 0.3)],
    [(-1, 0.9), (1, 0.4), (0, 0.2)],
    [(4, 0.7), (2, 0.1), (-1, 0.0)],
]


def reference(rows: Rows) -> list[dict[int, float]]:
    """Return the score of each candidate, by label."""
    return [{label: score for label, score in row if label >= 0} for row in rows]


def scores_by_label(ranking: Ranking) -> list[dict[int, float]]:
    """Return the score of each label that is ranked, by label."""
    names = ranking.classes.array().tolist()
    number = [NAMES.index(name) if isinstance(name, str) else name for name in names]
    return [
        {number[label]: score for label, score in zip(labels, scores, strict=True) if label >= 0}
        for labels, scores in zip(ranking.labels.tolist(), ranking.scores.tolist(), strict=True)
    ]


def as_arrays(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([[label for label, _ in row] for row in rows]),
        np.array([[score for _, score in row] for row in rows], dtype=np.float64),
    )


def as_names(rows: Rows, padding: object = None) -> list[list[object]]:
    return [[NAMES[label] if label >= 0 else padding for label, _ in row] for row in rows]


def arrays(rows: Rows, folder: Path) -> Ranking:
    return Ranking.from_candidates(*as_arrays(rows), 5)


def lists(rows: Rows, folder: Path) -> Ranking:
    labels, scores = as_arrays(rows)
    return Ranking.from_candidates(labels.tolist(), scores.tolist(), 5)


def lists_of_names(rows: Rows, folder: Path) -> Ranking:
    return Ranking.from_candidates(as_names(rows), as_arrays(rows)[1].tolist(), classes=NAMES)


def lists_of_names_and_numbers(rows: Rows, folder: Path) -> Ranking:
    return Ranking.from_candidates(as_names(rows, -1), as_arrays(rows)[1], classes=NAMES)


def npz(rows: Rows, folder: Path, **arrays: object) -> Ranking:
    labels, scores = as_arrays(rows)
    np.savez(folder / "a.npz", labels=labels, scores=scores, y=np.zeros(len(rows), int), **arrays)
    return read_rows(folder / "a.npz").ranking(np.arange(5))


def npz_with_names(rows: Rows, folder: Path) -> Ranking:
    return npz(rows, folder, classes=NAMES)


def npy(rows: Rows, folder: Path) -> Ranking:
    labels, scores = as_arrays(rows)
    (folder / "a").mkdir(exist_ok=True)
    for name, array in {"labels": labels, "scores": scores, "classes": np.array(NAMES)}.items():
        np.save(folder / "a" / f"{name}.npy", array)
    return read_rows(folder / "a").ranking()


def as_frame(rows: Rows, labels: list[list[object]] | None = None) -> pd.DataFrame:
    numbers, scores = as_arrays(rows)
    column = numbers.tolist() if labels is None else labels
    return pd.DataFrame({"labels": column, "scores": scores.tolist()})


def parquet_numbers(rows: Rows, folder: Path) -> Ranking:
    as_frame(rows).to_parquet(folder / "a.parquet")
    return read_rows(folder / "a.parquet").ranking(np.arange(5))


def parquet_nulls(rows: Rows, folder: Path) -> Ranking:
    labels = [[None if label < 0 else label for label, _ in row] for row in rows]
    table = pa.table({"labels": pa.array(labels), "scores": as_arrays(rows)[1].tolist()})
    parquet.write_table(table, folder / "a.parquet")
    return read_rows(folder / "a.parquet").ranking(np.arange(5))


def parquet_names(rows: Rows, folder: Path) -> Ranking:
    as_frame(rows, as_names(rows)).to_parquet(folder / "a.parquet")
    return read_rows(folder / "a.parquet").ranking(np.array(NAMES))


def csv(rows: Rows, folder: Path, labels: list[list[object]] | None = None) -> Ranking:
    table = as_frame(rows, labels)
    for column in table.columns:
        table[column] = table[column].map(json.dumps)  # Python's JSON writes NaN.
    table.to_csv(folder / "a.csv", index=False)
    return read_rows(folder / "a.csv").ranking(np.arange(5) if labels is None else np.array(NAMES))


def csv_names(rows: Rows, folder: Path) -> Ranking:
    return csv(rows, folder, as_names(rows))


def ray_table(rows: Rows, folder: Path, classes: object = None) -> Ranking:
    if classes is None:
        as_frame(rows).to_parquet(folder / "a.parquet")
        classes = np.arange(5)
    table = Table.open(folder / "a.parquet", needs_y=False)
    (block,) = table.read(table.pieces[0], classes)
    return block.rows.ranking(classes)


def ray_table_names(rows: Rows, folder: Path) -> Ranking:
    as_frame(rows, as_names(rows)).to_parquet(folder / "a.parquet")
    return ray_table(rows, folder, np.array(NAMES))


READERS: list[Callable[[Rows, Path], Ranking]] = [
    arrays, lists, lists_of_names, lists_of_names_and_numbers, npz, npz_with_names,
    npy, parquet_numbers, parquet_nulls, parquet_names, csv, csv_names,
    ray_table, ray_table_names,
]  # fmt: skip
ALL_READERS = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)


@ALL_READERS
def test_padding_between_candidates_is_removed(reader, tmp_path: Path) -> None:
    assert scores_by_label(reader(GAPS, tmp_path)) == reference(GAPS)


@ALL_READERS
def test_the_score_of_padding_is_ignored(reader, tmp_path: Path) -> None:
    rows = [[(label, NAN if label < 0 else score) for label, score in row] for row in GAPS]
    assert scores_by_label(reader(rows, tmp_path)) == reference(GAPS)


row_of_candidates = st.permutations(range(5)).flatmap(
    lambda labels: st.tuples(
        st.lists(st.floats(0, 1), min_size=4, max_size=4),
        st.lists(st.booleans(), min_size=4, max_size=4).filter(any),
    ).map(
        lambda drawn: [
            (label if real else -1, score)
            for label, score, real in zip(labels[:4], *drawn, strict=True)
        ]
    )
)


@ALL_READERS
@given(rows=st.lists(row_of_candidates, min_size=1, max_size=4))
@settings(max_examples=8, deadline=None)
def test_all_readers_return_the_same_candidates(reader, rows: Rows, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("rows")
    assert scores_by_label(reader(rows, folder)) == reference(rows)


@ALL_READERS
@pytest.mark.parametrize(
    "row",
    [
        [(3, NAN), (1, 0.5), (2, 0.3)],  # A missing score.
        [(-1, 0.5), (-1, 0.5), (-1, 0.3)],  # No candidate.
        [(3, 0.4), (1, 0.5), (3, 0.3)],  # A repeated label.
    ],
)
def test_all_readers_reject_invalid_rows(
    reader, row: list[tuple[int, float]], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r".+") as error:
        reader([*GAPS, row], tmp_path)
    assert "3" in str(error.value)  # The row is named.


@pytest.mark.parametrize(
    "reader", [arrays, lists, npz, npz_with_names, npy, parquet_numbers, ray_table]
)
def test_only_minus_one_pads(reader, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="-7"):
        reader([*GAPS, [(-7, 0.5), (1, 0.4), (2, 0.3)]], tmp_path)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_the_largest_unsigned_label_is_not_padding(convert) -> None:
    labels = convert(np.array([[0, 2**64 - 1]], dtype=np.uint64))
    with pytest.raises(ValueError, match="candidate label 18446744073709551615 is not one of"):
        Ranking.from_candidates(labels, [[0.5, 0.3]], n_classes=3)
    small = convert(np.array([[0, 2]], dtype=np.uint64))
    assert Ranking.from_candidates(small, [[0.5, 0.3]], n_classes=3).depth == 2
