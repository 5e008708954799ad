"""Read the files of offline W&B runs: protobuf records in the form of LevelDB's log."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

HEADER, BLOCK, PART = 7, 32768, struct.Struct("<IHB")
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a file."""
    make: Any = import_module("wandb.proto.wandb_internal_pb2").Record
    data, place, whole = path.read_bytes(), HEADER, b""
    while place + PART.size <= len(data):
        if BLOCK - place % BLOCK < PART.size:  # too short a rest for a header
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = PART.unpack_from(data, place)
        part = data[place + PART.size : place + PART.size + length]
        place += PART.size + length
        whole = part if kind in (FULL, FIRST) else whole + part
        if kind in (FULL, LAST):
            record = make()
            record.ParseFromString(whole)
            yield record


def history(path: Path) -> list[dict[str, Any]]:
    """Return the rows that were logged."""
    rows = [record.history for record in records(path) if record.HasField("history")]
    return [{_key(item): json.loads(item.value_json) for item in row.item} for row in rows]


def config(path: Path) -> dict[str, Any]:
    """Return the settings that the run began with."""
    run = next(record.run for record in records(path) if record.HasField("run"))
    return {_key(item): json.loads(item.value_json) for item in run.config.update}


def artifacts(path: Path) -> dict[str, set[str]]:
    """Return the artifacts that were logged, each with the names of its files."""
    requests = (r.request.log_artifact for r in records(path) if r.HasField("request"))
    found = {r.artifact.name: r.artifact for r in requests if r.artifact.name}
    found |= {r.artifact.name: r.artifact for r in records(path) if r.HasField("artifact")}
    return {name: {e.path for e in a.manifest.contents} for name, a in found.items()}


def _key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)
