"""A client's settings are its strategy's dataclass, with what differs for it alone."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from fedsuite import registry
from fedsuite.config import parse
from fedsuite.core.messages import Instruction
from fedsuite.core.settings import defaults
from fedsuite.nodes.worker import Worker
from strategies.fedprox import FedProxParams
from tasks.task import open_task

ROUND = {"round": 1, "checkpoint-round": 0, "lr": 0.1}


@pytest.fixture(scope="module")
def worker() -> Worker:
    config = parse({"algo": "fedprox", "fedprox.zeta": 0.5, "model": "mlp", "freeloaders": "1"})
    return Worker(config, open_task(config.task))


def test_a_client_has_the_runs_settings(worker: Worker, tmp_path: Path) -> None:
    for number in (0, worker.config.num_clients - 1):
        client = worker.client(number, Instruction(config=ROUND), tmp_path)
        assert client.params == FedProxParams(zeta=0.5)


def test_a_setting_sent_to_one_client_is_that_clients_alone(worker: Worker, tmp_path: Path) -> None:
    own = worker.client(0, Instruction(config=ROUND, params={"zeta": 0.25}), tmp_path)
    other = worker.client(1, Instruction(config=ROUND), tmp_path)
    assert (own.params.zeta, other.params.zeta) == (0.25, 0.5)


def test_an_unknown_setting_is_no_setting(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="zita"):
        worker.client(0, Instruction(config=ROUND, params={"zita": 0.25}), tmp_path)


@pytest.mark.parametrize("name", sorted(registry.ALGORITHMS))
def test_a_client_names_its_strategys_settings(name: str) -> None:
    """The type that a client names, if any, is the one that its strategy declares."""
    algorithm = registry.find(name)
    named = inspect.get_annotations(algorithm.client).get("params")
    assert named in (None, algorithm.strategy.Params.__name__)
    if defaults(algorithm.strategy.Params) and named is None:
        assert algorithm.client.__name__ == "FedAvgClient", "its settings are the server's alone"


SHARING_A_PART = {"fedper", "fedrep", "fedbn"}
WITHOUT_A_SHARED_MODEL = SHARING_A_PART | {
    *("apple", "fedamp", "fedfomo", "fedproto", "fedtgp", "local")
}
WITH_MODELS_OF_THEIR_OWN = WITHOUT_A_SHARED_MODEL | {
    *("ditto", "fedadw", "fedala", "fedavg-ft", "pfedme")
}


def test_whose_clients_have_models_of_their_own() -> None:
    found = {name: registry.find(name) for name in registry.ALGORITHMS}
    assert {n for n, a in found.items() if a.client.personal} >= WITH_MODELS_OF_THEIR_OWN
    assert {n for n, a in found.items() if not a.strategy.shares_model} >= WITHOUT_A_SHARED_MODEL
    assert not (found["fedavg"].client.personal or found["taco"].client.personal)
    assert found["fedadw"].strategy.shares_model and found["pfedme"].strategy.shares_model
