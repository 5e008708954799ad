"""Flower's commands: which executable, in which environment, and what ``flwr`` answers."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tomli_w

from fedsuite.core.peers import can_identify_peers
from fedsuite.core.processes import kill, start
from fedsuite.core.settings import Scalar, UserError

SECOND_DOOR = "FLWR_INTERNAL_GRPC_CONTROL_API"  # opens an API that the guard does not watch
DIRECT = "127.0.0.1,localhost"  # reached without a proxy
COMMAND = "FEDSUITE_COMMAND"  # the environment's name of the process that a run must not outlive
START_SECONDS = 120.0
ANSWER_SECONDS = 60.0
SUBMIT_SECONDS = 600.0
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    SECOND_DOOR: "0",
}


class CommandFailed(UserError):
    """A ``flwr`` command failed; the message quotes its error."""


def executable(name: str) -> list[str]:
    """Return a command of Flower, from this Python environment if it has one."""
    beside = Path(sys.executable).parent / name
    return [str(beside)] if beside.exists() else [name]


def guarded(service: str) -> list[str]:
    """Return the command of a service of Flower that answers this user's processes alone."""
    return [sys.executable, "-P", "-m", "fedsuite.flower.guard", service]


def exposure() -> str:
    """Return a warning if services cannot be kept from other users of this machine, else ""."""
    if can_identify_peers():
        return ""
    return (
        "other users of this machine can reach this run's services, and run code as you: this "
        "system does not tell whose process connects. See docs/security.md, 'Shared machines'."
    )


def environment(home: Path | None = None, **extra: str) -> dict[str, str]:
    """Return the environment of Flower's commands: no telemetry, this Python's tools first.

    ``home`` is Flower's home folder; without it the user's.
    """
    inherited = {key: value for key, value in os.environ.items() if key != COMMAND}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"FLWR_HOME": str(home)} if home is not None else {}
    for name in ("no_proxy", "NO_PROXY"):
        own[name] = ",".join(filter(None, [os.environ.get(name, ""), DIRECT]))
    return inherited | {"PATH": path} | QUIET | own | extra


def write_settings(path: Path, values: Mapping[str, Scalar]) -> Path:
    """Write a TOML file for ``--run-config`` or ``--node-config``; return its path."""
    path.write_text(tomli_w.dumps(values))
    return path


def flwr(
    words: Sequence[str], home: Path | None = None, seconds: float = ANSWER_SECONDS
) -> dict[str, Any]:
    """Run ``flwr ... --format json`` and return its answer."""
    return Call(words, home).answer(seconds)


class Call:
    """A ``flwr`` command with ``--format json`` that is running.

    A session of its own keeps Ctrl-C from interrupting it halfway, and it finishes even if this
    process is killed.
    """

    def __init__(self, words: Sequence[str], home: Path | None = None) -> None:
        self.command = f"`flwr {' '.join(words)}`"
        self._process = start(
            [*executable("flwr"), *words, "--format", "json"],
            environment(home),
            output=subprocess.PIPE,
            errors=subprocess.PIPE,
            outlives_parent=True,
        )

    def answer(self, seconds: float) -> dict[str, Any]:
        """Wait for the answer; end the command if it takes over ``seconds``, or is interrupted."""
        try:
            streams = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise CommandFailed(
                f"{self.command} did not answer within {seconds:.0f} s. Is the SuperLink running, "
                "and can it be reached from here?"
            ) from None
        finally:
            self.end()
        out, err = (stream.decode(errors="replace") for stream in streams)
        answer = _read(out)
        if self._process.returncode or not answer.get("success"):
            said = str(answer.get("error-message") or out + err).strip()
            raise CommandFailed(f"{self.command} failed: {said}")
        return answer

    def end(self) -> None:
        """End the command and what it has started, unless it has ended."""
        if self._process.poll() is None:
            kill(self._process)


def submit(connection: str, app: Path, run_config: Path) -> Call:
    """Begin to submit a run of an app to a SuperLink; the answer has the run's id."""
    return Call(["run", str(app), connection, "--run-config", str(run_config)])


def run_status(run_id: str, connection: str, home: Path | None = None) -> tuple[str, str]:
    """Return a run's status in Flower's words (``finished:completed``), and its details."""
    run = flwr(["list", connection, "--run-id", run_id], home)["runs"][0]
    return str(run["status"]), str(run["status-details"])


def stop_run(run_id: str, connection: str, home: Path | None = None) -> None:
    """Stop a run."""
    flwr(["stop", run_id, connection], home)


def online_nodes(connection: str, home: Path | None = None) -> set[str]:
    """Return the ids of the SuperNodes that are connected now."""
    nodes = flwr(["supernode", "list", connection], home)["nodes"]
    return {str(node["node-id"]) for node in nodes if node["status"] == "online"}


def free_ports(count: int) -> list[int]:
    """Return different TCP ports that are free on loopback now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def is_healthy(port: int, ca: Path | None = None) -> bool:
    """Return whether a SuperLink answers on loopback; with ``ca`` over TLS."""
    scheme = "https" if ca is not None else "http"
    try:
        trust = ssl.create_default_context(cafile=str(ca)) if ca is not None else None
        url = f"{scheme}://127.0.0.1:{port}/health"
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)]
        with urllib.request.build_opener(*handlers).open(url, timeout=2) as reply:
            return int(reply.status) == 200
    except (urllib.error.URLError, OSError):
        return False


def await_health(
    is_running: Callable[[], bool], port: int, log: Path, ca: Path | None = None
) -> None:
    """Wait until a SuperLink answers; if it does not, quote the end of its log."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and is_running():
        if is_healthy(port, ca):
            return
        time.sleep(0.1)
    raise UserError(f"Flower's SuperLink did not start. {log_tail(log)}")


def log_tail(log: Path, lines: int = 20) -> str:
    """Quote the end of a log."""
    text = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"{log} ends with:", *text[-lines:]])


def _read(text: str) -> dict[str, Any]:
    start = text.find("{")
    try:
        return dict(json.loads(text[start:])) if start >= 0 else {}
    except ValueError:
        return {}
