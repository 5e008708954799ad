"""Lists of clients as users write them."""

from __future__ import annotations

from fedsuite.core.settings import invalid

MAX_DIGITS = 18  # more is no number of clients; Python refuses thousands of digits


def parse_clients(key: str, text: str, num_clients: int) -> tuple[int, ...]:
    """Read ``"8"`` as the 8 highest-numbered clients and ``"3,7,"`` as clients 3 and 7."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if (text and not parts) or not all(part.isascii() and part.isdigit() for part in parts):
        raise invalid(key, text, "it takes a count such as 8, or client ids such as '3,7,'.")
    numbers = {int(part) if len(part) <= MAX_DIGITS else 10**MAX_DIGITS for part in parts}
    by_count = "," not in text
    too_many = max(numbers, default=0) if by_count else len(numbers)
    if too_many >= num_clients or max(numbers, default=0) >= num_clients:
        raise invalid(
            key,
            text,
            f"with num-clients = {num_clients} ids are 0 to {num_clients - 1}, and at least one "
            "client must train.",
        )
    if by_count:
        return tuple(range(num_clients - max(numbers, default=0), num_clients))
    return tuple(sorted(numbers))


def parse_freeloaders(text: str, num_clients: int) -> tuple[int, ...]:
    """Read the setting ``freeloaders``."""
    return parse_clients("freeloaders", text, num_clients)
