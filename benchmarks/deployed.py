"""What a round costs on real SuperNodes, beside a plain Flower app on the same ones.

``python -m benchmarks.deployed`` starts a SuperLink and three SuperNodes on this machine, as
``fedsuite deploy up`` does, lets the variants take turns on them, run by run, and prints a table.
Everything is seen from outside, in the SuperNodes' logs and processes, and so alike for all.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.deployed_log import LogReader, Run
from benchmarks.deployed_report import OURS, PLAIN, SCORED, markdown
from benchmarks.job import Job, save_arrays
from fedsuite.config import RunConfig, all_defaults, parse
from fedsuite.core import seeds
from fedsuite.core.processes import stop
from fedsuite.deploy.federation import (
    SUPERLINK,
    Federation,
    await_nodes,
    plan,
    start_superlink,
    start_supernode,
)
from fedsuite.flower.app import stage_app
from fedsuite.flower.commands import SUBMIT_SECONDS, flwr, write_settings
from fedsuite.flower.forks import CLIENT_TASK, SERVER_NAME
from fedsuite.records.folder import RunFolder
from tasks.task import open_task

PROJECT = Path(__file__).resolve().parent.parent
SOURCE = PROJECT / "benchmarks" / "deployed_app"
NODES = 3
RUN_SECONDS = 600.0
EXIT_SECONDS = 10.0
POLL_SECONDS = 0.05
PLAIN_APP = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "plain"
version = "1.0.0"
description = "A plain Flower app"
license = "Apache-2.0"
dependencies = ["flwr", "torch"]

[tool.flwr.app]
publisher = "benchmark"

[tool.flwr.app.components]
serverapp = "deployed_app.server_app:app"
clientapp = "deployed_app.client_app:app"

[tool.flwr.app.config]
job = "{job}"
output = "{output}"
"""
IMPORTS = """\
import time
start = time.process_time()
import flwr.supernode.runtime.run_clientapp
flower = time.process_time()
import torch
pytorch = time.process_time()
import fedsuite.client_app
print(flower - start, pytorch - flower, time.process_time() - pytorch)
"""


class Nodes:
    """A federation that is running, and what its SuperNodes do."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self._logs = LogReader([federation.log(node.name) for node in federation.nodes])
        found = (federation.process(node.name) for node in federation.nodes)
        families = [psutil.Process(process.pid).children() for process in found if process]
        self._servers = [
            child for family in families for child in family if child.name() == SERVER_NAME
        ]

    def run(self, app: Path, settings: Path | None, is_done: Callable[[], bool]) -> Run:
        """Submit an app, wait until it is done and return what was seen of it."""
        words = ["run", str(app), self.federation.connection]
        words += ["--run-config", str(settings)] if settings else []
        before = self._cpu_seconds()
        self._logs.forget()
        flwr(words, self.federation.home, SUBMIT_SECONDS)
        deadline = time.monotonic() + RUN_SECONDS
        while not is_done():
            self._logs.read()
            if time.monotonic() > deadline:
                raise TimeoutError(f"a run has not ended within {RUN_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        self._await_exits()
        self._logs.read()
        return Run(self._logs.messages(), self._cpu_seconds() - before)

    def _cpu_seconds(self) -> float:
        """Return the CPU time of all client processes so far, and of what forks them."""
        total = 0.0
        for server in self._servers:
            times = server.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
            for task in _tasks(server):
                own = task.cpu_times()
                total += own.user + own.system
        return total

    def _await_exits(self) -> None:
        deadline = time.monotonic() + EXIT_SECONDS
        while any(map(_tasks, self._servers)) and time.monotonic() < deadline:
            self._logs.read()
            time.sleep(POLL_SECONDS)


def _tasks(server: psutil.Process) -> list[psutil.Process]:
    """Return the client processes that a SuperNode's server of forks has started."""
    return [child for child in server.children() if child.name() == CLIENT_TASK]


def measure(folder: Path, rounds: int, repeats: int) -> dict[str, list[Run]]:
    """Let the variants take turns on one federation."""
    runs: dict[str, list[Run]] = {PLAIN: [], OURS: [], SCORED: []}
    config = parse({"algo": "fedavg", "num-clients": NODES, "num-rounds": rounds})
    export(config, folder / "job")
    (folder / "ours").mkdir()
    ours = stage_app(folder / "ours", all_defaults())
    with federation(folder / "federation") as nodes:
        for turn in range(repeats):
            for variant, some in runs.items():
                place = folder / f"{variant}-{turn}"
                place.mkdir()
                print(f"{variant}, {turn + 1} of {repeats}", file=sys.stderr, flush=True)
                if variant == PLAIN:
                    some.append(_run_plain(nodes, folder / "job", place))
                else:
                    some.append(_run_ours(nodes, ours, config, variant == SCORED, place))
    return runs


def _run_plain(nodes: Nodes, job: Path, place: Path) -> Run:
    output, app = place / "scores.json", place / "app"
    shutil.copytree(SOURCE, app / SOURCE.name, ignore=shutil.ignore_patterns("__pycache__"))
    (app / "pyproject.toml").write_text(PLAIN_APP.format(job=job, output=output))
    return nodes.run(app, None, output.exists)


def _run_ours(nodes: Nodes, app: Path, config: RunConfig, scored: bool, place: Path) -> Run:
    asked = {"results-dir": str(place), "run-name": "run"}
    asked |= {"personal-eval": "on", "client-test-fraction": "0.2"} if scored else {}
    settings = write_settings(place / "run-config.toml", parse(config.flat() | asked).flat())
    return nodes.run(app, settings, lambda: RunFolder(place / "run").state.done)


def export(config: RunConfig, folder: Path) -> None:
    """Write the rows, the split and the training of a run for the plain app."""
    task = open_task(config.task)
    save_arrays(folder, task.dataset.x, task.dataset.y, task.split.train, task.split.test)
    Job(
        model=config.model,
        model_seed=seeds.integer(config.seed, "model"),
        shape=task.shape,
        rounds=config.num_rounds,
        batch_size=config.batch_size,
        local_epochs=config.local_epochs,
        local_steps=config.local_steps,
        lr=config.lr,
    ).save(folder)


@contextmanager
def federation(folder: Path) -> Iterator[Nodes]:
    """Run a SuperLink and SuperNodes for a block, as ``fedsuite deploy up`` starts them."""
    planned = plan(folder, NODES, connection="benchmark")
    try:
        started = [start_superlink(planned)]
        started += [start_supernode(planned, node) for node in planned.nodes]
        await_nodes(planned, NODES, started)
        yield Nodes(planned)
    finally:
        processes = planned.processes()
        stop(*(process for process in processes if process.name != SUPERLINK))
        stop(*processes)


def import_seconds() -> list[float]:
    """Return the CPU seconds of importing Flower, PyTorch and fedsuite's client, in this order."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORTS], capture_output=True, text=True, check=True
    )
    return [float(seconds) for seconds in done.stdout.split()]


def deployed_report(rounds: int = 8, repeats: int = 3) -> str:
    """Measure, and return this part of the report as Markdown."""
    before = os.getloadavg()[0]
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    with tempfile.TemporaryDirectory(prefix="fsd-", ignore_cleanup_errors=True) as folder:
        runs = measure(Path(folder), rounds, repeats)
    notes = f"Load average before and after: {before:.1f}, {os.getloadavg()[0]:.1f}."
    return f"{markdown(runs, NODES, import_seconds())}\n\n{notes}"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.deployed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="rounds of each run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each variant")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    print(deployed_report(options.rounds, options.repeats))


if __name__ == "__main__":
    main()
