"""Our optimisers on flat vectors agree with PyTorch's on tensors."""

from __future__ import annotations

import pytest
import torch

from clients.optim import SGD, Adam, make_optimizer


def test_sgd_with_momentum_and_decay_by_hand() -> None:
    """w=1, g=2, wd=0.5, m=0.5, lr=0.1. First: d=2.5, w=0.75. Second: g=2, d=2+0.375=2.375,
    velocity=0.5*2.5+2.375=3.625, w=0.75-0.3625=0.3875.
    """
    w, g = torch.tensor([1.0]), torch.tensor([2.0])
    sgd = SGD(w, g, momentum=0.5, weight_decay=0.5)
    sgd.step(0.1)
    assert w.item() == pytest.approx(0.75)
    g.fill_(2.0)
    sgd.step(0.1)
    assert w.item() == pytest.approx(0.3875)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sgd", {}),
        ("sgd", {"momentum": 0.9}),
        ("sgd", {"momentum": 0.9, "weight_decay": 0.1}),
        ("adam", {}),
        ("adam", {"weight_decay": 0.1}),
    ],
)
def test_ten_steps_agree_with_pytorch(name: str, options: dict[str, float]) -> None:
    torch.manual_seed(0)
    start, target = torch.randn(20), torch.randn(20)
    theirs = start.clone().requires_grad_()
    reference = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name]([theirs], 0.05, **options)
    ours, grads = start.clone(), torch.zeros(20)
    momentum, decay = options.get("momentum", 0.0), options.get("weight_decay", 0.0)
    optimizer = make_optimizer(name, ours, grads, momentum, decay)
    for _ in range(10):
        reference.zero_grad()
        (theirs - target).square().sum().backward()
        reference.step()
        grads.copy_(2 * (ours - target))
        optimizer.step(0.05)
    torch.testing.assert_close(ours, theirs.detach())


def test_adam_by_hand() -> None:
    """Gradients 2 and 1. m: 0.2, 0.28; v: 0.004, 0.004996; over 0.1, 0.19 and 0.001, 0.001999.

    First step: 2 / (2 + 1e-8), so w = 1 - 0.1. Second: (0.28 / 0.19) / sqrt(0.004996 / 0.001999).
    """
    w, g = torch.tensor([1.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    adam = Adam(w, g)
    adam.step(0.1)
    assert w.item() == pytest.approx(1 - 0.1 * 2 / (2 + 1e-8), abs=1e-12)
    g.fill_(1.0)
    adam.step(0.1)
    second = (0.28 / 0.19) / ((0.004996 / 0.001999) ** 0.5 + 1e-8)
    assert w.item() == pytest.approx(0.9 - 0.1 * second, abs=1e-8)


def test_adam_divides_by_no_zero() -> None:
    """A gradient of 1e-8 is as large as epsilon: the first step is half the rate."""
    w, g = torch.zeros(2, dtype=torch.float64), torch.tensor([1e-8, 0.0], dtype=torch.float64)
    Adam(w, g).step(1.0)
    assert w.tolist() == pytest.approx([-0.5, 0.0])


def test_decay_is_added_to_the_gradient_before_adams_moments() -> None:
    """With w = 4, g = 0, decay 1/2: the gradient is 2, so the first step is the rate."""
    w, g = torch.tensor([4.0]), torch.tensor([0.0])
    Adam(w, g, weight_decay=0.5).step(0.25)
    assert (w.item(), g.item()) == (pytest.approx(3.75), 2.0)


def test_without_momentum_there_is_no_velocity_and_the_gradient_stays() -> None:
    w, g = torch.tensor([1.0]), torch.tensor([2.0])
    sgd = SGD(w, g)
    sgd.step(0.5)
    assert (w.item(), g.item(), sgd.velocity) == (0.0, 2.0, None)


def test_the_velocity_is_a_copy_of_the_first_gradient() -> None:
    w, g = torch.tensor([0.0]), torch.tensor([1.0])
    sgd = SGD(w, g, momentum=0.5)
    sgd.step(1.0)
    g.fill_(4.0)
    sgd.step(1.0)  # velocity 0.5 * 1 + 4
    assert w.item() == -1.0 - 4.5


def test_an_optimiser_is_made_by_name() -> None:
    w, g = torch.zeros(1), torch.zeros(1)
    adam, sgd = make_optimizer("adam", w, g, 0.9, 0.1), make_optimizer("sgd", w, g, 0.9, 0.1)
    assert isinstance(adam, Adam) and adam.weight_decay == 0.1
    assert isinstance(sgd, SGD) and (sgd.momentum, sgd.weight_decay) == (0.9, 0.1)
