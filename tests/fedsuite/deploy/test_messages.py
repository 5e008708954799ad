"""What ``fedsuite deploy`` prints to be typed next."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsuite.cli.main import main
from fedsuite.core.settings import UserError
from fedsuite.deploy.up_down_status import run_command


@pytest.fixture(autouse=True)
def current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("age,label\n3,yes\n")
    Path("b.csv").write_text("age,label,town\n4,no,X\n")
    Path("c.csv").write_text("age,illness,town\n4,no,X\n")
    pq.write_table(pa.table({"town": ["X"], "illness": ["no"]}), "d.parquet")
    Path("images/cat").mkdir(parents=True)
    Path("images/cat/1.png").write_bytes(b"")


@pytest.mark.parametrize(
    ("data", "settings", "columns"),
    [
        ("", "", ""),
        ("a.csv b.csv", "dataset=own", ""),
        ("images", "dataset=own", ""),
        ("c.csv d.parquet", "dataset=own label-column=COLUMN", "illness town"),
        ("a.csv c.csv", "dataset=own label-column=COLUMN", "age"),
    ],
)
def test_a_command_that_runs_on_the_nodes_own_data(data: str, settings: str, columns: str) -> None:
    command, choices = run_command("hub", [Path(name) for name in data.split()])
    words = ["fedsuite", "run", "fedavg", *settings.split(), "--superlink", "hub"]
    assert shlex.split(command) == words and choices == columns.split()


def test_data_that_cannot_be_read_is_refused_before_anything_starts() -> None:
    Path("notes.txt").write_text("")
    with pytest.raises(UserError, match=r"notes\.txt.*holds no data"):
        run_command("hub", [Path("notes.txt")])


def test_up_prints_what_to_type_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def up(*rest: Any, **options: Any) -> Any:
        return SimpleNamespace(connection="hub")

    monkeypatch.setattr("fedsuite.deploy.up_down_status.up", up)
    words = ["deploy", "up", "--data", "c.csv", "d.parquet", "--connection", "hub"]
    assert main([*words, "--dir", "my hub"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "run on it: fedsuite run fedavg dataset=own label-column=COLUMN --superlink hub",
        "           COLUMN is what is to be learned: illness, town",
        "end it:    fedsuite deploy down --dir 'my hub'",
    ]
