"""Whose process is at the other end of a connection, by the kernel's table."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_user import NOBODY, need_root

from fedsuite.core import peers
from fedsuite.core.peers import can_identify_peers, is_own_peer, peer_user

# 127.0.0.1:8080 <- 127.0.0.1:40000 of user 1000, open; :40001 closed, its user forgotten.
HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
OPEN = "   0: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000 0 7\n"
CLOSED = "   1: 0100007F:9C41 0100007F:1F90 06 00000000:00000000 00:00000000 00000000     0 0 0\n"
# The same server <- 127.0.0.1:40003 of user 1001, by an IPv6 socket.
HOST = "0000000000000000FFFF00000100007F"
MAPPED = f"   0: {HOST}:9C43 {HOST}:1F90 01 00000000:00000000 00:00000000 00000000  1001 0 8\n"
SERVER = ("127.0.0.1", 8080)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tcp"
    path.write_text(HEADER + OPEN + CLOSED)
    second = tmp_path / "tcp6"
    second.write_text(HEADER + MAPPED)
    monkeypatch.setattr(peers, "TABLE", path)
    monkeypatch.setattr(peers, "TABLE_V6", second)
    monkeypatch.setattr(peers, "OVERFLOW", tmp_path / "overflowuid")
    (tmp_path / "overflowuid").write_text("65534\n")
    monkeypatch.setattr("sys.byteorder", "little")
    return path


def test_an_open_connection_has_its_user(table: Path) -> None:
    assert peer_user(("127.0.0.1", 40000), SERVER) == 1000
    assert peer_user(("127.0.0.1", 40003), SERVER) == 1001


def test_a_connection_to_another_address_of_the_server_is_another(table: Path) -> None:
    """Users may have connections from one port to one port, if the addresses differ."""
    table.write_text(
        HEADER
        + OPEN
        + OPEN.replace("0100007F:1F90", "0200007F:1F90", 1).replace(" 1000 ", " 1001 ")
    )
    client = ("127.0.0.1", 40000)
    assert peer_user(client, ("127.0.0.1", 8080)) == 1000
    assert peer_user(client, ("127.0.0.2", 8080)) == 1001
    for everywhere in ("", "0.0.0.0", "::", "[::]"):
        assert peer_user(client, (everywhere, 8080)) is None


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (("127.0.0.1", 40001), SERVER),  # closed: the table says user 0, which is nobody's word
        (("127.0.0.1", 40002), SERVER),
        (("127.0.0.1", 40000), ("127.0.0.1", 8081)),
        (("127.0.0.2", 40000), SERVER),
        (("::1", 40000), SERVER),
        (("not an address", 40000), SERVER),
    ],
)
def test_everything_else_has_none(
    table: Path, client: tuple[str, int], server: tuple[str, int]
) -> None:
    assert peer_user(client, server) is None


def test_a_user_is_own_by_its_number(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert is_own_peer(("127.0.0.1", 40000), SERVER)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not is_own_peer(("127.0.0.1", 40000), SERVER)
    assert not is_own_peer(("127.0.0.1", 40001), SERVER)


def test_a_system_without_the_table_cannot_tell(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert can_identify_peers()
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert not can_identify_peers(), "users without a name here all have this number"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert can_identify_peers()
    table.unlink()
    assert not can_identify_peers()
    assert peer_user(("127.0.0.1", 40000), SERVER) is None


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        yield listening


@pytest.mark.parametrize("kind", [socket.AF_INET, socket.AF_INET6])
def test_a_real_connection_is_own_until_it_is_closed(
    server: socket.socket, kind: socket.AddressFamily
) -> None:
    if not can_identify_peers():
        pytest.skip("this system does not tell whose a connection is")
    here = server.getsockname()
    with socket.socket(kind) as client:
        client.connect(here if kind == socket.AF_INET else (f"::ffff:{here[0]}", here[1]))
        connection, name = server.accept()
        assert is_own_peer(name, here)
    connection.close()
    assert not is_own_peer(name, here)


@pytest.mark.parametrize("kind", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_is_asked_for_one_connection_and_its_tables_are_not_read(
    server: socket.socket, kind: socket.AddressFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_read(table: Path) -> list[list[str]]:
        raise AssertionError(f"{table} is slow to read")

    here = server.getsockname()
    with socket.socket(kind) as client:
        client.connect(here if kind == socket.AF_INET else (f"::ffff:{here[0]}", here[1]))
        connection, name = server.accept()
        try:
            peers._asked_user(name, here)
        except OSError as error:
            pytest.skip(f"this system is not asked: {error}")
        monkeypatch.setattr(peers, "_rows", not_read)
        assert peer_user(name, here) == os.geteuid()
        assert peer_user(here, name) == os.geteuid(), "the server's own end is known too"
    connection.close()
    assert peer_user(name, here) is None
    with pytest.raises(OSError, match="no such connection"):
        peers._asked_user(name, (here[0], 1))


def test_a_kernel_that_is_not_asked_lists_its_connections(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*kind: object) -> socket.socket:
        raise PermissionError("no netlink in this container")

    monkeypatch.setattr(socket, "socket", refused)
    assert peer_user(("127.0.0.1", 40000), SERVER) == 1000


def test_a_real_connection_of_another_user_is_not_own(server: socket.socket) -> None:
    need_root()
    here = server.getsockname()
    child = os.fork()
    if not child:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with socket.socket() as client:
                client.connect(here)
                client.recv(1)
        finally:
            os._exit(0)
    connection, name = server.accept()
    with connection:
        assert peer_user(name, here) == NOBODY
        assert not is_own_peer(name, here)
    os.waitpid(child, 0)
