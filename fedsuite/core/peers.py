"""Whose process is at the other end of a loopback connection, as the kernel knows it (Linux)."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

TABLE, TABLE_V6 = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
OVERFLOW = Path("/proc/sys/kernel/overflowuid")  # how the kernel calls users it cannot name here
ESTABLISHED = 1
LOCAL, REMOTE, STATE, USER = 1, 2, 3, 7  # columns of the table
# A question to the kernel about one connection, and its answer: sock_diag(7).
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1
HEADER, STATES, ENDS, ANY_SOCKET = "=IHHII", "=BBHI", "!HH4s12x4s12x", "=III"
ANSWER, ANSWER_BYTES = "=4xH11xB62xI", 8192  # its kind; the connection's state and user
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
    ones to user 0. Both ends must be known, also the server's address: another user may have a
    connection from the same port to the same port of another address. A process may open an IPv4
    connection through an IPv6 socket, as gRPC's do.
    """
    with suppress(OSError, ValueError):
        return _asked_user(client, server)
    return _listed_user(client, server)


def _asked_user(client: Address, server: Address) -> int | None:
    """Ask the kernel about this connection alone; an error if it does not answer.

    To list all connections takes it tens of milliseconds, and services are asked many times a
    second.
    """
    hosts = (ipaddress.IPv4Address(client[0]).packed, ipaddress.IPv4Address(server[0]).packed)
    question = struct.pack(STATES, socket.AF_INET, socket.IPPROTO_TCP, 0, 1 << ESTABLISHED)
    question += struct.pack(ENDS, client[1], server[1], *hosts)
    question += struct.pack(ANY_SOCKET, 0, 0xFFFFFFFF, 0xFFFFFFFF)
    size = struct.calcsize(HEADER) + len(question)
    header = struct.pack(HEADER, size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as kernel:
        kernel.sendto(header + question, (0, 0))
        answer = kernel.recv(ANSWER_BYTES)
    kind, state, user = struct.unpack_from(ANSWER, answer.ljust(struct.calcsize(ANSWER), b"\0"))
    if kind != SOCK_DIAG_BY_FAMILY:
        raise OSError("the kernel knows no such connection, or answers no such questions")
    return user if state == ESTABLISHED else None


def _listed_user(client: Address, server: Address) -> int | None:
    """Look for a connection among all."""
    for table, mapped in ((TABLE, False), (TABLE_V6, True)):
        try:
            ends = [_as_listed(client, mapped), _as_listed(server, mapped)]
        except ValueError:
            return None
        for fields in _rows(table):
            if [fields[LOCAL], fields[REMOTE]] == ends and int(fields[STATE], 16) == ESTABLISHED:
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
