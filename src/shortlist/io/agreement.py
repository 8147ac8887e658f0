"""Whether the parts of a saved model go together: classes, tables, networks and their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from shortlist._utils.labels import Classes
from shortlist.conformal import Conformal, DenisHebiri
from shortlist.conformal.calibration import Calibration
from shortlist.conformal.path_calibration import PathCalibration
from shortlist.families import Family, TopK
from shortlist.io.fields import need
from shortlist.io.state import rising, within
from shortlist.learning.linear import LinearClassifier
from shortlist.learning.networks import Residual, Stack, Standardize
from shortlist.predictors import (
    CardinalityPath,
    CardinalitySelector,
    ConformalPredictor,
    FixedSelector,
)
from shortlist.predictors.cardinality.fitting import Members
from shortlist.predictors.classifier import ShortlistClassifier
from shortlist.predictors.plug_in import PlugInScore
from shortlist.predictors.shortlister.neighbours import Neighbours
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel
from shortlist.predictors.shortlister.rescoring import Rescorer
from shortlist.predictors.shortlister.score import ShortlisterScore


def check_agreement(one: object) -> None:
    """Raise if the parts of an object, as they were loaded, do not go together."""
    for cls, check in CHECKS.items():
        if isinstance(one, cls):
            check(one)


# Networks


def _outputs(network: nn.Module, n_in: int) -> tuple[int | None, int, torch.dtype | None]:
    """Members, outputs and type of a network of so many inputs; it raises if they do not fit."""
    if isinstance(network, nn.Sequential):
        members, dtype = None, None
        for layer in network:
            need(members is None, "a network goes on after a stack")
            members, n_in, given = _outputs(layer, n_in)
            need(dtype is None or given in (None, dtype), "a network mixes types of numbers")
            dtype = given or dtype
        return members, n_in, dtype
    if isinstance(network, nn.Linear):
        n_out, wanted = network.weight.shape
        need(wanted == n_in, f"a layer takes {wanted} inputs, but there are {n_in}")
        return None, n_out, network.weight.dtype
    if isinstance(network, Stack):
        wanted = network.weights[0].shape[1]
        need(wanted == n_in, f"a stack takes {wanted} inputs, but there are {n_in}")
        return network.members, network.weights[-1].shape[2], network.weights[0].dtype
    if isinstance(network, Standardize):
        wanted = len(network.mean)
        need(wanted == n_in, f"{wanted} inputs are standardised, but there are {n_in}")
        return None, n_in, network.dtype
    return None, n_in, None


def _standardize(one: Standardize) -> None:
    need(one.mean.shape == one.scale.shape, "Standardize has means and scales that do not match")
    need(len(one.mean) > 0, "Standardize has no columns")
    need(one.mean.dtype == one.scale.dtype, "Standardize has means and scales of two types")
    need((one.scale > 0).all(), "Standardize has a scale that is not positive")


def _linear_layer(one: nn.Linear) -> None:
    bias = one.bias
    need(0 not in one.weight.shape, f"Linear has weights of shape {tuple(one.weight.shape)}")
    fits = bias is None or (len(bias) == len(one.weight) and bias.dtype == one.weight.dtype)
    need(fits, "Linear has another bias than outputs")


def _stack(one: Stack) -> None:
    tensors = [*one.weights, *one.biases]
    need(len({t.dtype for t in tensors}) == 1, "Stack mixes types of numbers")
    need(len({len(t) for t in tensors}) == 1, "Stack has layers of several numbers of members")
    need(all(t.numel() for t in tensors), "Stack has an empty layer")
    need(len(one.dropouts) == len(one.weights), "Stack has another number of dropouts than layers")
    need(one.members == len(tensors[0]), "Stack has another number of members")


def _residual(one: Residual) -> None:
    shape = tuple(one.scale.shape)
    need(shape == (one.stack.members, 1, 1), f"Residual has scales of shape {shape}")
    _, _, dtype = _outputs(one.stack, len(one.standardize.mean))
    need(dtype == one.standardize.dtype == one.scale.dtype, "Residual mixes types of numbers")


def _members(one: Members) -> None:
    need(len(one.networks) > 0, "Members has no networks")


# Families and tables


def _family(one: Conformal | DenisHebiri) -> None:
    if one.thresholds is not None:
        given = len(one.thresholds)
        need(given == len(one), f"{type(one).__name__} has {given} thresholds for {len(one)} sets")
        need(rising(-torch.tensor(one.thresholds)), f"{type(one).__name__}: thresholds must fall")


def _fits_family(family: Family, classes: Classes) -> None:
    if isinstance(family, TopK):
        most = family.k[-1]
        need(most <= classes.n, f"TopK goes up to size {most}, but there are {classes.n} classes")


def _calibration(one: Calibration) -> None:
    rows = len(one.levels)
    need(rows > 0, "Calibration has no rows")
    need(len(one.y) == rows, f"Calibration has {len(one.y)} labels of {rows} rows")
    need(len(set(one.group_names)) == len(one.group_names), "Calibration repeats a group")
    if one.groups is not None:
        fits = len(one.groups) == rows and within(one.groups, len(one.group_names))
        need(fits, "Calibration has rows of unknown groups")
    given = len(one.mean_sizes)
    need(len(one.thresholds) == given > 0, f"Calibration has {given} mean sizes of its thresholds")
    need((np.diff(one.thresholds) < 0).all(), "Calibration: thresholds must decrease")
    need((one.mean_sizes >= 0).all(), "Calibration has a negative mean size")
    need(one.n_choosing <= rows, f"Calibration: {one.n_choosing} rows choose")
    shape = one.schema
    need(len(shape.lengths) == 2, "RowSchema has not two lengths")
    need(
        shape.lengths[0] <= shape.lengths[1] <= shape.depth, "RowSchema has lists beyond its depth"
    )


def _path_calibration(one: PathCalibration) -> None:
    need(
        len(one.weights) == len(one.hits) == len(one.labels),
        "PathCalibration has lists of other lengths",
    )
    need(max(one.hits) <= one.rows, f"PathCalibration has {max(one.hits)} hits in {one.rows} rows")


def _buckets(one: Buckets) -> None:
    sizes = one.sizes
    grows = all(a < b for a, b in pairwise(sizes))
    need(grows and sizes[0] == 1, "Buckets: sizes must grow from 1")


# Stages of the Shortlister


def _rank_model(one: RankModel) -> None:
    outputs, wanted = one.network.stack.weights[-1].shape[2], len(one.buckets.sizes)
    wanted += int(one.buckets.outside)
    need(outputs == wanted, f"RankModel has {outputs} outputs for {wanted} buckets")
    need(one.depth <= one.buckets.sizes[-1], f"RankModel looks {one.depth} labels deep")


def _neighbours(one: Neighbours) -> None:
    columns = len(one.standardize.mean)
    need(one.directions.shape == (len(one.index), columns), "Neighbours has other directions")
    need(len(one.index) > 0, "Neighbours has no rows")
    need(one.index.dtype == torch.int64, f"Neighbours has labels of {one.index.dtype}")
    need(within(one.index, one.n_classes), "Neighbours has a label that is no class")
    need(rising(one.index), "Neighbours: labels must be sorted")
    kinds = {one.standardize.dtype, one.directions.dtype}
    if one.root is not None:
        need(one.root.shape == (columns, columns), "Neighbours has a root of another shape")
        need((one.root.diagonal() > 0).all(), "Neighbours has a root that is none")
        kinds.add(one.root.dtype)
    need(len(kinds) == 1, "Neighbours mixes types of numbers")


def _rescorer(one: Rescorer) -> None:
    outputs = one.network.stack.weights[-1].shape[2]
    fits = one.n_classes <= outputs <= one.n_classes + 1
    need(fits, f"Rescorer has {outputs} outputs for {one.n_classes} classes")
    need(one.neighbours.n_classes == one.n_classes, "Rescorer has neighbours of other classes")
    need(len(one.folds) == len(one.index), "Rescorer has another number of folds than rows")
    need(within(one.folds, one.network.stack.members), "Rescorer has a row of no fold")
    need(within(one.index, one.n_classes), "Rescorer has a label that is no class")
    need(one.index.dtype == one.folds.dtype == torch.int64, "Rescorer has labels of other types")
    columns = len(one.network.standardize.mean)
    need(len(one.neighbours.standardize.mean) == columns, "Rescorer has neighbours elsewhere")


# Models


def _conformal(one: ConformalPredictor) -> None:
    calibration, n = one._calibration, one._classes.n
    score_check = SCORE_CHECKS.get(one.score_.name)
    if score_check is not None:
        score_check(one.score_, one._classes)
    if calibration is None:
        return
    if not calibration.n_chosen_elsewhere:  # Of counted rows the labels are not known.
        # -1 stands for a label of an unknown class.
        need(within(calibration.y + 1, n + 1), "Calibration has a label that is no class")
    depth = calibration.schema.depth
    need(depth <= n, f"RowSchema has depth {depth}")
    strange = set(calibration.parameters) - set(one.get_params(deep=False))
    need(not strange, f"Calibration has parameters {str(sorted(map(str, strange)))[:60]}")


def _shortlister_score(one: ShortlisterScore, classes: Classes) -> None:
    sizes, rescorer, model = one.buckets_.sizes, one.rescorer_, one.rank_model_
    n, columns = classes.n, one.n_features_
    need(sizes[-1] <= n, f"Buckets goes up to size {sizes[-1]}, but there are {n} classes")
    need(one.dense_ or one.buckets_.outside, "Buckets has no mass outside of the candidates")
    need(not (one.dense_ and one.outside_), "outside_ is for candidates")
    if rescorer is not None:
        given = len(rescorer.network.standardize.mean)
        need(given == columns, f"Rescorer takes {given} features, but fit saw {columns}")
        need(rescorer.n_classes == n, f"Rescorer knows {rescorer.n_classes} of {n} classes")
        outputs = rescorer.network.stack.weights[-1].shape[2]
        need(outputs == n + int(not one.dense_), f"Rescorer has {outputs} outputs")
    if model is not None:
        need(model.buckets.sizes == sizes, "RankModel has other sizes than the model")
        need(model.buckets.outside == one.buckets_.outside, "RankModel has other buckets")
        given = len(model.network.standardize.mean)
        wanted = (columns or 0) + 2 * model.depth
        need(given == wanted, f"RankModel takes {given} inputs, but there are {wanted}")


def _plug_in_score(one: PlugInScore, classes: Classes) -> None:
    _fits_family(one.family_, classes)


def _with_family(one: FixedSelector) -> None:
    _fits_family(one.family_, one._classes)


def _choosing(one: CardinalitySelector | CardinalityPath) -> None:
    _fits_family(one.family_, one._classes)
    inputs, network = one._inputs, one._network
    wants = inputs.inputs != "scores"
    need(wants == (inputs.n_features is not None), "SelectorInputs has features of no use")
    depth = inputs.score_depth
    need(depth <= one._classes.n, f"SelectorInputs looks {depth} labels deep")
    n_in = (inputs.n_features or 0) + (depth + 1 if inputs.inputs != "features" else 0)
    if network is not None:
        every = list(network.networks) if isinstance(network, Members) else [network]
        found = [_outputs(each, n_in) for each in every]
        stacked = None if len(found) != 1 else found[0][0]
        members = stacked if stacked is not None else len(found)
        need(members == len(one._weights), f"the network has {members} members")
        need(all(n == len(one.family_) for _, n, _ in found), "the network has other outputs")
        need(stacked is None or not isinstance(network, Members), "a member is a stack")
        need(any(True for _ in network.state_dict()), "the network has no weights")
    judged = getattr(one, "_path_calibration", None)
    if judged is not None:
        need(
            list(judged.weights) == one._weights, "PathCalibration has other weights than the path"
        )


def _linear(one: LinearClassifier) -> None:
    if not hasattr(one, "coef_"):
        return
    n, columns = one.coef_.shape
    distinct = len(set(one.classes_.tolist()))
    need(distinct == len(one.classes_) == n > 1, f"LinearClassifier has {n} rows of coefficients")
    need(len(one.intercept_) == n, "LinearClassifier has another number of intercepts")
    need(one.n_features_in_ == columns, f"LinearClassifier has {columns} columns of coefficients")
    _named_columns(one, columns)


def _classifier(one: ShortlistClassifier) -> None:
    if not hasattr(one, "method_"):
        return
    method = one.method_
    need(hasattr(method, "_classes"), "the method is not fitted")
    classes = one.classes_.tolist()
    need(classes == method._classes.array().tolist(), "the method has other classes")
    if isinstance(one.estimator_, LinearClassifier):
        need(hasattr(one.estimator_, "coef_"), "the classifier is not fitted")
        strange = set(one.estimator_.classes_.tolist()) - set(classes)
        need(not strange, "the classifier has other classes")
    columns = one.n_features_in_
    if one._means is not None:
        need(len(one._means) == columns, f"_means has {len(one._means)} values for {columns}")
    _named_columns(one, columns)


def _named_columns(one: object, columns: int) -> None:
    names = getattr(one, "feature_names_in_", None)
    need(names is None or len(names) == columns, "feature_names_in_ has another length")


CHECKS: Mapping[type, Callable[..., None]] = {
    Standardize: _standardize,
    nn.Linear: _linear_layer,
    Stack: _stack,
    Residual: _residual,
    Members: _members,
    Conformal: _family,
    DenisHebiri: _family,
    Calibration: _calibration,
    PathCalibration: _path_calibration,
    Buckets: _buckets,
    RankModel: _rank_model,
    Neighbours: _neighbours,
    Rescorer: _rescorer,
}
"""What is checked as soon as an object is made."""
SCORE_CHECKS: Mapping[str, Callable[..., None]] = {
    "shortlister": _shortlister_score,
    "plug-in": _plug_in_score,
}
"""What is checked of a fitted score, with the classes of its model."""
MODEL_CHECKS: Mapping[type, Callable[..., None]] = {
    ConformalPredictor: _conformal,
    FixedSelector: _with_family,
    CardinalitySelector: _choosing,
    CardinalityPath: _choosing,
    LinearClassifier: _linear,
    ShortlistClassifier: _classifier,
}


def check_model(model: object) -> None:
    """Raise if the parts of a fitted model do not go together."""
    for cls, check in MODEL_CHECKS.items():
        if isinstance(model, cls):
            check(model)
