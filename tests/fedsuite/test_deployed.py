"""Runs on deployed nodes, without processes: who takes part, with what, and as which client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from federations import DeployedGrid, digits_parquet, digits_rows, partitions, visits_csv
from flwr.app import Error, Message
from safetensors.numpy import load_file

from fedsuite import registry
from fedsuite.config import parse
from fedsuite.node import read_place
from fedsuite.record import read_document, read_lines
from fedsuite.settings import UserError
from fedsuite.training import run
from strategies import members as members_module
from strategies.members import member_name
from tasks.datasets import DATASETS
from tasks.sources import find_source
from tasks.task import open_task

Start = Callable[..., Path]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(members_module, "POLL_SECONDS", 0.01)


def models_equal(one: Path, other: Path) -> bool:
    a, b = (load_file(folder / "model.safetensors") for folder in (one, other))
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def notes(folder: Path) -> str:
    return " ".join(str(row.get("note", "")) for row in read_lines(folder / "history.jsonl"))


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


def test_a_deployed_node_is_told_no_path_of_the_server(experiment: Start, tmp_path: Path) -> None:
    grid = DeployedGrid(*partitions(2, tmp_path / "state"))
    folder = experiment("fedadw", grid=grid, num_rounds=1)
    orders = [m.content.config_records["config"] for m in grid.heard]
    assert all("run-dir" not in order for order in orders)
    assert not (folder / "clients").exists()
    assert list((tmp_path / "state").glob("*/clients/*/*.safetensors"))


def test_training_goes_on_without_a_node_that_dies_and_with_it_when_it_is_back(
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
    """Two are needed; with one gone for good, rounds are empty and the run says so."""

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 1:
            grid.leave(5001)

    grid = DeployedGrid(*partitions(2, tmp_path / "state"), before=before)
    with pytest.raises(Exception, match="3 rounds in a row"):
        experiment(
            "fedavg", grid=grid, num_rounds=9, min_train_clients=2, round_timeout=0.2, run_name="w"
        )
    rows = read_lines(tmp_path / "runs" / "w" / "history.jsonl")
    assert "fewer than min-train-clients = 2" in rows[-1]["note"]


def own_nodes(tmp_path: Path, count: int = 3) -> list[dict[str, Any]]:
    paths = [digits_parquet(tmp_path / f"{i}.parquet", 80 * i, 80 * i + 80) for i in range(count)]
    return [{"data_path": str(path), "state_dir": str(tmp_path / "state")} for path in paths]


def test_own_rows_give_the_same_bits_as_the_partitions_they_were_cut_from(
    experiment: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes' sums add up to the mean and deviation of all training rows.

    Nodes are numbered by the hash of their secrets, so the partitions are laid out in that order.
    """
    places = [{"data_path": str(tmp_path / f"{i}"), "state_dir": str(tmp_path)} for i in range(3)]
    for place in places:
        Path(place["data_path"]).mkdir()
    places.sort(key=lambda p: member_name(read_place(kebab(p)).identity))
    rows = find_source(DATASETS["digits"], "").read().train
    simulated = experiment("taco", num_clients=3)
    split = open_task(parse({"num-clients": 3}).task).split
    for place, part in zip(places, split.train, strict=True):
        pq.write_table(rows.take(part), Path(place["data_path"]) / "rows.parquet")
    monkeypatch.setattr("fedsuite.node.open_task", lambda spec: pytest.fail("took a partition"))
    deployed = experiment("taco", grid=DeployedGrid(*places))
    assert models_equal(deployed, simulated)
    a, b = (read_document(run / "summary.json") for run in (deployed, simulated))
    assert (a["final_accuracy"], a["num_clients"]) == (b["final_accuracy"], 3)


def kebab(place: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in place.items()}


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


@pytest.mark.parametrize("algo", sorted(registry.ALGORITHMS))
def test_a_node_that_comes_late_becomes_a_client(
    algo: str, experiment: Start, tmp_path: Path
) -> None:
    nodes = own_nodes(tmp_path, 4)

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 2:
            grid.join(**nodes[3])

    grid = DeployedGrid(*nodes[:3], before=before)
    folder = experiment(algo, grid=grid, num_rounds=4)
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
    """Restarted between two rounds, it goes on to the same bits; with an empty disk it does not."""

    def restart(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 2:
            node = grid.leave(5001)
            place = tmp_path / ("state" if keeps_its_disk else "empty")
            grid.join(**(node | {"state_dir": str(place)}))

    nodes = partitions(3, tmp_path / "state")
    disturbed = experiment("fedadw", grid=DeployedGrid(*nodes, after=restart), num_rounds=4)
    nodes = partitions(3, tmp_path / "other")
    quiet = experiment("fedadw", grid=DeployedGrid(*nodes), num_rounds=4)
    rows = [row for row in read_lines(disturbed / "history.jsonl") if row["round"]]
    assert [row["clients"] for row in rows] == [3, 3, 3, 3]
    assert models_equal(disturbed, quiet) == keeps_its_disk


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
    resumed = run(parse(values), DeployedGrid(*nodes[::-1]), engine="flower")
    assert models_equal(resumed, experiment(grid=DeployedGrid(*nodes), **settings))


REFUSED = {
    "neither": ({}, "not which data this node has"),
    "both": ({"data_path": ".", "partition_id": 0}, "contradict each other"),
    "half": ({"partition_id": 0}, "not which data this node has"),
    "outside": ({"partition_id": 3, "num_partitions": 3}, "below num-partitions"),
    "no number": ({"partition_id": "a", "num_partitions": 3}, "below num-partitions"),
    "other count": ({"partition_id": 2, "num_partitions": 4}, "contradicts the other nodes"),
    "other kind": ({"data_path": "DATA"}, "start all nodes with"),
    "no such path": ({"data_path": "/nowhere/at/all"}, "is not on this node"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_node_config_is_refused_on_both_sides(
    case: str, experiment: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, sentence = REFUSED[case]
    data = str(digits_parquet(tmp_path / "rows.parquet", 0, 50))
    wrong = {key: data if value == "DATA" else value for key, value in wrong.items()}

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 1:
            grid.join(**wrong, state_dir=str(tmp_path / "state"))

    grid = DeployedGrid(*partitions(2, tmp_path / "state"), before=before)
    folder = experiment("fedavg", grid=grid, num_rounds=3)
    assert [r["clients"] for r in read_lines(folder / "history.jsonl")[1:]] == [2, 2, 2]
    assert sentence in notes(folder)
    node_side = [r.getMessage() for r in caplog.records if r.name == "fedsuite.node"]
    assert any(sentence in line for line in node_side)


def test_two_nodes_with_one_partition_do_not_count_twice(
    experiment: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second waits; when the first is gone it takes its place."""
    first, second = partitions(2, tmp_path / "state")

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 2:
            grid.leave(5001)

    grid = DeployedGrid(first, first, second, before=before)
    folder = experiment("fedavg", grid=grid, num_rounds=3)
    rows = read_lines(folder / "history.jsonl")[1:]
    assert [row["clients"] for row in rows] == [2, 1, 2]
    assert "held by another node" in caplog.text


class ForgetfulGrid(DeployedGrid):
    """The node of this id fails to answer the first ``failures`` times, or never does."""

    def __init__(self, *nodes: dict[str, Any], node: int, failures: int) -> None:
        self.node, self.failures = node, failures
        super().__init__(*nodes)

    def _handle(self, message: Message) -> Message:
        if message.metadata.dst_node_id == self.node and self.failures:
            self.failures -= 1
            return Message(Error(2, "out of memory"), reply_to=message)
        return super()._handle(message)


def test_a_node_that_fails_to_answer_is_asked_again(experiment: Start, tmp_path: Path) -> None:
    nodes = partitions(2, tmp_path / "state")
    folder = experiment("fedavg", grid=ForgetfulGrid(*nodes, node=5001, failures=2))
    assert [row["clients"] for row in read_lines(folder / "history.jsonl")[1:]] == [2, 2]


def test_a_node_that_never_answers_does_not_hold_up_the_others(
    experiment: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_module, "LATE_SECONDS", 0.2)
    grid = ForgetfulGrid(*own_nodes(tmp_path), node=5001, failures=99)
    folder = experiment("fedavg", grid=grid)
    assert [row["clients"] for row in read_lines(folder / "history.jsonl")[1:]] == [2, 2]


def test_a_run_that_every_node_refuses_ends_with_their_sentences(
    experiment: Start, tmp_path: Path
) -> None:
    nodes = own_nodes(tmp_path)
    with pytest.raises(ConnectionError, match="has no column 'income'"):
        experiment("fedavg", grid=DeployedGrid(*nodes), dataset="own", label_column="income")


def test_more_clients_than_partitions_are_not_waited_for(experiment: Start, tmp_path: Path) -> None:
    grid = DeployedGrid(*partitions(2, tmp_path / "state"))
    with pytest.raises(UserError, match="min-train-clients = 3 is not possible: the nodes hold 2"):
        experiment("fedavg", grid=grid, min_train_clients=3)


def test_nodes_whose_tables_do_not_fit_are_told_so(experiment: Start, tmp_path: Path) -> None:
    one = visits_csv(tmp_path / "one.csv", 1)
    other = visits_csv(tmp_path / "other.csv", 2, height=np.arange(60.0))
    nodes = [{"data_path": str(p), "state_dir": str(tmp_path / "s")} for p in (one, other)]
    with pytest.raises(UserError, match="do not fit together"):
        experiment("fedavg", grid=DeployedGrid(*nodes), dataset="own")


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


def test_what_nodes_own_cannot_be_simulated(experiment: Start) -> None:
    with pytest.raises(UserError, match="what deployed SuperNodes have themselves"):
        experiment("fedavg", dataset="own")
    with pytest.raises(UserError, match="a simulation divides its rows"):
        experiment("fedavg", partition="own")


PRIVATE = {"dp_clipping_norm": 0.5, "dp_epsilon": 1e6, "dp_delta": 1e-5}


def test_a_node_that_asks_for_privacy_sends_a_clipped_and_noised_update(
    experiment: Start, tmp_path: Path
) -> None:
    """Hardly any noise (std 2 * 0.5 * sqrt(2 ln 1.25e5) / 1e6 = 5e-6): the norm is 0.5."""
    open_node, private_node = partitions(2, tmp_path / "state")
    grid = DeployedGrid(open_node, private_node | PRIVATE)
    folder = experiment("taco", grid=grid, num_rounds=1)
    lengths = {row["client"]: row["norm"] for row in read_lines(folder / "clients.jsonl")}
    assert lengths[1] == pytest.approx(0.5, rel=1e-3)
    assert lengths[0] > 0.6


def test_the_noise_is_as_large_as_promised(experiment: Start, tmp_path: Path) -> None:
    """Client 1 sends 2834 numbers of std 2 * 0.5 * 4.845 / 10 = 0.4845 and little else."""
    open_node, private_node = partitions(2, tmp_path / "state")
    grid = DeployedGrid(open_node, private_node | PRIVATE | {"dp_epsilon": 10.0})
    folder = experiment("taco", grid=grid, num_rounds=1)
    lengths = {row["client"]: row["norm"] for row in read_lines(folder / "clients.jsonl")}
    assert lengths[1] == pytest.approx(0.4845 * 2834**0.5, rel=0.1)


def test_a_method_that_sends_more_than_its_update_is_refused_by_a_private_node(
    experiment: Start, tmp_path: Path
) -> None:
    open_node, private_node = partitions(2, tmp_path / "state")
    folder = experiment("fedtgp", grid=DeployedGrid(open_node, private_node | PRIVATE))
    rows = [row for row in read_lines(folder / "clients.jsonl") if row["phase"] == "train"]
    assert all("sends more than an update" in row["reason"] for row in rows if row["client"] == 1)


def test_half_a_wish_for_privacy_is_refused(experiment: Start, tmp_path: Path) -> None:
    nodes = partitions(3, tmp_path / "state")
    grid = DeployedGrid(nodes[0], nodes[1], nodes[2] | {"dp_epsilon": 1.0})
    with pytest.raises(ConnectionError, match="privacy needs all three"):
        experiment("fedavg", grid=grid, min_train_clients=3, round_timeout=0.5)
