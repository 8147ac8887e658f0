"""CIFAR archives and folders are read pixel by pixel, and damaged ones raise errors."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path

import archives
import numpy as np
import pytest

from shortlist.datasets import Images, read_cifar10, read_cifar100

WRITERS = {
    "python 2": archives.python2,
    "protocol 2": lambda value: pickle.dumps(value, 2),
    "protocol 5": lambda value: pickle.dumps(value, 5),
}


def pixel(row: np.ndarray, height: int, width: int, channel: int) -> int:
    """Return a pixel as CIFAR documents it: 1,024 bytes of red, then green, then blue."""
    return int(row[1024 * channel + 32 * height + width])


def check_pixels(images: Images, rows: np.ndarray) -> None:
    assert images.images.shape == (len(rows), 32, 32, 3)  # type: ignore[union-attr]
    rng = np.random.default_rng(0)
    for _ in range(200):
        i, h, w, c = (int(rng.integers(n)) for n in (len(rows), 32, 32, 3))
        assert images.images[i, h, w, c] == pixel(rows[i], h, w, c)  # type: ignore[index]


@pytest.mark.parametrize("writer", list(WRITERS))
@pytest.mark.parametrize("is_archive", [True, False])
def test_cifar10(writer: str, is_archive: bool, tmp_path: Path) -> None:
    members = archives.cifar10(WRITERS[writer])
    path = (
        archives.tar(tmp_path / "cifar-10-python.tar.gz", members)
        if is_archive
        else archives.unpacked(tmp_path / "cifar-10-batches-py", members)
    )
    train, test = read_cifar10(path), read_cifar10(path, "test")
    check_pixels(train, np.concatenate([archives.rows(4, i) for i in range(5)]))
    check_pixels(test, archives.rows(4, 5))
    labels = [np.random.default_rng(100 + i).integers(0, 10, 4) for i in range(6)]
    assert train.y.tolist() == np.concatenate(labels[:5]).tolist()
    assert test.y.tolist() == labels[5].tolist()
    assert train.classes.tolist() == test.classes.tolist() == archives.NAMES10
    if not is_archive:  # The parent folder is accepted too.
        assert np.array_equal(read_cifar10(tmp_path).images, train.images)


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("is_archive", [True, False])
def test_cifar100(coarse: bool, is_archive: bool, tmp_path: Path) -> None:
    members = archives.cifar100()
    path = (
        archives.tar(tmp_path / "cifar-100-python.tar.gz", members)
        if is_archive
        else archives.unpacked(tmp_path / "cifar-100-python", members)
    )
    for i, part in enumerate(("train", "test")):
        images = read_cifar100(path, part, coarse=coarse)  # type: ignore[arg-type]
        check_pixels(images, archives.rows(6, 10 + i))
        fine = np.random.default_rng(200 + i).integers(0, 100, 6)
        assert images.y.tolist() == (fine // 5 if coarse else fine).tolist()
        assert len(images.classes) == (20 if coarse else 100)
        assert images.classes[1] == ("coarse 1" if coarse else "fine 1")


def batch(**changed: object) -> bytes:
    content = {"data": archives.rows(4, 0), "labels": [0, 1, 2, 9]} | changed
    return archives.python2({k.encode(): v for k, v in content.items() if v is not None})


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        (
            "data_batch_3",
            batch(data=np.zeros((4, 3071), np.uint8)),
            r"3,072 bytes; got uint8.*3071",
        ),
        ("data_batch_3", batch(data=np.zeros((4, 3072), np.float32)), "got float32"),
        ("data_batch_3", batch(data=np.zeros(3072, np.uint8)), r"shape \(3072,\)"),
        ("data_batch_3", batch(labels=[0, 1, 2]), "4 images, but 3 labels"),
        ("data_batch_3", batch(labels=[0, 1, 2, 10]), "labels hold 10; labels must be 0 to 9"),
        ("data_batch_3", batch(labels=[0, 1, 2, -1]), "labels hold -1"),
        ("data_batch_3", batch(labels=[0, 1, 2, b"9"]), "labels hold b'9'"),
        ("data_batch_3", batch(labels=None), "no array data and list labels. It has: data"),
        ("data_batch_3", batch(data=b"bytes"), "no array data"),
        ("data_batch_3", archives.python2([1, 2]), "it holds a list, not a dictionary"),
        ("data_batch_3", b"", "not a readable pickle"),
        ("data_batch_3", b"hello", "not a readable pickle"),
        ("data_batch_3", batch()[:5000], "not a readable pickle"),
        ("batches.meta", archives.python2({b"names": []}), "names label_names. It has: names"),
        ("batches.meta", archives.python2({b"label_names": [1]}), "no list of names label_names"),
    ],
)
@pytest.mark.parametrize("is_archive", [True, False])
def test_invalid_files_in_an_archive(
    member: str, content: bytes, message: str, is_archive: bool, tmp_path: Path
) -> None:
    members = archives.cifar10() | {member: content}
    path = (
        archives.tar(tmp_path / "cifar-10-python.tar.gz", members)
        if is_archive
        else archives.unpacked(tmp_path / "cifar-10-batches-py", members)
    )
    with pytest.raises(ValueError, match=message) as caught:
        read_cifar10(path)
    assert str(caught.value).startswith(f"{path.name}, {member}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["os.system", "eval", "object array", "getattr"])
def test_the_error_about_a_malicious_archive_names_the_function(name: str, tmp_path: Path) -> None:
    content, word = archives.hostile(tmp_path / "mark")[name]
    members = archives.cifar10() | {"data_batch_2": content}
    path = archives.tar(tmp_path / "cifar-10-python.tar.gz", members)
    with pytest.raises(ValueError, match=f"data_batch_2: it .*{word}.*again"):
        read_cifar10(path)
    assert not (tmp_path / "mark").exists()
    # The test images are in another file of the archive.
    assert len(read_cifar10(path, "test")) == 4


def test_missing_files(tmp_path: Path) -> None:
    members = archives.cifar10()
    del members["data_batch_5"]
    for path in (
        archives.tar(tmp_path / "cifar-10-python.tar.gz", members),
        archives.unpacked(tmp_path / "folder", members),
    ):
        with pytest.raises(ValueError, match=f"{path.name} lacks data_batch_5; .*batches-py/"):
            read_cifar10(path)
        assert len(read_cifar10(path, "test")) == 4
    with pytest.raises(ValueError, match="lacks train, meta"):
        read_cifar100(path)
    with pytest.raises(FileNotFoundError, match=r"nothing\.tar\.gz"):
        read_cifar10(tmp_path / "nothing.tar.gz")
    with pytest.raises(ValueError, match="split must be one of 'train', 'test'; got 'val'"):
        read_cifar10(path, "val")  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.6, 0.95])
def test_a_truncated_archive(share: float, tmp_path: Path) -> None:
    path = archives.tar(tmp_path / "cifar-10-python.tar.gz", archives.cifar10())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"cifar-10-python\.tar\.gz (is not a complete|lacks)"):
        read_cifar10(path)


def test_a_file_that_is_not_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_text("<html>404</html>")
    with pytest.raises(ValueError, match=r"not a complete tar archive .*download it again"):
        read_cifar10(path)


def test_paths_outside_of_the_archive_are_ignored(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    members = archives.cifar10()
    batch_1 = members.pop("data_batch_1")
    for name in (
        "../data_batch_1",
        "cifar-10-batches-py/../../data_batch_1",
        "/cifar-10-batches-py/data_batch_1",
        "../cifar-10-batches-py/data_batch_1",
        "x/../cifar-10-batches-py/data_batch_1",
    ):
        path = archives.tar(home / "cifar-10-python.tar.gz", members | {name: batch_1})
        with pytest.raises(ValueError, match="lacks data_batch_1;"):
            read_cifar10(path)
        complete = members | {name: b"other content", "data_batch_1": batch_1}
        assert len(read_cifar10(archives.tar(path, complete))) == 20
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["cifar-10-python.tar.gz", "home"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(archives.cifar10()["data_batch_1"])
    members = archives.cifar10()
    del members["data_batch_1"]
    for link_type in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
        path = archives.tar(tmp_path / "cifar-10-python.tar.gz", members)
        with tarfile.open(path, "w:gz") as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            link = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
            link.type, link.linkname = link_type, str(tmp_path / "secret")
            archive.addfile(link)
        with pytest.raises(ValueError, match="lacks data_batch_1"):
            read_cifar10(path)


def test_a_file_above_the_maximum_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shortlist.datasets.images.cifar.MAX_BYTES", 10_000)
    for path in (
        archives.tar(tmp_path / "cifar-10-python.tar.gz", archives.cifar10()),
        archives.unpacked(tmp_path / "folder", archives.cifar10()),
    ):
        with pytest.raises(
            ValueError, match=r"data_batch_1 has 12,.* bytes, more than the maximum"
        ):
            read_cifar10(path)
