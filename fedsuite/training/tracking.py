"""Rounds for other tools: TensorBoard's event files, if the run asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedsuite.core.settings import UserError
from fedsuite.records.folder import RunFolder


class Tracker:
    """Records nothing beside the run's own record."""

    def add_round(self, row: Mapping[str, Any]) -> None:
        """Record a round."""


class TensorBoard(Tracker):
    """Writes every number of a round; rounds that are run again replace the earlier ones."""

    def __init__(self, folder: Path, last_round: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        events = RunFolder(folder).tensorboard
        again = events.is_dir()
        self._writer = SummaryWriter(str(events), purge_step=last_round + 1 if again else None)

    def add_round(self, row: Mapping[str, Any]) -> None:
        """Write a round's numbers; on disk before this returns."""
        for name, value in row.items():
            if name != "round" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()


def check_tracking(kind: str) -> None:
    """Refuse a tracker whose package is not installed."""
    if kind == "tensorboard" and find_spec("tensorboard") is None:
        raise UserError(
            "invalid value 'tensorboard' for tracking: the package tensorboard is not installed. "
            "Install it with `pip install 'fedsuite[tensorboard]'`, or set tracking=none."
        )


def open_tracker(kind: str, folder: Path, last_round: int) -> Tracker:
    """Return the tracker of a run that continues after ``last_round``."""
    return TensorBoard(folder, last_round) if kind == "tensorboard" else Tracker()
