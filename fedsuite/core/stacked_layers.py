"""Layers over the parameters of several clients at once.

In a stack of ``n`` clients each has parameters of its own: a linear layer's weights are
``(n, out, in)``, a batch is ``(n, rows, ...)``, and a layer is one batched call.

A client's bits do not depend on how many others are in its stack, which takes three rules. BLAS
computes in an order that depends on how a matrix is aligned, so each client's part of every tensor
starts at a multiple of ``ALIGNMENT`` numbers: a batch has a multiple of as many rows. Functions
that PyTorch approximates differently at the end of a tensor (``tanh``) are applied client by
client. All is computed by one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

ALIGNMENT = 16  # float32 numbers in 64 bytes

CLIENT_BY_CLIENT = (
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.ELU,
    nn.SELU,
    nn.Softplus,
)
POOLS = (nn.MaxPool2d, nn.AvgPool2d)


class StackedLayer(Protocol):
    """A layer bound to the parameters of some clients and to where their gradients go."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer; remember what its gradients need."""

    def backward(self, grad: Tensor, wanted: bool = True) -> Tensor:
        """Write the parameters' gradients; return the input's if that is wanted."""


Make = Callable[[Sequence[Tensor], Sequence[Tensor]], StackedLayer]


@dataclass(frozen=True)
class LayerPlan:
    """A layer to make: from its parameters, by their names, and their gradients."""

    parameters: tuple[str, ...]
    make: Make


def plan_layers(module: nn.Module, convolutions: bool) -> list[LayerPlan] | None:
    """Return the layers of a module that can be stacked; None if it cannot.

    It can if it is a known layer, a sequence of them, or says by ``as_sequence`` which it is, and
    nothing else acts on its batches. Convolutions pay on a GPU alone.
    """
    layers, names = list(_sequence(module)), {id(p): n for n, p in module.named_parameters()}
    plans = [_plan(layer, names, convolutions) for layer in layers]
    used = [name for plan in plans if plan for name in plan.parameters]
    plain = all(p.dtype == torch.float32 and p.requires_grad for p in module.parameters())
    hooked = any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    buffered = next(module.buffers(), None) is not None
    if not plain or hooked or buffered or not names or sorted(used) != sorted(names.values()):
        return None
    found = [plan for plan in plans if plan]
    return found if len(found) == len(plans) else None


def _sequence(module: nn.Module) -> Iterator[nn.Module]:
    parts = getattr(module, "as_sequence", None)
    if callable(parts):
        for layer in parts():
            yield from _sequence(layer)
    elif type(module) is nn.Sequential:
        for layer in module:
            yield from _sequence(layer)
    elif type(module) is not nn.Identity:
        yield module


def _plan(layer: nn.Module, names: dict[int, str], convolutions: bool) -> LayerPlan | None:
    make = _maker(layer, convolutions)
    own = [names.get(id(parameter)) for parameter in layer.parameters()]
    parameters = tuple(name for name in own if name is not None)
    return LayerPlan(parameters, make) if make and len(parameters) == len(own) else None


def _maker(layer: nn.Module, convolutions: bool) -> Make | None:
    if type(layer) is nn.Linear and min(layer.weight.shape) > 1:  # BLAS treats vectors apart
        return Linear
    if type(layer) is nn.ReLU:
        return ReLU
    if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
        return Flatten
    if type(layer) in CLIENT_BY_CLIENT or _is_plain_embedding(layer):
        return partial(ByAutograd, partial(_each, layer))
    if convolutions and type(layer) is nn.Conv2d and _is_plain_convolution(layer):
        return partial(ByAutograd, partial(_convolve, layer))
    if convolutions and type(layer) in POOLS:
        return partial(ByAutograd, partial(_pool, layer))
    return None


def _is_plain_embedding(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Embedding) and not (
        layer.max_norm or layer.sparse or layer.scale_grad_by_freq
    )


def _is_plain_convolution(layer: nn.Conv2d) -> bool:
    return layer.groups == 1 and layer.padding_mode == "zeros"


class Linear:
    """``x W^T + b``, the layer that training a small model consists of: gradients by hand."""

    def __init__(self, weights: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        self.weight, self.grads = weights[0], grads
        self.transposed = self.weight.transpose(1, 2)
        self.bias = weights[1].unsqueeze(1) if len(weights) > 1 else None
        self.outputs, inputs = self.weight.shape[1:]
        # As many more outputs as let each client's weight gradients start aligned.
        self.more = -self.outputs % (ALIGNMENT // gcd(inputs, ALIGNMENT))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x W^T + b``."""
        self.x = x.flatten(1, -2)
        if self.bias is None:
            out = torch.bmm(self.x, self.transposed)
        else:
            out = torch.baddbmm(self.bias, self.x, self.transposed)
        return out if x.dim() == 3 else out.unflatten(1, x.shape[1:-1])

    def backward(self, grad: Tensor, wanted: bool = True) -> Tensor:
        """Write ``g^T x`` and the sum of ``g``; return ``g W``."""
        shape, grad = grad.shape, grad.flatten(1, -2)
        wide = F.pad(grad, (0, self.more)) if self.more else grad
        products = torch.bmm(wide.transpose(1, 2), self.x)
        self.grads[0].copy_(products[:, : self.outputs] if self.more else products)
        if self.bias is not None:
            self.grads[1].copy_(grad.sum(1))
        del self.x
        if not wanted:
            return grad
        back = torch.bmm(grad, self.weight)
        return back if len(shape) == 3 else back.unflatten(1, shape[1:-1])


class ReLU:
    """``max(x, 0)``."""

    def __init__(self, weights: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        """Return ``max(x, 0)``."""
        self.out = x.relu()
        return self.out

    def backward(self, grad: Tensor, wanted: bool = True) -> Tensor:
        """Return the gradient where the output is above zero."""
        return torch.ops.aten.threshold_backward(grad, self.out, 0)


class Flatten:
    """One vector per row of a batch."""

    def __init__(self, weights: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(n, rows, all)``."""
        self.shape = x.shape
        return x.flatten(2)

    def backward(self, grad: Tensor, wanted: bool = True) -> Tensor:
        """Return the gradient in the input's shape."""
        return grad.reshape(self.shape)


class ByAutograd:
    """A function of a stack's batch and parameters, differentiated by PyTorch."""

    def __init__(
        self,
        function: Callable[[Tensor, Sequence[Tensor]], Tensor],
        weights: Sequence[Tensor],
        grads: Sequence[Tensor],
    ) -> None:
        self.function, self.grads = function, grads
        self.weights = [weight.detach().requires_grad_() for weight in weights]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function, recording how."""
        with torch.enable_grad():
            self.x = x.detach().requires_grad_(x.is_floating_point())
            self.out = self.function(self.x, self.weights)
        return self.out.detach()

    def backward(self, grad: Tensor, wanted: bool = True) -> Tensor:
        """Write the parameters' gradients and return the input's."""
        found = torch.autograd.grad(self.out, [*self.weights, *([self.x] if wanted else [])], grad)
        for target, source in zip(self.grads, found, strict=False):
            target.copy_(source)
        del self.x, self.out
        return found[-1]


def _each(layer: nn.Module, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Apply a layer client by client."""
    names = [name for name, _ in layer.named_parameters()]
    parts = zip(*(weight.unbind() for weight in weights), strict=True) if weights else [()] * len(x)
    outputs = [
        functional_call(layer, dict(zip(names, own, strict=True)), (rows,))
        for own, rows in zip(parts, x.unbind(), strict=True)
    ]
    return torch.stack(outputs)


def _convolve(layer: nn.Conv2d, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Convolve each client's channels with its own kernels: one grouped convolution."""
    kernels, *bias = (weight.flatten(0, 1) for weight in weights)
    out = F.conv2d(
        _fold(x),
        kernels,
        bias[0] if bias else None,
        layer.stride,
        layer.padding,
        layer.dilation,
        groups=len(x),
    )
    return _unfold(out, len(x))


def _pool(layer: nn.Module, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    return _unfold(layer(_fold(x)), len(x))


def _fold(x: Tensor) -> Tensor:
    """Lay clients' channels side by side: (n, rows, C, H, W) to (rows, n C, H, W)."""
    return x.transpose(0, 1).flatten(1, 2)


def _unfold(x: Tensor, count: int) -> Tensor:
    return x.unflatten(1, (count, -1)).transpose(0, 1)
