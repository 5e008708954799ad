"""Shared by all tests: a cache of their own, and a quick way to run an experiment inline."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
SHARED_DATA = Path(__file__).parents[1].parent / "shared" / "data"
pytest_plugins = ("groups",)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep what tests cache away from the user's own cache; processes they start inherit it.

    Test processes that run side by side share it, so that each dataset is prepared once.
    """
    from made_once import shared_base

    alone = "PYTEST_XDIST_WORKER" not in os.environ
    folder = shared_base(tmp_path_factory) / "cache"
    folder.mkdir(exist_ok=True)
    before = os.environ.get("FEDSUITE_CACHE")
    os.environ["FEDSUITE_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["FEDSUITE_CACHE"]
    else:
        os.environ["FEDSUITE_CACHE"] = before
    if alone:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def shared_data() -> Path:
    """The folder of real datasets, where there is one."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder of real datasets (../shared/data) is absent")
    return SHARED_DATA


@pytest.fixture
def experiment(tmp_path: Path) -> Callable[..., Path]:
    """Run a small experiment inline; keys are written with underscores."""
    from fedsuite.config import parse
    from fedsuite.engines.inline import InlineGrid
    from fedsuite.flower.compat import is_simulated
    from fedsuite.training.loop import run

    count = 0

    def start(algo: str = "fedavg", grid: Any = None, **settings: Any) -> Path:
        nonlocal count
        count += 1
        small = {"num-clients": 4, "num-rounds": 2, "model": "mlp", "run-name": f"run{count}"}
        given = {key.replace("_", "-"): value for key, value in settings.items()}
        values = small | {"algo": algo, "results-dir": str(tmp_path / "runs")} | given
        grid = grid or InlineGrid(1)
        return run(parse(values), grid, "inline" if is_simulated(grid) else "deployed")

    return start


@pytest.fixture
def small_resnet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``resnet18`` be a small batch-norm model, so that whole runs of it take no time."""
    from torch import nn

    from tasks import architectures
    from tasks.shapes import DataShape

    def make(shape: DataShape) -> nn.Module:
        layers = {
            "conv1": nn.Conv2d(shape.input_shape[0], 4, 3, padding=1, bias=False),
            "bn1": nn.BatchNorm2d(4),
            "relu": nn.ReLU(),
            "pool": nn.AdaptiveAvgPool2d(2),
            "flat": nn.Flatten(),
            "fc": nn.Linear(16, shape.num_classes),
        }
        model = nn.Sequential()
        for name, layer in layers.items():
            model.add_module(name, layer)
        return model

    monkeypatch.setattr(architectures, "resnet18", make)
