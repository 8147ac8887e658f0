"""Formats of networks and of surrogate losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shortlist import losses
from shortlist.io.fields import (
    ANYTHING,
    FLAG,
    FRACTION,
    NONE,
    PLAIN,
    TEXT,
    choice,
    ensure,
    instance_of,
    number,
    sequence_of,
    tensor,
)
from shortlist.io.format import Format
from shortlist.io.persistence import ModelFileError
from shortlist.learning.networks import Ensemble, Residual, Stack, Standardize
from shortlist.learning.training import History
from shortlist.predictors.cardinality.fitting import Members

NETWORK = instance_of(nn.Sequential, nn.Linear, nn.ReLU, nn.Dropout, Stack, Standardize)
SELECTOR_NETWORK = instance_of(nn.Sequential, Members)
DTYPES = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}


def _make_standardize(mean: Tensor, scale: Tensor, dtype: str) -> Standardize:
    return Standardize(mean, scale, DTYPES[dtype])


def _check_standardize(layer: Standardize) -> None:
    ensure(layer.mean.shape == layer.scale.shape, "Standardize has another number of scales")
    ensure(len(layer.mean) > 0, "Standardize has no columns")
    ensure(layer.mean.dtype == layer.scale.dtype, "Standardize mixes dtypes")
    ensure((layer.scale > 0).all(), "Standardize has a scale that is not positive")


def _make_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    n_out, n_in = weight.shape
    layer = nn.Linear(n_in, n_out, bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight)
    if bias is not None:
        layer.bias = nn.Parameter(bias)
    return layer


def _check_linear(layer: nn.Linear) -> None:
    weight, bias = layer.weight, layer.bias
    ensure(0 not in weight.shape, f"Linear has weights of shape {tuple(weight.shape)}")
    agrees = bias is None or (len(bias) == len(weight) and bias.dtype == weight.dtype)
    ensure(agrees, "Linear has a bias that does not match its weights")


def _pack_stack(stack: Stack) -> Mapping[str, object]:
    weights, biases = list(stack.weights), list(stack.biases)
    return {"weights": weights, "biases": biases, "dropouts": stack.dropouts}


def _check_stack(stack: Stack) -> None:
    tensors = [*stack.weights, *stack.biases]
    ensure(len({t.dtype for t in tensors}) == 1, "Stack mixes dtypes")
    ensure(len({len(t) for t in tensors}) == 1, "Stack has layers of several numbers of members")
    ensure(all(t.numel() for t in tensors), "Stack has an empty layer")
    same = len(stack.dropouts) == len(stack.weights)
    ensure(same, "Stack has another number of dropouts than layers")
    ensure(stack.members == len(tensors[0]), "Stack has another number of members")


def _make_ensemble(standardize: Standardize, stack: Stack) -> Ensemble:
    return Ensemble(standardize, stack).requires_grad_(False).eval()


def _check_ensemble(network: Ensemble) -> None:
    dtype = outputs_of(network.stack, len(network.standardize.mean)).dtype
    ensure(dtype == network.standardize.dtype, "Ensemble mixes dtypes")


def _make_residual(standardize: Standardize, stack: Stack, scale: Tensor) -> Residual:
    network = Residual(standardize, stack)
    network.scale = nn.Parameter(scale)
    return network.requires_grad_(False).eval()


def _check_residual(network: Residual) -> None:
    shape = tuple(network.scale.shape)
    ensure(shape == (network.stack.members, 1, 1), f"Residual has scales of shape {shape}")
    dtype = outputs_of(network.stack, len(network.standardize.mean)).dtype
    same = dtype == network.standardize.dtype == network.scale.dtype
    ensure(same, "Residual mixes dtypes")


def _check_members(network: Members) -> None:
    ensure(len(network.networks) > 0, "Members has no networks")


class Outputs(NamedTuple):
    """What a network returns.

    Attributes
    ----------
    members : int or None
        Number of members of a stack or a path; None for a single network.
    n_outputs : int
        Number of outputs, of each member.
    dtype : torch.dtype or None
        Dtype of the outputs; None if it is that of the inputs.
    """

    members: int | None
    n_outputs: int
    dtype: torch.dtype | None


def outputs_of(network: nn.Module, n_inputs: int) -> Outputs:
    """Return what a network returns for a number of inputs.

    Parameters
    ----------
    network : nn.Module
        Network of the types in this module.
    n_inputs : int
        Number of inputs.

    Returns
    -------
    Outputs

    Raises
    ------
    ModelFileError
        If the layers do not fit each other or the inputs.
    """
    if type(network) not in LAYER_OUTPUTS:
        raise ModelFileError(f"a {type(network).__name__} is no layer of a saved network")
    return LAYER_OUTPUTS[type(network)](network, n_inputs)


def _sequential_outputs(network: nn.Sequential, n_inputs: int) -> Outputs:
    members, dtype = None, None
    for layer in network:
        ensure(members is None, "a network has layers after a stack")
        members, n_inputs, layer_dtype = outputs_of(layer, n_inputs)
        ensure(dtype is None or layer_dtype in (None, dtype), "a network mixes dtypes")
        dtype = layer_dtype or dtype
    return Outputs(members, n_inputs, dtype)


def _linear_outputs(layer: nn.Linear, n_inputs: int) -> Outputs:
    n_outputs, expected = layer.weight.shape
    ensure(expected == n_inputs, f"a layer takes {expected} inputs, but there are {n_inputs}")
    return Outputs(None, n_outputs, layer.weight.dtype)


def _stack_outputs(stack: Stack, n_inputs: int) -> Outputs:
    expected = stack.weights[0].shape[1]
    ensure(expected == n_inputs, f"a stack takes {expected} inputs, but there are {n_inputs}")
    return Outputs(stack.members, stack.weights[-1].shape[2], stack.weights[0].dtype)


def _standardize_outputs(layer: Standardize, n_inputs: int) -> Outputs:
    expected = len(layer.mean)
    ensure(expected == n_inputs, f"{expected} inputs are standardised, but there are {n_inputs}")
    return Outputs(None, n_inputs, layer.dtype)


def _members_outputs(network: Members, n_inputs: int) -> Outputs:
    outputs = [outputs_of(one, n_inputs) for one in network.networks]
    ensure(all(one.members is None for one in outputs), "a member is a stack")
    same = len({one.n_outputs for one in outputs}) == 1
    ensure(same, "the members have other numbers of outputs")
    return Outputs(len(outputs), *outputs[0][1:])


def _same_outputs(layer: nn.Module, n_inputs: int) -> Outputs:
    return Outputs(None, n_inputs, None)


LAYER_OUTPUTS: Mapping[type, Callable[[Any, int], Outputs]] = {
    nn.Sequential: _sequential_outputs,
    nn.Linear: _linear_outputs,
    nn.ReLU: _same_outputs,
    nn.Dropout: _same_outputs,
    Stack: _stack_outputs,
    Members: _members_outputs,
    Standardize: _standardize_outputs,
}
"""Functions that check the inputs of a network and return its outputs, by its type."""


def _make_sequential(layers: Sequence[nn.Module]) -> nn.Sequential:
    return nn.Sequential(*layers).eval()


def _loss_format(cls: type[nn.Module], parameter: str) -> Format:
    fields = {"loss": TEXT, parameter: number(), "reduction": TEXT, "validate": FLAG}
    return Format(cls, fields)


LOSS_FORMATS = (
    _loss_format(losses.CompSumLoss, "q"),
    _loss_format(losses.CostSensitiveCompSumLoss, "q"),
    _loss_format(losses.ConstrainedLoss, "rho"),
    _loss_format(losses.CostSensitiveConstrainedLoss, "rho"),
)
LOSSES = tuple(one.cls for one in LOSS_FORMATS)
NETWORK_FORMATS = (
    Format(
        Standardize,
        {"mean": tensor("f", 1), "scale": tensor("f", 1), "dtype": choice(*DTYPES)},
        pack=lambda layer: {
            "mean": layer.mean,
            "scale": layer.scale,
            "dtype": str(layer.dtype).split(".")[-1],
        },
        make=_make_standardize,
        check=_check_standardize,
    ),
    Format(
        Stack,
        {
            "weights": sequence_of(tensor("f", 3), 1),
            "biases": sequence_of(tensor("f", 3), 1),
            "dropouts": sequence_of(FRACTION, 1),
        },
        pack=_pack_stack,
        make=Stack.from_weights,
        check=_check_stack,
    ),
    Format(
        Ensemble,
        {"standardize": instance_of(Standardize), "stack": instance_of(Stack)},
        make=_make_ensemble,
        check=_check_ensemble,
    ),
    Format(
        Residual,
        {
            "standardize": instance_of(Standardize),
            "stack": instance_of(Stack),
            "scale": tensor("f", 3),
        },
        make=_make_residual,
        check=_check_residual,
    ),
    Format(
        nn.Sequential,
        {"layers": sequence_of(NETWORK, 1)},
        pack=lambda network: {"layers": list(network)},
        make=_make_sequential,
    ),
    Format(
        nn.Linear,
        {"weight": tensor("f", 2), "bias": tensor("f", 1) | NONE},
        make=_make_linear,
        check=_check_linear,
    ),
    Format(nn.ReLU),
    Format(nn.Dropout, {"p": FRACTION}),
    Format(
        Members,
        {"networks": sequence_of(NETWORK, 1)},
        pack=lambda network: {"networks": list(network.networks)},
        make=lambda networks: Members(networks).eval(),
        check=_check_members,
    ),
    Format(
        History,
        {
            "loss": sequence_of(sequence_of(ANYTHING)),
            "validation_loss": sequence_of(sequence_of(ANYTHING)),
            "best_epoch": sequence_of(PLAIN),
            "seconds": number(),
        },
    ),
)
