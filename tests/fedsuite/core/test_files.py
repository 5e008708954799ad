"""Files and folders that are replaced whole, and locks."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fedsuite.core.files import (
    LineReader,
    acquire,
    create_private,
    is_locked,
    json_line,
    locked,
    read_document,
    read_lines,
    read_toml,
    remove_unfinished,
    replacing,
    replacing_folder,
    write_atomically,
    write_json,
    write_problem,
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


def test_a_folder_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, rename = os.fsync, os.rename

    def synced(descriptor: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    def renamed(source: Path, target: Path) -> None:
        done.append(f"{Path(source).name} -> {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    with replacing_folder(tmp_path / "data") as unfinished:
        (unfinished / "inner").mkdir()
        (unfinished / "inner" / "deep").touch()
        (unfinished / "x").touch()
    named = done.index(".data.unfinished -> data")
    assert sorted(done[:named]) == [".data.unfinished", "deep", "inner", "x"]
    assert done[named - 1] == ".data.unfinished" and done[named + 1 :] == [tmp_path.name]


def test_a_folder_replaces_a_file_and_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for name in ("file", "link"):
        with replacing_folder(tmp_path / name) as unfinished:
            (unfinished / "new").touch()
        assert [inner.name for inner in (tmp_path / name).iterdir()] == ["new"]
    assert not list((tmp_path / "kept").iterdir())


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


def test_numbers_of_numpy_are_written_as_pythons(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"a": np.float32(0.5), "b": np.int64(3), "c": [1]})
    assert path.read_text() == '{\n  "a": 0.5,\n  "b": 3,\n  "c": [\n    1\n  ]\n}\n'
    assert json_line({"a": np.float64(1.5)}) == '{"a": 1.5}\n'
    with pytest.raises(TypeError, match="cannot write ndarray as JSON"):
        json_line({"a": np.zeros(2)})
    with pytest.raises(TypeError, match="cannot write set as JSON"):
        json_line({"a": {1}})


def test_a_document_is_empty_if_absent_and_named_if_damaged(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    assert read_document(path) == {}
    path.write_text('{"a": 1}')
    assert read_document(path) == {"a": 1}
    path.write_text('{"a": ')
    with pytest.raises(UserError, match=r"config\.json is not valid JSON; the file is damaged"):
        read_document(path)


def test_lines_are_read_once_and_only_whole(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    reader = LineReader(path)
    assert reader.new_lines() == [] == read_lines(path)
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert reader.new_lines() == [{"a": 1}, {"a": 2}]
    assert reader.new_lines() == []
    with path.open("a") as file:
        file.write(': 3}\n{"a": 4}\n')
    assert reader.new_lines() == [{"a": 3}, {"a": 4}]
    assert read_lines(path) == [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}]


def test_a_private_file_is_created_once(tmp_path: Path) -> None:
    path = tmp_path / "key"
    create_private(path, b"first")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        create_private(path, b"second")
    assert path.read_bytes() == b"first" and list(tmp_path.iterdir()) == [path]


def test_a_folder_begun_by_a_process_that_died_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "run"
    (tmp_path / ".run.unfinished" / "half").mkdir(parents=True)
    with replacing_folder(path) as unfinished:
        assert not list(unfinished.iterdir()) and not path.exists()
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_opened_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "nothing")
    (tmp_path / "free").touch()
    assert not is_locked(tmp_path / "free")


def test_a_busy_lock_is_waited_for_no_longer_than_told(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with locked(path):
        began = time.monotonic()
        with pytest.raises(UserError, match="taken"), locked(path, "taken", wait=0.2):
            pass
        assert time.monotonic() - began >= 0.2


def test_lines_that_are_no_object_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text('{"a": 1}\nbroken\nnull\n[1]\n{"a": 2}\n7')
    reader = LineReader(path)
    assert reader.new_lines() == [{"a": 1}, {"a": 2}] and reader.new_lines() == []
    assert reader.damage == "lines 2, 3, 4 of rounds.jsonl are damaged"


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Not those of a process that is running, nor files that are named otherwise."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "deep").mkdir()
    kept = [f".a.json.{os.getpid()}-1.tmp", "a.tmp", ".b.tmp", "c.json"]
    for name in (*kept, f".a.json.{gone.pid}-1.tmp", f"deep/.x.safetensors.{gone.pid}-22.tmp"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == set(kept)


def test_a_temporary_file_of_no_possible_process_is_removed(tmp_path: Path) -> None:
    (tmp_path / f".a.json.{10**30}-1.tmp").touch()
    remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("of_folders", [True, False])
def test_only_files_have_to_reach_the_disk(
    of_folders: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network and FUSE filesystems refuse to sync a folder."""

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == of_folders:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr("fedsuite.core.files.os.fsync", refuse)
    path = tmp_path / "run"
    try:
        with replacing_folder(path) as folder:
            (folder / "a").write_text("1")
    except OSError:
        assert not of_folders and not path.exists()
    else:
        assert of_folders and (path / "a").read_text() == "1"


def test_lines_are_numbered_with_the_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text('\n{"a": 1}\n\nbroken\n')
    reader = LineReader(path)
    assert reader.new_lines() == [{"a": 1}]
    assert reader.damage == "line 4 of rounds.jsonl is damaged"
    with path.open("a") as file:
        file.write('{"a": 2}\nworse\n')
    assert reader.new_lines() == [{"a": 2}] and reader.damaged == [4, 6]
    path.write_text("")
    assert LineReader(path).damage == ""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_lock_on_a_full_disk_is_the_disks_fault(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, *rest: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        acquire(tmp_path / ".lock", 0.0, "")
    assert write_problem(raised.value).startswith(f"cannot write '{tmp_path / '.lock'}': ")


def test_a_lock_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=f"{tmp_path} cannot be written"):
        acquire(tmp_path / "folder", 0.0, "")
