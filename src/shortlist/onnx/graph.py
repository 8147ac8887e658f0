"""Build a graph of ONNX operations with the syntax of arithmetic."""

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
"""Version of the file format, which every onnxruntime that the extra `onnx` allows can read."""

F32, F64, INT, BOOL = (np.dtype(t) for t in (np.float32, np.float64, np.int64, np.bool_))
DType: TypeAlias = "np.dtype[np.generic]"
Operand: TypeAlias = "Value | float | np.generic | NDArray[np.generic] | Tensor"
Attribute: TypeAlias = "int | float | str | list[int] | GraphProto"


class Value:
    """A tensor in an ONNX graph. Operators and methods add nodes to the graph.

    It is used like a `torch.Tensor` of shape (n_rows, n_columns): arithmetic and comparisons
    broadcast and promote types, and operands may be numbers, arrays, tensors or other values.

    Parameters
    ----------
    graph : Graph
        Graph that contains the tensor.
    name : str
        Name of the tensor in the graph.
    dtype : numpy.dtype
        Type of its values.
    """

    __slots__ = ("graph", "name", "dtype")
    __array_ufunc__ = None  # NumPy leaves an operation with an array on the left to this class.

    def __init__(self, graph: Graph, name: str, dtype: DType) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    def __add__(self, other: Operand) -> Value:
        return self.graph.binary("Add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.graph.binary("Add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.graph.binary("Sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.graph.binary("Sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.graph.binary("Mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.graph.binary("Mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.graph.binary("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.graph.binary("Div", other, self)

    def __matmul__(self, other: Operand) -> Value:
        return self.graph.op("MatMul", self, other)

    def __neg__(self) -> Value:
        return self.graph.op("Neg", self)

    def __gt__(self, other: Operand) -> Value:
        return self.graph.binary("Greater", self, other, BOOL)

    def __ge__(self, other: Operand) -> Value:
        return self.graph.binary("GreaterOrEqual", self, other, BOOL)

    def __lt__(self, other: Operand) -> Value:
        return self.graph.binary("Less", self, other, BOOL)

    def __le__(self, other: Operand) -> Value:
        return self.graph.binary("LessOrEqual", self, other, BOOL)

    def __and__(self, other: Operand) -> Value:
        return self.graph.op("And", self, other, dtype=BOOL)

    def __or__(self, other: Operand) -> Value:
        return self.graph.op("Or", self, other, dtype=BOOL)

    def __invert__(self) -> Value:
        return self.graph.op("Not", self, dtype=BOOL)

    def __getitem__(self, key: tuple[slice, slice]) -> Value:
        """Return some columns: ``value[:, start:stop]``."""
        rows, columns = key
        if rows != slice(None) or columns.step is not None:
            raise ValueError(f"value[{rows}, {columns}]: only value[:, start:stop] is available")
        return self.graph.slice(self, columns.start or 0, columns.stop)

    def equals(self, other: Operand) -> Value:
        """Return whether values are equal, element by element.

        Parameters
        ----------
        other : Value, array or number
            Values to compare with.

        Returns
        -------
        Value of booleans
        """
        return self.graph.binary("Equal", self, other, BOOL)

    def log(self) -> Value:
        """Return the natural logarithm.

        Returns
        -------
        Value
        """
        return self.graph.op("Log", self)

    def exp(self) -> Value:
        """Return the exponential.

        Returns
        -------
        Value
        """
        return self.graph.op("Exp", self)

    def abs(self) -> Value:
        """Return the absolute value.

        Returns
        -------
        Value
        """
        return self.graph.op("Abs", self)

    def to(self, dtype: DType | torch.dtype) -> Value:
        """Return the same numbers in another type.

        Parameters
        ----------
        dtype : numpy.dtype or torch.dtype
            Type of the result.

        Returns
        -------
        Value
        """
        wanted = np_dtype(dtype) if isinstance(dtype, torch.dtype) else dtype
        if wanted == self.dtype:
            return self
        return self.graph.op("Cast", self, dtype=wanted, to=element_type(wanted))

    def clamp(self, min: float | None = None, max: float | None = None) -> Value:
        """Limit the values to a range.

        Parameters
        ----------
        min, max : float, optional
            Ends of the range.

        Returns
        -------
        Value
        """
        value = self if min is None else self.graph.op("Max", self, min)
        return value if max is None else self.graph.op("Min", value, max)

    def flip(self) -> Value:
        """Reverse the order of the columns.

        Returns
        -------
        Value
        """
        return self.graph.slice(self, -1, -(2**62), step=-1)

    def take(self, index: Operand, axis: int = 1) -> Value:
        """Return columns, the same ones in all rows.

        Parameters
        ----------
        index : array or Value of shape (n_indices,)
            Indices of the columns.
        axis : int, default=1
            Axis of the indices.

        Returns
        -------
        Value
        """
        return self.graph.op("Gather", self, index, axis=axis)

    def take_along(self, index: Value, axis: int = 1) -> Value:
        """Return columns, other ones in each row.

        Parameters
        ----------
        index : Value of shape (n_rows, n_indices)
            Indices of the columns.
        axis : int, default=1
            Axis of the indices.

        Returns
        -------
        Value
        """
        return self.graph.op("GatherElements", self, index, axis=axis)

    def sum(self, axis: int = 1, keep: bool = True) -> Value:
        """Return the sums along an axis.

        Parameters
        ----------
        axis : int, default=1
            Axis to sum over.
        keep : bool, default=True
            Whether the axis stays, with length 1.

        Returns
        -------
        Value
        """
        return self.graph.reduce("ReduceSum", self, axis, keep)

    def max(self, axis: int = 1, keep: bool = True) -> Value:
        """Return the largest values along an axis.

        Parameters
        ----------
        axis : int, default=1
            Axis to reduce.
        keep : bool, default=True
            Whether the axis stays, with length 1.

        Returns
        -------
        Value
        """
        return self.graph.reduce("ReduceMax", self, axis, keep)

    def count(self, keep: bool = True) -> Value:
        """Return the number of true values in each row.

        Parameters
        ----------
        keep : bool, default=True
            Whether the columns stay as an axis of length 1.

        Returns
        -------
        Value of integers
        """
        return self.to(INT).sum(keep=keep)

    def cumsum(self) -> Value:
        """Return the cumulative sums along each row.

        Returns
        -------
        Value
        """
        return self.graph.op("CumSum", self, np.int64(1))

    def reshape(self, *shape: int) -> Value:
        """Return the same numbers in another shape.

        Parameters
        ----------
        *shape : int
            Lengths of the axes; -1 for one that follows from the others.

        Returns
        -------
        Value
        """
        return self.graph.op("Reshape", self, np.array(shape, dtype=np.int64))

    def unsqueeze(self, axis: int) -> Value:
        """Insert an axis of length 1.

        Parameters
        ----------
        axis : int
            Position of the axis.

        Returns
        -------
        Value
        """
        return self.graph.op("Unsqueeze", self, np.array([axis], dtype=np.int64))

    def pad(self, before: int, after: int, value: float) -> Value:
        """Add columns of a constant before the first column and after the last.

        Parameters
        ----------
        before, after : int
            Numbers of columns.
        value : float
            The constant.

        Returns
        -------
        Value
        """
        pads = np.array([0, before, 0, after], dtype=np.int64)
        return self.graph.op("Pad", self, pads, self.dtype.type(value))

    def shape(self) -> Value:
        """Return the shape.

        Returns
        -------
        Value of integers
        """
        return self.graph.op("Shape", self, dtype=INT)


class Graph:
    """Nodes and constants of an ONNX graph.

    Parameters
    ----------
    parent : Graph, optional
        Graph that contains this one as the body of a loop. Both share names and constants.

    Attributes
    ----------
    nodes : list of NodeProto
        Operations.
    constants : dict of str to array
        Constants, by name.
    inputs : list of (Value, shape)
        Inputs.
    """

    def __init__(self, parent: Graph | None = None) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, NDArray[np.generic]] = {} if parent is None else parent.constants
        self.inputs: list[tuple[Value, Sequence[str | int]]] = []
        self._count: list[int] = [0] if parent is None else parent._count
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = (
            {} if parent is None else parent._known
        )

    def body(self) -> Graph:
        """Return an empty graph for the body of a loop."""
        return Graph(self)

    def unique_name(self, stem: str) -> str:
        """Return a name that no other tensor has."""
        self._count[0] += 1
        return f"{stem}_{self._count[0]}"

    def input(self, name: str, dtype: DType, shape: Sequence[str | int]) -> Value:
        """Return the input of a name, which is added if the graph does not have it."""
        for value, _ in self.inputs:
            if value.name == name:
                return value
        value = Value(self, name, dtype)
        self.inputs.append((value, shape))
        return value

    def constant(self, array: NDArray[np.generic] | np.generic) -> Value:
        """Return a constant. Small constants that are equal are stored once."""
        array = np.asarray(array)
        key = None
        if array.size <= 4096:
            key = (array.dtype.str, array.shape, array.tobytes())
            if key in self._known:
                return Value(self, self._known[key], array.dtype)
        name = self.unique_name("constant")
        self.constants[name] = array
        if key is not None:
            self._known[key] = name
        return Value(self, name, array.dtype)

    def value(self, operand: Operand, dtype: DType) -> Value:
        """Return an operand as a value. Python numbers are converted to `dtype`."""
        if isinstance(operand, Value):
            return Value(self, operand.name, operand.dtype)
        if isinstance(operand, Tensor):
            return self.constant(operand.detach().cpu().numpy())
        if isinstance(operand, np.ndarray | np.generic):
            return self.constant(operand)
        return self.constant(np.asarray(operand, dtype=dtype))

    def binary(self, op_type: str, a: Operand, b: Operand, dtype: DType | None = None) -> Value:
        """Add an operation of two operands, which are promoted to the same type."""
        own = next(x.dtype for x in (a, b) if isinstance(x, Value))
        if own.kind != "f" and any(isinstance(x, float) for x in (a, b)):
            raise ValueError(f"{op_type} of integers and a float: convert the integers first")
        left, right = self.value(a, own), self.value(b, own)
        wide = _promote(left.dtype, right.dtype)
        return self.op(op_type, left.to(wide), right.to(wide), dtype=dtype)

    def op(
        self, op_type: str, *operands: Operand, dtype: DType | None = None, **attributes: Attribute
    ) -> Value:
        """Add an operation with one result, whose type is that of the first operand by default."""
        own = next(o.dtype for o in operands if isinstance(o, Value))
        values = [self.value(o, own) for o in operands]
        return self.ops(op_type, values, [dtype or own], **attributes)[0]

    def ops(
        self,
        op_type: str,
        operands: Sequence[Value],
        dtypes: Sequence[DType],
        **attributes: Attribute,
    ) -> list[Value]:
        """Add an operation with several results, of the given types."""
        from onnx import helper

        results = [Value(self, self.unique_name(op_type.lower()), dtype) for dtype in dtypes]
        node = helper.make_node(op_type, [o.name for o in operands], [r.name for r in results])
        node.attribute.extend(helper.make_attribute(name, a) for name, a in attributes.items())
        self.nodes.append(node)
        return results

    def slice(self, x: Value, start: int, end: int | None, axis: int = 1, step: int = 1) -> Value:
        """Return a slice along an axis."""
        last = 2**62 if end is None else end
        bounds = [np.array([v], dtype=np.int64) for v in (start, last, axis, step)]
        return self.op("Slice", x, *bounds)

    def reduce(self, op_type: str, x: Value, axis: int, keep: bool) -> Value:
        """Reduce a value along an axis."""
        return self.op(op_type, x, np.array([axis], dtype=np.int64), keepdims=int(keep))

    def where(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """Return the values of `yes` where a condition holds, and of `no` elsewhere."""
        own = next(
            (o.dtype for o in (yes, no) if isinstance(o, Value | np.ndarray | np.generic)), F64
        )
        return self.op("Where", condition, self.value(yes, own), self.value(no, own), dtype=own)

    def concat(self, parts: Sequence[Value], axis: int = 1) -> Value:
        """Concatenate values along an axis."""
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def top(self, x: Value, depth: int) -> tuple[Value, Value]:
        """Return the largest values of each row and their columns. Ties go to the lowest column."""
        k = self.constant(np.array([depth], dtype=np.int64))
        values, index = self.ops("TopK", [x, k], [x.dtype, INT], axis=1)
        return values, index

    def any(self, x: Value) -> Value:
        """Return whether any value is true, as a scalar."""
        return (x.reshape(1, -1).to(INT).max() > 0).reshape()

    def put_along(self, x: Value, index: Value, updates: Value, add: bool = False) -> Value:
        """Return `x` after replacing some columns of each row, or after adding to them."""
        return self.op(
            "ScatterElements", x, index, updates, axis=1, reduction="add" if add else "none"
        )

    def logsumexp(self, x: Value, axis: int = 1, may_be_empty: bool = False) -> Value:
        """Return the logarithm of a sum of exponentials.

        With `may_be_empty`, the result is minus infinity if all terms are. Otherwise it is NaN.
        """
        largest = x.max(axis)
        if may_be_empty:
            largest = self.where(largest > -math.inf, largest, 0.0)
        return (x - largest).exp().sum(axis).log() + largest

    def rename(self, x: Value, name: str) -> None:
        """Add the same tensor under another name."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [x.name], [name]))

    def proto(
        self, scalars: Sequence[Value], carried: Sequence[Value], outputs: Sequence[Value]
    ) -> GraphProto:
        """Return this graph as the body of a loop.

        Its inputs are two scalars and the tensors that one pass hands on to the next. Its outputs
        are a scalar and these tensors.
        """
        from onnx import helper

        def typed(value: Value, scalar: bool) -> ValueInfoProto:
            shape: list[str | int] | None = [] if scalar else None
            return helper.make_tensor_value_info(value.name, element_type(value.dtype), shape)

        inputs = [*(typed(v, True) for v in scalars), *(typed(v, False) for v in carried)]
        results = [typed(v, scalar=not i) for i, v in enumerate(outputs)]
        return helper.make_graph(self.nodes, self.unique_name("body"), inputs, results)

    def initializers(self) -> list[TensorProto]:
        """Return the constants as ONNX tensors."""
        from onnx import numpy_helper

        return [
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            for name, array in self.constants.items()
        ]


def _promote(a: DType, b: DType) -> DType:
    """Return the type of a result as in torch: integers are converted to the type of floats."""
    if (a.kind == "f") != (b.kind == "f"):
        return a if a.kind == "f" else b
    return np.promote_types(a, b)


def np_dtype(dtype: torch.dtype) -> DType:
    """Return the type in a graph for a torch dtype. Half precision becomes single precision.

    Parameters
    ----------
    dtype : torch.dtype
        Floating-point type, int64 or bool.

    Returns
    -------
    numpy.dtype

    Examples
    --------
    >>> np_dtype(torch.float64)
    dtype('float64')
    """
    singles = dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), F32)
    return {torch.float64: F64, torch.int64: INT, torch.bool: BOOL, **singles}[dtype]


def arange(*bounds: int) -> NDArray[np.int64]:
    """Return integers as an array of shape (1, n). The arguments are those of `numpy.arange`."""
    return np.arange(*bounds, dtype=np.int64)[None]


def element_type(dtype: DType) -> int:
    """Return the number of a type in ONNX."""
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype))


def require_package(package: str) -> None:
    """Raise if a package of the extra `onnx` is not installed."""
    if find_spec(package) is None:
        raise ImportError(
            f"export_onnx needs the package {package}, which is not installed: "
            "pip install 'shortlist[onnx]'"
        )
