"""Whose process is at the other end of a loopback connection, by the kernel's table (Linux)."""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path

TABLE, TABLE_V6 = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
MAPPED = "0000000000000000FFFF0000"  # before an IPv4 address in the second table
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
    ones to user 0. A process may open an IPv4 connection through an IPv6 socket, as gRPC's do.
    """
    try:
        ends = [_as_listed(client), _as_listed(server)]
    except ValueError:
        return None
    mapped = [f"{MAPPED}{end}" for end in ends]
    for table, wanted in ((TABLE, ends), (TABLE_V6, mapped)):
        for fields in _rows(table):
            if [fields[LOCAL], fields[REMOTE], fields[STATE]] == [*wanted, ESTABLISHED]:
                return int(fields[USER])
    return None


def _rows(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []


def _as_listed(address: Address) -> str:
    """Write an IPv4 address as the table does: hexadecimal, in this machine's byte order."""
    host, port = address
    number = int.from_bytes(ipaddress.IPv4Address(host).packed, sys.byteorder)
    return f"{number:08X}:{port:04X}"
