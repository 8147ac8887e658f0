"""Feature files are saved and loaded without loss, are validated, and are never executed."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import shortlist as sl
from shortlist.datasets import FeatureFile, Samples, load, save


def arrays(**changed: object) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    valid: dict[str, object] = {}
    for split, rows in (("fit", 8), ("select", 6), ("test", 5)):
        valid[f"x_{split}"] = rng.normal(size=(rows, 3)).astype(np.float16)
        valid[f"y_{split}"] = np.arange(rows) % 4
    return {k: v for k, v in (valid | changed).items() if v is not None}  # type: ignore[misc]


def write(folder: Path, **changed: object) -> Path:
    path = folder / "mine.npz"
    np.savez_compressed(path, **arrays(**changed))
    return path


def test_load(tmp_path: Path) -> None:
    file = load(write(tmp_path, classes=np.array(["a", "b", "c", "d", "e"])))
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
        ({"classes": np.zeros(4, "datetime64[s]")}, r"names or numbers; got datetime64"),
        ({"x_test": np.zeros((5, 0))}, r"x_test.*\(5, 0\) and \(5,\)"),
        ({"x_select": np.diag([np.nan] * 6)[:, :3]}, r"x_select holds nan at row 0, column 0"),
        ({"x_fit": np.full((8, 3), -np.inf)}, r"mine\.npz: x_fit holds -inf at row 0, column 0"),
    ],
)
def test_invalid_arrays(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path, **changed))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"):
        load(tmp_path / "nothing.npz")


class MaliciousObject:
    """An object whose pickle calls a function when it is loaded."""

    was_executed = False

    @staticmethod
    def execute() -> None:
        MaliciousObject.was_executed = True

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return MaliciousObject.execute, ()


@pytest.mark.parametrize("name", ["classes", "x_fit", "extra"])
def test_nothing_in_a_file_is_executed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "malicious.npz"
    objects = np.empty(5, dtype=object)
    objects[:] = [MaliciousObject() for _ in range(5)]
    np.savez(path, **(arrays() | {name: objects}), allow_pickle=True)
    with pytest.raises(ValueError, match=r"malicious\.npz is not a readable \.npz file"):
        load(path)
    assert not MaliciousObject.was_executed


def test_other_files(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("not a zip")
    (tmp_path / "empty.npz").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "zip.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    for name in ("one.npy", "text.npz", "empty.npz"):
        with pytest.raises(ValueError, match=f"{name} is not a readable"):
            load(tmp_path / name)
    with pytest.raises(ValueError, match=r"zip\.npz is not a feature file.*It has: readme\.txt"):
        load(tmp_path / "zip.npz")
    with pytest.raises(ValueError, match="is not a readable"):
        load(tmp_path)


def load_or_error(path: Path) -> FeatureFile | str:
    """Return the content of a file, or the error that reading it raises."""
    try:
        return load(path)
    except ValueError as error:
        return str(error)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_file_raises_or_is_read_completely(data: st.DataObject) -> None:
    """A file that is truncated or has a changed byte raises ValueError or has all arrays."""
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
        outcome = load_or_error(path)
    if isinstance(outcome, str):
        assert "damaged.npz" in outcome
    else:
        assert isinstance(outcome, FeatureFile)
        assert np.array_equal(outcome.fit.x, arrays()["x_fit"])


# Writing

SPLITS = ("fit", "select", "test")


@st.composite
def feature_files(draw: st.DrawFn) -> FeatureFile:
    """Draw splits with any sizes, types of numbers and class names."""
    columns, n = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    names = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=4)
    classes = draw(
        st.one_of(
            st.just(np.arange(n)), st.lists(names, min_size=n, max_size=n).map(np.array)
        ).filter(lambda c: c.shape == (n,))
    )
    parts = []
    for _ in SPLITS:
        rows = draw(st.integers(1, 5))
        dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
        x = draw(
            hnp.arrays(
                dtype, (rows, columns), elements={"allow_nan": False, "allow_infinity": False}
            )
        )
        y = draw(
            hnp.arrays(
                draw(st.sampled_from([np.int16, np.int64, np.uint8])),
                rows,
                elements=st.integers(0, n - 1),
            )
        )
        parts.append(Samples(x, y, classes))
    return FeatureFile(*parts, name="mine")


@given(feature_files())
@settings(max_examples=40, deadline=None)
def test_save_and_load(file: FeatureFile) -> None:
    with TemporaryDirectory() as folder:
        path = save(Path(folder) / "new" / "mine.npz", file)
        back = load(path)
        assert [p.name for p in path.parent.iterdir()] == ["mine.npz"]  # No temporary file is left.
    assert back.name == "mine"
    for part in SPLITS:
        one, other = getattr(file, part), getattr(back, part)
        for name in ("x", "y", "classes"):
            before, after = getattr(one, name), getattr(other, name)
            assert before.dtype == after.dtype
            assert np.array_equal(before, after)


def small(rows: int = 9) -> FeatureFile:
    return FeatureFile(*sl.datasets.gaussian(rows, dimension=2).split(4, 3))


def test_an_existing_file_is_not_overwritten_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "mine.npz", small())
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.delattr(np, "savez_compressed")  # Nothing may be written.
        with pytest.raises(FileExistsError, match=r"mine\.npz' exists already.*overwrite=True"):
            save(path, small(20))
    assert path.read_bytes() == before
    save(path, small(20), overwrite=True)
    assert len(load(path).test) == 13


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "mine.npz", small())
    before = path.read_bytes()

    def fail(stream: io.BufferedWriter, **arrays: object) -> None:
        stream.write(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        save(path, small(20), overwrite=True)
    assert os.listdir(tmp_path) == ["mine.npz"]
    assert path.read_bytes() == before


def test_a_file_that_another_process_writes_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, savez_compressed = tmp_path / "mine.npz", np.savez_compressed

    def slow(stream: io.BufferedWriter, **arrays: np.ndarray) -> None:
        savez_compressed(stream, **arrays)
        path.write_text("another file")

    monkeypatch.setattr(np, "savez_compressed", slow)
    with pytest.raises(FileExistsError):
        save(path, small())
    assert path.read_text() == "another file"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: Samples(np.full((3, 2), np.nan), np.arange(3), s.classes), "x_select holds nan"),
        (lambda s: Samples(s.x, s.y + 100, s.classes), "labels up to 10"),
        (lambda s: Samples(s.x, s.y, np.arange(11)), "fit and select must have the same classes"),
        (lambda s: Samples(s.x[:, :1], s.y, s.classes), "2, 1 and 2 columns"),
    ],
)
def test_invalid_splits_are_not_written(change: object, message: str, tmp_path: Path) -> None:
    valid = small()
    invalid = FeatureFile(valid.fit, change(valid.select), valid.test)  # type: ignore[operator]
    with pytest.raises(ValueError, match=message):
        save(tmp_path / "mine.npz", invalid)
    assert not os.listdir(tmp_path)


def test_names_that_are_objects(tmp_path: Path) -> None:
    """Strings are written as strings. Other objects would need a pickle."""
    x, y, path = np.zeros((2, 1)), np.array([0, 1]), tmp_path / "mine.npz"
    strings, mixed = (
        Samples(x, y, np.array(names, dtype=object)) for names in (["a", "b"], ["a", 7])
    )
    save(path, FeatureFile(strings, strings, strings))
    assert load(path).classes.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="classes must hold names or numbers; got object"):
        save(path, FeatureFile(mixed, mixed, mixed), overwrite=True)


def test_invalid_targets(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.npz; got '.*mine'"):
        save(tmp_path / "mine", small())
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        save(tmp_path / "folder.npz", small(), overwrite=True)
    with pytest.raises(ValueError, match="save writes a FeatureFile; got GaussianSamples"):
        save(tmp_path / "x.npz", small().fit)  # type: ignore[arg-type]
