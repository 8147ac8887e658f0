"""Errors about arrays in files that have an expected name and a wrong type, shape or value."""

from __future__ import annotations

import warnings
from pathlib import Path

import data_files
import numpy as np
import pytest

import shortlist as sl
from shortlist.datasets import read_rows

SCORES = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
LABELS = np.array([[0, 1, 2], [2, 1, 0]])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"n_classes": [4, 4]}, r"n_classes must be one integer.*shape \(2,\)"),
        ({"n_classes": 4.5}, "n_classes must be one integer.*float64"),
        ({"n_classes": "4"}, "n_classes must be one integer.*<U1"),
        ({"n_classes": -1}, "n_classes = -1"),
        ({"n_classes": 10**12}, "n_classes = 1000000000000"),
        ({"labels": LABELS + 10**12}, "label.*1000000000002"),
        ({"labels": LABELS * 0.5}, "floats"),
        ({"classes": "abc"}, r"classes must be .*shape \(\)"),
        ({"classes": [["a"], ["b"], ["c"]]}, r"classes must be .*shape \(3, 1\)"),
        ({"classes": np.zeros(3, "M8[s]")}, r"classes must be .*datetime64\[s\]"),
        ({"y": [[0], [1]]}, "one label for each row"),
        ({"y": np.zeros(2, "V4")}, r"y must hold labels \(names or numbers\); got \|V4"),
        (
            {"y": np.zeros(2, "m8[s]")},
            r"y must hold labels \(names or numbers\); got timedelta64\[s\]",
        ),
        ({"y": 3}, r"y has shape \(\)"),
    ],
)
def test_arrays_of_wrong_type_or_shape(
    arrays: dict[str, object], words: str, tmp_path: Path
) -> None:
    given = {"scores": SCORES, "labels": LABELS, "y": [0, 1]} | arrays
    np.savez(tmp_path / "a.npz", **given)  # type: ignore[arg-type]

    def fit() -> object:
        rows = read_rows(tmp_path / "a.npz")
        return sl.FixedSelector(sl.TopK([1, 2])).fit(rows.ranking(), rows.y)

    with pytest.raises(ValueError, match=words):
        fit()


def test_too_many_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", scores=SCORES, labels=LABELS, y=[0, 2**40])
    with pytest.raises(ValueError, match="1099511627776"):
        read_rows(tmp_path / "a.npz").ranking()
    with pytest.raises(ValueError, match=r"n_classes = 4294967297 .*2147483647"):
        sl.Ranking.from_candidates(LABELS, SCORES, 2**32 + 1)  # Labels are stored as int32.


def test_a_header_that_overflows_gives_no_warning(tmp_path: Path) -> None:
    header = "{'descr': 'V999999999', 'fortran_order': False, 'shape': (1000000, 1000000)}"
    (tmp_path / "scores.npy").write_bytes(data_files.npy(header, b"\x00" * 64))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match=r"scores\.npy is not a readable \.npy file"):
            read_rows(tmp_path)
    assert not caught


def test_long_labels_are_shortened_in_messages() -> None:
    with pytest.raises(ValueError, match="is not one of") as caught:
        sl.FixedSelector().fit(SCORES, ["a" * 5000, "b"], classes=["a", "b", "c"])
    assert len(str(caught.value)) < 300
    with pytest.raises(ValueError, match="is not one of") as caught:
        sl.Ranking.from_candidates([["a" * 5000]], [[0.5]], classes=["a", "b", "c"])
    assert len(str(caught.value)) < 300


def test_huge_scores_give_no_overflow_warning() -> None:
    """The sums of the scores overflow, which only shows that they are not probabilities."""
    scores = np.tile([[1e308, 1.7e308, 0.5]], (40, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = sl.SplitConformal("topk", accuracy=0.7).fit(scores, np.arange(40) % 3)
    assert model.score_type_ == "logits"
