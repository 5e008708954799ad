"""Files that survive a crash: written whole or not at all, locked by one writer at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil

from fedsuite.core.settings import UserError

LOCK_POLL_SECONDS = 0.2
CANNOT_WRITE = "cannot write "
FREE_SPACE = "Free some space there"
ADVICE = {
    errno.ENOSPC: FREE_SPACE,
    errno.EDQUOT: FREE_SPACE,
    errno.EROFS: "Make that disk writable",
}


def absolute_path(text: str) -> Path:
    """Return a path as users write it, relative to the current directory or to a home folder."""
    return Path(os.path.expanduser(text)).absolute()  # Path's own fails if there is no such user


def write_atomically(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace a file so that a reader, or a crash, sees the old one or the new one.

    ``mode`` are the permissions of the new file; without it they are the usual ones.
    """
    with replacing(path, mode) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield a temporary file that replaces ``path`` when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with naming(path, temporary):
            if mode is not None:
                os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, mode))
            yield temporary
            os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def naming(path: Path, instead_of: Path | None = None) -> Iterator[None]:
    """Name the file in an ``OSError`` that names none, as of a write to an open file."""
    try:
        yield
    except OSError as error:
        unnamed = error.filename in (None, str(instead_of), instead_of)
        if unnamed and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_problem(error: BaseException) -> str:
    """Say which file a full or read-only disk does not take, and what to do; else ""."""
    if not isinstance(error, OSError) or error.errno not in ADVICE:
        return ""
    what = f"'{error.filename}'" if error.filename else "a file"
    return f"{CANNOT_WRITE}{what}: {error.strerror}. {ADVICE[error.errno]}"


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files of :func:`replacing` in a folder whose process was killed."""
    for path in folder.rglob(".*.tmp"):
        writer = path.name.split(".")[-2].partition("-")[0]
        if writer.isdigit() and not _is_alive(int(writer)):
            path.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield an empty folder that replaces ``path`` when the block ends without an error.

    Its files are on the disk before it gets its name, so that not even a power cut leaves a folder
    with half of them. ``path`` may be a file.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    _remove(unfinished)
    unfinished.mkdir(mode)
    try:
        yield unfinished
        for place in (*unfinished.rglob("*"), unfinished):
            _sync(place)
        _remove(path)
        unfinished.rename(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _remove(path: Path) -> None:
    """Remove a file or a folder with all it holds, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk.

    Some network and FUSE filesystems cannot do so with a folder.
    """
    if path.is_symlink():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(*[OSError] if path.is_dir() else []):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_private(path: Path, content: bytes) -> None:
    """Create a file that only its owner may read, whole or not at all; never replace one.

    Of two processes that do so at once, one gets a ``FileExistsError``.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_atomically(temporary, content, 0o600)
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a JSON file atomically."""
    write_atomically(path, (json.dumps(document, indent=2, default=_number) + "\n").encode())


def json_line(row: Mapping[str, Any]) -> str:
    """Return a row as one line of JSON."""
    return json.dumps(row, default=_number) + "\n"


def read_document(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object; empty if it is not there."""
    try:
        document = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not valid JSON; the file is damaged.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if not isinstance(document, dict):
        raise UserError(f"{path} holds no JSON object; the file is damaged.")
    return document


def read_toml(path: Path, what: str = "file") -> dict[str, Any]:
    """Read a TOML file that a user wrote; ``what`` it is called if it is not there."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"There is no {what} '{path}'.") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"'{path}' is not valid TOML: {error}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}' cannot be read: {error}.") from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines; damaged ones, and a last line cut off by a crash, are left out."""
    return LineReader(path).new_lines()


class LineReader:
    """Reads the lines that are appended to a file, each once.

    ``damaged`` are the numbers, from 1, of complete lines that are no JSON object, or not one that
    ``is_valid``; these are left out.
    """

    def __init__(
        self, path: Path, is_valid: Callable[[Mapping[str, Any]], bool] = lambda row: True
    ) -> None:
        self.path = path
        self.is_valid = is_valid
        self.damaged: list[int] = []
        self._offset = self._lines = 0

    @property
    def damage(self) -> str:
        """Which of the lines read are damaged, in words; empty if none is."""
        if not self.damaged:
            return ""
        numbers = ", ".join(map(str, self.damaged))
        lines, are = ("line", "is") if len(self.damaged) == 1 else ("lines", "are")
        return f"{lines} {numbers} of {self.path.name} {are} damaged"

    def new_lines(self) -> list[dict[str, Any]]:
        """Return the lines since the last call, without a last one that is not complete."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror}.") from None
        rows = []
        for line in content.splitlines(keepends=True):
            if line.strip():
                row = _json_object(line)
                if row is not None and self.is_valid(row):
                    rows.append(row)
                elif line.endswith(b"\n"):
                    self.damaged.append(self._lines + 1)
                else:
                    break
            self._offset += len(line)
            self._lines += line.endswith(b"\n")
        return rows


def acquire(path: Path, wait: float, busy: str) -> IO[str]:
    """Lock a file; raise ``busy`` as a :class:`UserError` if that takes over ``wait`` seconds.

    A full disk is an ``OSError``, for :func:`write_problem` to describe. The kernel releases the
    lock when the returned file is closed or its process dies.
    """
    try:
        lock = path.open("a")
    except OSError as error:
        if ADVICE.get(error.errno or 0) == FREE_SPACE:
            raise
        raise UserError(
            f"{path.parent} cannot be written ({error.strerror}): it belongs to another user, or "
            "its disk is read-only."
        ) from None
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() >= deadline:
                lock.close()
                raise UserError(busy) from None
            time.sleep(LOCK_POLL_SECONDS)


@contextmanager
def locked(path: Path, busy: str = "", wait: float = 0.0) -> Iterator[None]:
    """Hold a lock for the duration of a block; see :func:`acquire`."""
    with acquire(path, wait, busy):
        yield


def is_locked(path: Path) -> bool:
    """Return whether some process of this machine holds the lock."""
    try:
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _is_alive(pid: int) -> bool:
    try:
        return psutil.pid_exists(pid)
    except OverflowError:
        return False


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _number(value: Any) -> Any:
    """Turn a number of numpy's into Python's."""
    if getattr(value, "shape", None) == ():
        return value.item()
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def is_readable(folder: Path) -> bool:
    """Return whether this process may list a folder and open what is in it."""
    effective = os.access in os.supports_effective_ids
    return os.access(folder, os.R_OK | os.X_OK, effective_ids=effective)


def unreadable(folder: Path) -> str:
    """Say of a folder that it cannot be read."""
    return (
        f"{folder.absolute()} cannot be read: it belongs to another user. Ask for permission to "
        "read it, or copy it as that user."
    )
