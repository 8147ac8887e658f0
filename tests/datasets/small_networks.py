"""Small networks: residual, with tokens, and with outputs inside containers."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

TOLERANCE = 1e-3 if torch.cuda.is_available() else 1e-5
"""Tolerance for two runs of a network. On a GPU, convolutions are rounded (TF32)."""


class Block(nn.Module):
    """A residual block whose last ReLU overwrites its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.conv(x))
        y += x
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, width: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2)
        self.layer1 = nn.Sequential(Block(width), Block(width))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(width, classes)
        self.unused = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.dropout(self.pool(self.layer1(self.stem(x))).flatten(1)))


class ViT(nn.Module):
    """A transformer with patches, a class token and one block."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.block = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.block(torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1))


class Clip(nn.Module):
    """A model of images and text. Its forward method needs both."""

    def __init__(self) -> None:
        super().__init__()
        self.visual = ViT()
        self.projection = nn.Linear(8, 4)

    def encode_image(self, x: Tensor) -> Tensor:
        return self.projection(self.visual(x)[:, 0])

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        return self.encode_image(x) @ text.T


class ContainerOutput(nn.Module):
    """A network that returns its output inside a container."""

    def __init__(self, container: str) -> None:
        super().__init__()
        self.container, self.inner = container, ResNet()

    def forward(self, x: Tensor) -> object:
        y = self.inner(x)
        if self.container == "tuple":
            return y, x
        if self.container == "nested tuple":
            return None, [y], y
        if (
            self.container == "output"
        ):  # Like ModelOutput of Hugging Face, which is an ordered dictionary.
            return OrderedDict(last_hidden_state=x, pooler_output=y)
        if self.container == "object":
            return type("Output", (), {"pooler_output": y, "logits": x})()
        assert self.container == "dictionary"
        return OrderedDict(features=y)


def seeded(network_class: type[nn.Module], *args: str) -> nn.Module:
    """Return a network with reproducible weights."""
    torch.manual_seed(0)
    network = network_class(*args)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # Make the statistics differ from their defaults.
            nn.init.normal_(module.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]
    return network
