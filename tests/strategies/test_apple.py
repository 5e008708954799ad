"""APPLE's server by hand."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord
from scripted import ScriptedGrid, hosted

from fedsuite.core.messages import read_instructions, write_arrays
from strategies.apple import Apple, AppleParams, loss_schedule
from strategies.base import Round, RunInfo


def server() -> Apple:
    strategy = Apple(RunInfo(num_clients=3, client_sizes={0: 1, 1: 1, 2: 2}, seed=0, num_rounds=20))
    strategy.model, strategy.training_round = np.full(2, 10, np.float32), 1
    return strategy


def received(clients: list[int], updates: list[list[float]]) -> Round:
    count = len(clients)
    return Round(
        number=1,
        model=np.full(2, 10, np.float32),
        clients=clients,
        arrays={"update": np.array(updates, np.float32)},
        buffers=np.zeros((count, 0), np.float32),
        num_examples=np.ones(count),
        num_steps=np.ones(count),
        lr=0.1,
    )


def test_the_schedule_by_hand() -> None:
    """Over a tenth of 20 rounds: 1, then 0.001^(1/2), then nothing; never nothing at first."""
    seen = [loss_schedule(t, 20, 0.1) for t in (1, 2, 3, 20)]
    assert seen == pytest.approx([1.0, 0.0316228, 0.0, 0.0], rel=1e-5)
    assert loss_schedule(1, 1, 0.1) == 1.0
    assert loss_schedule(1, 20, 0.0) == 0.0


def test_a_round_by_hand() -> None:
    """Shares 1/4, 1/4, 1/2. All cores are (10, 10) at first; then client 2's moves by (1, 2)."""
    strategy = server()
    first = strategy.broadcast()
    assert first["cores"].tolist() == [[10, 10]] * 3
    assert first["shares"].tolist() == [0.25, 0.25, 0.5]
    assert strategy.instruction(0).config == {"penalty": 0.1}
    assert np.array_equal(strategy.aggregate(received([2], [[1, 2]])), [10, 10])
    assert strategy.broadcast()["cores"].tolist() == [[10, 10], [10, 10], [11, 12]]


def test_relations_learn_ten_times_faster_than_the_released_rate() -> None:
    """The released 0.001 goes with momentum 0.9, whose steps add up to 1/(1 - 0.9) times that."""
    assert AppleParams().p_lr == pytest.approx(0.001 / (1 - 0.9))


def test_cores_survive() -> None:
    strategy, again = server(), server()
    strategy.aggregate(received([0, 2], [[1, 2], [3, 4]]))
    again.load_state({name: np.copy(v) for name, v in strategy.state().items()})
    assert np.array_equal(again.broadcast()["cores"], strategy.broadcast()["cores"])
    assert again.known.tolist() == [True, False, True]


def test_the_pull_fades_with_the_round_that_is_trained() -> None:
    """Over L = 2 rounds: 0.1, then 0.1 * 0.001^(1/2), then none."""
    sent = []
    for number in (1, 2, 3):
        strategy = hosted(server())
        arrays = write_arrays({"model": np.full(2, 10, np.float32)})
        grid = ScriptedGrid(lambda message: message)
        messages = strategy.configure_train(number, arrays, ConfigRecord(), grid)
        instructions = [read_instructions(message.content) for message in messages]
        sent += [one.config["penalty"] for many in instructions for one in many.values()]
    assert sent == pytest.approx([0.1] * 3 + [0.00316228] * 3 + [0.0] * 3, rel=1e-5)


def test_a_client_that_joins_has_the_initial_model_as_its_core() -> None:
    """Client 3 of two rows: shares 1/6, 1/6, 1/3, 1/3; the others' cores stay."""
    strategy = server()
    strategy.aggregate(received([2], [[1, 2]]))
    sizes = {0: 1, 1: 1, 2: 2, 3: 2}
    strategy.grow(RunInfo(num_clients=4, client_sizes=sizes, seed=0, num_rounds=20))
    sent = strategy.broadcast()
    assert sent["cores"].tolist() == [[10, 10], [10, 10], [11, 12], [10, 10]]
    np.testing.assert_allclose(sent["shares"], [1 / 6, 1 / 6, 1 / 3, 1 / 3], rtol=1e-6)
    assert strategy.known.tolist() == [False, False, True, False]
    assert sent["cores"].dtype == sent["shares"].dtype == np.float32
    strategy.aggregate(received([3], [[-1, 0]]))
    assert strategy.broadcast()["cores"][3].tolist() == [9, 10]
