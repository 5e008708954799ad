"""Large libraries: what they make stays, so that to look for garbage in it is lost time."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects before Python looks for garbage, and how many looks before it looks at older ones.
RARELY = (50_000, 20, 20)


def collect_rarely() -> None:
    """Let this program look for garbage rarely, and not at its end.

    What PyTorch makes when it is imported stays until the end. Python would look through it again
    and again, and once more when the program ends.
    """
    gc.set_threshold(*RARELY)
    atexit.register(gc.freeze)


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
