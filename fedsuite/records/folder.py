"""The folder of a run: its files by name, and the states of a run.

A run's folder is ``<results-dir>/<run-name>``; a suite's folder holds the folders of its runs and
a manifest that lists them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsuite import registry
from fedsuite.core.files import absolute_path, is_locked, read_document
from fedsuite.core.settings import UserError, invalid, shown, suggest
from fedsuite.records.provenance import META, RUN_ID

if TYPE_CHECKING:
    from fedsuite.config import RunConfig

DEFAULT_RESULTS = "runs"
REPORT_PAGE, REPORT_RUNS = "index.html", "runs.csv"  # a folder with both is a report


class RunState(StrEnum):
    """The state of a run. The first four are written to ``summary.json`` as its status."""

    FINISHED = "finished"
    TARGET_REACHED = "target reached"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    RUNNING = "running"
    WAITING = "waiting"  # its suite has not started it yet
    NOT_FINISHED = "not finished"  # no summary, and no process is writing it
    NOT_STARTED = "not started"
    EMPTY = "empty"
    BROKEN = "broken"

    @property
    def done(self) -> bool:
        """Whether the run has ended without failing."""
        return self in (RunState.FINISHED, RunState.TARGET_REACHED)


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run, which need not exist, and the paths of its files."""

    path: Path

    @classmethod
    def of(cls, config: RunConfig) -> RunFolder:
        """Return the folder that the settings of a run name."""
        return cls(absolute_path(config.results_dir) / config.run_name)

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def config_file(self) -> Path:
        """Resolved settings, id and provenance."""
        return self.path / "config.json"

    @property
    def history_file(self) -> Path:
        """A line per round."""
        return self.path / "history.jsonl"

    @property
    def clients_file(self) -> Path:
        """A line per client and round."""
        return self.path / "clients.jsonl"

    @property
    def summary_file(self) -> Path:
        """How the run ended, and its results."""
        return self.path / "summary.json"

    @property
    def model_file(self) -> Path:
        """The final global model."""
        return self.path / "model.safetensors"

    @property
    def checkpoint_file(self) -> Path:
        """The newest checkpoint."""
        return self.path / "checkpoint" / "latest.safetensors"

    @property
    def client_states(self) -> Path:
        """The folder of the clients' own states, in a simulation."""
        return self.path / "clients"

    @property
    def client_models(self) -> Path:
        """The folder of the clients' own models, if the algorithm has any."""
        return self.path / "models"

    def client_model_file(self, client: int) -> Path:
        """A client's own model."""
        return self.client_models / f"client-{client:06d}.safetensors"

    def client_extra_file(self, client: int) -> Path:
        """What a client predicts with beside its model, if anything."""
        return self.client_models / f"extra-{client:06d}.safetensors"

    @property
    def schema_file(self) -> Path:
        """The schema that deployed nodes agreed on."""
        return self.path / "schema.json"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self.path / "tensorboard"

    @property
    def log_file(self) -> Path:
        """Log lines of the run and its engine."""
        return self.path / "run.log"

    @property
    def console_file(self) -> Path:
        """What the run printed, if a suite started it."""
        return self.path / "console.log"

    @property
    def lock_file(self) -> Path:
        """Locked by the process that writes the run."""
        return self.path / ".lock"

    @property
    def exists(self) -> bool:
        """Whether there is a run: one that has written its settings."""
        return os.path.exists(self.config_file)  # False also for a path that cannot be

    @property
    def writer(self) -> str:
        """The command that began or resumed the run last, as a process writes its identity."""
        try:
            return self.lock_file.read_text()
        except OSError:
            return ""

    @property
    def is_being_written(self) -> bool:
        """Whether a process of this machine is writing the run."""
        return is_locked(self.lock_file)

    @property
    def state(self) -> RunState:
        """The run's state, by its summary and its lock."""
        try:
            return self.state_with(read_document(self.summary_file))
        except (UserError, OSError, ValueError, TypeError):
            return RunState.BROKEN

    def state_with(self, summary: Mapping[str, Any]) -> RunState:
        """Return the run's state, given the content of its summary."""
        status = summary.get("status")
        if status:
            if status not in set(RunState):
                raise ValueError(f"{self.summary_file.name} has an unknown status: {status!r}")
            resumed = not RunState(status).done and self.is_being_written
            return RunState.RUNNING if resumed else RunState(status)
        if self.is_being_written:
            return RunState.RUNNING
        return RunState.NOT_FINISHED if self.exists else RunState.NOT_STARTED

    @property
    def reason(self) -> str:
        """Why the run failed, as recorded; empty if that cannot be read."""
        try:
            return str(read_document(self.summary_file).get("reason") or "")
        except (UserError, OSError, ValueError, TypeError):
            return ""

    @property
    def resume_command(self) -> str:
        """The command that resumes the run, as typed in the current directory."""
        return self.command("resume")

    def command(self, verb: str) -> str:
        """Return a command about the run, as typed in the current directory."""
        usual = self.path.parent == Path(DEFAULT_RESULTS).absolute()
        return f"fedsuite {verb} {self.name if usual else self.path}"

    def read_provenance(self) -> dict[str, Any]:
        """Return command, engine, versions, machine and split, as recorded."""
        return dict(read_document(self.config_file).get(META, {}))

    def read_config(self) -> RunConfig:
        """Return the recorded settings."""
        from fedsuite.config import parse  # imports the algorithm, which most readers do not need

        document = read_document(self.config_file)
        return parse({key: v for key, v in document.items() if key not in (RUN_ID, META)})

    def make(self) -> None:
        """Make the folder."""
        make_folder(self.path)

    def refuse_existing(self) -> None:
        """Refuse to write over a run, or where no folder can be."""
        try:
            os.lstat(self.config_file)
        except FileNotFoundError:
            return
        except OSError as error:
            raise UserError(
                f"The run's folder '{shown(self.path)}' cannot be made: {error.strerror}. Choose "
                "another results-dir or run-name."
            ) from None
        if self.exists:
            verb, what = ("show", " and is done") if self.state.done else ("resume", "")
            raise UserError(
                f"The run '{self.name}' already exists in {self.path.parent}{what}. Choose another "
                f"name, {verb} it with `{self.command(verb)}`, or delete that folder."
            )


class RunIsDone(UserError):
    """There is nothing to resume, perhaps since another command has just finished the run."""

    def __init__(self, files: RunFolder) -> None:
        super().__init__(
            f"The run in {files.path} is done; there is nothing to resume. "
            f"`{files.command('show')}` shows it."
        )


@dataclass(frozen=True)
class SuiteFolder:
    """The folder of a suite's runs."""

    path: Path

    @property
    def manifest_file(self) -> Path:
        """What the suite's runs are."""
        return self.path / "suite.json"

    @property
    def lock_file(self) -> Path:
        """Locked by the process that runs the suite."""
        return self.path / ".lock"

    @property
    def exists(self) -> bool:
        """Whether the folder is a suite's."""
        return self.manifest_file.exists()

    def others(self) -> list[SuiteFolder]:
        """Return the suites beside this one."""
        folders = map(SuiteFolder, subfolders(self.path.parent))
        return [suite for suite in folders if suite.exists and suite != self]


def make_folder(folder: Path) -> None:
    """Make a folder inside results-dir; blame results-dir if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{error.strerror}. Choose a folder that you can write to."
        raise invalid("results-dir", folder.parent, reason) from None


def default_name(config: RunConfig) -> str:
    """Return a name for a run that tells it apart from all others."""
    moment = datetime.now().strftime("%Y%m%d-%H%M%S")
    algo = registry.namespace(config.algo)
    unique = uuid.uuid4().hex[:4]
    return f"{algo}-{config.dataset}-{config.partition}-s{config.seed}-{moment}-{unique}"


def find_run(name: str, results_dir: str) -> Path:
    """Return a run's folder by its path, or by its name inside the results folder."""
    for folder in (Path(results_dir) / name, Path(name)):
        if RunFolder(folder).exists:
            return folder.absolute()
    known = [folder.name for folder in run_folders(Path(results_dir))]
    raise UserError(
        f"There is no run '{shown(name)}' in {Path(results_dir).absolute()}. "
        + (suggest(name, known) if known else "That folder has no runs yet.")
    )


def run_folders(results: Path) -> list[RunFolder]:
    """Return the runs in a folder, by name."""
    return [folder for folder in map(RunFolder, subfolders(results)) if folder.exists]


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder that are not hidden, by name; none if it is not there."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
