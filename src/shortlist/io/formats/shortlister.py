"""Formats of the two stages of the Shortlister."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from shortlist.io.fields import (
    COUNT,
    FLAG,
    NONE,
    SEED,
    ensure,
    instance_of,
    number,
    sequence_of,
    tensor,
)
from shortlist.io.format import Format
from shortlist.io.formats.calibrations import is_index
from shortlist.learning.networks import Residual, Standardize
from shortlist.learning.training import History
from shortlist.predictors.shortlister.neighbours import Neighbours, Pool
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel
from shortlist.predictors.shortlister.rescoring import Rescorer


def _check_buckets(buckets: Buckets) -> None:
    increases = all(a < b for a, b in pairwise(buckets.sizes))
    ensure(increases and buckets.sizes[0] == 1, "Buckets: sizes must grow from 1")


def _check_rank_model(model: RankModel) -> None:
    buckets, depth = model.buckets, model.depth
    n_outputs = model.network.stack.weights[-1].shape[2]
    n_buckets = len(buckets.sizes) + int(buckets.outside)
    ensure(n_outputs == n_buckets, f"RankModel has {n_outputs} outputs for {n_buckets} buckets")
    ensure(depth <= buckets.sizes[-1], f"RankModel has a depth of {depth}, beyond its buckets")


def _make_neighbours(
    standardize: Standardize, n_classes: int, root: Tensor | None, directions: Tensor, index: Tensor
) -> Neighbours:
    neighbours = Neighbours(standardize, n_classes)
    neighbours.root, neighbours.directions, neighbours.index = root, directions, index
    return neighbours


def _check_neighbours(neighbours: Neighbours) -> None:
    index, root, directions = neighbours.index, neighbours.root, neighbours.directions
    n_columns = len(neighbours.standardize.mean)
    same = directions.shape == (len(index), n_columns)
    ensure(same, f"Neighbours has directions of shape {tuple(directions.shape)}")
    ensure(len(index) > 0, "Neighbours has no rows")
    ensure(index.dtype == torch.int64, f"Neighbours has labels of {index.dtype}")
    ensure(is_index(index, neighbours.n_classes), "Neighbours has a label that is no class")
    ensure((index[1:] >= index[:-1]).all(), "Neighbours: labels must be sorted")
    dtypes = {neighbours.standardize.dtype, directions.dtype}
    if root is not None:
        same = root.shape == (n_columns, n_columns)
        ensure(same, f"Neighbours has a root of shape {tuple(root.shape)}")
        ensure((root.diagonal() > 0).all(), "Neighbours has a root without an inverse")
        dtypes.add(root.dtype)
    ensure(len(dtypes) == 1, "Neighbours mixes dtypes")


def _make_rescorer(
    network: Residual,
    folds: Tensor,
    index: Tensor,
    n_classes: int,
    history: History,
    seed: int,
    neighbours: Neighbours,
    pool: Pool,
) -> Rescorer:
    rescorer = Rescorer(network, folds, index, n_classes, history, seed)
    rescorer.neighbours, rescorer.pool = neighbours, pool
    rescorer.network.requires_grad_(False)
    return rescorer


def _check_rescorer(rescorer: Rescorer) -> None:
    n_classes, stack, index = rescorer.n_classes, rescorer.network.stack, rescorer.index
    n_outputs = stack.weights[-1].shape[2]
    same = n_classes <= n_outputs <= n_classes + 1
    ensure(same, f"Rescorer has {n_outputs} outputs for {n_classes} classes")
    same = rescorer.neighbours.n_classes == n_classes
    ensure(same, "Rescorer has neighbours of other classes")
    ensure(len(rescorer.folds) == len(index), "Rescorer has another number of folds than rows")
    ensure(is_index(rescorer.folds, stack.members), "Rescorer has a row of an unknown fold")
    ensure(is_index(index, n_classes), "Rescorer has a label that is no class")
    ensure(index.dtype == rescorer.folds.dtype == torch.int64, "Rescorer has labels of other types")
    same = len(rescorer.neighbours.standardize.mean) == len(rescorer.network.standardize.mean)
    ensure(same, "Rescorer has neighbours with other features")


SHORTLISTER_FORMATS = (
    Format(Buckets, {"sizes": sequence_of(COUNT, 1), "outside": FLAG}, check=_check_buckets),
    Format(
        RankModel,
        {
            "network": instance_of(Residual),
            "buckets": instance_of(Buckets),
            "depth": COUNT,
            "history": instance_of(History),
        },
        check=_check_rank_model,
    ),
    Format(
        Neighbours,
        {
            "standardize": instance_of(Standardize),
            "n_classes": COUNT,
            "root": tensor("f", 2) | NONE,
            "directions": tensor("f", 2),
            "index": tensor("i", 1),
        },
        make=_make_neighbours,
        check=_check_neighbours,
    ),
    Format(Pool, {"a": number(-1e6, 1e6), "b": number(-1e6, 1e6)}),
    Format(
        Rescorer,
        {
            "network": instance_of(Residual),
            "folds": tensor("i", 1),
            "index": tensor("i", 1),
            "n_classes": COUNT,
            "history": instance_of(History),
            "seed": SEED,
            "neighbours": instance_of(Neighbours),
            "pool": instance_of(Pool),
        },
        make=_make_rescorer,
        check=_check_rescorer,
    ),
)
