"""A worker that is killed costs time, not clients; what is lost all the same is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lossy import LossyGrid

from fedsuite.cli.main import main
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.settings import RunFailed
from fedsuite.records.checkpoint import load_checkpoint
from fedsuite.records.folder import RunFolder, RunState
from fedsuite.records.reader import read_run

Experiment = Callable[..., Path]


@pytest.fixture(autouse=True)
def outside_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "helpers"))


def bits(folder: Path) -> list[bytes]:
    states = sorted((folder / "clients").rglob("*.safetensors"))
    return [p.read_bytes() for p in [*folder.glob("model.safetensors"), *states]]


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["scaffold", "fedadw", "fedbac", "pfedme"])
def test_what_a_killed_worker_lost_is_computed_again_to_the_same_bits(
    experiment: Experiment, algo: str
) -> None:
    settings = {"num_rounds": 3, "personal_eval": "on", "freeloaders": "1"}
    whole = experiment(algo, **settings)
    grid = LossyGrid(2, lambda kind, rnd, node, tries: rnd == 2 and node == 1 and tries == 1)
    folder = experiment(algo, grid, **settings)
    assert bits(folder) == bits(whole)
    summary = read_document(folder / "summary.json")
    assert (summary["failed_replies"], summary["missing_updates"]) == (0, 0.0)
    notes = [row.get("note", "") for row in read_lines(folder / "history.jsonl")]
    told = "node 1 failed (The actor died); its clients are sent again"
    assert [note.count(told) for note in notes] == [0, 0, 2, 0]  # trained and scored again


def test_the_last_try_is_one_node_after_the_other(experiment: Experiment) -> None:
    """Where three workers at once are too much for the memory, one may not be."""
    grid = LossyGrid(3, lambda kind, rnd, node, tries: rnd == 1 and tries < 3)
    folder = experiment(grid=grid)
    assert grid.batches == [3, 3, 3, 1, 1, 1, 3]  # who are you; round 1, three tries; round 2
    assert read_document(folder / "summary.json")["missing_updates"] == 0.0


def test_of_several_messages_to_a_node_only_the_lost_one_is_sent_again(
    experiment: Experiment,
) -> None:
    """Eight equal clients on two nodes are dealt out as 2, 2, 1, 1, 1 and 1: six messages."""
    settings = {"model": "lenet", "num_clients": 8, "partition": "iid", "local_steps": 1}
    whole = experiment("scaffold", **settings)
    grid = LossyGrid(2, lambda kind, rnd, node, tries: (rnd, node, tries) == (1, 1, 1))
    folder = experiment("scaffold", grid, **settings)
    assert grid.batches == [2, 6, 1, 6]
    assert bits(folder) == bits(whole)
    notes = [row.get("note") for row in read_lines(folder / "history.jsonl")]
    assert notes == [None, "node 1 failed (The actor died); its clients are sent again", None]


def test_a_node_that_keeps_failing_loses_its_clients_and_the_run_says_so(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of four clients in one of two rounds: 2 of 8 updates."""
    folder = experiment(grid=LossyGrid(2, lambda kind, rnd, node, tries: (rnd, node) == (1, 1)))
    run = read_run(folder)
    assert run.state is RunState.FINISHED
    assert (run.summary["failed_replies"], run.summary["missing_updates"]) == (2, 0.25)
    assert run.note == "25 % of the client updates are missing (2)"
    assert main(["show", str(folder)]) == 0
    said = capsys.readouterr().out
    assert run.note in said and "2 client updates, see clients.jsonl" in said


def test_a_last_round_without_updates_fails_and_a_resume_repeats_it(
    experiment: Experiment, tmp_path: Path
) -> None:
    settings = {"num_rounds": 4, "freeloaders": "1"}
    whole = experiment(**settings)
    with pytest.raises(RunFailed, match="no client gave a valid update in the last 2 rounds"):
        experiment(grid=LossyGrid(2, lambda k, rnd, *_: rnd > 2), run_name="cut", **settings)
    folder = RunFolder(tmp_path / "runs" / "cut")
    assert folder.state is RunState.FAILED
    assert "a resume repeats what is missing" in read_run(folder.path).note
    checkpoint = load_checkpoint(folder.path)
    assert checkpoint is not None and checkpoint.round == 2
    again = experiment(run_name="cut", resume=True, **settings)
    assert bits(again) == bits(whole)
    assert read_document(folder.summary_file)["missing_updates"] == 0.0


def test_too_few_updates_in_the_last_round_fail_too(experiment: Experiment) -> None:
    """min-train-clients = 3 of 4, and one node with two of them is lost."""
    grid = LossyGrid(2, lambda kind, rnd, node, tries: (rnd, node) == (2, 1))
    with pytest.raises(RunFailed, match="fewer than min-train-clients = 3"):
        experiment(grid=grid, min_train_clients=3)


@pytest.mark.parametrize(("algo", "status"), [("fedavg", 0), ("faulty:SOME", 3), ("faulty:ALL", 1)])
def test_the_exit_status_says_whether_updates_are_missing(
    algo: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["num-clients=4", "num-rounds=1", "model=mlp", f"results-dir={tmp_path}"]
    assert main(["run", algo, *words, "--name", "r", "--engine", "inline"]) == status
    said = capsys.readouterr()
    assert ("50 % of the client updates are missing (2)" in said.out) == (status == 3)
    assert (f"to resume it: `fedsuite resume {tmp_path / 'r'}`" in said.err) == (status == 1)
    assert "4 clients, 1 round, seed" in said.out


@pytest.mark.parametrize("command", ["run", "resume", "suite"])
def test_help_explains_the_exit_status(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "3 done but client updates are missing" in said
