"""The folder that prediction sets are written to: one complete file for each piece of a table."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.staging import PART, sweep
from shortlist.ray.parquet_files import open_filesystem
from shortlist.ray.table import Piece

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

METADATA_KEY = b"shortlist"
"""Key of the record in the metadata of a file of sets."""
SUMMARY_FILE = "_sets.json"
"""File with the summary, which is written last."""


@dataclass(frozen=True)
class FileRecord:
    """What a file of sets was computed from, and counts of its rows.

    Attributes
    ----------
    fingerprint : str
        Hash of the model, the operating point and the columns that are kept.
    file, stamp : str
        Name, size and modification time of the input file.
    start, n_input_rows : int
        First row of the input, and its number of rows.
    n_rows : int
        Number of sets.
    n_labels : int
        Number of labels in all sets together.
    n_hits : int
        Number of sets that contain the true label.
    n_skipped : int
        Number of bad rows, which have no set.
    """

    fingerprint: str
    file: str
    stamp: str
    start: int
    n_input_rows: int
    n_rows: int = 0
    n_labels: int = 0
    n_hits: int = 0
    n_skipped: int = 0

    @classmethod
    def of(cls, piece: Piece, fingerprint: str) -> FileRecord:
        """Return the record of a piece, before its rows have been counted."""
        return cls(fingerprint, piece.name, piece.stamp, piece.start, piece.n_rows)

    def has_input(self, piece: Piece) -> bool:
        """Return whether the sets are those of a piece."""
        return (self.file, self.stamp, self.start, self.n_input_rows) == (
            *(piece.name, piece.stamp),
            *(piece.start, piece.n_rows),
        )

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class OutputFolder:
    """A folder for files of sets, on a disk or in an object store.

    Attributes
    ----------
    filesystem : pyarrow.fs.FileSystem
        File system of the folder.
    path : str
        Path in the file system.
    name : str
        The path as the user wrote it.
    """

    filesystem: FileSystem
    path: str
    name: str

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> OutputFolder:
        """Create the folder if it does not exist."""
        from pyarrow import fs

        text = os.fspath(path)
        filesystem, folder = open_filesystem(text)
        if filesystem.get_file_info(folder).type == fs.FileType.File:
            raise FileExistsError(f"the output {text!r} is a file; give a folder")
        filesystem.create_dir(folder, recursive=True)
        return cls(filesystem, folder.rstrip("/"), text)

    @property
    def is_local(self) -> bool:
        """Whether the folder is on a disk."""
        return str(self.filesystem.type_name) == "local"

    def _file(self, title: str) -> str:
        return f"{self.path}/{title}.parquet"

    @contextmanager
    def writing(self, title: str) -> Iterator[IO[bytes] | str]:
        """Yield where to write a file, which appears when it is complete."""
        if self.is_local:
            with atomic_write(self._file(title)) as temporary:
                yield str(temporary)
            return
        # In an object store, a file appears when it is closed.
        with self.filesystem.open_output_stream(self._file(title)) as stream:
            yield stream

    def records(self) -> dict[str, FileRecord]:
        """Return the records of the files in the folder, by their titles.

        Raises
        ------
        FileExistsError
            If a Parquet file in the folder has no record.
        """
        from pyarrow import fs, parquet

        records: dict[str, FileRecord] = {}
        for info in self.filesystem.get_file_info(fs.FileSelector(self.path)):
            name = info.base_name
            # Names of temporary files, which a killed worker leaves behind, begin with a dot.
            if not info.is_file or not name.endswith(".parquet") or name.startswith("."):
                continue
            with parquet.ParquetFile(info.path, filesystem=self.filesystem) as file:
                text = (file.metadata.metadata or {}).get(METADATA_KEY)
            if text is None:
                raise FileExistsError(
                    f"{self.name} contains {name}, which was not written by shortlist; give "
                    "another folder"
                )
            records[name.removesuffix(".parquet")] = FileRecord(**json.loads(text))
        return records

    def remove(self, titles: Sequence[str]) -> None:
        """Delete files of sets."""
        for title in titles:
            self.filesystem.delete_file(self._file(title))

    def remove_temporary_files(self) -> None:
        """Delete what killed workers have left behind."""
        if self.is_local:
            sweep(Path(self.path), None, PART)

    def write_summary(self, summary: dict[str, object]) -> None:
        """Write the summary, after all files of sets."""
        text = json.dumps(summary, indent=1) + "\n"
        if self.is_local:
            with atomic_write(f"{self.path}/{SUMMARY_FILE}") as temporary:
                Path(temporary).write_text(text)
            return
        with self.filesystem.open_output_stream(f"{self.path}/{SUMMARY_FILE}") as stream:
            stream.write(text.encode())
