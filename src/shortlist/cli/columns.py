"""Options that say what the columns of a file are, and the rows that they select."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shortlist.cli.options import set_options

if TYPE_CHECKING:
    from shortlist.datasets import FeatureFile, Rows

ID_NAME = re.compile(r"(.*[_ ])?(id|idx|index|key|number|nr|no|row)|unnamed: \d+|rowid", re.I)
"""Names of columns that usually identify rows."""
OUTPUT_COLUMNS = ("row", "size", "labels")
"""Columns that a file of sets has in any case."""


@dataclass(frozen=True)
class DataOptions:
    """What the columns of a file are, and what to do with its bad rows.

    Parameters
    ----------
    label : str, optional
        Name of the column of true labels.
    groups : str, optional
        Name of the column of groups.
    identifier : str, optional
        Name of a column that identifies the rows.
    ignore : sequence of str, optional
        Names of columns that are not used.
    keep : sequence of str, optional
        Names of columns to copy to the output.
    on_bad_rows : str, optional
        "raise" or "skip".
    """

    label: str | None = None
    groups: str | None = None
    identifier: str | None = None
    ignore: Sequence[str] | None = None
    keep: Sequence[str] | None = None
    on_bad_rows: str | None = None

    @property
    def kept(self) -> list[str]:
        """Names of the columns that are copied to the output, the identifier first."""
        return list(dict.fromkeys([*filter(None, [self.identifier]), *(self.keep or ())]))

    @property
    def skips(self) -> bool:
        """Whether bad rows are left out."""
        return self.on_bad_rows == "skip"

    def check(self) -> None:
        """Raise a ValueError if an option has no valid value."""
        from shortlist._utils.validation import check_choice
        from shortlist.datasets.bad_rows import ON_BAD_ROWS

        if self.on_bad_rows is not None:
            check_choice(self.on_bad_rows, "--on-bad-rows", ON_BAD_ROWS)
        for column in self.kept:
            if column in OUTPUT_COLUMNS:
                raise ValueError(
                    f"the column {column!r} cannot be copied: the output has a column of that "
                    "name; rename it"
                )

    def read(self, path: str, split: str) -> Rows:
        """Return all rows of a file, or one split of a feature file."""
        from shortlist.datasets import load, read_rows
        from shortlist.datasets.feature_files import is_feature_file

        if is_feature_file(path):
            self.check_feature_file(path)
            return _rows_of_split(load(path), split)
        return read_rows(path, **self._arguments())

    def stream(self, path: str, split: str) -> Iterator[Rows]:
        """Yield the same rows as `read` in blocks."""
        from shortlist.datasets import stream_rows
        from shortlist.datasets.feature_files import is_feature_file

        if is_feature_file(path):
            yield from self.read(path, split).blocks()
        else:
            yield from stream_rows(path, **self._arguments())

    def check_feature_file(self, path: str) -> None:
        """Raise if there is an option that a feature file cannot have."""
        for name in ("label", "groups", "identifier", "ignore", "keep", "on_bad_rows"):
            if getattr(self, name):
                option = "id" if name == "identifier" else name.replace("_", "-")
                raise ValueError(
                    f"{path} is a feature file, whose arrays have fixed names; leave --{option} out"
                )

    def for_cluster(self, path: str) -> dict[str, Any]:
        """Return the options that a cluster takes; raise if there is one that it does not take."""
        from shortlist.datasets.feature_files import is_feature_file

        if is_feature_file(path):
            raise ValueError(
                f"{path} is a feature file, which does not work with --ray: a cluster reads "
                "Parquet files with scores; leave --ray out"
            )
        for name in ("label", "groups"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"--{name} does not work with --ray: on a cluster, true labels are in the "
                    "column y, and there are no groups"
                )
        # On a cluster, columns that are not known are ignored in any case.
        return set_options(keep=self.kept or None, on_bad_rows=self.on_bad_rows)

    def _arguments(self) -> dict[str, Any]:
        return {
            "label": self.label or "y",
            "groups": self.groups,
            "ignore": self.ignore or (),
            "keep": self.kept,
            "on_bad_rows": self.on_bad_rows or "raise",
        }


def without_unknown_labels(rows: Rows, options: DataOptions) -> Rows:
    """Return the rows whose labels are classes, if bad rows are skipped; else all rows."""
    import numpy as np

    from shortlist.datasets.bad_rows import SkippedRows, without_bad_rows

    if not options.skips or rows.y is None:
        return rows
    classes = rows.classes
    if classes is None and rows.labels is None and rows.y.dtype.kind in "iu":
        classes = np.arange(np.asarray(rows.scores).shape[1])
    skipped = SkippedRows()
    rows = without_bad_rows(rows, skipped, classes)
    if not len(rows):
        raise ValueError(
            f"{rows.name}: no row has a label that is a class; the first is {skipped.first}"
        )
    skipped.warn(rows.name)
    return rows


def check_no_identifier(rows: Rows) -> None:
    """Raise if a column of scores seems to identify the rows.

    Such a column has a whole number in each row, is not the label of any row, and has an
    identifier's name or all its values are different.

    Parameters
    ----------
    rows : Rows
        Rows to learn from.
    """
    import numpy as np

    if rows.y is None or rows.labels is not None or rows.classes is None or len(rows) < 2:
        return
    names = np.asarray(rows.classes)
    scores = np.asarray(rows.scores)
    suspects = [int(i) for i in np.flatnonzero(~np.isin(names, np.unique(rows.y)))]
    for i in suspects:
        name, values = str(names[i]), scores[:, i]
        if not np.array_equal(values, np.round(values)):  # NaN is unequal to itself, too.
            continue
        distinct = len(np.unique(values)) == len(values)
        if distinct or (ID_NAME.fullmatch(name) and len(np.unique(values)) > 2):
            word = shlex.quote(name)
            raise ValueError(
                f"{rows.name}: the column {name!r} looks like an identifier, not like the scores "
                f"of a class: it has whole numbers, such as {values[0]:g}, and no row has this "
                f"label. Use --id {word} to copy it to the output of predict, --ignore {word} to "
                f"leave it out, or --label {word} if it has the true labels"
            )


def extra_rows(file: FeatureFile) -> dict[str, Any]:
    """Return the split `fit` of a feature file as the arguments of `fit` for extra rows."""
    return {
        "extra_features": file.fit.x.astype("float32"),
        "extra_y": file.classes[file.fit.y],
    }


def _rows_of_split(file: FeatureFile, split: str) -> Rows:
    from shortlist.datasets import Rows

    samples = getattr(file, split)
    return Rows(y=file.classes[samples.y], features=samples.x.astype("float32"), name=file.name)
