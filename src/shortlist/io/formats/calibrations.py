"""Formats of what a model keeps of its training and calibration rows."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from shortlist.conformal.calibration import Calibration
from shortlist.conformal.path_calibration import PathCalibration
from shortlist.conformal.row_schema import RowSchema
from shortlist.io.fields import (
    COUNT,
    FLAG,
    FRACTION,
    LABEL,
    NONE,
    WEIGHT,
    array,
    choice,
    ensure,
    instance_of,
    integer,
    sequence_of,
    tensor,
)
from shortlist.io.format import Format
from shortlist.predictors.training_rows import TrainingRows

ROWS = integer(0, 2**53)
"""Field of a number of rows, which were not kept and may be more than a table can have."""


def is_index(values: Tensor | np.ndarray, n: int) -> bool:
    """Return whether all values are from 0 to n - 1.

    Parameters
    ----------
    values : Tensor or array of shape (n_values,)
        Integers.
    n : int
        Number of things that they are indices of.

    Returns
    -------
    bool
    """
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < n)


def _check_schema(schema: RowSchema) -> None:
    ensure(len(schema.lengths) == 2, "RowSchema has not two lengths")
    shortest, longest = schema.lengths
    ensure(shortest <= longest <= schema.depth, "RowSchema has rows longer than its depth")


def _check_calibration(calibration: Calibration) -> None:
    n_rows, names = len(calibration.levels), calibration.group_names
    ensure(n_rows > 0, "Calibration has no rows")
    n_labels = len(calibration.y)
    ensure(n_labels == n_rows, f"Calibration has {n_labels} labels of {n_rows} rows")
    ensure(len(set(names)) == len(names), "Calibration repeats a group")
    groups = calibration.groups
    if groups is not None:
        known = len(groups) == n_rows and is_index(groups, len(names))
        ensure(known, "Calibration has rows of unknown groups")
    thresholds, mean_sizes = calibration.thresholds, calibration.mean_sizes
    ensure(len(thresholds) > 0, "Calibration has no thresholds")
    same = len(thresholds) == len(mean_sizes)
    ensure(same, f"Calibration has {len(mean_sizes)} mean sizes of {len(thresholds)} thresholds")
    ensure((np.diff(thresholds) < 0).all(), "Calibration: thresholds must decrease")
    ensure((mean_sizes >= 0).all(), "Calibration has a negative mean size")
    n_choosing = calibration.n_choosing
    ensure(n_choosing <= n_rows, f"Calibration: {n_choosing} rows choose, but it has {n_rows}")


def _check_path(calibration: PathCalibration) -> None:
    members = (calibration.cost_weights, calibration.hits, calibration.total_sizes)
    lengths = set(map(len, members))
    ensure(len(lengths) == 1, "PathCalibration has lists of several lengths")
    hits, n_rows = max(calibration.hits), calibration.n_rows
    ensure(hits <= n_rows, f"PathCalibration has {hits} hits in {n_rows} rows")


def _make_training_rows(keys: Tensor, distinct: float) -> TrainingRows:
    rows = TrainingRows.__new__(TrainingRows)
    rows.keys, rows.distinct = keys.cpu(), distinct
    return rows


CALIBRATION_FORMATS = (
    Format(
        RowSchema,
        {
            "dense": FLAG,
            "depth": COUNT,
            "lengths": sequence_of(integer(), 2, tuple),
            "precision": choice("float32", "float16", "bfloat16"),
        },
        check=_check_schema,
    ),
    Format(
        Calibration,
        {
            "levels": array("f", 1, finite=False),
            "y": array("i", 1),
            "groups": array("i", 1) | NONE,
            "group_names": sequence_of(LABEL),
            "thresholds": array("f", 1, finite=False),
            "mean_sizes": array("f", 1),
            "parameters": instance_of(dict),
            "schema": instance_of(RowSchema),
            "n_given": ROWS | NONE,
            "n_choosing": ROWS,
            "n_chosen_elsewhere": ROWS,
            "exhaustive": FLAG,
        },
        check=_check_calibration,
    ),
    Format(
        PathCalibration,
        {
            "cost_weights": sequence_of(WEIGHT, 1),
            "n_rows": integer(1, 2**53),
            "hits": sequence_of(ROWS, 1),
            "total_sizes": sequence_of(integer(0, 2**62), 1),
        },
        check=_check_path,
    ),
    Format(
        TrainingRows,
        {"keys": tensor("i", 1), "distinct": FRACTION},
        make=_make_training_rows,
    ),
)
