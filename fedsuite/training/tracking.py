"""A second copy of the rounds for other tools: TensorBoard event files, where asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedsuite.core.settings import UserError

FOLDER = "tensorboard"


class Tracker:
    """Keeps nothing: the run's own record is enough."""

    def add_round(self, row: Mapping[str, Any]) -> None:
        """Take note of a round."""


class TensorBoard(Tracker):
    """Writes every number of a round; rounds that are run again replace the earlier ones."""

    def __init__(self, folder: Path, last_round: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        again = (folder / FOLDER).is_dir()
        self._writer = SummaryWriter(
            str(folder / FOLDER), purge_step=last_round + 1 if again else None
        )

    def add_round(self, row: Mapping[str, Any]) -> None:
        """Write a round's numbers; on disk before this returns."""
        for name, value in row.items():
            if name != "round" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()


def check_tracking(kind: str) -> None:
    """Refuse a tool that is not installed."""
    if kind == "tensorboard" and find_spec("tensorboard") is None:
        raise UserError(
            "tracking = tensorboard needs the package tensorboard, which is not installed. "
            "`pip install 'fedsuite[tensorboard]'` brings it; tracking=none goes without."
        )


def open_tracker(kind: str, folder: Path, last_round: int) -> Tracker:
    """Return the tracker of a run that goes on after ``last_round``."""
    return TensorBoard(folder, last_round) if kind == "tensorboard" else Tracker()
