"""Names that can be no run, and commands that are printed to be typed again."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_user import NOBODY, need_root
from run_folders import write_run

from fedsuite.cli.main import main
from fedsuite.records.folder import RunFolder, find_run


@pytest.fixture(autouse=True)
def current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def say(capsys: pytest.CaptureFixture[str], *words: str, status: int = 2) -> str:
    assert main(list(words)) == status
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize("name", ["x" * 256, "ü" * 128, "y/" * 3000, "a\0b", "notes.txt", ""])
@pytest.mark.parametrize("command", ["show", "resume", "watch", "report", "compare"])
def test_what_can_be_no_run_is_a_sentence(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("notes.txt").write_text("no run")
    status = main([command, name])
    said = capsys.readouterr().err
    assert status == 2 and said.startswith("fedsuite: ") and said.count("\n") == 1
    if command == "watch":
        assert "' is not the name or folder of a run." in said
        assert ("at most 255 bytes" in said) == (len(name) > 100)


def test_a_run_is_watched_though_there_is_a_file_of_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_run(Path("runs"), "mine", "fedavg", [0.1, 0.5])
    Path("mine").write_text("no run")
    assert "finished" in say(capsys, "watch", "mine", "--once", status=0)


@pytest.mark.parametrize("option", ["results-dir", "--results-dir"])
def test_a_file_is_no_folder_of_runs(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("no run")
    if option == "--results-dir":
        assert "There is no run 'a'" in say(capsys, "show", "a", option, "notes.txt")
        assert "There are no runs in" in say(capsys, "list", "runs", option, "notes.txt", status=0)
    else:
        words = ["run", "fedavg", f"{option}=notes.txt", "model=mlp", "--engine", "inline"]
        assert "cannot be made: Not a directory. Choose another results-dir" in say(capsys, *words)


COMMANDS = (
    *(("show", "{}/mine"), ("watch", "{}/mine"), ("resume", "{}/mine")),
    *(("list", "runs", "--results-dir", "{}"), ("report", "{}/closed"), ("compare", "{}/closed")),
)


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder that everybody may read, with the rights of somebody who owns nothing in it.

    What the commands import is imported before, as root, whose home the checkout may be in.
    """
    need_root()
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        write_run(Path(place), "mine", "fedavg", [0.1, 0.5])
        (Path(place) / "mine").chmod(0o755)
        write_run(Path(place), "theirs", "fedavg", [0.1, 0.5])
        (Path(place) / "closed").mkdir(mode=0o700)
        for words in COMMANDS:
            main([word.format(place) for word in words])
        os.seteuid(NOBODY)
        try:
            yield Path(place)
        finally:
            os.seteuid(0)


def test_a_folder_that_cannot_be_read_is_a_sentence(
    as_nobody: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    here = ["--results-dir", str(as_nobody)]
    for command in ("show", "watch", "resume"):
        said = say(capsys, command, "theirs", *here)
        assert f"{as_nobody / 'theirs'} cannot be read: it belongs to another user" in said
    listed = say(capsys, "list", "runs", *here, status=0).splitlines()
    broken = {line.split()[0]: "broken:" in line for line in listed}
    assert broken == {"closed": True, "mine": False, "theirs": True}
    closed = str(as_nobody / "closed")
    for command in ("report", "compare"):
        assert "cannot be read" in say(capsys, command, closed)
    assert "cannot be read" in say(capsys, "list", "runs", "--results-dir", closed)


@pytest.mark.parametrize("name", ["plain", "my run", "it's", 'a "b"', "$HOME", "-x"])
@pytest.mark.parametrize("results", ["runs", "other runs"])
def test_a_printed_command_is_quoted_for_the_shell(name: str, results: str) -> None:
    folder = RunFolder((Path(results) / name).absolute())
    words = shlex.split(folder.command("resume"))
    assert words[:2] == ["fedsuite", "resume"] and len(words) == 3
    assert not words[2].startswith("-")
    folder.path.mkdir(parents=True)
    folder.config_file.write_text("{}")
    assert find_run(words[2], "runs") == folder.path
    assert folder.resume_command == folder.command("resume")


def test_an_interrupted_run_with_a_space_in_its_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(Path("runs"), "my run", "fedavg", [0.1, 0.5], status="", num_rounds=9)
    assert "`fedsuite resume 'my run'`" in say(capsys, "show", "my run", status=0)
    words = ["run", "fedavg", "model=mlp", "--engine", "inline", "--name", "my run"]
    assert "resume it with `fedsuite resume 'my run'`" in say(capsys, *words)
    write_run(Path("runs"), "done run", "fedavg", [0.1, 0.5])
    assert "The run 'done run' is done" in say(capsys, "resume", "done run", status=0)
    assert "and is done" in say(capsys, *words[:-1], "done run")
