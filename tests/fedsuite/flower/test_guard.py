"""The guard of Flower's services: requests of other users end before Flower sees them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import uvicorn

from fedsuite.core.settings import UserError
from fedsuite.flower import guard
from fedsuite.flower.guard import REFUSAL, OwnNodes, own_user_only

CLIENT, SERVER = ("127.0.0.1", 40000), ("127.0.0.1", 8080)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The connections that are this user's."""
    known: list[tuple[Any, Any]] = []
    monkeypatch.setattr(guard, "is_own_peer", lambda *connection: connection in known)
    return known


def ask(**scope: Any) -> list[Any]:
    """Return what a guarded app that answers "inside" sends."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send("inside")

    async def receive() -> Any:
        raise AssertionError("a refused request is not read")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(own_user_only(app)(scope, receive, send))
    return sent


def test_requests_of_this_user_pass(own: list[Any]) -> None:
    own.append((CLIENT, SERVER))
    assert ask(type="http", client=list(CLIENT), server=list(SERVER)) == ["inside"]


def test_requests_of_others_are_refused(own: list[Any]) -> None:
    start, body = ask(type="http", client=CLIENT, server=SERVER)
    assert start["status"] == 403
    assert body["body"] == REFUSAL.encode()


def test_websockets_of_others_are_closed(own: list[Any]) -> None:
    assert ask(type="websocket", client=CLIENT, server=SERVER) == [{"type": "websocket.close"}]


@pytest.mark.parametrize("missing", ["client", "server"])
def test_a_request_from_nowhere_is_refused(own: list[Any], missing: str) -> None:
    scope: dict[str, Any] = {"type": "http", "client": CLIENT, "server": SERVER, missing: None}
    assert ask(**scope)[0]["status"] == 403


def test_the_start_and_end_of_a_server_are_nobodys_requests(own: list[Any]) -> None:
    assert ask(type="lifespan") == ["inside"]


def test_the_guard_is_outside_of_what_believes_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uvicorn trusts X-Forwarded-For of loopback clients, and so must come after the guard."""
    monkeypatch.setattr(uvicorn.Config, "load", uvicorn.Config.load)
    guard.guard_http()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("the app is not asked")

    config = uvicorn.Config(app)
    config.load()
    assert config.loaded_app.__qualname__ == guard.own_user_only(app).__qualname__


class Aborted(Exception):
    """What gRPC raises in a handler that aborts."""


def call(peer: str, address: str = "127.0.0.1:8080") -> Any:
    """Return what a guarded service answers to a caller."""

    def abort(code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)

    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: f"for {request}")
    guarded = OwnNodes(address).intercept_service(lambda details: handler, None)
    return guarded.unary_unary("node", SimpleNamespace(peer=lambda: peer, abort=abort))


def test_nodes_of_this_user_are_answered(own: list[Any]) -> None:
    own.append((CLIENT, SERVER))
    assert call("ipv4:127.0.0.1:40000") == "for node"


@pytest.mark.parametrize("peer", ["ipv4:127.0.0.1:40001", "ipv6:[::1]:40000", "unix:"])
def test_nodes_of_others_are_refused(own: list[Any], peer: str) -> None:
    own.append((CLIENT, SERVER))
    with pytest.raises(Aborted) as refused:
        call(peer)
    assert refused.value.args == (grpc.StatusCode.PERMISSION_DENIED, REFUSAL)


def test_an_unknown_method_stays_unknown() -> None:
    assert OwnNodes("127.0.0.1:8080").intercept_service(lambda details: None, None) is None


@pytest.mark.parametrize(
    ("command", "warning", "wrapped"),
    [
        (["flower-superlink"], "", {"http", "fleet"}),
        (["flower-superlink", "--enable-supernode-auth"], "", {"http"}),  # nodes may be elsewhere
        (["flower-supernode"], "", {"http"}),
        (["flower-superlink"], "others can reach it", set()),
    ],
)
def test_what_is_guarded(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    warning: str,
    wrapped: set[str],
) -> None:
    done: set[str] = set()
    monkeypatch.setenv("FLWR_INTERNAL_GRPC_CONTROL_API", "1")
    monkeypatch.setattr(guard, "exposure", lambda: warning)
    monkeypatch.setattr(guard, "guard_http", lambda: done.add("http"))
    monkeypatch.setattr(guard, "add_fleet_interceptor", lambda make: done.add("fleet"))
    monkeypatch.setattr(guard, "console_script", lambda name: lambda: "started")
    monkeypatch.setattr(guard, "can_fork", lambda: False)
    monkeypatch.setattr("sys.argv", [])
    assert guard.main(command) == "started"
    assert done == wrapped
    assert warning in capsys.readouterr().err
    assert "FLWR_INTERNAL_GRPC_CONTROL_API" not in os.environ, "a door that nobody watches"


@pytest.mark.parametrize("command", [[], ["flower-superlnk"]])
def test_another_service_is_a_sentence(command: list[str]) -> None:
    with pytest.raises(UserError, match="flower-superlink or flower-supernode"):
        guard.main(command)
