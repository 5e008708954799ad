"""The state a client keeps between rounds, on its node's disk.

One file per client and round, replaced atomically. A round reads the newest state written before
it, so a run that was killed some rounds after its last checkpoint finds, when resumed, the state
that belongs to the checkpoint. States older than the checkpoint's are removed. Every file carries a
checksum, so that a damaged one is refused; so is a missing one, where the server knows of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedsuite.core.files import remove_unfinished, replacing
from fedsuite.core.settings import UserError

PRIVATE = 0o600
CHECKSUM = "crc32"


class ClientState:
    """The durable state of one client as one round sees it.

    ``known_round`` is that of the newest state which the client has said it has; 0 if none.
    """

    def __init__(
        self,
        folder: Path,
        client: int,
        server_round: int,
        checkpoint_round: int,
        known_round: int = 0,
    ) -> None:
        self.folder = folder / _folder_name(client)
        self.round = server_round
        self.checkpoint_round = checkpoint_round
        self.known_round = known_round

    @property
    def newest(self) -> int:
        """The round of the newest state up to this round; 0 if there is none."""
        return max((number for number in self._rounds() if number <= self.round), default=0)

    def load(self, *, after_round: bool = False) -> dict[str, np.ndarray]:
        """Return the newest state from before this round (or including it); empty if none.

        Refuse to start anew where there was a state before.
        """
        limit = self.round + 1 if after_round else self.round
        rounds = [number for number in self._rounds() if number < limit]
        if self.known_round > max(rounds, default=0):
            raise UserError(
                f"The client's state after round {self.known_round} is missing in {self.folder}, "
                "and the algorithm cannot continue without it. Restore the node's state-dir from a "
                "copy and restart the node, or start a new run."
            )
        return read_state(self._path(rounds[-1])) if rounds else {}

    def update(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write some entries of this round's state and keep the others."""
        self.save(self.load(after_round=True) | dict(arrays))

    def save(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write this round's state, then drop what no resume can need."""
        self.folder.mkdir(parents=True, exist_ok=True)
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        with replacing(self._path(self.round), PRIVATE) as temporary:
            temporary.write_bytes(save(contiguous, {CHECKSUM: checksum(contiguous)}))
        durable = [n for n in self._rounds() if n <= self.checkpoint_round and n < self.round]
        for number in durable[:-1]:
            self._path(number).unlink(missing_ok=True)
        remove_unfinished(self.folder)

    def _path(self, number: int) -> Path:
        return self.folder / _file_name(number)

    def _rounds(self) -> list[int]:
        return _rounds_in(self.folder)


def list_states(folder: Path, last_round: int) -> dict[int, int]:
    """Return the states that belong to a round's end: client -> the round that wrote its newest."""
    if not folder.is_dir():
        return {}
    found = {}
    for place in folder.iterdir():
        rounds = [number for number in _rounds_in(place) if number <= last_round]
        if rounds:
            found[int(place.name)] = rounds[-1]
    return found


def check_states(folder: Path, needed: Mapping[int, int]) -> None:
    """Refuse to resume if a state that :func:`list_states` listed is missing or damaged."""
    for client, number in sorted(needed.items()):
        path = folder / _folder_name(client) / _file_name(number)
        if not path.exists():
            raise UserError(
                f"The run cannot be resumed: the state of client {client} after round {number}, "
                f"{path}, is missing. Restore it from a copy, or start a new run."
            )
        read_state(path)


def read_state(path: Path) -> dict[str, np.ndarray]:
    """Read a state; refuse one that is damaged or cannot be read."""
    try:
        path.open("rb").close()  # safe_open says less of what the system says
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}
            recorded = (file.metadata() or {}).get(CHECKSUM)
    except OSError as error:
        raise UserError(
            f"The client's state {path} cannot be read: {error.strerror or error}."
        ) from None
    except (SafetensorError, ValueError) as error:
        raise _damaged(path, str(error)) from None
    if recorded is not None and recorded != checksum(arrays):
        raise _damaged(path, "its checksum is another")
    return arrays


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of arrays and their names."""
    value = 0
    for name in sorted(arrays):
        value = zlib.crc32(name.encode(), value)
        value = zlib.crc32(np.ascontiguousarray(arrays[name]).view(np.uint8).data, value)
    return f"{value:08x}"


def _damaged(path: Path, why: str) -> UserError:
    return UserError(
        f"The client's state {path} is damaged ({why}). Restore it from a copy, or start a new run."
    )


def _folder_name(client: int) -> str:
    return f"{client:06d}"


def _file_name(number: int) -> str:
    return f"{number:06d}.safetensors"


def _rounds_in(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.stem) for path in folder.glob("*.safetensors"))
