"""pFedMe, FedAMP, FedFomo and APPLE as whole runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from power_cut import FailingGrid, PowerCut
from safetensors.numpy import load_file
from torch import nn

from fedsuite import registry
from fedsuite.client_app import worker_for
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.vector import Vector
from fedsuite.engines.inline import InlineGrid
from fedsuite.records.checkpoint import load_checkpoint
from fedsuite.records.folder import RunFolder
from tasks import architectures
from tasks.shapes import DataShape

pytestmark = pytest.mark.slow

Experiment = Callable[..., Path]
PERSONAL = {"pfedme": "theta", "fedamp": "model", "fedfomo": "model", "apple": "model"}
POOLED = ("fedamp", "fedfomo", "apple")
SAME_ROWS = {"client_test_fraction": 0.25, "personal_eval": "on"}


def newest(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """The newest state of each client."""
    files = {p.parent.name: p for p in sorted((folder / "clients").rglob("*.safetensors"))}
    return {client: load_file(path) for client, path in files.items()}


def personal(folder: Path, algo: str) -> list[bytes]:
    """Every client's personal model."""
    return [state[PERSONAL.get(algo, "model")].tobytes() for state in newest(folder).values()]


def states(folder: Path) -> dict[str, dict[str, bytes]]:
    return {c: {k: v.tobytes() for k, v in s.items()} for c, s in newest(folder).items()}


def global_model(folder: Path) -> Vector:
    saved = load_checkpoint(folder)
    assert saved is not None
    return saved.model


OFF: dict[str, dict[str, Any]] = {
    "fedamp": {"fedamp.lam": 0},
    "fedfomo": {"fedfomo.models": 0, "fedfomo.validation": 0},
    "apple": {"apple.start": "own", "apple.p-lr": 0},
}


@pytest.mark.parametrize("algo", POOLED)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_with_its_idea_off_it_is_local(experiment: Experiment, algo: str, optimizer: str) -> None:
    rows = {**SAME_ROWS, "local_epochs": 2, "num_rounds": 3, "optimizer": optimizer, "lr": 0.01}
    alone = experiment("local", **rows, momentum=0.9)
    assert personal(experiment(algo, **rows, momentum=0.9, **OFF[algo]), algo) == personal(
        alone, "local"
    )


def test_pfedme_without_inner_steps_is_the_plain_mean(experiment: Experiment) -> None:
    rows = {**SAME_ROWS, "local_epochs": 2, "partition": "sizes"}
    off = experiment("pfedme", **rows, **{"pfedme.inner-steps": 0})
    plain = experiment("avg", **rows)
    assert (off / "model.safetensors").read_bytes() == (plain / "model.safetensors").read_bytes()


@pytest.mark.parametrize("algo", PERSONAL)
def test_by_default_it_is_neither_local_nor_fedavg(experiment: Experiment, algo: str) -> None:
    """Nor is any client's personal model another's, or the first model."""
    folder = experiment(algo, **SAME_ROWS)
    own = personal(folder, algo)
    alone = personal(experiment("local", **SAME_ROWS), "local")
    together = experiment("fedavg", **SAME_ROWS)
    assert len(own) == 4 and len({*own, *alone, global_model(together).tobytes()}) == 9
    if algo == "pfedme":
        moved = global_model(folder)
        assert not np.array_equal(moved, global_model(together))
        assert not np.array_equal(moved, global_model(experiment(algo, num_rounds=1, **SAME_ROWS)))


def test_fedamp_is_held_near_others(experiment: Experiment) -> None:
    """With the pull clients' models lie closer together than alone."""

    def spread(folder: Path) -> float:
        models = np.stack([state["model"] for state in newest(folder).values()])
        return float(np.linalg.norm(models - models.mean(axis=0)))

    settings = {**SAME_ROWS, "num_rounds": 4}
    assert spread(experiment("fedamp", **settings)) < 0.95 * spread(experiment("local", **settings))


def test_which_model_pfedme_scores_changes_nothing_else(experiment: Experiment) -> None:
    """Clients keep other models, the global one is the same to the bit."""
    theta, w = (experiment("pfedme", **SAME_ROWS, **{"pfedme.scored": m}) for m in ("theta", "w"))
    assert np.array_equal(global_model(theta), global_model(w))
    assert not {*personal(theta, "pfedme")} & {*personal(w, "pfedme")}


def test_pfedmes_personal_models_are_held_by_lam(experiment: Experiment) -> None:
    """Where w_i hardly moves, a stronger pull leaves theta nearer to it."""

    def gap(lam: float) -> float:
        own = {"pfedme.lam": lam, "lr": 1e-4}
        folder = experiment("pfedme", num_rounds=1, **SAME_ROWS, **own)
        start = global_model(folder)
        return max(float(np.abs(s["theta"] - start).max()) for s in newest(folder).values())

    assert gap(50.0) < 0.5 * gap(1.0)


def test_apples_relations_move_and_its_personal_model_is_their_mixture(
    experiment: Experiment,
) -> None:
    """Relations leave the shares of the data; sum_j p_j c_j of the cores sent for the last round,
    the own one as trained, is the personal model.
    """
    before = experiment("apple", num_rounds=1, **SAME_ROWS)
    after = experiment("apple", num_rounds=2, **SAME_ROWS)
    rows = [r for r in read_lines(after / "clients.jsonl") if r["phase"] == "train"]
    sizes = np.array([r["num_examples"] for r in rows if r["round"] == 2])
    saved = load_checkpoint(before)
    assert saved is not None
    cores = saved.model + saved.strategy["pool.update"]
    for client, state in newest(after).items():
        assert np.abs(state["p"] - sizes / sizes.sum()).max() > 1e-3
        sent = cores.copy()
        sent[int(client)] = state["core"]
        np.testing.assert_allclose(state["model"], state["p"] @ sent, atol=1e-5)
        assert np.abs(state["model"] - state["core"]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("algo", PERSONAL)
def test_who_computes_what_changes_nothing(experiment: Experiment, algo: str) -> None:
    settings = {"num_clients": 6, "partition": "sizes", "num_rounds": 3}
    alone = experiment(algo, **settings)
    assert states(experiment(algo, InlineGrid(3), **settings)) == states(alone)


@pytest.mark.slow
@pytest.mark.parametrize("algo", PERSONAL)
def test_a_cut_run_of_sampled_clients_ends_in_the_same_bits(
    experiment: Experiment, algo: str
) -> None:
    """Six clients, half a round, two models of others: what the server sends depends on its memory
    of models and affinities and on the lot, so all of it must survive.
    """
    own = {"fedfomo.models": 2, "fedfomo.epsilon": 0.5} if algo == "fedfomo" else {}
    settings = {
        "num_clients": 6,
        "fraction_train": 0.5,
        "num_rounds": 6,
        "checkpoint_every": 2,
        "eval_every": 2,
        **own,
    }
    whole = experiment(algo, **settings)
    with pytest.raises(PowerCut):
        experiment(algo, FailingGrid(6), **settings, run_name="cut")
    again = experiment(algo, **settings, run_name="cut", resume=True)
    assert states(again) == states(whole)
    one, two = load_checkpoint(whole), load_checkpoint(again)
    assert one is not None and two is not None
    assert one.strategy.keys() == two.strategy.keys()
    for name, value in one.strategy.items():
        assert np.array_equal(value, two.strategy[name])


def test_fedfomos_exploration_follows_the_seed(experiment: Experiment) -> None:
    """All else equal, chance alone changes who is received and with it the result."""
    settings = {"num_clients": 8, "num_rounds": 3, **SAME_ROWS}
    own = {"fedfomo.models": 2}
    runs = [
        personal(experiment("fedfomo", **settings, **own, **{"fedfomo.epsilon": e}), "fedfomo")
        for e in (0.0, 0.0, 1.0, 1.0)
    ]
    assert runs[0] == runs[1] != runs[2] == runs[3]


@pytest.mark.parametrize("algo", PERSONAL)
def test_the_personal_model_is_scored_on_the_own_test_rows(
    experiment: Experiment, algo: str
) -> None:
    """What a client reports is what its kept model scores when loaded by hand."""
    folder = experiment(algo, num_rounds=2)
    worker = worker_for(RunFolder(folder).read_config().to_json())
    rows = [r for r in read_lines(folder / "clients.jsonl") if r["phase"] == "evaluate"]
    last = {r["client"]: r["correct"] for r in rows if r["round"] == 2}
    assert len(last) == 4
    for client, state in newest(folder).items():
        worker.model.load(state[PERSONAL[algo]], state["buffers"])
        worker.model.module.eval()
        x, y = worker.task.rows(worker.task.split.own_test[int(client)])
        assert int((worker.model.module(x).argmax(1) == y).sum()) == last[int(client)]


@pytest.mark.parametrize("algo", PERSONAL)
def test_what_travels(experiment: Experiment, algo: str) -> None:
    """In numbers of 4 bytes: P a model, N = 4 clients. Down in round 1 and 2, and up."""
    folder = experiment(algo)
    size = global_model(folder).size
    rounds = read_lines(folder / "history.jsonl")[1:]
    down = [r["download_bytes"] / 4 for r in rounds]
    up = [r["upload_bytes"] / 4 for r in rounds]
    expected = {
        "pfedme": ([4 * size] * 2, 4 * size),
        "fedamp": ([0, 4 * size], 4 * size),
        "fedfomo": ([0, 4 * 3 * size], 4 * (size + 4)),
        "apple": ([4 * (4 * size + 4)] * 2, 4 * size),
    }[algo]
    assert (down, up) == (expected[0], [expected[1]] * 2)


@pytest.mark.parametrize("algo", POOLED)
def test_there_is_no_global_model(experiment: Experiment, algo: str) -> None:
    folder = experiment(algo)
    summary = read_document(folder / "summary.json")
    assert summary["final_accuracy"] is None and summary["personal_accuracy"] is not None
    assert not (folder / "model.safetensors").exists()
    assert not registry.find(algo).strategy.shares_model


@pytest.mark.parametrize("algo", PERSONAL)
def test_freeloaders_and_late_comers(experiment: Experiment, algo: str) -> None:
    """Three of four freeload; then a quarter of eight per round, so that most have no model yet."""
    for settings in (
        {"freeloaders": "3", "num_rounds": 3},
        {"num_clients": 8, "fraction_train": 0.25, "num_rounds": 3},
    ):
        folder = experiment(algo, **settings)
        summary = read_document(folder / "summary.json")
        assert (summary["status"], summary["failed_replies"]) == ("finished", 0)
        assert 0 <= summary["personal_accuracy"] <= 1


def small_batch_norm(shape: DataShape) -> nn.Module:
    """A linear layer behind batch normalisation."""
    size = int(np.prod(shape.input_shape))
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(size), nn.Linear(size, shape.num_classes))


@pytest.fixture
def batch_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``mlp`` be a small model with batch-norm statistics."""
    monkeypatch.setattr(architectures, "mlp", small_batch_norm)


@pytest.mark.usefixtures("batch_norm")
@pytest.mark.parametrize("algo", PERSONAL)
def test_batch_norm_statistics_are_personal(experiment: Experiment, algo: str) -> None:
    """Each client keeps statistics of its own, whoever else used the process before it."""
    settings = {"num_clients": 5, "fraction_train": 0.6, "num_rounds": 3, "partition": "sizes"}
    folder = experiment(algo, **settings)
    kept = list(newest(folder).values())
    assert read_document(folder / "summary.json")["failed_replies"] == 0
    assert len({state["buffers"].tobytes() for state in kept}) == len(kept) >= 3
    assert all(state["buffers"].any() for state in kept)
    assert states(experiment(algo, InlineGrid(3), **settings)) == states(folder)


@pytest.mark.usefixtures("batch_norm")
@pytest.mark.parametrize("algo", POOLED)
def test_with_batch_norm_too_it_is_local_with_its_idea_off(
    experiment: Experiment, algo: str
) -> None:
    alone, off = newest(experiment("local")), newest(experiment(algo, **OFF[algo]))
    for client, state in alone.items():
        for name, vector in state.items():
            assert vector.tobytes() == off[client][name].tobytes()


@pytest.mark.usefixtures("batch_norm")
def test_fedfomo_sends_statistics_with_models(experiment: Experiment) -> None:
    """Mean and variance of 64 pixels beside the model, both ways; three others in round 2."""
    folder = experiment("fedfomo")
    size = global_model(folder).size
    last = read_lines(folder / "history.jsonl")[-1]
    assert last["download_bytes"] == 4 * 4 * 3 * (size + 128)
    assert last["upload_bytes"] == 4 * 4 * (size + 128 + 4)
