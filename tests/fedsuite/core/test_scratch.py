"""Private folders for the time of a command, and what killed commands leave."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from fedsuite.core import scratch


def test_folders_of_killed_commands_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this user's, only unlocked ones, and none that is being made."""
    monkeypatch.setattr(scratch, "_parent", lambda: tmp_path)
    old = time.time() - 2 * scratch.STALE_SECONDS
    for name in ("fedsuite-stale", "fedsuite-new", "fedsuite-other", "unrelated"):
        (tmp_path / name).mkdir()
        (tmp_path / name / scratch.LOCK).touch()
        if name != "fedsuite-new":
            os.utime(tmp_path / name / scratch.LOCK, (old, old))
    (tmp_path / "fedsuite-unlocked").mkdir()
    (tmp_path / "fedsuite-other" / scratch.LOCK).unlink()
    with scratch.scratch_folder() as live:
        os.utime(live / scratch.LOCK, (old, old))
        assert stat.S_IMODE(live.stat().st_mode) == 0o700
        assert scratch.remove_stale() == []
        left = {path.name for path in tmp_path.iterdir()} - {live.name}
        assert left == {"fedsuite-new", "fedsuite-other", "unrelated", "fedsuite-unlocked"}
    assert not live.exists()


def test_a_long_temporary_path_gives_way_to_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    monkeypatch.setattr(scratch, "SHORT", tmp_path)
    with scratch.scratch_folder() as folder:
        assert folder.parent == tmp_path


def test_what_cannot_be_removed_now_is_found_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is just ending may still write into the folder."""
    monkeypatch.setattr(scratch, "_parent", lambda: tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda folder, **options: (folder / scratch.LOCK).unlink())
        with scratch.scratch_folder() as folder:
            pass
    old = time.time() - 2 * scratch.STALE_SECONDS
    os.utime(folder / scratch.LOCK, (old, old))
    assert scratch.remove_stale() == [folder] and not folder.exists()


def test_a_folder_that_another_command_removes_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_parent", lambda: tmp_path)
    folder = tmp_path / "fedsuite-gone"
    folder.mkdir()
    (folder / scratch.LOCK).touch()
    look = Path.lstat

    def remove_after_looking(path: Path) -> os.stat_result:
        status = look(path)
        shutil.rmtree(folder, ignore_errors=True)
        return status

    monkeypatch.setattr(Path, "lstat", remove_after_looking)
    assert scratch.remove_stale() == []
