"""Checkpoints: model, strategy state and round in one file, replaced atomically.

Because it is one file, a crash leaves either the old checkpoint or the new one, never a mixture.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedsuite.core.files import write_atomically
from fedsuite.core.settings import UserError
from fedsuite.records.folder import RunFolder


@dataclass(frozen=True)
class Checkpoint:
    """Everything the server needs to resume after ``round``.

    ``client_states`` names the clients' own states that belong to it, client -> round, where the
    server sees them: in a simulation.
    """

    round: int
    model: np.ndarray
    buffers: np.ndarray
    strategy: dict[str, Any]
    client_states: Mapping[int, int] = field(default_factory=dict)


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint of a run's folder; it is on disk when this returns."""
    arrays = {"model": checkpoint.model, "buffers": checkpoint.buffers}
    scalars = {}
    for name, value in checkpoint.strategy.items():
        if isinstance(value, np.ndarray):
            arrays[f"strategy.{name}"] = value
        else:
            scalars[name] = value
    document = json.dumps(
        {
            "round": checkpoint.round,
            "strategy": scalars,
            "client-states": {str(c): r for c, r in checkpoint.client_states.items()},
        }
    )
    packed = save({k: np.ascontiguousarray(v) for k, v in arrays.items()}, {"state": document})
    path = RunFolder(folder).checkpoint_file
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, packed)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the newest checkpoint of a run's folder; None if there is none."""
    path = RunFolder(folder).checkpoint_file
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            document: Mapping[str, Any] = json.loads(file.metadata()["state"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}
        strategy = dict(document["strategy"])
        for name, array in arrays.items():
            if name.startswith("strategy."):
                strategy[name.removeprefix("strategy.")] = array
        states = {int(c): int(r) for c, r in document.get("client-states", {}).items()}
        return Checkpoint(document["round"], arrays["model"], arrays["buffers"], strategy, states)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"The checkpoint {path} is damaged ({error}). Restore it from a copy; without it the "
            "run cannot be resumed, only started again under another name."
        ) from None
