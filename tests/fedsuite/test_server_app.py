"""What the ServerApp makes of the grid that Flower hands over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedsuite import server_app
from fedsuite.engines.inline import InlineGrid


def test_a_run_on_flowers_simulation_is_recorded_as_a_ray_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server_app, "log_to_stdout", lambda: None)
    settings = {"num-clients": 2, "num-rounds": 1, "local-steps": 1, "model": "mlp"}
    settings |= {"results-dir": str(tmp_path), "run-name": "mine"}
    context = Context(1, 1, node_config={}, state=RecordDict(), run_config=settings)
    server_app.main(InlineGrid(1), context)
    config = json.loads((tmp_path / "mine" / "config.json").read_text())
    assert config["meta"]["engine"] == "ray"
    assert "finished: accuracy 0." in capsys.readouterr().out
