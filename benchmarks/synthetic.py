"""Stand-ins for the benchmark's datasets, of the same shape, as hub-style parquet.

They can be learned, so that an accuracy still tells whether all variants do the same work.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CLASSES = 10
NUMBERS = (
    "age",
    "fnlwgt",
    "education.num",
    "capital.gain",
    "capital.loss",
    "hours.per.week",
)
CATEGORIES = {
    "workclass": 8,
    "education": 16,
    "marital.status": 7,
    "occupation": 14,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "native.country": 41,
}


def write_split(folder: Path, split: str, table: pa.Table) -> None:
    """Write one split as the hub names it."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")


def write_synthetic(dataset: str, root: Path, train_rows: int, test_rows: int) -> None:
    """Write a stand-in for a dataset into a data-root."""
    make = {"fashion-mnist": images, "cifar10": photos, "adult": census}[dataset]
    folder = root / dataset.replace("-", "_")
    draw = np.random.default_rng(0)
    table = make(train_rows + test_rows, draw)
    write_split(folder, "train", table.slice(0, train_rows))
    write_split(folder, "test", table.slice(train_rows))


def images(rows: int, draw: np.random.Generator) -> pa.Table:
    """Draw 28x28 images in grey."""
    labels = draw.integers(CLASSES, size=rows)
    return pa.table({"image": _noisy_patterns(labels, (28, 28), draw), "label": labels})


def photos(rows: int, draw: np.random.Generator) -> pa.Table:
    """Draw 32x32 images in colour."""
    labels = draw.integers(CLASSES, size=rows)
    return pa.table({"img": _noisy_patterns(labels, (32, 32, 3), draw), "label": labels})


def _noisy_patterns(
    labels: np.ndarray, shape: tuple[int, ...], draw: np.random.Generator
) -> list[dict[str, bytes]]:
    """Draw noisy copies of one coarse pattern per class, as PNG."""
    from PIL import Image

    coarse = draw.normal(128, 40, (CLASSES, shape[0] // 4, shape[1] // 4, *shape[2:]))
    patterns = coarse.repeat(4, axis=1).repeat(4, axis=2)
    encoded = []
    for label in labels:
        pixels = patterns[label] + draw.normal(0, 60, shape)
        png = io.BytesIO()
        image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
        image.save(png, format="png", compress_level=1)
        encoded.append({"bytes": png.getvalue()})
    return encoded


def census(rows: int, draw: np.random.Generator) -> pa.Table:
    """Draw rows of six numbers and 99 categories; income is a noisy linear rule of both."""
    columns: dict[str, object] = {}
    score = draw.normal(0, 1, rows)
    for name in NUMBERS:
        values = draw.normal(0, 1, rows)
        score += draw.normal() * values
        columns[name] = np.round(50 + 20 * values).astype(np.int64)
    for name, count in CATEGORIES.items():
        codes = np.concatenate([np.arange(count), draw.integers(count, size=rows)])[:rows]
        score += draw.normal(0, 1, count)[codes]
        columns[name] = np.array([f"{name}-{code:02d}" for code in range(count)])[codes]
    rich = score > np.quantile(score, 0.75)
    columns["income"] = np.where(rich, ">50K", "<=50K")
    return pa.table(columns)
