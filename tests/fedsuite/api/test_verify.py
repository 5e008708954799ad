"""Runs repeated from their record: same bits, or what differs; the record is never touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

import fedsuite
from fedsuite.api import verify as module
from fedsuite.api.verify import ACCURACIES, BITS, NEITHER, NOT_REPEATED, RunVerified
from fedsuite.cli.main import main

SMALL: dict[str, Any] = {"num_clients": 3, "num_rounds": 2, "model": "mlp", "engine": "inline"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fedsuite.Run:
    monkeypatch.chdir(tmp_path)
    return fedsuite.run("fedavg", **SMALL, name="mine", progress=False)


def files_of(folder: Path) -> dict[Path, tuple[bytes, int]]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def other_model(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, folder / "model.safetensors")


def no_model(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def better_end(folder: Path) -> None:
    document = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(document | {"final_accuracy": 0.99}))


def better_round(folder: Path) -> None:
    lines = (folder / "history.jsonl").read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | {"accuracy": 0.99})
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")


def fewer_rounds(folder: Path) -> None:
    lines = (folder / "history.jsonl").read_text().splitlines()
    (folder / "history.jsonl").write_text("\n".join(lines[:-1]) + "\n")


def no_data(folder: Path) -> None:
    document = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(document | {"dataset": "/none/data.csv"}))


@pytest.mark.parametrize(
    ("change", "matches", "note"),
    [
        (lambda folder: None, BITS, ""),
        (other_model, ACCURACIES, ""),
        (no_model, ACCURACIES, "there is no model to compare"),
        (better_end, NEITHER, "0.9900 in the record; the models are bit-identical"),
        (better_round, NEITHER, "accuracy of round 1 is "),
        (fewer_rounds, NEITHER, "accuracy was recorded in other rounds"),
        (no_data, NOT_REPEATED, "/none/data.csv"),
    ],
)
def test_what_was_changed_is_told(
    run: fedsuite.Run,
    change: Callable[[Path], None],
    matches: str,
    note: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(run.path)
    before = files_of(run.path.parent)
    status = main(["verify", "mine", "--engine", "inline"])
    assert status == (0 if matches in (BITS, ACCURACIES) else 1)
    said = capsys.readouterr().out
    assert module.KINDS[matches] in said.splitlines()[-1]
    assert note in said
    assert files_of(run.path.parent) == before


def test_a_bundle_without_models_is_verified_by_their_digests(
    run: fedsuite.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsuite.report.build.make_report", lambda name, out: None)
    path = fedsuite.bundle("mine")
    verified = fedsuite.verify(path, engine="inline", progress=False)
    assert [(found.name, found.matches) for found in verified.runs] == [("mine", BITS)]
    assert str(verified) == "Repeated 1 of 1 finished runs: same bits in 1."


def test_a_sample_is_drawn_by_its_seed(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(run: Any, *options: object) -> RunVerified:
        return RunVerified(run.name, NEITHER if run.name == "taco-s1" else BITS)

    def sample(**options: Any) -> list[str]:
        return [run.name for run in fedsuite.verify(suite, progress=False, **options).runs]

    monkeypatch.setattr(module, "_verify", stand_in)
    everything = sample()
    assert len(everything) == 12 and sample(sample=20) == everything
    drawn = [sample(sample=3, seed=seed) for seed in range(5)]
    assert all(len(set(names)) == 3 for names in drawn) and len(set(map(tuple, drawn))) > 1
    assert drawn[1] == sample(sample=3, seed=1)
    verified = fedsuite.verify(suite, progress=False)
    assert verified.exit_status == 1 and list(verified.table["name"]) == everything
    end = "same bits in 11; another result in 1."
    assert str(verified) == f"Repeated 12 of 12 finished runs: {end}"


def test_there_must_be_a_finished_run(tmp_path: Path) -> None:
    (tmp_path / "hollow").mkdir()
    with pytest.raises(fedsuite.UserError, match="has no finished run"):
        fedsuite.verify(tmp_path)
    with pytest.raises(fedsuite.UserError, match="invalid value '-1' for --sample"):
        fedsuite.verify(tmp_path, sample=-1)
