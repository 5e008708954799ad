"""What a model must know of the data it is made for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DataShape:
    """The kind and the sizes of one sample and its label.

    ``kind`` is ``image``, ``tabular``, ``tokens`` or ``chars``. ``input_shape`` is (C, H, W) for
    images, (features,) for tables and (length,) for text, whose ids are below ``vocabulary``;
    the token 0 is padding.
    """

    kind: str
    input_shape: tuple[int, ...]
    num_classes: int
    vocabulary: int = 0
