"""Networks in the graph: known layers are written here, all others by the exporter of torch."""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from shortlist.learning.networks import Residual, Stack, Standardize
from shortlist.onnx.graph import F64, OPSET, Value, np_dtype, require_package
from shortlist.predictors.cardinality.fitting import Members

if TYPE_CHECKING:
    from onnx import ModelProto

Member = Value | int
"""Index of a network of a path: a scalar of the graph, or a number."""


def network_outputs(network: nn.Module, x: Value, n_in: int, member: Member = 0) -> Value:
    """Return the outputs of a selector's network, (n_rows, n_sets).

    Parameters
    ----------
    network : nn.Module
        The network.
    x : Value of shape (n_rows, n_in)
        Its inputs.
    n_in : int
        Number of inputs.
    member : Value or int, default=0
        Index of the network, if there are several.

    Returns
    -------
    Value of shape (n_rows, n_sets)
    """
    # By exact type, because a subclass may do anything. The exporter of torch traces what it does.
    write = WRITERS.get(type(network), _exported)
    return write(network, x, n_in, member)


def standardized(standardize: Standardize, x: Value) -> Value:
    """Return the outputs of a `Standardize` layer."""
    wide = x.to(np_dtype(standardize.mean.dtype))
    outputs = (wide - standardize.mean[None]) / standardize.scale[None]
    return outputs.to(np_dtype(standardize.dtype))


def stack(network: Stack, x: Value) -> Value:
    """Return the outputs of all members, (n_members, n_rows, n_outputs)."""
    graph, members = x.graph, network.members
    h = x
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        if i:
            h = graph.op("Relu", h) @ weight + bias
            continue
        # One product for all members, because their first layers have the same input.
        wide = weight.detach().transpose(0, 1).reshape(weight.shape[1], -1)
        h = (h @ wide + bias.detach().view(1, -1)).reshape(-1, members, weight.shape[2])
        h = graph.op("Transpose", h, perm=[1, 0, 2])
    return h


def residual(network: Residual, x: Value, prior: Value, columns: Value | None = None) -> Value:
    """Return the outputs of a `Residual`, (n_members, n_rows, n_columns)."""
    graph = x.graph
    outputs = stack(network.stack, standardized(network.standardize, x))
    if columns is not None:
        members = np.array([network.stack.members, 1, 1], dtype=np.int64)
        each = graph.op("Expand", columns.unsqueeze(0), members)
        outputs = outputs.take_along(each, axis=2)
    return prior * network.scale + outputs


def mean_log_proba(logits: Value, members: int) -> Value:
    """Return the logarithm of the members' mean probabilities, (n_rows, n_columns)."""
    graph = logits.graph
    log_p = graph.op("LogSoftmax", logits, axis=-1)
    mean = graph.logsumexp(log_p, axis=0) - math.log(members)
    return graph.op("Squeeze", mean, np.array([0], dtype=np.int64))


def _standardize(network: Any, x: Value, n_in: int, member: Member) -> Value:
    return standardized(network, x)


def _linear(network: Any, x: Value, n_in: int, member: Member) -> Value:
    x = x @ network.weight.detach().T
    return x if network.bias is None else x + network.bias[None]


def _relu(network: Any, x: Value, n_in: int, member: Member) -> Value:
    return x.graph.op("Relu", x)


def _identity(network: Any, x: Value, n_in: int, member: Member) -> Value:
    return x


def _sequential(network: Any, x: Value, n_in: int, member: Member) -> Value:
    # A Standardize layer keeps the number of inputs, so the layers after it are exported alone.
    if not _is_known(network) and type(network[0]) is not Standardize:
        return _exported(network, x, n_in, member)
    for part in network:
        x = network_outputs(part, x, n_in, member)
    return x


def _stack_member(network: Any, x: Value, n_in: int, member: Member) -> Value:
    """Return the outputs of one member of a `Stack`."""
    if not isinstance(member, Value):
        return network_outputs(network.member(member), x, n_in)
    graph, h = x.graph, x
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        h = graph.op("Relu", h) if i else h
        own = [graph.value(p, h.dtype).take(member, axis=0) for p in (weight, bias)]
        h = h @ own[0] + own[1]
    return h


def _separate_member(network: Any, x: Value, n_in: int, member: Member) -> Value:
    """Return the outputs of one of several separate networks."""
    if not isinstance(member, Value):
        return network_outputs(network.networks[member], x, n_in)
    each = [network_outputs(one, x, n_in).unsqueeze(0) for one in network.networks]
    return x.graph.concat(each, axis=0).take(member, axis=0)


WRITERS: dict[type[nn.Module], Callable[[Any, Value, int, Member], Value]] = {
    Standardize: _standardize,
    nn.Linear: _linear,
    nn.ReLU: _relu,
    nn.Dropout: _identity,
    nn.Identity: _identity,
    nn.Sequential: _sequential,
    Stack: _stack_member,
    Members: _separate_member,
}
"""Functions that write a network into the graph, by its exact type."""


def _is_known(network: nn.Module) -> bool:
    """Return whether a network and all its parts have a writer."""
    parts = network if type(network) is nn.Sequential else ()
    return type(network) in WRITERS and all(_is_known(part) for part in parts)


def _exported(network: nn.Module, x: Value, n_in: int, member: Member) -> Value:
    """Return the outputs of any other network, whose graph is exported by torch and added."""
    from onnx import compose, inliner, numpy_helper

    model = inliner.inline_local_functions(_torch_export(network, n_in, x))
    graph = x.graph
    part = compose.add_prefix(model, prefix=f"{graph.unique_name('network')}/").graph
    for tensor in part.initializer:
        graph.constants[tensor.name] = numpy_helper.to_array(tensor)
    graph.rename(x, part.input[0].name)
    graph.nodes += part.node
    return Value(graph, part.output[0].name, x.dtype)


def _torch_export(network: nn.Module, n_in: int, x: Value) -> ModelProto:
    require_package("onnxscript")
    dtype = torch.float64 if x.dtype == F64 else torch.float32
    frozen = copy.deepcopy(network).cpu().eval().requires_grad_(False)
    example = torch.zeros((2, n_in), dtype=dtype)
    rows = torch.export.Dim("rows", min=1)
    try:
        with _quietly():
            program = torch.onnx.export(
                frozen,
                (example,),
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=({0: rows},),
                verbose=False,
            )
    except Exception as error:
        raise ValueError(
            f"torch.onnx cannot export the network {type(network).__name__}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    assert program is not None
    return program.model_proto


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress warnings of the exporter of torch about packages that are not installed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
