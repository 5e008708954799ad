"""Training and testing with a DataLoader made for every call."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.job import Job, Rows


def train(model: nn.Module, rows: Rows, job: Job, lr: float) -> float:
    """Train for the local epochs, or exactly the local steps; return the mean loss."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    total, steps = 0.0, 0
    for x, y in batches(rows, job):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total, steps = total + loss.item(), steps + 1
    return total / max(steps, 1)


def batches(rows: Rows, job: Job) -> Iterator[Rows]:
    """Go through the loader for the local epochs, or until there were enough steps."""
    size = min(job.batch_size, len(rows[1]))
    stepwise = job.local_steps > 0
    loader = DataLoader(TensorDataset(*rows), batch_size=size, shuffle=True, drop_last=stepwise)
    if not stepwise:
        for _ in range(job.local_epochs):
            yield from loader
        return
    left = job.local_steps
    while left:
        for batch in islice(loader, left):
            left -= 1
            yield batch


def test(model: nn.Module, rows: Rows) -> tuple[float, float]:
    """Return the share of rows the model gets right, and its mean loss."""
    criterion = nn.CrossEntropyLoss(reduction="sum")
    model.eval()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for x, y in DataLoader(TensorDataset(*rows), batch_size=128):
            logits = model(x)
            correct += int((logits.argmax(1) == y).sum())
            loss += criterion(logits, y).item()
    return correct / len(rows[1]), loss / len(rows[1])
