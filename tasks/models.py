"""The models by name, and :func:`build_model`.

A model is an entry here and the function of the same name in :mod:`tasks.architectures`, which
needs torch and is imported when a model is built. One from outside is such a function too, see
:mod:`fedsuite.core.plugins`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedsuite.core import plugins
from fedsuite.core.settings import UserError, invalid
from tasks.shapes import DataShape

if TYPE_CHECKING:
    from torch import nn

    Make = Callable[[DataShape], nn.Module]

AUTO = "auto"
DEFAULTS = {"image": "cnn2", "tabular": "mlp", "tokens": "fasttext", "chars": "lstm"}


@dataclass(frozen=True)
class ModelSpec:
    """What a model is, and which data it takes."""

    summary: str
    kinds: tuple[str, ...]
    smallest_side: int = 1


MODELS: dict[str, ModelSpec] = {
    "mlp": ModelSpec("perceptron with hidden layers 32-16-8", ("tabular", "image")),
    "lenet": ModelSpec("NIID-Bench's CNN: 2 conv 5x5 (6, 16), 3 fc (120, 84)", ("image",), 4),
    "cnn2": ModelSpec("FedBaC's light CNN: 2 conv 3x3 (32, 64), 2 fc (128)", ("image",), 4),
    "cnn3": ModelSpec("FedA4's shallow CNN: 2 conv 3x3 (32, 64), 1 fc", ("image",), 4),
    "cnn4": ModelSpec("FedAvg's CNN: 2 conv 5x5 (32, 64), 2 fc (512)", ("image",), 4),
    "cnn6": ModelSpec(
        "FedA4's six-layer CNN: 4 conv 3x3 (32, 32, 64, 64), 2 fc (512)", ("image",), 4
    ),
    "resnet18": ModelSpec("ResNet-18, with a 3x3 stem up to 64x64 images", ("image",)),
    "lstm": ModelSpec("LEAF's 2-layer LSTM of 256 over characters", ("chars",)),
    "fasttext": ModelSpec("mean of 32-wide token embeddings, 2 fc (32)", ("tokens",)),
}


def find_model(name: str) -> Make | None:
    """Return what makes a model from outside, None for one of ours; refuse a name that is none."""
    if name in MODELS or name == AUTO:
        return None
    make: Make = plugins.find("model", name, (AUTO, *MODELS))
    if not callable(make):
        raise invalid("model", name, "it is not a function that makes a model.")
    return make


def build_model(name: str, shape: DataShape, seed: int) -> nn.Module:
    """Make the model ``name`` for data of ``shape``, its weights drawn from ``seed`` alone."""
    name = DEFAULTS[shape.kind] if name == AUTO else name
    outside = find_model(name)
    if outside is None:
        _check_fit(name, MODELS[name], shape)
    import torch

    from tasks import architectures

    make: Make = outside or getattr(architectures, name)
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which also reseeds the accelerators that the fork leaves out.
        torch.default_generator.manual_seed(seed)
        return _checked(name, make, shape) if outside else make(shape)


def _checked(name: str, make: Make, shape: DataShape) -> nn.Module:
    """Make a model from outside; refuse one that does not map a batch to logits."""
    import copy

    import torch

    try:
        model = make(shape)
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"it made a {type(model).__name__}, not a torch.nn.Module")
        is_text = shape.kind in ("tokens", "chars")
        batch = torch.zeros(2, *shape.input_shape, dtype=torch.long if is_text else torch.float32)
        with torch.no_grad():  # a copy, since a forward pass may leave traces
            logits = tuple(copy.deepcopy(model).eval()(batch).shape)
    except Exception as error:  # whatever code from outside raises
        raise UserError(
            f"The model '{name}' does not work on {shape.kind} data of the shape "
            f"{shape.input_shape} with {shape.num_classes} classes "
            f"({type(error).__name__}: {error})."
        ) from error
    if logits != (2, shape.num_classes):
        raise UserError(
            f"The model '{name}' maps 2 samples to the shape {logits}; it must be logits of the "
            f"shape (2, {shape.num_classes}), a number per class."
        )
    return model


def _check_fit(name: str, spec: ModelSpec, shape: DataShape) -> None:
    fitting = {n: s for n, s in MODELS.items() if shape.kind in s.kinds}
    if name not in fitting:
        raise invalid(
            "model",
            name,
            f"it takes {' or '.join(spec.kinds)} data, but the dataset has {shape.kind} data. "
            f"Models for {shape.kind} data: {', '.join(fitting)}.",
        )
    if shape.kind != "image":
        return
    _, height, width = shape.input_shape
    side = min(height, width)
    if side < spec.smallest_side:
        possible = [n for n, s in fitting.items() if side >= s.smallest_side]
        raise invalid(
            "model",
            name,
            f"it needs images of at least {spec.smallest_side}x{spec.smallest_side}, but the "
            f"dataset has {height}x{width}. Models for images this small: {', '.join(possible)}.",
        )
