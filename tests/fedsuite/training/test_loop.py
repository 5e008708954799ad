"""Whole runs on the inline engine: same bits, honest numbers, nothing lost."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Message
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch

import fedsuite
from fedsuite.config import parse
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.settings import UserError
from fedsuite.engines.inline import InlineGrid
from tasks.dataset_cache import load_dataset
from tasks.models import build_model
from tasks.task import as_model_input, open_task

Experiment = Callable[..., Path]


def model_bytes(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def client_states(folder: Path) -> dict[str, bytes]:
    """The newest state of each client."""
    newest = {}
    for path in sorted((folder / "clients").rglob("*.safetensors")):
        newest[path.parent.name] = path.read_bytes()
    return newest


class ShuffledGrid(InlineGrid):
    """Replies come back in any order."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        shuffled = list(messages)
        random.shuffle(shuffled)
        replies = list(super().send_and_receive(shuffled, timeout=timeout))
        random.shuffle(replies)
        return replies


class ApartGrid(InlineGrid):
    """Nodes that do not see the run's folder, so clients stay on node ``c mod M``."""

    def _handle(self, message: Message) -> Message:
        reply = super()._handle(message)
        if message.metadata.message_type == "query":
            reply.content.config_records["node"]["shares-disk"] = False
        return reply


@pytest.mark.parametrize("algo", ["fedavg", "avg", "fedprox", "local"])
def test_the_same_run_twice_is_the_same_to_the_bit(experiment: Experiment, algo: str) -> None:
    first, second = experiment(algo), experiment(algo)
    if algo == "local":
        assert client_states(first) == client_states(second)
    else:
        assert model_bytes(first) == model_bytes(second)


def test_another_seed_is_another_run(experiment: Experiment) -> None:
    assert model_bytes(experiment(seed=1)) != model_bytes(experiment(seed=2))


@pytest.mark.parametrize(
    "grid",
    [InlineGrid(2), InlineGrid(7), ShuffledGrid(3), ApartGrid(3)],
    ids=["2 nodes", "7 nodes", "any order", "fixed nodes"],
)
def test_who_computes_what_and_when_changes_nothing(
    experiment: Experiment, grid: InlineGrid
) -> None:
    settings = {"num_clients": 9, "partition": "sizes", "model": "cnn2"}
    assert model_bytes(experiment(grid=grid, **settings)) == model_bytes(experiment(**settings))


def test_client_state_does_not_depend_on_the_node_either(experiment: Experiment) -> None:
    alone = experiment("local", num_clients=5)
    assert client_states(alone) == client_states(
        experiment("local", ShuffledGrid(3), num_clients=5)
    )


def test_fedprox_with_zeta_zero_is_fedavg(experiment: Experiment) -> None:
    plain = model_bytes(experiment("fedavg"))
    assert model_bytes(experiment("fedprox", **{"fedprox.zeta": 0})) == plain
    assert model_bytes(experiment("fedprox")) != plain


def test_avg_is_fedavg_with_uniform_weights(experiment: Experiment) -> None:
    uniform = experiment("fedavg", **{"fedavg.weighting": "uniform"}, partition="sizes")
    assert model_bytes(experiment("avg", partition="sizes")) == model_bytes(uniform)
    assert model_bytes(experiment("fedavg", partition="sizes")) != model_bytes(uniform)


def test_local_shares_nothing_and_differs_from_fedavg(experiment: Experiment) -> None:
    alone = experiment("local", personal_eval="on")
    summary = read_document(alone / "summary.json")
    assert summary["upload_bytes"] == summary["download_bytes"] == 0
    assert summary["final_accuracy"] is None and summary["personal_accuracy"] is not None
    assert not (alone / "model.safetensors").exists()
    models = [load_file(p)["model"] for p in sorted((alone / "clients").rglob("000002.*"))]
    assert len(models) == 4 and not np.array_equal(models[0], models[1])
    shared = experiment("fedavg", personal_eval="on")
    together = np.concatenate([t.ravel() for t in load_file(shared / "model.safetensors").values()])
    assert sorted(together) != sorted(models[0])


def test_a_hundred_clients_of_unequal_size(experiment: Experiment) -> None:
    folder = experiment(num_clients=100, partition="sizes", num_rounds=1)
    rows = read_lines(folder / "clients.jsonl")
    sizes = [row["num_examples"] for row in rows]
    assert len(rows) == 100 and max(sizes) > 3 * min(sizes)


def test_a_fraction_of_clients_is_the_same_for_the_same_seed(experiment: Experiment) -> None:
    def sampled(**settings: int) -> list[tuple[int, int]]:
        folder = experiment(num_clients=50, fraction_train=0.1, partition="iid", **settings)
        return [(r["round"], r["client"]) for r in read_lines(folder / "clients.jsonl")]

    first = sampled(seed=3)
    assert first == sampled(seed=3) and first != sampled(seed=4)
    assert len([r for r in first if r[0] == 1]) == 5


def test_the_saved_model_has_the_recorded_accuracy(experiment: Experiment) -> None:
    """Loaded into a plain module and run on the plain test rows, without any of our machinery."""
    folder = experiment(model="cnn2", num_rounds=3)
    data = load_dataset("digits")
    module = build_model("cnn2", data.shape, seed=999)
    module.load_state_dict(load_torch(folder / "model.safetensors"))
    x = torch.from_numpy(np.ascontiguousarray(data.x[data.num_train :].transpose(0, 3, 1, 2)))
    with torch.no_grad():
        right = module.eval()(x).argmax(1).numpy() == data.y[data.num_train :]
    last = read_lines(folder / "history.jsonl")[-1]
    assert last["accuracy"] == pytest.approx(right.mean(), abs=1 / len(right))
    assert read_document(folder / "summary.json")["final_accuracy"] == last["accuracy"]


def test_personal_accuracy_is_correct_predictions_over_all_rows(experiment: Experiment) -> None:
    folder = experiment(client_test_fraction=0.5, partition="sizes", num_rounds=1)
    rows = [r for r in read_lines(folder / "clients.jsonl") if r["phase"] == "evaluate"]
    correct, total = sum(r["correct"] for r in rows), sum(r["num_examples"] for r in rows)
    summary = read_document(folder / "summary.json")
    assert summary["personal_accuracy"] == pytest.approx(correct / total)
    accuracies = [r["correct"] / r["num_examples"] for r in rows]
    assert summary["personal_mean"] == pytest.approx(np.mean(accuracies))
    assert summary["personal_std"] == pytest.approx(np.std(accuracies))
    assert summary["personal_worst"] == pytest.approx(min(accuracies))


def test_pooled_data_is_scored_on_what_clients_held_back(experiment: Experiment) -> None:
    folder = experiment(pool_train_test=True, client_test_fraction=0.25, num_rounds=1)
    row = read_lines(folder / "history.jsonl")[-1]
    assert row["accuracy"] == pytest.approx(row["personal_accuracy"])


def test_epochs_steps_adam_decay_all_train(experiment: Experiment) -> None:
    folder = experiment(
        local_steps=7, optimizer="adam", lr=0.001, lr_schedule="exponential", lr_decay=0.5
    )
    assert {r["steps"] for r in read_lines(folder / "clients.jsonl")} == {7}
    rates = [row.get("lr") for row in read_lines(folder / "history.jsonl")]
    assert rates == [None, 0.001, 0.0005]


def test_a_run_can_stop_at_its_target(experiment: Experiment) -> None:
    folder = experiment(model="cnn2", target_accuracy=0.3, stop_at_target=True, num_rounds=30)
    summary = read_document(folder / "summary.json")
    assert summary["status"] == "target reached"
    assert summary["rounds_to_target"] == summary["rounds"] < 30
    assert summary["compute_seconds_to_target"] is not None


def test_a_target_of_clients_scores_has_them_scored(experiment: Experiment) -> None:
    settings = {"target_accuracy": 0.01, "target_metric": "personal-worst-tenth"}
    folder = experiment(**settings, stop_at_target=True, num_rounds=9)
    summary, rows = read_document(folder / "summary.json"), read_lines(folder / "history.jsonl")
    assert summary["status"] == "target reached"
    assert rows[-1]["personal_worst_tenth"] >= 0.01 == summary["target_accuracy"]
    assert all(row.get("personal_worst_tenth", 0.0) < 0.01 for row in rows[:-1])


def test_auc_of_ten_classes_is_no_target(experiment: Experiment) -> None:
    with pytest.raises(UserError, match="target-metric=auc needs two classes; 'digits' has 10"):
        experiment(target_accuracy=0.5, target_metric="auc")


def test_scores_by_class_are_those_of_the_saved_model(experiment: Experiment) -> None:
    folder = experiment(num_rounds=2, model="mlp", client_test_fraction=0.3)
    summary, rows = read_document(folder / "summary.json"), read_lines(folder / "history.jsonl")
    data = open_task(parse({}).task).dataset
    truth = data.y[data.num_train :]
    inputs = as_model_input(torch.from_numpy(data.x[data.num_train :]), "image")
    with torch.no_grad():
        found = fedsuite.load(folder).model()(inputs).argmax(1).numpy()
    recall = [float((found[truth == k] == k).mean()) for k in range(10)]
    taken = [truth[found == k] == k for k in range(10)]
    precision = [float(right.mean()) if len(right) else 0.0 for right in taken]
    f1 = [2 * p * r / (p + r) if p + r else 0.0 for p, r in zip(precision, recall, strict=True)]
    assert [*summary["class_accuracy"].values()] == pytest.approx(recall)
    assert summary["balanced_accuracy"] == pytest.approx(np.mean(recall))
    assert summary["macro_f1"] == pytest.approx(np.mean(f1))
    assert summary["auc"] is None and "auc" not in rows[-1]
    clients = [r for r in read_lines(folder / "clients.jsonl") if r["phase"] == "evaluate"]
    assert all(0 <= row["macro_f1"] <= 1 and row["class_accuracy"] for row in clients)
    assert 0 < summary["personal_macro_f1"] <= 1 and summary["personal_class_accuracy"]


def test_evaluation_every_third_round_and_at_the_end(experiment: Experiment) -> None:
    folder = experiment(num_rounds=4, eval_every=3)
    scored = [r["round"] for r in read_lines(folder / "history.jsonl") if "accuracy" in r]
    assert scored == [0, 3, 4]


def test_the_record_says_what_made_it(experiment: Experiment) -> None:
    config = read_document(experiment(partition="iid") / "config.json")
    meta = config["meta"]
    assert config["partition"] == "iid" and len(meta["split-fingerprint"]) == 16
    assert meta["command"].startswith("fedsuite run fedavg") and meta["versions"]["torch"]
    summary_keys = (
        "algo dataset model partition seed num_clients rounds final_accuracy best_accuracy "
        "mean_last5_accuracy final_loss personal_accuracy rounds_to_target "
        "compute_seconds_to_target wall_seconds client_compute_seconds upload_bytes "
        "download_bytes expelled freeloader_tpr freeloader_fpr status"
    ).split()
    summary = read_document(experiment() / "summary.json")
    assert set(summary_keys) <= set(summary)


def test_freeloaders_take_part_and_nobody_is_expelled(experiment: Experiment) -> None:
    folder = experiment(freeloaders="1", num_rounds=3)
    rows = [r for r in read_lines(folder / "clients.jsonl") if r["client"] == 3]
    assert all(r["loss"] == 0.0 and r["steps"] > 0 for r in rows)
    summary = read_document(folder / "summary.json")
    assert (summary["freeloader_tpr"], summary["freeloader_fpr"]) == (0.0, 0.0)


def test_a_second_run_of_the_same_name_is_refused(experiment: Experiment) -> None:
    experiment(run_name="once")
    with pytest.raises(UserError, match="already exists"):
        experiment(run_name="once")


def test_nothing_to_resume_is_said(experiment: Experiment) -> None:
    with pytest.raises(UserError, match="nothing to resume"):
        experiment(run_name="never", resume=True)


def test_json_lines_are_whole(experiment: Experiment) -> None:
    for line in (experiment() / "history.jsonl").read_text().splitlines():
        assert isinstance(json.loads(line), dict)


def test_the_last_round_is_always_scored_by_clients_too(experiment: Experiment) -> None:
    folder = experiment("local", num_rounds=4, eval_every=3)
    rounds = [r["round"] for r in read_lines(folder / "history.jsonl") if "personal_mean" in r]
    assert rounds == [3, 4]


def test_a_run_is_not_resumed_on_other_data(experiment: Experiment) -> None:
    folder = experiment(run_name="moved")
    (folder / "summary.json").unlink()
    config = read_document(folder / "config.json")
    config["meta"]["split-fingerprint"] = "somebody elses"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="Start a new run"):
        experiment(run_name="moved", resume=True)
