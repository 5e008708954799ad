"""``fedsuite predict`` and ``evaluate`` give exactly what the run recorded."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from federations import DeployedGrid, visits_csv

from fedsuite.cli.main import main
from fedsuite.core.files import read_document, read_lines
from fedsuite.inference.data import open_data
from fedsuite.inference.export import as_exported_input, export_model, predict_exported
from fedsuite.inference.model import load_model
from tasks import dataset_cache
from tasks.datasets import DATASETS
from tasks.sources import find_source

Experiment = Callable[..., Path]
REAL = {"fashion-mnist": {"lr": 0.05}, "adult": {}, "ag-news": {"lr": 1.0}}


def predicted(folder: Path, data: str | Path, *more: str) -> list[dict[str, str]]:
    output = folder.parent / "predictions.csv"
    assert main(["predict", str(folder), str(data), "-o", str(output), *more]) == 0
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def accuracy(rows: list[dict[str, str]]) -> float:
    return sum(row["predicted"] == row["label"] for row in rows) / len(rows)


def evaluated(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["evaluate", *map(str, words), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def agrees(folder: Path, data: str | Path, capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether both commands give the scores of the summary, to the bit."""
    summary = read_document(folder / "summary.json")
    score = evaluated(capsys, folder, data)
    expected = summary["final_accuracy"], summary["final_loss"], summary["macro_f1"]
    found = score["accuracy"], score["loss"], score["macro_f1"]
    by_class = [*score["class_accuracy"].values()] == [*summary["class_accuracy"].values()]
    same = found == expected and by_class and score.get("auc") == summary["auc"]
    return same and accuracy(predicted(folder, data)) == expected[0]


def no_dataset(*_: Any) -> None:
    raise AssertionError("the dataset is not needed")


@pytest.fixture
def digits(experiment: Experiment) -> Path:
    return experiment("fedavg", num_clients=2, num_rounds=3)


def test_digits_by_their_split_a_file_and_folders(
    digits: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert agrees(digits, "test", capsys)
    rows = find_source(DATASETS["digits"], "").read().test
    pq.write_table(rows, tmp_path / "rows.parquet")
    for number, row in enumerate(rows.to_pylist()):
        for folder in (tmp_path / "by class" / str(row["label"]), tmp_path / "loose"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:03d}.png").write_bytes(row["image"]["bytes"])
    monkeypatch.setattr(dataset_cache, "open_or_build", no_dataset)
    assert agrees(digits, tmp_path / "rows.parquet", capsys)
    by_class = predicted(digits, tmp_path / "by class")
    assert accuracy(by_class) == read_document(digits / "summary.json")["final_accuracy"]
    assert by_class[0]["file"].startswith("0/") and by_class[0]["file"].endswith(".png")
    loose = predicted(digits, tmp_path / "loose")
    assert "label" not in loose[0] and [row["row"] for row in loose[:3]] == ["0", "1", "2"]
    of_file = predicted(digits, tmp_path / "rows.parquet")
    assert [r["predicted"] for r in loose] == [r["predicted"] for r in of_file]
    one = predicted(digits, tmp_path / "loose" / "007.png")
    assert [r["file"] for r in one] == ["007.png"] and one[0]["predicted"] == loose[7]["predicted"]


def test_a_line_has_the_class_and_all_probabilities_or_the_first(digits: Path) -> None:
    row = predicted(digits, "test")[0]
    shares = {name: float(row[f"p({name})"]) for name in "0123456789"}
    assert list(row) == ["row", "predicted", "probability", "label", *(f"p({n})" for n in shares)]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-6)
    assert float(row["probability"]) == shares[row["predicted"]] == max(shares.values())
    top = predicted(digits, "test", "--top", "2")[0]
    assert list(top)[4:] == ["class_1", "probability_1", "class_2", "probability_2"]
    first, second = sorted(shares, key=lambda name: -shares[name])[:2]
    assert (top["class_1"], top["class_2"]) == (first, second)
    assert float(top["probability_2"]) == shares[second]
    assert len(predicted(digits, "test", "--top", "99")[0]) == 4 + 2 * 10


def test_only_the_scored_test_rows_count(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = experiment("fedavg", num_clients=2, num_rounds=1, eval_rows=50)
    assert agrees(folder, "test", capsys) and len(predicted(folder, "test")) == 50


@pytest.mark.usefixtures("no_waiting")
def test_rows_of_ones_own(
    experiment: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes with CSV files of their own, and one on the server to test on."""
    nodes = [
        {"data_path": str(visits_csv(tmp_path / f"{n}.csv", n)), "state_dir": str(tmp_path / "s")}
        for n in range(2)
    ]
    held = visits_csv(tmp_path / "held.csv", 7)
    own = {"dataset": "own", "server_data": str(held), "num_rounds": 2, "num_clients": 2}
    folder = experiment("fedavg", DeployedGrid(*nodes), **own)
    assert agrees(folder, held, capsys) and agrees(folder, "test", capsys)
    lines = held.read_text().splitlines()
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(line.rpartition(",")[0] for line in lines) + "\n")
    rows = predicted(folder, bare)
    assert [row["predicted"] for row in rows] == [r["predicted"] for r in predicted(folder, held)]
    assert "label" not in rows[0]
    assert main(["evaluate", str(folder), str(bare)]) == 2
    assert "has no labels to compare with: no column 'label'" in capsys.readouterr().err


def test_a_file_in_simulation(
    experiment: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test split of a CSV file gives the scores of the summary, AUC of two classes too."""
    file = visits_csv(tmp_path / "visits.csv", 3, rows=200)
    folder = experiment(dataset=str(file), num_clients=2, num_rounds=2, model="mlp")
    assert read_document(folder / "summary.json")["auc"] is not None
    assert agrees(folder, "test", capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_data_and_onnx(
    experiment: Experiment,
    shared_data: Path,
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = experiment(
        dataset=name,
        data_root=str(shared_data),
        model="auto",
        num_clients=2,
        num_rounds=1,
        local_steps=30,
        **REAL[name],
    )
    (file,) = (shared_data / DATASETS[name].folder).glob("test-*.parquet")
    assert agrees(folder, file, capsys)
    recorded = read_document(folder / "summary.json")["final_accuracy"]
    assert accuracy(predicted(folder, "test")) == recorded
    model = load_model(folder, device="cpu")
    data = open_data(str(file), folder, model.description, None, False)
    expected = model.predict_data(data).probabilities
    inputs = model.description.inputs
    values = as_exported_input(inputs, inputs.read(pq.read_table(file), str))
    for form in ("onnx", "torch"):
        export_model(model, form, tmp_path / form)
        found = predict_exported(form, tmp_path / form, values)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("algo", ["local", "fedtgp", "pfedme"])
def test_clients_models_score_what_was_recorded(
    experiment: Experiment, algo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = experiment(algo, num_clients=3)
    rows = [r for r in read_lines(folder / "clients.jsonl") if r["phase"] == "evaluate"]
    last = {row["client"]: row["accuracy"] for row in rows}
    for client, recorded in last.items():
        score = evaluated(capsys, folder, "test", "--client", client)
        assert score["accuracy"] == recorded and score["model"] == f"client {client}"
    capsys.readouterr()
    assert main(["predict", str(folder), "test", "--client", "3"]) == 2
    said = capsys.readouterr().err
    assert "has no model of client 3. It has those of the clients 0, 1, 2: choose one" in said
    if algo != "pfedme":
        assert main(["evaluate", str(folder), "test"]) == 2
        assert "has no global model" in capsys.readouterr().err


@pytest.mark.usefixtures("no_waiting")
def test_a_deployed_node_uses_its_own_model(
    experiment: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csvs = [visits_csv(tmp_path / f"{n}.csv", n) for n in range(2)]
    nodes = [{"data_path": str(path), "state_dir": str(tmp_path / "s")} for path in csvs]
    folder = experiment("local", DeployedGrid(*nodes), dataset="own", num_clients=2)
    (kept,) = [path for path in (tmp_path / "s").iterdir() if path.is_dir()]
    assert (kept / "model.json").read_bytes() == (folder / "model.json").read_bytes()
    assert {row["label"] for row in predicted(kept, csvs[0], "--client", "0")} == {"yes", "no"}
    assert main(["predict", str(folder), str(csvs[0]), "--client", "0"]) == 2
    assert "each deployed node keeps its own model" in capsys.readouterr().err
    assert main(["predict", str(kept), "test", "--client", "0"]) == 2
    assert "has no settings of a run, so no test split" in capsys.readouterr().err
    assert main(["predict", str(kept), "nowhere.csv", "--client", "0"]) == 2
    assert "invalid value 'nowhere.csv' for DATA: there is no such" in capsys.readouterr().err
