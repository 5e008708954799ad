"""Runs on deployed nodes, without processes: who takes part, with what, and as which client."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from algorithms import OWN_CLIENTS
from federations import (
    DeployedGrid,
    digits_rows,
    notes,
    own_nodes,
    partitions,
    visits_csv,
)
from safetensors.numpy import load_file

from fedsuite.config import parse
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.protocol import owner_name
from fedsuite.core.settings import UserError
from fedsuite.nodes.identity import read_node_data
from fedsuite.training.loop import run
from tasks.datasets import DATASETS
from tasks.sources import find_source
from tasks.task import open_task

Start = Callable[..., Path]
NOBODY_EXPELLED: dict[str, dict[str, Any]] = {"taco": {"taco.kappa": 1.0}}
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_waiting")]


def models_equal(one: Path, other: Path) -> bool:
    a, b = (load_file(folder / "model.safetensors") for folder in (one, other))
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_partitions_are_clients_and_give_the_same_bits_as_a_simulation(
    experiment: Start, tmp_path: Path
) -> None:
    """num-clients = 20 is not what counts: three nodes with three partitions are."""
    grid = DeployedGrid(*partitions(3, tmp_path / "state"))
    deployed = experiment("taco", grid=grid, num_clients=20)
    simulated = experiment("taco", num_clients=3)
    assert models_equal(deployed, simulated)
    config = read_document(deployed / "config.json")
    assert config["num-clients"] == 3
    assert config["meta"]["engine"] == "deployed"
    same = ("accuracy", "loss", "train_loss", "clients", "mean_alpha")
    for one, other in zip(
        read_lines(deployed / "history.jsonl"),
        read_lines(simulated / "history.jsonl"),
        strict=True,
    ):
        assert [one.get(name) for name in same] == [other.get(name) for name in same]


def test_a_deployed_node_receives_no_path_of_the_server(experiment: Start, tmp_path: Path) -> None:
    grid = DeployedGrid(*partitions(2, tmp_path / "state"))
    folder = experiment("fedadw", grid=grid, num_rounds=1)
    headers = [m.content.config_records["config"] for m in grid.heard]
    assert all("run-dir" not in header for header in headers)
    assert not (folder / "clients").exists()
    assert list((tmp_path / "state").glob("*/clients/*/*.safetensors"))


def test_training_continues_without_a_node_that_dies_and_with_it_when_it_returns(
    experiment: Start, tmp_path: Path
) -> None:
    gone: dict[str, Any] = {}

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 2:
            gone.update(grid.leave(5002))
        if server_round == 4:
            grid.join(**gone)

    grid = DeployedGrid(*partitions(3, tmp_path / "state"), before=before)
    folder = experiment("fedadw", grid=grid, num_rounds=6)
    rows = [row for row in read_lines(folder / "history.jsonl") if row["round"]]
    assert [row["clients"] for row in rows] == [3, 2, 2, 2, 3, 3]
    assert [row["failed"] for row in rows] == [0, 1, 0, 0, 0, 0]
    assert "client 1 is gone" in notes(folder)
    assert "client 1 is here" in notes(folder)
    kept = sorted((tmp_path / "state").glob("*/clients/000001/*.safetensors"))
    assert kept, "its state is still there"


def test_a_round_waits_for_min_train_clients(experiment: Start, tmp_path: Path) -> None:
    """Two are needed; with one gone, rounds are empty and the run says so."""

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 1:
            grid.leave(5001)

    grid = DeployedGrid(*partitions(2, tmp_path / "state"), before=before)
    with pytest.raises(Exception, match="in the last 3 rounds"):
        experiment(
            "fedavg", grid=grid, num_rounds=9, min_train_clients=2, round_timeout=0.2, run_name="w"
        )
    rows = read_lines(tmp_path / "runs" / "w" / "history.jsonl")
    assert "fewer than min-train-clients = 2" in rows[-1]["note"]


def test_own_rows_give_the_same_bits_as_the_partitions_they_were_cut_from(
    experiment: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes' sums add up to the mean and deviation of all training rows.

    Nodes are numbered by the hash of their secrets, so the partitions are laid out in that order.
    """
    node_configs = [
        {"data_path": str(tmp_path / f"{i}"), "state_dir": str(tmp_path)} for i in range(3)
    ]
    for node_config in node_configs:
        Path(node_config["data_path"]).mkdir()
    node_configs.sort(key=lambda p: owner_name(read_node_data(kebab(p)).identity))
    rows = find_source(DATASETS["digits"], "").read().train
    simulated = experiment("taco", num_clients=3)
    split = open_task(parse({"num-clients": 3}).task).split
    for node_config, part in zip(node_configs, split.train, strict=True):
        pq.write_table(rows.take(part), Path(node_config["data_path"]) / "rows.parquet")
    monkeypatch.setattr(
        "fedsuite.nodes.identity.open_task", lambda spec: pytest.fail("took a partition")
    )
    deployed = experiment("taco", grid=DeployedGrid(*node_configs))
    assert models_equal(deployed, simulated)
    a, b = (read_document(run / "summary.json") for run in (deployed, simulated))
    assert (a["final_accuracy"], a["num_clients"]) == (b["final_accuracy"], 3)


def kebab(node_config: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in node_config.items()}


def test_where_the_server_has_no_rows_the_clients_score_the_model(
    experiment: Start, tmp_path: Path
) -> None:
    nodes = [
        {"data_path": str(visits_csv(tmp_path / f"{i}.csv", i)), "state_dir": str(tmp_path / "s")}
        for i in range(3)
    ]
    settings: dict[str, Any] = dict(dataset="own", model="auto", num_rounds=12, batch_size=8)
    folder = experiment("fedavg", grid=DeployedGrid(*nodes), **settings)
    config, summary = (read_document(folder / f"{name}.json") for name in ("config", "summary"))
    assert (config["model"], config["personal-eval"]) == ("mlp", "on")
    schema = read_document(folder / "schema.json")
    assert schema["classes"] == ["no", "yes"]
    assert schema["categories"] == {"way": ["bus", "car", "walk"]}
    last = read_lines(folder / "history.jsonl")[-1]
    assert last["accuracy"] == last["personal_accuracy"] == summary["final_accuracy"] > 0.75
    other = experiment("fedavg", grid=DeployedGrid(*nodes[::-1]), **settings)
    assert models_equal(folder, other), "who comes first does not matter"


def test_the_server_tests_on_rows_it_is_given(experiment: Start, tmp_path: Path) -> None:
    nodes = [{"data_path": str(visits_csv(tmp_path / f"{i}.csv", i))} for i in range(2)]
    nodes = [node | {"state_dir": str(tmp_path / "s")} for node in nodes]
    test = visits_csv(tmp_path / "test.csv", 9, rows=200)
    settings: dict[str, Any] = dict(dataset="own", num_rounds=8, batch_size=8, server_data=test)
    folder = experiment("feda4", grid=DeployedGrid(*nodes), **settings)
    summary = read_document(folder / "summary.json")
    assert summary["personal_accuracy"] is None
    assert (summary["final_accuracy"] * 198) % 1 == pytest.approx(0, abs=1e-6), "two are the probe"
    with pytest.raises(UserError, match="feda4 needs a probe set"):
        experiment("feda4", grid=DeployedGrid(*nodes), dataset="own")


@pytest.mark.parametrize("algo", [*OWN_CLIENTS, "foolsgold"])
def test_a_node_that_comes_late_becomes_a_client(
    algo: str, experiment: Start, tmp_path: Path
) -> None:
    nodes = own_nodes(tmp_path, 4)

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 2:
            grid.join(**nodes[3])

    grid = DeployedGrid(*nodes[:3], before=before)
    folder = experiment(algo, grid=grid, num_rounds=4, **NOBODY_EXPELLED.get(algo, {}))
    rows = [row for row in read_lines(folder / "history.jsonl") if row["round"]]
    assert [row["clients"] for row in rows] == [3, 3, 4, 4]
    assert not any(row["failed"] for row in rows)
    assert read_document(folder / "config.json")["num-clients"] == 4
    assert read_document(folder / "summary.json")["num_clients"] == 4


def test_a_node_is_the_same_client_when_it_returns_under_another_id(
    experiment: Start, tmp_path: Path
) -> None:
    """Restarted without authentication, a SuperNode gets a new id; its secret is the old one."""

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 2:
            grid.join(**grid.leave(5001))

    grid = DeployedGrid(*own_nodes(tmp_path), before=before)
    folder = experiment("fedadw", grid=grid, num_rounds=4)
    assert read_document(folder / "config.json")["num-clients"] == 3
    rows = [row for row in read_lines(folder / "history.jsonl") if row["round"]]
    assert [row["clients"] for row in rows] == [3, 2, 3, 3]


@pytest.mark.parametrize("keeps_its_disk", [True, False])
def test_a_restarted_node_still_has_its_state(
    keeps_its_disk: bool, experiment: Start, tmp_path: Path
) -> None:
    """Restarted between two rounds, it ends in the same bits; with an empty disk it is left out."""

    def restart(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 2:
            node = grid.leave(5001)
            disk = tmp_path / ("state" if keeps_its_disk else "empty")
            grid.join(**(node | {"state_dir": str(disk)}))

    nodes = partitions(3, tmp_path / "state")
    disturbed = experiment("fedadw", grid=DeployedGrid(*nodes, after=restart), num_rounds=4)
    nodes = partitions(3, tmp_path / "other")
    quiet = experiment("fedadw", grid=DeployedGrid(*nodes), num_rounds=4)
    rows = [row for row in read_lines(disturbed / "history.jsonl") if row["round"]]
    assert models_equal(disturbed, quiet) == keeps_its_disk
    if keeps_its_disk:
        assert [row["clients"] for row in rows] == [3, 3, 3, 3]
        return
    assert [(row["clients"], row["failed"]) for row in rows] == [(3, 0), (3, 0), (2, 1), (2, 1)]
    assert notes(disturbed).count("client 0 has lost its state of round 2: restore its") == 1
    reasons = [r["reason"] for r in read_lines(disturbed / "clients.jsonl") if "reason" in r]
    assert all("state after round 2 is missing" in reason for reason in reasons) and reasons


@pytest.mark.parametrize("algo", ["scaffold", "fedavg"])
def test_a_node_that_lost_its_disk_before_a_resume_does_not_start_anew(
    algo: str, experiment: Start, tmp_path: Path
) -> None:
    """Only where its algorithm keeps state: of fedavg nothing is lost."""
    nodes = [
        {"partition_id": i, "num_partitions": 3, "state_dir": str(tmp_path / f"disk{i}")}
        for i in range(3)
    ]

    def stop(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grid = DeployedGrid(*nodes, before=stop)
        experiment(algo, grid=grid, run_name="cut", num_rounds=4)
    shutil.rmtree(tmp_path / "disk1")
    values = {"run-name": "cut", "results-dir": str(tmp_path / "runs"), "resume": True}
    folder = run(parse(values), DeployedGrid(*nodes), engine="deployed")
    rows = read_lines(folder / "clients.jsonl")
    failed = {(r["round"], r["client"]) for r in rows if r["status"] == "failed"}
    assert failed == ({(3, 1), (4, 1)} if algo == "scaffold" else set())
    lost = "client 1 has lost its state of round 2" in notes(folder)
    assert lost == (algo == "scaffold")


def test_a_resumed_run_knows_its_nodes_and_what_was_agreed(
    experiment: Start, tmp_path: Path
) -> None:
    nodes = own_nodes(tmp_path)

    def stop(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 3:
            raise KeyboardInterrupt

    settings: dict[str, Any] = dict(algo="fedadw", num_rounds=4)
    with pytest.raises(KeyboardInterrupt):
        experiment(grid=DeployedGrid(*nodes, before=stop), run_name="cut", **settings)
    values = {"run-name": "cut", "results-dir": str(tmp_path / "runs"), "resume": True}
    resumed = run(parse(values), DeployedGrid(*nodes[::-1]), engine="deployed")
    assert models_equal(resumed, experiment(grid=DeployedGrid(*nodes), **settings))


@pytest.mark.parametrize("algo", ["taco", "fedamp", "scaffold", "fedfomo", "apple", "fedavg"])
def test_a_run_stopped_right_after_a_node_joined_can_be_resumed(
    algo: str, experiment: Start, tmp_path: Path
) -> None:
    """The new node answers during a round, before anything has room for it."""
    nodes = own_nodes(tmp_path, 4)

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 2:
            grid.join(**nodes[3])
        if server_round == 3:
            raise KeyboardInterrupt

    settings: dict[str, Any] = {"num_rounds": 4, "personal_eval": "on"}
    settings |= NOBODY_EXPELLED.get(algo, {})
    with pytest.raises(KeyboardInterrupt):
        grid = DeployedGrid(*nodes[:3], before=before)
        experiment(algo, grid=grid, run_name="cut", **settings)
    values = {"run-name": "cut", "results-dir": str(tmp_path / "runs"), "resume": True}
    folder = run(parse(values), DeployedGrid(*nodes), engine="deployed")
    rows = [row for row in read_lines(folder / "history.jsonl") if row["round"]]
    assert [row["clients"] for row in rows] == [3, 3, 4, 4]


def test_images_in_folders_by_class(experiment: Start, tmp_path: Path) -> None:
    for node, low in (("a", 0), ("b", 100)):
        rows = digits_rows(low, low + 100).to_pylist()
        for number, row in enumerate(rows):
            folder = tmp_path / node / f"digit {row['label']}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.png").write_bytes(row["image"]["bytes"])
    nodes = [{"data_path": str(tmp_path / n), "state_dir": str(tmp_path / "s")} for n in "ab"]
    grid = DeployedGrid(*nodes)
    folder = experiment("fedavg", grid=grid, dataset="own", num_rounds=8, model="auto")
    schema = read_document(folder / "schema.json")
    assert schema["shape"] == [1, 8, 8]
    assert len(schema["classes"]) == 10
    assert read_document(folder / "summary.json")["final_accuracy"] > 0.4
