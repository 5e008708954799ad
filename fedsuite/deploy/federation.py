"""A federation of real processes on this machine: one SuperLink and some SuperNodes.

The plan (``federation.json``: ports, security, nodes) is made once and kept, so that a restarted
process has the same ports, keys, database and folders as before. The building blocks are
:func:`start_superlink`, :func:`start_supernode`, :func:`restart_supernode`, and ``stop`` and
``kill`` of :mod:`fedsuite.core.processes`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedsuite.core.files import read_document, write_json
from fedsuite.core.processes import Process
from fedsuite.core.settings import UserError
from fedsuite.deploy.certificates import Certificates
from fedsuite.deploy.keys import key_file
from fedsuite.deploy.pid_files import read_pid_files, start_with_pid_file
from fedsuite.flower.commands import (
    START_SECONDS,
    CommandFailed,
    await_health,
    environment,
    free_ports,
    guarded,
    log_tail,
    online_nodes,
    write_settings,
)
from fedsuite.flower.compat import FAST_POLLING, KEYS_REQUIRED, SUPERNODE_CONNECTED
from fedsuite.flower.connections import LOCAL, Connection, write_connection

PLAN = "federation.json"
SUPERLINK = "superlink"
LOOPBACK = "127.0.0.1"
PRIVATE = ("certs", "keys", "logs", "nodes", "pids", "superlink")
POLL_SECONDS = 0.2
REJECTED_SECONDS = 5.0


@dataclass(frozen=True)
class SuperNode:
    """A SuperNode: its number, the port of its own Runtime API, its node-config."""

    number: int
    port: int
    config: dict[str, str | int]

    @property
    def name(self) -> str:
        """The name of its process and its files."""
        return f"node-{self.number}"


@dataclass(frozen=True)
class Federation:
    """The plan of a federation in a folder."""

    folder: Path
    mark: str
    tls: bool
    auth: bool
    port: int
    fleet_port: int
    workdir: Path
    nodes: tuple[SuperNode, ...]
    connection: str = LOCAL
    fleet_host: str = LOOPBACK

    @property
    def certificates(self) -> Certificates:
        """Its certificates, if it uses TLS."""
        return Certificates(self.folder / "certs")

    @property
    def ca(self) -> Path | None:
        """The certificate to trust; none without TLS."""
        return self.certificates.ca if self.tls else None

    @property
    def database(self) -> Path:
        """The SuperLink's database."""
        return self.folder / "superlink" / "state.db"

    @property
    def home(self) -> Path:
        """A Flower home whose only connection is this federation's."""
        return self.folder / "superlink" / "home"

    @property
    def link(self) -> Connection:
        """How to reach its SuperLink."""
        return Connection(self.connection, f"{LOOPBACK}:{self.port}", self.ca)

    def key(self, number: int) -> Path:
        """Return a node's private key."""
        return key_file(self.folder / "keys", number)

    def log(self, name: str) -> Path:
        """Return the log of a process, by its name."""
        return self.folder / "logs" / f"{name}.log"

    def processes(self) -> list[Process]:
        """Return its processes, running or not."""
        return read_pid_files(self.folder / "pids")

    def process(self, name: str) -> Process | None:
        """Return one process by its name, running or not."""
        return next((p for p in self.processes() if p.name == name), None)


def plan(
    folder: Path,
    nodes: int,
    *,
    tls: bool = False,
    auth: bool = False,
    data: Sequence[Path] = (),
    connection: str = LOCAL,
    workdir: Path | None = None,
    fleet_host: str = LOOPBACK,
) -> Federation:
    """Choose ports and write the plan; ``auth`` implies TLS, ``data`` has one path per node."""
    folder = folder.absolute()
    port, fleet_port, *ports = free_ports(nodes + 2)
    federation = Federation(
        folder=folder,
        mark=uuid.uuid4().hex,
        tls=tls or auth,
        auth=auth,
        port=port,
        fleet_port=fleet_port,
        workdir=(workdir or Path.cwd()).absolute(),
        nodes=tuple(make_node(folder, i, ports[i], nodes, data) for i in range(nodes)),
        connection=connection,
        fleet_host=fleet_host,
    )
    make_private_folders(folder)
    write_json(
        folder / PLAN,
        {**asdict(federation), "folder": str(folder), "workdir": str(federation.workdir)},
    )
    return federation


def make_private_folders(folder: Path) -> None:
    """Make the folders of a federation, which hold keys, state and messages, for this user alone.

    A folder that was there before keeps its own permissions.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    for place in (*([folder] if is_new else []), *(folder / name for name in PRIVATE)):
        place.mkdir(exist_ok=True)
        place.chmod(0o700)


def make_node(
    folder: Path, number: int, port: int, count: int, data: Sequence[Path] = ()
) -> SuperNode:
    """Return a node with one partition of the run's dataset, or with ``data`` of its own."""
    where: dict[str, str | int] = {"state-dir": str(folder / "nodes" / f"node-{number}" / "state")}
    if data:
        return SuperNode(number, port, {"data-path": str(data[number].absolute()), **where})
    return SuperNode(number, port, {"partition-id": number, "num-partitions": count, **where})


def read_plan(folder: Path) -> Federation | None:
    """Return the plan of a folder, if it has one."""
    document: dict[str, Any] = read_document(folder.absolute() / PLAN)
    if not document:
        return None
    document["nodes"] = tuple(SuperNode(**node) for node in document["nodes"])
    document |= {key: Path(document[key]) for key in ("folder", "workdir")}
    return Federation(**document)


def start_superlink(federation: Federation) -> Process:
    """Start or restart the SuperLink and wait until it answers."""
    federation.home.mkdir(parents=True, exist_ok=True)
    write_connection(federation.link, federation.home)
    files = federation.certificates
    trust = ["--ssl-ca-certfile", str(files.ca), "--ssl-certfile", str(files.server)]
    trust += ["--ssl-keyfile", str(files.server_key)]
    command = [*guarded("flower-superlink"), *(trust if federation.tls else ["--insecure"])]
    command += ["--host", LOOPBACK, "--port", str(federation.port)]
    command += ["--fleet-api-address", f"{federation.fleet_host}:{federation.fleet_port}"]
    command += ["--database", str(federation.database)]
    command += ["--disable-runtime-dependency-installation"]
    command += [KEYS_REQUIRED] if federation.auth else []
    process = _start(federation, SUPERLINK, command, federation.home)
    await_health(process.is_running, federation.port, federation.log(SUPERLINK), federation.ca)
    return process


def start_supernode(
    federation: Federation, node: SuperNode, key: Path | None = None, within: Sequence[str] = ()
) -> Process:
    """Start or restart a SuperNode.

    ``key`` replaces its own if the federation has keys; ``within`` is a command to start it by,
    such as one that enters a network namespace.
    """
    folder = federation.folder / "nodes" / node.name
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    trust = ["--root-certificates", str(federation.ca)] if federation.tls else ["--insecure"]
    command = [*within, *guarded("flower-supernode"), *trust]
    command += ["--superlink", f"{federation.fleet_host}:{federation.fleet_port}"]
    command += ["--host", LOOPBACK, "--port", str(node.port)]
    command += ["--node-config", str(write_settings(folder / "node-config.toml", node.config))]
    if federation.auth:
        command += ["--auth-supernode-private-key", str(key or federation.key(node.number))]
    return _start(federation, node.name, command, home)


def restart_supernode(federation: Federation, node: SuperNode) -> Process:
    """Restart a SuperNode that was killed, repeatedly until the SuperLink accepts it.

    A SuperLink rejects a key as long as it believes the killed node online: up to two heartbeats,
    a minute.
    """
    deadline = time.monotonic() + START_SECONDS
    log = federation.log(node.name)
    while True:
        seen = log.stat().st_size if log.exists() else 0
        process = start_supernode(federation, node)
        while process.is_running() and time.monotonic() < deadline:
            if SUPERNODE_CONNECTED in log.read_bytes()[seen:]:
                return process
            time.sleep(POLL_SECONDS)
        if time.monotonic() >= deadline:
            raise UserError(f"{node.name} does not connect again. {log_tail(log)}")
        time.sleep(REJECTED_SECONDS)


def await_nodes(federation: Federation, count: int, processes: Sequence[Process] = ()) -> None:
    """Wait until ``count`` SuperNodes are online; fail if one of ``processes`` ends."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for process in processes:
            if not process.is_running():
                log = federation.log(process.name)
                raise UserError(f"{process.name} has ended. {log_tail(log)}")
        time.sleep(POLL_SECONDS)
        if not _have_connected(federation, processes):
            continue
        with suppress(CommandFailed):
            if len(online_nodes(federation.connection, federation.home)) >= count:
                return
    logs = federation.log(federation.nodes[0].name)
    raise UserError(
        f"{count} SuperNodes are not online after {START_SECONDS:.0f} s. {log_tail(logs)}"
    )


def _have_connected(federation: Federation, processes: Sequence[Process]) -> bool:
    """Return whether all SuperNodes among these have been accepted, now or in an earlier life.

    Their logs tell it at once; to ask the SuperLink is a process that takes seconds.
    """
    logs = [federation.log(process.name) for process in processes if process.name != SUPERLINK]
    return all(log.exists() and SUPERNODE_CONNECTED in log.read_bytes() for log in logs)


def _start(federation: Federation, name: str, command: list[str], home: Path) -> Process:
    return start_with_pid_file(
        name,
        command,
        environment(home, **FAST_POLLING),
        mark=f"{federation.mark}/{name}",
        log=federation.log(name),
        cwd=federation.workdir,
        pids=federation.folder / "pids",
    )
