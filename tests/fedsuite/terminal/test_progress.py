"""A run's rounds in the terminal: what is noted of a round stays on the screen."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fedsuite.config import parse
from fedsuite.records.writer import RunRecord
from fedsuite.terminal.progress import follow

NODE_TEXT = "node 7 cannot take part: [bold red]x[/] [/nothing] \x1b[31m\udcff"


@pytest.mark.parametrize("terminal", [True, False])
def test_what_a_node_wrote_is_neither_markup_nor_a_control_character(
    tmp_path: Path, terminal: bool
) -> None:
    """Markup that opens nothing would end the command, were it taken for markup."""
    config = parse({"results-dir": str(tmp_path), "run-name": "live", "num-rounds": 1})
    record = RunRecord.create(config, {"engine": "inline"})
    record.add_round({"round": 1, "wall_seconds": 1.0, "note": "before"}, [])
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=200, color_system=None)

    def alive(seconds: float) -> bool:
        record.add_round({"round": 1, "wall_seconds": 1.0, "note": NODE_TEXT}, [])
        return False

    follow(tmp_path / "live", 1, alive, console)
    record.close()
    assert "[bold red]x[/] [/nothing] \ufffd[31m\ufffd" in screen.getvalue()
    assert "\x1b[31m" not in screen.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_an_expulsion_is_told_in_the_line_of_its_round(tmp_path: Path, terminal: bool) -> None:
    config = parse({"results-dir": str(tmp_path), "run-name": "live", "num-rounds": 3})
    record = RunRecord.create(config, {"engine": "inline"})
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=200)
    rows: list[dict[str, Any]] = [
        {"round": n, "accuracy": 0.5, "wall_seconds": 1.0} for n in (1, 2)
    ]
    rows[0]["note"] = "expelled client 3, 17"
    left = [*rows]

    def alive(seconds: float) -> bool:
        if left:
            record.add_round(left.pop(0), [])
        return bool(left)

    follow(tmp_path / "live", 3, alive, console)
    record.close()
    lines = [line for line in screen.getvalue().splitlines() if "round 1/3" in line]
    assert len(lines) == 1 and "accuracy 0.5000" in lines[0]
    assert lines[0].rstrip().endswith("expelled client 3, 17")


def test_in_a_notebook_each_round_replaces_the_one_before_and_notes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, str]] = []

    def display(data: dict[str, str], raw: bool, display_id: bool) -> SimpleNamespace:
        assert raw and display_id
        shown.append(("new", data["text/plain"]))
        return SimpleNamespace(update=lambda d, raw: shown.append(("same", d["text/plain"])))

    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr("fedsuite.terminal.progress.is_notebook", lambda: True)
    config = parse({"results-dir": str(tmp_path), "run-name": "live", "num-rounds": 2})
    record = RunRecord.create(config, {"engine": "inline"})

    def alive(seconds: float) -> bool:
        record.add_round({"round": 1, "accuracy": 0.5}, [])
        record.add_round({"round": 2, "accuracy": 0.75, "note": "expelled client 3"}, [])
        return False

    screen = io.StringIO()
    follow(tmp_path / "live", 2, alive, Console(file=screen, width=200))
    record.close()
    lines = ["round 1/2  accuracy 0.5000", "round 2/2  accuracy 0.7500  expelled client 3"]
    assert shown == [("new", lines[0]), ("same", lines[1])]
    assert screen.getvalue() == f"{lines[1]}\n"
