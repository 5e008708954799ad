"""What a tracker is, and what those have in common whose runs outlive a process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fedsuite.config import RunConfig
from fedsuite.core.files import read_document, write_json
from fedsuite.records.folder import RunFolder

PROJECT = "fedsuite"


class Tracker:
    """A tool that is told of a run which begins, or continues after ``last_round``."""

    keeps_files: ClassVar[bool] = False

    def __init__(self, config: RunConfig, files: RunFolder, last_round: int) -> None:
        """Begin, or continue what an interrupted run began."""

    def add_round(self, row: Mapping[str, Any]) -> None:
        """Record a round's numbers; leave out a round that it has."""

    def add_summary(self, summary: Mapping[str, Any]) -> None:
        """Record the numbers of the summary."""

    def add_files(self, name: str, paths: Sequence[Path]) -> None:
        """Keep files of the run's folder, and all that its folders contain, under a name."""

    def close(self, finished: bool) -> None:
        """End; ``finished`` is whether the run did not fail."""


class ExternalRun(Tracker, ABC):
    """A run of another tool. Its id and its last round are in a file, by which a resume goes on."""

    keeps_files = True
    name: ClassVar[str]
    buffers: ClassVar[bool] = False  # what is sent may be lost until the end

    def __init__(self, config: RunConfig, files: RunFolder, last_round: int) -> None:
        self._file = files.tracker_file(self.name)
        known = read_document(self._file)
        self._last_round = int(known.get("round", -1))
        self._id = self.open(config, files, str(known.get("id", "")))
        self._save()

    @abstractmethod
    def open(self, config: RunConfig, files: RunFolder, known_id: str) -> str:
        """Open the run of an id, or a new one if that is empty; return its id."""

    @abstractmethod
    def send(self, number: int, metrics: Mapping[str, float]) -> None:
        """Record the numbers of a round."""

    @abstractmethod
    def end(self, finished: bool) -> None:
        """End; all that was sent is safe when this returns."""

    def add_round(self, row: Mapping[str, Any]) -> None:
        """Record a round's numbers, and that it is recorded."""
        if row["round"] > self._last_round:
            self.send(row["round"], numbers(row))
            self._last_round = row["round"]
            if not self.buffers:
                self._save()

    def close(self, finished: bool) -> None:
        """End, and note what is recorded."""
        self.end(finished)
        self._save()

    def _save(self) -> None:
        write_json(self._file, {"id": self._id, "round": self._last_round})


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return a row's numbers by the names of their metrics."""
    return {k: v for k, v in row.items() if k != "round" and isinstance(v, int | float)}
