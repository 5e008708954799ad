"""Our optimisers on flat vectors agree with PyTorch's on tensors."""

from __future__ import annotations

import pytest
import torch

from clients.optim import SGD, make_optimizer


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
