"""Data: the Gaussians are what they claim, files are checked and never executed."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import shortlist as sl
from shortlist.datasets import FeatureFile, Samples, digits, gaussian, load


def class_means(seed: int, separation: float, n_classes: int, dimension: int) -> np.ndarray:
    """The problem's means, estimated from a very large sample of it."""
    data = gaussian(400_000, separation, seed, n_classes=n_classes, dimension=dimension)
    return np.stack([data.x[data.y == k].mean(axis=0, dtype=np.float64) for k in range(n_classes)])


def test_the_posterior_is_bayes_rule_with_scipys_densities() -> None:
    data = gaussian(300, 1.0, seed=3, n_classes=4, dimension=3)
    means = class_means(3, 1.0, 4, 3)
    densities = np.stack([multivariate_normal(m, np.eye(3)).pdf(data.x) for m in means], axis=1)
    expected = densities / densities.sum(axis=1, keepdims=True)
    assert data.posterior is not None
    np.testing.assert_allclose(data.posterior, expected, atol=0.01)


def test_the_posterior_is_calibrated() -> None:
    data = gaussian(100_000)
    assert data.posterior is not None
    top = data.posterior.max(axis=1)
    right = data.posterior.argmax(axis=1) == data.y
    assert abs(top.mean() - right.mean()) < 0.006  # four standard errors
    assert 0.4 < right.mean() < 0.6


@pytest.mark.parametrize("rows", [1, 7, 1000, 1003])
def test_classes_are_balanced(rows: int) -> None:
    data = gaussian(rows, dimension=2)
    counts = np.bincount(data.y, minlength=10)
    assert counts.sum() == rows
    assert counts.max() - counts.min() <= 1
    assert data.x.shape == (rows, 2)
    assert data.x.dtype == np.float32


def test_every_m_samples_the_same_problem() -> None:
    """Rows of a small sample have, under a large sample's means, their own posterior."""
    small = gaussian(500, 1.0, seed=5, n_classes=3, dimension=4)
    means = class_means(5, 1.0, 3, 4)
    logits = small.x @ means.T - 0.5 * (means**2).sum(axis=1)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert small.posterior is not None
    np.testing.assert_allclose(p / p.sum(axis=1, keepdims=True), small.posterior, atol=0.01)
    other = gaussian(500, 1.0, seed=6, n_classes=3, dimension=4)
    assert other.posterior is not None
    assert not np.allclose(class_means(6, 1.0, 3, 4), means, atol=0.1)


def test_the_seed_is_all_that_is_random() -> None:
    a, b, c = gaussian(50), gaussian(50), gaussian(50, seed=1)
    assert np.array_equal(a.x, b.x)
    assert np.array_equal(a.y, b.y)
    assert not np.array_equal(a.x, c.x)


@pytest.mark.parametrize(
    "wrong", [{"m": 0}, {"m": 2.5}, {"separation": 0.0}, {"separation": -1.0}, {"n_classes": 1}]
)
def test_gaussians_that_cannot_be(wrong: dict[str, float]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"{name} must .*; got {value}"):
        gaussian(**({"m": 10} | wrong))  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 40), max_size=4), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_a_split_is_a_partition(sizes: list[int], seed: int) -> None:
    data = Samples(np.arange(170.0)[:, None], np.arange(170), np.arange(170))
    parts = data.split(*sizes, seed=seed)
    assert [len(p) for p in parts] == [*sizes, *([170 - sum(sizes)] if sum(sizes) < 170 else [])]
    assert sorted(np.concatenate([p.y for p in parts])) == list(range(170))
    for part in parts:
        assert np.array_equal(part.x[:, 0], part.y)  # rows stay together


def test_a_split_keeps_the_posterior_and_can_be_all() -> None:
    data = gaussian(100, dimension=3)
    (whole,) = data.split(100)
    assert whole.posterior is not None
    assert data.posterior is not None
    order = np.lexsort(whole.x.T), np.lexsort(data.x.T)
    assert np.array_equal(whole.posterior[order[0]], data.posterior[order[1]])


@pytest.mark.parametrize("sizes", [(80, 30), (0, 10), (-5,)])
def test_parts_that_cannot_be(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"cannot take parts of .* out of 100 rows"):
        gaussian(100, dimension=2).split(*sizes)


def test_digits() -> None:
    data = digits()
    assert data.x.shape == (1797, 64)
    assert (data.x.min(), data.x.max()) == (0, 1)
    assert set(data.y) == set(range(10)) == set(data.classes)
    assert np.bincount(data.y[:300]).min() > 15  # in random order, not sorted by class
    assert repr(data) == "Samples(1,797 × 64, 10 classes)"


# Feature files


def arrays(**changed: object) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    made: dict[str, object] = {}
    for part, rows in (("fit", 8), ("select", 6), ("test", 5)):
        made[f"x_{part}"] = rng.normal(size=(rows, 3)).astype(np.float16)
        made[f"y_{part}"] = np.arange(rows) % 4
    return {k: v for k, v in (made | changed).items() if v is not None}  # type: ignore[misc]


def write(folder: Path, **changed: object) -> Path:
    path = folder / "mine.npz"
    np.savez_compressed(path, **arrays(**changed))
    return path


def test_a_file_comes_back_as_it_went(tmp_path: Path) -> None:
    file = load(write(tmp_path, classes=np.array(["a", "b", "c", "d", "e"])))
    assert isinstance(file, FeatureFile)
    for part in ("fit", "select", "test"):
        samples = getattr(file, part)
        assert np.array_equal(samples.x, arrays()[f"x_{part}"])
        assert samples.x.dtype == np.float16
        assert np.array_equal(samples.y, arrays()[f"y_{part}"])
    assert file.classes.tolist() == ["a", "b", "c", "d", "e"]
    assert file.name == "mine"
    assert load(str(write(tmp_path))).classes.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_select": None, "y_test": None}, r"mine\.npz lacks x_select, y_test.*It has: x_fit"),
        ({"x_fit": np.zeros(8)}, r"x_fit must be \(rows, features\).*\(8,\) and \(8,\)"),
        ({"y_fit": np.zeros((8, 1), int)}, r"\(8, 3\) and \(8, 1\)"),
        ({"y_select": np.zeros(5, int)}, r"x_select.*\(6, 3\) and \(5,\)"),
        ({"x_test": np.zeros((0, 3)), "y_test": np.zeros(0, int)}, r"\(0, 3\) and \(0,\)"),
        ({"x_test": np.zeros((5, 4))}, r"3, 3 and 4 columns"),
        ({"x_fit": np.zeros((8, 3), int)}, r"x_fit must hold floats.*int64"),
        ({"y_fit": np.zeros(8)}, r"label indices.*float64"),
        ({"y_test": np.array([0, 1, -2, 0, 1])}, r"y_test holds -2"),
        ({"classes": np.array(["a", "b"])}, r"labels up to 3, but classes of shape \(2,\)"),
        ({"classes": np.array("abc")}, r"classes of shape \(\)"),
    ],
)
def test_what_is_wrong_with_a_file(
    changed: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path, **changed))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"):
        load(tmp_path / "nothing.npz")


class Trap:
    """What a pickle can do."""

    sprung = False

    @staticmethod
    def spring() -> None:
        Trap.sprung = True

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return Trap.spring, ()


@pytest.mark.parametrize("name", ["classes", "x_fit", "extra"])
def test_nothing_in_a_file_is_executed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trap.npz"
    trap = np.empty(5, dtype=object)
    trap[:] = [Trap() for _ in range(5)]
    np.savez(path, **(arrays() | {name: trap}), allow_pickle=True)
    with pytest.raises(ValueError, match=r"trap\.npz is not a readable \.npz file"):
        load(path)
    assert not Trap.sprung


def test_other_files(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("not a zip")
    (tmp_path / "empty.npz").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "zip.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    for name in ("one.npy", "text.npz", "empty.npz"):
        with pytest.raises(ValueError, match=f"{name} is not a readable"):
            load(tmp_path / name)
    with pytest.raises(ValueError, match=r"zip\.npz lacks x_fit"):
        load(tmp_path / "zip.npz")
    with pytest.raises(ValueError, match="is not a readable"):
        load(tmp_path)


def attempt(path: Path) -> FeatureFile | str:
    """What the file holds, or the complaint about it."""
    try:
        return load(path)
    except ValueError as error:
        return str(error)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_file_is_refused_or_read_whole(data: st.DataObject) -> None:
    """Cut anywhere, or with any byte changed: an error of ours, or the arrays unchanged."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays())
    content = bytearray(buffer.getvalue())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        content[at] ^= data.draw(st.integers(1, 255))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.npz"
        path.write_bytes(content)
        outcome = attempt(path)
    if isinstance(outcome, str):
        assert "damaged.npz" in outcome
    else:
        assert np.array_equal(outcome.fit.x, arrays()["x_fit"])


def test_the_public_door() -> None:
    assert sl.datasets.load is load
