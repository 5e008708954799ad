"""Encoded images as pixels of one size."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsuite.core.settings import UserError
from tasks.arrow import pa
from tasks.columns import blocks

if TYPE_CHECKING:
    import PIL.Image

FORMATS = ("PNG", "JPEG", "WEBP")  # naming them spares PIL a try of all it knows
IMAGE_BLOCK = 256
RowName = Callable[[int], str]


def decode_images(
    images: pa.ChunkedArray,
    shape: Sequence[int],
    row_name: RowName,
    out: np.ndarray,
    resize: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Decode images into ``out``; return the sum and the sum of squares of each channel.

    The sums are of whole numbers below 2**53, so they are exact in any order of the threads.
    """
    from PIL import Image

    Image.init()  # its lazy start is not safe when several threads open their first image

    def decode(block: slice) -> tuple[np.ndarray, np.ndarray]:
        raw = b"".join(
            _decode(image, shape, row_name(row), resize)
            for row, image in enumerate(images[block].to_pylist(), start=block.start)
        )
        pixels = np.frombuffer(raw, dtype=np.uint8)
        out[block] = pixels.reshape(out[block].shape)
        values = pixels.reshape(-1, out.shape[-1]).astype(np.float64)
        return values.sum(axis=0), np.einsum("pc,pc->c", values, values)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sums = list(pool.map(decode, blocks(len(out), IMAGE_BLOCK)))
    total, squares = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
    return total, squares


def open_image(value: Any) -> PIL.Image.Image:
    """Open an image given as bytes, or as the hub does with the name of its file."""
    from PIL import Image, UnidentifiedImageError

    encoded = value["bytes"] if isinstance(value, dict) else value
    try:
        return Image.open(io.BytesIO(encoded or b""), formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"it is none of {', '.join(FORMATS)}") from None


def _decode(value: Any, shape: Sequence[int], name: str, resize: bool) -> bytes:
    """Decode an image into as many channels, rows and columns as ``shape`` says."""
    from PIL import Image

    channels, height, width = shape
    mode = "L" if channels == 1 else "RGB"
    try:
        image: Image.Image = open_image(value)
        if image.mode.startswith("I"):  # 16 bits of grey, which PIL would cut off above 255
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        image = image if image.mode == mode else image.convert(mode)
        image.load()
    except Exception as error:  # a damaged file may make PIL raise anything
        path = value.get("path") if isinstance(value, dict) else None
        file = f" ('{path}')" if path else ""
        raise UserError(f"{name}{file} has no image that can be decoded ({error}).") from error
    if image.size != (width, height):
        if not resize:
            raise UserError(
                f"{name} has an image of {image.width}x{image.height} pixels, and the model takes "
                f"{width}x{height}. Give images of that size, or let them be resized (--resize)."
            )
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return image.tobytes()


def canvas(shape: Sequence[int], rows: int) -> np.ndarray:
    """Return room for the pixels of some images."""
    channels, height, width = shape
    try:
        return np.empty((rows, height, width, channels), dtype=np.float32)
    except MemoryError:
        raise UserError(
            f"{rows:,} images of {width}x{height} pixels do not fit in this machine's memory. "
            "Scale them down."
        ) from None
