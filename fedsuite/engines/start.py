"""Start a run on this machine: check the settings, hand over to an engine, see how it ended."""

from __future__ import annotations

import dataclasses
import errno
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedsuite.config import RunConfig
from fedsuite.core.files import remove_unfinished, write_problem
from fedsuite.core.flat_model import gpu_count
from fedsuite.core.processes import Process
from fedsuite.core.protocol import ITS_FOLDER_IS, LINE_MARK, TO_RESUME
from fedsuite.core.settings import RunFailed, UserError
from fedsuite.core.text import clean_lines, counted
from fedsuite.engines.choice import choose_engine
from fedsuite.engines.cluster import (
    connected,
    count_slots,
    describe_cluster,
    refuse_unshared,
    survey,
)
from fedsuite.engines.contract import EngineOptions, IsRunning
from fedsuite.engines.table import AUTO, ENGINES, load_engine, settle_engine
from fedsuite.flower.commands import log_tail
from fedsuite.nodes.setup import refuse_server_data, with_model
from fedsuite.nodes.worker import pick_device
from fedsuite.records.folder import RunFolder, RunIsDone, default_name, make_folder
from fedsuite.records.writer import RunRecord
from fedsuite.terminal.progress import follow
from fedsuite.terminal.show import MAX_SHOWN
from fedsuite.training.loop import check_feasible
from fedsuite.training.resume import check_split, find_checkpoint, resumed_config

TAIL = 40
FULL_DISK = 64 * 1024  # bytes


def start_run(config: RunConfig, engine: str, options: EngineOptions, console: Console) -> Path:
    """Check all that can be checked, then execute the run; return its folder once it is done.

    With no nodes given the run has the engine's default number of them, or as many as fit into the
    cluster at the Ray address.
    """
    engine = settle_engine(engine, options.nodes, options.gpus)
    check_gpus(config, engine, options.gpus, options.ray_address)
    refuse_server_data(config, "in a simulation")
    config, folder = claim_folder(config)
    pick_device(config.device)
    task, module = check_feasible(config)
    config = with_model(config, task.shape)
    if config.resume:
        check_split(RunFolder(folder), task.split.fingerprint)
    announce(config, console)
    if engine == AUTO:
        engine, why = choose_engine(config, task, module)
        console.print(why, highlight=False)
    nodes = _join_cluster(options, folder, console) if options.ray_address else options.nodes
    options = dataclasses.replace(options, nodes=nodes or ENGINES[engine].default_nodes)

    def show_progress(is_running: IsRunning) -> None:
        follow(folder, config.num_rounds, is_running, console)

    files, problem = RunFolder(folder), ""
    try:
        load_engine(engine)(config, options, show_progress)
    except RunFailed as error:
        problem = str(error)
    except KeyboardInterrupt:
        remove_unfinished(folder)  # of a process that did not end in time, and was killed
        say_how_to_resume(files)
        raise
    mine = Process.is_current(files.writer)
    if config.resume and not mine and files.state.done:
        raise RunIsDone(files)
    refuse_failure(files, mine, problem)
    return folder


def _join_cluster(options: EngineOptions, folder: Path, console: Console) -> int:
    """Check the machines of a Ray cluster; return the number of nodes, by default all that fit."""
    make_folder(folder.parent)
    with connected(options.ray_address):
        machines = survey(folder.parent)
    refuse_unshared(machines, folder.parent)
    slots = count_slots(machines, options.gpus)
    console.print(describe_cluster(machines, slots), highlight=False)
    return options.nodes or slots


def check_gpus(config: RunConfig, engine: str, gpus: float, ray_address: str = "") -> None:
    """Refuse GPUs that are not there, or that the run would not use."""
    if not gpus:
        return
    if not ENGINES[engine].parallel:
        raise UserError(
            f"--gpus {gpus:g} has no effect on the engine {engine}, whose nodes compute one after "
            "the other, on a GPU if there is one. Leave it out, or choose another --engine."
        )
    if config.device == "cpu":
        raise UserError(
            f"--gpus {gpus:g} has no effect with device=cpu. Leave it out, or use device=auto."
        )
    if not ray_address and gpus > (count := gpu_count()):
        raise UserError(
            f"invalid value '{gpus:g}' for --gpus: PyTorch sees "
            + (f"{counted(count, 'GPU')} here. Use at most {count}." if count else "no GPU here.")
            + " Without --gpus the run uses the CPU." * (not count)
        )


def say_how_to_resume(files: RunFolder) -> None:
    """Print the command that resumes a run which has ended early, if that can take it further."""
    if files.can_go_on:
        print(f"{LINE_MARK}{TO_RESUME}`{files.resume_command}`", file=sys.stderr)


def claim_folder(config: RunConfig) -> tuple[RunConfig, Path]:
    """Name the run if it has no name; refuse a folder that another run has, or is writing.

    A run to be resumed is refused here too, before an engine starts, if its record is damaged.
    """
    if not config.run_name:
        config = dataclasses.replace(config, run_name=default_name(config))
    folder = RunFolder.of(config)
    if not config.resume:
        folder.refuse_existing()
    else:
        held = RunRecord.hold(folder.path)
        try:
            find_checkpoint(held, resumed_config(config))
        finally:
            held.close()
    return config, folder.path


def announce(config: RunConfig, console: Console) -> None:
    """Print in a line what is going to run."""
    console.print(
        f"[bold]{config.algo}[/bold] on {config.dataset}: {config.model}, {config.partition}, "
        f"{counted(config.num_clients, 'client')}, {counted(config.num_rounds, 'round')}, "
        f"seed {config.seed}",
        highlight=False,
    )


def refuse_failure(
    files: RunFolder, mine: bool = True, problem: str = "", options: Sequence[str] = ()
) -> None:
    """Raise why a run failed, if it did, with its folder and the command that resumes it.

    ``mine`` is whether this command's run has written the folder, rather than an earlier one or
    one that was started under the same name at the same time; ``problem`` is why the run failed,
    as far as this command knows. A resume needs ``options``.
    """
    if not mine and (files.state.done or files.is_being_written):
        raise UserError(
            f"The run '{files.name}' was started by another command at the same time, and its "
            f"results are that command's (`{files.command('show')}`). Choose another name."
        )
    if not (why := failure(files, mine, problem)):
        return
    error = RunFailed(clean_lines(why, MAX_SHOWN))
    error.add_note(f"{ITS_FOLDER_IS}{files.path}")
    if files.can_go_on:
        error.add_note(
            f"{TO_RESUME}`{' '.join([files.resume_command, shlex.join(options)]).strip()}`"
        )
    raise error


def failure(files: RunFolder, mine: bool = True, problem: str = "") -> str:
    """Return why a run failed, by its record or else the end of its log; "" if it did not."""
    if files.state.done:
        return ""
    if said := (files.reason if mine else "") or problem:
        return said
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(files.path))
    if shutil.disk_usage(files.path).free < FULL_DISK:
        return f"{write_problem(full)}, then resume the run."
    return f"The run ended before it was done. {log_tail(files.log_file, TAIL)}"
