"""A stack's gradients: by hand, as the module's own, and the same bits in any company."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedsuite.core import stacked_model
from fedsuite.core.stacked_model import Batch, StackedModel, stack_model
from tasks.models import MODELS, build_model
from tasks.shapes import DataShape

TABLE = DataShape("tabular", (13,), 3)
DIGITS = DataShape("image", (1, 8, 8), 10)
TEXTS = DataShape("tokens", (9,), 4, vocabulary=50)
CHARACTERS = DataShape("chars", (5,), 20, vocabulary=20)
ON_CPU = [("mlp", TABLE), ("mlp", DIGITS), ("fasttext", TEXTS)]
WITH_CONVOLUTIONS = [(name, DIGITS) for name in ("lenet", "cnn2", "cnn3", "cnn4", "cnn6")]
ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.SELU, nn.Softplus)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def draw(shape: DataShape, lengths: Sequence[int]) -> list[Batch]:
    """Batches of some lengths, for rows 0, 1, ..."""
    generator = torch.Generator().manual_seed(1)
    batches = []
    for row, length in enumerate(lengths):
        size = (length, *shape.input_shape)
        x = torch.randn(size, generator=generator)
        if shape.vocabulary:
            x = torch.randint(shape.vocabulary, size, generator=generator)
        y = torch.randint(shape.num_classes, (length,), generator=generator)
        batches.append(Batch(row, x, y))
    return batches


def stack_of(module: nn.Module, count: int, **how: Any) -> StackedModel:
    """A stack whose rows differ."""
    stack, generator = stack_model(module, **how), torch.Generator().manual_seed(2)
    assert stack is not None
    for number in range(count):
        row = stack.row(number)
        row.weights.copy_(stack.row(0).weights)
        row.weights.add_(torch.randn(stack.size, generator=generator), alpha=0.1)
    return stack


def answers(stack: StackedModel, batches: list[Batch]) -> list[tuple[bytes, bytes]]:
    """Loss and gradient of each batch, all asked for at once."""
    stack.block.grads.fill_(torch.nan)
    found = stack.run([partial(ask, stack, batch) for batch in batches])
    assert not [outcome.error for outcome in found if outcome.error]
    return [outcome.value for outcome in found]


def ask(stack: StackedModel, batch: Batch) -> tuple[bytes, bytes]:
    row = stack.row(batch.row)
    loss = row.gradients(batch.x, batch.y)
    return loss.numpy().tobytes(), row.grads.numpy().tobytes()


def test_one_step_of_two_linear_models_by_hand() -> None:
    """Weights zero: p = (1/2, 1/2), the gradient of logit c is p_c - [y = c].

    Row 0 has x = (1, 2) of class 0. Row 1 has x = (4, 0) of class 1 and x = (0, 8) of class 0; the
    mean is W = (1, -2), (-1, 2), and b = 0. All losses are ln 2.
    """
    stack = stack_of(nn.Linear(2, 2), 2)
    stack.block.weights.zero_()
    batches = [
        Batch(0, torch.tensor([[1.0, 2.0]]), torch.tensor([0])),
        Batch(1, torch.tensor([[4.0, 0.0], [0.0, 8.0]]), torch.tensor([1, 0])),
    ]
    outcomes = stack.run([partial(stack.row(b.row).gradients, b.x, b.y) for b in batches])
    assert stack.row(0).grads.tolist() == [-0.5, -1, 0.5, 1, -0.5, 0.5]
    assert stack.row(1).grads.tolist() == [1, -2, -1, 2, 0, 0]
    losses = [outcome.value.item() for outcome in outcomes]
    assert losses == [pytest.approx(math.log(2))] * 2


def check_against_module(stack: StackedModel, batches: list[Batch]) -> None:
    for batch, outcome in zip(
        batches,
        stack.run([partial(stack.row(b.row).gradients, b.x, b.y) for b in batches]),
        strict=True,
    ):
        row = stack.row(batch.row)
        together = row.grads.clone()
        loss = F.cross_entropy(row.module(batch.x), batch.y)
        row.backward(loss)
        assert torch.allclose(outcome.value, loss, rtol=1e-5)
        assert torch.allclose(together, row.grads, rtol=1e-4, atol=1e-6)
        assert together.abs().max() > 1e-3


@pytest.mark.parametrize(("name", "shape"), ON_CPU + WITH_CONVOLUTIONS)
def test_gradients_are_the_modules(name: str, shape: DataShape) -> None:
    module = build_model(name, shape, 0)
    stack = stack_of(module, 3, convolutions=(name, shape) in WITH_CONVOLUTIONS)
    check_against_module(stack, draw(shape, [16, 16, 5]))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_nested_sequences_are_stacked(activation: type[nn.Module]) -> None:
    inner = nn.Sequential(nn.Linear(13, 7, bias=False), activation(), nn.Identity())
    stack = stack_of(nn.Sequential(inner, nn.Linear(7, 3)), 3)
    check_against_module(stack, draw(TABLE, [16, 3, 16]))


def test_an_embedding_without_a_mean_and_a_linear_layer_per_token() -> None:
    layers = nn.Embedding(50, 6), nn.Linear(6, 5), nn.ReLU(), nn.Flatten(), nn.Linear(45, 4)
    check_against_module(stack_of(nn.Sequential(*layers), 3), draw(TEXTS, [16, 16, 7]))


@pytest.mark.parametrize(("name", "shape"), ON_CPU)
@pytest.mark.parametrize("length", [1, 5, 16, 17, 64])
def test_bits_do_not_depend_on_the_company(name: str, shape: DataShape, length: int) -> None:
    """In stacks of 50, 7 and 1, of neighbours and of others, with shorter batches among them."""
    stack = stack_of(build_model(name, shape, 0), 50)
    batches = draw(shape, [length if row % 3 else max(length - 1, 1) for row in range(50)])
    everybody = answers(stack, batches)
    for chosen in (range(7), range(20, 27), range(3, 50, 7), *([row] for row in range(0, 50, 9))):
        assert answers(stack, [batches[row] for row in chosen]) == [everybody[r] for r in chosen]


@pytest.mark.parametrize("classes", [2, 3, 5, 10, 62])
@pytest.mark.parametrize("inputs", [2, 3, 7, 105])
def test_bits_do_not_depend_on_the_company_whatever_the_widths(inputs: int, classes: int) -> None:
    shape = DataShape("tabular", (inputs,), classes)
    module = nn.Sequential(nn.Linear(inputs, 9), nn.Tanh(), nn.Linear(9, classes))
    stack, batches = stack_of(module, 8), draw(shape, [20] * 8)
    alone = [answers(stack, [batch])[0] for batch in batches]
    assert answers(stack, batches) == alone


def test_rows_that_are_not_neighbours_are_computed_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One call for the three, none of which fails and is repeated alone."""
    calls, compute = [], StackedModel._gradients

    def counted(stack: StackedModel, batches: list[Batch], length: int) -> torch.Tensor:
        calls.append([batch.row for batch in batches])
        return compute(stack, batches, length)

    monkeypatch.setattr(StackedModel, "_gradients", counted)
    stack, batches = stack_of(build_model("mlp", TABLE, 0), 5), draw(TABLE, [16] * 5)
    answers(stack, [batches[row] for row in (0, 2, 4)])
    assert calls == [[0, 2, 4]]


def test_a_group_that_fails_is_computed_one_by_one() -> None:
    """Row 1 has a label that the model does not know."""
    stack = stack_of(build_model("mlp", TABLE, 0), 3)
    batches = draw(TABLE, [16, 16, 16])
    alone = [answers(stack, [batches[row]])[0] for row in (0, 2)]
    batches[1].y[3] = 99
    outcomes = stack.run([partial(ask, stack, b) for b in batches])
    assert [outcomes[0].value, outcomes[2].value] == alone
    assert "index 99" in str(outcomes[1].error) or "out of bounds" in str(outcomes[1].error)


def test_each_row_has_a_module_of_its_own() -> None:
    stack = stack_of(nn.Linear(2, 2), 2)
    stack.row(1).weights.fill_(3.0)
    assert (next(stack.row(1).module.parameters()) == 3).all()
    assert not (next(stack.row(0).module.parameters()) == 3).any()
    stack.row(1).module.eval()
    assert stack.row(0).module.training


class Odd(nn.Module):
    """A module that does not say which sequence it is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * 2


def tied() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, layer)


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[0].weight.requires_grad_(False)
    return module


def hooked() -> nn.Module:
    module = nn.Linear(2, 2)
    module.register_forward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(2, 2), nn.Dropout()),
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
        nn.Sequential(nn.Linear(2, 2), nn.Softmax(dim=1)),
        nn.Sequential(nn.Flatten(0), nn.Linear(2, 2)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)),
        nn.Sequential(nn.Linear(1, 2)),
        nn.Sequential(nn.Embedding(5, 4, max_norm=1.0), nn.Flatten(), nn.Linear(8, 2)),
        nn.Sequential(nn.Linear(2, 2).double()),
        nn.ReLU(),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
        Odd(),
        tied(),
        frozen(),
        hooked(),
    ],
    ids=lambda module: str(module).replace("\n", "")[:50],
)
def test_what_cannot_be_stacked_is_not(module: nn.Module) -> None:
    assert stack_model(module) is None


def test_which_models_are_stacked_on_a_cpu() -> None:
    """Convolutions are not, an LSTM and batch norm nowhere."""
    shapes = {"tabular": TABLE, "image": DIGITS, "tokens": TEXTS, "chars": CHARACTERS}
    stacked = [
        name
        for name, spec in MODELS.items()
        if stack_model(build_model(name, shapes[spec.kinds[0]], 0)) is not None
    ]
    assert stacked == ["mlp", "fasttext"]
    for name, anywhere in (("lenet", True), ("resnet18", False)):
        found = stack_model(build_model(name, DIGITS, 0), convolutions=True)
        assert (found is not None) == anywhere


def test_a_model_too_large_to_gain_is_not_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear layer of 2 to 2 has 6 parameters."""
    monkeypatch.setattr(stacked_model, "MOST_ON_CPU", 6)
    assert stack_model(nn.Linear(2, 2)) is not None
    monkeypatch.setattr(stacked_model, "MOST_ON_CPU", 5)
    assert stack_model(nn.Linear(2, 2)) is None


def test_a_stack_is_bounded_by_clients_and_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear layer of 2 to 2 has 6 parameters, 16 with its padding: 128 bytes with gradients."""

    def capacity() -> int:
        stack = stack_model(nn.Linear(2, 2))
        assert stack is not None
        return stack.capacity

    assert capacity() == stacked_model.MOST_ROWS
    monkeypatch.setattr(stacked_model, "MOST_BYTES", 3 * 128 + 5)
    assert capacity() == 3
    monkeypatch.setattr(stacked_model, "MOST_BYTES", 5)
    assert capacity() == 1
