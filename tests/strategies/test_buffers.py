"""Float buffers (batch-norm statistics) are averaged with the weights a method gave updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message
from scripted import ScriptedGrid, hosted, reply_with, run_info

from fedsuite import registry
from fedsuite.core.messages import Result, read_instructions, write_arrays, write_results
from strategies.avg import Avg
from strategies.base import BaseStrategy
from strategies.feda4 import FedA4
from strategies.fedadw import FedAdw
from strategies.fedavg import FedAvg
from strategies.fedbac import FedBac
from strategies.foolsgold import FoolsGold
from strategies.round import buffer_weights
from strategies.taco import Taco

SHAPES = {"body.weight": (1, 1), "fc.weight": (1, 1)}
PROBE = {1.0: (np.array([0.5, 0.5]), 0.5), 3.0: (np.array([1.0, 0.0]), 0.5)}


def strategy_of(cls: type[BaseStrategy], clients: int = 2, **params: Any) -> BaseStrategy:
    info = run_info(
        num_clients=clients,
        client_sizes=dict.fromkeys(range(clients), 1),
        num_rounds=5,
        shapes=SHAPES,
        probe=lambda model, buffers: PROBE[float(model[0])],
    )
    return hosted(cls(info, cls.Params(**params)))


def play(strategy: BaseStrategy, results: dict[int, Result], buffers: int = 1) -> None:
    """One round from a model of two zeros and buffers of zeros."""
    grid = ScriptedGrid(reply_with(results))
    vectors = {"model": np.zeros(2, np.float32), "buffers": np.zeros(buffers, np.float32)}
    messages = strategy.configure_train(1, write_arrays(vectors), ConfigRecord(), grid)
    strategy.aggregate_train(1, grid.send_and_receive(messages))


def two(first: float, second: float, **metrics: tuple[float, float]) -> dict[int, Result]:
    """Updates (first, 0) and (second, 0) of one and three samples, buffers 8 and 0."""
    sent = {}
    for client, (length, buffer, count) in enumerate([(first, 8, 1), (second, 0, 3)]):
        arrays = {"update": [length, 0], "trajectory": [length, 0], "buffers": [buffer]}
        own = {name: pair[client] for name, pair in metrics.items()}
        vectors = {name: np.array(values, np.float32) for name, values in arrays.items()}
        sent[client] = Result(client, vectors, {"num-examples": count, **own})
    return sent


def without_trajectory(results: dict[int, Result]) -> dict[int, Result]:
    for result in results.values():
        del result.arrays["trajectory"]
    return results


# Client 0's share of buffers 8 and 0 is the result over 8.
CASES: list[tuple[str, type[BaseStrategy], dict[str, Any], dict[int, Result], float]] = [
    ("by samples: 1/4", FedAvg, {}, two(1, 1), 2.0),
    ("uniform: 1/2", FedAvg, {"weighting": "uniform"}, two(1, 1), 4.0),
    ("plain mean: 1/2", Avg, {}, two(1, 1), 4.0),
    ("1/4 - 0.3 + 0 = -0.05, none, against 0.75 - 0.2", FedAdw, {"x": 0.5, "y": 0.0},
     two(1, 1, discrepancy=(0.6, 0.4)), 0.0),
    ("products 3/4 and 1/4", FedBac, {"score_clients": False},
     two(1, 1, consensus=(0.75, 0.25), reliability=(1, 1), accuracy=(0, 0)), 6.0),
    ("both agree with the mean: 1/2", FoolsGold, {"variant": "taco"}, two(1, 3), 4.0),
    ("against the mean: none", FoolsGold, {"variant": "taco"}, two(-1, 3), 0.0),
    ("one sure class, phi 1: none; the other all", FedA4, {"adaptation": False}, two(1, 3), 8.0),
    ("alpha 3/4 >= kappa at one strike: expelled, none", Taco,
     {"detector": "printed", "lambda_": 1}, two(1, 3, steps=(1, 1)), 0.0),
    ("alpha 1/2 each, over 1 and 3 steps: 3/4", Taco, {}, two(1, 1, steps=(1, 3)), 6.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "params", "results", "expected"),
    [case[1:] for case in CASES],
    ids=[f"{case[1].__name__}, {case[0]}" for case in CASES],
)
def test_two_clients_by_hand(
    cls: type[BaseStrategy], params: dict[str, Any], results: dict[int, Result], expected: float
) -> None:
    strategy = strategy_of(cls, **params)
    play(strategy, results if cls is FedA4 else without_trajectory(results))
    np.testing.assert_allclose(strategy.buffers, [expected], rtol=1e-6)


class Unweighted(BaseStrategy):
    """Moves nowhere and weighs nobody."""

    def aggregate(self, this_round: Any) -> Any:
        return this_round.model


def test_a_method_without_weights_averages_by_samples() -> None:
    strategy = strategy_of(Unweighted)
    play(strategy, without_trajectory(two(1, 1)))
    assert np.array_equal(strategy.buffers, [2.0])


@pytest.mark.parametrize("weights", [None, [0, 0], [-1, -2], [np.nan, 1], [np.inf, 1]])
def test_no_usable_weights_are_shares_by_samples(weights: list[float] | None) -> None:
    given = None if weights is None else np.array(weights, np.float64)
    assert buffer_weights(given, np.array([1, 3])).tolist() == [0.25, 0.75]


def test_weights_are_scaled_and_never_negative() -> None:
    """(-1, 1, 3): none, 1/4, 3/4."""
    assert buffer_weights(np.array([-1.0, 1, 3]), np.ones(3)).tolist() == [0, 0.25, 0.75]


BY_COLUMN = ("median", "trimmed-mean")  # weigh nobody, of statistics neither
SHARING = [
    name
    for name in registry.ALGORITHMS
    if registry.find(name).strategy.shares_model and name not in BY_COLUMN
]


@pytest.mark.parametrize("algo", SHARING)
def test_no_algorithm_forgets_it(algo: str) -> None:
    """Whatever the weights are, they are in the record and the buffers are their mean."""
    cls, draw, count = registry.find(algo).strategy, np.random.default_rng(0), 4
    info = run_info(
        num_clients=count,
        client_sizes=dict.fromkeys(range(count), 1),
        num_rounds=5,
        shapes=SHAPES,
        probe=lambda model, buffers: (
            np.array([0.3, 0.7]) if model[0] > 0 else np.ones(2) / 2,
            0.5,
        ),
    )
    strategy = hosted(cls(info))
    sent: dict[int, Result] = {}

    def answer(message: Message) -> Message:
        for client in read_instructions(message.content):
            sizes = strategy.lengths() | {"buffers": 3}
            vectors = {n: draw.standard_normal(s).astype(np.float32) for n, s in sizes.items()}
            metrics = dict.fromkeys(strategy.needs_metrics, float(draw.random()))
            metrics |= {"num-examples": 1.0 + client, "steps": 2.0}
            sent[client] = Result(client, vectors, metrics)
        mine = [sent[client] for client in read_instructions(message.content)]
        return Message(write_results(mine), reply_to=message)

    grid = ScriptedGrid(answer)
    vectors = {"model": np.zeros(2, np.float32), "buffers": np.zeros(3, np.float32)}
    messages = strategy.configure_train(1, write_arrays(vectors), ConfigRecord(), grid)
    strategy.aggregate_train(1, grid.send_and_receive(messages))
    rows = {row["client"]: row for row in strategy.round_record.rows}
    assert [rows[client]["status"] for client in range(count)] == ["ok"] * count
    weights = np.array([rows[client]["weight"] for client in range(count)])
    assert (weights >= 0).all()
    expected = sum(w * sent[c].arrays["buffers"] for c, w in enumerate(weights / weights.sum()))
    np.testing.assert_allclose(strategy.buffers, expected, rtol=1e-5, atol=1e-6)
