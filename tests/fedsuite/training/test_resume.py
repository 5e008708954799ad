"""A resume reads nothing before it has the lock, and stops where the record is damaged."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from fedsuite.cli.main import main
from fedsuite.core.files import read_document, write_json
from fedsuite.core.settings import RunFailed, UserError
from fedsuite.engines.inline import InlineGrid
from fedsuite.engines.start import refuse_failure
from fedsuite.records.checkpoint import load_checkpoint
from fedsuite.records.folder import RunFolder, RunState
from fedsuite.records.reader import read_run

Experiment = Callable[..., Path]
SETTINGS = {"num_rounds": 4, "run_name": "cut"}


class PowerCut(Exception):
    """Something broke."""


class FailingGrid(InlineGrid):
    """Fails in its fourth round, after three checkpoints."""

    left = 4

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        self.left -= 1
        if self.left < 0:
            raise PowerCut
        return super().send_and_receive(messages, timeout=timeout)


@pytest.fixture
def cut(experiment: Experiment, tmp_path: Path) -> RunFolder:
    """A run of scaffold, which keeps state on clients, cut off after round 3."""
    with pytest.raises(PowerCut):
        experiment("scaffold", FailingGrid(), **SETTINGS)
    return RunFolder(tmp_path / "runs" / "cut")


def test_a_checkpoint_names_the_states_that_belong_to_it(cut: RunFolder) -> None:
    checkpoint = load_checkpoint(cut.path)
    assert checkpoint is not None
    assert checkpoint.client_states == {0: 3, 1: 3, 2: 3, 3: 3}


def test_a_missing_state_stops_the_resume(cut: RunFolder, experiment: Experiment) -> None:
    (cut.client_states / "000002" / "000003.safetensors").unlink()
    before = cut.history_file.read_bytes()
    with pytest.raises(UserError, match="state of client 2 after round 3"):
        experiment("scaffold", **SETTINGS, resume=True)
    assert cut.history_file.read_bytes() == before
    assert not cut.is_being_written


def test_a_damaged_state_stops_the_resume(cut: RunFolder, experiment: Experiment) -> None:
    path = cut.client_states / "000001" / "000003.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + bytes(4))
    with pytest.raises(UserError, match="000001/000003.safetensors is damaged"):
        experiment("scaffold", **SETTINGS, resume=True)


@pytest.mark.usefixtures("no_pictures")
def test_a_damaged_line_stops_the_resume_and_is_shown(
    cut: RunFolder, experiment: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = cut.history_file.read_text().splitlines(keepends=True)
    cut.history_file.write_text("".join([lines[0], "garbage\n", *lines[2:]]))
    with pytest.raises(UserError, match="line 2 of history.jsonl is damaged"):
        experiment("scaffold", **SETTINGS, resume=True)
    assert len(cut.history_file.read_text().splitlines()) == 4
    assert [row["round"] for row in read_run(cut.path).history] == [0, 2, 3]
    assert main(["show", str(cut.path)]) == 0
    assert "line 2 of history.jsonl is damaged and left out" in capsys.readouterr().out
    assert main(["report", str(cut.path), "-o", str(tmp_path / "report")]) == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert "line 2 of history.jsonl is damaged and left out" in text


def test_a_run_that_is_done_is_neither_resumed_nor_suggested_to_be(
    experiment: Experiment, tmp_path: Path
) -> None:
    folder = experiment(run_name="whole")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="is done; there is nothing to resume"):
        experiment(run_name="whole", resume=True)
    with pytest.raises(UserError, match="already exists.* and is done") as refusal:
        experiment(run_name="whole")
    assert "fedsuite show" in str(refusal.value) and "resume" not in str(refusal.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_an_unfinished_run_of_that_name_is_suggested_to_be_resumed(
    cut: RunFolder, experiment: Experiment
) -> None:
    with pytest.raises(UserError, match=r"resume it with `fedsuite resume .*cut`"):
        experiment("scaffold", **SETTINGS)


def test_anothers_results_are_not_shown_as_ones_own(experiment: Experiment) -> None:
    run = RunFolder(experiment(run_name="theirs"))
    assert run.state is RunState.FINISHED
    with pytest.raises(UserError, match="was started by another command at the same time"):
        refuse_failure(run, mine=False)


def test_what_an_earlier_try_failed_of_is_not_this_ones_reason(cut: RunFolder) -> None:
    cut.log_file.write_text("ray did not start\n")
    with pytest.raises(RunFailed, match="ray did not start") as failure:
        refuse_failure(cut, mine=False)
    assert "PowerCut" not in str(failure.value)
    folder, how = failure.value.__notes__
    assert folder.endswith(str(cut.path)) and f"`{cut.resume_command}`" in how


def lose_checkpoint(run: RunFolder) -> None:
    run.checkpoint_file.unlink()


def lose_state(run: RunFolder) -> None:
    (run.client_states / "000002" / "000003.safetensors").unlink()


def lose_rounds(run: RunFolder) -> None:
    run.history_file.write_text("".join(run.history_file.read_text().splitlines(True)[:2]))


def write_null(run: RunFolder) -> None:
    run.clients_file.write_text(run.clients_file.read_text() + "null\n")


def write_nothing(run: RunFolder) -> None:
    run.clients_file.write_text(run.clients_file.read_text() + "{}\n")


def change_split(run: RunFolder) -> None:
    text = run.config_file.read_text()
    recorded = run.read_provenance()["split-fingerprint"]
    run.config_file.write_text(text.replace(recorded, "0" * len(recorded)))


def forget_id(run: RunFolder) -> None:
    write_json(run.config_file, read_document(run.config_file) | {"run-id": ""})


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lose_checkpoint, "it has 3 rounds, but its checkpoint"),
        (lose_state, "the state of client 2 after round 3"),
        (lose_rounds, "its checkpoint is of round 3, which history.jsonl lacks"),
        (write_null, "of clients.jsonl is damaged"),
        (write_nothing, "line 13 of clients.jsonl is damaged"),
        (forget_id, "config.json is damaged: run-id cannot be ''"),
        (change_split, "the data or a library has changed"),
        (lambda run: run.config_file.unlink(), "There is nothing to resume"),
    ],
)
def test_what_cannot_be_resumed_is_refused_before_an_engine_starts(
    cut: RunFolder,
    spoil: Callable[[RunFolder], Any],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    experiment: Experiment,
) -> None:
    """On Ray as inline: one sentence, status 2, and not a byte of the record is changed."""

    def start(*rest: Any) -> None:
        raise AssertionError("the engine was started")

    monkeypatch.setattr("fedsuite.engines.ray.execute", start)
    monkeypatch.setattr("fedsuite.engines.ray.prepare", nullcontext)
    cut.summary_file.unlink()
    spoil(cut)
    paths = [path for path in cut.path.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in paths}
    if cut.exists:
        assert main(["resume", str(cut.path), "--engine", "ray"]) == 2
    else:
        words = [f"results-dir={cut.path.parent}", "run-name=cut", "resume=true"]
        assert main(["run", "scaffold", *words, "--engine", "ray"]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    with pytest.raises(UserError, match=sentence):
        experiment("scaffold", **SETTINGS, resume=True)
    assert {path: path.read_bytes() for path in before} == before
    assert not cut.is_being_written


def test_a_run_without_checkpoints_begins_again(experiment: Experiment, tmp_path: Path) -> None:
    settings: dict[str, Any] = {**SETTINGS, "checkpoint_every": 0}
    with pytest.raises(PowerCut):
        experiment(grid=FailingGrid(), **settings)
    experiment(resume=True, **settings)
    assert [row["round"] for row in read_run(tmp_path / "runs" / "cut").history] == [0, 1, 2, 3, 4]


def test_a_resumed_run_is_running_whatever_it_failed_of_before(cut: RunFolder) -> None:
    assert cut.state is RunState.FAILED
    with cut.lock_file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert read_run(cut.path).state is RunState.RUNNING
        assert read_run(cut.path).note == "3 of 4 rounds"
    assert cut.state is RunState.FAILED


def test_anothers_folder_is_a_sentence(cut: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    cut.lock_file.unlink(missing_ok=True)
    cut.lock_file.mkdir()  # cannot be opened, whoever one is
    assert main(["resume", str(cut.path), "--engine", "inline"]) == 2
    assert "cannot be written (Is a directory)" in capsys.readouterr().err
