"""A Ray cluster of two raylets, the second in a network of its own where that is allowed."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from faults.network import HOST_ADDRESS, namespace
from fedsuite.flower.commands import free_ports

RAYLET = "raylet/raylet"


@dataclass
class Cluster:
    """A cluster's address, the variables that its users need, and how machines join it."""

    address: str
    variables: dict[str, str]
    within: list[str]

    def join(self) -> None:
        """Start the second raylet, with one core."""
        self.ray("start", f"--address={self.address}", "--num-cpus=1", within=self.within)

    def lose(self) -> None:
        """Kill the second raylet, as a power cut would."""
        raylets = [p for p in self.processes() if RAYLET in " ".join(p.cmdline())]
        max(raylets, key=lambda process: process.create_time()).kill()

    def ray(self, *words: str, within: list[str] | None = None) -> None:
        """Execute Ray's command."""
        command = [*(within or []), str(Path(sys.executable).parent / "ray"), *words]
        subprocess.run(
            [*command, "--disable-usage-stats", "--object-store-memory=100000000"],
            env=os.environ | self.variables,
            check=True,
            capture_output=True,
        )

    def end(self) -> None:
        """Kill all processes, and those that they start in the meantime."""
        while found := self.processes():
            for process in found:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(found, timeout=10)

    def processes(self) -> list[psutil.Process]:
        """Return the cluster's processes, by the token that only they have."""
        token = self.variables["RAY_AUTH_TOKEN"]
        found = []
        for process in psutil.process_iter():
            try:
                is_alive = process.status() != psutil.STATUS_ZOMBIE
                if is_alive and process.environ().get("RAY_AUTH_TOKEN") == token:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found


@contextmanager
def ray_cluster() -> Iterator[Cluster]:
    """Start a cluster of two machines with a core each; end it afterwards."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-"))
        inside = stack.enter_context(namespace())
        host = HOST_ADDRESS if inside else "127.0.0.1"
        (port,) = free_ports(1)
        variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        cluster = Cluster(
            f"{host}:{port}", variables, ["ip", "netns", "exec", inside] if inside else []
        )
        stack.callback(cluster.end)
        head = ["--head", f"--port={port}", f"--node-ip-address={host}", f"--temp-dir={folder}"]
        cluster.ray("start", *head, "--num-cpus=1", "--include-dashboard=false")
        cluster.join()
        yield cluster
