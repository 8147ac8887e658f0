"""Scores and ranked candidates in .npz files are read, validated and ranked."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import shortlist as sl
from shortlist.datasets import Rows, load, read_rows

DATA = Path(os.environ.get("SHORTLIST_DATA", Path(__file__).parents[3] / "shared" / "data"))

CANDIDATES = {
    "labels": np.array([[3, 1, 0], [2, 4, -1]], dtype=np.int16),
    "scores": np.array([[0.5, 0.3, 0.1], [0.6, 0.2, np.nan]], dtype=np.float32),  # NaN is padding.
    "y": np.array([1, 3], dtype=np.int16),
}
SCORES = {
    "scores": np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], dtype=np.float32),
    "y": np.array([1, 2]),
    "features": np.arange(8, dtype=np.float16).reshape(2, 4),
}


def write(folder: Path, arrays: dict[str, np.ndarray], changed: dict[str, object]) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **{k: v for k, v in (arrays | changed).items() if v is not None})  # type: ignore[arg-type]
    return path


def fit(path: Path) -> sl.SetPredictor:
    """Read a file and fit a model on it. An invalid file must make one of them raise."""
    rows = read_rows(path)
    return sl.Shortlister(max_epochs=1, calibration=None).fit(rows.ranking(), rows.y, rows.features)


def test_candidates_are_read_and_ranked(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, CANDIDATES, {"n_classes": np.array(6)}))
    for name, array in CANDIDATES.items():
        np.testing.assert_array_equal(getattr(rows, name), array)
        assert getattr(rows, name).dtype == array.dtype
    assert (rows.n_classes, len(rows), rows.name) == (6, 2, "mine.npz")
    assert repr(rows) == "Rows(2 rows, candidates)"
    expected = sl.Ranking.from_candidates(CANDIDATES["labels"], CANDIDATES["scores"], 6)
    np.testing.assert_array_equal(rows.ranking().labels, expected.labels)
    assert rows.ranking().n_classes == 6
    assert rows.ranking().rank(rows.y).tolist() == [1, np.inf]


def test_candidates_with_names(tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])
    rows = read_rows(write(tmp_path, CANDIDATES, {"classes": names}))
    assert rows.classes.tolist() == names.tolist()
    assert rows.y.tolist() == ["bee", "dog"]
    assert rows.labels == [["dog", "bee", "ant"], ["cat", "eel", None]]
    assert rows.ranking().n_classes == 6
    assert rows.ranking().rank(rows.y).tolist() == [1, np.inf]


@pytest.mark.parametrize(
    ("given", "n"), [({}, 5), ({"n_classes": np.array(9)}, 9), ({"y": np.array([7, 0])}, 8)]
)
def test_classes_without_names_are_counted(given: dict[str, object], n: int, tmp_path: Path):
    assert read_rows(write(tmp_path, CANDIDATES, given)).ranking().n_classes == n


def test_scores_are_read_and_ranked(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, SCORES, {}))
    for name, array in SCORES.items():
        np.testing.assert_array_equal(getattr(rows, name), array)
        assert getattr(rows, name).dtype == array.dtype
    assert rows.ranking().rank(rows.y).tolist() == [1, 0]
    assert repr(rows) == "Rows(2 rows, 3 classes, 4 features)"
    named = read_rows(write(tmp_path, SCORES, {"features": None, "classes": np.array(list("abc"))}))
    assert named.features is None
    assert named.classes.tolist() == ["a", "b", "c"]
    assert named.y.tolist() == ["b", "c"]
    assert named.ranking().rank(named.y).tolist() == [1, 0]
    integers = read_rows(write(tmp_path, SCORES, {"scores": np.array([[5, 3, 2], [1, 2, 7]])}))
    assert integers.ranking().rank(integers.y).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": np.zeros((2, 2), int)}, r"the same shape; got \(2, 2\) and \(2, 3\)"),
        ({"y": np.zeros(3, int)}, r"y has shape \(3,\), but there are 2 rows"),
        ({"labels": np.zeros((2, 3))}, r"candidate labels hold floats.*float64"),
        ({"labels": np.full((2, 3), "ant")}, r"mine\.npz: candidate scores hold nan at row 1"),
        (
            {"labels": np.full((2, 3), "ant"), "scores": np.ones((2, 3))},
            r"mine\.npz: row 0 lists label 2 twice",
        ),
        ({"scores": np.zeros((2, 3), complex)}, r"scores must hold numbers; got complex128"),
        ({"y": np.zeros(2)}, r"y holds floats.*float64"),
        ({"labels": np.array([[0, 1, -2], [0, 1, 2]])}, r"label -2 at row 0.*-1 pads"),
        ({"y": np.array([0, -1])}, r"y\[1\] = -1 is not one of"),
        ({"labels": np.array([[0, 1, 1], [0, 1, -1]])}, r"mine\.npz: row 0 lists label 1 twice"),
        ({"labels": np.array([[0, 1, 2], [-1, -1, -1]])}, r"row 1 has no candidates"),
        ({"labels": np.array([[3, 1, 0], [2, 4, 0]])}, r"candidate scores hold nan at row 1"),
        ({"classes": np.array(["ant", "bee"])}, r"mine\.npz: y\[1\] = 3, but there are 2 classes"),
        (
            {"classes": np.array(list("abc")), "y": None},
            r"a label is 3 \(row 0, place 0\), but there are 3 classes",
        ),
        ({"n_classes": np.array(4)}, r"mine\.npz: candidate label 4 .*the 4 classes 0 to 3"),
        ({"n_classes": np.array([9])}, r"n_classes must be one integer"),
        (
            {"scores": np.zeros((0, 3)), "labels": np.zeros((0, 3), int), "y": np.zeros(0, int)},
            "there are no rows",
        ),
    ],
)
def test_wrong_candidates(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        fit(write(tmp_path, CANDIDATES, changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scores": np.zeros((2, 1))}, r"mine\.npz: scores have shape \(2, 1\): one class only"),
        ({"scores": np.zeros(2)}, r"scores must be \(rows, classes\); got shape \(2,\)"),
        ({"y": np.zeros((2, 1), int)}, r"one label for each row.*\(2, 1\)"),
        ({"scores": np.full((2, 3), "0")}, r"scores must hold numbers; got <U1"),
        ({"y": np.array(["a", "b"])}, r"2 distinct labels.*3 columns"),
        ({"y": np.array([0, 3])}, r"y\[1\] = 3 is not one of the classes 0 to 2"),
        ({"y": np.array([0, -1])}, r"y\[1\] = -1 is not one of"),
        (
            {"scores": np.array([[0, 1, np.nan], [0, 1, 2]])},
            r"mine\.npz: scores holds nan at row 0, column 2",
        ),
        ({"features": np.zeros((3, 4))}, r"features has shape \(3, 4\), but there are 2 rows"),
        ({"features": np.zeros(2)}, r"features must be \(rows, columns\); got shape \(2,\)"),
        ({"features": np.zeros((2, 4), "M8[s]")}, r"features must hold numbers; got datetime64"),
        ({"features": np.full((2, 4), np.inf)}, r"features holds inf at row 0"),
        ({"classes": np.array(list("abcd"))}, r"scores for 3 classes, but 4 names"),
    ],
)
def test_wrong_scores(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        fit(write(tmp_path, SCORES, changed))


def test_the_error_about_an_unknown_file_describes_the_layouts(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, logits=np.zeros((2, 3)), target=np.zeros(2))
    with pytest.raises(ValueError, match="not a feature file") as caught:
        load(path)
    for words in ("x_fit, y_fit", "labels, scores", "(scores [", "It has: logits, target"):
        assert words in str(caught.value)
    with pytest.raises(ValueError, match=r"no array named scores.*labels, scores.*logits, target"):
        read_rows(path)


def test_a_file_of_scores_is_not_a_feature_file(tmp_path: Path) -> None:
    path = write(tmp_path, SCORES, {})
    with pytest.raises(ValueError, match=r"holds scores, not features \(x_fit.*read_rows.*It has"):
        load(path)


@pytest.mark.parametrize("arrays", [SCORES, CANDIDATES], ids=["scores", "candidates"])
def test_nothing_in_a_file_is_executed(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    class MaliciousObject:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return (exec, (f"open({str(tmp_path / 'executed')!r}, 'w')",))

    objects = np.empty(3, dtype=object)
    objects[:] = [MaliciousObject() for _ in range(3)]
    with pytest.raises(ValueError, match="not a readable"):
        read_rows(write(tmp_path, arrays, {"classes": objects}))
    assert not (tmp_path / "executed").exists()


def test_arrays_and_lists_are_indexed_in_the_same_way() -> None:
    scores, y = np.arange(12.0).reshape(4, 3), np.arange(4)
    for values in (scores, scores.tolist()):
        rows = Rows(values, labels=np.tile([0, 1, 2], (4, 1)), y=y)
        for index in (slice(1, 3), np.array([1, 2]), np.array([False, True, True, False])):
            part = rows[index]
            assert np.asarray(part.scores).tolist() == scores[1:3].tolist()
            assert part.y.tolist() == [1, 2]
        blocks = list(rows.blocks(3))
        assert list(map(len, blocks)) == [3, 1]
        concatenated = Rows.concatenate(blocks)
        assert np.asarray(concatenated.scores).tolist() == scores.tolist()
        assert concatenated.y.tolist() == y.tolist()


def test_rows_without_scores_have_no_ranking() -> None:
    rows = Rows(features=np.zeros((3, 2)), name="mine")
    assert len(rows) == 3
    with pytest.raises(ValueError, match="mine has features, but no scores"):
        rows.ranking()


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data at {DATA}")
@pytest.mark.parametrize("model", ["resnet50", "vgg16", "nasnetlarge"])
def test_imagenet_candidates(model: str) -> None:
    rows = read_rows(DATA / f"imagenet_top5_{model}.npz")
    assert len(rows) == 50_000
    ranking = rows.ranking()
    assert (ranking.n_classes, ranking.depth) == (1000, 5)
    ranks = ranking.rank(rows.y)
    assert 0.6 < np.mean(ranks == 0) < np.mean(ranks < 5) < 1
