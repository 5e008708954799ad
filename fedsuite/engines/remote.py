"""Runs on real nodes: submit a run to a SuperLink, follow it, see how it ended.

The run belongs to the SuperLink and does not need this command; only Ctrl-C stops it. If its folder
can be read from here (a SuperLink on this machine), progress is read from the folder; otherwise the
run's own log lines are shown as the SuperLink streams them.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fedsuite.config import RunConfig, all_defaults
from fedsuite.core.processes import Terminated, start, stop
from fedsuite.core.protocol import INCOMPLETE_RUN, LINE_MARK, RESULTS_ARE_IN
from fedsuite.core.scratch import scratch_folder
from fedsuite.core.settings import RunFailed, UserError
from fedsuite.core.text import clean_line, clean_lines, counted
from fedsuite.engines.start import claim_folder, refuse_failure
from fedsuite.flower.app import stage_app
from fedsuite.flower.commands import (
    SUBMIT_SECONDS,
    CommandFailed,
    environment,
    executable,
    run_status,
    stop_run,
    submit,
    write_settings,
)
from fedsuite.flower.connections import Connection
from fedsuite.nodes.setup import check_server_data
from fedsuite.records.folder import DEFAULT_RESULTS, RunFolder, default_name
from fedsuite.terminal.progress import follow
from fedsuite.terminal.show import MAX_SHOWN

POLL_SECONDS = 0.2
STATUS_SECONDS = 60.0
LAST_SECONDS = 20.0
COMPLETED = "finished:completed"


@dataclass(frozen=True)
class Ended:
    """A run that is done: its folder, and the machine that it is on if that is not this one.

    ``lacks`` is whether client updates are missing, as far as the log of a run elsewhere tells.
    """

    folder: Path
    machine: str = ""
    lacks: bool = False


class Stream:
    """The log of a run as ``flwr log`` streams it, read on a second thread until it ends."""

    def __init__(self, run_id: str, connection: str) -> None:
        words = ["log", run_id, connection, "--stream"]
        self.process = start(
            [*executable("flwr"), *words],
            environment() | {"PYTHONUNBUFFERED": "1"},
            output=subprocess.PIPE,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def own_lines(self) -> list[str]:
        """The run's own lines, without Flower's and without their mark."""
        return [s.removeprefix(LINE_MARK) for s in list(self.lines) if s.startswith(LINE_MARK)]

    @property
    def folder(self) -> str:
        """Where the run's results are, once its log says so."""
        found = (s for s in self.own_lines if s.startswith(RESULTS_ARE_IN))
        return next(found, "").removeprefix(RESULTS_ARE_IN)

    def is_open(self, seconds: float) -> bool:
        """Wait for the stream's end; return whether it is still open after ``seconds``."""
        self._reader.join(seconds)
        return self._reader.is_alive()

    def close(self) -> None:
        """Stop reading; the run is not affected."""
        stop(self.process)
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.lines.append(line.decode(errors="replace").rstrip())


def submit_run(config: RunConfig, connection: Connection, console: Console) -> Ended:
    """Run an experiment on the nodes of a SuperLink; return where its results are."""
    config = dataclasses.replace(_settle(config, connection), superlink=connection.name)
    if not config.resume:
        console.print(
            f"[bold]{config.algo}[/bold] on {config.dataset}: "
            f"{counted(config.num_rounds, 'round')}, seed {config.seed}, "
            f"clients are the nodes of '{connection.name}'",
            highlight=False,
        )
    with scratch_folder() as folder:
        settings = write_settings(folder / "run-config.toml", config.flat())
        return Follower(config, connection, console).run(settings)


class Follower:
    """Submits one run and follows it to its end."""

    def __init__(self, config: RunConfig, connection: Connection, console: Console) -> None:
        self.config, self.connection, self.console = config, connection, console
        self.run_id = self.folder = ""
        self.shown = 0
        self.log: list[str] = []
        self.own_lines: list[str] = []

    def run(self, settings: Path) -> Ended:
        """Submit the run, show its progress until it has ended; return where its results are."""
        try:
            self._submit(settings)
            self._say(f"run {self.run_id} on '{self.connection.name}'")
            status, details = self._follow()
        except Terminated:
            if self.run_id:
                self._say(f"the run {self.run_id} goes on; `{self._log_command}` follows it")
            raise
        except KeyboardInterrupt:
            self._stop()
            raise
        if not self._is_visible:
            return self._conclude_elsewhere(status, details)
        self._keep_log()
        there = ["--superlink", self.connection.name]
        refuse_failure(RunFolder(Path(self.folder)), options=there)
        return Ended(Path(self.folder))

    def _submit(self, settings: Path) -> None:
        """Submit on a second thread: after Ctrl-C the run's id is still needed to stop the run."""
        app = stage_app(settings.parent, all_defaults())
        call = submit(self.connection.name, app, settings)
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(call.answer, SUBMIT_SECONDS)
            try:
                self.run_id = str(answer.result()["run-id"])
            except KeyboardInterrupt as interrupt:
                why = "name" if isinstance(interrupt, Terminated) else "stop"
                self._say(f"waiting for the run's id, to {why} it, {LAST_SECONDS:.0f} s at most")
                try:
                    self.run_id = str(answer.result(LAST_SECONDS)["run-id"])
                except TimeoutError:
                    listed = shlex.join(["flwr", "list", self.connection.name])
                    self._say(f"the run may have been submitted; `{listed}` shows whether it was")
                except CommandFailed:
                    pass  # there is no run
                finally:
                    call.end()
                raise
            except CommandFailed as error:
                raise UserError(
                    f"The SuperLink '{self.connection.name}' ({self.connection.address}) did not "
                    f"accept the run. {error}"
                ) from None

    def _follow(self) -> tuple[str, str]:
        """Stream the run until it has ended, again if only the stream has; return its status."""
        lost_at: float | None = None
        while True:
            self._watch()
            try:
                status, details = run_status(self.run_id, self.connection.name)
                if status.startswith("finished"):
                    return status, details
                lost_at = None
            except CommandFailed as error:
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > STATUS_SECONDS:
                    raise UserError(
                        "The SuperLink can no longer be reached; the run may still be running. "
                        f"`{self._log_command}` follows it. {error}"
                    ) from None
                time.sleep(1)

    @property
    def _is_visible(self) -> bool:
        """Whether the run's folder is on this machine."""
        seen = bool(self.folder) and RunFolder(Path(self.folder)).exists
        return seen and self.connection.is_loopback

    def _watch(self) -> None:
        """Show the run's rounds until the stream ends."""
        stream = Stream(self.run_id, self.connection.name)
        try:
            is_open = True
            while is_open:
                is_open = stream.is_open(POLL_SECONDS)
                self.folder = self.folder or stream.folder
                if self._is_visible:
                    rounds = self.config.num_rounds
                    follow(Path(self.folder), rounds, stream.is_open, self.console)
                    break
                self._print_new_lines(stream.own_lines)
        finally:
            stream.close()
            self.log, self.own_lines = stream.lines, stream.own_lines

    def _print_new_lines(self, lines: list[str]) -> None:
        """Print what was not printed before; a new stream begins with the run's first line."""
        for line in lines[self.shown :]:
            self._say(clean_lines(line, MAX_SHOWN))
        self.shown = max(self.shown, len(lines))

    def _stop(self) -> None:
        """Stop the run after Ctrl-C."""
        if not self.run_id:
            return
        try:
            stop_run(self.run_id, self.connection.name)
            self._say(f"stopped run {self.run_id}; to resume it: `{self._resume_command}`")
        except CommandFailed as error:
            self._say(f"the run {self.run_id} could not be stopped. {error}")

    @property
    def _resume_command(self) -> str:
        there = ["--superlink", self.connection.name]
        if self._is_visible:
            return f"{RunFolder(Path(self.folder)).resume_command} {shlex.join(there)}"
        results = self.config.results_dir
        words = [] if results == DEFAULT_RESULTS else ["--results-dir", results]
        return shlex.join(["fedsuite", "resume", self.config.run_name, *words, *there])

    @property
    def _log_command(self) -> str:
        return shlex.join(["flwr", "log", self.run_id, self.connection.name])

    def _conclude_elsewhere(self, status: str, details: str) -> Ended:
        """Print where the results are of a run whose folder is on another machine."""
        if status == COMPLETED:
            source = f"{self.connection.host}:{self.folder}"
            self._say(
                f"results are in {self.folder} on the SuperLink's machine; to fetch and show them:"
                f"\n  mkdir -p runs && {shlex.join(['scp', '-r', source, 'runs/'])}"
                f"\n  {shlex.join(['fedsuite', 'show', self.config.run_name])}"
            )
            lacks = any(line.startswith(INCOMPLETE_RUN) for line in self.own_lines)
            return Ended(Path(self.folder), self.connection.host, lacks)
        why = "" if details == "N/A" else f": {clean_line(details)}"
        raise RunFailed(
            f"The run {self.run_id} ended as '{status}'{why}. `{self._log_command}` shows its "
            "whole log."
        )

    def _keep_log(self) -> None:
        """Append the run's log to its folder, as the other engines do."""
        path = RunFolder(Path(self.folder)).log_file
        try:
            with path.open("a") as log:
                log.write("\n".join([*self.log, ""]))
        except OSError as error:
            self._say(f"{path} is not written: {error.strerror}")

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _settle(config: RunConfig, connection: Connection) -> RunConfig:
    """Name the run; on this machine its results folder is relative to the current directory."""
    if connection.is_loopback:
        check_server_data(config)
        folder = RunFolder.of(config).path
        if not config.resume or _can_be_claimed(folder):
            config, folder = claim_folder(config)
        return dataclasses.replace(config, results_dir=str(folder.parent))
    return config if config.run_name else dataclasses.replace(config, run_name=default_name(config))


def _can_be_claimed(folder: Path) -> bool:
    """Return whether a run is here and ours, rather than the SuperLink's, in a container or not."""
    return RunFolder(folder).exists and os.access(folder, os.W_OK)
