"""Runs for other tools: TensorBoard, MLflow and W&B, those that ``tracking`` names.

A tracker is told the rounds as they are recorded, and at the end the summary and the run's files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fedsuite.config import RunConfig
from fedsuite.core.settings import UserError
from fedsuite.core.tracker_names import MLFLOW, TENSORBOARD, WANDB
from fedsuite.records.folder import RunFolder, RunState
from fedsuite.records.writer import RunRecord
from fedsuite.training.base_tracker import Tracker

log = logging.getLogger("fedsuite")
CLASSES = {
    MLFLOW: "fedsuite.training.mlflow_tracker:MLflow",
    TENSORBOARD: "fedsuite.training.tensorboard_tracker:TensorBoard",
    WANDB: "fedsuite.training.wandb_tracker:WandB",
}


class Trackers:
    """All trackers of a run. One that fails is left out from then on; the run continues."""

    def __init__(self, config: RunConfig, record: RunRecord, last_round: int) -> None:
        self._files = record.files
        self._open: dict[str, Tracker] = {}
        for name in config.trackers:
            with self._tolerated(name):
                self._open[name] = load(name)(config, record.files, last_round)
                for row in record.history():
                    self._open[name].add_round(row)

    def add_round(self, row: Mapping[str, Any]) -> None:
        """Tell all trackers of a round."""
        for name, tracker in list(self._open.items()):
            with self._tolerated(name):
                tracker.add_round(row)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Give all trackers the summary of a run that ends, and its files if it is done."""
        files, done = self._files, RunState(summary["status"]).done
        kept = (files.config_file, files.history_file, files.clients_file, files.model_file)
        for name, tracker in list(self._open.items()):
            with self._tolerated(name):
                tracker.add_summary(summary)
                if done:  # otherwise a resume changes them
                    tracker.add_files("run", [path for path in kept if path.exists()])
                tracker.close(done)
        self._open.clear()

    @contextmanager
    def _tolerated(self, name: str) -> Iterator[None]:
        with tolerated(name) as problems:
            yield
        if problems:
            self._open.pop(name, None)


def add_report(config: RunConfig, files: RunFolder) -> None:
    """Give the report of a run that is done to its trackers that keep files."""
    for name in report_keepers(config):
        with tolerated(name):
            tracker = load(name)(config, files, config.num_rounds)
            tracker.add_files("report", [files.report])
            tracker.close(True)


def report_keepers(config: RunConfig) -> list[str]:
    """Return the trackers of a run that keep files."""
    return [name for name in config.trackers if load(name).keeps_files]


def load(name: str) -> type[Tracker]:
    """Return a tracker's class; its package is imported when it is used."""
    module, _, attribute = CLASSES[name].partition(":")
    tracker: type[Tracker] = getattr(import_module(module), attribute)
    return tracker


@contextmanager
def tolerated(name: str) -> Iterator[list[str]]:
    """Turn whatever a tracker's network, disk or package raises into a warning; yield what it is.

    It must not end the run.
    """
    problems: list[str] = []
    try:
        yield problems
    except Exception as error:
        problems.append((str(error).strip() or repr(error)).splitlines()[0])
        log.warning("%s stops tracking this run, which continues: %s", name, problems[0])


def check_trackers(config: RunConfig) -> None:
    """Refuse a tracker whose package, of the same name, is not installed."""
    for name in config.trackers:
        if find_spec(name) is None:
            raise UserError(
                f"invalid value '{config.tracking}' for tracking: the package {name} is not "
                f"installed. Install it with `pip install 'fedsuite[{name}]'`, or leave {name} out "
                "of tracking (none = no tracker)."
            )
