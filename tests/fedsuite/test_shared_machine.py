"""What another user of the machine can do with a run: nothing. Needs root, to become ``nobody``."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import processes
import psutil
import pytest
from other_user import need_root, run_as_nobody

from fedsuite.core import scratch
from fedsuite.core.processes import Child
from fedsuite.deploy.federation import Federation
from fedsuite.deploy.lifecycle import down, up
from fedsuite.flower.commands import is_healthy, online_nodes
from fedsuite.records.folder import RunFolder

HTTP = "import encodings.idna, ssl, urllib.request, urllib.error"
ASK = """
def ask(port, path="/health", scheme="http"):
    context = ssl._create_unverified_context()
    url = f"{scheme}://127.0.0.1:{port}{path}"
    try:
        return urllib.request.urlopen(url, timeout=10, context=context).status
    except urllib.error.HTTPError as refused:
        return refused.code

def read(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(9).hex()
    except PermissionError:
        return "denied"
"""
RAY = """
from ray._raylet import GcsClient
try:
    answer = len(GcsClient(address="{address}").get_all_node_info())
except Exception as refused:
    answer = type(refused).__name__
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder that others may enter, with a Flower home of its own."""
    need_root()
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_HOME", str(folder / "flower"))
        patch.chdir(folder)
        yield folder


class RayRun:
    """A run on Ray, and where its services are."""

    def __init__(self, folder: Path) -> None:
        words = ["run", "fedavg", "model=mlp", "num-clients=2", "num-rounds=5000", "--name", "run"]
        self.process: Child = processes.start([*words, "--nodes", "1"], folder)
        self.files = RunFolder(folder / "runs" / "run")

    def await_round(self, number: int) -> None:
        """Wait until a round is recorded."""
        deadline = time.monotonic() + 240
        while processes.lines_in(self.files.history_file) <= number:
            assert self.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)

    def member(self, word: str) -> psutil.Process:
        """Return the first of its processes with a word in its command."""
        family = self.process.identity.family()
        return next(p for p in family if any(word in part for part in _command(p)))

    def option(self, word: str, name: str) -> str:
        """Return an option of that process."""
        words = [part for w in _command(self.member(word)) for part in w.split("=", 1)]
        return words[words.index(name) + 1]


@pytest.fixture(scope="module")
def ray_run(place: Path) -> Iterator[RayRun]:
    run = RayRun(place)
    try:
        run.await_round(1)
        yield run
    finally:
        processes.kill_all(run.process)


@pytest.mark.ray
def test_another_user_reaches_no_superlink(ray_run: RayRun) -> None:
    """Neither submit nor list nor read: every path of its one port is refused."""
    port = int(ray_run.option("flower-superlink", "--port"))
    assert is_healthy(port)
    paths = ["/health", "/docs", "/openapi.json", "/v1/runtime/responses"]
    code = f"{ASK}\nanswer = [ask({port}, path) for path in {paths}]"
    assert run_as_nobody(HTTP, code) == [403] * len(paths)


@pytest.mark.ray
def test_another_user_joins_no_ray(ray_run: RayRun) -> None:
    code = RAY.format(address=ray_run.option("raylet", "--gcs-address"))
    token = ray_run.member("flower-superlink").environ()["RAY_AUTH_TOKEN"]
    knowing = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    assert run_as_nobody("import ray", code, knowing) == 1
    assert run_as_nobody("import ray", code, knowing | {"RAY_AUTH_TOKEN": "0" * 64}) != 1
    assert run_as_nobody("import ray", code) != 1


@pytest.mark.ray
def test_another_user_reads_no_secret_of_a_run(ray_run: RayRun) -> None:
    link = ray_run.member("flower-superlink")
    home = link.environ()["FLWR_HOME"]
    secrets = [home, f"{home}/superlink.log", f"/proc/{link.pid}/environ"]
    secrets += [str(path) for path in ray_run.files.client_states.glob("*/*")]
    code = f"{ASK}\nanswer = [read(path) for path in {secrets}]"
    assert set(run_as_nobody(HTTP, code)) == {"denied"}


@pytest.mark.ray
def test_nothing_outlives_a_run(ray_run: RayRun) -> None:
    """Last of its file: Ctrl-C ends Flower, Ray and its agents, and all temporary folders."""
    home = Path(ray_run.member("flower-superlink").environ()["FLWR_HOME"])
    family = ray_run.process.identity.family()
    assert {"raylet", "gcs_server"} <= {p.name() for p in family}
    assert any(home.glob("ray/session_*"))
    ray_run.process.send_signal(signal.SIGINT)
    said, _ = ray_run.process.communicate(timeout=120)
    assert ray_run.process.returncode == 130
    assert b"to resume it: `fedsuite resume run`" in said
    assert [p for p in family if p.is_running() and p.status() != "zombie"] == []
    assert not home.exists()
    assert not list(ray_run.files.path.rglob("*.tmp"))


@pytest.fixture(scope="module")
def federation(place: Path) -> Iterator[Federation]:
    """``fedsuite deploy up`` without keys."""
    try:
        yield up(place / "hub", 2, lambda text: None, connection="shared")
    finally:
        down(place / "hub", lambda text: None)


@pytest.mark.deploy
def test_another_user_reaches_no_service_of_a_local_federation(federation: Federation) -> None:
    ports = [federation.port, *(node.port for node in federation.nodes)]
    assert all(is_healthy(port) for port in ports)
    code = f"{ASK}\nanswer = [ask(port) for port in {ports}]"
    assert run_as_nobody(HTTP, code) == [403] * len(ports)


@pytest.mark.deploy
def test_another_users_supernode_does_not_join(federation: Federation) -> None:
    """Its first call is refused, where this user's own nodes are online."""
    code = f"""
    fleet = FleetStub(grpc.insecure_channel("127.0.0.1:{federation.fleet_port}"))
    try:
        fleet.RegisterNode(RegisterNodeFleetRequest(public_key=b"key"), timeout=30)
        answer = "joined"
    except grpc.RpcError as refused:
        answer = refused.code().name
    """
    imports = (
        "import grpc\nfrom flwr.proto.fleet_pb2 import RegisterNodeFleetRequest\n"
        "from flwr.proto.fleet_pb2_grpc import FleetStub"
    )
    assert run_as_nobody(imports, code) == "PERMISSION_DENIED"
    assert len(online_nodes(federation.connection, federation.home)) == 2


@pytest.mark.deploy
def test_the_files_of_a_local_federation_are_private(federation: Federation) -> None:
    assert stat.S_IMODE(federation.folder.stat().st_mode) == 0o700
    paths = [federation.folder, federation.database, federation.log("node-0")]
    code = f"{ASK}\nanswer = [read(path) for path in {[str(path) for path in paths]}]"
    assert run_as_nobody(HTTP, code) == ["denied"] * len(paths)


def test_folders_of_killed_commands_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this user's, only unlocked ones, and none that is being made."""
    monkeypatch.setattr(scratch, "_parent", lambda: tmp_path)
    old = time.time() - 2 * scratch.STALE_SECONDS
    for name in ("fedsuite-stale", "fedsuite-new", "fedsuite-other", "unrelated"):
        (tmp_path / name).mkdir()
        (tmp_path / name / scratch.LOCK).touch()
        if name != "fedsuite-new":
            os.utime(tmp_path / name / scratch.LOCK, (old, old))
    (tmp_path / "fedsuite-unlocked").mkdir()
    (tmp_path / "fedsuite-other" / scratch.LOCK).unlink()
    with scratch.scratch_folder() as live:
        os.utime(live / scratch.LOCK, (old, old))
        assert stat.S_IMODE(live.stat().st_mode) == 0o700
        assert scratch.remove_stale() == []
        left = {path.name for path in tmp_path.iterdir()} - {live.name}
        assert left == {"fedsuite-new", "fedsuite-other", "unrelated", "fedsuite-unlocked"}
    assert not live.exists()


def test_a_long_temporary_path_gives_way_to_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    monkeypatch.setattr(scratch, "SHORT", tmp_path)
    with scratch.scratch_folder() as folder:
        assert folder.parent == tmp_path


def _command(process: psutil.Process) -> list[Any]:
    try:
        return [process.name(), *process.cmdline()]
    except psutil.Error:
        return []
