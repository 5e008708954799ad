"""Test data of the server, and the target column, when nodes have data of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from federations import DeployedGrid, partitions, visits_csv
from flwr.app import Context, RecordDict

from fedsuite import server_app
from fedsuite.core.settings import Scalar, UserError

Start = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("no_waiting")


def owners(folder: Path) -> DeployedGrid:
    paths = [visits_csv(folder / f"{seed}.csv", seed) for seed in (1, 2)]
    return DeployedGrid(
        *({"data_path": str(path), "state_dir": str(folder / "state")} for path in paths)
    )


def said_by_server_app(
    grid: DeployedGrid,
    settings: dict[str, Scalar],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> str:
    """Run the ServerApp, which fails; return the last line that it logs, without a traceback."""
    monkeypatch.setattr(server_app, "log_to_stdout", lambda: None)
    monkeypatch.setattr(server_app.log, "propagate", True)
    caplog.set_level(logging.INFO, "fedsuite")
    context = Context(1, 1, node_config={}, state=RecordDict(), run_config=settings)
    with pytest.raises((UserError, ConnectionError)):
        server_app.main(grid, context)
    assert caplog.records[-1].exc_info is None
    return caplog.messages[-1]


def test_server_data_that_are_not_there_fail_the_run_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Scalar] = {"dataset": "own", "server-data": "/nowhere.csv"}
    settings |= {"results-dir": str(tmp_path / "runs")}
    said = said_by_server_app(owners(tmp_path), settings, monkeypatch, caplog)
    assert said == (
        "the run failed: invalid value '/nowhere.csv' for server-data: there is no such file or "
        "folder on the SuperLink's machine."
    )
    assert not (tmp_path / "runs").exists()


def test_an_unknown_label_column_is_refused_by_nodes_that_name_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Scalar] = {"dataset": "own", "label-column": "income"}
    settings |= {"results-dir": str(tmp_path / "runs")}
    said = said_by_server_app(owners(tmp_path), settings, monkeypatch, caplog)
    assert "no column 'income'. Its columns: age, pulse, way, label." in said


def test_server_data_have_no_effect_beside_a_shared_dataset(
    experiment: Start, tmp_path: Path
) -> None:
    for grid in (DeployedGrid(*partitions(2, tmp_path / "state")), None):
        with pytest.raises(UserError, match=r"^server-data=x.csv has no effect (on nodes|in a si)"):
            experiment("fedavg", grid=grid, server_data="x.csv")
