"""The folder of a run: its files by name, and the states of a run.

A run's folder is ``<results-dir>/<run-name>``; a suite's folder holds the folders of its runs and
a manifest that lists them.
"""

from __future__ import annotations

import difflib
import os
import shlex
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsuite.core.files import absolute_path, is_locked, is_readable, read_document, unreadable
from fedsuite.core.plugins import short_name
from fedsuite.core.settings import UserError, invalid, shown, suggest
from fedsuite.records.provenance import META, RUN_ID

if TYPE_CHECKING:
    from fedsuite.config import RunConfig

DEFAULT_RESULTS = "runs"
LATEST = "latest"  # the name of whichever run began last, unless a run has that name
MAX_NAMED = 10
PRIVATE_FOLDER = 0o700
DIVERGED = "training diverged: "  # begins the reason of a run that a resume would only repeat
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


ENDINGS = (RunState.FINISHED, RunState.TARGET_REACHED, RunState.FAILED, RunState.INTERRUPTED)


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
    def model_description_file(self) -> Path:
        """What the models take and give: architecture, preprocessing, classes."""
        return self.path / "model.json"

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
    def report(self) -> Path:
        """The report that trackers keep."""
        return self.path / "report"

    def tracker_file(self, name: str) -> Path:
        """The run's id in a tracker, and the last round that it has."""
        return self.path / f"{name}.json"

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
        return os.path.exists(self.config_file)  # False also for what can be no path

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
            if status not in ENDINGS:
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
    def can_go_on(self) -> bool:
        """Whether a resume could take the run further: it has begun, is not done, or diverged."""
        return self.exists and not self.state.done and not self.reason.startswith(DIVERGED)

    @property
    def resume_command(self) -> str:
        """The command that resumes the run, as typed in the current directory."""
        return self.command("resume")

    def command(self, verb: str) -> str:
        """Return a command about the run, as typed in the current directory."""
        usual = self.path.parent == Path(DEFAULT_RESULTS).absolute()
        is_name = usual and not self.name.startswith("-")
        return shlex.join(["fedsuite", verb, self.name if is_name else str(self.path)])

    def read_provenance(self) -> dict[str, Any]:
        """Return command, engine, versions, machine and split, as recorded."""
        recorded = read_document(self.config_file).get(META, {})
        if not isinstance(recorded, dict):
            raise UserError(f"{self.config_file} is damaged: {META} is no JSON object.")
        return recorded

    def read_config(self) -> RunConfig:
        """Return the recorded settings."""
        from fedsuite.config import parse  # imports the algorithm, which most readers do not need

        document = read_document(self.config_file)
        try:
            return parse({key: v for key, v in document.items() if key not in (RUN_ID, META)})
        except UserError as error:
            raise UserError(f"{self.config_file} cannot be used. {error}") from None

    def make(self) -> None:
        """Make the folder, which only this user may enter; one that is there stays as it is."""
        make_folder(self.path, PRIVATE_FOLDER)

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
        return os.path.exists(self.manifest_file)

    def others(self) -> list[SuiteFolder]:
        """Return the suites beside this one."""
        folders = map(SuiteFolder, subfolders(self.path.parent))
        return [suite for suite in folders if suite.exists and suite != self]


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder inside results-dir; blame results-dir if that fails."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{error.strerror}. Choose a folder that you can write to."
        raise invalid("results-dir", folder.parent, reason) from None


def default_name(config: RunConfig) -> str:
    """Return a name for a run that tells it apart from all others."""
    moment = datetime.now().strftime("%Y%m%d-%H%M%S")
    names = [short_name(name) for name in (config.algo, config.dataset, config.partition)]
    unique = uuid.uuid4().hex[:4]
    return f"{'-'.join(names)}-s{config.seed}-{moment}-{unique}"


def find_run(name: str, results_dir: str) -> Path:
    """Return a run's folder by its path, or as the results folder has it.

    There it goes by its name, by how its name alone begins, or as ``latest``, which began last.
    """
    found = seek_run(name, results_dir) or match_run(name, results_dir)
    if found is not None:
        return found
    known = all_runs(Path(results_dir))
    raise UserError(
        f"There is no run '{shown(name)}' in {Path(results_dir).absolute()}. "
        + (suggest(name, known) if known else "That folder has no runs yet.")
    )


def seek_run(name: str, results_dir: str) -> Path | None:
    """Return a run's folder by its path or whole name; None if there is no such run."""
    for folder in (Path(results_dir) / name, Path(name)):
        if RunFolder(folder).exists:
            return folder.absolute()
        if name and os.path.isdir(folder) and not is_readable(folder):
            raise UserError(unreadable(folder))
    return None


def match_run(name: str, results_dir: str) -> Path | None:
    """Return the latest run, or the only one whose name begins so; None if there is none."""
    runs = all_runs(Path(results_dir))
    if name == LATEST:
        begun = [run for run in runs.values() if run.exists]
        return max(begun, key=_began).path.absolute() if begun else None
    found = [known for known in runs if name and known.startswith(name)]
    if len(found) > 1:
        more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        raise UserError(
            f"The names of {len(found)} runs in {Path(results_dir).absolute()} begin with "
            f"'{shown(name)}': {', '.join(found[:MAX_NAMED])}{more}. Write more of one."
        )
    return runs[found[0]].path.absolute() if found else None


def _began(run: RunFolder) -> tuple[float, float]:
    """Return when a run began, as it has recorded and, to tell a second's runs apart, its file."""
    try:
        recorded = datetime.fromisoformat(run.read_provenance()["started"]).timestamp()
    except (UserError, OSError, ValueError, TypeError, KeyError):
        recorded = 0.0
    return recorded, run.config_file.stat().st_mtime


def similar_run(name: str, results_dir: str) -> str:
    """Return the name of the run that is nearest to a name, "" if none is near."""
    known = all_runs(Path(results_dir))
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.5)), "")


def run_folders(results: Path) -> list[RunFolder]:
    """Return the runs in a folder, by name; also folders of which nobody here can tell."""
    folders = map(RunFolder, subfolders(results))
    return [folder for folder in folders if folder.exists or not is_readable(folder.path)]


def all_runs(results: Path) -> dict[str, RunFolder]:
    """Return the runs in a folder and in folders below by name, e.g. ``a-suite/fedavg-s1``."""
    found = {}
    for folder in map(RunFolder, subfolders(results)):
        if folder.exists or not is_readable(folder.path):
            found[folder.name] = folder
        elif not folder.path.is_symlink():
            below = all_runs(folder.path).items()
            found |= {f"{folder.name}/{name}": run for name, run in below}
    return found


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder that are not hidden, by name; none if it is not there."""
    if not os.path.isdir(folder):
        return []
    try:
        return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    except PermissionError:
        raise UserError(unreadable(folder)) from None
