"""Every random draw of a run comes from ``(seed, purpose, *numbers)``.

No generator is shared or advanced across clients or rounds, so the order in which clients run,
the process they run in and the engine that runs them cannot change what they draw.
"""

from __future__ import annotations

import zlib

import numpy as np


def generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return a fresh generator for one purpose, e.g. ``(seed, "batches", round, client)``."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *numbers])


def integer(seed: int, purpose: str, *numbers: int) -> int:
    """Return a 31-bit seed for libraries that take a plain integer."""
    return int(generator(seed, purpose, *numbers).integers(2**31 - 1))
