"""What the columns of a file are, where names alone do not say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shortlist._utils.frames import format_names


class InvalidColumnsError(ValueError):
    """Raised for a file that can be read, but whose columns do not form rows."""


@dataclass(frozen=True)
class ColumnRoles:
    """Columns (or arrays) of a file that are not scores.

    Parameters
    ----------
    label : str, default="y"
        Name of the column of true labels, which a file for prediction need not have.
    groups : str, optional
        Name of the column of groups.
    ignore : tuple of str, default=()
        Names of columns that are not used.
    keep : tuple of str, default=()
        Names of columns that are copied to `Rows.extra`. They are not scores. Those that have
        another role (labels, groups, features) keep it.

    Raises
    ------
    ValueError
        If a column is both ignored and used.

    Examples
    --------
    >>> ColumnRoles(label="species", ignore=("comment",)).not_scores
    ('species', 'comment')
    """

    label: str = "y"
    groups: str | None = None
    ignore: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        used = {self.label: "label", **dict.fromkeys(self.keep, "keep")}
        if self.groups is not None:
            used[self.groups] = "groups"
            if self.groups == self.label:
                raise ValueError(f"the column {self.label!r} cannot be both label and groups")
        for name in self.ignore:
            if name in used:
                raise ValueError(f"the column {name!r} is in both ignore and {used[name]}")

    @property
    def not_scores(self) -> tuple[str, ...]:
        """Names of all columns with a role."""
        groups = () if self.groups is None else (self.groups,)
        return (self.label, *groups, *self.ignore, *self.keep)

    def check(self, names: Sequence[str], name: str) -> None:
        """Raise an `InvalidColumnsError` unless the file `name` has the columns.

        Parameters
        ----------
        names : sequence of str
            Names of all columns of the file.
        name : str
            Name of the file, for messages.
        """
        required = {**dict.fromkeys(self.ignore, "ignore"), **dict.fromkeys(self.keep, "keep")}
        if self.groups is not None:
            required[self.groups] = "groups"
        for column, role in required.items():
            if column not in names:
                raise InvalidColumnsError(
                    f"{name} has no column {column!r} ({role}); its columns are "
                    f"{format_names(names, 12)}"
                )
        if self.label != "y" and "y" in names and "y" not in self.not_scores:
            raise InvalidColumnsError(
                f"{name} has a column 'y' besides the labels {self.label!r}; pass ignore=[...] to "
                "leave it out"
            )


DEFAULT_ROLES = ColumnRoles()
