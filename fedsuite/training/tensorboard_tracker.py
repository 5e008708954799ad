"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsuite.config import RunConfig
from fedsuite.records.folder import RunFolder
from fedsuite.training.base_tracker import Tracker, numbers


class TensorBoard(Tracker):
    """Writes every number of a round; rounds that are run again replace the earlier ones."""

    def __init__(self, config: RunConfig, files: RunFolder, last_round: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        again = files.tensorboard.is_dir()
        self._last_round = last_round if again else -1
        purge = last_round + 1 if again else None
        self._writer = SummaryWriter(str(files.tensorboard), purge_step=purge)

    def add_round(self, row: Mapping[str, Any]) -> None:
        """Write a round's numbers; on disk before this returns."""
        if row["round"] <= self._last_round:
            return
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()

    def close(self, finished: bool) -> None:
        """Close the event file."""
        self._writer.close()
