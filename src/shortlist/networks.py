"""Networks: the paper's perceptron, alone or as a stack whose members are trained together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist._arrays import row_blocks


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
    def of(cls, x: Tensor, dtype: torch.dtype = torch.float32) -> Standardize:
        """Measured in float64; gives `dtype`. A column that does not vary keeps its scale."""
        mean = x.mean(dim=0, dtype=torch.float64)
        square = torch.zeros_like(mean)
        for rows in row_blocks(*x.shape):
            square += (x[rows].to(torch.float64) - mean).square().sum(dim=0)
        deviation = (square / len(x)).sqrt()
        # The mean is taken off before float64 columns are rounded: a time stamp varies by less
        # than its rounding to float32.
        wide = torch.promote_types(x.dtype, dtype)
        rounding = torch.finfo(wide)
        varies = (deviation > 8 * rounding.eps * mean.abs()) & (deviation > rounding.tiny)
        scale = torch.where(varies, deviation, 1.0)
        return cls(mean.to(wide), scale.to(wide), dtype)

    def forward(self, x: Tensor) -> Tensor:
        return ((x.to(self.mean.dtype) - self.mean) / self.scale).to(self.dtype)


@torch.no_grad()
def from_zero(network: nn.Sequential) -> nn.Sequential:
    """Set the last layer to zero: no output is preferred before the data have spoken.

    A preference drawn at random takes many steps to unlearn, and the margin loss, which is flat
    where a wrong output leads, never does.
    """
    for parameter in network[-1].parameters():
        parameter.zero_()
    return network


def perceptron(n_in: int, n_out: int, width: int = 128, hidden: int = 2) -> nn.Sequential:
    """The paper's selector: `hidden` ReLU layers of `width` units (none: a linear map)."""
    layers: list[nn.Module] = []
    for _ in range(hidden):
        layers += [nn.Linear(n_in, width), nn.ReLU()]
        n_in = width
    return nn.Sequential(*layers, nn.Linear(n_in, n_out))


class Stack(nn.Module):
    """Copies of one perceptron, trained together as batched matrix products.

    Takes a batch (rows, inputs) that all members share and gives (members, rows, outputs). All
    members start as `prototype`: Linear layers with a ReLU between each and the next. Every
    parameter has the member as its first axis, so that members never touch one another.
    """

    def __init__(self, prototype: nn.Sequential, members: int) -> None:
        super().__init__()
        self.members = members
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for i, layer in enumerate(prototype):
            if i % 2 == 0 and isinstance(layer, nn.Linear) and layer.bias is not None:
                weight, bias = layer.weight.detach(), layer.bias.detach()
                self.weights.append(nn.Parameter(weight.T.repeat(members, 1, 1)))
                self.biases.append(nn.Parameter(bias.repeat(members, 1, 1)))
            elif i % 2 == 0 or not isinstance(layer, nn.ReLU):
                raise ValueError(
                    "a Stack is made of Linear layers (with bias) and a ReLU between each and the "
                    f"next; layer {i} is {layer}"
                )
        if len(prototype) % 2 == 0:
            raise ValueError(f"a Stack must end with a Linear layer; got {prototype}")

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if i == 0:
                # One product for all members: their first layers see the same input.
                wide = weight.transpose(0, 1).reshape(weight.shape[1], -1)
                h = (x @ wide).view(len(x), self.members, -1).transpose(0, 1) + bias
            else:
                h = torch.baddbmm(bias, torch.relu(h), weight)
        return h

    def member(self, index: int) -> nn.Sequential:
        """One member as an ordinary perceptron, with weights of its own."""
        layers: list[nn.Module] = []
        for weight, bias in zip(self.weights, self.biases, strict=True):
            # Made without initial weights, which would be drawn from the global generator.
            n_in, n_out = weight.shape[1:]
            layer = nn.Linear(n_in, n_out, device="meta", dtype=weight.dtype)
            layer.to_empty(device=weight.device)
            with torch.no_grad():
                layer.weight.copy_(weight[index].T)
                layer.bias.copy_(bias[index, 0])
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])
