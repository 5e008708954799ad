"""Files and folders that are replaced whole, and locks."""

from __future__ import annotations

import stat
import threading
import time
from pathlib import Path

import pytest

from fedsuite.core.files import (
    acquire,
    is_locked,
    locked,
    read_toml,
    replacing,
    replacing_folder,
    write_atomically,
)
from fedsuite.core.settings import UserError


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), replacing(path) as temporary:
        temporary.write_text("ne")
        raise OSError("full")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_atomically(path, b"1")
    write_atomically(path, b"2", mode=0o600)
    assert path.read_bytes() == b"2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_threads_that_write_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    contents = [bytes([number]) * 100_000 for number in range(8)]

    def write(content: bytes) -> None:
        for _ in range(5):
            write_atomically(path, content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "run"
    (path / "inner").mkdir(parents=True)
    with pytest.raises(KeyError), replacing_folder(path) as unfinished:
        (unfinished / "half").touch()
        raise KeyError
    assert [inner.name for inner in path.iterdir()] == ["inner"]
    with replacing_folder(path) as unfinished:
        (unfinished / "new").touch()
    assert [inner.name for inner in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_is_refused_or_waited_for(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert not is_locked(path)
    held = acquire(path, 0.0, "")
    assert is_locked(path)
    with pytest.raises(UserError, match="taken"), locked(path, "taken"):
        pass
    threading.Timer(0.3, held.close).start()
    began = time.monotonic()
    with locked(path, wait=10.0):
        assert 0.2 < time.monotonic() - began < 9.0
    assert not is_locked(path)


def test_toml_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    with pytest.raises(UserError, match=r"There is no suite file '.*suite\.toml'"):
        read_toml(path, "suite file")
    path.write_text("a = ")
    with pytest.raises(UserError, match="is not valid TOML"):
        read_toml(path)
    path.write_bytes(b"a = '\xff'")
    with pytest.raises(UserError, match="cannot be read"):
        read_toml(path)
