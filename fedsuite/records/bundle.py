"""Bundles: the record of a run, a suite or a folder of runs as one compressed tar file.

The same files give the same bytes. A bundle that is read may come from anybody: what is no plain
file inside its one folder is refused, and so is more than a bound of bytes.
"""

from __future__ import annotations

import atexit
import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Self

from fedsuite.core.files import read_document, replacing, write_problem
from fedsuite.core.scratch import scratch_folder
from fedsuite.core.settings import UserError, shown
from fedsuite.core.text import counted
from fedsuite.records.digests import DIGESTS, model_digests, model_files, sha256
from fedsuite.records.folder import RunFolder, run_folders

ENDINGS = (".tar.zst", ".tar.gz")
INDEX = "bundle.json"  # SHA-256 of every other file
MAX_BYTES = 4 * 2**30
MAX_FILES = 100_000
MAX_HEADER = 64 * 1024
CHUNK = 1024 * 1024
PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
LONG_NAME = (tarfile.XHDTYPE,)  # the header that carries a name of over 100 bytes


def record_files(files: RunFolder, models: bool = False) -> dict[str, Path | bytes]:
    """Return what a bundle holds of a run, by its path in the run's folder.

    Models are left out unless asked for, but their SHA-256 are there.
    """
    record = (
        files.config_file,
        files.history_file,
        files.clients_file,
        files.summary_file,
        files.model_description_file,
        files.schema_file,
        *(model_files(files) if models else ()),
    )
    found: dict[str, Path | bytes] = {
        str(path.relative_to(files.path)): path for path in record if path.is_file()
    }
    digests = json.dumps(model_digests(files), indent=2, sort_keys=True) + "\n"
    return found | ({DIGESTS: digests.encode()} if found else {})


def write_bundle(path: Path, name: str, files: Mapping[str, Path | bytes]) -> None:
    """Write files, by their paths in the folder ``name``, and an index of them, as a bundle."""
    digests = {
        place: hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else sha256(source)
        for place, source in sorted(files.items())
    }
    index = json.dumps({"files": digests}, indent=2).encode() + b"\n"
    with replacing(path) as temporary, _compressed(temporary, path.name) as stream:
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for place, source in ((INDEX, index), *sorted(files.items())):
                with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
                    member = tarfile.TarInfo(f"{name}/{place}")
                    member.size = file.seek(0, os.SEEK_END)
                    file.seek(0)
                    tar.addfile(member, file)


@contextmanager
def _compressed(path: Path, name: str) -> Iterator[Any]:
    """Open a file to be compressed as the ending of its later name says."""
    with path.open("wb") as file:
        if name.endswith(ENDINGS[0]):
            import pyarrow

            with pyarrow.CompressedOutputStream(file, "zstd") as stream:
                yield stream
        else:
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream:
                yield stream


@contextmanager
def _decompressed(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        if path.name.endswith(ENDINGS[0]):
            import pyarrow

            with pyarrow.CompressedInputStream(file, "zstd") as stream:
                yield stream
        else:
            with gzip.GzipFile(fileobj=file) as stream:
                yield stream


def unpacked(name: str) -> str:
    """Return the folder that a bundle holds, or ``x.tar.gz/RUN`` one of its runs; else ``name``.

    It is unpacked into a private folder that is removed when the process ends.
    """
    path = Path(name)
    for place in (path, *path.parents):
        if place.name.endswith(ENDINGS) and os.path.isfile(place):
            folder = _unpack_once(place.absolute(), place.stat().st_mtime_ns)
            return str(folder / path.relative_to(place))
    return name


def unpacked_run(name: str) -> str:
    """Return what :func:`unpacked` does, of one run; refuse a bundle that holds several."""
    folder = unpacked(name)
    runs = [run.name for run in run_folders(Path(folder))] if folder != name else []
    if runs and not RunFolder(Path(folder)).exists:
        raise UserError(
            f"{name} holds {counted(len(runs), 'run')}: {shown(', '.join(runs))}. Give one of them "
            f"as {name}/{runs[0]}."
        )
    return folder


@cache
def _unpack_once(path: Path, changed: int) -> Path:
    """Unpack a bundle for the rest of the process; ``changed`` tells a new one of its name."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(scratch_folder())
    return unpack(path, folder)


def unpack(path: Path, into: Path) -> Path:
    """Unpack a bundle into a folder of which nobody else knows; return the folder that it holds."""
    try:
        with _decompressed(path) as stream:
            names = _extract(path, stream, into)
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if write_problem(error):
            raise
        raise _damaged(path, error) from None
    tops = {name.parts[0] for name in names}
    if len(tops) != 1:
        raise _damaged(path, f"it holds {len(tops)} folders, not one")
    folder = into / tops.pop()
    _check(path, folder)
    return folder


class _Header(tarfile.TarInfo):
    """The header of a bundle's file, which is refused before anything that it announces is read."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: Any, errors: Any) -> Self:
        """Read a header; refuse links, devices and long headers."""
        header = super().frombuf(buf, encoding, errors)
        if header.type not in PLAIN and (header.type not in LONG_NAME or header.size > MAX_HEADER):
            raise ValueError(f"'{shown(header.name)}' is no plain file")
        return header


def _extract(path: Path, stream: Any, into: Path) -> list[PurePosixPath]:
    """Write a bundle's files; return their names."""
    names, total = [], 0
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as tar:
        for number, member in enumerate(tar, 1):
            name = _safe_name(member)
            total += member.size
            if total > MAX_BYTES or number > MAX_FILES:
                raise UserError(
                    f"The bundle {path} is too large to be opened: over {MAX_BYTES // 2**30} GiB "
                    f"or {MAX_FILES:,} files. If you trust it, unpack it with tar and give the "
                    "folder."
                )
            if member.isdir():
                continue
            names.append(name)
            place = into / name
            place.parent.mkdir(parents=True, exist_ok=True)
            source = tar.extractfile(member)
            assert source is not None
            with place.open("xb") as target:
                while chunk := source.read(CHUNK):
                    target.write(chunk)
    return names


def _safe_name(member: tarfile.TarInfo) -> PurePosixPath:
    """Return the name of a file inside a folder; refuse one that leads elsewhere."""
    name = PurePosixPath(member.name)
    is_inside = not name.is_absolute() and ".." not in name.parts and "\0" not in member.name
    if member.issparse() or not is_inside or (member.isfile() and len(name.parts) < 2):
        raise ValueError(f"'{shown(member.name)}' is no plain file in its folder")
    return name


def _check(path: Path, folder: Path) -> None:
    """Refuse a bundle whose files are not those of its index."""
    listed = read_document(folder / INDEX).get("files")
    if not isinstance(listed, dict):
        raise _damaged(path, f"its {INDEX} is missing or no index")
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    found.pop(INDEX)
    if wrong := sorted(found.keys() ^ listed.keys()):
        raise _damaged(path, f"its {INDEX} and its files differ in '{shown(wrong[0])}'")
    for name, place in found.items():
        if sha256(place) != listed[name]:
            raise _damaged(path, f"'{shown(name)}' is not as its {INDEX} says")


def _damaged(path: Path, why: object) -> UserError:
    return UserError(f"{path} is not a whole bundle: {why}. Ask for a new copy.")
