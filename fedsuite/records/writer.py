"""The run directory is the record.

``config.json`` (resolved settings, versions, machine), ``history.jsonl`` (a line per round),
``clients.jsonl`` (a line per client and round), ``summary.json``, ``model.safetensors``,
``checkpoint/``, ``clients/`` (their state), ``run.log``. Whole files are replaced atomically,
lines are appended; readers need nothing else and work while a run goes on, or years later.
"""

from __future__ import annotations

import json
import os
import platform
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors.numpy import save

from fedsuite import registry
from fedsuite.config import RunConfig, parse
from fedsuite.core.files import (
    acquire,
    is_locked,
    json_line,
    read_document,
    read_lines,
    write_atomically,
    write_json,
)
from fedsuite.core.settings import UserError, suggest

LOCK_WAIT = 15.0
META = "meta"
DEFAULT_RESULTS = "runs"


class RunRecord:
    """The folder of one run, held by one writer at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: IO[str] | None = None
        self._history: IO[str] | None = None
        self._clients: IO[str] | None = None

    @classmethod
    def create(cls, config: RunConfig, provenance: Mapping[str, Any]) -> RunRecord:
        """Make a new run's folder and write its settings."""
        folder = run_folder(config)
        refuse_existing(folder)
        make_folder(folder)
        record = cls(folder)
        record._acquire()
        refuse_existing(folder)
        document = config.flat() | {"run-id": uuid.uuid4().hex, META: dict(provenance)}
        write_json(folder / "config.json", document)
        record._open()
        return record

    @classmethod
    def reopen(cls, folder: Path, last_round: int) -> RunRecord:
        """Take up a run again after ``last_round``; lines written later are dropped."""
        record = cls(folder)
        record._acquire()
        for name in ("history.jsonl", "clients.jsonl"):
            kept = [row for row in read_lines(folder / name) if row["round"] <= last_round]
            write_atomically(folder / name, "".join(json_line(row) for row in kept).encode())
        (folder / "summary.json").unlink(missing_ok=True)
        record._open()
        return record

    def save_config(self, config: RunConfig) -> None:
        """Replace the settings of a run whose federation has grown."""
        document = read_document(self.folder / "config.json")
        write_json(self.folder / "config.json", document | config.flat())

    @property
    def run_id(self) -> str:
        """The id under which nodes recognise this folder."""
        return str(json.loads((self.folder / "config.json").read_text())["run-id"])

    def history(self) -> list[dict[str, Any]]:
        """Return the rounds recorded so far."""
        return read_lines(self.folder / "history.jsonl")

    def add_round(self, row: Mapping[str, Any], client_rows: Iterable[Mapping[str, Any]]) -> None:
        """Append a round and its clients; on disk before this returns."""
        assert self._history is not None and self._clients is not None
        self._clients.write("".join(json_line({"round": row["round"], **r}) for r in client_rows))
        self._clients.flush()
        self._history.write(json_line(row))
        self._history.flush()

    def sync(self) -> None:
        """Force what was appended to the disk, before a checkpoint relies on it."""
        for file in (self._clients, self._history):
            assert file is not None
            os.fsync(file.fileno())

    def save_model(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Write the final global model under its parameters' names."""
        write_atomically(self.folder / "model.safetensors", save(dict(tensors)))

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary and let go of the folder."""
        write_json(self.folder / "summary.json", summary)
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        for file in (self._history, self._clients, self._lock):
            if file is not None:
                file.close()

    def _open(self) -> None:
        self._history = (self.folder / "history.jsonl").open("a")
        self._clients = (self.folder / "clients.jsonl").open("a")

    def _acquire(self) -> None:
        """Take the folder's lock; the kernel releases a killed writer's."""
        busy = (
            f"The run in {self.folder} is still being written by another process. "
            "Wait for it to end, or stop it."
        )
        self._lock = acquire(self.folder / ".lock", LOCK_WAIT, busy)


def run_folder(config: RunConfig) -> Path:
    """Return where a run lives."""
    return Path(config.results_dir).expanduser().absolute() / config.run_name


def make_folder(folder: Path) -> None:
    """Make a run's folder, or say why that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"results-dir = '{folder.parent}' is not possible: {error.strerror}. Choose a folder "
            "you may write to."
        ) from None


def is_being_written(folder: Path) -> bool:
    """Return whether some process of this machine holds the run."""
    return is_locked(folder / ".lock")


def resume_command(folder: Path) -> str:
    """Return the command that goes on with a run, from where the user stands."""
    usual = folder.parent == Path(DEFAULT_RESULTS).absolute()
    return f"fedsuite resume {folder.name if usual else folder}"


def refuse_existing(folder: Path) -> None:
    """Never write over a run, nor into one that began while we waited for its lock."""
    if (folder / "config.json").exists():
        raise UserError(
            f"The run '{folder.name}' exists already in {folder.parent}. Choose another name, go "
            f"on with it by `{resume_command(folder)}`, or delete that folder."
        )


def default_name(config: RunConfig) -> str:
    """Make a name that tells runs apart."""
    moment = datetime.now().strftime("%Y%m%d-%H%M%S")
    algo = registry.namespace(config.algo)
    unique = uuid.uuid4().hex[:4]
    return f"{algo}-{config.dataset}-{config.partition}-s{config.seed}-{moment}-{unique}"


def find_run(name: str, results_dir: str) -> Path:
    """Return a run's folder by its path, or by its name inside the results folder."""
    for folder in (Path(results_dir) / name, Path(name)):
        if (folder / "config.json").exists():
            return folder.absolute()
    known = [p.parent.name for p in Path(results_dir).glob("*/config.json")]
    raise UserError(
        f"There is no run '{name}' in {Path(results_dir).absolute()}. "
        + (suggest(name, known) if known else "That folder holds no runs yet.")
    )


def read_config(folder: Path) -> RunConfig:
    """Return a recorded run's settings."""
    document = read_document(folder / "config.json")
    values = {k: v for k, v in document.items() if k not in ("run-id", META)}
    return parse(values)


def provenance(config: RunConfig, engine: str, split: str) -> dict[str, Any]:
    """Collect what a reader needs to trust a run: command, versions, machine, split."""
    packages = ("flwr", "torch", "numpy", "flwr-datasets", "ray")
    return {
        "engine": engine,
        "command": config.command(),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "split-fingerprint": split,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": {name: _version(name) for name in ("fedsuite", *packages)},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
