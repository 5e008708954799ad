"""MLflow against a local store and W&B offline, for real; a resume continues their runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wandb_files
from power_cut import FailingGrid, PowerCut

from fedsuite.cli.main import main
from fedsuite.core.files import read_document, read_lines
from fedsuite.records.folder import RunFolder

pytestmark = pytest.mark.slow
FILES = {"clients.jsonl", "config.json", "history.jsonl", "model.safetensors"}


@pytest.fixture
def resumed(
    experiment: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], RunFolder]:
    """Return how to make a tracked run that was cut off in its second of three rounds."""
    for variable in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))

    def make(tracker: str) -> RunFolder:
        pytest.importorskip(tracker, reason=f"{tracker} is not installed")
        with pytest.raises(PowerCut):
            experiment(grid=FailingGrid(2), tracking=tracker, num_rounds=3, run_name="cut")
        files = RunFolder(tmp_path / "runs" / "cut")
        assert read_document(files.tracker_file(tracker))["round"] == 1
        assert main(["resume", str(files.path)]) == 0
        return files

    return make


def accuracies(files: RunFolder) -> list[tuple[int, float]]:
    """Return the recorded accuracy of every round."""
    return [(row["round"], row["accuracy"]) for row in read_lines(files.history_file)]


def test_mlflow_has_one_run_with_its_settings_rounds_summary_and_files(
    resumed: Callable[[str], RunFolder],
) -> None:
    files = resumed("mlflow")
    from mlflow import MlflowClient

    store = files.path.parent / "mlflow"
    client: Any = MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("fedsuite")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == read_document(files.tracker_file("mlflow"))["id"]
    assert (run.info.run_name, run.info.status) == ("cut", "FINISHED")
    assert (run.data.params["num-rounds"], run.data.params["fedavg.weighting"]) == ("3", "samples")
    logged = client.get_metric_history(run.info.run_id, "accuracy")
    assert [(point.step, point.value) for point in logged] == accuracies(files)
    final = read_document(files.summary_file)["final_accuracy"]
    assert run.data.metrics["summary/final_accuracy"] == final == accuracies(files)[-1][1]
    artifacts = store / "artifacts" / run.info.run_id / "artifacts"
    assert {path.name for path in (artifacts / "run").iterdir()} == FILES
    assert (artifacts / "run" / "model.safetensors").read_bytes() == files.model_file.read_bytes()
    assert (artifacts / "report" / "index.html").is_file()


def test_wandb_has_one_run_offline_in_the_folder_of_the_run(
    resumed: Callable[[str], RunFolder],
) -> None:
    files = resumed("wandb")
    name = read_document(files.tracker_file("wandb"))["id"]
    parts = sorted(files.path.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb"))
    rows = sorted((r for p in parts for r in wandb_files.history(p)), key=lambda r: int(r["round"]))
    assert [(row["round"], row["accuracy"]) for row in rows] == accuracies(files)
    assert [row["_step"] for row in rows] == [0, 1, 2, 3]
    assert wandb_files.config(parts[0])["num-rounds"] == 3
    kept = {key: value for part in parts for key, value in wandb_files.artifacts(part).items()}
    assert kept[f"run-{name}"] == FILES and "index.html" in kept[f"report-{name}"]


def test_a_server_that_is_away_is_a_warning(
    experiment: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    folder = experiment(tracking="mlflow", num_rounds=1)
    assert RunFolder(folder).state.done
    said = [r.getMessage() for r in caplog.records if "stops tracking" in r.getMessage()]
    assert len(said) == 1 and said[0].startswith("mlflow stops tracking this run")
