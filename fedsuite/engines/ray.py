"""The Ray engine: Flower's simulation through ``flwr run``.

Each run has its own SuperLink on a free loopback port and its own Flower home, so that it neither
finds nor disturbs anything else; all of it ends with the run, whatever happens.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fedsuite.config import RunConfig
from fedsuite.flower.commands import (
    COMMAND_PID,
    app_folder,
    await_health,
    end_with_parent,
    environment,
    executable,
    free_port,
    stop,
    to_toml,
)
from fedsuite.records.folder import RunFolder

CONNECTION = "fedsuite"


def run_ray(
    config: RunConfig, nodes: int, gpus: float, follow: Callable[[Callable[[float], bool]], None]
) -> Path:
    """Run an experiment through ``flwr run``; ``follow`` is called while it goes on."""
    folder = RunFolder.of(config)
    folder.make()
    home = Path(tempfile.mkdtemp(prefix="fedsuite-"))
    try:
        with superlink(home) as link, folder.log_file.open("ab") as log:
            submit = _submit(config, nodes, gpus, home, log)
            try:
                follow(lambda seconds: _wait(submit, link, seconds))
            finally:
                stop(submit)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return folder.path


def failure(folder: Path) -> str:
    """Return why a run failed: its recorded traceback, else the end of its log; empty if not."""
    files = RunFolder(folder)
    if files.state.done:
        return ""
    if files.reason:
        return files.reason
    log = files.log_file
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(["The run ended before it was done. Its log ends with:", *lines[-40:]])


@contextmanager
def superlink(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a SuperLink of our own and end it afterwards."""
    port, control = free_port(), free_port()
    command = [
        *executable("flower-superlink"),
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
        await_health(lambda: process.poll() is None, port, home / "superlink.log")
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        yield process
    finally:
        stop(process)


def _submit(
    config: RunConfig, nodes: int, gpus: float, home: Path, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    settings = home / "run-config.toml"
    settings.write_text("".join(f"{k} = {to_toml(v)}\n" for k, v in config.flat().items()))
    federation = (
        f"num-supernodes={nodes} client-resources-num-cpus=1 "
        f"client-resources-num-gpus={gpus} init-args-num-cpus={nodes}"
    )
    command = [*executable("flwr"), "run", str(app_folder()), CONNECTION]
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


def _environment(home: Path) -> dict[str, str]:
    return environment(
        home,
        **{COMMAND_PID: str(os.getpid())},
        RAY_DISABLE_IMPORT_WARNING="1",
        RAY_worker_niceness="0",
    )
