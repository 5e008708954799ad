"""What the ServerApp makes of the grid that Flower hands over, and what its lines look like."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedsuite import server_app
from fedsuite.config import all_defaults
from fedsuite.core.settings import Scalar
from fedsuite.engines.inline import InlineGrid
from fedsuite.server_app import MarkedLines


def test_a_run_on_flowers_simulation_is_recorded_as_a_ray_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_app, "log_to_stdout", lambda: None)
    monkeypatch.setattr(server_app.log, "propagate", True)
    caplog.set_level(logging.INFO, "fedsuite")
    settings: dict[str, Scalar] = {"results-dir": str(tmp_path), "run-name": "mine"}
    settings |= {"num-clients": 2, "num-rounds": 1, "local-steps": 1, "model": "mlp"}
    context = Context(1, 1, node_config={}, state=RecordDict(), run_config=settings)
    server_app.main(InlineGrid(1), context)
    config = json.loads((tmp_path / "mine" / "config.json").read_text())
    assert config["meta"]["engine"] == "ray"
    assert caplog.messages[-1].startswith("finished: accuracy 0.")


def test_a_setting_without_effect_in_flowers_run_config_is_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the app's own, which ``--run-config`` deprives of its effect."""
    monkeypatch.setattr(server_app, "log_to_stdout", lambda: None)
    settings = all_defaults() | {"results-dir": str(tmp_path), "run-name": "mine"}
    settings |= {"optimizer": "adam", "momentum": 0.9}
    settings |= {"num-clients": 2, "num-rounds": 1, "local-steps": 1, "model": "mlp"}
    context = Context(1, 1, node_config={}, state=RecordDict(), run_config=settings)
    server_app.main(InlineGrid(1), context)
    config = json.loads((tmp_path / "mine" / "config.json").read_text())
    assert (config["optimizer"], config["momentum"]) == ("adam", 0.0)


def test_every_line_of_a_message_is_marked() -> None:
    record = logging.makeLogRecord({"msg": "the run failed: %s", "args": ("no rows\nin a.csv",)})
    assert MarkedLines().format(record) == "fedsuite: the run failed: no rows\nfedsuite: in a.csv"
