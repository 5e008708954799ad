"""Private folders for the time of a command; those that killed commands left are removed."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsuite.core.files import acquire, is_locked

PREFIX = "fedsuite-"
LOCK = ".lock"
STALE_SECONDS = 60.0
# Sockets have short paths, 107 bytes on Linux; Ray's need 69 of them below this folder.
LONGEST_PATH = 38
SHORT = Path("/tmp")
_held: set[Path] = set()  # by this process


@contextmanager
def scratch_folder(
    parent: Path | None = None, prefix: str = PREFIX, owner: str = ""
) -> Iterator[Path]:
    """Yield an empty folder that only this user can enter, and remove it at the end.

    Its name starts with ``prefix`` and ``owner``, by which :func:`remove_folders_of` finds it.
    """
    parent = parent or _parent()
    remove_stale(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix + owner, dir=parent))
    try:
        with acquire(folder / LOCK, 0.0, ""):
            _held.add(folder)
            yield folder
    finally:
        _held.discard(folder)
        _remove(folder)


def remove_stale(parent: Path | None = None, prefix: str = PREFIX) -> list[Path]:
    """Remove the folders of commands that were killed; return them."""
    stale = [path for path in (parent or _parent()).glob(f"{prefix}*") if _is_stale(path)]
    for folder in stale:
        _remove(folder)
    return stale


def remove_folders_of(owner: str, parent: Path, prefix: str) -> None:
    """Remove this user's folders of an owner, but for those that another process holds."""
    for folder in parent.glob(f"{prefix}{owner}*"):
        if _is_own(folder) and (folder in _held or not is_locked(folder / LOCK)):
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder; one that is still being written keeps a lock, by which it is found later."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        (folder / LOCK).touch()


def _parent() -> Path:
    """Return the folder for temporary files, or a shorter one if its path is too long."""
    usual = Path(tempfile.gettempdir())
    too_long = len(os.fsencode(usual / f"{PREFIX}12345678")) > LONGEST_PATH
    return SHORT if too_long and os.access(SHORT, os.W_OK) else usual


def _is_own(folder: Path) -> bool:
    try:
        return folder.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _is_stale(folder: Path) -> bool:
    """Return whether a folder is this user's, and the process that locked it is gone."""
    lock = folder / LOCK
    try:
        status, outside = lock.lstat(), folder.lstat()
    except OSError:
        return False
    mine = status.st_uid == outside.st_uid == os.geteuid()
    return mine and time.time() - status.st_mtime > STALE_SECONDS and not is_locked(lock)
