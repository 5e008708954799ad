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
from fedsuite.core.processes import Process
from fedsuite.core.protocol import DEPLOYED, INCOMPLETE_RUN, LINE_MARK, RAY
from fedsuite.core.settings import RunFailed, UserError
from fedsuite.core.vector_files import remove_vector_files
from fedsuite.flower.commands import COMMAND
from fedsuite.flower.compat import is_simulated, prompt_delivery, replace_dead_workers
from fedsuite.records.folder import RunFolder
from fedsuite.records.summary import missing_sentence
from fedsuite.training.loop import run

app = ServerApp()
log = logging.getLogger("fedsuite")
WATCH_SECONDS = 0.5


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one experiment and print where its results are."""
    log_to_stdout()
    try:
        config = parse(context.run_config, foreign="default", idle="reset")
        end_with_command(RunFolder.of(config).path)
        engine = RAY if is_simulated(grid) else DEPLOYED
        if engine == RAY:
            replace_dead_workers()
        with prompt_delivery(grid):
            folder = run(config, grid, engine)
    except (UserError, RunFailed, ConnectionError) as error:  # sentences
        log.error("the run failed: %s", error)
        raise
    except Exception:
        log.exception("the run failed")
        raise
    summary = read_document(RunFolder(folder).summary_file)
    accuracy = summary["final_accuracy"]
    log.info("%s: accuracy %s, results in %s", summary["status"], accuracy, folder)
    if missing := missing_sentence(summary):
        log.warning("%s%s", INCOMPLETE_RUN, missing)


def end_with_command(run_folder: Path) -> None:
    """End this process when the ``fedsuite`` command that started it is gone.

    Flower's simulation would train on to the last round and keep the run's folder locked against a
    resume. Ending at once is safe, since the record survives a crash at any moment; only vectors
    in shared memory would outlive it.
    """
    if COMMAND not in os.environ:
        return
    command = Process.from_text(os.environ[COMMAND])

    def watch() -> None:
        while command.is_running():
            time.sleep(WATCH_SECONDS)
        remove_vector_files(run_folder)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class MarkedLines(logging.Formatter):
    """Marks every line, so that a reader of the stream can tell them from Flower's."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message, each of its lines marked."""
        return "\n".join(f"{LINE_MARK}{line}" for line in super().format(record).splitlines())


def log_to_stdout() -> None:
    """Print the run's own log lines and no other logger's."""
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(MarkedLines())
        log.addHandler(handler)
