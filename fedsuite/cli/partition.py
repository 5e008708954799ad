"""``fedsuite partition``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsuite.cli.options import Files, Settings
from fedsuite.cli.parsing import Command
from fedsuite.cli.run import read_settings, read_values
from fedsuite.core.settings import UserError

MAX_WIDTH = 160
commands = typer.Typer()


@commands.command(cls=Command)
def partition(
    settings: Settings = None,
    file: Files = None,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="PNG file to write (default: partition.png)",
            show_default=False,
        ),
    ] = "partition.png",
) -> None:
    """Draw which client has which labels."""
    from fedsuite.config import parse

    pairs = settings or []
    config = parse(read_settings(file or [], pairs), idle=frozenset(read_values(pairs)))
    from fedsuite.core.text import counted
    from fedsuite.report.label_distribution import label_table, save_label_png
    from fedsuite.terminal.console import make_console
    from tasks.task import open_task

    task = open_task(config.task)
    counts = task.label_counts()
    console = make_console()
    title = (
        f"{config.dataset}, {config.partition}, {counted(config.num_clients, 'client')}, "
        f"seed {config.seed}"
    )
    console.print(f"[bold]{title}[/bold]  split {task.split.fingerprint}", highlight=False)
    console.print(label_table(counts, task.dataset.class_names, min(console.width, MAX_WIDTH)))
    try:
        save_label_png(counts, task.dataset.class_names, Path(output), title)
    except OSError as error:
        raise UserError(
            f"invalid value '{output}' for -o: {error}. Choose a file that you can write."
        ) from None
    console.print(f"drawn to {output}", highlight=False)
