"""Which nodes are accepted, refused or waited for, and a node's own privacy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import (
    DeployedGrid,
    digits_parquet,
    notes,
    own_nodes,
    partitions,
    visits_csv,
)
from flwr.app import ConfigRecord, Error, Message

from fedsuite.config import parse
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.messages import read_instructions, read_result, write_references
from fedsuite.core.protocol import OWN
from fedsuite.core.settings import UserError
from fedsuite.core.vector_files import Reference, vector_files
from fedsuite.nodes import deployed, queries
from fedsuite.nodes.deployed import DeployedNodes
from fedsuite.records import writer
from fedsuite.records.folder import RunFolder
from fedsuite.report.build import make_report
from fedsuite.training.loop import run

Start = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("no_waiting")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "neither": ({}, "does not name this node's data"),
    "both": ({"data_path": ".", "partition_id": 0}, "contradict each other"),
    "half": ({"partition_id": 0}, "does not name this node's data"),
    "outside": ({"partition_id": 3, "num_partitions": 3}, "below num-partitions"),
    "no number": ({"partition_id": "a", "num_partitions": 3}, "below num-partitions"),
    "other count": (
        {"partition_id": 2, "num_partitions": 4},
        "nodes have num-partitions = 2",
    ),
    "other kind": ({"data_path": "DATA"}, "start all with data-path"),
    "no such path": ({"data_path": "/nowhere/at/all"}, "does not exist on this node"),
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
    node_side = [r.getMessage() for r in caplog.records if r.name == "fedsuite.client_app"]
    assert any(sentence in line for line in node_side)


def test_two_nodes_with_one_partition_do_not_count_twice(
    experiment: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second waits; when the first disconnects it takes over."""
    first, second = partitions(2, tmp_path / "state")

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 2:
            grid.leave(5001)

    grid = DeployedGrid(first, first, second, before=before)
    folder = experiment("fedavg", grid=grid, num_rounds=3)
    rows = read_lines(folder / "history.jsonl")[1:]
    assert [row["clients"] for row in rows] == [2, 1, 2]
    assert "belongs to another connected node" in caplog.text


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
    monkeypatch.setattr(deployed, "LATE_SECONDS", 0.2)
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
    with pytest.raises(
        UserError, match="invalid value '3' for min-train-clients: the nodes have 2"
    ):
        experiment("fedavg", grid=grid, min_train_clients=3)


def test_a_node_whose_table_does_not_fit_is_refused(
    experiment: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The majority decides, whoever answers first."""
    paths = [visits_csv(tmp_path / f"{i}.csv", i) for i in range(2)]
    odd = visits_csv(tmp_path / "odd.csv", 2, height=np.arange(60.0))
    nodes = [{"data_path": str(p), "state_dir": str(tmp_path / "s")} for p in (odd, *paths)]
    folder = experiment("fedavg", grid=DeployedGrid(*nodes), dataset="own")
    assert read_document(folder / "config.json")["num-clients"] == 2
    assert "it has numeric columns ['age', 'height', 'pulse']" in notes(folder)
    node_side = [r.getMessage() for r in caplog.records if r.name == "fedsuite.client_app"]
    assert any("most other nodes have numeric columns" in line for line in node_side)


def test_a_late_node_with_words_where_numbers_were_agreed_is_refused(
    experiment: Start, tmp_path: Path
) -> None:
    paths = [visits_csv(tmp_path / f"{i}.csv", i) for i in range(2)]
    odd = visits_csv(tmp_path / "odd.csv", 2, pulse=["high"] * 60)
    disk: dict[str, Any] = {"state_dir": str(tmp_path / "s")}

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 1:
            grid.join(data_path=str(odd), **disk)

    grid = DeployedGrid(*({"data_path": str(p), **disk} for p in paths), before=before)
    folder = experiment("fedavg", grid=grid, dataset="own", num_rounds=3)
    assert "it has no numeric column 'pulse'" in notes(folder)
    assert read_document(folder / "config.json")["num-clients"] == 2


def test_one_node_with_another_count_does_not_lock_out_the_rest(
    experiment: Start, tmp_path: Path
) -> None:
    wrong = {"partition_id": 0, "num_partitions": 5, "state_dir": str(tmp_path / "state")}
    grid = DeployedGrid(wrong, *partitions(3, tmp_path / "state"))
    folder = experiment("fedavg", grid=grid)
    assert read_document(folder / "config.json")["num-clients"] == 3


def test_a_refused_node_that_is_corrected_is_accepted(
    experiment: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a key a SuperNode keeps its id, so that a restart cannot be seen."""
    monkeypatch.setattr(queries, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(deployed, "LATE_SECONDS", 0.0)
    first, second = partitions(2, tmp_path / "state")

    def before(grid: DeployedGrid, server_round: int) -> None:
        if server_round == 2:
            grid.leave(5002)
            grid.join(5002, **second)

    grid = DeployedGrid(first, {"state_dir": str(tmp_path / "state")}, before=before)
    folder = experiment("fedavg", grid=grid, num_rounds=5)
    assert read_lines(folder / "history.jsonl")[-1]["clients"] == 2


def test_what_cannot_be_read_costs_its_sender_alone(experiment: Start, tmp_path: Path) -> None:
    """Flower reads a reply's objects as it fetches them, and raises on garbage."""

    class GarbledGrid(DeployedGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            replies = list(super().pull_messages(message_ids))
            bad = [r for r in replies if r.metadata.src_node_id == 5002]
            if bad and bad[0].metadata.message_type == "train":
                raise IndexError("list index out of range")
            return replies

    grid = GarbledGrid(*partitions(3, tmp_path / "state"))
    folder = experiment("fedavg", grid=grid)
    rows = read_lines(folder / "history.jsonl")[1:]
    assert [(row["clients"], row["failed"]) for row in rows] == [(2, 1), (2, 1)]
    reasons = [r["reason"] for r in read_lines(folder / "clients.jsonl") if "reason" in r]
    assert all("cannot be read" in reason for reason in reasons)


@pytest.mark.parametrize("kind", ["own", "partition"])
def test_a_node_trains_on_what_it_has_whatever_it_is_asked(
    kind: str, experiment: Start, tmp_path: Path
) -> None:
    """A server that names its folder, another partition or another's secret gets nothing."""
    nodes = own_nodes(tmp_path) if kind == "own" else partitions(3, tmp_path / "state")
    grid = DeployedGrid(*nodes)
    experiment("fedavg", grid=grid, num_rounds=1)
    messages = [m for m in grid.heard if m.metadata.message_type == "train"]
    first, other = messages[0], messages[1]
    forged = dict(first.content.config_records["config"]) | {"run-dir": str(tmp_path / "theirs")}
    first.content["config"] = ConfigRecord(forged)
    assert read_result(grid._handle(first).content, 0).error == ""
    assert not (tmp_path / "theirs").exists()
    stolen = Message(other.content, first.metadata.dst_node_id, "train")
    said = read_result(grid._handle(stolen).content, 1).error
    assert "only on" in said or "and no other data" in said


@pytest.mark.parametrize("kind", ["own", "partition"])
def test_a_node_opens_no_file_of_vectors_that_a_server_names(
    kind: str, experiment: Start, tmp_path: Path
) -> None:
    """Not even one of its own user's; and its update goes into the reply, to no place."""
    nodes = own_nodes(tmp_path) if kind == "own" else partitions(3, tmp_path / "state")
    grid = DeployedGrid(*nodes)
    experiment("fedavg", grid=grid, num_rounds=1)
    first = next(m for m in grid.heard if m.metadata.message_type == "train")
    size = read_instructions(first.content)[0].arrays["model"].size
    with vector_files(tmp_path / "run") as files:
        place = {"update": Reference("d1-0", 0, (size,))}
        files.path("d1-0").write_bytes(b"\0" * 4 * size)
        forged = dict(first.content.config_records["config"]) | files.header
        first.content["config"] = ConfigRecord(forged | {"run-dir": str(tmp_path / "theirs")})
        first.content["places.0"] = write_references(place)
        assert read_result(grid._handle(first).content, 0).arrays["update"].any()
        assert not any(files.path("d1-0").read_bytes())
        first.content["shared"] = write_references({"model": place["update"]})
        assert "reference to a file" in str(grid._handle(first).error.reason)


def test_what_nodes_own_cannot_be_simulated(experiment: Start) -> None:
    with pytest.raises(UserError, match="only deployed SuperNodes have data of their own"):
        experiment("fedavg", dataset="own")
    with pytest.raises(UserError, match="for a simulation see `fedsuite list partitions`"):
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


def test_incomplete_privacy_settings_are_refused(experiment: Start, tmp_path: Path) -> None:
    nodes = partitions(3, tmp_path / "state")
    grid = DeployedGrid(nodes[0], nodes[1], nodes[2] | {"dp_epsilon": 1.0})
    with pytest.raises(ConnectionError, match="privacy needs all three"):
        experiment("fedavg", grid=grid, min_train_clients=3, round_timeout=0.5)


@pytest.mark.usefixtures("no_pictures")
def test_a_report_of_own_data_says_that_labels_stay_where_they_are(
    experiment: Start, tmp_path: Path
) -> None:
    nodes = [{"data_path": str(visits_csv(tmp_path / f"{i}.csv", i))} for i in range(2)]
    node_configs = [node | {"state_dir": str(tmp_path / "s")} for node in nodes]
    folder = experiment("taco", grid=DeployedGrid(*node_configs), dataset="own")
    make_report(str(folder), tmp_path / "report")
    page = (tmp_path / "report" / "report.md").read_text()
    assert "every node has its own data, whose labels are not sent" in page
    assert "finished" in page


def test_what_is_recorded_of_a_run_on_own_data_can_be_run_again(
    experiment: Start, tmp_path: Path
) -> None:
    """A partition's setting has no effect on data of the nodes' own."""
    grid = DeployedGrid(*own_nodes(tmp_path))
    words = {"dirichlet_alpha": 0.1, "partition": "dirichlet", "num_rounds": 1}
    folder = experiment("fedavg", grid=grid, dataset="own", **words)
    config = RunFolder(folder).read_config()
    assert config.partition == OWN and "dirichlet-alpha" not in config.command()
    assert parse(config.flat(), idle="refuse") == config


def test_a_run_that_ended_before_its_schema_was_written_is_resumed(
    experiment: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is free at once, its nodes are those with data of their own."""
    nodes = own_nodes(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DeployedNodes, "save", interrupted)
        experiment("fedavg", grid=DeployedGrid(*nodes), run_name="cut", num_rounds=1)
    monkeypatch.setattr(writer, "LOCK_WAIT", 0.0)
    values = {"run-name": "cut", "results-dir": str(tmp_path / "runs"), "resume": True}
    folder = run(parse(values), DeployedGrid(*nodes), engine="deployed")
    assert read_document(folder / "schema.json")["shape"] == [1, 8, 8]
    assert read_lines(folder / "history.jsonl")[-1]["clients"] == 3


def interrupted(nodes: DeployedNodes, folder: Path) -> None:
    raise KeyboardInterrupt
