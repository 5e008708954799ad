"""Checkpoints: model, strategy state and round in one file, replaced atomically.

Because it is one file, a crash leaves either the old checkpoint or the new one, never a mixture.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedsuite.core.files import write_atomically
from fedsuite.core.settings import UserError
from fedsuite.records.checks import is_whole
from fedsuite.records.folder import RunFolder

CHECKSUM = "crc32"


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
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    packed = save(arrays, {"state": document, CHECKSUM: _checksum(document, arrays)})
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
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}
        document = metadata["state"]
        if metadata.get(CHECKSUM, "") not in ("", _checksum(document, arrays)):
            raise ValueError("its checksum is another")
        return _read(json.loads(document), arrays)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise damaged(path, error) from None


def damaged(path: Path, why: object) -> UserError:
    """Return the error for a checkpoint that cannot be used."""
    return UserError(
        f"The checkpoint {path} is damaged ({why}). Restore it from a copy; without it the "
        "run cannot be resumed, only started again under another name."
    )


def _checksum(document: str, arrays: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of all that a checkpoint holds."""
    value = zlib.crc32(document.encode())
    for name in sorted(arrays):
        array = arrays[name]
        value = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), value)
        value = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, value)
    return f"{value:08x}"


def _read(document: Any, arrays: Mapping[str, np.ndarray]) -> Checkpoint:
    if not isinstance(document, dict) or not is_whole(document["round"]):
        raise ValueError("its state is no JSON object with a round")
    strategy, states = document["strategy"], document.get("client-states", {})
    if not isinstance(strategy, dict) or not isinstance(states, dict):
        raise ValueError("the state of its strategy or clients is no JSON object")
    for name in ("model", "buffers"):
        if arrays[name].ndim != 1 or arrays[name].dtype != np.float32:
            raise ValueError(f"'{name}' is no vector of float32")
    strategy |= {
        name.removeprefix("strategy."): array
        for name, array in arrays.items()
        if name.startswith("strategy.")
    }
    kept = {int(client): int(number) for client, number in states.items()}
    return Checkpoint(document["round"], arrays["model"], arrays["buffers"], strategy, kept)
