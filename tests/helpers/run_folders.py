"""Write runs' folders without training, through the record itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedsuite.config import parse
from fedsuite.records.provenance import provenance
from fedsuite.records.summary import summarise
from fedsuite.records.writer import RunRecord
from tasks.task import open_task

OWN = {
    "taco": {"alpha": 0.4},
    "feda4": {"phi": 0.2, "biased": 0.0, "similarity": 0.5},
    "fedbac": {"reliability": 0.9, "consensus": 0.3},
    "fedadw": {"ala_mean": 0.8, "discrepancy": 1.5},
}


def write_run(
    folder: Path,
    name: str,
    algo: str,
    accuracies: Sequence[float],
    *,
    status: str = "finished",
    expelled: Sequence[int] = (),
    cpu_share: float | None = 1.0,
    **settings: Any,
) -> Path:
    """Record a run with these accuracies by round; without a status nobody finishes it.

    ``cpu_share`` is which share of a core its clients had; None: it was not recorded.
    """
    values = {"num-clients": 4, "num-rounds": len(accuracies) - 1, "model": "mlp", "algo": algo}
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    config = parse(values | {"results-dir": str(folder), "run-name": name} | given)
    mark = open_task(config.task).split.fingerprint
    record = RunRecord.create(config, provenance(config, "inline", mark))
    for number, accuracy in enumerate(accuracies):
        row: dict[str, Any] = {"round": number, "accuracy": accuracy, "loss": 1 - accuracy}
        row |= {"wall_seconds": 0.5, "macro_f1": 0.9 * accuracy, "balanced_accuracy": accuracy}
        row |= {"class_accuracy": {"0": accuracy, "1": accuracy / 2}}
        if number:
            row |= {"clients": 4, "failed": 0, "compute_seconds": 0.25, "upload_bytes": 4000}
            row |= {"download_bytes": 8000, "client_compute_seconds": 0.9}
            row |= {} if cpu_share is None else {"client_cpu_seconds": 0.9 * cpu_share}
            row |= {"personal_accuracy": accuracy, "personal_mean": 0.85 * accuracy}
            row |= {"personal_std": 0.1, "personal_worst": 0.7 * accuracy}
            row |= {"reliability_coupling": 0.1, "contribution_coupling": 0.2}
        record.add_round(row, _clients(algo, accuracy, expelled) if number else [])
    if status:
        reason = "Traceback\nRuntimeError: no room left" if status == "failed" else ""
        record.finish(summarise(config, record.history(), expelled, status, reason))
    record.close()
    return record.folder


def _clients(algo: str, accuracy: float, expelled: Sequence[int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for client in range(4):
        who = {"client": client, "status": "ok"}
        rows.append({**who, "phase": "train", "weight": 0.25, **OWN.get(algo, {})})
        rows.append({**who, "phase": "evaluate", "accuracy": accuracy * (1 - 0.1 * client)})
    return rows


def write_suite(folder: Path, scale: str = "small") -> Path:
    """Record six methods with two seeds each, and their manifest with a paper's numbers."""
    runs = []
    for place, algo in enumerate(("fedavg", "fedprox", "taco", "feda4", "fedbac", "fedadw")):
        for seed in (1, 2):
            name = f"{algo}-s{seed}"
            last = 0.5 + 0.05 * place + 0.02 * seed + 0.001 * (place - 2) * seed
            options: dict[str, Any] = {"target_accuracy": 0.6, "personal_eval": "on"}
            options |= {"partition": "groups"}
            options |= {"freeloaders": "1", "expelled": [3]} if algo == "taco" else {}
            write_run(folder, name, algo, [0.1, 0.4, last], seed=seed, **options)
            labels = {"algo": algo, "dataset": "digits", "seed": seed}
            runs.append({"name": name, "labels": labels, "key": name})
    paper = {"labels": {"algo": "taco", "dataset": "digits"}, "value": 60.0, "std": 0.5}
    manifest = {
        "name": "demo",
        "title": "A demonstration",
        "scale": scale,
        "metric": "final_accuracy",
        "better": "higher",
        "rows": "algo",
        "columns": ["dataset"],
        "command": "fedsuite suite demo.toml --scale small",
        "runs": runs,
        "paper": [paper | {"source": "Paper, Table I"}],
    }
    (folder / "suite.json").write_text(json.dumps(manifest))
    return folder


class CountingFile:
    """A file that notes how much is read of it."""

    def __init__(self, file: Any, sizes: list[int]) -> None:
        self.file, self.sizes = file, sizes

    def __enter__(self) -> CountingFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def read(self, *size: int) -> Any:
        content = self.file.read(*size)
        self.sizes.append(len(content))
        return content


def count_bytes_read(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    """Count the bytes read from now on of files of this name."""
    sizes: list[int] = []
    plain_open = Path.open

    def counted(path: Path, *rest: Any, **options: Any) -> Any:
        file = plain_open(path, *rest, **options)
        reads = "r" in (rest[0] if rest else options.get("mode", "r"))
        return CountingFile(file, sizes) if path.name == name and reads else file

    monkeypatch.setattr(Path, "open", counted)
    return lambda: sum(sizes)
