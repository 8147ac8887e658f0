"""Formats of the two stages of the Shortlister."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from shortlist.io.fields import (
    COUNT,
    FLAG,
    NONE,
    SCALE,
    SEED,
    array,
    ensure,
    instance_of,
    integer,
    number,
    sequence_of,
    tensor,
)
from shortlist.io.format import Format
from shortlist.io.formats.calibrations import is_index
from shortlist.io.learners import dump_learners, load_learners
from shortlist.learning.networks import Ensemble, Residual, Standardize
from shortlist.learning.training import History
from shortlist.predictors.shortlister.opinions import (
    GivenScores,
    LearnerOpinion,
    Neighbors,
    NetworkOpinion,
    Opinion,
    ScaledScores,
    VectorScaling,
)
from shortlist.predictors.shortlister.pool import Pool
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


def _make_neighbors(
    standardize: Standardize,
    n_classes: int,
    seed: int,
    extra: bool,
    root: Tensor | None,
    directions: Tensor,
    index: Tensor,
) -> Neighbors:
    neighbors = Neighbors(standardize, n_classes, seed, extra)
    neighbors.root, neighbors.directions, neighbors.index = root, directions, index
    return neighbors


def _check_neighbors(neighbors: Neighbors) -> None:
    index, root, directions = neighbors.index, neighbors.root, neighbors.directions
    n_columns = len(neighbors.standardize.mean)
    same = directions.shape == (len(index), n_columns)
    ensure(same, f"Neighbors has directions of shape {tuple(directions.shape)}")
    ensure(len(index) > 0, "Neighbors has no rows")
    ensure(index.dtype == torch.int64, f"Neighbors has labels of {index.dtype}")
    ensure(is_index(index, neighbors.n_classes), "Neighbors has a label that is no class")
    ensure((index[1:] >= index[:-1]).all(), "Neighbors: labels must be sorted")
    dtypes = {neighbors.standardize.dtype, directions.dtype}
    if root is not None:
        same = root.shape == (n_columns, n_columns)
        ensure(same, f"Neighbors has a root of shape {tuple(root.shape)}")
        ensure((root.diagonal() > 0).all(), "Neighbors has a root without an inverse")
        dtypes.add(root.dtype)
    ensure(len(dtypes) == 1, "Neighbors mixes dtypes")


def _make_scaled(factor: Tensor, bias: Tensor) -> ScaledScores:
    return ScaledScores(VectorScaling(factor, bias).requires_grad_(False))


def _check_scaled(opinion: ScaledScores) -> None:
    factor, bias = opinion.scaling.factor, opinion.scaling.bias
    agrees = factor.shape == bias.shape and factor.shape[1] == 1 and factor.numel() > 0
    ensure(agrees, f"ScaledScores has factors of shape {tuple(factor.shape)}")
    ensure(factor.dtype == bias.dtype == torch.float32, "ScaledScores has other dtypes")


def _check_rescorer(rescorer: Rescorer) -> None:
    index, folds, n_classes = rescorer.index, rescorer.folds, rescorer.n_classes
    n_tables = sum(opinion.n_tables for opinion in rescorer.opinions)
    ensure(len(rescorer.pool.exponents) == n_tables, "Pool has another number of exponents")
    ensure(len(folds) == len(index), "Rescorer has another number of folds than rows")
    ensure(index.dtype == folds.dtype == torch.int64, "Rescorer has labels of other types")
    ensure(is_index(index, n_classes), "Rescorer has a label that is no class")
    ensure(not len(folds) or int(folds.min()) >= 0, "Rescorer has a row of an unknown fold")
    for opinion in rescorer.opinions:
        OPINION_CHECKS[type(opinion)](opinion, rescorer)


def _n_folds(rescorer: Rescorer) -> int:
    return int(rescorer.folds.max()) + 1 if len(rescorer.folds) else 1


def _check_scaled_in(opinion: ScaledScores, rescorer: Rescorer) -> None:
    members, _, n_columns = opinion.scaling.factor.shape
    ensure(members >= _n_folds(rescorer), "ScaledScores has fewer members than folds")
    ensure(n_columns == rescorer.n_classes, "ScaledScores has another number of classes")


def _check_neighbors_in(opinion: Neighbors, rescorer: Rescorer) -> None:
    same = opinion.n_classes == rescorer.n_classes
    ensure(same, "Rescorer has neighbors of other classes")
    same = len(opinion.standardize.mean) == len(rescorer.standardize.mean)
    ensure(same, "Rescorer has neighbors with other features")


def _check_network_in(opinion: NetworkOpinion, rescorer: Rescorer) -> None:
    stack, n_classes = opinion.network.stack, rescorer.n_classes
    ensure(stack.members >= _n_folds(rescorer), "Rescorer has fewer networks than folds")
    same = len(opinion.network.standardize.mean) == len(rescorer.standardize.mean)
    ensure(same, "Rescorer has networks with other features")
    n_outputs = stack.weights[-1].shape[2]
    same = n_classes <= n_outputs <= n_classes + int(opinion.is_residual)
    ensure(same, f"Rescorer has {n_outputs} outputs for {n_classes} classes")


def _check_learner_in(opinion: LearnerOpinion, rescorer: Rescorer) -> None:
    same = opinion.n_classes == rescorer.n_classes
    ensure(same, "Rescorer has learners of other classes")
    ensure(len(opinion.estimators) >= _n_folds(rescorer), "Rescorer has fewer learners than folds")
    n_features = len(rescorer.standardize.mean)
    for learner in opinion.estimators:
        same = getattr(learner, "n_features_in_", n_features) == n_features
        ensure(same, "Rescorer has learners with other features")


OPINION_CHECKS: Mapping[type[Opinion], Callable[[Any, Rescorer], None]] = {
    GivenScores: lambda opinion, rescorer: None,
    ScaledScores: _check_scaled_in,
    Neighbors: _check_neighbors_in,
    NetworkOpinion: _check_network_in,
    LearnerOpinion: _check_learner_in,
}
"""Functions that raise if an opinion does not agree with its rescorer, by its type."""


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
    Format(GivenScores, {"scale": SCALE}),
    Format(
        ScaledScores,
        {"factor": tensor("f", 3), "bias": tensor("f", 3)},
        pack=lambda opinion: {"factor": opinion.scaling.factor, "bias": opinion.scaling.bias},
        make=_make_scaled,
        check=_check_scaled,
    ),
    Format(NetworkOpinion, {"network": instance_of(Ensemble)}),
    Format(
        Neighbors,
        {
            "standardize": instance_of(Standardize),
            "n_classes": COUNT,
            "seed": SEED,
            "extra": FLAG,
            "root": tensor("f", 2) | NONE,
            "directions": tensor("f", 2),
            "index": tensor("i", 1),
        },
        make=_make_neighbors,
        check=_check_neighbors,
    ),
    Format(
        LearnerOpinion,
        {"archive": array("u", 1), "n_classes": COUNT},
        pack=dump_learners,
        make=load_learners,
    ),
    Format(
        Pool,
        {"exponents": sequence_of(number(0, 1e6), 1), "bias": number(-1e6, 1e6)},
        optional=frozenset({"bias"}),
    ),
    Format(
        Rescorer,
        {
            "opinions": sequence_of(instance_of(Opinion), 1),
            "pool": instance_of(Pool),
            "folds": tensor("i", 1),
            "index": tensor("i", 1),
            "n_classes": COUNT,
            "standardize": instance_of(Standardize),
            "n_extra": integer(),
        },
        check=_check_rescorer,
    ),
)
