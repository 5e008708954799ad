"""FedALA is FedADW's adaptive start, with FedAvg's weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from bowl import fit, place
from rounds import TWO_STEPS

from clients.fedala import FedAlaClient
from strategies.fedala import FedAlaParams

Experiment = Callable[..., Path]


def test_the_start_of_the_second_round_by_hand(tmp_path: Path) -> None:
    """Round 1 ends at (3/4, 9/4). Round 2 receives (5, 5): the low number starts there, the top one
    at 9/4 + 11/4 W. The slope by W is (top - 3) 11/4, at first 2 * 11/4, so with a rate of 1 W is
    0 after one step, and the top number starts at 9/4, where the next slope is below 0: W = 1
    again, after 33/16 clipped. Of 50 such epochs the last leaves it at W = 1, or at 0 before.
    """
    params = FedAlaParams(ala_max_epochs=1)
    fit(FedAlaClient, place(tmp_path, TWO_STEPS), [0, 0], params=params)
    context = place(tmp_path, TWO_STEPS, 2)
    vectors, _, metrics = fit(FedAlaClient, context, [5, 5], params=params)
    assert len(vectors) == 1, "the update travels alone"
    state = context.state.load(after_round=True)
    assert state["weights"].tolist() == [0] and metrics["ala-epochs"] == 1
    assert state["model"].tolist() == [2, 2.8125]
    assert vectors[0].tolist() == [-3, 2.8125 - 5]
    assert "discrepancy" not in metrics


def model(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_it_is_fedadw_without_its_weights(experiment: Experiment) -> None:
    """Off it is FedAvg; with as many layers it is FedADW by samples; neither by default."""
    settings = {"local_steps": 2, "partition": "sizes", "client_test_fraction": 0.2}
    plain = model(experiment("fedavg", **settings))
    assert model(experiment("fedala", **settings, **{"fedala.adaptive": False})) == plain
    mixed = model(experiment("fedala", **settings))
    same = {"fedadw.weights": "samples", "fedadw.ala-layers": 1}
    assert model(experiment("fedadw", **settings, **same)) == mixed != plain


def test_mixing_weights_are_of_the_top_layer_alone(tmp_path: Path) -> None:
    client = FedAlaClient(place(tmp_path, TWO_STEPS), FedAlaParams())
    weights, learnt = client._mix(np.array([1, 2], np.float32), 1)
    assert weights.tolist() == [1] and learnt == {"ala-epochs": 0}
