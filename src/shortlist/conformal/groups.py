"""Groups of rows, for guarantees that are conditional on groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.frames import format_names
from shortlist._utils.labels import label_array


def group_names(groups: ArrayLike, n_rows: int) -> list[object]:
    """Return the name of each row's group; raise if there is not one for each row."""
    names: list[object] = label_array(groups, "groups").tolist()
    if len(names) != n_rows:
        raise ValueError(f"groups has {len(names)} entries, but the scores have {n_rows} rows")
    return names


def encode_groups(groups: ArrayLike, n_rows: int) -> tuple[NDArray[np.int64], list[object]]:
    """Return the group of each row as an index, and the names of the groups."""
    names = group_names(groups, n_rows)
    distinct = list(dict.fromkeys(names))
    index = {name: i for i, name in enumerate(distinct)}
    return np.array([index[name] for name in names], dtype=np.int64), distinct


def note_on_absent(names: list[object]) -> str:
    """Return the note that nothing is guaranteed for groups or classes without rows."""
    return f"nothing is guaranteed for {format_names(names)} (no calibration rows)"
