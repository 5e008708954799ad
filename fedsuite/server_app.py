"""The ServerApp: what ``flwr run`` starts."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedsuite.config import parse
from fedsuite.core.files import read_document
from fedsuite.core.settings import UserError
from fedsuite.flower.commands import COMMAND_PID
from fedsuite.flower.compat import is_simulated
from fedsuite.records.folder import RunFolder
from fedsuite.training.loop import run

app = ServerApp()
WATCH_SECONDS = 0.5


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one experiment and say where its results are."""
    log_to_stdout()
    end_with_command()
    try:
        engine = "ray" if is_simulated(grid) else "deployed"
        folder = run(parse(context.run_config, foreign="default"), grid, engine)
    except UserError as error:
        print(f"fedsuite: {error}", flush=True)
        raise
    summary = read_document(RunFolder(folder).summary_file)
    print(f"{summary['status']}: accuracy {summary['final_accuracy']}, results in {folder}")


def end_with_command() -> None:
    """End this process when the ``fedsuite`` command that started it is gone.

    Flower's simulation would train on to the last round, and hold the run's folder against a
    resume. Ending at once is safe, since the record survives a crash at any moment.
    """
    command = os.environ.get(COMMAND_PID)
    if not command:
        return

    def watch() -> None:
        while Path(f"/proc/{command}").exists() or not Path("/proc/self").exists():
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def log_to_stdout() -> None:
    """Let the run's own lines through, and nobody else's."""
    logger = logging.getLogger("fedsuite")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
