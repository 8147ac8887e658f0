"""Find Parquet files on a disk or in an object store, and validate their schemas."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from shortlist.datasets.columns import FEATURE_PREFIX

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileInfo, FileSystem

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


def open_filesystem(path: str) -> tuple[FileSystem, str]:
    """Return the file system of a path or URI, and the path inside it."""
    from pyarrow import fs

    if "://" in path:
        result: tuple[FileSystem, str] = fs.FileSystem.from_uri(path)
        return result
    return fs.LocalFileSystem(), os.path.abspath(path)


def list_files(paths: Paths) -> tuple[FileSystem, list[tuple[FileInfo, str]]]:
    """List Parquet files.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        Files, and folders of files.

    Returns
    -------
    FileSystem
        The file system of all files.
    list of (FileInfo, str)
        The files, and their names: paths relative to the folder that contains them.

    Raises
    ------
    FileNotFoundError
        If a path does not exist.
    ValueError
        If there are no files, if they are on several file systems, or if two have one name.
    """
    if not isinstance(paths, str | os.PathLike | list | tuple):
        raise ValueError(
            f"the dataset must be paths of Parquet files; got a {type(paths).__name__}. Write a "
            "Ray dataset to such files with dataset.write_parquet(path)"
        )
    texts = [os.fspath(p) for p in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if not texts:
        raise ValueError("the dataset has no paths; give a Parquet file, or a folder of them")
    files: list[tuple[FileInfo, str]] = []
    common, _ = open_filesystem(texts[0])
    for text in texts:
        filesystem, path = open_filesystem(text)
        if filesystem != common:
            raise ValueError(f"all files must be on one file system; {text!r} is on another")
        files += _list_path(filesystem, path, text)
    names = [name for _, name in files]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"two of the files are named {repeated[0]!r}; give a folder that contains both, so "
            "that the output can refer to their rows"
        )
    return common, files


def _list_path(filesystem: FileSystem, path: str, text: str) -> list[tuple[FileInfo, str]]:
    """Return the file at a path, or all Parquet files in the folder at a path."""
    from pyarrow import fs

    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"there is no file or folder at {text!r}")
    if info.type == fs.FileType.File:
        return [(info, path.rsplit("/", 1)[-1])]
    root = path.rstrip("/") + "/"
    entries = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    named = [(entry, entry.path.removeprefix(root)) for entry in entries if entry.is_file]
    files = sorted((pair for pair in named if _is_data(pair[1])), key=lambda pair: str(pair[1]))
    if not files:
        raise ValueError(f"there is no Parquet file in the folder {text!r}")
    return files


def _is_data(name: str) -> bool:
    """Return whether a file is part of a table; hidden files and folders are not."""
    return name.endswith(".parquet") and not any(p[:1] in (".", "_") for p in name.split("/"))


def is_row_column(name: str) -> bool:
    """Return whether a column belongs to the rows of this library."""
    return name in ("scores", "labels", "y", "features") or name.startswith(FEATURE_PREFIX)


def check_schema(schema: pa.Schema, name: str, needs_y: bool, extra: Sequence[str]) -> None:
    """Raise if a required column is missing, or a column has the wrong type."""
    available = f"its columns are: {', '.join(schema.names)}"
    if "scores" not in schema.names:
        raise ValueError(
            f"{name} has no column named scores, with a list of numbers in each row (a column for "
            f"each class is not supported on a cluster); {available}"
        )
    for column in ("scores", "labels", "features"):
        if column in schema.names:
            _check_list_type(schema.field(column).type, column, name)
    if needs_y and "y" not in schema.names:
        raise ValueError(f"{name} has no column named y for the true labels; {available}")
    for column in extra:
        if column not in schema.names:
            raise ValueError(f"{name} has no column named {column!r} to keep; {available}")


def _check_list_type(column_type: pa.DataType, column: str, name: str) -> None:
    """Raise if a column is not a list of numbers or, for labels, of integers or names."""
    import pyarrow as pa

    value_type = getattr(column_type, "value_type", None)
    is_list = value_type is not None and not pa.types.is_dictionary(column_type)
    if column == "labels":
        is_valid = is_list and (pa.types.is_integer(value_type) or pa.types.is_string(value_type))
    else:
        is_valid = is_list and (pa.types.is_floating(value_type) or pa.types.is_integer(value_type))
    if not is_valid:
        values = "integers or names" if column == "labels" else "numbers"
        raise ValueError(f"{name}: {column} is {column_type}, but must be a list of {values}")


def check_same_columns(
    schema: pa.Schema, name: str, other: pa.Schema, other_name: str, extra: Sequence[str]
) -> None:
    """Raise if two files differ in a column that is read."""
    for column in {*schema.names, *other.names}:
        if not is_row_column(column) and column not in extra:
            continue
        own_type, other_type = (
            s.field(column).type if column in s.names else "missing" for s in (schema, other)
        )
        if own_type != other_type:
            raise ValueError(
                f"all files must have the same columns: {column} is {own_type} in {name}, but "
                f"{other_type} in {other_name}"
            )
