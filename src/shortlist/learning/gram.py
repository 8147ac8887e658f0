"""Products of a matrix with its own transpose, in threads."""

from __future__ import annotations

from torch import Tensor

from shortlist._utils.threads import map_in_threads

COLUMNS = 128
"""Number of columns that a thread takes at a time."""


def gram_matrix(x: Tensor) -> Tensor:
    """Return the inner products of the columns of a matrix.

    On a CPU, the result does not depend on the number of threads.

    Parameters
    ----------
    x : Tensor of shape (n_rows, n_columns)
        Matrix.

    Returns
    -------
    Tensor of shape (n_columns, n_columns)
        ``x.T @ x``, exactly symmetric on a CPU.

    Examples
    --------
    >>> import torch
    >>> gram_matrix(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[10.0, 14.0], [14.0, 20.0]]
    """
    if x.is_cuda:
        return x.T @ x
    n_columns = x.shape[1]
    products = x.new_zeros((n_columns, n_columns))

    def fill(start: int) -> None:
        own = x[:, start : start + COLUMNS]
        # The products with the columns before these are those of another thread.
        products[start : start + COLUMNS, start:] = own.T @ x[:, start:]

    map_in_threads(fill, range(0, n_columns, COLUMNS), size=x.numel())
    upper = products.triu()
    return upper + products.triu(1).T
