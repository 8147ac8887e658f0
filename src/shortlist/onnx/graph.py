"""A graph of ONNX operations that is written down like arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

OPSET = 18
IR_VERSION = 10
"""Old enough for every onnxruntime that the extra `onnx` allows."""

F32, F64, INT, BOOL = (np.dtype(t) for t in (np.float32, np.float64, np.int64, np.bool_))
Operand: TypeAlias = "Value | float | np.generic | NDArray[np.generic] | Tensor"
Attribute: TypeAlias = "int | float | str | list[int] | GraphProto"


class Value:
    """A tensor of the graph: a name and a type. Operators add a node; scalars take its type."""

    __slots__ = ("graph", "name", "dtype")
    __array_ufunc__ = None  # so that an array on the left leaves the operation to this class

    def __init__(self, graph: Graph, name: str, dtype: np.dtype[np.generic]) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    def __add__(self, other: Operand) -> Value:
        return self.graph.op("Add", self, other)

    def __sub__(self, other: Operand) -> Value:
        return self.graph.op("Sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.graph.op("Sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.graph.op("Mul", self, other)

    def __truediv__(self, other: Operand) -> Value:
        return self.graph.op("Div", self, other)

    def __matmul__(self, other: Operand) -> Value:
        return self.graph.op("MatMul", self, other)

    def __neg__(self) -> Value:
        return self.graph.op("Neg", self)

    def __gt__(self, other: Operand) -> Value:
        return self.graph.op("Greater", self, other, dtype=BOOL)

    def __ge__(self, other: Operand) -> Value:
        return self.graph.op("GreaterOrEqual", self, other, dtype=BOOL)

    def __lt__(self, other: Operand) -> Value:
        return self.graph.op("Less", self, other, dtype=BOOL)

    def __le__(self, other: Operand) -> Value:
        return self.graph.op("LessOrEqual", self, other, dtype=BOOL)

    def __and__(self, other: Operand) -> Value:
        return self.graph.op("And", self, other, dtype=BOOL)

    def __or__(self, other: Operand) -> Value:
        return self.graph.op("Or", self, other, dtype=BOOL)

    def __invert__(self) -> Value:
        return self.graph.op("Not", self, dtype=BOOL)

    def equals(self, other: Operand) -> Value:
        return self.graph.op("Equal", self, other, dtype=BOOL)

    def log(self) -> Value:
        return self.graph.op("Log", self)

    def exp(self) -> Value:
        return self.graph.op("Exp", self)

    def to(self, dtype: np.dtype[np.generic]) -> Value:
        """The same numbers in another type; nothing is added where they have it already."""
        if dtype == self.dtype:
            return self
        return self.graph.op("Cast", self, dtype=dtype, to=element_type(dtype))

    def clip(self, low: float | None = None, high: float | None = None) -> Value:
        value = self if low is None else self.graph.op("Max", self, low)
        return value if high is None else self.graph.op("Min", value, high)

    def columns(self, start: int, end: int | None = None, axis: int = 1) -> Value:
        """`[:, start:end]`."""
        return self.graph.slice(self, start, end, axis)

    def flip(self) -> Value:
        """The columns from the last to the first."""
        return self.graph.slice(self, -1, -(2**62), axis=1, step=-1)

    def take(self, index: Operand, axis: int = 1) -> Value:
        """The columns of an index that all rows share."""
        return self.graph.op("Gather", self, index, axis=axis)

    def take_along(self, index: Value, axis: int = 1) -> Value:
        """The columns of an index of each row's own."""
        return self.graph.op("GatherElements", self, index, axis=axis)

    def sum(self, axis: int = 1, keep: bool = True) -> Value:
        return self.graph.reduce("ReduceSum", self, axis, keep)

    def max(self, axis: int = 1, keep: bool = True) -> Value:
        return self.graph.reduce("ReduceMax", self, axis, keep)

    def count(self, keep: bool = True) -> Value:
        """How many of a row's booleans are true."""
        return self.to(INT).sum(keep=keep)

    def cumsum(self) -> Value:
        return self.graph.op("CumSum", self, np.int64(1))

    def reshape(self, *shape: int) -> Value:
        return self.graph.op("Reshape", self, np.array(shape, dtype=np.int64))

    def unsqueeze(self, axis: int) -> Value:
        return self.graph.op("Unsqueeze", self, np.array([axis], dtype=np.int64))

    def pad(self, before: int, after: int, value: float) -> Value:
        """Columns of one value before the first and after the last."""
        pads = np.array([0, before, 0, after], dtype=np.int64)
        return self.graph.op("Pad", self, pads, self.dtype.type(value))

    def shape(self) -> Value:
        return self.graph.op("Shape", self, dtype=INT)


class Graph:
    """Nodes and constants, to which `op` adds. A `body`, of a loop, shares names and constants."""

    def __init__(self, parent: Graph | None = None) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, NDArray[np.generic]] = {} if parent is None else parent.constants
        self.inputs: list[tuple[Value, Sequence[str | int]]] = []
        self._count: list[int] = [0] if parent is None else parent._count
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = (
            {} if parent is None else parent._known
        )

    def body(self) -> Graph:
        return Graph(self)

    def fresh(self, stem: str) -> str:
        """A name that nothing else has."""
        self._count[0] += 1
        return f"{stem}_{self._count[0]}"

    def input(self, name: str, dtype: np.dtype[np.generic], shape: Sequence[str | int]) -> Value:
        value = Value(self, name, dtype)
        self.inputs.append((value, shape))
        return value

    def constant(self, array: NDArray[np.generic] | np.generic) -> Value:
        """A constant; equal small ones are kept once."""
        array = np.asarray(array)
        key = None
        if array.size <= 4096:
            key = (array.dtype.str, array.shape, array.tobytes())
            if key in self._known:
                return Value(self, self._known[key], array.dtype)
        name = self.fresh("constant")
        self.constants[name] = array
        if key is not None:
            self._known[key] = name
        return Value(self, name, array.dtype)

    def value(self, operand: Operand, dtype: np.dtype[np.generic]) -> Value:
        """An operand as a value; Python's numbers take the type given, arrays keep theirs."""
        if isinstance(operand, Value):
            return Value(self, operand.name, operand.dtype)
        if isinstance(operand, Tensor):
            return self.constant(operand.detach().cpu().numpy())
        if isinstance(operand, np.ndarray | np.generic):
            return self.constant(operand)
        return self.constant(np.asarray(operand, dtype=dtype))

    def op(
        self,
        kind: str,
        *operands: Operand,
        dtype: np.dtype[np.generic] | None = None,
        **attributes: Attribute,
    ) -> Value:
        """One operation with one result, of the first operand's type unless told otherwise."""
        own = next(o.dtype for o in operands if isinstance(o, Value))
        return self.ops(kind, [self.value(o, own) for o in operands], [dtype or own], **attributes)[
            0
        ]

    def ops(
        self,
        kind: str,
        operands: Sequence[Value],
        dtypes: Sequence[np.dtype[np.generic]],
        **attributes: Attribute,
    ) -> list[Value]:
        """One operation with a result of each type."""
        from onnx import helper

        found = [Value(self, self.fresh(kind.lower()), dtype) for dtype in dtypes]
        names = [o.name for o in operands], [f.name for f in found]
        node = helper.make_node(kind, *names)
        node.attribute.extend(helper.make_attribute(name, a) for name, a in attributes.items())
        self.nodes.append(node)
        return found

    def slice(self, x: Value, start: int, end: int | None, axis: int = 1, step: int = 1) -> Value:
        last = 2**62 if end is None else end
        bounds = [np.array([v], dtype=np.int64) for v in (start, last, axis, step)]
        return self.op("Slice", x, *bounds)

    def reduce(self, kind: str, x: Value, axis: int, keep: bool) -> Value:
        return self.op(kind, x, np.array([axis], dtype=np.int64), keepdims=int(keep))

    def where(self, condition: Value, yes: Operand, no: Operand) -> Value:
        own = next(
            (o.dtype for o in (yes, no) if isinstance(o, Value | np.ndarray | np.generic)), F64
        )
        return self.op("Where", condition, self.value(yes, own), self.value(no, own), dtype=own)

    def concat(self, parts: Sequence[Value], axis: int = 1) -> Value:
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def top(self, x: Value, depth: int) -> tuple[Value, Value]:
        """The largest values of each row and where they are; among ties the lowest index."""
        k = self.constant(np.array([depth], dtype=np.int64))
        values, index = self.ops("TopK", [x, k], [x.dtype, INT], axis=1)
        return values, index

    def any(self, x: Value, axis: int | None = 1) -> Value:
        """Whether any of a row's booleans is true; of all of them, if axis is None."""
        if axis is None:
            x = x.reshape(1, -1)
        found = x.to(INT).max() > 0
        return found.reshape() if axis is None else found

    def put_along(self, x: Value, index: Value, updates: Value, add: bool = False) -> Value:
        """`x` with the values of some of each row's columns replaced, or added to."""
        return self.op(
            "ScatterElements", x, index, updates, axis=1, reduction="add" if add else "none"
        )

    def logsumexp(self, x: Value, axis: int = 1, may_be_nothing: bool = False) -> Value:
        """Counted from the largest; minus infinity, if that may be, where all are."""
        largest = x.max(axis)
        if may_be_nothing:
            largest = self.where(largest > -math.inf, largest, 0.0)
        return (x - largest).exp().sum(axis).log() + largest

    def rename(self, x: Value, name: str) -> None:
        """The same tensor under a name that is given."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [x.name], [name]))

    def proto(
        self, scalars: Sequence[Value], carried: Sequence[Value], outputs: Sequence[Value]
    ) -> GraphProto:
        """The graph of a loop's body: of two scalars and what is carried from pass to pass, it
        makes a scalar and what is carried on."""
        from onnx import helper

        def typed(value: Value, scalar: bool) -> ValueInfoProto:
            shape: list[str | int] | None = [] if scalar else None
            return helper.make_tensor_value_info(value.name, element_type(value.dtype), shape)

        inputs = [*(typed(v, True) for v in scalars), *(typed(v, False) for v in carried)]
        found = [typed(v, scalar=not i) for i, v in enumerate(outputs)]
        return helper.make_graph(self.nodes, self.fresh("body"), inputs, found)

    def initializers(self) -> list[TensorProto]:
        from onnx import numpy_helper

        return [
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            for name, array in self.constants.items()
        ]


def dtype_of(dtype: torch.dtype) -> np.dtype[np.generic]:
    """The graph's type for torch's; half precision is single in the graph.

    >>> dtype_of(torch.float64)
    dtype('float64')
    """
    return F64 if dtype == torch.float64 else F32


def arange(*bounds: int) -> NDArray[np.int64]:
    """A row of whole numbers, of shape (1, …): it goes with every row."""
    return np.arange(*bounds, dtype=np.int64)[None]


def element_type(dtype: np.dtype[np.generic]) -> int:
    """ONNX's number for a type."""
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype))


def require(package: str) -> None:
    """Raise if a package of the extra is not installed."""
    if find_spec(package) is None:
        raise ImportError(
            f"export_onnx needs the package {package}, which is not installed: "
            "pip install 'shortlist[onnx]'"
        )


def unchanged(thing: object, kind: type, method: str) -> bool:
    """Whether a thing is of a kind, and does what a method of this name does there: a subclass may
    do otherwise, and a graph cannot know.

    >>> class Loud(str):
    ...     def upper(self): return super().upper() + "!"
    >>> unchanged("a", str, "upper"), unchanged(Loud("a"), str, "upper")
    (True, False)
    """
    return isinstance(thing, kind) and getattr(type(thing), method) is getattr(kind, method)
