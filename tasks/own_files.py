"""Files of users' own rows, a node's or a simulation's: found, and read into one table."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsuite.core.settings import UserError, invalid
from tasks.arrow import csv, pa, pq
from tasks.datasets import TABLES, described

PICTURES = (".png", ".jpg", ".jpeg", ".webp")
TRAIN, TESTS = "train", ("test", "validation", "valid", "val")  # names of splits, best first
IMAGE_COLUMNS = ("image", "img")
CSV_BLOCK_BYTES = 1 << 24  # a row must fit into it, and wide tables fall into fewer chunks
ROW_AT_FAULT = re.compile(r"(?<=columns, got )(\d+): .*")


def read_rows(path: Path, dataset: str, label: str) -> pa.Table:
    """Read a parquet or CSV file, a folder of either, or a folder of images by class."""
    return read_files(data_files(path), dataset, label)


def read_files(files: Sequence[Path], dataset: str, label: str) -> pa.Table:
    """Read files of one kind, tables or images, into one table."""
    if is_picture(files[0]):
        spec = described(dataset)
        image, label = (str(spec.inputs), spec.label) if spec else (IMAGE_COLUMNS[0], label)
        return read_images(files, image, label)
    return read_tables(files)


def read_tables(files: Sequence[Path]) -> pa.Table:
    """Read parquet or CSV files that have the same columns."""
    tables = [_read_table(file) for file in files]
    for file, table in zip(files, tables, strict=True):
        _refuse_other_columns(files[0], tables[0], file, table)
    try:
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException:
        raise _differing_types(files, tables) from None


def split_files(path: Path, key: str) -> tuple[list[Path], list[Path]]:
    """Return the files of training rows and of test rows; of the latter none if none are named so.

    A folder has them in two folders or in files whose names begin so: ``train`` and ``test``.
    """
    folders = [path / name for name in (TRAIN, *TESTS) if _is_split(path / name)]
    if len(folders) > 1 and folders[0].name == TRAIN:
        return data_files(folders[0], key), data_files(folders[1], key)
    files = data_files(path, key)
    named = {name: [file for file in files if _begins(file, name)] for name in (TRAIN, *TESTS)}
    test = next((named[name] for name in TESTS if named[name]), [])
    is_told = path.is_dir() and _suffix(files[0]) in TABLES and named[TRAIN] and test
    return (named[TRAIN], test) if is_told else (files, [])


def _is_split(folder: Path) -> bool:
    """Return whether a folder may be a split's: one with images is a class."""
    return folder.is_dir() and not any(_suffix(entry) in PICTURES for entry in _listed(folder))


def _begins(file: Path, name: str) -> bool:
    return re.match(rf"{name}(?![a-z0-9])", file.name.lower()) is not None


def data_files(path: Path, key: str = "data-path") -> list[Path]:
    """Return the files that hold the rows at a path, in a fixed order; ``key`` is its setting."""
    return find_files(path, key, TABLES, "a .parquet or .csv file, a folder of them")


def find_files(path: Path, setting: str, single: Sequence[str], forms: str) -> list[Path]:
    """Return files of rows; those with a suffix of ``single`` may be given, or lie, by themselves.

    ``forms`` names them for the sentence that refuses a value of ``setting``.
    """
    if path.is_file() and _suffix(path) in single:
        return [path]
    found = {}
    if path.is_dir():
        entries = _listed(path)
        for suffix in TABLES:
            found[f"{suffix} files"] = [f for f in entries if _suffix(f) == suffix]
        loose = set(PICTURES).intersection(single)
        found["images"] = [f for f in entries if _suffix(f) in loose]
        found["images in subfolders"] = _pictures(path, entries, setting)
    kinds = [kind for kind, files in found.items() if files]
    if len(kinds) == 1:
        return found[kinds[0]]
    why = "it holds no data" if path.exists() else "there is no such file or folder"
    if kinds:
        why = f"it holds {' and '.join(kinds)}, and only one kind can be meant"
    raise invalid(
        setting,
        path,
        f"{why}. Give {forms}, or a folder with one subfolder of images per class.",
    )


def column_names(path: Path) -> list[str]:
    """Return the columns of a node's rows by their files' heads; none of a folder of images."""
    found: dict[str, None] = {}
    for file in data_files(path):
        if _suffix(file) not in TABLES:
            return []
        try:
            is_csv = _suffix(file) == ".csv"
            head = csv.open_csv(file).schema if is_csv else pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(file, error) from None
        found |= dict.fromkeys(head.names)
    return list(found)


def files_identity(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    """Return name, size and time of each of the files; other ones where rows have changed."""
    identities = []
    for file in files:
        try:
            status = file.stat()
        except OSError as error:
            raise _unreadable(file, error) from None
        identities.append((str(file), status.st_size, status.st_mtime_ns))
    return identities


def content_version(path: Path) -> str:
    """Return a hash of the rows at a path, wherever that is."""
    digest = hashlib.sha256()
    for part in split_files(path, "dataset"):
        for file in part:
            name = f"{file.relative_to(path) if path.is_dir() else ''}".encode()
            with file.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").digest()
            digest.update(hashlib.sha256(name).digest() + content)
    return digest.hexdigest()


def _listed(folder: Path) -> list[Path]:
    """Return what a folder holds, in order, without hidden files."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise _unreadable(folder, error) from None
    for entry in entries:
        readable = entry.name.encode(errors="backslashreplace").decode()
        if readable != entry.name:
            raise UserError(f"The name of '{folder / readable}' is not UTF-8. Rename it.")
    return entries


def _suffix(path: Path) -> str:
    """Return the suffix of a file in lower case; of a folder, none."""
    return "" if path.is_dir() else path.suffix.lower()


def _pictures(folder: Path, entries: Sequence[Path], setting: str) -> list[Path]:
    """Return the images that lie in subfolders; refuse those that lie deeper."""
    pictures = []
    place = folder.resolve()
    classes = (e for e in entries if e.is_dir() and not place.is_relative_to(e.resolve()))
    for entry in (entry for name in classes for entry in _listed(name)):
        if _suffix(entry) in PICTURES:
            pictures.append(entry)
        elif entry.is_dir() and not entry.is_symlink():
            deeper = next((e for e in _listed(entry) if _suffix(e) in PICTURES), None)
            if deeper is not None:
                raise invalid(
                    setting,
                    folder,
                    f"'{deeper}' lies two folders deep, and its class is not clear. Give a folder "
                    "with one subfolder of images per class.",
                )
    return pictures


def is_picture(file: Path) -> bool:
    """Return whether a file is an image, by its suffix."""
    return _suffix(file) in PICTURES


def read_images(files: Sequence[Path], image: str, label: str = "") -> pa.Table:
    """Read images; with a column ``label``, their classes are the names of their folders."""
    pictures = []
    for file in files:
        try:
            pictures.append({"bytes": file.read_bytes(), "path": file.name})
        except OSError as error:
            raise _unreadable(file, error) from None
    rows: dict[str, list[Any]] = {image: pictures}
    if label:
        rows[label] = [file.parent.name for file in files]
    return pa.table(rows)


def _read_table(file: Path) -> pa.Table:
    """Read a file of rows; refuse one whose columns cannot be told apart."""
    try:
        table = _read_csv(file) if _suffix(file) == ".csv" else _read_parquet(file)
        names = table.column_names
    except UnicodeError:
        raise UserError(f"'{file}' is not UTF-8. Save it as UTF-8.") from None
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(file, error) from None
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise UserError(f"'{file}' has {count} columns '{name}'. Rename or remove all but one.")
    return table


def _read_parquet(file: Path) -> pa.Table:
    """Read a parquet file, dictionaries as the values they stand for."""
    with pq.ParquetFile(file) as opened:
        table = opened.read()
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    names, metadata = table.column_names, table.schema.metadata
    return pa.Table.from_arrays(columns, names=names, metadata=metadata)


def _read_csv(file: Path) -> pa.Table:
    options = csv.ReadOptions(block_size=CSV_BLOCK_BYTES)
    table = csv.read_csv(file, read_options=options)
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if pa.types.is_binary(kind):
            raise UserError(f"Column '{name}' of '{file}' is not UTF-8. Save the file as UTF-8.")
    return table


def _refuse_other_columns(first: Path, known: pa.Table, file: Path, table: pa.Table) -> None:
    """Refuse files of one folder whose columns differ; rows would lack values."""
    different = sorted(set(known.column_names) ^ set(table.column_names))
    if different:
        raise UserError(
            f"'{first}' and '{file}' have different columns: only one of them has "
            f"'{different[0]}'. Give files with the same columns."
        )


def _differing_types(files: Sequence[Path], tables: Sequence[pa.Table]) -> UserError:
    """Return the error for a column that holds in one file what it cannot hold in another."""
    for name in tables[0].column_names:
        for file, table in zip(files, tables, strict=True):
            kinds = [t.schema.field(name).type for t in (tables[0], table)]
            fields = [pa.schema([pa.field(name, kind)]) for kind in kinds]
            try:
                pa.unify_schemas(fields, promote_options="permissive")
            except pa.ArrowException:
                return UserError(
                    f"Column '{name}' holds {kinds[0]} in '{files[0]}' and {kinds[1]} in '{file}'. "
                    "Save it with one type."
                )
    return UserError(f"The files beside '{files[0]}' hold different types in one column.")


def _unreadable(path: Path, error: Exception) -> UserError:
    """Return the error for a file; without the row at fault, which is not for the server."""
    reason = getattr(error, "strerror", None) or str(error)
    reason = ROW_AT_FAULT.sub(r"\1", reason.partition("\n")[0]).rstrip(". ")
    return UserError(f"'{path}' cannot be read: {reason}.")
