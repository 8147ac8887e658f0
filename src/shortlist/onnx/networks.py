"""Networks in the graph: perceptrons and stacks written out, any other through torch's exporter."""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from shortlist.learning.networks import Residual, Stack, Standardize
from shortlist.onnx.graph import F64, OPSET, Value, dtype_of, require

if TYPE_CHECKING:
    from onnx import ModelProto


def standardized(standardize: Standardize, x: Value) -> Value:
    wide = x.to(dtype_of(standardize.mean.dtype))
    return ((wide - standardize.mean[None]) / standardize.scale[None]).to(
        dtype_of(standardize.dtype)
    )


def stack(network: Stack, x: Value) -> Value:
    """All members' outputs: (members, rows, outputs)."""
    graph, members = x.graph, network.members
    h = x
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        if i:
            h = graph.op("Relu", h) @ weight + bias
            continue
        # One product for all members: their first layers see the same input.
        wide = weight.detach().transpose(0, 1).reshape(weight.shape[1], -1)
        h = (h @ wide + bias.detach().view(1, -1)).reshape(-1, members, weight.shape[2])
        h = graph.op("Transpose", h, perm=[1, 0, 2])
    return h


def stack_member(network: Stack, x: Value, member: Value) -> Value:
    """The outputs of one member, chosen by a scalar of the graph: (rows, outputs)."""
    graph, h = x.graph, x
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        h = graph.op("Relu", h) if i else h
        own = [graph.value(p, h.dtype).take(member, axis=0) for p in (weight, bias)]
        h = h @ own[0] + own[1]
    return h


def residual(network: Residual, x: Value, prior: Value, columns: Value | None = None) -> Value:
    """(members, rows, columns)."""
    graph = x.graph
    outputs = stack(network.stack, standardized(network.standardize, x))
    if columns is not None:
        members = np.array([network.stack.members, 1, 1], dtype=np.int64)
        each = graph.op("Expand", columns.unsqueeze(0), members)
        outputs = outputs.take_along(each, axis=2)
    return prior * network.scale + outputs


def mean_log_proba(logits: Value, members: int) -> Value:
    """The logarithm of the members' mean probabilities, (rows, columns)."""
    graph = logits.graph
    log_p = graph.op("LogSoftmax", logits, axis=-1)
    mean = graph.logsumexp(log_p, axis=0) - math.log(members)
    return graph.op("Squeeze", mean, np.array([0], dtype=np.int64))


def outputs(network: nn.Module, x: Value, n_in: int) -> Value:
    """The outputs of a selector's network: (rows, members of the family)."""
    if isinstance(network, Standardize):
        return standardized(network, x)
    if isinstance(network, nn.Sequential):
        plain = all(isinstance(part, nn.Sequential) or _is_plain(part) for part in network)
        if plain or isinstance(network[0], Standardize):
            for part in network:
                x = outputs(part, x, n_in)
            return x
    if not _is_plain(network):
        return _own(network, x, n_in)
    if isinstance(network, nn.Linear):
        x = x @ network.weight.detach().T
        return x if network.bias is None else x + network.bias[None]
    return x.graph.op("Relu", x) if isinstance(network, nn.ReLU) else x


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer is written out here. Subclasses are not: they may do anything."""
    return type(layer) in (nn.Linear, nn.ReLU, nn.Dropout, nn.Identity, Standardize)


def _own(network: nn.Module, x: Value, n_in: int) -> Value:
    """A network of the user's own: torch writes its graph, which becomes a part of this one."""
    from onnx import compose, inliner, numpy_helper

    model = inliner.inline_local_functions(_exported(network, n_in, x))
    graph = x.graph
    part = compose.add_prefix(model, prefix=f"{graph.fresh('network')}/").graph
    for tensor in part.initializer:
        graph.constants[tensor.name] = numpy_helper.to_array(tensor)
    graph.rename(x, part.input[0].name)
    graph.nodes += part.node
    return Value(graph, part.output[0].name, x.dtype)


def _exported(network: nn.Module, n_in: int, x: Value) -> ModelProto:
    require("onnxscript")
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
    """Without what torch's exporter says of packages that are not there."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
