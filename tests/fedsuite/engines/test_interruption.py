"""What an interrupted command leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsuite.config import parse
from fedsuite.engines import start
from fedsuite.engines.contract import EngineOptions
from fedsuite.terminal.console import make_console

DEAD, OWN = 2**22 + 1, 1  # beyond the largest process id; init, which is always there


def test_what_a_killed_process_was_writing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_engine(name: str) -> Callable[..., None]:
        def execute(config: Any, options: Any, show: Any) -> None:
            checkpoint = tmp_path / "cut" / "checkpoint"
            checkpoint.mkdir(parents=True)
            for process in (DEAD, OWN):
                (checkpoint / f".latest.safetensors.{process}-1.tmp").write_bytes(b"half")
            raise KeyboardInterrupt

        return execute

    monkeypatch.setattr(start, "load_engine", load_engine)
    config = parse({"run-name": "cut", "results-dir": str(tmp_path), "model": "mlp"})
    options = EngineOptions(0, 0.0, None, "")
    with pytest.raises(KeyboardInterrupt):
        start.start_run(config, "inline", options, make_console(quiet=True))
    left = [path.name for path in tmp_path.rglob("*.tmp")]
    assert left == [f".latest.safetensors.{OWN}-1.tmp"]
