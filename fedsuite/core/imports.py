"""Imports of large libraries."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import large libraries without looking for garbage, of which imports leave little.

    All objects of this process then stay for good, its garbage too, and are not looked at again:
    PyTorch alone makes half a million. So use it once per library, not again and again. An import
    that fails may be tried again; its garbage is collected as ever.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
