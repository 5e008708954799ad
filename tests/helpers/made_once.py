"""A folder that test processes side by side share: the first to need it makes it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def shared_base(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder of all test processes; of this one, if it is alone."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that ``make`` has filled, here or in another process; to be read only."""
    folder, done = (shared_base(factory) / f"{name}{ending}" for ending in ("", ".done"))
    with (shared_base(factory) / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
