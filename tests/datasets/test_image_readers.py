"""SVHN files and folders of images: pixels, labels and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from shortlist.datasets import ImageFiles, Images, read_image_folder, read_svhn


def svhn(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "X": rng.integers(0, 256, (32, 32, 3, rows), dtype=np.uint8),
        "y": np.roll(np.arange(10, 0, -1, dtype=np.uint8), seed)[:rows, None],
    }


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("compressed", [False, True])
def test_svhn(rows: int, compressed: bool, tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "test", "extra")):
        savemat(tmp_path / f"{part}_32x32.mat", svhn(rows, seed), do_compression=compressed)
    for seed, part in enumerate(("train", "test", "extra")):
        known = svhn(rows, seed)
        read = read_svhn(tmp_path, part)  # type: ignore[arg-type]
        for i in range(rows):
            assert np.array_equal(read.images[i], known["X"][:, :, :, i])  # type: ignore[index]
        assert read.y.tolist() == [0 if v == 10 else v for v in known["y"][:, 0]]
        assert read.classes.tolist() == list(range(10))
        from_file = read_svhn(tmp_path / f"{part}_32x32.mat")
        assert np.array_equal(from_file.images, read.images)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 4), np.uint8)}, r"shape \(32, 32, 3, 4\) and \(5, 1\)"),
        ({"X": np.zeros((32, 32, 3, 5))}, "got float64"),
        ({"X": np.zeros((5, 32, 32, 3), np.uint8)}, r"\(5, 32, 32, 3\)"),
        ({"y": np.array([[1], [2], [0], [3], [10]])}, "labels must be 1 to 10; got 0 to 10"),
        ({"y": np.array([[1], [2], [11], [3], [10]])}, "got 1 to 11"),
        ({"y": np.array([[1.5], [2], [1], [3], [10]])}, "labels must be 1 to 10"),
        ({"y": None}, "train_32x32.mat lacks y; SVHN's files have X and y"),
    ],
)
def test_wrong_svhn(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    arrays = {k: v for k, v in (svhn(5) | changed).items() if v is not None}
    savemat(tmp_path / "train_32x32.mat", arrays)
    with pytest.raises(ValueError, match=message):
        read_svhn(tmp_path)


def test_damaged_svhn(tmp_path: Path) -> None:
    path = tmp_path / "train_32x32.mat"
    savemat(path, svhn(5), do_compression=True)
    whole = path.read_bytes()
    for content in (b"", b"<html>404</html>", whole[:100], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"train_32x32\.mat (is not a readable|lacks)"):
            read_svhn(path)
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\0" * 400)
    with pytest.raises(ValueError, match=r"MATLAB 7\.3"):
        read_svhn(path)
    with pytest.raises(FileNotFoundError, match="test_32x32"):
        read_svhn(tmp_path, "test")
    with pytest.raises(ValueError, match="split must be one of"):
        read_svhn(tmp_path, "val")  # type: ignore[arg-type]


# Folders


def write_image(path: Path, color: tuple[int, int, int], size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


def test_classes_and_files_are_sorted_by_name(tmp_path: Path) -> None:
    write_image(tmp_path / "dog" / "b.png", (4, 0, 0))
    write_image(tmp_path / "dog" / "a.bmp", (3, 0, 0))
    write_image(tmp_path / "cat" / "images" / "x.PNG", (2, 0, 0))
    write_image(tmp_path / "cat" / "a.ppm", (1, 0, 0))
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "cat" / "._a.png").write_text("metadata of macOS")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "readme.md").write_text("not a class")
    data = read_image_folder(tmp_path)
    assert data.classes.tolist() == ["cat", "dog"]
    assert data.y.tolist() == [0, 0, 1, 1]
    (batch,) = data.batches(10)
    assert batch.shape == (4, 4, 6, 3)  # The height comes first.
    assert batch.dtype == np.uint8
    assert batch[:, 0, 0, 0].tolist() == [1, 2, 3, 4]
    assert [b[:, 0, 0, 0].tolist() for b in data.batches(3)] == [[1, 2, 3], [4]]
    selected = data[np.array([3, 0])]
    assert next(selected.batches(2))[:, 0, 0, 0].tolist() == [4, 1]
    assert selected.y.tolist() == [1, 0]
    assert [len(data[data.y == k]) for k in (0, 1)] == [2, 2]


def test_every_mode_is_converted_to_rgb(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for mode in ("L", "RGBA", "P", "1", "CMYK", "I;16"):
        suffix = "tif" if mode == "CMYK" else "png"
        Image.new(mode, (5, 5)).save(tmp_path / "a" / f"{mode.replace(';', '')}.{suffix}")
    (batch,) = read_image_folder(tmp_path).batches(10)
    assert batch.shape == (6, 5, 5, 3)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_any_size_is_resized_and_cropped_to_the_center(width: int, height: int, size: int) -> None:
    from tempfile import TemporaryDirectory

    ramp = np.linspace(0, 255, max(width, height)).astype(np.uint8)
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:] = ramp[:width, None] if width >= height else ramp[:, None, None]
    with TemporaryDirectory() as folder:
        (Path(folder) / "a").mkdir()
        Image.fromarray(pixels).save(f"{folder}/a/x.png")
        (batch,) = read_image_folder(folder, size=size).batches(1)
    assert batch.shape == (1, size, size, 3)
    along = batch[0, 0, :, 0] if width >= height else batch[0, :, 0, 0]
    assert (np.diff(along.astype(int)) >= 0).all()
    assert abs(float(along.mean()) - 127) <= 255 * 2 / min(width, height, size * 3) + 2


def test_images_that_differ_in_size(tmp_path: Path) -> None:
    write_image(tmp_path / "a" / "1.png", (1, 2, 3), (6, 4))
    write_image(tmp_path / "a" / "2.png", (1, 2, 3), (4, 6))
    with pytest.raises(ValueError, match=r"2\.png is 6 × 4 pixels, but .*1\.png is 4 × 6.*size="):
        list(read_image_folder(tmp_path).batches(2))
    assert next(read_image_folder(tmp_path, size=3).batches(2)).shape == (2, 3, 3, 3)


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    write_image(tmp_path / "a" / "1.png", (1, 2, 3), (50, 50))
    whole = np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8)
    Image.fromarray(whole).save(tmp_path / "a" / "2.png")
    content = (tmp_path / "a" / "2.png").read_bytes()
    for damaged in (b"", b"no image", content[: len(content) // 2]):
        (tmp_path / "a" / "2.png").write_bytes(damaged)
        data = read_image_folder(tmp_path)  # Nothing is decoded here.
        assert len(data) == 2
        with pytest.raises(ValueError, match=r"2\.png is not a readable image"):
            list(data.batches(2))


def test_the_classes_of_another_split(tmp_path: Path) -> None:
    write_image(tmp_path / "train" / "a" / "1.png", (1, 0, 0))
    write_image(tmp_path / "train" / "b" / "1.png", (1, 0, 0))
    write_image(tmp_path / "train" / "c" / "1.png", (1, 0, 0))
    write_image(tmp_path / "test" / "c" / "1.png", (1, 0, 0))
    train = read_image_folder(tmp_path / "train")
    test = read_image_folder(tmp_path / "test", classes=train.classes.tolist())
    assert test.y.tolist() == [2]
    assert test.classes.tolist() == train.classes.tolist()
    write_image(tmp_path / "test" / "d" / "1.png", (1, 0, 0))
    with pytest.raises(ValueError, match=r"a folder 'd' \(1 such\), which is not one of the 3"):
        read_image_folder(tmp_path / "test", classes=train.classes.tolist())


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder at '.*nothing'"):
        read_image_folder(tmp_path / "nothing")
    with pytest.raises(ValueError, match="has no folders in it"):
        read_image_folder(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(ValueError, match=r"cat has no images \(files ending in"):
        read_image_folder(tmp_path)
    write_image(tmp_path / "cat" / "1.png", (0, 0, 0))
    with pytest.raises(ValueError, match="size must be an integer of at least 1; got 0"):
        read_image_folder(tmp_path, size=0)


def test_pillow_is_loaded_only_to_decode(tmp_path: Path) -> None:
    write_image(tmp_path / "cat" / "1.png", (0, 0, 0))
    code = (
        "import sys; sys.modules['PIL'] = None\n"
        "from shortlist.datasets import read_image_folder\n"
        "data = read_image_folder(sys.argv[1])\n"
        "try: next(data.batches(1))\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "reading image files needs Pillow: pip install 'shortlist[images]'\n"


def test_invalid_images() -> None:
    images = np.zeros((3, 2, 2, 3), np.uint8)
    with pytest.raises(ValueError, match="3 images, but 2 labels"):
        Images(images, np.zeros(2, int), np.arange(1))
    with pytest.raises(ValueError, match=r"got float64 of shape \(3, 2, 2, 3\)"):
        Images(images.astype(float), np.zeros(3, int), np.arange(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no images to decode"):
        ImageFiles(()).decode()
    with pytest.raises(ValueError, match="rows must be an integer"):
        list(Images(images, np.zeros(3, int), np.arange(1)).batches(0))
