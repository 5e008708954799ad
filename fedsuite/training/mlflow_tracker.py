"""MLflow: a run in the store that ``MLFLOW_TRACKING_URI`` names, or in the results folder's own."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from fedsuite.config import RunConfig
from fedsuite.core.files import locked
from fedsuite.core.settings import shown, spell
from fedsuite.core.tracker_names import MLFLOW
from fedsuite.records.folder import RunFolder
from fedsuite.training.base_tracker import PROJECT, ExternalRun, numbers

ADDRESS, EXPERIMENT = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"
# Nothing is reported to MLflow's makers; a server that is away delays the run by seconds.
USUAL = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
STORE_SECONDS = 120.0


class MLflow(ExternalRun):
    """A run of MLflow: settings as parameters, numbers as metrics, files as artifacts."""

    name = MLFLOW

    def open(self, config: RunConfig, files: RunFolder, known_id: str) -> str:
        """Open a run; the store is made if it is the results folder's own."""
        for variable, value in USUAL.items():
            os.environ.setdefault(variable, value)
        from mlflow import MlflowClient
        from mlflow.entities import Param

        for logger in ("mlflow", "alembic"):
            logging.getLogger(logger).setLevel(logging.WARNING)
        store = files.path.parent / "mlflow"
        address = os.environ.get(ADDRESS) or f"sqlite:///{store / 'mlflow.db'}"
        is_own = not os.environ.get(ADDRESS)
        with _making(store) if is_own else nullcontext():
            self._client = MlflowClient(tracking_uri=address)
            if known_id:
                self._client.update_run(known_id, status="RUNNING")
                return known_id
            where = (store / "artifacts").as_uri() if is_own else None
            experiment = self._experiment(os.environ.get(EXPERIMENT) or PROJECT, where)
        run_id: str = self._client.create_run(experiment, run_name=files.name).info.run_id
        params = [Param(key, shown(spell(value))) for key, value in config.flat().items()]
        self._client.log_batch(run_id, params=params)
        return run_id

    def send(self, number: int, metrics: Mapping[str, float]) -> None:
        """Record the numbers of a round, with the round as their step."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        values = [Metric(name, float(value), now, number) for name, value in metrics.items()]
        self._client.log_batch(self._id, metrics=values)

    def add_files(self, name: str, paths: Sequence[Path]) -> None:
        """Keep artifacts in a folder of this name."""
        for path in paths:
            add = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
            add(self._id, str(path), name)

    def add_summary(self, summary: Mapping[str, Any]) -> None:
        """Record the numbers of the summary as metrics, apart from those of rounds."""
        self.send(self._last_round, {f"summary/{k}": v for k, v in numbers(summary).items()})

    def end(self, finished: bool) -> None:
        """Set the run's status."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "FAILED")

    def _experiment(self, name: str, where: str | None) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(name, artifact_location=where))


def _making(store: Path) -> AbstractContextManager[None]:
    """Let one process at a time make or bring up to date the tables of a store."""
    store.mkdir(exist_ok=True)
    return locked(store / ".lock", f"another run is making {store}", STORE_SECONDS)
