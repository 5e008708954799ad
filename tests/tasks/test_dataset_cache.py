"""The cache of arrays: built once, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirrors import grey, sample_mirror, write_split

from fedsuite.core.settings import UserError
from tasks import preprocess, sources
from tasks.dataset_cache import default_cache_dir, load_dataset

PROJECT = Path(__file__).parents[2]


def test_default_cache_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "home")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("FEDSUITE_CACHE", raising=False)
    assert default_cache_dir() == Path("home/.cache/fedsuite")
    monkeypatch.setenv("XDG_CACHE_HOME", "shared")
    assert default_cache_dir() == Path("shared/fedsuite")
    monkeypatch.setenv("FEDSUITE_CACHE", "own")
    assert default_cache_dir() == Path("own")


def test_the_second_load_reads_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample_mirror(tmp_path, "mnist")
    first = load_dataset("mnist", str(tmp_path), tmp_path / "cache")
    monkeypatch.setattr(sources, "_read_parquet", lambda *_: pytest.fail("read again"))
    second = load_dataset("mnist", str(tmp_path), tmp_path / "cache")
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.y, second.y)
    same = {"x": None, "y": None}
    assert vars(first) | same == vars(second) | same


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    for label in (3, 4):
        write_split(tmp_path / "mnist", "train", {"image": [grey(0)], "label": [label]})
        write_split(tmp_path / "mnist", "test", {"image": [grey(0)], "label": [label]})
        for path in (tmp_path / "mnist").iterdir():
            os.utime(path, (label, label))
        assert load_dataset("mnist", str(tmp_path), tmp_path / "cache").y.tolist() == [label] * 2


def test_arrays_can_become_tensors_and_never_change_the_cache(tmp_path: Path) -> None:
    data = load_dataset("digits", cache_dir=tmp_path)
    assert type(data.x) is np.ndarray and data.x.flags.writeable
    before = float(data.x[0, 0, 0, 0])
    data.x[0, 0, 0, 0] = 99
    assert float(load_dataset("digits", cache_dir=tmp_path).x[0, 0, 0, 0]) == before


WORKER = """
import hashlib, os, sys, time
from pathlib import Path
from tasks import dataset_cache
folder = Path(sys.argv[1])
build = dataset_cache._build
def counted(*arguments):
    with open(folder / "builds", "a") as file:
        file.write("x")
    time.sleep(0.3)
    build(*arguments)
dataset_cache._build = counted
(folder / f"ready-{os.getpid()}").touch()
while not (folder / "go").exists():
    time.sleep(0.005)
data = dataset_cache.load_dataset("mnist", str(folder / "root"), folder / "cache")
print(hashlib.sha256(data.x.tobytes() + data.y.tobytes()).hexdigest())
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from tasks import dataset_cache, preprocess
def die(spec, rows, folder):
    (folder / "x.npy").write_bytes(b"half")
    (folder / "meta.json").write_text("{}")
    os.kill(os.getpid(), signal.SIGKILL)
preprocess.write_arrays = die
folder = Path(sys.argv[1])
dataset_cache.load_dataset("mnist", str(folder / "root"), folder / "cache")
"""


def start(script: str, folder: Path) -> subprocess.Popen[str]:
    """Run a script in its own process from the project's root."""
    return subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("damaged", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_processes_that_start_together_build_once(damaged: bool, tmp_path: Path) -> None:
    sample_mirror(tmp_path / "root", "mnist")
    if damaged:
        load_dataset("mnist", str(tmp_path / "root"), tmp_path / "cache")
        (folder,) = (tmp_path / "cache").glob("mnist-*/")
        (folder / "y.npy").write_bytes(b"")
    workers = [start(WORKER, tmp_path) for _ in range(4)]
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("ready-*"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    outputs = [worker.communicate(timeout=60)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert len(set(outputs)) == 1 and len(outputs[0].strip()) == 64
    assert (tmp_path / "builds").read_text() == "x"
    assert not list((tmp_path / "cache").glob("*.unfinished"))


def test_a_killed_build_is_not_mistaken_for_a_complete_one(tmp_path: Path) -> None:
    sample_mirror(tmp_path / "root", "mnist")
    assert start(KILLED, tmp_path).wait(timeout=60) == -9
    assert len(list((tmp_path / "cache").glob("*.unfinished"))) == 1
    data = load_dataset("mnist", str(tmp_path / "root"), tmp_path / "cache")
    assert data.x.shape == (32, 28, 28, 1)
    assert not list((tmp_path / "cache").glob("*.unfinished"))


def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(preprocess, "write_arrays", fail)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\)"):
        load_dataset("digits", cache_dir=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_a_folder_of_the_cache_is_named_by_the_data_and_its_source(tmp_path: Path) -> None:
    """So that a new version of this package does not prepare everything again."""
    load_dataset("digits", cache_dir=tmp_path)
    identity = f'["digits", 1, "embedded", ["{version("scikit-learn")}"]]'
    assert (tmp_path / f"digits-{hashlib.sha256(identity.encode()).hexdigest()[:16]}").is_dir()
