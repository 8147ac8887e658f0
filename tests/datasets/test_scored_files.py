"""Files of scores and of ranked candidates: told apart, checked, and ranked."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from shortlist import Ranking
from shortlist.datasets import CandidateFile, ScoreFile, load

DATA = Path(os.environ.get("SHORTLIST_DATA", Path(__file__).parents[3] / "shared" / "data"))

CANDIDATES = {
    "labels": np.array([[3, 1, 0], [2, 4, -1]], dtype=np.int16),
    "scores": np.array([[0.5, 0.3, 0.1], [0.6, 0.2, np.nan]], dtype=np.float32),  # nan pads
    "y": np.array([1, 3], dtype=np.int16),
}
SCORES = {
    "scores": np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], dtype=np.float32),
    "y": np.array([1, 2]),
    "features": np.arange(8, dtype=np.float16).reshape(2, 4),
}


def write(folder: Path, known: dict[str, np.ndarray], changed: dict[str, object]) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **{k: v for k, v in (known | changed).items() if v is not None})  # type: ignore[arg-type]
    return path


def test_candidates_come_back_and_are_ranked(tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])
    file = load(write(tmp_path, CANDIDATES, {"classes": names}))
    assert isinstance(file, CandidateFile)
    for name, array in CANDIDATES.items():
        np.testing.assert_array_equal(getattr(file, name), array)
        assert getattr(file, name).dtype == array.dtype
    assert file.classes.tolist() == names.tolist()
    assert (file.n_classes, len(file), file.name) == (6, 2, "mine")
    expected = Ranking.from_candidates(CANDIDATES["labels"], CANDIDATES["scores"], 6)
    np.testing.assert_array_equal(file.ranking().labels, expected.labels)
    assert file.ranking().n_classes == 6
    assert file.ranking().rank(file.y).tolist() == [1, np.inf]


@pytest.mark.parametrize(
    ("given", "n"), [({}, 5), ({"n_classes": np.array(9)}, 9), ({"y": np.array([7, 0])}, 8)]
)
def test_classes_without_names_are_counted(given: dict[str, object], n: int, tmp_path: Path):
    file = load(write(tmp_path, CANDIDATES, given), "candidates")
    assert file.classes.tolist() == list(range(n))
    assert file.ranking().n_classes == n


def test_scores_come_back_and_are_ranked(tmp_path: Path) -> None:
    file = load(write(tmp_path, SCORES, {}))
    assert isinstance(file, ScoreFile)
    for name, array in SCORES.items():
        np.testing.assert_array_equal(getattr(file, name), array)
        assert getattr(file, name).dtype == array.dtype
    assert file.classes.tolist() == [0, 1, 2]
    assert file.ranking().rank(file.y).tolist() == [1, 0]
    assert repr(file) == "ScoreFile(2 rows, 3 classes, 4 features)"
    bare = load(write(tmp_path, SCORES, {"features": None, "classes": np.array(list("abc"))}))
    assert isinstance(bare, ScoreFile)
    assert bare.features is None
    assert bare.classes.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": np.zeros((2, 2), int)}, r"\(2, 2\), \(2, 3\) and \(2,\)"),
        ({"y": np.zeros(3, int)}, r"\(2, 3\), \(2, 3\) and \(3,\)"),
        ({"labels": np.zeros((2, 3))}, r"labels must hold indices.*got float64, float32 and int16"),
        ({"labels": np.full((2, 3), "ant")}, r"labels must hold indices.*got <U3"),
        ({"scores": np.zeros((2, 3), int)}, r"scores floats.*int64"),
        ({"y": np.zeros(2)}, r"y label indices.*float64"),
        ({"labels": np.array([[0, 1, -2], [0, 1, 2]])}, r"labels holds -2.*only -1 pads"),
        ({"y": np.array([0, -1])}, r"y holds -1; labels are indices counted from 0$"),
        ({"labels": np.array([[0, 1, 1], [0, 1, -1]])}, r"mine\.npz: row 0 lists label 1 twice"),
        ({"labels": np.array([[0, 1, 2], [-1, -1, -1]])}, r"row 1 has no candidates"),
        ({"labels": np.array([[3, 1, 0], [2, 4, 0]])}, r"candidate scores hold nan at row 1"),
        ({"classes": np.array(["ant", "bee"])}, r"labels up to 4, but classes of shape \(2,\)"),
        ({"n_classes": np.array(4)}, r"labels up to 4, but n_classes = 4.*at least 5"),
        ({"n_classes": np.array([9])}, r"n_classes = \[9\]"),
        (
            {"scores": np.zeros((0, 3)), "labels": np.zeros((0, 3), int), "y": np.zeros(0, int)},
            "empty",
        ),
    ],
)
def test_wrong_candidates(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path, CANDIDATES, changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scores": np.zeros((2, 1))}, r"two classes or more.*got \(2, 1\) and \(2,\)"),
        ({"y": np.zeros((2, 1), int)}, r"got \(2, 3\) and \(2, 1\)"),
        ({"scores": np.zeros((2, 3), int)}, r"scores must hold floats.*int64"),
        ({"y": np.array(["a", "b"])}, r"y label indices.*<U1"),
        ({"y": np.array([0, 3])}, r"labels up to 3, but n_classes = 3"),
        ({"y": np.array([0, -1])}, r"y holds -1"),
        ({"scores": np.array([[0, 1, np.nan], [0, 1, 2]])}, r"scores holds nan at row 0, column 2"),
        ({"features": np.zeros((3, 4))}, r"for 2 rows; got \(3, 4\)"),
        ({"features": np.zeros((2, 4), int)}, r"features must hold floats"),
        ({"features": np.full((2, 4), np.inf)}, r"features holds inf at row 0"),
        ({"classes": np.array(list("abcd"))}, r"scores of 3 classes, but 4 names"),
    ],
)
def test_wrong_scores(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path, SCORES, changed))


def test_a_stranger_is_told_the_three_layouts(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, logits=np.zeros((2, 3)), target=np.zeros(2))
    with pytest.raises(ValueError, match="none of the files") as caught:
        load(path)
    for words in ("x_fit, y_fit", "labels, scores, y", "(scores, y[", "It has: logits, target"):
        assert words in str(caught.value)


def test_the_kind_that_will_do(tmp_path: Path) -> None:
    path = write(tmp_path, SCORES, {})
    with pytest.raises(ValueError, match=r"holds scores, not features \(x_fit.*It has: features"):
        load(path, "features")
    with pytest.raises(ValueError, match="kind must be one of 'features', 'candidates', 'scores'"):
        load(path, "score")  # type: ignore[call-overload]


@pytest.mark.parametrize("known", [SCORES, CANDIDATES], ids=["scores", "candidates"])
def test_nothing_in_a_file_is_executed(known: dict[str, np.ndarray], tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return (exec, (f"open({str(tmp_path / 'sprung')!r}, 'w')",))

    trap = np.empty(3, dtype=object)
    trap[:] = [Trap() for _ in range(3)]
    with pytest.raises(ValueError, match="not a readable"):
        load(write(tmp_path, known, {"classes": trap}))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data at {DATA}")
@pytest.mark.parametrize("model", ["resnet50", "vgg16", "nasnetlarge"])
def test_the_files_of_imagenet(model: str) -> None:
    file = load(DATA / f"imagenet_top5_{model}.npz", "candidates")
    assert len(file) == 50_000
    assert (file.n_classes, file.ranking().depth) == (1000, 5)
    top1 = np.mean(file.ranking().rank(file.y) == 0)
    assert 0.6 < top1 < np.mean(file.ranking().rank(file.y) < 5) < 1
