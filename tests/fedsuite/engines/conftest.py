from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from remote_runs import BEGIN, ROUNDS, STARTED

HELPERS = Path(__file__).parents[2] / "helpers"
CONNECTIONS = """
[superlink.hub]
address = "hub.example.org:8000"
root-certificates = "/x/ca.crt"

[superlink.here]
address = "127.0.0.1:8000"
insecure = true
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put the stand-in in place of ``flwr`` and work in an empty folder."""
    home = tmp_path / "flower"
    home.mkdir()
    (home / "config.toml").write_text(CONNECTIONS)
    monkeypatch.setenv("FLWR_HOME", str(home))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    command = [sys.executable, str(HELPERS / "fake_flwr.py"), str(tmp_path)]
    for module in ("fedsuite.engines.remote", "fedsuite.flower.commands"):
        monkeypatch.setattr(f"{module}.executable", lambda name: command)

    def script(**document: Any) -> Path:
        usual = {"run": STARTED, "logs": [[*BEGIN, *ROUNDS]], "statuses": ["finished:completed"]}
        (tmp_path / "script.json").write_text(json.dumps(usual | document))
        return tmp_path

    return script
