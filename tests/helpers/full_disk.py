"""A disk that is full: writes to some files fail as they would there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class FullFile:
    """An open file of which a part is still written, and then no more."""

    def __init__(self, file: Any, error: int) -> None:
        self.file, self.error = file, error

    def __enter__(self) -> FullFile:
        return self

    def __exit__(self, *rest: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, content: Any) -> int:
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        raise OSError(self.error, os.strerror(self.error))


def fill_disk(patch: pytest.MonkeyPatch, part: str, error: int, after: int = 0) -> None:
    """Let writes to files whose path has this part fail, after so many have been opened."""
    plain_open, opened = Path.open, []

    def limited(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        file = plain_open(path, mode, *rest, **options)
        if part in str(path) and mode != "r" and mode != "rb":
            opened.append(path)
            if len(opened) > after:
                return FullFile(file, error)
        return file

    patch.setattr(Path, "open", limited)


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Mount a disk of a size such as ``400k``; skip the test where that is not allowed."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root may mount a disk to fill")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def resize_disk(place: Path, size: str) -> None:
    """Give a mounted disk another size."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True)
