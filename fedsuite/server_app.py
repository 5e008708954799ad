"""The ServerApp: what ``flwr run`` starts."""

from __future__ import annotations

import logging
import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedsuite.config import parse
from fedsuite.record import read_document
from fedsuite.training import run

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one experiment and say where its results are."""
    log_to_stdout()
    folder = run(parse(context.run_config), grid, engine="flower")
    summary = read_document(folder / "summary.json")
    print(f"{summary['status']}: accuracy {summary['final_accuracy']}, results in {folder}")


def log_to_stdout() -> None:
    """Let the run's own lines through, and nobody else's."""
    logger = logging.getLogger("fedsuite")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
