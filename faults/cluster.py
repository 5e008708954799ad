"""A Ray cluster of two raylets, the second in a network of its own where that is allowed.

``python -m faults.cluster [ALGO ...]`` runs algorithms on one, undisturbed and with the second
raylet killed, and compares the models with the inline engine's, bit by bit.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.report import table
from faults.network import HOST_ADDRESS, namespace
from fedsuite.core.files import read_document
from fedsuite.core.processes import Child, start
from fedsuite.flower.commands import free_ports
from fedsuite.records.folder import RunFolder

RAYLET = "raylet/raylet"
ALGORITHMS = (
    *("fedavg", "fedprox", "taco", "feda4", "fedbac", "fedadw"),
    *("scaffold", "stem", "foolsgold", "pfedme", "fedamp", "fedfomo"),
)
SETTINGS = ("num-clients=6", "num-rounds=30", "model=mlp", "lr=0.02", "seed=5")


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


def main(argv: Sequence[str] | None = None) -> int:
    """Compare algorithms on a cluster with the inline engine; return 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m faults.cluster")
    parser.add_argument("algorithms", nargs="*", metavar="ALGO", default=ALGORITHMS)
    algorithms, rows, equal = parser.parse_args(argv).algorithms, [], True
    with (
        tempfile.TemporaryDirectory(prefix="fedsuite-cluster-") as folder,
        ray_cluster() as cluster,
    ):
        for algorithm in algorithms:
            runs = ClusterRuns(Path(folder), cluster, algorithm)
            rows.append([algorithm, *runs.compare()])
            equal = equal and rows[-1][1] == rows[-1][2] == "the same"
            print(rows[-1], file=sys.stderr, flush=True)
    print(table(["algorithm", "undisturbed", "a raylet killed", "updates missing"], rows))
    return 0 if equal else 1


@dataclass
class ClusterRuns:
    """The runs of one algorithm: inline, on the cluster, and on one that loses a machine."""

    folder: Path
    cluster: Cluster
    algorithm: str

    def compare(self) -> list[str]:
        """Run all three; return how the models compare, and what share of updates is missing."""
        self.start("inline", "--engine", "inline").wait()
        far = ["--ray-address", self.cluster.address]
        self.start("far", *far).wait()
        disturbed, files = self.start("disturbed", *far), self.files("disturbed")
        while disturbed.poll() is None and not _has_rounds(files, 3):
            time.sleep(0.05)
        self.cluster.lose()
        disturbed.wait()
        self.cluster.join()
        near = self.models("inline")
        same = [bool(near) and self.models(name) == near for name in ("far", "disturbed")]
        missing = read_document(files.summary_file)["missing_updates"]
        return [*("the same" if equal else "OTHER" for equal in same), f"{missing:.1%}"]

    def start(self, name: str, *options: str) -> Child:
        """Start a run."""
        words = [self.algorithm, *SETTINGS, "--name", f"{self.algorithm}-{name}", *options]
        command = [sys.executable, "-m", "fedsuite.cli", "run", *words]
        with (self.folder / "log").open("ab") as log:
            return start(command, os.environ | self.cluster.variables, output=log, cwd=self.folder)

    def models(self, name: str) -> dict[str, bytes]:
        """Return the global model and the clients' own, whichever a run has saved."""
        place = self.files(name).path
        found = [place / "model.safetensors", *sorted((place / "models").glob("*"))]
        return {path.name: path.read_bytes() for path in found if path.exists()}

    def files(self, name: str) -> RunFolder:
        """Return a run's folder."""
        return RunFolder(self.folder / "runs" / f"{self.algorithm}-{name}")


def _has_rounds(files: RunFolder, count: int) -> bool:
    return files.history_file.exists() and files.history_file.read_bytes().count(b"\n") >= count


if __name__ == "__main__":
    sys.exit(main())
