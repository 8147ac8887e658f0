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

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    @classmethod
    def of(cls, x: Tensor, dtype: torch.dtype = torch.float32) -> Standardize:
        """Measured in float64; a column that does not vary keeps its scale."""
        mean = x.mean(dim=0, dtype=torch.float64)
        square = torch.zeros_like(mean)
        for rows in row_blocks(*x.shape):
            square += (x[rows].to(torch.float64) - mean).square().sum(dim=0)
        deviation = (square / len(x)).sqrt()
        scale = torch.where(deviation > 1e-6 * (1 + mean.abs()), deviation, 1.0)
        return cls(mean.to(dtype), scale.to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.mean.dtype) - self.mean) / self.scale


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
    members start as `prototype`, a Sequential of Linear and ReLU layers. Every parameter has the
    member as its first axis, so that members never touch one another.
    """

    def __init__(self, prototype: nn.Sequential, members: int) -> None:
        super().__init__()
        self.members = members
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for layer in prototype:
            if isinstance(layer, nn.Linear):
                weight = layer.weight.detach().T.expand(members, -1, -1).clone()
                self.weights.append(nn.Parameter(weight))
                self.biases.append(nn.Parameter(layer.bias.detach().expand(members, 1, -1).clone()))
            elif not isinstance(layer, nn.ReLU):
                raise ValueError(f"a Stack is made of Linear and ReLU layers; got {layer}")

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
        n_in, width = self.weights[0].shape[1], self.weights[0].shape[2]
        network = perceptron(n_in, self.weights[-1].shape[2], width, len(self.weights) - 1)
        network = network.to(self.weights[0].device, self.weights[0].dtype)
        linear = [layer for layer in network if isinstance(layer, nn.Linear)]
        with torch.no_grad():
            for layer, weight, bias in zip(linear, self.weights, self.biases, strict=True):
                layer.weight.copy_(weight[index].T)
                layer.bias.copy_(bias[index, 0])
        return network
