"""A run on a full disk ends with a sentence, and resumes to the same bits once there is space."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import processes
import pytest
from full_disk import fill_disk, resize_disk, small_disk

from fedsuite.cli.main import main
from fedsuite.core.files import naming, write_atomically, write_problem
from fedsuite.records.folder import RunFolder, RunState

pytestmark = pytest.mark.slow

WORDS = ["num-clients=2", "num-rounds=3", "model=mlp", "--engine", "inline"]
ALGO = "pfedme"  # its clients keep states, and save models at the end


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The models of a run that had space."""
    folder = tmp_path_factory.mktemp("whole")
    assert main(["run", ALGO, *WORDS, f"results-dir={folder}", "--name", "whole"]) == 0
    return models(folder / "whole")


def models(folder: Path) -> dict[str, bytes]:
    paths = [folder / "model.safetensors", *sorted((folder / "models").iterdir())]
    return {path.name: path.read_bytes() for path in paths}


def test_an_error_of_an_open_file_gets_its_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as raised, naming(tmp_path / "a"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    said = write_problem(raised.value)
    assert (
        said == f"cannot write '{tmp_path / 'a'}': No space left on device. Free some space there"
    )
    assert write_problem(FileNotFoundError(errno.ENOENT, "no such file", "x")) == ""


def test_a_temporary_file_is_called_by_the_name_it_was_to_get(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write_atomically(tmp_path / "none" / "a.json", b"{}")
    assert raised.value.filename == str(tmp_path / "none" / "a.json")


@pytest.mark.parametrize(
    ("part", "after", "error"),
    [
        ("config.json", 0, errno.ENOSPC),
        ("/.lock", 0, errno.ENOSPC),
        ("history.jsonl", 0, errno.ENOSPC),
        ("clients.jsonl", 0, errno.EDQUOT),
        ("latest.safetensors", 2, errno.ENOSPC),
        ("latest.safetensors", 2, errno.EROFS),
        ("model.safetensors", 0, errno.ENOSPC),
        ("clients/000001/", 2, errno.ENOSPC),
        ("models/", 1, errno.EDQUOT),
        ("summary.json", 0, errno.ENOSPC),
        ("latest.safetensors;summary.json", 1, errno.ENOSPC),
    ],
)
def test_a_run_ends_with_a_sentence_and_resumes_to_the_same_bits(
    part: str,
    after: int,
    error: int,
    whole: dict[str, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = RunFolder(tmp_path / "runs" / "full")
    words = ["run", ALGO, *WORDS, f"results-dir={run.path.parent}", "--name", "full"]
    with pytest.MonkeyPatch.context() as patch:
        for file in part.split(";"):
            fill_disk(patch, file, error, after if file == part.split(";")[0] else 0)
        assert main(words) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    first = said.splitlines()[0].removeprefix("fedsuite: ")
    assert first.startswith(f"cannot write '{run.path}/") and os.strerror(error) in first
    assert "Free some space there" in first or "writable" in first
    assert not run.is_being_written
    if run.exists:
        assert run.state in (RunState.FAILED, RunState.NOT_FINISHED)
        assert f"to resume it: `{run.resume_command}`" in said
        words = ["resume", str(run.path)]
    assert main(words) == 0
    assert models(run.path) == whole


def test_a_log_that_cannot_be_written_does_not_stop_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*rest: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("fedsuite.engines.background.LogFile.flush", fail, raising=False)
    assert main(["run", "fedavg", *WORDS, f"results-dir={tmp_path}", "--name", "quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and "finished" in captured.out


@pytest.mark.parametrize("engine", ["inline", pytest.param("ray", marks=pytest.mark.ray)])
def test_a_disk_that_is_really_full(
    engine: str, tmp_path: Path, experiment: Callable[..., Path]
) -> None:
    """The model of 2410 numbers and its checkpoint fit; ten clients' states do not."""
    with small_disk(tmp_path / "disk", "400k") as disk:
        words = ["num-clients=10", "num-rounds=3", "model=mlp", f"results-dir={disk}"]
        command = ["run", "scaffold", *words, "--engine", engine, "--name", "full"]
        status, out = processes.finish(command, tmp_path)
        run = RunFolder(disk / "full")
        assert status == 1 and "Traceback" not in out, out
        assert f"cannot write '{run.path}" in out and "Free some space" in out
        assert f"fedsuite resume {run.path}" in out
        resize_disk(disk, "50m")
        assert main(["resume", str(run.path), "--engine", "inline"]) == 0
        undisturbed = experiment("scaffold", num_clients=10, num_rounds=3)
        assert run.model_file.read_bytes() == (undisturbed / "model.safetensors").read_bytes()
