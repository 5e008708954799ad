"""Vectors in files, where the server and its nodes share a machine.

A :class:`Reference` says where in which file a vector lies; it travels in place of the vector.
Files lie in private folders of the run, one in shared memory and one on the disk of the run's
folder, and a reference names a file in these and nothing else. Vectors are written by ``pwrite``,
where a full disk is an error; a write to one through a map would be a crash.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fedsuite.core.files import naming
from fedsuite.core.scratch import remove_folders_of, scratch_folder
from fedsuite.core.vector import Matrix, Vector

SHARED_MEMORY = Path("/dev/shm")
PREFIX = ".fedsuite-vectors-"
MEMORY, DISK = "m", "d"  # the first letter of a file's name says in which folder it is
FILE_NAME = re.compile(rf"[{MEMORY}{DISK}][0-9]{{1,18}}-[a-z0-9]{{1,18}}")
LARGEST = 1 << 62
HEADERS = {MEMORY: "vectors-in-memory", DISK: "vectors-on-disk"}
ITEM = np.dtype(np.float32).itemsize


@dataclass(frozen=True)
class Reference:
    """A float32 array in a file: its name, the first byte, the shape."""

    file: str
    offset: int
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = (self.offset, *self.shape)
        if not isinstance(self.file, str) or not FILE_NAME.fullmatch(self.file):
            raise ValueError("a reference to a file of another name than the run's")
        if any(type(number) is not int or not 0 <= number <= LARGEST for number in numbers):
            raise ValueError("a reference to no place in a file")

    @property
    def nbytes(self) -> int:
        """How many bytes the array has."""
        return prod(self.shape) * ITEM


class VectorFiles:
    """The run's folders of vectors, by the letter that names of files in them begin with."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = dict(folders)
        self._maps: dict[str, mmap.mmap] = {}

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> VectorFiles | None:
        """Return the folders that a message names; None if they are not this user's alone."""
        paths = {letter: header.get(key) for letter, key in HEADERS.items()}
        folders = {letter: Path(str(path)) for letter, path in paths.items() if path}
        if DISK not in folders or not all(map(_is_private, folders.values())):
            return None
        return cls(folders)

    @property
    def header(self) -> dict[str, str]:
        """What a message says of the folders."""
        return {HEADERS[letter]: str(folder) for letter, folder in self.folders.items()}

    def path(self, file: str) -> Path:
        """Return where a file is; refuse all names but those of references."""
        if not FILE_NAME.fullmatch(file) or file[0] not in self.folders:
            raise ValueError("a reference to a file of another name than the run's")
        return self.folders[file[0]] / file

    def read(self, place: Reference) -> Vector:
        """Return an array without a copy, to be read only."""
        if not place.nbytes:
            return np.zeros(place.shape, dtype=np.float32)
        if place.file not in self._maps:
            self._maps[place.file] = map_file(self.path(place.file), mmap.ACCESS_READ)
        return view(self._maps[place.file], place)

    def resolve(self, name: str, place: Reference) -> Vector:
        """Return the vector that a reference in a message stands for."""
        return self.read(place)

    def write(self, place: Reference, vector: np.ndarray) -> None:
        """Write an array to its place."""
        path, at = self.path(place.file), place.offset
        if vector.dtype != np.float32 or vector.shape != place.shape:
            raise ValueError(f"{vector.dtype}{list(vector.shape)} does not fit {place}")
        left = np.ascontiguousarray(vector).reshape(-1).view(np.uint8).data
        with naming(path):
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                while left:
                    written = os.pwrite(file, left, at)
                    left, at = left[written:], at + written
            finally:
                os.close(file)


def map_file(path: Path, access: int, length: int = 0) -> mmap.mmap:
    """Map a file, or its first bytes, into memory."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return mmap.mmap(file, length, access=access)
    finally:
        os.close(file)


def view(mapped: mmap.mmap, place: Reference) -> Matrix:
    """Return the array at a place of a mapped file."""
    if place.offset + place.nbytes > len(mapped):
        raise ValueError(f"a reference beyond the end of {place.file}")
    count = prod(place.shape)
    return np.frombuffer(mapped, np.float32, count, place.offset).reshape(place.shape)


@contextmanager
def vector_files(run: Path) -> Iterator[VectorFiles]:
    """Make a run's folders of vectors, for nobody else to enter; remove them at the end."""
    remove_vector_files(run)
    with ExitStack() as stack:
        folders = {}
        for letter, parent in _parents(run).items():
            made = scratch_folder(parent, PREFIX, _owner(run))
            folders[letter] = stack.enter_context(made)
        yield VectorFiles(folders)


def remove_vector_files(run: Path) -> None:
    """Remove the folders of a run whose process was killed, or is this one and about to end.

    Another process that runs under the same name keeps its own.
    """
    for parent in _parents(run).values():
        remove_folders_of(_owner(run), parent, PREFIX)


def _parents(run: Path) -> dict[str, Path]:
    usable = SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)
    return ({MEMORY: SHARED_MEMORY} if usable else {}) | {DISK: run.parent}


def _owner(run: Path) -> str:
    """Return a name for a run's folders, the same for every process."""
    return hashlib.sha256(os.fsencode(run.absolute())).hexdigest()[:16] + "-"


def _is_private(folder: Path) -> bool:
    """Return whether a folder is one of :func:`vector_files`, of this user."""
    try:
        status = folder.lstat()
    except (OSError, ValueError):
        return False
    mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return mine and stat.S_IMODE(status.st_mode) == 0o700 and folder.name.startswith(PREFIX)
