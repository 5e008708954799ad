"""Personal methods save each client's model, exactly as it was scored."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithms import FEW_EPOCHS
from federations import DeployedGrid, partitions
from power_cut import FailingGrid, PowerCut
from safetensors.torch import load_file
from torch import nn

from fedsuite import registry
from fedsuite.core.files import read_document, read_lines
from fedsuite.engines.inline import InlineGrid
from fedsuite.records.folder import RunFolder
from tasks.models import build_model
from tasks.task import open_task

pytestmark = pytest.mark.slow

Experiment = Callable[..., Path]
PERSONAL = [a for a in sorted(registry.ALGORITHMS) if registry.find(a).client.personal]
# In two rounds somebody never takes part.
SOME = {"num_clients": 5, "fraction_train": 0.4, "local_steps": 2}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "models").iterdir())}


def recomputed(folder: Path) -> dict[int, float]:
    """Each client's accuracy: its file in a fresh module, on its own test rows."""
    config = RunFolder(folder).read_config()
    task = open_task(config.task)
    found = {}
    for client in range(config.num_clients):
        module = build_model(config.model, task.shape, 12345)
        saved = load_file(folder / "models" / f"client-{client:06d}.safetensors")
        module.load_state_dict(saved, strict=True)
        x, y = task.rows(task.split.own_test[client])
        extra = folder / "models" / f"extra-{client:06d}.safetensors"
        predict = by_prototypes(load_file(extra)) if extra.exists() else by_logits
        with torch.no_grad():
            found[client] = float((predict(module.eval(), x) == y).double().mean())
    return found


def by_logits(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return module(x).argmax(1)


def by_prototypes(extra: dict[str, torch.Tensor]) -> Callable[..., torch.Tensor]:
    """FedTGP's rule: the class whose prototype is nearest to what enters the last layer."""

    def predict(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        seen: list[torch.Tensor] = []
        last = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
        last.register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
        module(x)
        gaps = seen[0].double().numpy()[:, None] - extra["prototypes"].double().numpy()[None]
        apart = np.where(extra["known"].numpy() > 0, (gaps**2).sum(-1), np.inf)
        return torch.from_numpy(apart.argmin(1))

    return predict


def recorded(folder: Path) -> dict[int, float]:
    """Each client's accuracy as its last evaluation recorded it."""
    rows = [r for r in read_lines(folder / "clients.jsonl") if r["phase"] == "evaluate"]
    last = max(row["round"] for row in rows)
    return {row["client"]: row["accuracy"] for row in rows if row["round"] == last}


def agrees(folder: Path) -> bool:
    ours, summary = recorded(folder), read_document(folder / "summary.json")
    return recomputed(folder) == ours and summary["saved_models"] == len(ours)


@pytest.mark.parametrize("algo", PERSONAL)
def test_the_saved_model_scores_what_was_recorded(experiment: Experiment, algo: str) -> None:
    folder = experiment(algo, **SOME)
    assert agrees(folder)
    trained = {r["client"] for r in read_lines(folder / "clients.jsonl") if r["phase"] == "train"}
    assert len(trained) < 5 == len(recorded(folder)), "somebody has never taken part"


@pytest.mark.usefixtures("small_resnet")
@pytest.mark.parametrize("algo", PERSONAL)
def test_with_batch_norm_too_whoever_shared_the_process(experiment: Experiment, algo: str) -> None:
    """Three nodes write the files that one does, to the bit."""
    settings = {**SOME, "model": "resnet18", "partition": "sizes", "num_rounds": 3}
    settings |= FEW_EPOCHS.get(algo, {})
    folder = experiment(algo, **settings)
    assert agrees(folder)
    tensors = load_file(folder / "models" / "client-000000.safetensors")
    assert {"bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"} < set(tensors)
    assert files(experiment(algo, InlineGrid(3), **settings)) == files(folder)


@pytest.mark.usefixtures("small_resnet")
@pytest.mark.parametrize(
    ("algo", "exchanges", "model"),
    [
        *((algo, 7, "mlp") for algo in PERSONAL),
        ("fedadw", 6, "mlp"),
        *((algo, 6, "resnet18") for algo in ("fedbn", "ditto", "fedproto")),
    ],
)
def test_a_cut_run_saves_the_same_models(
    experiment: Experiment, algo: str, exchanges: int, model: str
) -> None:
    """After the query and 3 rounds of 2 exchanges: cut while models are saved, or just before.

    With batch norm clients' statistics are gone back to as well.
    """
    settings = {**SOME, "num_rounds": 3, "checkpoint_every": 2, "model": model}
    settings |= FEW_EPOCHS.get(algo, {})
    whole = experiment(algo, **settings)
    with pytest.raises(PowerCut):
        experiment(algo, FailingGrid(exchanges), **settings, run_name="cut")
    again = experiment(algo, **settings, run_name="cut", resume=True)
    assert files(again) == files(whole) and agrees(again)


@pytest.mark.parametrize("algo", ["fedadw", "pfedme"])
def test_a_run_that_ends_at_its_target_saves_them_too(experiment: Experiment, algo: str) -> None:
    own = {"pfedme.personal-lr": 0.1} if algo == "pfedme" else {}
    folder = experiment(algo, num_rounds=30, target_accuracy=0.3, stop_at_target=True, **own)
    summary = read_document(folder / "summary.json")
    assert summary["status"] == "target reached" and 0 < summary["rounds"] < 30
    assert agrees(folder)


@pytest.mark.parametrize("algo", PERSONAL)
def test_without_personal_evaluation_they_are_saved_all_the_same(
    experiment: Experiment, algo: str
) -> None:
    rows: dict[str, Any] = {**SOME, "client_test_fraction": 0.25}
    scored = experiment(algo, **rows, personal_eval="on")
    assert files(experiment(algo, **rows, personal_eval="off")) == files(scored)
    nothing = experiment(algo, **SOME, personal_eval="off")  # nor are there rows to score on
    assert read_document(nothing / "summary.json")["saved_models"] == 5


def test_a_global_method_saves_one_model_alone(experiment: Experiment) -> None:
    folder = experiment("fedavg", personal_eval="on")
    assert not (folder / "models").exists() and (folder / "model.safetensors").exists()
    assert read_document(folder / "summary.json")["saved_models"] is None


@pytest.mark.usefixtures("no_wait")
def test_a_deployed_node_keeps_its_model_to_itself(experiment: Experiment, tmp_path: Path) -> None:
    state = tmp_path / "state"
    folder = experiment("pfedme", DeployedGrid(*partitions(3, state)), num_clients=3)
    assert not (folder / "models").exists()
    (run,) = [path for path in state.iterdir() if path.is_dir()]
    alone = experiment("pfedme", num_clients=3)
    assert files(run) == files(alone)
    for path in [*(run / "models").iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meet deployed nodes without waiting for more of them."""
    from fedsuite.nodes import deployed

    monkeypatch.setattr(deployed, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(deployed, "POLL_SECONDS", 0.01)
