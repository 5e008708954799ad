"""A real federation whose nodes have files of their own, used as ``deploy up`` says."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import processes
import pytest
from full_disk import resize_disk, small_disk

from fedsuite.core.files import read_document, read_lines
from fedsuite.core.processes import kill
from fedsuite.deploy.federation import read_plan
from fedsuite.records.folder import RunFolder

CONNECTION = "own-files"
pytestmark = pytest.mark.deploy


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder, with a Flower home of its own and a file of rows for each node."""
    folder = tmp_path_factory.mktemp("own")
    for number, name in enumerate(("north.csv", "south shore.csv")):
        draw = np.random.default_rng(number)
        rows = [f"{x:.4f},{y:.4f},{'rain' if x > y else 'sun'}" for x, y in draw.random((60, 2))]
        (folder / name).write_text("\n".join(["wind,cloud,weather", *rows]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_HOME", str(folder / "flower"))
        yield folder


@pytest.fixture(scope="module")
def command(place: Path) -> Iterator[list[str]]:
    """The words of the command that ``deploy up --data`` prints, with a column that it names."""
    words = ["deploy", "up", "--data", "north.csv", "south shore.csv", "--dir", "hub"]
    code, out = processes.finish([*words, "--connection", CONNECTION], place)
    try:
        assert code == 0, out
        (line,) = (line for line in out.splitlines() if line.startswith("run on it: "))
        assert "COLUMN is what is to be learned: wind, cloud, weather" in out
        fedsuite, *rest = shlex.split(line.removeprefix("run on it: "))
        assert fedsuite == "fedsuite"
        yield [word.replace("COLUMN", "weather") for word in rest]
    finally:
        processes.finish(["deploy", "down", "--dir", "hub"], place)
        if found := read_plan(place / "hub"):
            kill(*found.processes())


def test_the_command_that_up_prints_runs_until_the_disk_is_full_and_resumes(
    command: list[str], place: Path, tmp_path: Path
) -> None:
    """The configuration and the schema fit on the server's disk; the first checkpoint does not."""
    with small_disk(tmp_path / "disk", "24k") as disk:
        words = [*command, "num-rounds=1", f"results-dir={disk}", "--name", "full"]
        code, out = processes.finish(words, place, 600)
        assert code == 1 and "Traceback" not in out, out
        assert f"cannot write '{disk}/full" in out and "Free some space" in out
        assert "another user" not in out
        resize_disk(disk, "50m")
        (line,) = (line for line in out.splitlines() if "to resume it: " in line)
        fedsuite, *words = shlex.split(line.partition("to resume it: ")[2].strip("`"))
        assert fedsuite == "fedsuite" and words[-2:] == ["--superlink", CONNECTION]
        code, out = processes.finish(words, place, 600)
        assert code == 0, out
        folder = RunFolder(disk / "full")
        assert read_document(folder.summary_file)["status"] == "finished"
        rows = [row for row in read_lines(folder.clients_file) if row["phase"] == "train"]
        assert {(row["client"], row["status"]) for row in rows} == {(0, "ok"), (1, "ok")}
