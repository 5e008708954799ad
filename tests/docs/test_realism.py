"""The examples of docs/realism.md run as they are printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fedsuite.cli.main import main
from fedsuite.core.files import read_document, read_lines

PAGE = (Path(__file__).parents[2] / "docs" / "realism.md").read_text()


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Realistic clients, and attackers, whom neither FedAvg nor Multi-Krum expels."""
    monkeypatch.chdir(tmp_path)
    for command in re.findall(r"^fedsuite run .*$", PAGE.replace("\\\n", " "), re.MULTILINE):
        assert main([*shlex.split(command)[1:], "--engine", "inline"]) == 0
    for name in ("attacked", "defended"):
        assert read_document(tmp_path / "runs" / name / "summary.json")["attacker_tpr"] == 0.0
    rows = read_lines(tmp_path / "runs" / "real" / "clients.jsonl")
    assert {row["status"] for row in rows} == {"ok", "dropped out"}
    history = read_lines(tmp_path / "runs" / "real" / "history.jsonl")
    assert read_document(tmp_path / "runs" / "real" / "config.json")["compression"] == "top-k"
    assert sum(row.get("dropped_out", 0) for row in history) > 0
