"""Runs on real nodes: hand a run to a SuperLink, follow it from here, end with its status.

The run belongs to the SuperLink and goes on whatever happens to this command; only Ctrl-C stops
it. Where its folder can be seen from here (a SuperLink on this machine), progress is read from it;
elsewhere the run's own lines are shown as the SuperLink streams them.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console

from fedsuite.config import RunConfig
from fedsuite.core.settings import UserError
from fedsuite.engines.start import claim_folder, conclude
from fedsuite.flower.commands import (
    app_folder,
    end_with_parent,
    environment,
    executable,
    stop,
    to_toml,
)
from fedsuite.flower.connections import Connection
from fedsuite.flower.control import CommandFailed, run_status, stop_run
from fedsuite.records.folder import RunFolder, default_name
from fedsuite.terminal.progress import follow

POLL_SECONDS = 0.2
STATUS_SECONDS = 60.0
TAIL = 40
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
STARTED = re.compile(r"Successfully started run (\d+)")
FOLDER = re.compile(r"results are in (.+)")
FLOWERS_OWN = re.compile(r"(DEBUG|INFO|WARNING|ERROR) +:|Using SuperLink|Successfully |$")


class Stream:
    """What ``flwr`` says of a run, read on a second thread until it ends."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(
            [*executable("flwr"), *words],
            env=environment() | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def own(self) -> list[str]:
        """The run's own lines, without Flower's."""
        return [line for line in list(self.lines) if not FLOWERS_OWN.match(line)]

    @property
    def run_id(self) -> str:
        """The run's number, as soon as it is known."""
        return self._first(STARTED)

    @property
    def folder(self) -> str:
        """Where the run says its results are, as soon as it does."""
        return self._first(FOLDER)

    def goes_on(self, seconds: float) -> bool:
        """Wait a little; say whether there may be more."""
        self._reader.join(seconds)
        return self._reader.is_alive()

    def close(self) -> None:
        """End the reading; the run is not touched."""
        stop(self.process)
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.lines.append(COLOUR.sub("", line.decode(errors="replace")).rstrip())
        self.process.wait()

    def _first(self, pattern: re.Pattern[str]) -> str:
        found = (pattern.match(line) for line in list(self.lines))
        return next((match.group(1) for match in found if match), "")


def submit_run(config: RunConfig, connection: Connection) -> int:
    """Run an experiment on the nodes of a SuperLink; return the command's status."""
    console = Console()
    config = _settle(config, connection)
    if not config.resume:
        console.print(
            f"[bold]{config.algo}[/bold] on {config.dataset}: {config.num_rounds} rounds, seed "
            f"{config.seed}, clients are the nodes of '{connection.name}'",
            highlight=False,
        )
    with tempfile.TemporaryDirectory(prefix="fedsuite-") as place:
        settings = Path(place) / "run-config.toml"
        settings.write_text("".join(f"{k} = {to_toml(v)}\n" for k, v in config.flat().items()))
        words = ["run", str(app_folder()), connection.name]
        stream = Stream([*words, "--run-config", str(settings), "--stream"])
        return Follower(config, connection, console, stream).follow()


class Follower:
    """Follows one run to its end."""

    def __init__(
        self, config: RunConfig, connection: Connection, console: Console, stream: Stream
    ) -> None:
        self.config, self.connection, self.console = config, connection, console
        self.stream = stream
        self.run_id = self.folder = ""
        self.shown = 0

    def follow(self) -> int:
        """Show progress until the run has ended; return the command's status."""
        try:
            self._watch()
            status, details = self._final_status()
        except KeyboardInterrupt:
            return self._interrupted()
        finally:
            self.stream.close()
        if not self._is_visible:
            return self._conclude_elsewhere(status, details)
        self._keep_log()
        code = conclude(Path(self.folder), self.console)
        if code:
            self._say(f"{self._how_to_resume} goes on with it")
        return code

    @property
    def _is_visible(self) -> bool:
        """Whether the run's folder is on this machine."""
        seen = bool(self.folder) and RunFolder(Path(self.folder)).exists
        return seen and self.connection.is_loopback

    def _watch(self) -> None:
        """Show the run's rounds until the stream ends."""
        running = True
        while running:
            running = self.stream.goes_on(POLL_SECONDS)
            self._learn()
            if self._is_visible:
                follow(Path(self.folder), self.config.num_rounds, self.stream.goes_on, self.console)
                return
            self._print_new_lines()

    def _learn(self) -> None:
        self.folder = self.folder or self.stream.folder
        if not self.run_id and self.stream.run_id:
            self.run_id = self.stream.run_id
            self._say(f"run {self.run_id} on '{self.connection.name}'")

    def _print_new_lines(self) -> None:
        lines = self.stream.own
        for line in lines[self.shown :] if self.run_id else []:
            self._say(line)
        self.shown = max(self.shown, len(lines)) if self.run_id else 0

    def _final_status(self) -> tuple[str, str]:
        """Ask how the run ended; if only the stream did, go on following."""
        self._learn()
        if not self.run_id:
            raise UserError(
                f"The SuperLink '{self.connection.name}' ({self.connection.address}) did not take "
                "the run. Flower said:\n" + "\n".join(self.stream.lines[-TAIL:])
            )
        deadline = time.monotonic() + STATUS_SECONDS
        while True:
            try:
                status, details = run_status(self.run_id, self.connection.name)
                if status.startswith("finished"):
                    return status, details
                self._attach_again()
            except CommandFailed as error:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"The SuperLink can no longer be reached; the run may go on there. "
                        f"`flwr log {self.run_id} {self.connection.name}` follows it. {error}"
                    ) from None
                time.sleep(1)

    def _attach_again(self) -> None:
        self.stream.close()
        self.stream = Stream(["log", self.run_id, self.connection.name, "--stream"])
        self._watch()

    def _interrupted(self) -> int:
        """Stop the run, since whoever wanted it has gone."""
        while not self.run_id and self.stream.goes_on(POLL_SECONDS):
            self._learn()
        if not self.run_id:
            return 130
        try:
            stop_run(self.run_id, self.connection.name)
        except CommandFailed as error:
            self._say(f"the run {self.run_id} could not be stopped. {error}")
            return 130
        self._say(f"stopped run {self.run_id}; {self._how_to_resume} goes on with it")
        return 130

    @property
    def _how_to_resume(self) -> str:
        seen = self._is_visible
        folder = RunFolder(Path(self.folder) if seen else Path(self.config.run_name))
        return f"`{folder.resume_command} --superlink {self.connection.name}`"

    def _conclude_elsewhere(self, status: str, details: str) -> int:
        """End with what can be said of a run whose folder is on another machine."""
        if status == "finished:completed":
            host = self.connection.host
            self._say(
                f"results are in {self.folder} on the SuperLink's machine; fetch them by\n"
                f"  mkdir -p runs && scp -r {host}:{self.folder} runs/\n"
                f"and `fedsuite show {self.config.run_name}` shows them"
            )
            return 0
        why = "" if details == "N/A" else f": {details}"
        print(
            f"fedsuite: the run {self.run_id} ended as '{status}'{why}. "
            f"`flwr log {self.run_id} {self.connection.name}` shows all of its log.",
            file=sys.stderr,
        )
        return 1

    def _keep_log(self) -> None:
        """Leave the run's lines beside its results, as the other engines do."""
        try:
            with RunFolder(Path(self.folder)).log_file.open("a") as log:
                log.write("\n".join([*self.stream.lines, ""]))
        except OSError:
            self._say(f"{self.folder} belongs to somebody else; run.log is not written there")

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _settle(config: RunConfig, connection: Connection) -> RunConfig:
    """Name the run; on this machine let results land where the user stands."""
    if connection.is_loopback:
        config, folder = claim_folder(config)
        return dataclasses.replace(config, results_dir=str(folder.parent))
    return config if config.run_name else dataclasses.replace(config, run_name=default_name(config))
