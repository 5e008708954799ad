"""A suite in the terminal: one live table, or a line per event where there is no terminal."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fedsuite.core.settings import UserError
from fedsuite.core.text import counted
from fedsuite.metrics import ROUND_SCORES
from fedsuite.records.folder import RunState
from fedsuite.records.history import LiveHistory, Row, last_round, score_curve, seconds_left
from fedsuite.records.reader import DAMAGE, read_summary
from fedsuite.records.summary import missing_sentence
from fedsuite.suites.definition import Suite
from fedsuite.suites.forecast import NO_FORECAST, Forecast
from fedsuite.suites.jobs import Job
from fedsuite.suites.run_estimate import total_seconds
from fedsuite.terminal.format import duration

DONE = "done"
STYLES = {
    RunState.FAILED: "red",
    RunState.RUNNING: "bold",
    RunState.WAITING: "dim",
    DONE: "green",
}
ORDER = list(STYLES)


@dataclass
class SuiteRun:
    """A run of the suite and its state; its rounds are read from its folder.

    ``expected`` is the estimate of the seconds that it takes, None if there is none. ``missing``
    says what share of the client updates of a run that is done is missing.
    """

    job: Job
    state: RunState
    expected: float | None = None
    reason: str = ""
    before: bool = False
    started: float = 0.0
    seconds: float = 0.0
    missing: str = ""
    _history: LiveHistory = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.state.done
        self.missing = _missing(self.job) if self.before else ""
        self._history = LiveHistory(self.job.files.history_file)

    def start(self) -> None:
        """Note that the run has started."""
        self.state, self.started = RunState.RUNNING, time.monotonic()

    def end(self, reason: str) -> None:
        """Note that the run has ended, and why if it failed."""
        self.state, self.reason = (RunState.FAILED if reason else RunState.FINISHED), reason
        self.seconds = time.monotonic() - self.started
        self.missing = "" if reason else _missing(self.job)

    @property
    def label(self) -> str:
        """The state in a word; ``done`` however the run was finished."""
        return DONE if self.state.done else self.state.value

    @property
    def ended(self) -> bool:
        """Whether the run has ended, well or not."""
        return self.state.done or self.state is RunState.FAILED

    @property
    def history(self) -> Sequence[Row]:
        """The rounds recorded so far, as far as they can be read."""
        with suppress(UserError):
            self._history.update()
        return self._history.rows


class LiveTable:
    """Shows the runs of a suite while they run; the forecast is what they are to take in all."""

    def __init__(
        self,
        console: Console,
        suite: Suite,
        runs: Sequence[SuiteRun],
        forecast: Forecast = NO_FORECAST,
    ) -> None:
        self.console, self.runs = console, runs
        self._forecast = forecast
        self.title = suite.heading
        self._scale = "small scale: " if suite.small else ""
        self._printed = {run.job.name: run.state for run in runs}
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> LiveTable:
        done = sum(run.before for run in self.runs)
        runs = f"{counted(len(self.runs), 'run')}, {done} of them done before"
        self._print("; ".join(filter(None, [f"{self.title}: {runs}", self._forecast.text])))
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
        """Show the runs as they are now."""
        if self._live:
            self._live.update(self._table(self.console.height - 5), refresh=True)
            return
        ended = sum(run.ended for run in self.runs)
        for run in self.runs:
            if self._printed[run.job.name] != run.state:
                self._printed[run.job.name] = run.state
                self._print(f"[{ended}/{len(self.runs)}] {run.job.name}  {_event(run)}")

    def conclude(self, folder: Path) -> None:
        """Print how many runs are done, and which failed."""
        done = sum(run.state.done for run in self.runs)
        failed = [run for run in self.runs if run.state is RunState.FAILED]
        self._print(f"{self.title}: {done} done, {len(failed)} failed, in {folder}")
        for run in failed:
            self._print(f"failed: {run.job.name}: {run.reason} (see {run.job.folder})")
        for run in self.runs:
            if run.missing:
                self._print(f"incomplete: {run.job.name}: {run.missing} (see {run.job.folder})")
        if done:
            self._print(f"make a report with: fedsuite report {shlex.quote(str(folder))}")

    def _table(self, height: int) -> Table:
        """Return as many runs as fit, failed and running ones first."""
        counts = Counter(run.label for run in self.runs)
        sums = ", ".join(f"{counts[label]} {label}" for label in ORDER if counts[label])
        left = time_left(self.runs, self._forecast.width)
        sums += f"; about {duration(left)} left" if left else ""
        table = Table(box=None, padding=(0, 2, 0, 0), caption=self._scale + sums)
        table.caption_justify = "left"
        for heading in ("run", "state", "round", ROUND_SCORES[0].title, "time left"):
            table.add_column(heading, overflow="fold")
        ranked = sorted(self.runs, key=lambda run: ORDER.index(run.label))
        for run in ranked[: max(height, 1)]:
            history = run.history
            cells = [_round(run, history), _score(history), _time_left(run, history)]
            state = run.label + (" before" if run.before else "")
            state += ", incomplete" if run.missing else ""
            table.add_row(escape(run.job.name), state, *cells, style=STYLES[run.label])
        return table

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def time_left(runs: Sequence[SuiteRun], width: int) -> float | None:
    """Estimate the seconds until all runs have ended; None if that of one is not known.

    A run that has rounds is judged by them, another by its estimate, times what those that have
    ended took of theirs.
    """
    ended = [(r.seconds, r.expected) for r in runs if r.seconds and r.state.done and r.expected]
    pace = sum(took for took, _ in ended) / sum(e for _, e in ended) if ended else 1.0
    left = []
    for run in runs:
        if run.ended:
            continue
        running = run.state is RunState.RUNNING
        own = seconds_left(run.history, run.job.config.num_rounds) if running else None
        if own is None and run.expected is not None:
            spent = time.monotonic() - run.started if running else 0.0
            own = max(pace * run.expected - spent, 0.0)
        if own is None:
            return None
        left.append(own)
    return total_seconds(left, width)


def _event(run: SuiteRun) -> str:
    """Describe what happened to a run."""
    history = run.history
    if run.state.done:
        score, took = _score(history), duration(run.seconds)
        missing = f", {run.missing}" if run.missing else ""
        return f"done: round {_round(run, history)}, accuracy {score}, {took}{missing}"
    if run.state is RunState.FAILED:
        return f"failed: {run.reason}"
    return f"resumed after round {_round(run, history)}" if history else "started"


def _missing(job: Job) -> str:
    try:
        return missing_sentence(read_summary(job.files))
    except DAMAGE:
        return ""


def _round(run: SuiteRun, history: Sequence[Row]) -> str:
    return f"{last_round(history)}/{run.job.config.num_rounds}"


def _score(history: Sequence[Row]) -> str:
    """Write the last accuracy: of the global model, else the clients' own."""
    found = score_curve(history)
    return found[0].as_recorded(found[1][-1][1]) if found else ""


def _time_left(run: SuiteRun, history: Sequence[Row]) -> str:
    left = seconds_left(history, run.job.config.num_rounds)
    return duration(left) if run.state is RunState.RUNNING and left is not None else ""
