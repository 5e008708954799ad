"""The Ray engine: Flower's simulation through ``flwr run``.

Each run has its own SuperLink on a free loopback port, its own Flower home and its own Ray, so that
it does not interfere with anything else. The SuperLink answers this user's processes alone, Ray
those that have the run's token, and their files are private; all of it ends with the run. With
``--ray-address`` its workers are on an existing cluster instead, which outlives the run.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedsuite.config import RunConfig, all_defaults
from fedsuite.core.processes import Child, Process, kill, start
from fedsuite.core.scratch import scratch_folder
from fedsuite.core.vector_files import remove_vector_files
from fedsuite.engines.contract import EngineOptions, Follow
from fedsuite.flower.app import stage_app
from fedsuite.flower.commands import (
    COMMAND,
    await_health,
    environment,
    executable,
    exposure,
    free_ports,
    guarded,
    write_settings,
)
from fedsuite.flower.connections import Connection, write_connection
from fedsuite.records.folder import RunFolder

CONNECTION = "fedsuite"
LOG = "superlink.log"


@dataclass(frozen=True)
class SuperLink:
    """A SuperLink that was started, its port and its Flower home."""

    home: Path
    port: int
    process: Child

    def await_health(self) -> None:
        """Wait until it answers."""
        await_health(lambda: self.process.poll() is None, self.port, self.home / LOG)


def execute(config: RunConfig, options: EngineOptions, follow: Follow) -> None:
    """Execute a run through ``flwr run``.

    Once the run's summary is written, nothing of value is left in Flower's processes. So they are
    killed; to let them tear down Ray and each other would take seconds.
    """
    folder = RunFolder.of(config)
    folder.make()
    if warning := exposure():
        print(f"fedsuite: {warning}", file=sys.stderr)
    with ExitStack() as stack:
        stack.enter_context(_without_leftovers(folder.path))
        link = options.prepared or stack.enter_context(prepare(options.ray_address))
        assert isinstance(link, SuperLink)
        log = stack.enter_context(folder.log_file.open("ab"))
        link.await_health()
        run = _submit(config, options, link.home, log)
        try:
            follow(lambda seconds: _is_running(run, link, folder, seconds))
        finally:
            kill(run, link.process)


@contextmanager
def prepare(ray_address: str = "") -> Iterator[SuperLink]:
    """Start a SuperLink with a home of its own, to be ready when a run is; end it afterwards.

    Its runs have a Ray of their own, or join an existing cluster.
    """
    with scratch_folder() as home, starting_superlink(home, ray_address) as link:
        yield link


@contextmanager
def _without_leftovers(run: Path) -> Iterator[None]:
    """Remove the vectors of a run whose processes were stopped before they could do so."""
    try:
        yield
    finally:
        remove_vector_files(run)


@contextmanager
def superlink(home: Path) -> Iterator[Child]:
    """Start a SuperLink for simulations, with a connection to it in ``home``; end it afterwards."""
    with starting_superlink(home) as link:
        link.await_health()
        yield link.process


@contextmanager
def starting_superlink(home: Path, ray_address: str = "") -> Iterator[SuperLink]:
    """Start a SuperLink as :func:`superlink` does, without waiting for it."""
    port, control = free_ports(2)
    command = [
        *guarded("flower-superlink"),
        *("--insecure", "--simulation", "--isolation", "subprocess"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--control-api-address", f"127.0.0.1:{control}"),
        "--disable-runtime-dependency-installation",
    ]
    (home / "config.toml").write_text(f'[superlink]\ndefault = "{CONNECTION}"\n')
    write_connection(Connection(CONNECTION, f"127.0.0.1:{port}"), home)
    ray = {"RAY_ADDRESS": ray_address} if ray_address else _own_ray(home)
    with (home / LOG).open("wb") as log:
        process = start(command, _environment(home) | ray, output=log)
    try:
        yield SuperLink(home, port, process)
    finally:
        kill(process)


def _submit(config: RunConfig, options: EngineOptions, home: Path, log: IO[bytes]) -> Child:
    """Start a command that submits the run and ends with it."""
    settings = write_settings(home / "run-config.toml", config.flat())
    federation = (
        f"num-supernodes={options.nodes} client-resources-num-cpus=1 "
        f"client-resources-num-gpus={options.gpus}"
    )
    if not options.ray_address:  # a cluster has the cores that it has
        federation += f" init-args-num-cpus={options.nodes}"
    command = [*executable("flwr"), "run", str(stage_app(home, all_defaults())), CONNECTION]
    command += ["--run-config", str(settings), "--federation-config", federation, "--stream"]
    return start(command, _environment(home), output=log)


def _is_running(run: Child, link: SuperLink, folder: RunFolder, seconds: float) -> bool:
    """Wait for the run's end; return whether it is still running after ``seconds``."""
    try:
        run.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        is_done = folder.summary_file.exists() and folder.state.done
        return link.process.poll() is None and not is_done


def _environment(home: Path) -> dict[str, str]:
    return environment(home, **{COMMAND: Process.current().to_text()})


def _own_ray(home: Path) -> dict[str, str]:
    """Return the variables of a Ray of its own, whose token only this user's processes can read."""
    return {
        "RAY_ADDRESS": "local",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_TMPDIR": str(home),
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Flower's actors have an environment of their own: no worker started in advance is used.
        "RAY_prestart_worker_first_driver": "0",
        "RAY_worker_niceness": "0",
    }
