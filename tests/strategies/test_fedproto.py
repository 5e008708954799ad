"""FedProto's prototypes by hand: who counts, which classes stay, what a restart keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from rounds import play

from strategies.base import RunInfo
from strategies.fedproto import FedProto

Experiment = Callable[..., Path]
NOTHING = [0.0, 0.0]


def server() -> FedProto:
    """Three classes of two features."""
    shapes = {"body.weight": (2, 2), "fc.weight": (3, 2), "fc.bias": (3,)}
    return FedProto(RunInfo(2, {0: 1, 1: 1}, seed=0, shapes=shapes))


def test_two_rounds_by_hand() -> None:
    """Class 0 of both, five samples and one: the plain mean of (2, 0) and (0, 4). Class 1 of one.
    Then class 1 alone is sent, and class 0 stays; class 2 is never known.
    """
    strategy = server()
    sent = [[2, 0, *NOTHING, *NOTHING], [0, 4, 1, 1, *NOTHING]]
    this_round = play(strategy, [[], []], prototypes=sent, counts=[[5, 0, 0], [1, 2, 0]])
    assert strategy.broadcast()["prototypes"].tolist() == [[1, 2], [1, 1], [0, 0]]
    assert strategy.broadcast()["known"].tolist() == [1, 1, 0]
    assert this_round.per_client["classes"].tolist() == [1, 2]
    play(strategy, [[]], [0], prototypes=[[*NOTHING, 3, 3, *NOTHING]], counts=[[0, 1, 0]])
    assert strategy.broadcast()["prototypes"].tolist() == [[1, 2], [3, 3], [0, 0]]
    assert strategy.evaluation_broadcast()["known"].tolist() == [1, 1, 0]


def test_a_restart_keeps_prototypes_and_which_are_known() -> None:
    strategy, again = server(), server()
    play(strategy, [[]], [1], prototypes=[[1, 2, *NOTHING, 3, 4]], counts=[[1, 0, 1]])
    again.load_state(strategy.state())
    for name, vector in strategy.broadcast().items():
        assert np.array_equal(again.broadcast()[name], vector)


def test_no_weights_travel() -> None:
    assert server().lengths() == {"prototypes": 6, "counts": 3}


def test_without_the_pull_models_are_those_of_local(experiment: Experiment) -> None:
    def models(algo: str, **settings: object) -> list[bytes]:
        folder = experiment(algo, local_steps=1, **settings)
        files = sorted((folder / "models").glob("client-*.safetensors"))
        return [file.read_bytes() for file in files]

    alone = models("local")
    assert len(alone) == 4
    assert models("fedproto", **{"fedproto.lam": 0}) == alone != models("fedproto")
