"""What another user of the machine can do with a run: nothing. Needs root, to become ``nobody``."""

from __future__ import annotations

import os
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import processes
import psutil
import pytest
from other_user import need_root, run_as_nobody

from fedsuite.core.processes import Child, start
from fedsuite.deploy.federation import Federation
from fedsuite.deploy.up_down_status import down, up
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
    except FileNotFoundError:
        return "gone"
"""
RAY = """
from ray._raylet import GcsClient
try:
    answer = len(GcsClient(address="{address}").get_all_node_info())
except Exception as refused:
    answer = type(refused).__name__
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A working folder that others may enter, as a project's may be; with a Flower home."""
    need_root()
    with (
        tempfile.TemporaryDirectory(prefix="shared-") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "notes.txt").write_bytes(b"for all")
        patch.setenv("FLWR_HOME", str(folder / "flower"))
        patch.chdir(folder)
        yield folder


def seen_by_nobody(paths: Iterable[Path]) -> list[Any]:
    """Return what another user reads at each path; first at one that is for all."""
    texts = ["notes.txt", *map(str, paths)]
    code = f"{ASK}\nos.chdir({os.getcwd()!r})\nanswer = [read(path) for path in {texts}]"
    control, *found = run_as_nobody(HTTP, code)
    assert control == b"for all".hex()
    return list(found)


class RayRun:
    """A run on Ray, and where its services are."""

    def __init__(self, folder: Path) -> None:
        settings = ["model=mlp", "num-clients=2", "num-rounds=100000"]
        words = ["run", "scaffold", *settings, "--name", "run", "--nodes", "1"]
        self.output = folder / "output"
        with self.output.open("wb") as output:
            self.process: Child = start(
                [sys.executable, "-m", "fedsuite.cli", *words], output=output
            )
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
def test_another_user_reads_nothing_of_a_run(ray_run: RayRun) -> None:
    """Neither its record, nor its token, nor what its services log, nor what clients keep."""
    link = ray_run.member("flower-superlink")
    home = Path(link.environ()["FLWR_HOME"])
    states = list(ray_run.files.client_states.glob("*/*.safetensors"))
    assert states
    secrets = [home, home / "superlink.log", Path(f"/proc/{link.pid}/environ"), *states]
    assert set(seen_by_nobody(secrets)) <= {"denied", "gone"}
    files = ray_run.files
    record = [files.path, files.config_file, files.history_file, files.checkpoint_file]
    assert seen_by_nobody(record) == ["denied"] * 4


@pytest.mark.ray
def test_nothing_outlives_a_run(ray_run: RayRun) -> None:
    """The last test of this run: Ctrl-C ends Flower, Ray and its agents, and its folders."""
    home = Path(ray_run.member("flower-superlink").environ()["FLWR_HOME"])
    family = ray_run.process.identity.family()
    assert {"raylet", "gcs_server"} <= {p.name() for p in family}
    assert any(home.glob("ray/session_*"))
    ray_run.process.send_signal(signal.SIGINT)
    assert ray_run.process.wait(120) == 130
    assert "to resume it: `fedsuite resume run`" in ray_run.output.read_text()
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
    inside = [federation.database, federation.log("node-0"), federation.folder / "nodes"]
    assert seen_by_nobody([federation.folder, *inside]) == ["denied"] * 4
    federation.folder.chmod(0o755)  # as a folder that was there before may be
    assert seen_by_nobody(inside) == ["denied"] * 3


def _command(process: psutil.Process) -> list[Any]:
    try:
        return [process.name(), *process.cmdline()]
    except psutil.Error:
        return []
