"""Vectors in files: what a reference may name, who may read them, and what is left at the end."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedsuite.core import vector_files as module
from fedsuite.core.files import write_problem
from fedsuite.core.messages import REFERENCE, ProtocolError, read_arrays
from fedsuite.core.vector_files import (
    DISK,
    MEMORY,
    Reference,
    VectorFiles,
    remove_vector_files,
    vector_files,
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's folder, beside a folder that stands for shared memory."""
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(module, "SHARED_MEMORY", memory)
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    return folder


def rows(files: VectorFiles, name: str = f"{DISK}1-0", count: int = 3) -> str:
    files.path(name).write_bytes(b"\0" * (8 * count))
    return name


HOLDS = """
import sys, time
from pathlib import Path
from fedsuite.core.vector_files import vector_files
with vector_files(Path(sys.argv[1])) as files:
    print(*files.folders.values(), flush=True)
    time.sleep(60)
"""


def test_what_another_process_of_the_same_run_holds_stays_until_it_has_ended(
    tmp_path: Path,
) -> None:
    """A second command of the same name, which is refused, clears up; the first goes on."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            folders = [Path(word) for word in other.stdout.readline().split()]
            assert folders
            remove_vector_files(tmp_path / "run")
            assert all(folder.is_dir() for folder in folders)
        finally:
            other.kill()
    remove_vector_files(tmp_path / "run")
    assert not any(folder.exists() for folder in folders)


def test_a_vector_is_read_back_from_its_row(run: Path) -> None:
    with vector_files(run) as files:
        name = rows(files)
        files.write(Reference(name, 8, (2,)), np.array([3, 4], np.float32))
        again = VectorFiles.of(files.header)
        assert again is not None
        assert again.read(Reference(name, 0, (3, 2))).tolist() == [[0, 0], [3, 4], [0, 0]]
        with pytest.raises(ValueError, match="read-only"):
            again.read(Reference(name, 8, (2,)))[0] = 1


@pytest.mark.parametrize(
    "name", ["../d1-0", "/etc/passwd", "d1-0/../../x", "", ".lock", "d1-0\n", "x1-0", "d1-../x", 7]
)
def test_a_reference_names_a_file_of_the_run_and_nothing_else(name: Any) -> None:
    with pytest.raises(ValueError, match="another name"):
        Reference(name, 0, (1,))
    with pytest.raises(ValueError, match="another name"):
        VectorFiles({DISK: Path("/")}).path(str(name))


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (json.dumps(["../../etc/passwd", 0]).encode(), (1,)),
        (json.dumps(["d1-0", -4]).encode(), (1,)),
        (json.dumps(["d1-0", 0]).encode(), (-1,)),
        (json.dumps(["d1-0", True]).encode(), (1,)),
        (json.dumps(["d1-0", 1 << 80]).encode(), (1,)),
        (json.dumps(["d1-0"]).encode(), (1,)),
        (b"[" * 5000, (1,)),
        (b"\xff", (1,)),
        (b"7", (1,)),
    ],
)
def test_what_is_no_reference_is_never_followed(data: bytes, shape: tuple[int, ...]) -> None:
    def follow(name: str, place: Reference) -> np.ndarray:
        raise AssertionError("followed")

    record = ArrayRecord({"update": Array("float32", shape, REFERENCE, data)})
    with pytest.raises(ProtocolError, match="not a reference"):
        read_arrays(record, follow)


def test_a_link_or_a_place_beyond_the_end_is_refused(run: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"\0" * 8)
    with vector_files(run) as files:
        files.path(f"{DISK}2-0").symlink_to(secret)
        with pytest.raises(OSError, match="symbolic"):
            files.read(Reference(f"{DISK}2-0", 0, (2,)))
        with pytest.raises(OSError, match="symbolic"):
            files.write(Reference(f"{DISK}2-0", 0, (2,)), np.ones(2, np.float32))
        with pytest.raises(ValueError, match="beyond the end"):
            files.read(Reference(rows(files), 24, (1,)))
        with pytest.raises(ValueError, match="does not fit"):
            files.write(Reference(rows(files), 0, (2,)), np.ones(3, np.float32))
    assert secret.read_bytes() == b"\0" * 8


def test_folders_are_private_and_end_with_the_run(run: Path) -> None:
    with pytest.raises(RuntimeError, match="fails"), vector_files(run) as files:
        assert set(files.folders) == {MEMORY, DISK}
        assert files.folders[MEMORY].parent == module.SHARED_MEMORY
        assert files.folders[DISK].parent == run.parent
        modes = {stat.S_IMODE(folder.stat().st_mode) for folder in files.folders.values()}
        assert modes == {0o700}
        raise RuntimeError("the run fails")
    assert not list(module.SHARED_MEMORY.iterdir()) and list(run.parent.iterdir()) == [run]


def test_a_machine_without_shared_memory_has_the_disk(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARED_MEMORY", run / "none")
    with vector_files(run) as files:
        assert set(files.folders) == {DISK}
        assert VectorFiles.of(files.header) is not None


def test_what_a_killed_run_left_is_removed_when_it_is_started_again(run: Path) -> None:
    """At once, since the run's own lock says that nobody executes it; other runs' stay."""
    with vector_files(run.with_name("other")) as kept, vector_files(run) as left:
        assert all(folder.is_dir() for folder in left.folders.values())
        with vector_files(run) as files:
            assert not any(folder.exists() for folder in left.folders.values())
            assert all(folder.exists() for folder in files.folders.values())
            remove_vector_files(run)
            assert not any(folder.exists() for folder in files.folders.values())
        assert all(folder.exists() for folder in kept.folders.values())


def test_a_folder_that_is_not_this_users_alone_is_not_opened(run: Path, tmp_path: Path) -> None:
    with vector_files(run) as files:
        header = files.header
        assert VectorFiles.of(header) is not None
        assert VectorFiles.of({**header, "vectors-on-disk": str(tmp_path)}) is None
        assert VectorFiles.of({**header, "vectors-on-disk": "/no\0where"}) is None
        assert VectorFiles.of({"vectors-in-memory": header["vectors-in-memory"]}) is None
        files.folders[DISK].chmod(0o755)
        assert VectorFiles.of(header) is None
        files.folders[DISK].chmod(0o700)
    assert VectorFiles.of(header) is None and VectorFiles.of({}) is None


def test_a_full_disk_is_named_and_a_short_write_is_continued(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.pwrite
    with vector_files(run) as files:
        place = Reference(rows(files), 8, (2,))
        monkeypatch.setattr(os, "pwrite", lambda f, data, at: plain(f, data[:3], at))
        files.write(place, np.array([5, 6], np.float32))
        assert files.read(place).tolist() == [5, 6]

        def fail(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "pwrite", fail)
        with pytest.raises(OSError, match="No space left") as raised:
            files.write(place, np.array([5, 6], np.float32))
        assert write_problem(raised.value) == (
            f"cannot write '{files.path(place.file)}': No space left on device. "
            "Free some space there"
        )
