"""Flower's own commands as processes: which one, with which environment, and how they end."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from fedsuite.core.settings import Scalar, UserError

COMMAND_PID = "FEDSUITE_COMMAND_PID"
START_SECONDS = 120.0
STOP_SECONDS = 15.0
PR_SET_PDEATHSIG = 1


def app_folder() -> Path:
    """Return the Flower app's folder: the source checkout this package lives in."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / "pyproject.toml").exists():
        raise UserError(
            "Flower is handed the app's source, and there is no pyproject.toml beside "
            f"{folder / 'fedsuite'}. Install from a checkout with `pip install -e .`, or use "
            "--engine inline."
        )
    return folder


def executable(name: str) -> list[str]:
    """Return Flower's command of this very Python environment."""
    beside = Path(sys.executable).parent / name
    return [str(beside)] if beside.exists() else [name]


def environment(home: Path | None = None, **extra: str) -> dict[str, str]:
    """Return the environment of Flower's commands: quiet, and with this Python's tools first.

    ``home`` is Flower's own folder; without it the user's.
    """
    quiet = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }
    inherited = {key: value for key, value in os.environ.items() if key != COMMAND_PID}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"FLWR_HOME": str(home)} if home is not None else {}
    return inherited | {"PATH": path} | quiet | own | extra


def free_port() -> int:
    """Return a TCP port that is free on loopback now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different TCP ports that are free on loopback now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def is_healthy(port: int, ca: Path | None = None) -> bool:
    """Say whether a SuperLink on loopback answers; with ``ca`` over TLS."""
    scheme = "https" if ca is not None else "http"
    try:
        trust = ssl.create_default_context(cafile=str(ca)) if ca is not None else None
        url = f"{scheme}://127.0.0.1:{port}/health"
        with urllib.request.urlopen(url, timeout=2, context=trust) as reply:
            return int(reply.status) == 200
    except (urllib.error.URLError, OSError):
        return False


def await_health(alive: Callable[[], bool], port: int, log: Path, ca: Path | None = None) -> None:
    """Wait until a SuperLink answers; else say what its log ends with."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and alive():
        if is_healthy(port, ca):
            return
        time.sleep(0.1)
    raise UserError(f"Flower's SuperLink did not start. {log_tail(log)}")


def log_tail(log: Path, lines: int = 20) -> str:
    """Quote the end of a log."""
    text = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"{log} ends with:", *text[-lines:]])


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process group we started: politely, then for good; nothing if it has ended itself."""
    if process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_with_parent() -> None:
    """Ask the kernel to end this child when its parent dies, however it dies (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def to_toml(value: Scalar) -> str:
    """Write a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
