"""A real federation on loopback: SuperLink and SuperNodes over gRPC, with TLS and keys.

One federation of two nodes serves all tests of this file, since starting it takes a while.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path

import processes
import psutil
import pytest

from fedsuite.cli.main import main
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.processes import MARK, Process, kill
from fedsuite.core.settings import UserError
from fedsuite.deploy.federation import (
    SUPERLINK,
    Federation,
    await_nodes,
    make_node,
    plan,
    read_plan,
    restart_supernode,
    start_superlink,
    start_supernode,
)
from fedsuite.deploy.keys import make_key, public_half, register
from fedsuite.deploy.pid_files import start_with_pid_file
from fedsuite.deploy.up_down_status import down, status, up
from fedsuite.flower.commands import flwr, free_ports, online_nodes
from fedsuite.flower.connections import connection_names
from fedsuite.flower.forks import SERVER_NAME, SUPEREXEC, can_fork

NODES = 2
SETTINGS = ["num-rounds=2", "seed=3", "model=mlp"]  # trained together inline, alone when deployed
ENTRY = "local-deployment"


def left_over(mark: str) -> list[psutil.Process]:
    """Return the processes that still carry a federation's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").startswith(mark):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return [p for p in found if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder, with a Flower home of its own."""
    folder = tmp_path_factory.mktemp("deployment")
    before = os.environ.get("FLWR_HOME")
    os.environ["FLWR_HOME"] = str(folder / "flower")
    yield folder
    if before is None:
        del os.environ["FLWR_HOME"]
    else:
        os.environ["FLWR_HOME"] = before


@pytest.fixture(scope="module")
def federation(place: Path) -> Iterator[Federation]:
    """``fedsuite deploy up --nodes 2 --tls --auth``, and ``down`` afterwards."""
    words = ["deploy", "up", "--nodes", str(NODES), "--tls", "--auth", "--dir", "hub"]
    code, out = processes.finish(words, place)
    found = read_plan(place / "hub")
    assert found is not None, out
    try:
        assert code == 0, out
        assert f"{NODES} SuperNodes are online" in out
        yield found
    finally:
        code, said = processes.finish(["deploy", "down", "--dir", "hub"], place)
        left = left_over(found.mark)
        kill(*found.processes())
    assert code == 0 and "ended superlink" in said and "ended node-1" in said, said
    assert not left
    assert ENTRY not in connection_names()
    assert "nothing is running" in processes.finish(["deploy", "down", "--dir", "hub"], place)[1]


@pytest.mark.deploy
def test_up_says_how_to_use_it_and_is_not_done_twice(
    federation: Federation, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ENTRY in connection_names()
    assert main(["deploy", "up", "--dir", str(place / "hub")]) == 2
    assert "already running" in capsys.readouterr().err
    assert main(["deploy", "up", "--dir", str(place / "other")]) == 2
    assert "--connection NAME" in capsys.readouterr().err
    assert not (place / "other").exists()


@pytest.mark.deploy
def test_status_shows_nodes_security_and_expiry(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "status", "--dir", str(federation.folder)]) == 0
    said = capsys.readouterr().out
    assert "TLS and keys" in said and "2 of 2 online" in said and "certificate expires" in said


@pytest.mark.deploy
def test_a_key_is_registered_once(
    federation: Federation, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["deploy", "keys", "1", "--dir", str(place / "spare"), "--register", ENTRY]
    assert main(words) == 0
    assert "registered at" in capsys.readouterr().out
    assert main(words) == 0
    assert "was registered already" in capsys.readouterr().out
    assert not register(public_half(federation.key(0)), ENTRY)


@pytest.mark.deploy
def test_a_key_can_be_unregistered(federation: Federation, tmp_path: Path) -> None:
    """``flwr supernode unregister NODE-ID NAME``, as the guide has it."""

    def nodes() -> set[str]:
        listed = flwr(["supernode", "list", ENTRY], federation.home)["nodes"]
        return {str(node["node-id"]) for node in listed if node["status"] != "unregistered"}

    before = nodes()
    make_key(tmp_path / "guest")
    register(public_half(tmp_path / "guest"), ENTRY, federation.home)
    (guest,) = nodes() - before
    flwr(["supernode", "unregister", guest, ENTRY], federation.home)
    assert nodes() == before


@pytest.mark.deploy
def test_a_node_without_a_registered_key_is_rejected(
    federation: Federation, tmp_path: Path
) -> None:
    before = online_nodes(ENTRY)
    make_key(tmp_path / "stranger")
    node = make_node(federation.folder, 9, free_ports(1)[0], NODES)
    process = start_supernode(federation, node, tmp_path / "stranger")
    deadline = time.monotonic() + 120
    while process.is_running() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not process.is_running()
    assert "Failed to activate SuperNode" in federation.log(node.name).read_text()
    assert online_nodes(ENTRY) == before and len(before) == NODES
    (federation.folder / "pids" / f"{node.name}.json").unlink()


@pytest.fixture(scope="module")
def deployed(federation: Federation, place: Path) -> Path:
    """The folder of a run on the federation, started as a user would."""
    words = ["run", "taco", *SETTINGS, "--superlink", ENTRY, "--name", "far"]
    code, out = processes.finish(words, place, seconds=600)
    assert code == 0, out
    assert "round 2/2" in out and "finished" in out
    return place / "runs" / "far"


@pytest.mark.deploy
def test_a_deployed_run_gives_the_inline_bits(deployed: Path, place: Path) -> None:
    words = ["run", "taco", *SETTINGS, f"num-clients={NODES}", "--engine", "inline"]
    assert main([*words, f"results-dir={place / 'runs'}", "--name", "near"]) == 0
    near = place / "runs" / "near"
    models = [(folder / "model.safetensors").read_bytes() for folder in (deployed, near)]
    assert models[0] == models[1]


@pytest.mark.deploy
@pytest.mark.usefixtures("no_pictures")
def test_a_deployed_run_leaves_the_same_record(deployed: Path, place: Path) -> None:
    rows = read_lines(deployed / "history.jsonl")
    assert [row["round"] for row in rows] == [0, 1, 2]
    clients = read_lines(deployed / "clients.jsonl")
    assert {(row["round"], row["client"]) for row in clients} == {
        (number, client) for number in (1, 2) for client in range(NODES)
    }
    summary = read_document(deployed / "summary.json")
    assert summary["status"] == "finished" and summary["rounds"] == 2
    assert "round 2/2" in (deployed / "run.log").read_text()
    report = place / "report"
    assert main(["report", str(deployed), "-o", str(report)]) == 0
    assert "taco" in (report / "report.md").read_text()


@pytest.mark.deploy
def test_only_registered_nodes_took_part(deployed: Path, federation: Federation) -> None:
    for node in federation.nodes:
        assert "Receiving: train message" in federation.log(node.name).read_text()
    assert {row["client"] for row in read_lines(deployed / "clients.jsonl")} == {0, 1}


@pytest.mark.deploy
@pytest.mark.skipif(not can_fork(), reason="this system forks no such processes")
def test_services_fork_their_superexec_and_tasks(deployed: Path, federation: Federation) -> None:
    """A server of forks knows the CPU time of its children that have ended, here tasks alone."""
    services = [process.find() for process in federation.processes()]
    assert len(services) == 1 + NODES
    for service in services:
        assert service is not None
        (server,) = (child for child in service.children() if child.name() == SERVER_NAME)
        assert server.num_threads() == 1
        assert any(SUPEREXEC.startswith(child.name()) for child in server.children())
        used = server.cpu_times()
        assert used.children_user + used.children_system > 0.1


@pytest.fixture(scope="module")
def killed(federation: Federation, deployed: Path) -> set[str]:
    """Kill a node; return which were online before.

    The SuperLink believes it online for up to a minute, in which other tests have their turn.
    """
    before = online_nodes(ENTRY)
    process = federation.process("node-1")
    assert process is not None
    kill(process)
    assert not process.is_running() and not left_over(process.mark)
    return before


@pytest.mark.deploy
def test_a_killed_node_is_missed(
    federation: Federation, killed: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "status", "--dir", str(federation.folder)]) == 1
    assert "node-1      has ended" in capsys.readouterr().out


@pytest.mark.deploy
def test_a_run_that_fails_there_ends_with_its_reason(federation: Federation, place: Path) -> None:
    words = ["run", "fedavg", "resume=true", "--superlink", ENTRY, "--name", "nothing"]
    code, out = processes.finish(words, place)
    assert code == 1
    assert "finished:failed" in out and "There is nothing to resume" in out


@pytest.mark.deploy
def test_up_that_fails_leaves_nothing_behind(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[Process] = []

    def broken(federation: Federation, node: object) -> Process:
        made.append(
            start_with_pid_file(
                "node-0",
                ["sh", "-c", "echo no disk; exit 3"],
                os.environ,
                mark=f"{federation.mark}/node-0",
                log=federation.log("node-0"),
                cwd=tmp_path,
                pids=federation.folder / "pids",
            )
        )
        return made[-1]

    monkeypatch.setattr("fedsuite.deploy.up_down_status.start_supernode", broken)
    with pytest.raises(UserError, match=r"node-0 has ended\.(.|\n)*no disk"):
        up(tmp_path / "half", 1, print, connection="half")
    found = read_plan(tmp_path / "half")
    assert found is not None and not left_over(found.mark)
    assert "half" not in connection_names()


@pytest.mark.deploy
def test_a_killed_node_comes_back_as_the_same_node(
    federation: Federation, killed: set[str]
) -> None:
    restart_supernode(federation, federation.nodes[1])
    assert online_nodes(ENTRY) == killed


@pytest.mark.deploy
def test_a_restarted_superlink_knows_its_runs_and_nodes(
    federation: Federation, deployed: Path
) -> None:
    process = federation.process(SUPERLINK)
    assert process is not None
    kill(process)
    start_superlink(federation)
    await_nodes(federation, NODES)
    runs = flwr(["list", ENTRY])["runs"]
    assert "finished:completed" in [run["status"] for run in runs]


def test_a_superlink_is_asked_for_its_nodes_only_once_they_have_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node connects during the third pause."""
    made = plan(tmp_path / "x", 1)
    log = made.log("node-0")
    log.write_text("starting\n")
    pauses, asked = [], []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            log.write_text("starting\nSuperNode ID: 7\n")

    def ask(*rest: object) -> set[str]:
        asked.append(len(pauses))
        return {"7"}

    monkeypatch.setattr("fedsuite.deploy.federation.time.sleep", pause)
    monkeypatch.setattr("fedsuite.deploy.federation.online_nodes", ask)
    await_nodes(made, 1, [dataclasses.replace(Process.current(), name="node-0")])
    assert asked == [3]


def test_without_a_federation_down_is_fine_and_status_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    assert down(tmp_path, said.append) == []
    assert "nothing to end" in said[0]
    with pytest.raises(UserError, match="fedsuite deploy up"):
        status(tmp_path)


def test_a_plan_is_kept(tmp_path: Path) -> None:
    data = [tmp_path / "a.csv", tmp_path / "b.csv"]
    made = plan(tmp_path / "x", 2, auth=True, data=data)
    assert read_plan(tmp_path / "x") == made
    assert made.tls and len({made.port, made.fleet_port, *(n.port for n in made.nodes)}) == 4
    assert [node.config["data-path"] for node in made.nodes] == [str(path) for path in data]
    assert "partition-id" not in made.nodes[0].config


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--nodes", "3", "--data", "here"], "1 path for 3 SuperNodes"),
        (["--data", "nowhere.csv"], "does not exist"),
    ],
)
def test_data_that_does_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert main(["deploy", "up", "--dir", str(tmp_path / "x"), *words]) == 2
    assert expected in capsys.readouterr().err
