"""Networks: the paper's perceptron, alone or as a stack whose members are trained together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from shortlist._utils.arrays import row_blocks
from shortlist._utils.lazy import Matrix, is_large_matrix
from shortlist.learning.process_group import current_group

ALIGNED = 8
"""Tensor cores take matrices whose rows begin at multiples of so many values; others are slow."""


class Standardize(nn.Module):
    """Shift and scale each input to mean 0 and deviation 1, as measured once on the fit data.

    >>> x = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    >>> Standardize.of(x)(x).tolist()
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
    def of(cls, x: Matrix, dtype: torch.dtype = torch.float32) -> Standardize:
        """Measured in float64; gives `dtype`. A column that does not vary keeps its scale."""
        blocks, group = list(row_blocks(len(x), x.shape[1], x.device)), current_group()
        count = group.sum(len(x))
        if isinstance(x, Tensor) and not is_large_matrix(x) and group.world_size == 1:
            mean = x.mean(dim=0, dtype=torch.float64)
        else:  # whose copy in float64 there is no room for
            mean = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
            for rows in blocks:
                mean += x[rows].to(torch.float64).sum(dim=0) / count
            mean = group.sum(mean)
        square = torch.zeros_like(mean)
        for rows in blocks:
            square += (x[rows].to(torch.float64) - mean).square().sum(dim=0)
        deviation = (group.sum(square) / count).sqrt()
        # The mean is taken off before float64 columns are rounded: a time stamp varies by less
        # than its rounding to float32.
        wide = torch.promote_types(x.dtype, dtype)
        rounding = torch.finfo(wide)
        varies = (deviation > 8 * rounding.eps * mean.abs()) & (deviation > rounding.tiny)
        scale = torch.where(varies, deviation, 1.0)
        return cls(mean.to(wide), scale.to(wide), dtype)

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.mean.dtype) - self.mean).div_(self.scale).to(self.dtype)


@torch.no_grad()
def from_zero(network: nn.Sequential) -> nn.Sequential:
    """Set the last layer to zero: no output is preferred before the data have spoken.

    A preference drawn at random takes many steps to unlearn, and the margin loss, which is flat
    where a wrong output leads, never does.
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
    """The paper's selector: `hidden` ReLU layers of `width` units (none: a linear map)."""
    layers: list[nn.Module] = [nn.Dropout(input_dropout)] if input_dropout else []
    for _ in range(hidden):
        layers += [nn.Linear(n_in, width), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
        n_in = width
    return nn.Sequential(*layers, nn.Linear(n_in, n_out))


def dropout_mask(shape: Sequence[int], share: float, like: Tensor) -> Tensor:
    """What dropout multiplies by: 0 for about a `share` of the units, drawn from the global
    generator, and for the others what keeps the mean at 1.

    A unit takes one random byte (the share is rounded to 256ths), which is several times faster
    to draw on a CPU than `nn.functional.dropout`.

    >>> dropout_mask((1, 4), 0.0, torch.empty(0)).tolist()
    [[1.0, 1.0, 1.0, 1.0]]
    """
    count, dropped = math.prod(shape), min(round(256 * share), 255)
    words = torch.empty(-(-count // 8), dtype=torch.int64, device=like.device)
    units = words.random_(-(2**63), None).view(torch.uint8)[:count].view(*shape)
    return (units >= dropped).to(like.dtype).mul_(256 / (256 - dropped))


class Stack(nn.Module):
    """Perceptrons of one shape, trained together as batched matrix products.

    Takes a batch (rows, inputs) that all members share, or a batch for each (members, rows,
    inputs), and gives (members, rows, outputs). Every parameter has the member as its first axis,
    so that members never touch one another.

    Parameters
    ----------
    prototype : nn.Sequential, or a list of them
        Linear layers with a ReLU between each and the next, and Dropout before any of them
        (what is dropped is drawn once for all members). One: all members start as it; several:
        each member as its own.
    members : int, optional
        How many, if there is one prototype.
    """

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
                    f"the members of a Stack have one shape; prototype {i} is {each[i]}, but "
                    f"prototype 0 {each[0]}"
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
    def of(
        cls, weights: Sequence[Tensor], biases: Sequence[Tensor], dropouts: Sequence[float]
    ) -> Stack:
        """A stack of known weights (members, inputs, outputs) and biases (members, 1, outputs)."""
        shapes = [(*w.shape[:1], 1, *w.shape[2:]) for w in weights]
        chained = all(a.shape[2] == b.shape[1] for a, b in pairwise(weights))
        if not weights or not chained or [tuple(b.shape) for b in biases] != shapes:
            raise ValueError(
                f"weights of shapes {[tuple(w.shape) for w in weights]} and biases of shapes "
                f"{[tuple(b.shape) for b in biases]} are no stack of perceptrons"
            )
        if len(dropouts) != len(weights):
            raise ValueError(f"{len(dropouts)} shares to drop for {len(weights)} layers")
        stack = cls.__new__(cls)
        nn.Module.__init__(stack)
        stack.members, stack.dropouts = len(weights[0]), list(dropouts)
        stack.weights = nn.ParameterList(nn.Parameter(w) for w in weights)
        stack.biases = nn.ParameterList(nn.Parameter(b) for b in biases)
        return stack

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if self.training and self.dropouts[i]:
                # Drawing is the slow part; members' units have nothing in common but a number.
                kept = dropout_mask(h.shape[-2:], self.dropouts[i], h)
                h = h * kept
            if i:
                h = torch.relu(h)
            n_out = weight.shape[2]
            if h.is_cuda and n_out % ALIGNED:
                more = (0, -n_out % ALIGNED)
                weight, bias = nn.functional.pad(weight, more), nn.functional.pad(bias, more)
            if h.ndim == 2:
                # One product for all members: their first layers see the same input.
                wide = weight.transpose(0, 1).reshape(weight.shape[1], -1)
                h = torch.addmm(bias.view(-1), h, wide)
                h = h.view(len(x), self.members, -1).transpose(0, 1)
            else:
                h = torch.baddbmm(bias, h, weight)
            h = h[..., :n_out]
        return h

    def alone(self, index: int) -> Stack:
        """A stack of one member, which shares its weights."""
        own = slice(index, index + 1)
        return Stack.of(
            [w.detach()[own] for w in self.weights],
            [b.detach()[own] for b in self.biases],
            self.dropouts,
        ).train(self.training)

    @property
    def widest(self) -> int:
        """How many values the widest layer holds for a row, of all members."""
        widest: int = max(bias.numel() for bias in self.biases)
        return widest

    def extra_repr(self) -> str:  # tells a training's checkpoint apart
        return f"dropouts={self.dropouts}"

    def member(self, index: int) -> nn.Sequential:
        """One member as an ordinary perceptron, with weights of its own."""
        layers: list[nn.Module] = []
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            layers += [nn.ReLU()] if i else []
            layers += [nn.Dropout(self.dropouts[i])] if self.dropouts[i] else []
            # Made without initial weights, which would be drawn from the global generator.
            n_in, n_out = weight.shape[1:]
            layer = nn.Linear(n_in, n_out, device="meta", dtype=weight.dtype)
            layer.to_empty(device=weight.device)
            with torch.no_grad():
                layer.weight.copy_(weight[index].T)
                layer.bias.copy_(bias[index, 0])
            layers.append(layer)
        return nn.Sequential(*layers).train(self.training)


def _linear_layers(prototype: nn.Sequential) -> list[tuple[float, nn.Linear]]:
    """The Linear layers of a perceptron, each with the share that is dropped before it."""
    found: list[tuple[float, nn.Linear]] = []
    dropout, relu = 0.0, True  # the first layer needs no ReLU before it
    for i, layer in enumerate(prototype):
        if isinstance(layer, nn.Linear) and layer.bias is not None and relu:
            found.append((dropout, layer))
            dropout, relu = 0.0, False
        elif isinstance(layer, nn.ReLU) and found and not relu:
            relu = True
        elif isinstance(layer, nn.Dropout) and relu and not dropout:
            dropout = layer.p
        else:
            raise ValueError(
                "a Stack is made of Linear layers (with bias) and a ReLU between each and the "
                f"next, with Dropout before any; layer {i} is {layer}"
            )
    if not found or relu:
        raise ValueError(f"a Stack must end with a Linear layer; got {prototype}")
    return found


class Residual(nn.Module):
    """`scale * prior + network(x)` for every member of a stack, with a scale of its own.

    With a last layer of zeros it starts at the scaled prior itself.
    """

    def __init__(self, standardize: Standardize, stack: Stack, scale: float = 1.0) -> None:
        super().__init__()
        self.standardize, self.stack = standardize, stack
        self.scale = nn.Parameter(torch.full((stack.members, 1, 1), scale))

    def alone(self, index: int) -> Residual:
        """One member."""
        one = Residual(self.standardize, self.stack.alone(index))
        one.scale = nn.Parameter(self.scale.detach()[index : index + 1])
        return one

    def forward(self, x: Tensor, prior: Tensor, columns: Tensor | None = None) -> Tensor:
        """(members, rows, columns): `prior` is (rows, columns); `columns` (rows, columns), if
        given, says which of the network's outputs stands in which column. All may have the member
        as first axis, if each has rows of its own."""
        outputs: Tensor = self.stack(self.standardize(x))
        if columns is not None:
            outputs = outputs.gather(-1, columns.expand(len(outputs), -1, -1))
        return self.scale * prior + outputs
