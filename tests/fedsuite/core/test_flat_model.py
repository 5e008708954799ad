"""A module and its flat vectors are the same memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedsuite.core import flat_model
from fedsuite.core.flat_model import FlatModel


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))


def test_parameters_gradients_and_float_buffers_are_views() -> None:
    model = FlatModel(net())
    assert model.size == 2 * 9 + 2 + 2 + 2 + 8 * 3 + 3
    assert model.buffers.numel() == 2 + 2
    with torch.no_grad():
        model.weights.fill_(0.5)
        model.buffers.fill_(0.25)
    assert all((p == 0.5).all() for p in model.module.parameters())
    assert (model.module.get_buffer("1.running_var") == 0.25).all()


def test_backward_fills_the_flat_gradient_as_autograd_does() -> None:
    x = torch.randn(4, 1, 4, 4)
    reference = net()
    reference(x).square().sum().backward()
    model = FlatModel(net())
    model.module(x).square().sum().backward()
    grads = [p.grad for p in reference.parameters() if p.grad is not None]
    expected = torch.cat([grad.reshape(-1) for grad in grads])
    assert torch.equal(model.grads, expected)
    model.grads.zero_()
    model.module(x).square().sum().backward()
    assert model.grads.abs().sum() > 0


def test_batch_norm_updates_the_buffer_vector() -> None:
    model = FlatModel(net())
    before = model.buffer_vector()
    model.module.train()
    model.module(torch.randn(4, 1, 4, 4))
    assert not np.array_equal(before, model.buffer_vector())


def test_slices_name_every_parameter_once_and_in_order() -> None:
    model = FlatModel(net())
    ends = [s.stop for s in model.slices.values()]
    starts = [s.start for s in model.slices.values()]
    assert starts == [0, *ends[:-1]] and ends[-1] == model.size


def test_load_copies_and_refuses_a_wrong_length() -> None:
    model = FlatModel(net())
    vector = np.arange(model.size, dtype=np.float32)
    model.load(vector)
    vector[0] = 99.0
    assert model.vector()[0] == 0.0
    with pytest.raises(ValueError, match="expected a vector"):
        model.load(vector[:-1])


@pytest.mark.parametrize("engine", [True, False], ids=["engine", "public"])
def test_backward_is_pytorchs_own(engine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not engine:
        monkeypatch.setattr(flat_model, "ENGINE", None)
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    loss = nn.functional.cross_entropy(module(x), y)
    plain = torch.autograd.grad(loss, tuple(module.parameters()))
    model = FlatModel(module)
    for _ in range(2):
        model.backward(nn.functional.cross_entropy(module(x), y))
        assert torch.equal(model.grads, torch.cat([part.reshape(-1) for part in plain]))


def test_integer_buffers_stay_and_float_ones_lie_in_order() -> None:
    """A batch norm has running mean 0, variance 1 and a counter; the counter is not sent."""
    model = FlatModel(net())
    assert model.buffer_vector().tolist() == [0, 0, 1, 1]
    assert list(model.buffer_slices) == ["1.running_mean", "1.running_var"]
    model.load(model.vector(), np.array([5, 6, 7, 8], np.float32))
    assert model.module.get_buffer("1.running_mean").tolist() == [5, 6]
    assert model.module.get_buffer("1.running_var").tolist() == [7, 8]
    model.load(model.vector())
    assert model.buffer_vector().tolist() == [5, 6, 7, 8]


def test_buffers_of_the_wrong_length_are_refused_where_there_are_any() -> None:
    with pytest.raises(ValueError, match="expected a vector"):
        FlatModel(net()).load(FlatModel(net()).vector(), np.zeros(3, np.float32))
    plain = FlatModel(nn.Linear(1, 1))
    plain.load(np.array([2, 3], np.float32), np.zeros(7, np.float32))
    assert plain.vector().tolist() == [2, 3] and plain.buffer_vector().shape == (0,)


def test_vectors_are_copies_and_backward_starts_from_nothing() -> None:
    model = FlatModel(nn.Linear(1, 1))
    model.load(np.array([2, 3], np.float32))
    before = model.vector()
    model.weights.zero_()
    assert before.tolist() == [2, 3]
    model.grads.fill_(100.0)
    model.backward(model.module(torch.tensor([[5.0]])).sum())
    assert model.grads.tolist() == [5, 1]


def test_a_read_only_vector_is_loaded_without_being_changed() -> None:
    model, vector = FlatModel(nn.Linear(1, 1)), np.array([2, 3], np.float32)
    vector.setflags(write=False)
    model.load(vector)
    model.weights.zero_()
    assert vector.tolist() == [2, 3]


def test_a_seeded_model_draws_the_numbers_of_manual_seed_and_notes_no_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(7)
    expected = torch.rand(5)
    monkeypatch.setattr("traceback.format_stack", lambda *_: pytest.fail("the stack was noted"))
    FlatModel(nn.Linear(2, 2)).seed(7)
    assert torch.equal(torch.rand(5), expected)
