"""FedFomo's server by hand: whose models it sends, and what it remembers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.base import Round, RunInfo
from strategies.fedfomo import FedFomo, FedFomoParams, choose_peers, exploration


def draw(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def server(count: int = 5, seed: int = 0, **params: Any) -> FedFomo:
    sizes = dict.fromkeys(range(count), 1)
    info = RunInfo(num_clients=count, client_sizes=sizes, seed=seed)
    strategy = FedFomo(info, FedFomoParams(**params))
    strategy.model, strategy.buffers = np.full(2, 10, np.float32), np.ones(1, np.float32)
    strategy.training_round = 2
    return strategy


def received(clients: list[int], updates: np.ndarray, gains: np.ndarray) -> Round:
    count = len(clients)
    return Round(
        number=1,
        model=np.full(2, 10, np.float32),
        clients=clients,
        arrays={
            "update": updates.astype(np.float32),
            "statistics": updates[:, :1].astype(np.float32) / np.float32(2),
            "gains": gains.astype(np.float32),
        },
        buffers=np.zeros((count, 0), np.float32),
        num_examples=np.ones(count),
        num_steps=np.ones(count),
        lr=0.1,
    )


def test_exploration_by_hand() -> None:
    """0.3, then 0.3 * 0.95, then 0.3 * 0.95^2."""
    seen = [exploration(0.3, 0.05, t) for t in (1, 2, 3)]
    assert seen == pytest.approx([0.3, 0.285, 0.27075])


def test_the_greedy_choice_by_hand() -> None:
    """Affinities 0, 5, -1, 2, 0: the best two of the others 0, 1, 2 and 3 are 1 and 3."""
    affinity = np.array([0.0, 5, -1, 2, 0])
    assert choose_peers(affinity, np.array([0, 1, 2, 3]), 2, 0.0, draw()) == [1, 3]
    assert choose_peers(affinity, np.array([0, 2]), 1, 0.0, draw()) == [0], "untried before bad"
    assert choose_peers(affinity, np.array([], dtype=np.int64), 2, 0.0, draw()) == []
    assert choose_peers(affinity, np.array([0, 1]), 0, 0.0, draw()) == []


def test_exploring_is_seeded_and_reaches_everybody() -> None:
    affinity, others = np.array([0.0, 9, 9, 0, 0, 0]), np.arange(1, 6)
    chosen = [choose_peers(affinity, others, 2, 1.0, draw(s)) for s in range(40)]
    assert chosen == [choose_peers(affinity, others, 2, 1.0, draw(s)) for s in range(40)]
    assert {peer for peers in chosen for peer in peers} == {1, 2, 3, 4, 5}
    greedy = {tuple(choose_peers(affinity, others, 2, 0.0, draw(s))) for s in range(40)}
    assert greedy == {(1, 2)}


def test_ties_are_broken_by_lot() -> None:
    """Nobody is known to be better: not always the lowest numbers are tried."""
    chosen = [choose_peers(np.zeros(9), np.arange(1, 9), 2, 0.0, draw(s)) for s in range(40)]
    assert {peer for peers in chosen for peer in peers} == set(range(1, 9))


@given(st.integers(0, 9), st.integers(0, 12), st.floats(0, 1), st.integers(0, 99))
def test_the_choice_is_some_of_the_others(count: int, n: int, epsilon: float, seed: int) -> None:
    others = np.arange(3, 3 + n)
    peers = choose_peers(draw(seed).normal(size=20), others, count, epsilon, draw(seed))
    assert len(peers) == min(count, n) and set(peers) <= set(others.tolist())
    assert peers == sorted(set(peers))


def test_a_round_by_hand() -> None:
    """Clients 0 and 3 send (1, 0) and (0, 2) beyond (10, 10), statistics 1/2 and 0 beyond 1.

    Client 0 then receives 3's model, client 3 that of 0, client 1 both; clients 1, 2 and 4 have
    sent nothing and their models go to nobody.
    """
    strategy = server()
    updates, gains = np.array([[1, 0], [0, 2]]), np.array([[0, 0, 0, 3, 0], [-2, 0, 0, 0, 0]])
    assert np.array_equal(strategy.aggregate(received([0, 3], updates, gains)), [10, 10])
    first, second, third = (strategy.instruction(client) for client in (0, 3, 1))
    assert [o.config["peer-ids"] for o in (first, second, third)] == [[3], [0], [0, 3]]
    assert first.arrays["peers"].tolist() == [[10, 12]]
    assert second.arrays["peer_statistics"].tolist() == [[1.5]]
    assert third.arrays["peers"].tolist() == [[11, 10], [10, 12]]
    strategy.aggregate(received([0], updates[:1], gains[:1]))
    assert strategy.affinity[0].tolist() == [0, 0, 0, 6, 0]
    assert strategy.affinity[3].tolist() == [-2, 0, 0, 0, 0]
    strategy.expelled = {0}
    assert strategy.instruction(1).config["peer-ids"] == [3]


def test_models_and_affinities_survive() -> None:
    strategy, again = server(models=2), server(models=2)
    updates, gains = draw().normal(size=(5, 2)), draw(1).normal(size=(5, 5))
    strategy.aggregate(received([0, 1, 2, 3, 4], updates, gains))
    again.load_state({name: np.copy(v) for name, v in strategy.state().items()})
    for client in range(5):
        one, two = strategy.instruction(client), again.instruction(client)
        assert one.config == two.config and len(one.config["peer-ids"]) == 2
        assert np.array_equal(one.arrays["peers"], two.arrays["peers"])


def test_instructions_differ_by_seed_round_and_client_only_by_lot() -> None:
    """With epsilon 1 the choice is a lot per seed, round and client, the same when asked again."""
    seen = {}
    for seed in (0, 1):
        strategy = server(9, seed, models=3, epsilon=1.0, decay=0.0)
        strategy.known[:] = True
        for number in (1, 2):
            strategy.training_round = number
            key = [tuple(strategy.instruction(c).config["peer-ids"]) for c in range(9)]
            assert key == [tuple(strategy.instruction(c).config["peer-ids"]) for c in range(9)]
            seen[seed, number] = tuple(key)
    assert len(set(seen.values())) == 4


def test_what_is_expected_of_a_client() -> None:
    assert server(7).lengths() == {"update": 2, "statistics": 1, "gains": 7}


def test_a_client_that_joins_is_unknown_and_has_no_affinities() -> None:
    strategy = server(2)
    gains = np.array([[0, 3], [4, 0]])
    strategy.aggregate(received([0, 1], np.array([[1, 0], [0, 2]]), gains))
    strategy.grow(RunInfo(num_clients=3, client_sizes=dict.fromkeys(range(3), 1), seed=0))
    assert strategy.affinity.tolist() == [[0, 3, 0], [4, 0, 0], [0, 0, 0]]
    assert strategy.instruction(2).config["peer-ids"] == [0, 1]
    assert strategy.instruction(0).config["peer-ids"] == [1]
    assert strategy.instruction(2).arrays["peer_statistics"].tolist() == [[1.5], [1]]
