"""Start a run on this machine: check the settings, hand over to an engine, show the results."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from rich.console import Console

from fedsuite.client_app import pick_device
from fedsuite.config import RunConfig
from fedsuite.engines.contract import EngineOptions, IsRunning
from fedsuite.engines.table import ENGINES, load_engine
from fedsuite.flower.commands import log_tail
from fedsuite.records.folder import RunFolder, default_name
from fedsuite.records.reader import read_run
from fedsuite.terminal.progress import follow
from fedsuite.terminal.show import show
from fedsuite.training.loop import check_feasible

TAIL = 40


def start_run(config: RunConfig, engine: str, nodes: int, gpus: float) -> int:
    """Check all that can be checked, then execute the run; return the command's status.

    With ``nodes`` = 0 the run has the engine's default number of nodes.
    """
    execute = load_engine(engine)
    console = Console()
    config, folder = claim_folder(config)
    pick_device(config.device)
    check_feasible(config)
    announce(config, console)

    def show_progress(is_running: IsRunning) -> None:
        follow(folder, config.num_rounds, is_running, console)

    execute(config, EngineOptions(nodes or ENGINES[engine].default_nodes, gpus), show_progress)
    return conclude(folder, console)


def claim_folder(config: RunConfig) -> tuple[RunConfig, Path]:
    """Name the run if it has no name; refuse a folder that another run has."""
    if not config.run_name:
        config = dataclasses.replace(config, run_name=default_name(config))
    folder = RunFolder.of(config)
    if config.resume:
        folder.summary_file.unlink(missing_ok=True)
    else:
        folder.refuse_existing()
    return config, folder.path


def announce(config: RunConfig, console: Console) -> None:
    """Print in a line what is going to run."""
    console.print(
        f"[bold]{config.algo}[/bold] on {config.dataset}: {config.model}, {config.partition}, "
        f"{config.num_clients} clients, {config.num_rounds} rounds, seed {config.seed}",
        highlight=False,
    )


def conclude(folder: Path, console: Console) -> int:
    """Show a run that has ended, or why it failed; return the command's status."""
    problem = failure(folder)
    if problem:
        print(f"{problem}\nfedsuite: the run failed; its folder is {folder}", file=sys.stderr)
        return 1
    show(read_run(folder), console)
    return 0


def failure(folder: Path) -> str:
    """Return why a run failed, by its record or else the end of its log; "" if it did not."""
    files = RunFolder(folder)
    if files.state.done:
        return ""
    tail = f"The run ended before it was done. {log_tail(files.log_file, TAIL)}"
    return files.reason or tail
