"""Write hub-shaped parquet as a mirror holds it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tasks.datasets import DATASETS, DatasetSpec

ADULT_NUMBERS = {
    "age",
    "fnlwgt",
    "education.num",
    "capital.gain",
    "capital.loss",
    "hours.per.week",
}


def encode(pixels: np.ndarray, kind: str = "png") -> dict[str, Any]:
    """Encode an (H, W) or (H, W, 3) uint8 array as the hub does."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=kind, lossless=True)
    return {"bytes": file.getvalue(), "path": None}


def grey(value: int, size: int = 28) -> dict[str, Any]:
    """Encode an even grey square."""
    return encode(np.full((size, size), value, dtype=np.uint8))


def write_split(
    folder: Path,
    split: str,
    columns: Mapping[str, Sequence[Any]],
    label: str = "",
    names: Sequence[str] = (),
) -> None:
    """Write one parquet file with the feature metadata of the hub, a ClassLabel if named."""
    folder.mkdir(parents=True, exist_ok=True)
    features: dict[str, Any] = {name: {"_type": "Value", "dtype": "string"} for name in columns}
    for name, values in columns.items():
        if isinstance(values[0], dict):
            features[name] = {"_type": "Image"}
        elif isinstance(values[0], int):
            features[name] = {"_type": "Value", "dtype": "int64"}
    if names:
        features[label] = {"_type": "ClassLabel", "names": list(names)}
    table = pa.table(dict(columns))
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    path = folder / f"{split}-00000-of-00001.parquet"
    pq.write_table(table.replace_schema_metadata(metadata), path)


def sample_columns(spec: DatasetSpec, rows: int, seed: int) -> dict[str, Sequence[Any]]:
    """Make rows with the columns that the hub has; row i has class i mod the number of classes."""
    rng = np.random.default_rng(seed)
    classes = [i % spec.num_classes for i in range(rows)]
    columns: dict[str, Sequence[Any]] = {}
    if spec.kind == "image":
        channels, height, width = spec.input_shape
        size = (height, width) if channels == 1 else (height, width, channels)
        columns[str(spec.inputs)] = [
            encode(rng.integers(0, 256, size, dtype=np.uint8)) for _ in range(rows)
        ]
        columns[spec.label] = classes
    elif spec.kind == "tabular":
        for name in spec.inputs:
            numbers = rng.integers(0, 99, rows).tolist()
            columns[name] = numbers if name in ADULT_NUMBERS else [f"c{v % 3}" for v in numbers]
        columns[spec.label] = ["<=50K" if c == 0 else ">50K" for c in classes]
    elif spec.kind == "tokens":
        columns = {"text": [f"Word{i} and more" for i in range(rows)], "label": classes}
    else:
        columns = {"x": ["abcd" * 20] * rows, "y": ["abcd"[i % 4] for i in range(rows)]}
    if spec.owner:
        columns[spec.owner] = [f"owner{i % 3}" for i in range(rows)]
    columns["unused"] = ["other"] * rows
    return columns


def sample_mirror(root: Path, name: str, test_split: str | None = "test") -> None:
    """Write 24 train rows and, unless None, 8 test rows of a dataset."""
    spec = DATASETS[name]
    names = [f"class{i}" for i in range(spec.num_classes)] if spec.kind != "chars" else []
    names = names if spec.kind != "tabular" else []
    folder = root / spec.folder
    write_split(folder, "train", sample_columns(spec, 24, 1), spec.label, names)
    if test_split:
        write_split(folder, test_split, sample_columns(spec, 8, 2), spec.label, names)


def adult_rows(**changes: list[Any]) -> dict[str, Sequence[Any]]:
    """Two rows of the columns of adult that differ only where told."""
    rows: dict[str, Sequence[Any]] = {
        name: [5, 5] if name in ADULT_NUMBERS else ["a", "a"] for name in DATASETS["adult"].inputs
    }
    rows["income"] = ["<=50K", ">50K"]
    return rows | {name.replace("_", "."): values for name, values in changes.items()}
