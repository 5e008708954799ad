"""A PyTorch module as flat vectors.

:class:`FlatModel` turns a module into three vectors that alias its tensors: ``weights`` (all
parameters), ``grads`` (their gradients) and ``buffers`` (float buffers such as batch-norm
statistics). An optimiser step or a correction is then one in-place operation on a vector, and a
client's model travels as one array. Integer buffers stay where they are.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fedsuite.core.vector import Vector, slices

ENGINE = getattr(torch.autograd.Variable, "_execution_engine", None)


class FlatModel:
    """A module whose parameters, gradients and float buffers are views into flat tensors."""

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device)
        self.device = torch.device(device)
        named = dict(self.module.named_parameters())
        self.slices = slices({name: p.numel() for name, p in named.items()})
        self.shapes = {name: tuple(p.shape) for name, p in named.items()}
        self.weights = _flatten([p.detach() for p in named.values()], self.device)
        self.grads = torch.zeros_like(self.weights)
        self.one = torch.ones((), device=self.device)
        for name, parameter in named.items():
            parameter.data = self.weights[self.slices[name]].view(self.shapes[name])
            parameter.grad = self.grads[self.slices[name]].view(self.shapes[name])
        floats = {n: b for n, b in self.module.named_buffers() if b.is_floating_point()}
        self.buffer_slices = slices({name: b.numel() for name, b in floats.items()})
        self.buffers = _flatten(list(floats.values()), self.device)
        for name, buffer in floats.items():
            buffer.data = self.buffers[self.buffer_slices[name]].view(buffer.shape)
        self._first = {
            name: to_numpy(b) for name, b in self.module.named_buffers() if name not in floats
        }

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.weights.numel()

    def backward(self, loss: torch.Tensor) -> None:
        """Set ``grads`` to the gradient of a loss.

        This is ``loss.backward()`` without the checks before it, which cost a small model a tenth
        of its step.
        """
        self.grads.zero_()
        if ENGINE is None:
            loss.backward(self.one)
        else:
            ENGINE.run_backward((loss,), (self.one,), False, False, (), True, True)

    def seed(self, seed: int) -> None:
        """Seed the generators that the model draws from, to the numbers of ``torch.manual_seed``.

        That function also notes the stack for each kind of accelerator that is absent, which takes
        a client of a small model as long as several steps.
        """
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)

    def load(self, weights: Vector, buffers: Vector | None = None) -> None:
        """Copy vectors into the model, in place."""
        copy_into(self.weights, weights)
        if buffers is not None and self.buffers.numel():
            copy_into(self.buffers, buffers)

    def vector(self) -> Vector:
        """Return a copy of the parameters as one numpy vector."""
        return to_numpy(self.weights)

    def buffer_vector(self) -> Vector:
        """Return a copy of the float buffers as one numpy vector (empty if there are none)."""
        return to_numpy(self.buffers)

    def named_tensors(self) -> dict[str, np.ndarray]:
        """Return copies of parameters and buffers under PyTorch's names.

        Integer buffers, such as batch-norm's count of batches, are as they were at first: they do
        not travel, so they would tell which clients shared this workspace.
        """
        tensors = {name: to_numpy(t) for name, t in self.module.state_dict().items()}
        return {name: self._first.get(name, array) for name, array in tensors.items()}


def best_device() -> str:
    """Return the GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def gpu_count() -> int:
    """Return how many GPUs PyTorch sees."""
    return torch.cuda.device_count() if best_device() == "cuda" else 0


def copy_into(target: torch.Tensor, source: Vector) -> None:
    """Copy a numpy vector into a tensor of the same length."""
    if source.shape != tuple(target.shape):
        raise ValueError(f"expected a vector of shape {tuple(target.shape)}, got {source.shape}")
    with torch.no_grad():
        target.copy_(torch.from_numpy(np.require(source, requirements=["W"])))


def to_numpy(tensor: torch.Tensor) -> Vector:
    """Return a numpy copy that shares no memory with the tensor."""
    return tensor.detach().to("cpu", copy=True).numpy()


def _flatten(tensors: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    if not tensors:
        return torch.zeros(0, device=device)
    return torch.cat([t.detach().reshape(-1).float() for t in tensors]).to(device)
