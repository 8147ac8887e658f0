"""Candidates mean the same in every layout: arrays, lists, .npz, .npy, Parquet, CSV, clusters."""

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
HOLE: Rows = [
    [(3, 0.5), (-1, 0.0), (2, 0.3)],
    [(-1, 0.9), (1, 0.4), (0, 0.2)],
    [(4, 0.7), (2, 0.1), (-1, 0.0)],
]


def reference(rows: Rows) -> list[dict[int, float]]:
    """The score of each candidate, by label."""
    return [{label: score for label, score in row if label >= 0} for row in rows]


def scores_by_label(ranking: Ranking) -> list[dict[int, float]]:
    names = ranking.classes.array().tolist()
    at = [NAMES.index(name) if isinstance(name, str) else name for name in names]
    return [
        {at[label]: score for label, score in zip(labels, scores, strict=True) if label >= 0}
        for labels, scores in zip(ranking.labels.tolist(), ranking.scores.tolist(), strict=True)
    ]


def columns(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([[label for label, _ in row] for row in rows]),
        np.array([[score for _, score in row] for row in rows], dtype=np.float64),
    )


def named(rows: Rows, padding: object = None) -> list[list[object]]:
    return [[NAMES[label] if label >= 0 else padding for label, _ in row] for row in rows]


def arrays(rows: Rows, folder: Path) -> Ranking:
    return Ranking.from_candidates(*columns(rows), 5)


def lists(rows: Rows, folder: Path) -> Ranking:
    labels, scores = columns(rows)
    return Ranking.from_candidates(labels.tolist(), scores.tolist(), 5)


def lists_of_names(rows: Rows, folder: Path) -> Ranking:
    return Ranking.from_candidates(named(rows), columns(rows)[1].tolist(), classes=NAMES)


def lists_of_names_and_numbers(rows: Rows, folder: Path) -> Ranking:
    return Ranking.from_candidates(named(rows, -1), columns(rows)[1], classes=NAMES)


def npz(rows: Rows, folder: Path, **more: object) -> Ranking:
    labels, scores = columns(rows)
    np.savez(folder / "a.npz", labels=labels, scores=scores, y=np.zeros(len(rows), int), **more)
    return read_rows(folder / "a.npz").ranking(np.arange(5))


def npz_with_names(rows: Rows, folder: Path) -> Ranking:
    return npz(rows, folder, classes=NAMES)


def npy(rows: Rows, folder: Path) -> Ranking:
    labels, scores = columns(rows)
    (folder / "a").mkdir(exist_ok=True)
    for name, array in {"labels": labels, "scores": scores, "classes": np.array(NAMES)}.items():
        np.save(folder / "a" / f"{name}.npy", array)
    return read_rows(folder / "a").ranking()


def frame(rows: Rows, labels: list[list[object]] | None = None) -> pd.DataFrame:
    numbers, scores = columns(rows)
    given = numbers.tolist() if labels is None else labels
    return pd.DataFrame({"labels": given, "scores": scores.tolist()})


def parquet_numbers(rows: Rows, folder: Path) -> Ranking:
    frame(rows).to_parquet(folder / "a.parquet")
    return read_rows(folder / "a.parquet").ranking(np.arange(5))


def parquet_nulls(rows: Rows, folder: Path) -> Ranking:
    labels = [[None if label < 0 else label for label, _ in row] for row in rows]
    table = pa.table({"labels": pa.array(labels), "scores": columns(rows)[1].tolist()})
    parquet.write_table(table, folder / "a.parquet")
    return read_rows(folder / "a.parquet").ranking(np.arange(5))


def parquet_names(rows: Rows, folder: Path) -> Ranking:
    frame(rows, named(rows)).to_parquet(folder / "a.parquet")
    return read_rows(folder / "a.parquet").ranking(np.array(NAMES))


def csv(rows: Rows, folder: Path, labels: list[list[object]] | None = None) -> Ranking:
    table = frame(rows, labels)
    for column in table.columns:
        table[column] = table[column].map(json.dumps)  # NaN as JSON of Python writes it
    table.to_csv(folder / "a.csv", index=False)
    return read_rows(folder / "a.csv").ranking(np.arange(5) if labels is None else np.array(NAMES))


def csv_names(rows: Rows, folder: Path) -> Ranking:
    return csv(rows, folder, named(rows))


def cluster(rows: Rows, folder: Path, classes: object = None) -> Ranking:
    if classes is None:
        frame(rows).to_parquet(folder / "a.parquet")
        classes = np.arange(5)
    table = Table.open(folder / "a.parquet", needs_y=False)
    (block,) = table.read(table.pieces[0], classes)
    return block.rows.ranking(classes)


def cluster_names(rows: Rows, folder: Path) -> Ranking:
    frame(rows, named(rows)).to_parquet(folder / "a.parquet")
    return cluster(rows, folder, np.array(NAMES))


READERS: list[Callable[[Rows, Path], Ranking]] = [
    arrays, lists, lists_of_names, lists_of_names_and_numbers, npz, npz_with_names,
    npy, parquet_numbers, parquet_nulls, parquet_names, csv, csv_names,
    cluster, cluster_names,
]  # fmt: skip
EVERY = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)


@EVERY
def test_padding_in_the_middle_shifts_nothing(reader, tmp_path: Path) -> None:
    assert scores_by_label(reader(HOLE, tmp_path)) == reference(HOLE)


@EVERY
def test_the_score_of_padding_means_nothing(reader, tmp_path: Path) -> None:
    rows = [[(label, NAN if label < 0 else score) for label, score in row] for row in HOLE]
    assert scores_by_label(reader(rows, tmp_path)) == reference(HOLE)


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


@EVERY
@given(rows=st.lists(row_of_candidates, min_size=1, max_size=4))
@settings(max_examples=8, deadline=None)
def test_any_candidates_are_read_as_they_are(reader, rows: Rows, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("rows")
    assert scores_by_label(reader(rows, folder)) == reference(rows)


@EVERY
@pytest.mark.parametrize(
    "row",
    [
        [(3, NAN), (1, 0.5), (2, 0.3)],  # no score
        [(-1, 0.5), (-1, 0.5), (-1, 0.3)],  # no candidate
        [(3, 0.4), (1, 0.5), (3, 0.3)],  # one twice
    ],
)
def test_what_no_reader_takes(reader, row: list[tuple[int, float]], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        reader([*HOLE, row], tmp_path)
    assert "3" in str(caught.value)  # which row


@pytest.mark.parametrize(
    "reader", [arrays, lists, npz, npz_with_names, npy, parquet_numbers, cluster]
)
def test_only_minus_one_pads(reader, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="-7"):
        reader([*HOLE, [(-7, 0.5), (1, 0.4), (2, 0.3)]], tmp_path)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_the_largest_unsigned_label_is_not_padding(convert) -> None:
    labels = convert(np.array([[0, 2**64 - 1]], dtype=np.uint64))
    with pytest.raises(ValueError, match="candidate label 18446744073709551615 is not one of"):
        Ranking.from_candidates(labels, [[0.5, 0.3]], n_classes=3)
    few = convert(np.array([[0, 2]], dtype=np.uint64))
    assert Ranking.from_candidates(few, [[0.5, 0.3]], n_classes=3).depth == 2
