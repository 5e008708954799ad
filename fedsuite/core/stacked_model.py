"""One model for several clients, who train it together: their parameters are rows of a matrix.

Each row is a :class:`~fedsuite.core.flat_model.FlatModel` with a module of its own, so that a
client's code finds what it always finds. Only the gradient of a batch's cross-entropy is computed
for all rows that ask for it at once, by the layers of :mod:`fedsuite.core.stacked_layers`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedsuite.core.flat_model import FlatModel
from fedsuite.core.lockstep import Lockstep, Outcome
from fedsuite.core.stacked_layers import ALIGNMENT, LayerPlan, StackedLayer, plan_layers

MOST_ROWS = 64
MOST_BYTES = 64 * 2**20  # of parameters and gradients
MOST_ON_CPU = 2**18  # parameters; a larger model spends its time in memory, not in calls


class Batch(NamedTuple):
    """What a row asks the gradient for."""

    row: int
    x: Tensor
    y: Tensor


class StackedModel:
    """Parameters and gradients of several clients as two matrices; see :func:`stack_model`."""

    def __init__(
        self, module: nn.Module, plans: list[LayerPlan], device: torch.device | str = "cpu"
    ) -> None:
        self.module, self.plans, self.device = module, plans, torch.device(device)
        self.first = [bool(plan.parameters) for plan in plans].index(True)
        self.size = sum(parameter.numel() for parameter in module.parameters())
        width = aligned(self.size)
        self.capacity = min(max(MOST_BYTES // (8 * width), 1), MOST_ROWS)
        self.rows: list[StackRow] = []
        self.block = Block(self.capacity, width, self)
        self.scratch = Block(self.capacity, width, self)
        self.lockstep: Lockstep[Batch, Tensor] = Lockstep(self._answer)

    def row(self, index: int) -> StackRow:
        """Return the model of a row."""
        while len(self.rows) <= index:
            module = copy.deepcopy(self.rows[0].module) if self.rows else self.module
            self.rows.append(StackRow(self, len(self.rows), module))
        return self.rows[index]

    def run(self, jobs: Sequence[Callable[[], Any]]) -> list[Outcome]:
        """Run jobs that train a row each; their gradients are computed together."""
        return self.lockstep.run(jobs)

    def _answer(self, batches: list[Batch]) -> list[Tensor | Exception]:
        """Fill the rows' gradients, one call per shape of batch; return the losses."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for place, (_, x, y) in enumerate(batches):
            groups.setdefault((aligned(len(y)), *x.shape[1:]), []).append(place)
        losses: dict[int, Tensor | Exception] = {}
        for (length, *_), places in groups.items():
            found = self._careful_gradients([batches[place] for place in places], length)
            losses |= zip(places, found, strict=True)
        return [losses[place] for place in range(len(batches))]

    def _careful_gradients(self, batches: list[Batch], length: int) -> Sequence[Tensor | Exception]:
        """Compute a group; if that fails, one by one, to find those that fail."""
        try:
            return self._gradients(batches, length).unbind()
        except Exception as error:
            if len(batches) == 1:
                return [error]
        return [loss for one in batches for loss in self._careful_gradients([one], length)]

    @torch.no_grad()
    def _gradients(self, batches: list[Batch], length: int) -> Tensor:
        """Fill the gradients of some rows for batches of one shape; return their losses."""
        rows = [batch.row for batch in batches]
        x, y, shares = padded(batches, length)
        if len(rows) == 1 or rows == list(range(len(rows))):
            layers = self.block.layers(rows[0], len(rows))
            return self._backpropagate(layers, x, y, shares)
        index = torch.tensor(rows, device=self.device)
        part = slice(0, len(rows))
        torch.index_select(self.block.weights, 0, index, out=self.scratch.weights[part])
        losses = self._backpropagate(self.scratch.layers(0, len(rows)), x, y, shares)
        self.block.grads.index_copy_(0, index, self.scratch.grads[part])
        return losses

    def _backpropagate(
        self, layers: list[StackedLayer], x: Tensor, y: Tensor, shares: Tensor
    ) -> Tensor:
        """Let layers write the gradients of each client's weighted cross-entropy; return these."""
        for layer in layers:
            x = layer.forward(x)
        chosen = y.unsqueeze(2)
        losses = x.log_softmax(2).gather(2, chosen).squeeze(2).mul_(shares).sum(1).neg_()
        grad = x.softmax(2)
        grad.scatter_add_(2, chosen, grad.new_full((1, 1, 1), -1.0).expand_as(chosen))
        grad.mul_(shares.unsqueeze(2))
        for layer in reversed(layers[self.first + 1 :]):
            grad = layer.backward(grad)
        layers[self.first].backward(grad, wanted=False)
        return losses


class StackRow(FlatModel):
    """One client's model in a stack."""

    def __init__(self, stack: StackedModel, index: int, module: nn.Module) -> None:
        own = stack.block.weights[index, : stack.size], stack.block.grads[index, : stack.size]
        super().__init__(module, stack.device, own)
        self.stack, self.index = stack, index

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Set ``grads`` to the gradient of a batch's mean cross-entropy; return that."""
        return self.stack.lockstep.ask(Batch(self.index, x, y))


class Block:
    """Rows of parameters and of gradients, and layers that are views of some of them."""

    def __init__(self, rows: int, width: int, stack: StackedModel) -> None:
        self.stack = stack
        self.weights = torch.zeros(rows, width, device=stack.device)
        self.grads = torch.zeros(rows, width, device=stack.device)
        self._made: dict[tuple[int, int], list[StackedLayer]] = {}

    def layers(self, start: int, count: int) -> list[StackedLayer]:
        """Return the layers over ``count`` rows from ``start`` on."""
        if (start, count) not in self._made:
            self._made[start, count] = [
                plan.make(
                    self._views(self.weights, plan, start, count),
                    self._views(self.grads, plan, start, count),
                )
                for plan in self.stack.plans
            ]
        return self._made[start, count]

    def _views(self, matrix: Tensor, plan: LayerPlan, start: int, count: int) -> list[Tensor]:
        model, rows = self.stack.rows[0], matrix[start : start + count]
        return [
            rows[:, model.slices[name]].unflatten(1, model.shapes[name]) for name in plan.parameters
        ]


def stack_model(
    module: nn.Module, device: torch.device | str = "cpu", convolutions: bool | None = None
) -> StackedModel | None:
    """Return a stack of models like this one; None if it cannot be stacked, or does not gain."""
    on_gpu = torch.device(device).type == "cuda"
    if not on_gpu and sum(parameter.numel() for parameter in module.parameters()) > MOST_ON_CPU:
        return None
    convolutions = on_gpu if convolutions is None else convolutions
    plans = plan_layers(module, convolutions)
    return StackedModel(module, plans, device) if plans is not None else None


def aligned(count: int) -> int:
    """Return the next multiple of ``ALIGNMENT``."""
    return -(-count // ALIGNMENT) * ALIGNMENT


def padded(batches: Sequence[Batch], length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return batches as one, and each row's share in its client's loss: none for rows added."""
    _, first, labels = batches[0]
    counts = [len(batch.y) for batch in batches]
    if min(counts) == length:
        x, y = torch.stack([b.x for b in batches]), torch.stack([b.y for b in batches])
        return x, y, first.new_full((1, 1), 1.0 / length, dtype=torch.float32)
    x = first.new_zeros((len(batches), length, *first.shape[1:]))
    y = labels.new_zeros((len(batches), length))
    shares = first.new_zeros((len(batches), length), dtype=torch.float32)
    for place, (count, batch) in enumerate(zip(counts, batches, strict=True)):
        x[place, :count], y[place, :count] = batch.x, batch.y
        shares[place, :count] = 1.0 / count
    return x, y, shares
