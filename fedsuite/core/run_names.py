"""Names of runs, which are names of folders."""

from __future__ import annotations

import unicodedata

from fedsuite.core.settings import invalid

MAX_NAME_BYTES = 255  # on all usual file systems


def check_run_name(name: str) -> None:
    """Refuse a name that cannot be a folder's, or that commands would read as something else."""
    if len(name.encode()) > MAX_NAME_BYTES:
        raise invalid(
            "run-name",
            name,
            f"it has {len(name.encode())} bytes, and a folder's name at most {MAX_NAME_BYTES}.",
        )
    strange = any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name)
    if strange or "/" in name or name.startswith((".", "-")) or name != name.strip():
        raise invalid(
            "run-name",
            name,
            "it names a folder inside results-dir, without '/' and control characters, not "
            "starting with '.' or '-', and without spaces around it.",
        )
