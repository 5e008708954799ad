"""A cache that was damaged is noticed and rebuilt; a read-only one is used as it is."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirrors import sample_mirror

from fedsuite.core.settings import UserError
from tasks import cached_arrays, dataset_cache
from tasks.cached_arrays import BLOCK_BYTES, BLOCKS, read_meta, write_meta
from tasks.dataset_cache import Dataset, is_local, load_dataset
from tasks.datasets import DATASETS
from tasks.own_schema import agree
from tasks.own_task import describe_path, server_task
from tasks.partitions import PartitionOptions
from tasks.sources import find_source
from tasks.split import cached_split
from tasks.task_spec import TaskSpec

NAME = "femnist"  # it has owners


@pytest.fixture
def root(tmp_path: Path) -> Path:
    sample_mirror(tmp_path / "root", NAME)
    return tmp_path


def load(root: Path) -> Dataset:
    return load_dataset(NAME, str(root / "root"), root / "cache")


def cached(root: Path) -> Path:
    (folder,) = (root / "cache").glob(f"{NAME}-*/")
    return folder


def truncate(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return damage


def overwrite(name: str, content: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return damage


def save(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        np.save(folder / name, change(np.load(folder / name)))

    return damage


def flip(name: str, place: int) -> Callable[[Path], None]:
    """Change one byte, counted from the end if negative."""

    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[place] ^= 1
        (folder / name).write_bytes(content)

    return damage


def edit(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        meta = json.loads((folder / "meta.json").read_text()) | changes
        kept = {key: value for key, value in meta.items() if value is not None}
        (folder / "meta.json").write_text(json.dumps(kept))

    return damage


def folder_instead_of(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name / "inner").mkdir(parents=True)

    return damage


def file_instead_of_the_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("no folder")


def link_to_nowhere(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(folder.parent / "nowhere")


DAMAGES: dict[str, Callable[[Path], None]] = {
    **{
        f"no {name}": lambda folder, name=name: (folder / name).unlink()  # type: ignore[misc]
        for name in ("x.npy", "y.npy", "owners.npy", "meta.json", "inputs.json")
    },
    "another mean": overwrite("inputs.json", b'{"inputs": {}, "labels": {}}'),
    **{f"half of {name}": truncate(name) for name in ("x.npy", "y.npy", "owners.npy", "meta.json")},
    **{f"empty {name}": overwrite(name, b"") for name in ("x.npy", "y.npy", "meta.json")},
    "garbage": overwrite("x.npy", b"\x93NUMPY\x01\x00garbage" * 9),
    "a pickle": overwrite("y.npy", b"\x80\x04K\x01."),
    "zeros of the same length": save("x.npy", np.zeros_like),
    "another type": save("x.npy", lambda x: x.astype(np.float64)),
    "another type of the same length": save("y.npy", lambda y: y.astype(np.uint64)),
    "another shape": save("x.npy", lambda x: x.reshape(len(x), -1)),
    "fewer rows": save("y.npy", lambda y: y[:-1]),
    "a flipped byte at the end": flip("x.npy", -1),
    "a flipped byte in the middle": flip("x.npy", 40_000),
    "not JSON": overwrite("meta.json", b"{meta"),
    "not UTF-8": overwrite("meta.json", b"\xff\xfe{}"),
    "no object": overwrite("meta.json", b"[1]"),
    "another number of train rows": edit(num_train=23),
    "another checksum": edit(checksum="none"),
    "no class names": edit(class_names=None),
    "arrays of the wrong type": edit(arrays=[1], checksum=None),
    "a folder for a file": folder_instead_of("x.npy"),
    "a folder for meta.json": folder_instead_of("meta.json"),
    "a file for the folder": file_instead_of_the_folder,
    "a link to nowhere": link_to_nowhere,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_dataset_is_rebuilt_with_one_line(
    damage: str, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = load(root)
    x, y = whole.x.copy(), whole.y.copy()
    DAMAGES[damage](cached(root))
    with caplog.at_level(logging.INFO):
        mended = load(root)
    np.testing.assert_array_equal(mended.x, x)
    np.testing.assert_array_equal(mended.y, y)
    assert mended.num_train == whole.num_train and mended.class_names == whole.class_names
    (line,) = [r.getMessage() for r in caplog.records if r.name == "tasks.cached_arrays"]
    assert f"Preparing dataset '{NAME}' in" in line and "again: damaged (" in line
    caplog.clear()
    with caplog.at_level(logging.INFO):
        load(root)
    assert not caplog.records


def change_inputs(folder: Path) -> None:
    path = folder / "inputs.json"
    path.write_text(path.read_text().replace("28, 28", "27, 28"))


OLD = {"arrays": None, "checksum": None}
STRUCTURAL: dict[str, Callable[[Path], None]] = {
    "labels of no class": save("y.npy", lambda y: y + 100),
    "labels below zero": save("y.npy", lambda y: y - 1),
    "labels of another type": save("y.npy", lambda y: y.astype(np.int32)),
    "labels in two axes": save("y.npy", lambda y: y[:, None]),
    "inputs of another type": save("x.npy", lambda x: x.astype(np.float64)),
    "inputs of another shape": save("x.npy", lambda x: x[:, :, :-1]),
    "owners of another length": save("owners.npy", lambda owners: owners[1:]),
    "owners of another type": save("owners.npy", lambda owners: owners.astype(np.int64)),
    "all rows to train on": edit(num_train=32, **OLD),
    "no rows to train on": edit(num_train=0, **OLD),
    "train rows in words": edit(num_train="24", **OLD),
    "one class name": edit(class_names=["a"], **OLD),
    "numbers for names": edit(class_names=list(range(62)), **OLD),
    "no shape": edit(shape=None, **OLD),
    "no inputs": overwrite("inputs.json", b"{}"),
    "as earlier versions left it": lambda folder: (folder / "inputs.json").unlink(),
    "inputs of another shape of images": change_inputs,
    "a shape of words": edit(shape={"kind": "film", "input_shape": [1], "num_classes": 2}, **OLD),
}


@pytest.mark.parametrize("damage", STRUCTURAL)
def test_a_cache_without_sums_is_judged_by_its_form(
    damage: str, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(root)
    edit(**OLD)(cached(root))
    load(root)
    assert not caplog.records  # as earlier versions wrote it, it is used
    STRUCTURAL[damage](cached(root))
    assert len(load(root).y) == 32
    assert "again: damaged" in caplog.text


def test_of_a_large_file_sixteen_blocks_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 64 KiB, the first at the start, the last at the end: 1 MiB of 4."""
    content = np.zeros(4 << 20, dtype=np.uint8)
    np.save(tmp_path / "x.npy", content)
    write_meta(tmp_path, {})
    size = (tmp_path / "x.npy").stat().st_size
    starts = [round(i * (size - BLOCK_BYTES) / (BLOCKS - 1)) for i in range(BLOCKS)]
    for start in starts:
        flip("x.npy", start + 100)(tmp_path)
        with pytest.raises(cached_arrays.Damaged, match="x.npy has changed"):
            read_meta(tmp_path)
        flip("x.npy", start + 100)(tmp_path)
    flip("x.npy", starts[1] - 100)(tmp_path)  # between two of them
    assert read_meta(tmp_path) == {}
    sizes: list[int] = []

    def counted(content: bytes, start: int = 0) -> int:
        sizes.append(len(content))
        return summed(content, start)

    summed = zlib.crc32
    monkeypatch.setattr(zlib, "crc32", counted)
    read_meta(tmp_path)
    assert sizes.count(BLOCK_BYTES) == BLOCKS == 16 and len(sizes) == 17  # and meta.json


def test_a_cache_that_cannot_be_replaced_is_told_in_a_sentence(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(root)
    truncate("x.npy")(cached(root))

    def refuse(path: Any, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(UserError, match=r"cannot be written \(Permission denied\).*FEDSUITE_CACHE"):
        load(root)


def test_a_disk_that_loses_what_it_is_given_is_told_in_a_sentence(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(folder: Path, meta: Any) -> None:
        write_meta(folder, meta)
        truncate("x.npy")(folder)

    monkeypatch.setattr(dataset_cache, "write_meta", lose)
    with pytest.raises(UserError, match=r"was damaged as soon as it was written \(x\.npy has"):
        load(root)


def test_a_damaged_cache_is_not_taken_for_a_local_copy(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSUITE_CACHE", str(root / "cache"))
    load(root)
    assert not is_local(NAME) and is_local(NAME, str(root / "root"))
    source = find_source(DATASETS[NAME], "")
    hub = dataset_cache._folder(NAME, source, root / "cache")
    cached(root).rename(hub)
    assert is_local(NAME)
    truncate("x.npy")(hub)
    assert not is_local(NAME)


@pytest.mark.parametrize("damage", ["half of x.npy", "no y.npy", "fewer rows", "not JSON"])
def test_damaged_arrays_of_own_rows_are_rebuilt(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FEDSUITE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "rows.csv"
    path.write_text("age,label\n1,a\n3,b\n")
    schema = agree("own", "label", {"a": describe_path(path, "own", "label")})
    assert server_task(schema, str(path), "", 0, 0).dataset.x.tolist() == [[-1], [1]]
    (folder,) = (tmp_path / "cache").glob("own-*/")
    DAMAGES[damage](folder)
    task = server_task(schema, str(path), "", 0, 0)
    assert task.dataset.x.tolist() == [[-1], [1]] and task.dataset.y.tolist() == [0, 1]
    assert "Preparing the node's own rows" in caplog.text


def as_nobody(work: Callable[[], str]) -> str:
    """Return what a process without root's rights says."""
    reading, writing = os.pipe()
    if (process := os.fork()) == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setuid(65534)
            os.write(writing, work().encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(process, 0)
    with os.fdopen(reading) as answer:
        return answer.read()


def test_a_read_only_cache_is_used_without_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared one that an administrator has prepared; pytest's own folders are private."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        for dataset in (NAME, "mnist"):
            sample_mirror(root / "root", dataset)
        spec = TaskSpec(NAME, str(root / "root"), "iid", PartitionOptions(), 3, seed=0)
        cached_split(spec, load(root))  # nobody may lack the right to import what this imports
        monkeypatch.setenv("FEDSUITE_CACHE", str(root / "cache"))
        for lock in (root / "cache").glob("*.lock"):
            lock.unlink()
        (root / "cache").chmod(0o555)
        before = sorted(root.rglob("*"))

        def use() -> str:
            split = cached_split(spec, load(root))
            return " ".join(str(len(part)) for part in split.train)

        assert as_nobody(use) == "8 8 8"
        refused = as_nobody(lambda: str(load_dataset("mnist", spec.data_root)))
        assert "UserError" in refused and "cannot be written (Permission denied)" in refused
        assert sorted(root.rglob("*")) == before
        (cached(root) / "x.npy").chmod(0)
        unreadable = as_nobody(lambda: str(load(root)))
        assert "UserError" in unreadable and "cannot be written (Permission" in unreadable
        (root / "cache").chmod(0o755)
