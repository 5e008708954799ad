"""Whose process is at the other end of a loopback connection, by the kernel's table (Linux)."""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path

TABLE = Path("/proc/net/tcp")
ESTABLISHED = "01"
LOCAL, REMOTE, STATE, USER = 1, 2, 3, 7  # columns of the table
Address = tuple[str, int]


def can_identify_peers() -> bool:
    """Return whether this system tells whose process has opened a connection."""
    return sys.platform == "linux" and TABLE.exists()


def is_own_peer(client: Address, server: Address) -> bool:
    """Return whether a process of this user has the connection from ``client`` open."""
    return peer_user(client, server) == os.geteuid()


def peer_user(client: Address, server: Address) -> int | None:
    """Return the id of the user who has the connection from ``client`` to ``server`` open.

    None if nobody on this machine has: only open connections count, since the kernel gives closed
    ones to user 0.
    """
    try:
        wanted = [_as_listed(client), _as_listed(server), ESTABLISHED]
        lines = TABLE.read_text().splitlines()[1:]
    except (OSError, ValueError):
        return None
    for fields in map(str.split, lines):
        if [fields[LOCAL], fields[REMOTE], fields[STATE]] == wanted:
            return int(fields[USER])
    return None


def _as_listed(address: Address) -> str:
    """Write an IPv4 address as the table does: hexadecimal, in this machine's byte order."""
    host, port = address
    number = int.from_bytes(ipaddress.IPv4Address(host).packed, sys.byteorder)
    return f"{number:08X}:{port:04X}"
