"""List the runs of a folder, one line each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedsuite.metrics import Metric
from fedsuite.records.folder import RunState, run_folders
from fedsuite.records.reader import Run, read_run


@dataclass(frozen=True)
class ListedRun:
    """A run at a glance; ``note`` says what is wrong with a run that cannot be read."""

    name: str
    state: RunState
    rounds: int = 0
    metric: Metric | None = None
    value: float | None = None
    note: str = ""

    @property
    def description(self) -> str:
        """State, rounds and score in a few words."""
        if self.state is RunState.BROKEN:
            return f"{self.state}: {self.note}"
        parts = [str(self.state), f"round {self.rounds}"]
        if self.metric is not None and self.value is not None:
            parts.append(f"{self.metric.title} {self.metric.as_recorded(self.value)}")
        return ", ".join(parts)


def list_runs(results: Path) -> list[ListedRun]:
    """Return the runs of a folder by name, whatever state they are in."""
    return [_listed(read_run(folder.path)) for folder in run_folders(results)]


def _listed(run: Run) -> ListedRun:
    metric, value = run.score or (None, None)
    return ListedRun(run.name, run.state, run.last_round, metric, value, run.note)
