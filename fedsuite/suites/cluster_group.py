"""A suite's runs on a Ray cluster: each is a process on whichever machine has room for it.

A machine that sees the suite's folder writes its run there, so that progress shows and a run that
was cut off can be resumed; from one that does not, the finished run is fetched.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsuite.core.files import replacing_folder
from fedsuite.core.processes import start, stop
from fedsuite.core.scratch import scratch_folder
from fedsuite.engines.cluster import Machine, count_slots
from fedsuite.engines.table import DEFAULT_IN_SUITES
from fedsuite.records.folder import PRIVATE_FOLDER, RunFolder
from fedsuite.suites.live_table import SuiteRun
from fedsuite.suites.process_group import (
    STOP_SECONDS,
    STOP_SIGNAL,
    environment,
    reason_of_failure,
    run_words,
)

RESULTS = "results-dir="


@dataclass
class Submitted:
    """A run that was handed to Ray, and whether that was done again after its machine was lost."""

    future: Any
    again: bool = False


class ClusterGroup:
    """The runs of a suite on a cluster: as many at a time as fit, each with a share of a GPU."""

    def __init__(self, machines: Sequence[Machine], jobs: int, threads: int, gpus: float) -> None:
        slots = count_slots(machines, gpus, threads)
        self.width = min(jobs or slots, slots)
        self._needs = {"num_cpus": threads, "num_gpus": gpus, "max_retries": 0}
        self._shared = {machine.node_id: machine.sees_folder for machine in machines}
        self._submitted: dict[str, Submitted] = {}

    def start(self, run: SuiteRun) -> None:
        """Start or resume a run."""
        run.job.files.make()
        run.start()
        self._submitted[run.job.name] = Submitted(self._submit(run))

    def poll(self, run: SuiteRun) -> None:
        """Note whether a run has ended, and how; start one again, once, whose machine was lost."""
        import ray
        from ray.exceptions import RayError

        submitted = self._submitted[run.job.name]
        if not ray.wait([submitted.future], timeout=0)[0]:
            return
        try:
            status, packed = ray.get(submitted.future)
        except RayError as error:
            if not submitted.again:
                self._submitted[run.job.name] = Submitted(self._submit(run), again=True)
                return
            status, packed = 1, b""
            lost = str(error).strip().splitlines()[0]
            run.job.files.console_file.write_text(f"its machine was lost twice: {lost}\n")
        del self._submitted[run.job.name]
        if packed:
            unpack(packed, run.job.folder)
        run.end("" if run.job.done else reason_of_failure(run.job, status))

    def stop(self) -> None:
        """Interrupt all runs, and wait until they have ended."""
        import ray

        futures = [submitted.future for submitted in self._submitted.values()]
        for future in futures:
            ray.cancel(future)
        if futures:
            ray.wait(futures, num_returns=len(futures), timeout=STOP_SECONDS)

    def _submit(self, run: SuiteRun) -> Any:
        import ray

        job = run.job
        words = [*run_words(job), "--engine", DEFAULT_IN_SUITES, "--nodes", "1"]
        variables = environment(job.config.client_threads)
        function = ray.remote(compute).options(**self._needs)
        return function.remote(words, variables, str(job.folder), self._shared)


def compute(
    words: list[str], variables: dict[str, str], folder: str, shared: dict[str, bool]
) -> tuple[int, bytes]:
    """Execute a run on this machine; return its status and, if it must be fetched, its folder."""
    import ray

    if shared.get(ray.get_runtime_context().get_node_id(), False):
        return execute(words, variables, RunFolder(Path(folder))), b""
    with scratch_folder() as home:
        place = home / Path(folder).name
        RunFolder(place).make()
        here = [f"{RESULTS}{home}" if w.startswith(RESULTS) else w for w in words]
        here = ["resume=false" if word == "resume=true" else word for word in here]
        return execute(here, variables, RunFolder(place)), pack(place)


def execute(words: Sequence[str], variables: dict[str, str], files: RunFolder) -> int:
    """Execute a run as a process that ends with this function, however that ends."""
    command = [sys.executable, "-m", "fedsuite.cli", *words]
    with files.console_file.open("ab") as output:
        process = start(command, variables, output=output)
        try:
            return process.wait()
        except BaseException:
            stop(process, first=STOP_SIGNAL, grace=STOP_SECONDS)
            raise


def pack(folder: Path) -> bytes:
    """Return a folder as an archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        archive.add(folder, arcname=".")
    return stream.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Replace a folder by an archive's content."""
    with (
        replacing_folder(folder, PRIVATE_FOLDER) as unfinished,
        tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive,
    ):
        archive.extractall(unfinished, filter="data")
