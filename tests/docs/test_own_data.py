"""The example of docs/own-data.md, run as the page says."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from following import ROOT, blocks

from fedsuite.cli.run import read_settings
from fedsuite.config import parse
from fedsuite.core.files import read_document
from fedsuite.engines.inline import InlineGrid
from fedsuite.training.loop import run


def test_the_pages_file_is_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 rows a tenth, 2, is held out; 3 clients divide 18; four columns become 5 features."""
    page = {block.title: block.text for block in blocks(ROOT / "docs" / "own-data.md")}
    monkeypatch.chdir(tmp_path)
    Path("visits.csv").write_text(page["visits.csv"])
    command, verb, algo, *pairs = shlex.split(page["command"])
    assert (command, verb) == ("fedsuite", "run")
    config = parse(read_settings([], pairs) | {"algo": algo, "run-name": "mine"}, idle="refuse")
    folder = run(config, InlineGrid(1), "inline")
    summary = read_document(folder / "summary.json")
    assert summary["status"] == "finished" and summary["model"] == "mlp"
    assert summary["dataset"] == str(tmp_path / "visits.csv")
