"""Networks: perceptrons, and stacks of perceptrons that are trained together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn

from shortlist._utils.blocks import row_blocks
from shortlist._utils.out_of_core import Matrix, is_large_matrix
from shortlist.learning.process_group import current_group

ALIGNMENT = 8
"""Tensor cores are fast only if the row length of a matrix is a multiple of this number."""


class Standardize(nn.Module):
    """Standardize columns to mean 0 and standard deviation 1.

    Parameters
    ----------
    mean, scale : Tensor of shape (n_columns,)
        Mean and standard deviation.
    dtype : torch.dtype, optional
        Dtype of the output. By default, it is that of `mean`.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    >>> Standardize.from_data(x)(x).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.dtype = dtype or mean.dtype

    @classmethod
    def from_data(cls, x: Matrix, dtype: torch.dtype = torch.float32) -> Standardize:
        """Create the module with the mean and standard deviation of a matrix.

        Both are computed in float64 over the rows of all processes. Constant columns are not
        scaled.

        Parameters
        ----------
        x : Tensor or LazyMatrix of shape (n_rows, n_columns)
            Matrix.
        dtype : torch.dtype, default=torch.float32
            Dtype of the output of the module.

        Returns
        -------
        Standardize
            The module.
        """
        blocks, group = list(row_blocks(len(x), x.shape[1], x.device)), current_group()
        count = group.sum(len(x))
        if isinstance(x, Tensor) and not is_large_matrix(x) and group.world_size == 1:
            mean = x.mean(dim=0, dtype=torch.float64)
        else:  # A float64 copy of the matrix may not fit in memory.
            mean = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
            for rows in blocks:
                mean += x[rows].to(torch.float64).sum(dim=0) / count
            mean = group.sum(mean)
        square = torch.zeros_like(mean)
        for rows in blocks:
            square += (x[rows].to(torch.float64) - mean).square().sum(dim=0)
        deviation = (group.sum(square) / count).sqrt()
        # Float64 columns are centered before they are rounded to float32, because values such as
        # time stamps can differ by less than their rounding error in float32.
        wide = torch.promote_types(x.dtype, dtype)
        rounding = torch.finfo(wide)
        varies = (deviation > 8 * rounding.eps * mean.abs()) & (deviation > rounding.tiny)
        scale = torch.where(varies, deviation, 1.0)
        return cls(mean.to(wide), scale.to(wide), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return the standardized columns."""
        return (x.to(self.mean.dtype) - self.mean).div_(self.scale).to(self.dtype)


@torch.no_grad()
def zero_last_layer(network: nn.Sequential) -> nn.Sequential:
    """Set the weights of the last layer to zero, so that all initial outputs are equal.

    Training takes many steps to correct random initial outputs. With the margin loss it cannot
    correct them, because the gradient is zero where a wrong output is the largest.
    """
    for parameter in network[-1].parameters():
        parameter.zero_()
    return network


def perceptron(
    n_in: int,
    n_out: int,
    width: int = 128,
    hidden: int = 2,
    *,
    dropout: float = 0.0,
    input_dropout: float = 0.0,
) -> nn.Sequential:
    """Create a perceptron with ReLU layers. The defaults are those of the paper's selector.

    Parameters
    ----------
    n_in, n_out : int
        Number of inputs and outputs.
    width : int, default=128
        Number of units in a hidden layer.
    hidden : int, default=2
        Number of hidden layers. 0 gives a linear map.
    dropout, input_dropout : float, default=0.0
        Fraction of the units that are dropped after each hidden layer, and fraction of the inputs
        that are dropped.

    Returns
    -------
    nn.Sequential
        The perceptron.
    """
    layers: list[nn.Module] = [nn.Dropout(input_dropout)] if input_dropout else []
    for _ in range(hidden):
        layers += [nn.Linear(n_in, width), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
        n_in = width
    return nn.Sequential(*layers, nn.Linear(n_in, n_out))


def dropout_mask(
    shape: Sequence[int], dropout: float, like: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Return the factors by which dropout multiplies units.

    A factor is 0, or the inverse of the fraction of units that are kept. Each unit uses one random
    byte, which is several times faster on a CPU than `nn.functional.dropout`.

    Parameters
    ----------
    shape : sequence of int
        Shape of the mask.
    dropout : float
        Fraction of zeros. It is rounded to a multiple of 1 / 256.
    like : Tensor
        Tensor with the dtype and device of the mask.
    generator : torch.Generator, optional
        Source of the random bytes; the global generator by default.

    Returns
    -------
    Tensor
        The mask.

    Examples
    --------
    >>> dropout_mask((1, 4), 0.0, torch.empty(0)).tolist()
    [[1.0, 1.0, 1.0, 1.0]]
    """
    count, dropped = math.prod(shape), min(round(256 * dropout), 255)
    bits = torch.empty(-(-count // 8), dtype=torch.int64, device=like.device)
    units = bits.random_(-(2**63), None, generator=generator).view(torch.uint8)[:count].view(*shape)
    return (units >= dropped).to(like.dtype).mul_(256 / (256 - dropped))


class Stack(nn.Module):
    """Perceptrons of the same shape, which are evaluated by batched matrix products.

    The input has the shape (rows, inputs), and all members share it, or the shape (members, rows,
    inputs). The output has the shape (members, rows, outputs). The first axis of every parameter
    is the member, so that members do not affect each other.

    Parameters
    ----------
    prototype : nn.Sequential or sequence of nn.Sequential
        Perceptron with the initial weights of all members, or one perceptron for each member. It
        consists of Linear layers with ReLU between them, and optional Dropout before each Linear
        layer. All members share the mask of a Dropout layer.
    members : int, optional
        Number of members, if `prototype` is a single perceptron.

    Attributes
    ----------
    generator : torch.Generator or None
        Source of the dropout; None for the global generator.

    Raises
    ------
    ValueError
        If a prototype has other layers, or the prototypes differ in shape.
    """

    generator: torch.Generator | None = None

    def __init__(
        self, prototype: nn.Sequential | Sequence[nn.Sequential], members: int | None = None
    ) -> None:
        super().__init__()
        each = [prototype] * (members or 1) if isinstance(prototype, nn.Sequential) else prototype
        self.members = len(each)
        layers = [_linear_layers(one) for one in each]
        shapes = [[(dropout, layer.weight.shape) for dropout, layer in one] for one in layers]
        for i, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise ValueError(
                    f"the members of a Stack must have the same shape; prototype {i} is {each[i]}, "
                    f"but prototype 0 is {each[0]}"
                )
        self.dropouts = [dropout for dropout, _ in layers[0]]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for i in range(len(layers[0])):
            linear = [of_one[i][1] for of_one in layers]
            weights = torch.stack([layer.weight.detach().T for layer in linear])
            biases = torch.stack([layer.bias.detach()[None] for layer in linear])
            self.weights.append(nn.Parameter(weights.contiguous()))
            self.biases.append(nn.Parameter(biases))

    @classmethod
    def from_weights(
        cls, weights: Sequence[Tensor], biases: Sequence[Tensor], dropouts: Sequence[float]
    ) -> Stack:
        """Create a stack from its parameters.

        Parameters
        ----------
        weights : sequence of Tensor of shape (members, inputs, outputs)
            Weights of each layer.
        biases : sequence of Tensor of shape (members, 1, outputs)
            Biases of each layer.
        dropouts : sequence of float
            Fraction of the units that are dropped before each layer.

        Returns
        -------
        Stack
            The stack.

        Raises
        ------
        ValueError
            If the shapes do not form a stack of perceptrons.
        """
        shapes = [(*w.shape[:1], 1, *w.shape[2:]) for w in weights]
        chained = all(a.shape[2] == b.shape[1] for a, b in pairwise(weights))
        if not weights or not chained or [tuple(b.shape) for b in biases] != shapes:
            raise ValueError(
                f"weights of shapes {[tuple(w.shape) for w in weights]} and biases of shapes "
                f"{[tuple(b.shape) for b in biases]} do not form a stack of perceptrons"
            )
        if len(dropouts) != len(weights):
            raise ValueError(
                f"got {len(dropouts)} dropouts for {len(weights)} layers; pass one for each layer"
            )
        stack = cls.__new__(cls)
        nn.Module.__init__(stack)
        stack.members, stack.dropouts = len(weights[0]), list(dropouts)
        stack.weights = nn.ParameterList(nn.Parameter(w) for w in weights)
        stack.biases = nn.ParameterList(nn.Parameter(b) for b in biases)
        return stack

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of all members, of shape (members, rows, outputs)."""
        h = x
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if self.training and self.dropouts[i]:
                # All members share the mask, because it is slow to draw.
                shape = h.shape[-2:]
                h = h * dropout_mask(shape, self.dropouts[i], h, self.generator)
            if i:
                h = torch.relu(h)
            n_out = weight.shape[2]
            if h.is_cuda and n_out % ALIGNMENT:
                padding = (0, -n_out % ALIGNMENT)
                weight, bias = nn.functional.pad(weight, padding), nn.functional.pad(bias, padding)
            if h.ndim == 2:
                # The members share the input, so that one matrix product evaluates all of them.
                wide = weight.transpose(0, 1).reshape(weight.shape[1], -1)
                h = torch.addmm(bias.view(-1), h, wide)
                h = h.view(len(x), self.members, -1).transpose(0, 1)
            else:
                h = torch.baddbmm(bias, h, weight)
            h = h[..., :n_out]
        return h

    def select_member(self, index: int) -> Stack:
        """Return a stack of one member, which shares the weights of this stack."""
        own = slice(index, index + 1)
        return Stack.from_weights(
            [w.detach()[own] for w in self.weights],
            [b.detach()[own] for b in self.biases],
            self.dropouts,
        ).train(self.training)

    @property
    def widest(self) -> int:
        """Total number of units of all members in the widest layer."""
        widest: int = max(bias.numel() for bias in self.biases)
        return widest

    def extra_repr(self) -> str:
        """Return the dropouts for the repr, which is part of the fingerprint of a checkpoint."""
        return f"dropouts={self.dropouts}"

    def member(self, index: int) -> nn.Sequential:
        """Return one member as a perceptron with a copy of its weights."""
        layers: list[nn.Module] = []
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            layers += [nn.ReLU()] if i else []
            layers += [nn.Dropout(self.dropouts[i])] if self.dropouts[i] else []
            # The layer is created on the meta device, because `nn.Linear` would draw initial
            # weights from the global random generator.
            n_in, n_out = weight.shape[1:]
            layer = nn.Linear(n_in, n_out, device="meta", dtype=weight.dtype)
            layer.to_empty(device=weight.device)
            with torch.no_grad():
                layer.weight.copy_(weight[index].T)
                layer.bias.copy_(bias[index, 0])
            layers.append(layer)
        return nn.Sequential(*layers).train(self.training)


def _linear_layers(prototype: nn.Sequential) -> list[tuple[float, nn.Linear]]:
    """Return the Linear layers of a perceptron, each with the dropout fraction before it."""
    layers: list[tuple[float, nn.Linear]] = []
    dropout, relu = 0.0, True  # The first layer needs no ReLU before it.
    for i, layer in enumerate(prototype):
        if isinstance(layer, nn.Linear) and layer.bias is not None and relu:
            layers.append((dropout, layer))
            dropout, relu = 0.0, False
        elif isinstance(layer, nn.ReLU) and layers and not relu:
            relu = True
        elif isinstance(layer, nn.Dropout) and relu and not dropout:
            dropout = layer.p
        else:
            raise ValueError(
                "a Stack consists of Linear layers with bias, ReLU between them, and optional "
                f"Dropout before each; layer {i} is {layer}"
            )
    if not layers or relu:
        raise ValueError(f"a Stack must end with a Linear layer; got {prototype}")
    return layers


class Ensemble(nn.Module):
    """Standardize the inputs of a stack.

    Parameters
    ----------
    standardize : Standardize
        Standardizes the inputs.
    stack : Stack
        Networks.
    """

    takes_prior = False
    """Whether `forward` takes prior outputs."""

    def __init__(self, standardize: Standardize, stack: Stack) -> None:
        super().__init__()
        self.standardize, self.stack = standardize, stack

    def select_member(self, index: int) -> Self:
        """Return one member, which shares its weights."""
        return type(self)(self.standardize, self.stack.select_member(index))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, of shape (members, n_rows, n_outputs).

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_inputs) or (members, n_rows, n_inputs)
            Inputs, the same for all members or of each.
        """
        outputs: Tensor = self.stack(self.standardize(x))
        return outputs


class Residual(Ensemble):
    """Add the outputs of a stack to scaled prior outputs: `scale * prior + stack(x)`.

    Each member has its own scale. If the last layer of the stack is zero, the initial output is
    the scaled prior.

    Parameters
    ----------
    standardize : Standardize
        Module that standardizes the inputs.
    stack : Stack
        Networks whose outputs are added.
    scale : float, default=1.0
        Initial scale of the prior.
    """

    takes_prior = True

    def __init__(self, standardize: Standardize, stack: Stack, scale: float = 1.0) -> None:
        super().__init__(standardize, stack)
        self.scale = nn.Parameter(torch.full((stack.members, 1, 1), scale))

    def select_member(self, index: int) -> Self:
        """Return one member, which shares its weights."""
        member = super().select_member(index)
        member.scale = nn.Parameter(self.scale.detach()[index : index + 1])
        return member

    def forward(  # type: ignore[override]
        self, x: Tensor, prior: Tensor, columns: Tensor | None = None
    ) -> Tensor:
        """Return the outputs, of shape (members, rows, n_columns).

        Parameters
        ----------
        x : Tensor of shape (rows, n_inputs)
            Inputs. If the members have different rows, the first axis of all arguments is the
            member.
        prior : Tensor of shape (rows, n_columns)
            Prior outputs.
        columns : Tensor of shape (rows, n_columns), optional
            Index of the output of the stack for each column. By default, column j is output j.

        Returns
        -------
        Tensor of shape (members, rows, n_columns)
            The outputs.
        """
        outputs: Tensor = self.stack(self.standardize(x))
        if columns is not None:
            outputs = outputs.gather(-1, columns.expand(len(outputs), -1, -1))
        return self.scale * prior + outputs
