"""Start a run on this machine: check what can be checked, hand over to an engine, show the end."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from fedsuite.client_app import pick_device
from fedsuite.config import RunConfig
from fedsuite.core.settings import UserError
from fedsuite.engines.ray import failure, run_ray
from fedsuite.records.folder import RunFolder, default_name, make_folder
from fedsuite.records.reader import read_run
from fedsuite.terminal.progress import follow
from fedsuite.terminal.show import show
from fedsuite.training.loop import check_feasible


def start_run(config: RunConfig, engine: str, nodes: int, gpus: float) -> int:
    """Check everything that can be checked, then hand over to the engine."""
    console = Console()
    config, folder = claim_folder(config)
    pick_device(config.device)
    check_feasible(config)
    announce(config, console)

    def watch(alive: Callable[[float], bool]) -> None:
        follow(folder, config.num_rounds, alive, console)

    if engine == "inline":
        _run_here(config, nodes or 1, watch)
    else:
        run_ray(config, nodes or os.cpu_count() or 1, gpus, watch)
    return conclude(folder, console)


def claim_folder(config: RunConfig) -> tuple[RunConfig, Path]:
    """Name the run if it has no name, and see that its folder is free, or there to go on with."""
    if not config.run_name:
        config = dataclasses.replace(config, run_name=default_name(config))
    folder = RunFolder.of(config)
    if config.resume:
        folder.summary_file.unlink(missing_ok=True)
    else:
        folder.refuse_existing()
    return config, folder.path


def announce(config: RunConfig, console: Console) -> None:
    """Say in a line what is going to run."""
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


def _run_here(
    config: RunConfig, nodes: int, watch: Callable[[Callable[[float], bool]], None]
) -> None:
    """Run inline on a second thread, so that this one can show progress."""
    from fedsuite.engines.inline import run_inline

    errors: list[BaseException] = []

    def work() -> None:
        try:
            run_inline(config, nodes)
        except BaseException as error:
            errors.append(error)
            logging.getLogger("fedsuite").exception("the run ended")

    def alive(seconds: float) -> bool:
        thread.join(seconds)
        return thread.is_alive()

    thread = threading.Thread(target=work, daemon=True)
    with log_file(RunFolder.of(config).log_file):
        thread.start()
        watch(alive)
    if errors and isinstance(errors[0], UserError):
        raise errors[0]


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Send the run's own lines to a file instead of the terminal."""
    make_folder(path.parent)
    logger = logging.getLogger("fedsuite")
    before = logger.level, logger.propagate
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(before[0])
        logger.propagate = before[1]
