"""What a person sees of a suite: one live table, or a line per event where there is no terminal."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fedsuite.core.files import read_lines
from fedsuite.suites.definition import Suite
from fedsuite.suites.jobs import Job
from fedsuite.terminal.progress import clock, seconds_left

STYLES = {"running": "bold", "failed": "red", "done": "green", "waiting": "dim"}
ORDER = ("failed", "running", "waiting", "done")


@dataclass
class Run:
    """A run of the suite and how it stands; its rounds are read from its folder."""

    job: Job
    state: str
    reason: str = ""
    before: bool = False
    started: float = 0.0
    seconds: float = 0.0
    _size: int = -1
    _history: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = self.state == "done"

    def start(self) -> None:
        """Note that the run goes on."""
        self.state, self.started = "running", time.monotonic()

    def end(self, reason: str) -> None:
        """Note that the run has ended, and why if it failed."""
        self.state, self.reason = ("failed" if reason else "done"), reason
        self.seconds = time.monotonic() - self.started

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rounds recorded so far, read again only when there are more."""
        path = self.job.folder / "history.jsonl"
        size = path.stat().st_size if path.exists() else 0
        if size != self._size:
            self._size, self._history = size, read_lines(path)
        return self._history

    @property
    def round(self) -> str:
        """The last round of how many."""
        last = self.history[-1]["round"] if self.history else 0
        return f"{last}/{self.job.config.num_rounds}"

    @property
    def accuracy(self) -> str:
        """The last score: of the global model, else the clients' own."""
        for name in ("accuracy", "personal_accuracy"):
            scores = [row[name] for row in self.history if row.get(name) is not None]
            if scores:
                return f"{scores[-1]:.4f}"
        return ""

    @property
    def left(self) -> str:
        """The time a running run still needs."""
        left = seconds_left(self.history, self.job.config.num_rounds) if self.history else None
        return clock(left) if self.state == "running" and left is not None else ""


class View:
    """Shows the runs of a suite while they go on."""

    def __init__(self, console: Console, suite: Suite, runs: Sequence[Run]) -> None:
        self.console, self.runs = console, runs
        small = suite.scale == "small"
        self.title = suite.title + (" (small scale, not the paper's setting)" if small else "")
        self._scale = "small scale: " if small else ""
        self._said = {run.job.name: run.state for run in runs}
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> View:
        done = sum(run.before for run in self.runs)
        self._print(f"{self.title}: {len(self.runs)} runs, {done} of them done before")
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self) -> None:
        """Show how the runs stand now."""
        if self._live:
            self._live.update(self._table(self.console.height - 5), refresh=True)
            return
        ended = sum(run.state in ("done", "failed") for run in self.runs)
        for run in self.runs:
            if self._said[run.job.name] != run.state:
                self._said[run.job.name] = run.state
                self._print(f"[{ended}/{len(self.runs)}] {run.job.name}  {_news(run)}")

    def conclude(self, folder: Path) -> None:
        """Say what it comes to."""
        counts = Counter(run.state for run in self.runs)
        self._print(f"{self.title}: {counts['done']} done, {counts['failed']} failed, in {folder}")
        for run in self.runs:
            if run.state == "failed":
                self._print(f"failed: {run.job.name}: {run.reason} (see {run.job.folder})")
        if counts["done"]:
            self._print(f"the table as a page: fedsuite report {shlex.quote(str(folder))}")

    def _table(self, height: int) -> Table:
        """Return the runs that matter most now, as many as there is room for."""
        counts = Counter(run.state for run in self.runs)
        sums = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
        table = Table(box=None, padding=(0, 2, 0, 0), caption=self._scale + sums)
        table.caption_justify = "left"
        for heading in ("run", "state", "round", "accuracy", "time left"):
            table.add_column(heading)
        ranked = sorted(self.runs, key=lambda run: ORDER.index(run.state))
        for run in ranked[: max(height, 1)]:
            style = STYLES[run.state]
            state = run.state + (" before" if run.before else "")
            table.add_row(
                escape(run.job.name), state, run.round, run.accuracy, run.left, style=style
            )
        return table

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _news(run: Run) -> str:
    if run.state == "done":
        return f"done: round {run.round}, accuracy {run.accuracy}, {clock(run.seconds)}"
    if run.state == "failed":
        return f"failed: {run.reason}"
    return f"goes on after round {run.round}" if run.history else "started"
