"""The Ray engine: Flower's simulation through ``flwr run``.

Each run has its own SuperLink on a free loopback port and its own Flower home, so that it neither
finds nor disturbs anything else; all of it ends with the run, whatever happens.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fedsuite.config import RunConfig
from fedsuite.record import make_folder, read_document, run_folder
from fedsuite.settings import UserError

CONNECTION = "fedsuite"
COMMAND_PID = "FEDSUITE_COMMAND_PID"
START_SECONDS = 120.0
STOP_SECONDS = 15.0
PR_SET_PDEATHSIG = 1


def run_ray(
    config: RunConfig, nodes: int, gpus: float, follow: Callable[[Callable[[float], bool]], None]
) -> Path:
    """Run an experiment through ``flwr run``; ``follow`` is called while it goes on."""
    folder = run_folder(config)
    make_folder(folder)
    home = Path(tempfile.mkdtemp(prefix="fedsuite-"))
    try:
        with superlink(home) as link, (folder / "run.log").open("ab") as log:
            submit = _submit(config, nodes, gpus, home, log)
            try:
                follow(lambda seconds: _wait(submit, link, seconds))
            finally:
                _stop(submit)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return folder


def failure(folder: Path) -> str:
    """Return why a run failed: its recorded traceback, else the end of its log; empty if not."""
    summary = read_document(folder / "summary.json")
    if summary.get("status") in ("finished", "target reached"):
        return ""
    if summary.get("reason"):
        return str(summary["reason"])
    log = folder / "run.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(["The run ended before it was done. Its log ends with:", *lines[-40:]])


def app_folder() -> Path:
    """Return the Flower app's folder: the source checkout this package lives in."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / "pyproject.toml").exists():
        raise UserError(
            "The ray engine hands the app's source to Flower, and there is no pyproject.toml "
            f"beside {folder / 'fedsuite'}. Install from a checkout with `pip install -e .`, or "
            "use --engine inline."
        )
    return folder


@contextmanager
def superlink(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a SuperLink of our own and end it afterwards."""
    port, control = free_port(), free_port()
    command = [
        *_tool("flower-superlink"),
        *("--insecure", "--simulation", "--isolation", "subprocess"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--control-api-address", f"127.0.0.1:{control}"),
        "--disable-runtime-dependency-installation",
    ]
    with (home / "superlink.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
    try:
        _await_health(process, port, home)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        yield process
    finally:
        _stop(process)


def free_port() -> int:
    """Return a TCP port that is free on loopback now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _submit(
    config: RunConfig, nodes: int, gpus: float, home: Path, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    settings = home / "run-config.toml"
    settings.write_text("".join(f"{k} = {_toml(v)}\n" for k, v in config.flat().items()))
    federation = (
        f"num-supernodes={nodes} client-resources-num-cpus=1 "
        f"client-resources-num-gpus={gpus} init-args-num-cpus={nodes}"
    )
    command = [*_tool("flwr"), "run", str(app_folder()), CONNECTION]
    command += ["--run-config", str(settings), "--federation-config", federation, "--stream"]
    return subprocess.Popen(
        command,
        env=_environment(home),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )


def _wait(submit: subprocess.Popen[bytes], link: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait a little; say whether the run still goes on."""
    try:
        submit.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        return link.poll() is None


def _await_health(process: subprocess.Popen[bytes], port: int, home: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
                if reply.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    tail = (home / "superlink.log").read_text(errors="replace")[-2000:]
    raise RuntimeError(f"Flower's SuperLink did not start. It said:\n{tail}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process group we started: politely, then for good; nothing if it has ended itself."""
    if process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(home: Path) -> dict[str, str]:
    quiet = {
        "FLWR_HOME": str(home),
        COMMAND_PID: str(os.getpid()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_worker_niceness": "0",
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return os.environ | {"PATH": path} | quiet


def _tool(name: str) -> list[str]:
    """Return Flower's command of this very Python environment."""
    beside = Path(sys.executable).parent / name
    return [str(beside)] if beside.exists() else [name]


def _toml(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)


def end_with_parent() -> None:
    """Ask the kernel to end this child when its parent dies, however it dies (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
