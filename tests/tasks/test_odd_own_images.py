"""Odd images of a node's own: learned from, or refused in a sentence that names the file."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from fedsuite.core.settings import UserError
from tasks.own_data import describe, form_of
from tasks.own_files import data_files
from tasks.own_schema import Description, agree
from tasks.own_task import describe_path, own_task


def described(table: pa.Table) -> Description:
    return describe(form_of("own", "label", table), table)


def png(mode: str = "RGB", size: tuple[int, int] = (4, 4), kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, format=kind)
    return file.getvalue()


def write(folder: Path, **files: bytes) -> Path:
    """Write an image of class a and one of class b, and further files of class a."""
    for name, content in {"a/0.png": png(), "b/0.png": png()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name, content in files.items():
        (folder / "a" / name.replace("_", ".")).write_bytes(content)
    return folder


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P", "1", "I;16", "CMYK"])
@pytest.mark.parametrize("size", [(4, 4), (9, 2), (1, 1)])
def test_images_of_all_sizes_and_modes_become_those_of_the_first(
    mode: str, size: tuple[int, int], tmp_path: Path
) -> None:
    kind = "JPEG" if mode == "CMYK" else "PNG"
    folder = write(tmp_path, odd_png=png(mode, size, kind))
    description = describe_path(folder, "own", "label")
    assert (description.rows, description.shape) == (3, (3, 4, 4))
    schema = agree("own", "label", {"a": description})
    task = own_task(folder, schema.to_json(), 0, 1, 0, 0.0)
    assert task.dataset.x.shape == (3, 4, 4, 3) and task.dataset.y.tolist() == [0, 0, 1]


def test_sixteen_bits_of_grey_become_eight(tmp_path: Path) -> None:
    """0x1234 is 0x12 = 18 of 255; not cut off at 255."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.full((2, 2), 0x1234, np.uint16)).save(tmp_path / name / "0.png")
    description = describe_path(tmp_path, "own", "label")
    assert description.shape == (1, 2, 2)
    assert description.numbers == {"0": (8, 8 * 18.0, 8 * 18.0**2)}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is none of PNG, JPEG, WEBP"),
        (b"no image", "it is none of PNG"),
        (png(kind="GIF"), "it is none of PNG"),
        (png(size=(64, 64))[:60], "truncated|broken|cannot"),
    ],
    ids=["empty", "text", "GIF", "half"],
)
def test_an_image_that_cannot_be_decoded_is_named(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, odd_png=content)
    with pytest.raises(UserError, match=rf"\('odd.png'\) has no image .*\(.*({reason})"):
        describe_path(folder, "own", "label")


def test_what_lies_beside_images_is_left_alone(tmp_path: Path) -> None:
    folder = write(tmp_path, notes_txt=b"notes", really_jpg=png())
    (folder / "a" / "._0.png").write_bytes(b"\x00")
    (folder / "a" / "folder.png").mkdir()
    (folder / "a" / "loop").symlink_to(folder / "a")
    assert [f.name for f in data_files(folder)] == ["0.png", "really.jpg", "0.png"]
    assert describe_path(folder, "own", "label").rows == 3
    (folder / "a" / "more").mkdir()
    (folder / "a" / "more" / "1.png").write_bytes(png())
    with pytest.raises(UserError, match=r"a/more/1\.png' lies two folders deep"):
        data_files(folder)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "b").rename(folder / os.fsdecode(b"\xff"))
    with pytest.raises(UserError, match="is not UTF-8. Rename it") as caught:
        data_files(folder)
    assert str(caught.value).encode()


def test_images_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"image": [png("1", (1025, 1024))], "label": ["a"]})
    with pytest.raises(UserError, match="1025x1024 pixels are too large; at most 1,048,576"):
        described(table)
    monkeypatch.setattr(np, "empty", out_of_memory)
    with pytest.raises(UserError, match="1 images of 4x4 pixels do not fit in this machine's"):
        described(pa.table({"image": [png()], "label": ["a"]}))


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4)
    with pytest.raises(UserError, match="does not hold images .*decompression bomb"):
        described(pa.table({"image": [png()], "label": ["a"]}))
