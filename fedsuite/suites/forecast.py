"""What the runs of a suite, or one run, will take in all, before any of them is started."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsuite.config import RunConfig
from fedsuite.core.files import absolute_path
from fedsuite.core.text import counted
from fedsuite.engines.choice import choose_engine
from fedsuite.engines.table import AUTO, ENGINES, SHORT_RUNS
from fedsuite.records.folder import RunFolder, default_name
from fedsuite.records.reader import read_run
from fedsuite.suites.jobs import Job, refuse_missing_data
from fedsuite.suites.run_estimate import Estimate, Estimator, total_memory, total_seconds
from fedsuite.terminal.format import duration, size
from fedsuite.training.loop import check_feasible
from tasks.dataset_cache import is_local

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Forecast:
    """Estimates of the runs that are to be run, by name; ``width`` of them run at a time."""

    estimates: Mapping[str, Estimate]
    width: int

    @property
    def seconds(self) -> float:
        """How long the runs take whose time is known."""
        known = (e.seconds for e in self.estimates.values() if e.seconds is not None)
        return total_seconds(known, self.width)

    @property
    def text(self) -> str:
        """The time in words; empty if nothing is to be run."""
        if not self.estimates:
            return ""
        unknown = sum(estimate.seconds is None for estimate in self.estimates.values())
        if unknown == len(self.estimates):
            return "time unknown"
        at_a_time = f", {self.width} runs at a time" if self.width > 1 else ""
        rest = f" without {counted(unknown, 'run')} of unknown time" if unknown else ""
        return f"about {duration(self.seconds)}{at_a_time}{rest}"

    @property
    def memory(self) -> str:
        """The memory in words; empty if it is not known."""
        known = [e.memory for e in self.estimates.values() if e.memory is not None]
        return f"up to {size(total_memory(known, self.width))} of memory" if known else ""


NO_FORECAST = Forecast({}, 1)


def make_forecast(
    jobs: Sequence[Job], results: Path, engine: str, nodes: int, width: int, memory: bool = False
) -> Forecast:
    """Estimate runs; of one that was interrupted, what is left of it."""
    if not jobs:
        return NO_FORECAST
    estimator, estimates = Estimator(results, engine, nodes), {}
    for job in jobs:
        estimate = estimator.estimate(job.config, memory)
        estimates[job.name] = estimate.scaled(1 - rounds_done(job) / job.config.num_rounds)
    return Forecast(estimates, min(width, len(jobs)))


def forecast_run(config: RunConfig, engine: str, nodes: int, console: Console) -> None:
    """Print what one run takes on an engine, which may be left to its length."""
    if config.run_name and not config.resume:
        RunFolder.of(config).refuse_existing()
    config = dataclasses.replace(config, run_name=config.run_name or default_name(config))
    job, task = Job({}, "", config), config.task
    refuse_missing_data([config], fetch=False)
    if engine == AUTO and is_local(task.dataset, task.data_root, task.columns):
        engine, why = choose_engine(config, *check_feasible(config))
        console.print(why, highlight=False)
    engine = SHORT_RUNS if engine == AUTO else engine
    nodes = nodes or ENGINES[engine].default_nodes
    at_once = nodes if ENGINES[engine].parallel else 1
    results = absolute_path(config.results_dir)
    forecast = make_forecast([job], results, engine, at_once, 1, memory=True)
    show_forecast(f"{config.algo} on {config.dataset}", [job], forecast, console)


def rounds_done(job: Job) -> int:
    """Return how many rounds a run that was begun has recorded."""
    return min(read_run(job.folder).last_round, job.config.num_rounds) if job.begun else 0


def show_forecast(title: str, jobs: Sequence[Job], forecast: Forecast, console: Console) -> None:
    """List runs with their estimates, and the totals; those without one are done."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("run", "state", "rounds", "time", "memory", "estimated by"):
        table.add_column(heading, overflow="fold")
    for job in jobs:
        cells = _cells(job, forecast.estimates.get(job.name))
        table.add_row(*map(escape, [job.name, *cells]))
    console.print(table, highlight=False)
    done = len(jobs) - len(forecast.estimates)
    before = f", {done} of them done before" if done else ""
    parts = [f"{title}: {counted(len(jobs), 'run')}{before}", forecast.text, forecast.memory]
    text = "; ".join(filter(None, parts))
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _cells(job: Job, estimate: Estimate | None) -> list[str]:
    rounds = str(job.config.num_rounds)
    if estimate is None:
        return ["done", rounds, "", "", ""]
    begun = rounds_done(job)
    state = f"resumed after round {begun}" if begun else "new"
    time = UNKNOWN if estimate.seconds is None else duration(estimate.seconds)
    memory = UNKNOWN if estimate.memory is None else size(estimate.memory)
    return [state, rounds, time, memory, estimate.basis]
