"""FedACG's momentum by hand; what is sent, scored and saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from bowl import fit, place
from flwr.app import Message
from heard import instructions_in
from hypothesis import given
from hypothesis import strategies as st
from rounds import TWO_STEPS, meet, play, strategy_of
from safetensors.numpy import load_file

from clients.fedacg import FedAcgClient
from fedsuite.core.vector import Vector
from fedsuite.engines.inline import InlineGrid
from strategies.fedacg import FedAcg, FedAcgParams, ahead


def test_ahead_by_hand() -> None:
    """(1, 2) + 0.5 (4, -4) = (3, 0); without momentum the point itself."""
    vectors = np.array([[1, 2], [4, -4]], np.float32)
    assert np.array_equal(ahead(vectors[0], vectors[1], lam=0.5), [3, 0])
    assert np.array_equal(ahead(vectors[0], np.zeros(0, np.float32), 0.5), [1, 2])


def test_the_client_is_held_near_the_received_point(tmp_path: Path) -> None:
    """Bottom (1, 3), from (1, 0), beta 1/2, lr 1/2: g = (0, -3), to (1, 3/2);
    g = (0, -3/2) + (0, 3/2)/2 = (0, -3/4), to (1, 15/8).
    """
    (update,), _, _ = fit(
        FedAcgClient, place(tmp_path, TWO_STEPS), [1, 0], params=FedAcgParams(beta=0.5)
    )
    assert np.array_equal(update, [0, 1.875])


def test_a_round_on_two_bowls_by_hand(tmp_path: Path) -> None:
    """With w = 0, m = (2, 0), lam 1/2, beta 1/2 all start at (1, 0). Client 0 goes (0, 15/8).

    Client 1, bottom (-1, 1): g = (2, -1), to (0, 1/2); g = (1, -1/2) + (-1, 1/2)/2, to
    (-1/4, 5/8): update (-5/4, 5/8). Mean (-5/8, 5/4); m = (1, 0) + that = (3/8, 5/4) = w, which
    is the mean of the clients' models. Then clients start from (9/16, 15/8).
    """
    strategy = strategy_of(FedAcg, lam=0.5, beta=0.5)
    strategy.momentum = np.array([2, 0], np.float32)
    sent = meet(strategy, FedAcgClient, tmp_path)
    assert np.array_equal(sent["update"], [[0, 1.875], [-1.25, 0.625]])
    assert np.array_equal(strategy.momentum, [0.375, 1.25])
    assert np.array_equal(strategy.model, [0.375, 1.25])
    assert np.array_equal(strategy.training_start(), [0.5625, 1.875])
    assert np.array_equal(strategy.result(), strategy.model)


def test_momentum_adds_up_and_survives() -> None:
    """With lam 1/2, mean updates (2, 0), (0, 2): m = (2, 0), (1, 2); w = (2, 0), (3, 2)."""
    strategy, again = strategy_of(FedAcg, lam=0.5), strategy_of(FedAcg, lam=0.5)
    play(strategy, [[4, 0], [0, 0]])
    again.load_state(strategy.state())
    again.model = strategy.model
    for one in (strategy, again):
        play(one, [[0, 4], [0, 0]])
        assert np.array_equal(one.momentum, [1, 2])
        assert np.array_equal(one.model, [3, 2])


def test_the_servers_rate_is_part_of_the_momentum() -> None:
    strategy = strategy_of(FedAcg, lam=0.5, info={"server_lr": 0.5})
    play(strategy, [[4, 0], [0, 0]])
    assert np.array_equal(strategy.model, [1, 0])
    assert np.array_equal(strategy.training_start(), [1.5, 0])


class ListeningGrid(InlineGrid):
    """Keeps the models that were sent, by kind of message."""

    def __init__(self) -> None:
        super().__init__(1)
        self.models: dict[str, list[Vector]] = {}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        messages = list(messages)
        for message in messages:
            instruction = next(iter(instructions_in(message.content).values()), None)
            kept = self.models.setdefault(message.metadata.message_type, [])
            if instruction is not None and "model" in instruction.arrays:
                kept.append(instruction.arrays["model"])
        return super().send_and_receive(messages, timeout=timeout)


def test_training_starts_ahead_but_the_model_is_scored_and_saved(
    experiment: Callable[..., Path],
) -> None:
    grid = ListeningGrid()
    folder = experiment("fedacg", grid, personal_eval="on", client_test_fraction=0.25)
    trained, scored = grid.models["train"], grid.models["evaluate"]
    momentum = load_file(folder / "checkpoint" / "latest.safetensors")["strategy.momentum"]
    saved = load_file(folder / "model.safetensors")
    assert len(trained) == len(scored) == 2
    np.testing.assert_allclose(
        trained[1], scored[0] + np.float32(0.85) * (scored[0] - trained[0]), atol=1e-5
    )
    assert np.array_equal(scored[1], scored[0] + momentum)
    assert sum(tensor.sum(dtype=np.float64) for tensor in saved.values()) == pytest.approx(
        scored[1].sum(dtype=np.float64), abs=1e-6
    )


@pytest.mark.parametrize("scale", [0.0, 1e-18, 1e18])
@given(numbers=st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=2))
def test_finite_in_finite_out(scale: float, numbers: list[float]) -> None:
    vector = np.array(numbers, np.float32) * np.float32(scale)
    assert np.isfinite(ahead(vector, -vector, 0.85)).all()
