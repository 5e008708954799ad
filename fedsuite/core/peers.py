"""Whose process is at the other end of a loopback connection, by the kernel's table (Linux)."""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path

TABLE, TABLE_V6 = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
OVERFLOW = Path("/proc/sys/kernel/overflowuid")  # how the kernel calls users it cannot name here
EVERY_ADDRESS = ("", "0.0.0.0", "::", "[::]")
ESTABLISHED = "01"
LOCAL, REMOTE, STATE, USER = 1, 2, 3, 7  # columns of the table
Address = tuple[str, int]


def can_identify_peers() -> bool:
    """Return whether this system tells whose process has opened a connection.

    In a container whose user has no name outside, every user of the machine looks like this one.
    """
    try:
        TABLE.read_text()
        return sys.platform == "linux" and int(OVERFLOW.read_text()) != os.geteuid()
    except (OSError, ValueError):
        return False


def is_own_peer(client: Address, server: Address) -> bool:
    """Return whether a process of this user has the connection from ``client`` open."""
    return peer_user(client, server) == os.geteuid()


def peer_user(client: Address, server: Address) -> int | None:
    """Return the id of the user who has the connection from ``client`` to ``server`` open.

    None if nobody on this machine has: only open connections count, since the kernel gives closed
    ones to user 0. A server that listens on every address is known by its port. A process may open
    an IPv4 connection through an IPv6 socket, as gRPC's do.
    """
    port = f":{server[1]:04X}"
    for table, mapped in ((TABLE, False), (TABLE_V6, True)):
        try:
            here = _as_listed(client, mapped)
            there = port if server[0] in EVERY_ADDRESS else _as_listed(server, mapped)
        except ValueError:
            return None
        for fields in _rows(table):
            same = fields[LOCAL] == here and fields[REMOTE].endswith(there)
            if same and fields[STATE] == ESTABLISHED:
                return int(fields[USER])
    return None


def _rows(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []


def _as_listed(address: Address, mapped: bool) -> str:
    """Write an IPv4 address as the tables do: hexadecimal words in this machine's byte order."""
    host, port = ipaddress.IPv4Address(address[0]), address[1]
    packed = ipaddress.IPv6Address(f"::ffff:{host}").packed if mapped else host.packed
    words = [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
