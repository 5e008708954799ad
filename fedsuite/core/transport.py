"""How the vectors of a round travel: inside messages, or by reference to files.

Nodes that share a machine with the server exchange vectors through files of the run
(:mod:`fedsuite.core.vector_files`): what the server sends is written once and mapped by who needs
it, and each client's vectors go into their row of a matrix that the server maps. So neither a
message nor a process ever holds a round's vectors. Results are the same bits either way.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import shutil
import weakref
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Protocol

import numpy as np
import psutil
from flwr.app import Array, ArrayRecord, RecordDict

from fedsuite.core.files import naming, write_problem
from fedsuite.core.messages import (
    ProtocolError,
    Result,
    clean_reason,
    pack,
    pack_reference,
    read_result,
    write_arrays,
)
from fedsuite.core.vector import Matrix, Vector
from fedsuite.core.vector_files import DISK, ITEM, MEMORY, Reference, VectorFiles, map_file, view

# Shared memory takes up to these shares of the memory that is available and of what it has free.
MEMORY_SHARE, SHARED_MEMORY_SHARE = 1 / 8, 1 / 2
ALIGNMENT = 64
SMALL = 1 << 20  # bytes of a matrix that needs no file
SENT = "sent"


class Transport(Protocol):
    """How a strategy sends vectors and collects those of its clients."""

    def begin(self, lengths: Mapping[str, int], clients: Sequence[int]) -> None:
        """Begin an exchange with clients, whose results have vectors of these lengths."""

    def pack(self, vectors: Mapping[str, np.ndarray]) -> ArrayRecord:
        """Put vectors, or references to them, into a record."""

    def places(self, client: int) -> dict[str, Reference]:
        """Return where the vectors of a client's result go, as far as they have a place."""

    def read(self, content: RecordDict, client: int) -> Result:
        """Read a client's result; anything malformed becomes its error."""

    def matrices(self, results: Sequence[Result]) -> dict[str, Matrix]:
        """Return the vectors of valid results, by name: a row per result."""

    def zeros(self, shape: tuple[int, ...]) -> Matrix:
        """Return an array of zeros: in a file, if it is large and there are files."""


class ByMessage:
    """Vectors travel inside messages, as between machines."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}

    def begin(self, lengths: Mapping[str, int], clients: Sequence[int]) -> None:
        """Note what vectors are expected."""
        self._lengths = dict(lengths)

    def pack(self, vectors: Mapping[str, np.ndarray]) -> ArrayRecord:
        """Put vectors into a record."""
        return write_arrays(vectors)

    def places(self, client: int) -> dict[str, Reference]:
        """Return none: results travel in replies."""
        return {}

    def read(self, content: RecordDict, client: int) -> Result:
        """Read a client's result; a reference in it is malformed."""
        return read_result(content, client, lengths=self._lengths)

    def matrices(self, results: Sequence[Result]) -> dict[str, Matrix]:
        """Copy the vectors into matrices."""
        found = {}
        for name, length in self._lengths.items():
            found[name] = np.empty((len(results), length), dtype=np.float32)
            for row, result in zip(found[name], results, strict=True):
                row[:] = result.arrays[name]
        return found

    def zeros(self, shape: tuple[int, ...]) -> Matrix:
        """Return zeros in memory."""
        return np.zeros(shape, dtype=np.float32)


class ByReference:
    """Vectors travel by reference to files.

    Files are used again in the next exchange, which saves the kernel the pages, unless a node may
    still write to them since its reply was lost, or somebody here still holds a matrix of them.
    Then they lose their names, and new ones take their place.
    """

    def __init__(self, files: VectorFiles) -> None:
        self._files, self._room = files, memory_room(files)
        self._number = 0
        self._lengths: dict[str, int] = {}
        self._rows: dict[int, int] = {}  # client -> its row
        self._matrices: dict[str, str] = {}  # vector -> the file of its matrix
        self._current: dict[tuple[str, str], str] = {}  # folder and purpose -> file
        self._spare: dict[tuple[str, str], str] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self._ends: dict[str, int] = {}  # folder -> the end of what was sent
        self._maps: dict[str, mmap.mmap] = {}
        self._held: list[weakref.ref[mmap.mmap]] = []
        self._heard: set[int] = set()
        self._stored: set[tuple[int, str]] = set()

    def begin(self, lengths: Mapping[str, int], clients: Sequence[int]) -> None:
        """Make a matrix for each vector, with a row per client in their order."""
        self._retire()
        self._number += 1
        self._lengths = dict(lengths)
        self._rows = {client: row for row, client in enumerate(sorted(clients))}
        self._heard, self._stored, self._matrices = set(), set(), {}
        for index, (name, length) in enumerate(lengths.items()):
            size = len(self._rows) * length * ITEM
            self._matrices[name] = self._claim(self._letter(str(index), size), str(index), size)

    def pack(self, vectors: Mapping[str, np.ndarray]) -> ArrayRecord:
        """Write vectors to a file; put references to them into a record."""
        return ArrayRecord({name: self._send(vector) for name, vector in vectors.items()})

    def places(self, client: int) -> dict[str, Reference]:
        """Return the client's row of each matrix."""
        return {name: self._place(name, self._rows[client]) for name in self._matrices}

    def read(self, content: RecordDict, client: int) -> Result:
        """Read a client's result; the only references in it are to the places it was given."""
        self._heard.add(client)
        places = self.places(client)

        def resolve(name: str, place: Reference) -> Vector:
            if place != places.get(name):
                raise ProtocolError("a reference to another place than was asked for")
            self._stored.add((client, name))
            return self._view(name, place)

        return read_result(content, client, resolve, self._lengths)

    def matrices(self, results: Sequence[Result]) -> dict[str, Matrix]:
        """Map the matrices; where results are missing, later rows move up in the file."""
        found = {}
        for name, length in self._lengths.items():
            for row, result in enumerate(results):
                place = self._place(name, row)
                is_stored = (result.client, name) in self._stored
                if place != self._place(name, self._rows[result.client]) or not is_stored:
                    self._files.write(place, result.arrays[name])
            whole = Reference(self._matrices[name], 0, (len(results), length))
            found[name] = self._view(name, whole)
        self._maps = {}
        return found

    def zeros(self, shape: tuple[int, ...]) -> Matrix:
        """Return zeros in a file on the disk, which ends with the last array that uses it."""
        size = prod(shape) * ITEM
        if size <= SMALL:
            return np.zeros(shape, dtype=np.float32)
        self._number += 1
        name = f"{DISK}{self._number}-zeros"
        path = self._files.path(name)
        with naming(path):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, size)  # a write through a map to a full disk is a crash
                return view(mmap.mmap(file, size), Reference(name, 0, shape))
            finally:
                os.close(file)
                os.unlink(path)

    def _retire(self) -> None:
        """Keep the last exchange's files for this one, or take their names from them."""
        self._maps = {}
        all_heard = self._heard.issuperset(self._rows)
        is_free = all_heard and all(held() is None for held in self._held)
        for key, name in self._current.items():
            if is_free:
                self._spare[key] = name
            else:
                self._remove(key, name)
        self._current, self._ends, self._held = {}, {}, []

    def _claim(self, letter: str, purpose: str, size: int = 0) -> str:
        """Return a file of at least ``size`` bytes: a spare one under a new name, or a new one."""
        key, name = (letter, purpose), f"{letter}{self._number}-{purpose}"
        path = self._files.path(name)
        with naming(path):
            if key in self._spare:
                os.rename(self._files.path(self._spare.pop(key)), path)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(path, flags, 0o600))
            if path.stat().st_size < size:
                enlarge(path, size, reserve=letter == DISK)
            self._sizes[key] = path.stat().st_size
        self._current[key] = name
        return name

    def _letter(self, purpose: str, size: int) -> str:
        """Return where a file of this size goes: to memory as long as there is room."""
        others = [n for key, n in self._sizes.items() if key[0] == MEMORY and key[1] != purpose]
        if sum(others) + size <= self._room:
            return MEMORY
        return DISK

    def _remove(self, key: tuple[str, str], name: str) -> None:
        self._files.path(name).unlink(missing_ok=True)
        self._sizes.pop(key, None)

    def _send(self, vector: np.ndarray) -> Array:
        """Append a vector to the file of what is sent; pack one that is empty or of doubles."""
        if vector.dtype != np.float32 or not vector.size:
            return pack(vector)
        letter = self._letter(SENT, self._ends.get(MEMORY, 0) + vector.nbytes)
        name = self._current.get((letter, SENT)) or self._claim(letter, SENT)
        place = Reference(name, self._ends.get(letter, 0), vector.shape)
        self._files.write(place, vector)
        end = place.offset + place.nbytes
        self._ends[letter] = -(-end // ALIGNMENT) * ALIGNMENT
        self._sizes[letter, SENT] = max(self._sizes[letter, SENT], end)
        return pack_reference(place)

    def _place(self, name: str, row: int) -> Reference:
        length = self._lengths[name]
        return Reference(self._matrices[name], row * length * ITEM, (length,))

    def _view(self, name: str, place: Reference) -> Matrix:
        """Return an array of a matrix; what is written to it stays in this process."""
        if not place.nbytes:
            return np.zeros(place.shape, dtype=np.float32)
        if name not in self._maps:
            size = len(self._rows) * self._lengths[name] * ITEM
            path = self._files.path(self._matrices[name])
            self._maps[name] = map_file(path, mmap.ACCESS_COPY, size)
            self._held.append(weakref.ref(self._maps[name]))
        return view(self._maps[name], place)


def enlarge(path: Path, size: int, reserve: bool) -> None:
    """Give a file a size; ``reserve`` its blocks at once, not one by one as it is written.

    On ext4 the first write to reserved blocks takes a tenth of the time.
    """
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if reserve:
            os.posix_fallocate(file, 0, size)
        else:
            os.truncate(file, size)
    finally:
        os.close(file)


def deliver(result: Result, places: Mapping[str, Reference], files: VectorFiles | None) -> Result:
    """Write a result's vectors to their places; those that do not fit there travel in the reply.

    What cannot be written is the client's error.
    """
    if files is None:
        return result
    fitting = {
        name: places[name]
        for name, vector in result.arrays.items()
        if name in places and vector.dtype == np.float32 and vector.shape == places[name].shape
    }
    try:
        for name, place in fitting.items():
            files.write(place, result.arrays[name])
    except OSError as error:
        reason = write_problem(error) or f"its vectors cannot be written: {error}"
        return dataclasses.replace(result, arrays={}, metrics={}, error=clean_reason(reason))
    left = {name: vector for name, vector in result.arrays.items() if name not in fitting}
    return dataclasses.replace(result, arrays=left, stored=fitting)


def memory_room(files: VectorFiles) -> int:
    """Return how many bytes of shared memory a run may take; 0 where there is none."""
    if MEMORY not in files.folders:
        return 0
    available = MEMORY_SHARE * psutil.virtual_memory().available
    return int(min(available, SHARED_MEMORY_SHARE * shutil.disk_usage(files.folders[MEMORY]).free))
