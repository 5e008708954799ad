"""A run that is watched while something is done to it, and one of Flower's simulation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from fedsuite.core.files import read_lines
from fedsuite.core.processes import Child, kill, start
from fedsuite.flower.commands import environment, executable
from fedsuite.records.folder import RunFolder

CLIENTS = 3
PATIENCE_SECONDS = 900.0
WORKER = "ray::ClientApp"


class WatchedRun:
    """The commands that start and resume a run, and its record.

    ``options`` are added to every command, ``settings`` to the run's; ``home`` is Flower's home
    folder.
    """

    settings: tuple[str, ...] = ()

    def __init__(self, folder: Path, options: Sequence[str], home: Path | None = None) -> None:
        self.place, self.options, self.home = folder, options, home
        self.folder = folder / "runs" / "run"
        self.log = folder / "run.log"
        self.commands: list[Child] = []

    def submit(self, *words: str) -> Child:
        """Start ``fedsuite run`` or ``fedsuite resume``."""
        command = [*executable("fedsuite"), *words, *self.options]
        with self.log.open("ab") as log:
            child = start(command, environment(self.home), cwd=self.place, output=log)
        self.commands.append(child)
        return child

    def rounds(self) -> list[dict[str, Any]]:
        """Return the rounds recorded so far, without the one before training."""
        return [row for row in read_lines(RunFolder(self.folder).history_file) if row["round"]]

    def await_round(self, number: int) -> None:
        """Wait until a round is recorded."""
        self.wait_until(lambda: len(self.rounds()) >= number, f"round {number}")

    def await_line(self, text: str) -> None:
        """Wait until the command has printed some text."""
        self.wait_until(lambda: text in self.log.read_text(errors="replace"), f"'{text}'")

    def await_end(self) -> None:
        """Wait until all commands have ended."""
        self.wait_until(lambda: self._has_ended, "the end of the run")

    def close(self) -> None:
        """End all commands."""
        kill(*self.commands)

    @property
    def _has_ended(self) -> bool:
        return bool(self.commands) and all(c.poll() is not None for c in self.commands)

    def wait_until(self, happened: Callable[[], bool], what: str) -> None:
        """Wait until something has happened; fail if the run ends before."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            if self._has_ended or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{what} did not happen. The run printed:\n{said}")
            time.sleep(0.2)


class SimulatedRun(WatchedRun):
    """A run of Flower's simulation, its clients on two Ray workers."""

    settings = (f"num-clients={CLIENTS}",)

    def find_workers(self) -> list[psutil.Process]:
        """Return the workers, which have all answered once the first line is recorded."""
        history = RunFolder(self.folder).history_file
        self.wait_until(lambda: bool(read_lines(history)), "the start of the run")
        found = []
        for member in self.commands[0].identity.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [member] if member.name().startswith(WORKER) else []
        return found

    def resume_beside(self) -> None:
        """Resume the run while it is live; fail unless that is refused."""
        second = self.submit("resume", "run")
        self.wait_until(lambda: second.poll() is not None, "the end of the resume")
        said = self.log.read_text(errors="replace")
        if second.returncode != 2 or "still being written by another process" not in said:
            raise RuntimeError(f"the resume ended with status {second.returncode}:\n{said[-3000:]}")


@contextlib.contextmanager
def simulated_run(folder: Path) -> Iterator[SimulatedRun]:
    """Prepare a run on two workers."""
    run = SimulatedRun(folder, ["--engine", "ray", "--nodes", "2"])
    try:
        yield run
    finally:
        run.close()
