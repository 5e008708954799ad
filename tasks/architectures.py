"""The models' code: each maps a batch of its kind of data to logits (n, classes).

A function makes the model of its name in :data:`tasks.models.MODELS` for data of a given shape. In
every model the modules are registered in the order the data passes through them, and the last one
is the linear layer ``fc``, so that an algorithm can treat the top layers apart. A model that is a
sequence of layers says so by ``as_sequence``, so that clients can train it together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasks.shapes import DataShape

CLASSIC_SIDE = 28  # what lenet and the FedAvg CNN were made for; smaller images are padded
SMALL_SIDE = 64  # up to this side ResNet-18 gets the stem for small images


class Mlp(nn.Module):
    """Fully connected layers with ReLU between them, over the flattened input."""

    def __init__(self, inputs: int, hidden: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.hidden, self.fc = _linears(inputs, hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map features (n, ...) to logits."""
        return _perceptron(x, self.hidden, self.fc)

    def as_sequence(self) -> Iterator[nn.Module]:
        """Yield the layers that :meth:`forward` applies."""
        return _perceptron_layers(self.hidden, self.fc)


class Conv(NamedTuple):
    """A convolution of stride 1, then a 2x2 max pool if ``pool``, then ReLU."""

    channels: int
    kernel: int
    padding: int
    pool: bool = True


class ConvNet(nn.Module):
    """Plain convolutions, then fully connected layers."""

    def __init__(self, shape: DataShape, layers: Sequence[Conv], hidden: Sequence[int]) -> None:
        super().__init__()
        channels, height, width = shape.input_shape
        self.convs = nn.ModuleList()
        self.pools = tuple(layer.pool for layer in layers)
        for out, kernel, padding, pool in layers:
            self.convs.append(nn.Conv2d(channels, out, kernel, padding=padding))
            growth, stride = 2 * padding - kernel + 1, 2 if pool else 1
            channels = out
            height, width = (height + growth) // stride, (width + growth) // stride
        self.hidden, self.fc = _linears(channels * height * width, hidden, shape.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (n, C, H, W) to logits."""
        for conv, pool in zip(self.convs, self.pools, strict=True):
            x = conv(x)
            # ReLU commutes with the maximum, and after the pool it has a quarter of the work.
            x = F.relu(F.max_pool2d(x, 2) if pool else x, inplace=True)
        return _perceptron(x, self.hidden, self.fc)

    def as_sequence(self) -> Iterator[nn.Module]:
        """Yield the layers that :meth:`forward` applies."""
        for conv, pool in zip(self.convs, self.pools, strict=True):
            yield conv
            if pool:
                yield nn.MaxPool2d(2)
            yield nn.ReLU()
        yield from _perceptron_layers(self.hidden, self.fc)


class CharLstm(nn.Module):
    """LEAF's next-character model: embedding 8, two LSTM layers of 256, the last step to logits."""

    def __init__(self, vocabulary: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.fc = nn.Linear(256, num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Map character ids (n, length) to logits."""
        steps, _ = self.lstm(self.embedding(ids))
        logits: Tensor = self.fc(steps[:, -1])
        return logits


class MeanEmbedding(nn.Embedding):
    """The mean of the embeddings of a text's tokens, 0 being padding."""

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids (n, length) to means."""
        # The mask is explicit because aggregation or noise can move the padding row off zero.
        weights = (ids != 0).to(self.weight.dtype)
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
        return torch.bmm(weights.unsqueeze(1), super().forward(ids)).squeeze(1)


class FastText(nn.Module):
    """Mean of the 32-wide embeddings of the tokens, then two linear layers with nothing between."""

    def __init__(self, vocabulary: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = MeanEmbedding(vocabulary, 32, padding_idx=0)
        self.fc1 = nn.Linear(32, 32)
        self.fc = nn.Linear(32, num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids (n, length), 0 being padding, to logits."""
        logits: Tensor = self.fc(self.fc1(self.embedding(ids)))
        return logits

    def as_sequence(self) -> Iterator[nn.Module]:
        """Yield the layers that :meth:`forward` applies."""
        yield from (self.embedding, self.fc1, self.fc)


def _linears(
    inputs: int, hidden: Sequence[int], num_classes: int
) -> tuple[nn.ModuleList, nn.Linear]:
    widths = (inputs, *hidden)
    layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
    return layers, nn.Linear(widths[-1], num_classes)


def _perceptron(x: Tensor, hidden: nn.ModuleList, fc: nn.Linear) -> Tensor:
    x = x if x.dim() == 2 else x.flatten(1)
    for layer in cast(Iterable[nn.Linear], hidden):
        x = F.linear(x, layer.weight, layer.bias).relu_()
    logits: Tensor = fc(x)
    return logits


def _perceptron_layers(hidden: nn.ModuleList, fc: nn.Linear) -> Iterator[nn.Module]:
    yield nn.Flatten()
    for layer in hidden:
        yield from (layer, nn.ReLU())
    yield fc


def _classic_padding(shape: DataShape) -> int:
    """Return the padding of a 5x5 convolution that was printed without any."""
    return 2 if min(shape.input_shape[1:]) < CLASSIC_SIDE else 0


def mlp(shape: DataShape) -> nn.Module:
    """Make TACO's perceptron for tables."""
    return Mlp(prod(shape.input_shape), (32, 16, 8), shape.num_classes)


def lenet(shape: DataShape) -> nn.Module:
    """Make NIID-Bench's CNN, LeNet-5 without padding; below 28x28 its convolutions are padded."""
    padding = _classic_padding(shape)
    return ConvNet(shape, [Conv(6, 5, padding), Conv(16, 5, padding)], (120, 84))


def cnn2(shape: DataShape) -> nn.Module:
    """Make FedBaC's light CNN; it prints only "2 conv + 2 fc", the sizes are our choice."""
    return ConvNet(shape, [Conv(32, 3, 1), Conv(64, 3, 1)], (128,))


def cnn3(shape: DataShape) -> nn.Module:
    """Make FedA4's shallow CNN; it prints only "three-layer", the sizes are our choice."""
    return ConvNet(shape, [Conv(32, 3, 1), Conv(64, 3, 1)], ())


def cnn4(shape: DataShape) -> nn.Module:
    """Make the FedAvg CNN; below 28x28 its convolutions are padded."""
    padding = _classic_padding(shape)
    return ConvNet(shape, [Conv(32, 5, padding), Conv(64, 5, padding)], (512,))


def cnn6(shape: DataShape) -> nn.Module:
    """Make FedA4's StandardCNN; it prints only "six layers", the sizes are our choice."""
    pairs = [Conv(32, 3, 1, pool=False), Conv(32, 3, 1), Conv(64, 3, 1, pool=False), Conv(64, 3, 1)]
    return ConvNet(shape, pairs, (512,))


def resnet18(shape: DataShape) -> nn.Module:
    """Make ResNet-18; small images get a 3x3 stem of stride 1 and no first pool."""
    # Slow to import, and no other model needs it.
    from torchvision.models import resnet18

    channels, height, width = shape.input_shape
    model: nn.Module = resnet18(weights=None, num_classes=shape.num_classes)
    if max(height, width) <= SMALL_SIDE:
        model.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    elif channels != 3:
        model.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    return model


def lstm(shape: DataShape) -> nn.Module:
    """Make LEAF's model of the next character."""
    return CharLstm(shape.vocabulary, shape.num_classes)


def fasttext(shape: DataShape) -> nn.Module:
    """Make fastText's classifier of token sequences."""
    return FastText(shape.vocabulary, shape.num_classes)


def with_features(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a batch's logits and its features: what enters the last linear layer."""
    seen: list[Tensor] = []
    hook = model.get_submodule(_head(model)).register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0])
    )
    try:
        logits: Tensor = model(x)
    finally:
        hook.remove()
    return logits, seen[0]


def without_head(model: nn.Module) -> nn.Module:
    """Remove the last linear layer of a model, which then gives features."""
    parent, _, name = _head(model).rpartition(".")
    setattr(model.get_submodule(parent), name, nn.Identity())
    return model


def _head(model: nn.Module) -> str:
    """Return the name of the last linear layer."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)][-1]
