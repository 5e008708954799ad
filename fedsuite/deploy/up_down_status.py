"""``fedsuite deploy up``, ``down`` and ``status``: a local federation as a whole."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedsuite.core.processes import Process, stop
from fedsuite.core.settings import UserError
from fedsuite.core.text import counted
from fedsuite.deploy.certificates import expires, make_certificates
from fedsuite.deploy.federation import (
    SUPERLINK,
    Federation,
    await_nodes,
    plan,
    read_plan,
    start_superlink,
    start_supernode,
)
from fedsuite.deploy.keys import make_key, public_half, register
from fedsuite.flower.commands import CommandFailed, exposure, is_healthy, online_nodes
from fedsuite.flower.connections import (
    LOCAL,
    config_file,
    connection_names,
    find_connection,
    remove_connection,
    write_connection,
)
from tasks.own_files import column_names

Report = Callable[[str], None]


@dataclass(frozen=True)
class Status:
    """The state of a federation."""

    federation: Federation
    running: dict[str, bool]
    healthy: bool
    online: int
    certificate_expires: datetime | None

    @property
    def complete(self) -> bool:
        """Whether every process is running and every SuperNode connected."""
        everyone = self.online >= len(self.federation.nodes)
        return self.healthy and everyone and all(self.running.values())

    def document(self) -> dict[str, Any]:
        """Return it as ``fedsuite deploy status --json`` prints it."""
        federation, end = self.federation, self.certificate_expires
        return {
            "complete": self.complete,
            "connection": federation.connection,
            "address": f"127.0.0.1:{federation.port}",
            "tls": federation.tls,
            "auth": federation.auth,
            "healthy": self.healthy,
            "online": self.online,
            "nodes": len(federation.nodes),
            "processes": [
                {"name": name, "running": running, "log": str(federation.log(name))}
                for name, running in self.running.items()
            ],
            "certificate_expires": end.isoformat() if end else None,
        }


def up(
    folder: Path,
    nodes: int,
    report: Report,
    *,
    tls: bool = False,
    auth: bool = False,
    data: Sequence[Path] = (),
    connection: str = LOCAL,
) -> Federation:
    """Start a federation and wait until all nodes are online; on failure end what was started."""
    _refuse_running(folder)
    _refuse_taken(connection)
    if warning := exposure():
        report(f"warning: {warning}")
    shutil.rmtree(folder / "pids", ignore_errors=True)
    federation = plan(folder, nodes, tls=tls, auth=auth, data=data, connection=connection)
    try:
        _secure(federation)
        federation.database.unlink(missing_ok=True)
        link = start_superlink(federation)
        report(f"the SuperLink answers on 127.0.0.1:{federation.port}")
        if auth:
            for node in federation.nodes:
                register(public_half(federation.key(node.number)), connection, federation.home)
            are = "is" if nodes == 1 else "are"
            report(f"{counted(nodes, 'key')} {are} registered; SuperNodes without one are rejected")
        processes = [start_supernode(federation, node) for node in federation.nodes]
        await_nodes(federation, nodes, [link, *processes])
        report(f"{counted(nodes, 'SuperNode')} {'is' if nodes == 1 else 'are'} online")
        written = write_connection(federation.link)
        report(f"the connection '{connection}' is in {written}")
    except BaseException:
        down(folder, report)
        raise
    return federation


def run_command(connection: str, data: Sequence[Path]) -> tuple[str, list[str]]:
    """Return a command that runs on a federation, and the columns that COLUMN in it may be.

    Nodes with data of their own learn ``label``, or what ``label-column`` says; the folders of
    images name their classes themselves.
    """
    words, choices = ["fedsuite", "run", "fedavg"], []
    if data:
        words.append("dataset=own")
        columns = [column_names(path) for path in data]
        choices = [name for name in columns[0] if all(name in others for others in columns)]
        if "label" in choices or not any(columns):
            choices = []
        else:
            words.append("label-column=COLUMN")
    return shlex.join([*words, "--superlink", connection]), choices


def down(folder: Path, report: Report) -> list[Process]:
    """End all processes of a federation; return those that were running."""
    federation = read_plan(folder)
    if federation is None:
        report(f"there is no federation in {folder}; nothing to end")
        return []
    processes = federation.processes()
    nodes = [process for process in processes if process.name != SUPERLINK]
    ended = stop(*nodes) + stop(*(p for p in processes if p.name == SUPERLINK))
    for process in ended:
        report(f"ended {process.name} (process {process.pid})")
    if not ended:
        report(f"nothing is running in {folder}")
    if _is_ours(federation):
        remove_connection(federation.connection)
        report(f"removed the connection '{federation.connection}' from {config_file()}")
    return ended


def status(folder: Path) -> Status:
    """Return the state of a federation."""
    federation = read_plan(folder)
    if federation is None:
        raise UserError(
            f"There is no federation in {folder}. `fedsuite deploy up --nodes 4` starts one; "
            "--dir DIR looks in another folder."
        )
    healthy = is_healthy(federation.port, federation.ca)
    try:
        online = len(online_nodes(federation.connection, federation.home)) if healthy else 0
    except CommandFailed:
        online = 0
    return Status(
        federation,
        {process.name: process.is_running() for process in federation.processes()},
        healthy,
        online,
        expires(federation.certificates.server) if federation.tls else None,
    )


def _refuse_running(folder: Path) -> None:
    federation = read_plan(folder)
    running = [p.name for p in federation.processes() if p.is_running()] if federation else []
    if running:
        raise UserError(
            f"A federation is already running in {folder} ({', '.join(running)}). End it with "
            f"`{shlex.join(['fedsuite', 'deploy', 'down', '--dir', str(folder)])}`, or choose "
            "another --dir."
        )


def _refuse_taken(connection: str) -> None:
    """Refuse a connection name that is in use for another SuperLink."""
    if connection not in connection_names():
        return
    found = find_connection(connection)
    port = found.address.rpartition(":")[2]
    alive = found.is_loopback and port.isdigit() and is_healthy(int(port), found.ca)
    if alive or not found.is_loopback:
        raise UserError(
            f"The connection '{connection}' in {config_file()} is another SuperLink's, at "
            f"{found.address}. Choose another name with --connection NAME."
        )


def _is_ours(federation: Federation) -> bool:
    if federation.connection not in connection_names():
        return False
    return find_connection(federation.connection).address == federation.link.address


def _secure(federation: Federation) -> None:
    """Make missing certificates and keys, and replace expired certificates."""
    if federation.tls:
        files = federation.certificates
        fresh = all(path.exists() for path in files.files)
        if not fresh or expires(files.server) < datetime.now().astimezone():
            make_certificates(files.folder, force=True)
    if federation.auth:
        for node in federation.nodes:
            make_key(federation.key(node.number))
