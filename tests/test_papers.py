"""All algorithms as whole runs: equalities, differences, crashes, odd federations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from power_cut import FailingGrid, PowerCut
from safetensors.numpy import load_file

from fedsuite import registry
from fedsuite.config import parse
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.settings import UserError
from fedsuite.records.folder import RunFolder
from fedsuite.training.loop import check_feasible
from tasks.evaluation import evaluate
from tasks.models import build_model
from tasks.task import open_task

pytestmark = pytest.mark.slow

Experiment = Callable[..., Path]
PAPERS = ("feda4", "taco", "fedbac", "fedadw")
ALL = sorted(registry.ALGORITHMS)


def bits(folder: Path) -> list[bytes]:
    """The global model if there is one, and every client's newest state."""
    states = {p.parent.name: p.read_bytes() for p in sorted((folder / "clients").rglob("*.safet*"))}
    model = folder / "model.safetensors"
    return [model.read_bytes() if model.exists() else b"", *states.values()]


def model(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("algo", ALL)
def test_repeats_to_the_bit_also_after_power_cuts(experiment: Experiment, algo: str) -> None:
    """Of three clients one is honest: one freeloads, and one draws noise to send."""
    settings = {"num_rounds": 4, "num_clients": 3, "freeloaders": "1", "checkpoint_every": 2}
    settings |= {"local_steps": 2, "attack": "gaussian", "attackers": "0,"}
    whole = experiment(algo, **settings)
    cut = {**settings, "run_name": "cut"}
    for messages, resume in ((2, False), (4, True)):
        with pytest.raises(PowerCut):
            experiment(algo, FailingGrid(messages), **cut, resume=resume)
    again = experiment(algo, **cut, resume=True)
    assert bits(again) == bits(whole) == bits(experiment(algo, **settings))


OTHER_STATE = [
    (
        "fedbac",
        3,
        {"fedbac.reference": "current", "fedbac.window": "rounds", "fraction_train": 0.5},
    ),
    ("fedadw", 6, {"fedadw.send-weights": True, "fedadw.discrepancy-sign": "reward"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "messages", "reading"), OTHER_STATE)
def test_state_that_other_readings_keep_survives_a_power_cut(
    experiment: Experiment, algo: str, messages: int, reading: dict[str, Any]
) -> None:
    settings = {"num_rounds": 4, "checkpoint_every": 2, **reading}
    whole = experiment(algo, **settings)
    with pytest.raises(PowerCut):
        experiment(algo, FailingGrid(messages), **settings, run_name="cut")
    again = experiment(algo, **settings, run_name="cut", resume=True)
    assert bits(again) == bits(whole)


def test_fedadws_mixing_weights_are_in_the_record_on_request(experiment: Experiment) -> None:
    """The top two layers of the perceptron; in round 1 nothing is mixed yet and all are one."""
    folder = experiment("fedadw", num_rounds=3, **{"fedadw.send-weights": True})
    rounds = read_lines(folder / "history.jsonl")
    assert rounds[1]["ala_fc"] == rounds[1]["ala_hidden_2"] == 1.0
    assert 0.0 < rounds[3]["ala_fc"] < 1.0
    clients = [r for r in read_lines(folder / "clients.jsonl") if r["phase"] == "train"]
    last = [row["ala_fc"] for row in clients if row["round"] == 3]
    assert sum(last) / 4 == pytest.approx(rounds[3]["ala_fc"])
    sent = {row["upload_bytes"] for row in clients}
    assert sent == {4 * (2834 + 16 * 8 + 8 + 8 * 10 + 10)}
    kept = load_file(folder / "mixing-weights.safetensors")
    assert {name: rows.shape for name, rows in kept.items()} == {
        "hidden.2": (4, 16 * 8 + 8),
        "fc": (4, 8 * 10 + 10),
    }
    assert kept["fc"].mean(axis=1, dtype=np.float64).tolist() == pytest.approx(last)
    assert not (experiment("fedadw") / "mixing-weights.safetensors").exists()


@pytest.mark.parametrize("algo", PAPERS)
def test_differs_from_fedavg_by_default(experiment: Experiment, algo: str) -> None:
    same_rows = {"client_test_fraction": 0.25, "probe_per_class": 1}
    assert model(experiment(algo, **same_rows)) != model(experiment("fedavg", **same_rows))


OFF = [
    ("feda4", {"feda4.weights": False, "feda4.adaptation": False}, "fedavg", {}),
    ("taco", {"taco.correction": False, "taco.aggregation": False}, "fedavg", {}),
    ("fedbac", {"num_rounds": 1}, "fedavg", {"num_rounds": 1}),
    ("fedadw", {"fedadw.adaptive": False, "fedadw.weights": "samples"}, "fedavg", {}),
    ("fedprox", {"fedprox.zeta": 0}, "fedavg", {}),
]


@pytest.mark.parametrize(("algo", "off", "plain", "same"), OFF, ids=[row[0] for row in OFF])
def test_with_its_idea_off_it_is_plain_averaging(
    experiment: Experiment, algo: str, off: dict[str, Any], plain: str, same: dict[str, Any]
) -> None:
    rows = {"client_test_fraction": 0.25, "probe_per_class": 1, "local_epochs": 2}
    assert model(experiment(algo, **rows, **off)) == model(experiment(plain, **rows, **same))


def test_a_compact_trajectory_gives_the_full_ones_model(experiment: Experiment) -> None:
    settings = {"local_epochs": 3, "feda4.eta": 0.5, "num_rounds": 3}
    full, compact = (
        load_file(
            experiment("feda4", **settings, **{"feda4.trajectory": form}) / "model.safetensors"
        )
        for form in ("full", "compact")
    )
    for name, tensor in full.items():
        np.testing.assert_allclose(compact[name], tensor, atol=2e-5)
    rows = [
        sum(
            r["upload_bytes"]
            for r in read_lines(
                experiment("feda4", local_epochs=3, num_rounds=1, **{"feda4.trajectory": form})
                / "clients.jsonl"
            )
        )
        for form in ("full", "compact")
    ]
    assert rows[0] == 4 * rows[1]


@pytest.mark.slow
@pytest.mark.parametrize("algo", ALL)
@pytest.mark.parametrize(
    "settings",
    [{"num_clients": 1, "local_steps": 2}, {"num_clients": 5, "partition": "sizes"}],
    ids=["one client", "unequal steps"],
)
def test_odd_federations_end_well(
    experiment: Experiment, algo: str, settings: dict[str, Any]
) -> None:
    """Half of the clients train in ``test_every_algorithm``. Krum needs three clients."""
    if "krum" in algo and settings["num_clients"] == 1:
        settings = settings | {"num_clients": 3}
    folder = experiment(algo, **settings)
    summary = read_document(folder / "summary.json")
    assert (summary["status"], summary["failed_replies"]) == ("finished", 0)
    if (folder / "model.safetensors").exists():
        tensors = load_file(folder / "model.safetensors").values()
        assert all(np.isfinite(tensor).all() for tensor in tensors)


@pytest.mark.parametrize("algo", PAPERS)
@pytest.mark.usefixtures("small_resnet")
def test_batch_norm_models_train(experiment: Experiment, algo: str) -> None:
    _trains_batch_norm(experiment, algo)


@pytest.mark.slow
def test_resnet18_itself_trains(experiment: Experiment) -> None:
    _trains_batch_norm(experiment, "fedavg")


def _trains_batch_norm(experiment: Experiment, algo: str) -> None:
    folder = experiment(
        algo,
        model="resnet18",
        num_clients=40,
        fraction_train=0.05,
        local_epochs=1,
        eval_rows=8,
        personal_eval="off",
    )
    saved = load_file(folder / "model.safetensors")
    assert np.abs(saved["bn1.running_mean"]).sum() > 0
    assert all(np.isfinite(tensor).all() for tensor in saved.values())


@pytest.mark.parametrize("algo", PAPERS)
def test_clients_who_all_freeload_but_one(experiment: Experiment, algo: str) -> None:
    folder = experiment(algo, freeloaders="3", num_rounds=3)
    assert read_document(folder / "summary.json")["failed_replies"] == 0


RECORDED = {
    "feda4": [
        "phi",
        "weight",
        "penalty",
        "similarity",
        "biased",
        "probe_accuracy",
        "path_length",
        "turning",
    ],
    "taco": ["alpha", "norm", "cosine", "replay", "replay_distance", "strikes", "weight"],
    "fedbac": ["cosine", "consensus", "reliability", "weight", "accuracy"],
    "fedadw": ["discrepancy", "weight", "ala_mean", "ala_std", "ala_min", "ala_epochs"],
}


@pytest.mark.parametrize("algo", PAPERS)
def test_what_the_method_saw_is_in_the_record(experiment: Experiment, algo: str) -> None:
    rows = read_lines(experiment(algo, num_rounds=2) / "clients.jsonl")
    last = [r for r in rows if r["round"] == 2 and r["phase"] == "train"]
    assert len(last) == 4
    for row in last:
        assert set(RECORDED[algo]) <= set(row)


def test_fedbac_records_its_diagnostics(experiment: Experiment) -> None:
    folder = experiment("fedbac", num_rounds=3)
    last = read_lines(folder / "history.jsonl")[-1]
    couplings = {"reliability_coupling", "contribution_coupling", "fairness_gap"}
    wanted = {"client_accuracy", "smoothness"} | couplings
    assert wanted <= set(last)
    assert read_document(folder / "summary.json")["smoothness"] == last["smoothness"]


def test_fedbac_scores_the_received_model_outside_its_time(experiment: Experiment) -> None:
    """In round 1 everybody scores the same model: the accuracies differ only by the rows."""
    rows = read_lines(experiment("fedbac", num_rounds=1, num_clients=2) / "clients.jsonl")
    clients = [row for row in rows if row["phase"] == "train"]
    assert all(0 <= row["accuracy"] <= 0.5 for row in clients), "an untrained model knows little"


@pytest.mark.parametrize(("output", "other"), [("w", "z"), ("z", "w")])
def test_taco_scores_the_model_it_saves_and_names_the_other(
    experiment: Experiment, output: str, other: str
) -> None:
    """A gain that a table shows is one that the saved model has."""
    folder = experiment("taco", num_rounds=3, **{"taco.output": output})
    summary = read_document(folder / "summary.json")
    config = RunFolder(folder).read_config()
    task = open_task(config.task)
    saved = FlatModel(build_model(config.model, task.shape, 0))
    tensors = load_file(folder / "model.safetensors")
    saved.module.load_state_dict({name: torch.from_numpy(t) for name, t in tensors.items()})
    score = evaluate(saved, task, task.split.test)
    assert score.accuracy == summary["final_accuracy"]
    assert score.loss == pytest.approx(summary["final_loss"], abs=1e-6)
    ((name, accuracy),) = summary["other_output_accuracy"].items()
    assert name == other and 0 <= accuracy <= 1


def test_tacos_outputs_are_two_models_of_one_run(experiment: Experiment) -> None:
    """What one run saves is the other of the other run."""
    folders = [experiment("taco", num_rounds=3, **{"taco.output": o}) for o in ("w", "z")]
    w, z = (read_document(folder / "summary.json") for folder in folders)
    assert w["other_output_accuracy"] == {"z": z["final_accuracy"]}
    assert z["other_output_accuracy"] == {"w": w["final_accuracy"]}
    assert model(folders[0]) != model(folders[1])
    rows = [read_lines(folder / "history.jsonl") for folder in folders]
    assert rows[0][0]["loss"] == rows[1][0]["loss"] and rows[0][2]["loss"] != rows[1][2]["loss"]


@pytest.mark.usefixtures("small_resnet")
def test_z_is_refused_for_a_model_with_statistics(experiment: Experiment) -> None:
    with pytest.raises(UserError, match="taco.output=w"):
        experiment("taco", model="resnet18", run_name="bn", **{"taco.output": "z"})
    values = {"algo": "taco", "model": "resnet18", "taco.output": "z"}
    with pytest.raises(UserError, match="invalid value 'z' for taco.output"):
        check_feasible(parse(values))
    check_feasible(parse(values | {"taco.output": "w"}))
    check_feasible(parse(values | {"model": "mlp"}))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"num_clients": 5, "fraction_train": 0.6, "partition": "sizes", "local_epochs": 2},
        {"freeloaders": "2", "taco.detector": "printed", "taco.lambda": 1, "taco.kappa": 0.1},
    ],
    ids=["all", "some, of unequal sizes", "freeloaders"],
)
def test_taco_without_both_ideas_is_fedavg_bit_for_bit(
    experiment: Experiment, how: dict[str, Any]
) -> None:
    off = {"taco.correction": False, "taco.aggregation": False, "num_rounds": 3}
    plain = {key: value for key, value in how.items() if not key.startswith("taco.")}
    assert model(experiment("taco", **how | off)) == model(
        experiment("fedavg", **plain, num_rounds=3)
    )


@pytest.mark.slow
def test_an_expelled_freeloader_stays_away_also_after_resume(experiment: Experiment) -> None:
    settings = {
        "num_clients": 5,
        "freeloaders": "1",
        "num_rounds": 8,
        "model": "cnn2",
        "lr": 0.02,
        "local_steps": 10,
        "taco.replay": 0.999,
        "taco.lambda": 2,
        "checkpoint_every": 1,
    }
    whole = experiment("taco", **settings)
    summary = read_document(whole / "summary.json")
    assert summary["expelled"] == [4]
    assert (summary["freeloader_tpr"], summary["freeloader_fpr"]) == (1.0, 0.0)
    rounds = [r["round"] for r in read_lines(whole / "clients.jsonl") if r["client"] == 4]
    gone = max(rounds)
    assert gone < 8
    with pytest.raises(PowerCut):
        experiment("taco", FailingGrid(gone + 2), **settings, run_name="cut")
    again = experiment("taco", **settings, run_name="cut", resume=True)
    assert bits(again) == bits(whole)
    assert max(r["round"] for r in read_lines(again / "clients.jsonl") if r["client"] == 4) == gone
