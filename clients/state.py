"""The state a client keeps between rounds, on its node's disk.

One file per client and round, replaced atomically. A round reads the newest state written before
it, so a run that was killed some rounds after its last checkpoint finds, when resumed, the state
that belongs to the checkpoint. States older than the checkpoint's are removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from fedsuite.core.files import replacing

PRIVATE = 0o600


class ClientState:
    """The durable state of one client as one round sees it."""

    def __init__(self, folder: Path, client: int, server_round: int, checkpoint_round: int) -> None:
        self.folder = folder / f"{client:06d}"
        self.round = server_round
        self.checkpoint_round = checkpoint_round

    def load(self, *, after_round: bool = False) -> dict[str, np.ndarray]:
        """Return the newest state from before this round (or including it); empty if none."""
        limit = self.round + 1 if after_round else self.round
        rounds = [number for number in self._rounds() if number < limit]
        return load_file(self._path(rounds[-1])) if rounds else {}

    def update(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write some entries of this round's state and keep the others."""
        self.save(self.load(after_round=True) | dict(arrays))

    def save(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write this round's state, then drop what no resume can need."""
        self.folder.mkdir(parents=True, exist_ok=True)
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        with replacing(self._path(self.round), PRIVATE) as temporary:
            save_file(contiguous, temporary)
        durable = [n for n in self._rounds() if n <= self.checkpoint_round and n < self.round]
        for number in durable[:-1]:
            self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.safetensors"

    def _rounds(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return sorted(int(p.stem) for p in self.folder.glob("*.safetensors"))
