"""Write a run's folder.

Whole files are replaced atomically, lines are appended: readers need nothing else, while the run is
in progress or years later.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors.numpy import save

from fedsuite.config import RunConfig
from fedsuite.core.files import (
    LineReader,
    acquire,
    json_line,
    naming,
    read_document,
    remove_unfinished,
    write_atomically,
    write_json,
)
from fedsuite.core.processes import Process
from fedsuite.core.settings import UserError
from fedsuite.flower.commands import COMMAND
from fedsuite.records.checks import is_client_row, is_round
from fedsuite.records.folder import RunFolder, RunIsDone
from fedsuite.records.provenance import META, RUN_ID

LOCK_WAIT = 15.0


class RunRecord:
    """The folder of one run, held by one writer at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, RunFolder(folder)
        self.run_id = ""  # under which nodes recognise this folder
        self._rounds: list[dict[str, Any]] = []
        self._lock: IO[str] | None = None
        self._history: IO[str] | None = None
        self._clients: IO[str] | None = None

    @classmethod
    def create(cls, config: RunConfig, provenance: Mapping[str, Any]) -> RunRecord:
        """Make a new run's folder and write its settings."""
        files = RunFolder.of(config)
        files.refuse_existing()
        files.make()
        record = cls(files.path)
        record._acquire()
        try:
            files.refuse_existing()  # another run of this name may have begun meanwhile
            record.run_id = uuid.uuid4().hex
            document = config.flat() | {RUN_ID: record.run_id, META: dict(provenance)}
            write_json(files.config_file, document)
            record._open()
        except BaseException:
            record.close()
            raise
        return record

    @classmethod
    def hold(cls, folder: Path) -> RunRecord:
        """Take the lock of a run to be resumed, before anything of it is read.

        What was read while another process wrote the run may be stale by now: it may be done.
        """
        record = cls(folder)
        if not record.files.exists:
            raise UserError(
                f"There is nothing to resume in {folder}: the run had not written its settings. "
                "Start it again without resume."
            )
        record._acquire()
        try:
            if record.files.state.done:
                raise RunIsDone(record.files)
            record.run_id = _read_run_id(record.files.config_file)
        except BaseException:
            record.close()
            raise
        return record

    def rewind(self, last_round: int) -> None:
        """Continue the run after ``last_round``, a checkpoint's; later lines are dropped.

        Nothing is dropped if a line is damaged or the checkpoint's round is not there. What a
        killed writer left unfinished goes first: it may be what fills the disk.
        """
        remove_unfinished(self.folder)
        kept = self.lines_until(last_round)
        self._rounds = kept[self.files.history_file]
        for path, rows in kept.items():
            write_atomically(path, "".join(map(json_line, rows)).encode())
        self.files.summary_file.unlink(missing_ok=True)
        self._open()

    def lines_until(self, last_round: int | None) -> dict[Path, list[dict[str, Any]]]:
        """Return the lines of each file up to a round (None: all).

        Refuse damaged lines, and a history that lacks the round.
        """
        kept: dict[Path, list[dict[str, Any]]] = {}
        checks = {self.files.clients_file: is_client_row, self.files.history_file: is_round}
        for path, is_valid in checks.items():
            reader = LineReader(path, is_valid)
            rows = reader.new_lines()
            if reader.damage:
                raise UserError(
                    f"The run in {self.folder} cannot be resumed: {reader.damage}. Restore the "
                    "file from a copy, or delete what is damaged; it then stays unknown."
                )
            kept[path] = [row for row in rows if last_round is None or row["round"] <= last_round]
        rounds = [row["round"] for row in kept[self.files.history_file]]
        if last_round is not None and last_round >= 0 and last_round not in rounds:
            raise UserError(
                f"The run in {self.folder} cannot be resumed: its checkpoint is of round "
                f"{last_round}, which {self.files.history_file.name} lacks. Restore the file from "
                "a copy."
            )
        return kept

    def save_config(self, config: RunConfig) -> None:
        """Replace the settings of a run whose federation has grown."""
        document = read_document(self.files.config_file)
        write_json(self.files.config_file, document | config.flat())

    def history(self) -> list[dict[str, Any]]:
        """Return the rounds recorded so far, as the file has them."""
        return list(self._rounds)

    def add_round(self, row: Mapping[str, Any], client_rows: Iterable[Mapping[str, Any]]) -> None:
        """Append a round and its clients; readers see them when this returns."""
        assert self._history is not None
        self.add_client_rows(row["round"], client_rows)
        line = json_line(row)
        _append(self._history, self.files.history_file, line)
        self._rounds.append(json.loads(line))

    def add_client_rows(self, number: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append what is known of clients in a round."""
        assert self._clients is not None
        lines = "".join(json_line({"round": number, **row}) for row in rows)
        _append(self._clients, self.files.clients_file, lines)

    def sync(self) -> None:
        """Force what was appended to the disk, before a checkpoint relies on it."""
        for file in (self._clients, self._history):
            assert file is not None
            with naming(Path(file.name)):
                os.fsync(file.fileno())

    def save_model(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Write the final global model under its parameters' names."""
        write_atomically(self.files.model_file, save(dict(tensors)))

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary and release the folder."""
        write_json(self.files.summary_file, summary)
        self.close()

    def close(self) -> None:
        """Release the folder, also if what was appended last cannot be written."""
        for file in (self._history, self._clients, self._lock):
            if file is not None:
                with suppress(OSError):
                    file.close()

    def _open(self) -> None:
        assert self._lock is not None
        self._lock.truncate(0)
        writer = os.environ.get(COMMAND) or Process.current().to_text()
        _append(self._lock, self.files.lock_file, writer)
        self._history = self.files.history_file.open("a")
        self._clients = self.files.clients_file.open("a")

    def _acquire(self) -> None:
        """Take the folder's lock; the kernel releases a killed writer's."""
        busy = (
            f"The run in {self.folder} is still being written by another process. "
            "Wait for it to end, or stop it."
        )
        self._lock = acquire(self.files.lock_file, LOCK_WAIT, busy)


def _read_run_id(path: Path) -> str:
    found = read_document(path).get(RUN_ID)
    if not isinstance(found, str) or not found:
        raise UserError(
            f"{path} is damaged: {RUN_ID} cannot be {found!r}. Restore the file from a copy, or "
            "start the run again under another name."
        )
    return found


def _append(file: IO[str], path: Path, text: str) -> None:
    with naming(path):
        file.write(text)
        file.flush()
