"""Settings that are text of a certain form: who freeloads, and the name of a run."""

from __future__ import annotations

import unicodedata

from fedsuite.core.settings import invalid

MAX_DIGITS = 18  # more is no number of clients; Python refuses thousands of digits
MAX_NAME_BYTES = 255  # of a folder's name, on all usual file systems


def parse_freeloaders(text: str, num_clients: int) -> tuple[int, ...]:
    """Read ``"8"`` as the 8 highest-numbered clients and ``"3,7,"`` as clients 3 and 7."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if (text and not parts) or not all(part.isascii() and part.isdigit() for part in parts):
        raise invalid(
            "freeloaders", text, "it takes a count such as 8, or client ids such as '3,7,'."
        )
    numbers = {int(part) if len(part) <= MAX_DIGITS else 10**MAX_DIGITS for part in parts}
    by_count = "," not in text
    too_many = max(numbers, default=0) if by_count else len(numbers)
    if too_many >= num_clients or max(numbers, default=0) >= num_clients:
        raise invalid(
            "freeloaders",
            text,
            f"with num-clients = {num_clients} ids are 0 to {num_clients - 1}, and at least one "
            "client must train.",
        )
    if by_count:
        return tuple(range(num_clients - max(numbers, default=0), num_clients))
    return tuple(sorted(numbers))


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
