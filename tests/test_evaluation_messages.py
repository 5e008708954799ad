"""A client that scores itself is sent what it scores itself with, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from algorithms import OWN_CLIENTS
from flwr.app import Message
from heard import instructions_in

from clients.base import Received
from fedsuite import registry
from fedsuite.core.vector import Vector
from fedsuite.engines.inline import InlineGrid

pytestmark = pytest.mark.slow

Experiment = Callable[..., Path]
# What a client predicts with beside a model, or in place of one.
BESIDE = {name: {"prototypes", "known"} for name in ("fedtgp", "fedproto")}
BESIDE |= {name: {"part"} for name in ("fedper", "fedrep", "fedbn")}


class ListeningGrid(InlineGrid):
    """Notes the names of the vectors that travel to clients that score themselves."""

    def __init__(self) -> None:
        super().__init__(1)
        self.scoring = False
        self.sent: list[set[str]] = []

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        messages = list(messages)
        self.scoring = messages[0].metadata.message_type == "evaluate"
        if self.scoring:
            contents = [instructions_in(message.content) for message in messages]
            self.sent += [set(one.arrays) for content in contents for one in content.values()]
        return super().send_and_receive(messages, timeout=timeout)


@pytest.mark.usefixtures("small_resnet")
@pytest.mark.parametrize("algo", OWN_CLIENTS)
def test_what_travels_to_score_is_what_scores(
    experiment: Experiment, algo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of four clients train in each of two rounds, so that some score without a state.

    A model is sent with its batch-norm statistics, where there is one; then only prototypes are.
    """
    grid, read = ListeningGrid(), set()
    plainly = Received.__getitem__

    def noted(received: Received, name: str) -> Vector:
        if grid.scoring:
            read.add(name)
        return plainly(received, name)

    monkeypatch.setattr(Received, "__getitem__", noted)
    settings = {"fraction_train": 0.5, "personal_eval": "on", "model": "resnet18"}
    experiment(algo, grid, **settings)
    shared = {"model"} if registry.find(algo).strategy.shares_model else set()
    assert read == shared | BESIDE.get(algo, set())
    assert len(grid.sent) >= 8
    assert all(names - {"buffers"} == read for names in grid.sent)
    assert all(("buffers" in names) == bool(shared) for names in grid.sent)
