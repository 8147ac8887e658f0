"""Standard errors of measured fractions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def standard_error(
    hits: int | NDArray[np.integer], rows: int | NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return the standard error of the fraction of rows with a hit.

    One hit and one miss are added (Laplace's rule), because the usual formula would give 0 for
    100%, as if the fraction were known.

    Parameters
    ----------
    hits, rows : int or array of int
        Number of hits, and of rows.

    Returns
    -------
    array

    Examples
    --------
    >>> standard_error(100, 100).round(3), standard_error(5000, 10_000).round(3)
    (np.float64(0.01), np.float64(0.005))
    """
    n = np.asarray(rows, dtype=np.float64)
    expected = (np.asarray(hits) + 1) / (n + 2)
    error: NDArray[np.float64] = np.sqrt(expected * (1 - expected) / n)
    return error
