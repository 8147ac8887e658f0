"""Write ONNX files: a graph with its inputs, outputs and metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shortlist._utils.atomic_write import atomic_write
from shortlist._version import __version__
from shortlist.onnx.graph import INT, IR_VERSION, OPSET, Graph, element_type
from shortlist.onnx.sets import GraphSets

if TYPE_CHECKING:
    from onnx import ModelProto

FORMAT = "shortlist-onnx-1"
MAX_BYTES = 2**31 - 2**20
"""Largest size of one file, which is a limit of the format."""


def onnx_model(
    graph: Graph, sets: GraphSets, metadata: Mapping[str, object], name: str
) -> ModelProto:
    """Return the graph as an ONNX model."""
    from onnx import helper

    size = sum(array.nbytes for array in graph.constants.values())
    if size > MAX_BYTES:
        raise ValueError(
            f"the graph has {size / 2**30:.1f} GB of weights, but an ONNX file has at most 2 GB. "
            "Most weights of a Shortlister are the features of its neighbors, up to 50,000 rows; "
            "fit it with fewer features, or with rescore=False"
        )
    outputs = {
        "labels": sets.labels,
        "sizes": sets.sizes.reshape(-1),
        "index": sets.index.reshape(-1),
    }
    shapes: dict[str, list[str | int]] = {"labels": ["rows", sets.width]}
    for target, value in outputs.items():
        graph.rename(value, target)
    proto = helper.make_graph(
        graph.nodes,
        name,
        [
            helper.make_tensor_value_info(value.name, element_type(value.dtype), list(shape))
            for value, shape in graph.inputs
        ],
        [
            helper.make_tensor_value_info(target, element_type(INT), shapes.get(target, ["rows"]))
            for target in outputs
        ],
        initializer=graph.initializers(),
    )
    model = helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="shortlist",
        producer_version=__version__,
    )
    known = {"format": FORMAT, "shortlist_version": __version__, **metadata}
    helper.set_model_props(model, {key: _metadata_text(value) for key, value in known.items()})
    return model


def _metadata_text(value: object) -> str:
    """Return a string unchanged, and any other value as JSON, with the repr of other objects."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=_json_default)


def _json_default(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else repr(value)


def write(model: ModelProto, path: str | os.PathLike[str]) -> Path:
    """Write a file, which appears when it is complete."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return Path(path)
