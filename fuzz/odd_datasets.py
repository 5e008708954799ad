"""Odd datasets on the disk: tables and images as nodes may have them, made by a seed."""

from __future__ import annotations

import datetime
import decimal
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from PIL import Image

LABEL = "label"
Draw = np.random.Generator


@dataclass(frozen=True)
class Odd:
    """A dataset on the disk: what is odd about it, and its number of rows if that is certain."""

    path: Path
    story: str
    rows: int | None


def make(draw: Draw, folder: Path) -> Odd:
    """Write one odd dataset."""
    folder.mkdir(parents=True)
    return _images(draw, folder) if draw.random() < 0.25 else _tables(draw, folder)


# Tables

DAY = datetime.date(2026, 1, 31)
HUGE = (1e308, 1e200, 1e154, 1e30, 1e-308, -1e308)
WORDS = ("a", "b", "c", "?", "", "Zürich", "<b>x</b>", "\x1b[31m", "x" * 200, "1", "nan")
BAD_UTF8 = pa.py_buffer(b"\xff\xfe")


def _words(draw: Draw, rows: int) -> pa.Array:
    return pa.array(draw.choice(WORDS, rows).tolist(), pa.string())


def _gaps(array: pa.Array, draw: Draw) -> pa.Array:
    keep = (draw.random(len(array)) < 0.7).tolist()
    values = [value if kept else None for value, kept in zip(array.to_pylist(), keep, strict=True)]
    return pa.array(values, array.type)


def _whole(draw: Draw, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.array(draw.integers(0, 100, rows).tolist(), kind)


def _not_utf8(draw: Draw, rows: int) -> pa.Array:
    offsets = pa.array([0, *[2] * rows], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, BAD_UTF8])


COLUMNS: dict[str, Callable[[Draw, int], pa.Array]] = {
    "floats": lambda draw, rows: pa.array(draw.normal(size=rows)),
    "halves": lambda draw, rows: pa.array(draw.normal(size=rows).astype(np.float16)),
    "int8": lambda draw, rows: _whole(draw, rows, pa.int8()),
    "uint64": lambda draw, rows: pa.array([2**64 - 1] * rows, pa.uint64()),
    "bools": lambda draw, rows: pa.array((draw.random(rows) < 0.5).tolist(), pa.bool_()),
    "dates": lambda draw, rows: pa.array([DAY] * rows, pa.date32()),
    "times": lambda draw, rows: pa.array([1] * rows, pa.timestamp("ns", "UTC")),
    "spans": lambda draw, rows: pa.array([1] * rows, pa.duration("s")),
    "decimals": lambda draw, rows: pa.array([decimal.Decimal("1.50")] * rows, pa.decimal128(9, 2)),
    "lists": lambda draw, rows: pa.array([[1, 2]] * rows, pa.list_(pa.int64())),
    "structs": lambda draw, rows: pa.array([{"bytes": 7}] * rows),
    "maps": lambda draw, rows: pa.array([[("k", 1)]] * rows, pa.map_(pa.string(), pa.int64())),
    "bytes": lambda draw, rows: pa.array([b"\x89PNG no"] * rows, pa.binary()),
    "nothing": lambda draw, rows: pa.nulls(rows),
    "empty words": lambda draw, rows: pa.nulls(rows, pa.string()),
    "constant": lambda draw, rows: pa.array([float(draw.choice([0, -7, 1e20]))] * rows),
    "huge": lambda draw, rows: pa.array(draw.choice(HUGE, rows)),
    "not finite": lambda draw, rows: pa.array([float("nan"), *[float("inf")] * rows][:rows]),
    "gaps in numbers": lambda draw, rows: _gaps(_whole(draw, rows, pa.int64()), draw),
    "words": _words,
    "long words": lambda draw, rows: pa.array(["x" * 201] * rows, pa.string()),
    "gaps in words": lambda draw, rows: _gaps(_words(draw, rows), draw),
    "large words": lambda draw, rows: _words(draw, rows).cast(pa.large_string()),
    "coded words": lambda draw, rows: _words(draw, rows).dictionary_encode(),
    "coded numbers": lambda draw, rows: _whole(draw, rows, pa.int64()).dictionary_encode(),
    "words that are not UTF-8": _not_utf8,
}
PLAIN = ("floats", "int8", "words", "bools")
LABELS: dict[str, Callable[[Draw, int], pa.Array]] = {
    "few words": lambda draw, rows: pa.array(draw.choice(["a", "b"], rows).tolist(), pa.string()),
    "few numbers": lambda draw, rows: pa.array(draw.integers(0, 3, rows).tolist(), pa.int64()),
    "one class": lambda draw, rows: pa.array(["same"] * rows, pa.string()),
    "whole floats": lambda draw, rows: pa.array(draw.integers(0, 3, rows).astype(np.float64)),
    **COLUMNS,
}
NAMES = (
    "age",
    "Größe in cm",
    "<script>alert(1)</script>",
    "\x1b[31mred\x07",
    "a,b",
    'quo"te',
    "new\nline",
    "x" * 300,
    "",
    " ",
    "image",
    "🙂",
)


def _tables(draw: Draw, folder: Path) -> Odd:
    """Write a file of rows or a folder of them, mostly with one or two oddities."""
    rows = int(draw.choice([0, 1, 2, 7, 40], p=[0.05, 0.05, 0.1, 0.2, 0.6]))
    table, story = _table(draw, rows)
    suffix = str(draw.choice(["csv", "parquet", "CSV"]))
    path = folder / f"the rows ü.{suffix}"
    odd = str(draw.choice(list(FILES))) if draw.random() < 0.5 else "as it is"
    certain = FILES[odd](path, table, draw)
    whole = folder if odd in FOLDERS else path
    return Odd(whole, "; ".join([suffix, odd, f"{rows} rows", *story]), rows if certain else None)


def _table(draw: Draw, rows: int) -> tuple[pa.Table, list[str]]:
    plain = draw.random() < 0.3
    kinds = draw.choice(PLAIN if plain else list(COLUMNS), int(draw.integers(1, 4))).tolist()
    if draw.random() < 0.7:
        kinds = [kinds[0], "floats"]
    label = str(draw.choice(list(LABELS) if draw.random() < 0.3 else list(LABELS)[:2]))
    names = draw.choice(NAMES, len(kinds), replace=False).tolist()
    columns = {name: COLUMNS[kind](draw, rows) for name, kind in zip(names, kinds, strict=True)}
    story = [f"{kind} in {name[:30]!r}" for name, kind in zip(names, kinds, strict=True)]
    return pa.table(columns | {LABEL: LABELS[label](draw, rows)}), [*story, f"label: {label}"]


def _encoded(path: Path, table: pa.Table) -> bytes:
    """Return the table as a file of that suffix; CSV without the columns it cannot hold."""
    file = io.BytesIO()
    if path.suffix.lower() == ".csv":
        kept = [place for place, kind in enumerate(table.schema.types) if _fits_csv(kind)]
        pyarrow.csv.write_csv(table.select(kept), file)
    else:
        pq.write_table(table, file)
    return file.getvalue()


def _fits_csv(kind: pa.DataType) -> bool:
    simple = pa.types.is_primitive(kind) or pa.types.is_string(kind)
    return bool(simple and not pa.types.is_duration(kind) and not pa.types.is_float16(kind))


def _as_it_is(path: Path, table: pa.Table, draw: Draw) -> bool:
    path.write_bytes(_encoded(path, table))
    return not any("\n" in name for name in table.column_names)


def _empty(path: Path, table: pa.Table, draw: Draw) -> bool:
    path.write_bytes(b"")
    return False


def _cut_off(path: Path, table: pa.Table, draw: Draw) -> bool:
    content = _encoded(path, table)
    path.write_bytes(content[: int(draw.integers(len(content)))])
    return False


def _noise(path: Path, table: pa.Table, draw: Draw) -> bool:
    content = bytearray(_encoded(path, table))
    for place in draw.integers(0, len(content), 3).tolist():
        content[place] = int(draw.integers(256))
    path.write_bytes(content)
    return False


def _text(path: Path, content: bytes) -> bool:
    path.with_suffix(".csv").write_bytes(content)
    if path.suffix != ".csv":
        path.symlink_to(path.with_suffix(".csv"))
    return False


def _with_mark(path: Path, table: pa.Table, draw: Draw) -> bool:
    return _text(path, b"\xef\xbb\xbf" + _encoded(path.with_suffix(".csv"), table))


def _latin1(path: Path, table: pa.Table, draw: Draw) -> bool:
    header = draw.choice(["Größe,label", "size,label"])
    return _text(path, f"{header}\nZürich,a\nBern,b\n".encode("latin-1"))


def _ragged(path: Path, table: pa.Table, draw: Draw) -> bool:
    return _text(path, b"size,label\n1,a\n2,b,c\n3\n")


def _header_only(path: Path, table: pa.Table, draw: Draw) -> bool:
    return _text(path, b"size,label" + b"\n" * int(draw.integers(3)))


def _twice(path: Path, table: pa.Table, draw: Draw) -> bool:
    name = str(draw.choice(["age", LABEL]))
    twice = pa.Table.from_arrays(
        [*table.columns, table.column(0), table.column(0)], [*table.column_names, name, name]
    )
    path.write_bytes(_encoded(path, twice))
    return False


def _folder_by_that_name(path: Path, table: pa.Table, draw: Draw) -> bool:
    path.mkdir()
    return _as_it_is(path / f"inner{path.suffix}", table, draw)


def _loop(path: Path, table: pa.Table, draw: Draw) -> bool:
    path.symlink_to(path)
    return False


def _two_files(path: Path, table: pa.Table, draw: Draw) -> bool:
    half = table.num_rows // 2
    _as_it_is(path.with_stem("first"), table.slice(0, half), draw)
    return _as_it_is(path, table.slice(half), draw) and path.suffix == ".parquet"


def _two_kinds(path: Path, table: pa.Table, draw: Draw) -> bool:
    _as_it_is(path.with_suffix(".csv"), table, draw)
    return _as_it_is(path.with_suffix(".parquet"), table, draw)


def _other_columns(path: Path, table: pa.Table, draw: Draw) -> bool:
    _as_it_is(path, table, draw)
    other = pa.table({"another": _words(draw, 3), LABEL: pa.array(["no"] * 3)})
    _as_it_is(path.with_stem("other"), other, draw)
    return False


def _other_types(path: Path, table: pa.Table, draw: Draw) -> bool:
    _as_it_is(path, table, draw)
    kinds = draw.choice(PLAIN, len(table.column_names) - 1).tolist()
    names = [name for name in table.column_names if name != LABEL]
    columns = {name: COLUMNS[kind](draw, 3) for name, kind in zip(names, kinds, strict=True)}
    other = pa.table(columns | {LABEL: LABELS["few words"](draw, 3)})
    _as_it_is(path.with_stem("other"), other, draw)
    return False


def _among_others(path: Path, table: pa.Table, draw: Draw) -> bool:
    (path.parent / "notes.txt").write_text("no rows")
    (path.parent / f".hidden{path.suffix}").write_bytes(b"\x00")
    (path.parent / f"folder{path.suffix}").mkdir()
    (path.parent / "round").symlink_to(path.parent)
    return _as_it_is(path, table, draw)


FOLDERS = {
    "two files": _two_files,
    "csv and parquet": _two_kinds,
    "files of other columns": _other_columns,
    "files of other types": _other_types,
    "among other files": _among_others,
}
FILES: dict[str, Callable[[Path, pa.Table, Draw], bool]] = {
    "as it is": _as_it_is,
    "empty file": _empty,
    "cut off": _cut_off,
    "three bytes changed": _noise,
    "byte order mark": _with_mark,
    "latin-1": _latin1,
    "ragged rows": _ragged,
    "header only": _header_only,
    "a column twice": _twice,
    "a folder named like a file": _folder_by_that_name,
    "a link to itself": _loop,
    **FOLDERS,
}

# Images

MODES = ("L", "RGB", "RGBA", "LA", "P", "1", "I;16", "CMYK")
CLASSES = ("cat", "dog", "Größe", "a b", "<i>", "x" * 201, "\x1b[1m")


def _images(draw: Draw, folder: Path) -> Odd:
    """Write folders of images by class, some of them odd."""
    names = CLASSES if draw.random() < 0.3 else CLASSES[:3]
    classes = draw.choice(names, int(draw.choice([1, 2, 3], p=[0.2, 0.6, 0.2])), replace=False)
    count, written = int(draw.choice([1, 5, 12])), 0
    for name in classes.tolist():
        (folder / name).mkdir()
        for number in range(count):
            mode = str(draw.choice(MODES if draw.random() < 0.3 else MODES[:2]))
            size = (6, 6) if draw.random() < 0.7 else tuple(draw.integers(1, 20, 2).tolist())
            (folder / name / f"{number}.png").write_bytes(_picture(draw, mode, size))
            written += 1
    odd = str(draw.choice(list(AMONG_IMAGES))) if draw.random() < 0.5 else "nothing else"
    written += AMONG_IMAGES[odd](folder / str(classes[0]), draw)
    return Odd(folder, f"images in {len(classes)} folders of {count}; {odd}", written)


def _picture(draw: Draw, mode: str, size: Sequence[int]) -> bytes:
    width, height = size
    if mode == "I;16":
        image = Image.fromarray(draw.integers(0, 1 << 16, (height, width)).astype(np.uint16))
    else:
        pixels = draw.integers(0, 256, (height, width, 3)).astype(np.uint8)
        image = Image.fromarray(pixels).convert(mode)
    file = io.BytesIO()
    image.save(file, format="JPEG" if mode == "CMYK" else "PNG")
    return file.getvalue()


def _file(name: str, content: bytes, rows: int = 0) -> Callable[[Path, Draw], int]:
    def write(folder: Path, draw: Draw) -> int:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        return rows

    return write


def _link(folder: Path, draw: Draw) -> int:
    (folder / "again").symlink_to(folder)
    (folder / "nowhere.png").symlink_to(folder / "nothing")
    return 0


def _folder_like_an_image(folder: Path, draw: Draw) -> int:
    (folder / "x.png").mkdir()
    return 0


def _half_an_image(folder: Path, draw: Draw) -> int:
    content = _picture(draw, "RGB", (30, 30))
    (folder / "half.png").write_bytes(content[: int(draw.integers(len(content)))])
    return 1


def _wrong_suffix(folder: Path, draw: Draw) -> int:
    (folder / "in truth.jpg").write_bytes(_picture(draw, "RGB", (6, 6)))
    return 1


AMONG_IMAGES: dict[str, Callable[[Path, Draw], int]] = {
    "nothing else": lambda folder, draw: 0,
    "no image in a .png": _file("no image.png", b"no image", 1),
    "an empty .png": _file("empty.png", b"", 1),
    "half an image": _half_an_image,
    "notes": _file("notes.txt", b"notes"),
    "a hidden file": _file("._0.png", b"\x00"),
    "an image that lies deeper": _file("deeper/0.png", b""),
    "a folder named like an image": _folder_like_an_image,
    "links": _link,
    "a .png named .jpg": _wrong_suffix,
    "a name that is not UTF-8": _file(os.fsdecode(b"\xff.png"), b"", 1),
}
