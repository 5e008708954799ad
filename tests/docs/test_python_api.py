"""The example of docs/python-api.md, executed; the page names all that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from following import blocks

import fedsuite
from fedsuite.core.installation import ROOT

PAGE = ROOT / "docs" / "python-api.md"


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = blocks(PAGE)
    monkeypatch.chdir(tmp_path)
    exec(compile(example.text, example.title, "exec"), {})
    said = capsys.readouterr().out
    assert "<Run taco-digits-" in said and len(list(Path("runs").iterdir())) == 4
    assert "the reference" in said


def test_the_page_names_all_that_is_offered() -> None:
    offered = set(fedsuite._MODULES)
    named = set(re.findall(r"\w+", PAGE.read_text(encoding="utf-8")))
    assert offered <= named and offered <= set(dir(fedsuite))
    assert all(getattr(fedsuite, name).__name__ == name for name in offered)
