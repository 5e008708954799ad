"""What a run must have before it is resumed; nothing of it is changed here."""

from __future__ import annotations

import dataclasses

from clients.state import check_states
from fedsuite.config import RUNTIME_KEYS, RunConfig
from fedsuite.core.settings import UserError
from fedsuite.core.text import counted
from fedsuite.records.checkpoint import Checkpoint, damaged, load_checkpoint
from fedsuite.records.folder import RunFolder
from fedsuite.records.writer import RunRecord
from strategies.base import BaseStrategy


def resumed_config(config: RunConfig) -> RunConfig:
    """Return the recorded settings of the run to resume; only where it runs may change."""
    kept = {name: getattr(config, name) for name in RUNTIME_KEYS}
    return dataclasses.replace(RunFolder.of(config).read_config(), **kept)


def find_checkpoint(held: RunRecord, config: RunConfig) -> Checkpoint | None:
    """Return the checkpoint of a run that is held, None if it has not written one yet.

    Refuse a run whose checkpoint, client states or lines are missing or damaged.
    """
    checkpoint = load_checkpoint(held.folder)
    if checkpoint is not None:
        check_states(held.files.client_states, checkpoint.client_states)
    lines = held.lines_until(checkpoint.round if checkpoint is not None else None)
    rounds = [row["round"] for row in lines[held.files.history_file]]
    if checkpoint is None and config.checkpoint_every and max(rounds, default=0) > 0:
        raise UserError(
            f"The run in {held.folder} cannot be resumed: it has "
            f"{counted(max(rounds), 'round')}, but its "
            f"checkpoint {held.files.checkpoint_file} is missing. Restore the file from a copy, or "
            "start the run again under another name."
        )
    return checkpoint


def restore(strategy: BaseStrategy, checkpoint: Checkpoint, files: RunFolder) -> None:
    """Put a new strategy into the state of a checkpoint; refuse one of another model or method."""
    for name in ("model", "buffers"):
        found, expected = getattr(checkpoint, name).size, getattr(strategy, name).size
        if found != expected:
            why = f"'{name}' has {found:,} numbers, and the run's model {expected:,}"
            raise damaged(files.checkpoint_file, why)
    strategy.model, strategy.buffers = checkpoint.model, checkpoint.buffers
    strategy.checkpoint_round = checkpoint.round
    try:
        strategy.load_state(checkpoint.strategy)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise damaged(files.checkpoint_file, repr(error)) from None


def check_split(files: RunFolder, split: str) -> None:
    """Refuse to resume a run on data that is divided otherwise."""
    recorded = files.read_provenance().get("split-fingerprint")
    if recorded != split:
        raise UserError(
            f"The run in {files.path} has the split {recorded}, but the data here gives the "
            f"split {split}: the data or a library has changed. Start a new run."
        )
