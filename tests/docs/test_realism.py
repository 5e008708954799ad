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
    """Realistic clients, and attackers of FedAvg and of Multi-Krum, which leaves both out."""
    monkeypatch.chdir(tmp_path)
    for command in re.findall(r"^fedsuite run .*$", PAGE.replace("\\\n", " "), re.MULTILINE):
        assert main([*shlex.split(command)[1:], "--engine", "inline"]) == 0
    defended = read_lines(tmp_path / "runs" / "defended" / "clients.jsonl")
    assert {row["weight"] for row in defended if row["client"] in (8, 9)} == {0.0}
    scores = [tmp_path / "runs" / name / "summary.json" for name in ("attacked", "defended")]
    attacked, fine = (read_document(path)["final_accuracy"] for path in scores)
    assert fine > attacked
    rows = read_lines(tmp_path / "runs" / "real" / "clients.jsonl")
    assert {row["status"] for row in rows} == {"ok", "dropped out"}
    history = read_lines(tmp_path / "runs" / "real" / "history.jsonl")
    assert read_document(tmp_path / "runs" / "real" / "config.json")["compression"] == "top-k"
    assert sum(row.get("dropped_out", 0) for row in history) > 0
