"""A run that lacks something of its clients says so everywhere, and by its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from run_folders import count_bytes_read, write_run

from fedsuite.cli.main import main
from fedsuite.core.files import read_document, write_json
from fedsuite.records.collection import open_collection
from fedsuite.records.folder import RunFolder, RunState
from fedsuite.records.reader import read_run
from fedsuite.records.summary import missing_sentence
from fedsuite.records.writer import RunRecord
from fedsuite.report import markdown
from fedsuite.report.build import build
from fedsuite.report.compare import compare
from fedsuite.report.comparison_text import print_compared

LACKS = "25 % of the client updates are missing (2)"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs, the second of which lost 2 of 8 updates."""
    for number, name in enumerate(("whole", "lossy")):
        write_run(tmp_path, name, ("fedavg", "taco")[number], [0.1, 0.4, 0.5])
    path = tmp_path / "lossy" / "summary.json"
    write_json(path, read_document(path) | {"missing_updates": 0.25, "failed_replies": 2})
    return tmp_path


def test_sentences_by_hand() -> None:
    assert missing_sentence({"unscored_clients": 1}) == "1 client unscored in the last evaluation"
    models = {"saved_models": 19, "unsaved_models": 1}
    assert missing_sentence(models) == "1 of 20 client models not saved"
    both = {"missing_updates": 0.25, "failed_replies": 2} | models
    assert missing_sentence(both) == f"{LACKS}, 1 of 20 client models not saved"


def test_it_is_said_wherever_the_run_is_named(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(["list", "runs", "--results-dir", str(runs)])
    assert capsys.readouterr().out.count(LACKS) == 1
    main(["watch", "lossy", "--results-dir", str(runs), "--once"])
    assert LACKS in capsys.readouterr().out
    text = markdown.render(build(open_collection(str(runs))))
    assert "Of 2 runs, 1 lacks something of the clients that were asked" in text
    assert "Some of these runs lack something of their clients" in text
    console = Console(width=160, record=True, file=Path("/dev/null").open("w"))
    print_compared(compare([str(runs)], "runs"), console)
    assert f"lossy: {LACKS}." in console.export_text()


@pytest.mark.parametrize(("name", "status"), [("whole", 0), ("lossy", 3)])
def test_every_command_ends_with_the_same_status(runs: Path, name: str, status: int) -> None:
    here = ["--results-dir", str(runs)]
    for words in (["resume", name], ["watch", name], ["watch", name, "--once"]):
        assert main([*words, *here]) == status, words


def test_a_resume_that_finds_the_run_just_done_ends_like_one_that_comes_later(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another command finishes the run while this one waits for its lock."""
    files = RunFolder(runs / "lossy")
    summary = files.summary_file.read_text()
    files.summary_file.unlink()
    acquire = RunRecord._acquire

    def wait(record: RunRecord) -> None:
        acquire(record)
        files.summary_file.write_text(summary)

    monkeypatch.setattr(RunRecord, "_acquire", wait)
    assert files.state is RunState.NOT_FINISHED
    assert main(["resume", "lossy", "--results-dir", str(runs), "--engine", "inline"]) == 3
    said = capsys.readouterr()
    assert "The run 'lossy' is done (finished): there is nothing to resume.\n" in said.out
    assert LACKS in said.out and not said.err


def test_the_clients_file_is_read_once_for_its_rows_and_its_damage(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = runs / "whole" / "clients.jsonl"
    path.write_text(path.read_text() + "null\n")
    count = count_bytes_read(monkeypatch, "clients.jsonl")
    run = read_run(runs / "whole")
    assert len(run.clients()) == 16 and count() == path.stat().st_size
    assert run.damage() == "line 17 of clients.jsonl is damaged and left out"
    assert count() == path.stat().st_size
