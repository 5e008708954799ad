"""Flower's services, for processes of this user alone.

``python -m fedsuite.flower.guard flower-superlink ...`` starts a SuperLink that answers nobody else
on the machine, and so does ``flower-supernode ...``. Flower 1.39 has no accounts: whoever reaches a
SuperLink's port can submit code to it, and whoever reaches a SuperNode's can take its work. Both
listen on loopback here, where the kernel tells whose process has opened a connection. SuperNodes
may be elsewhere if they need keys; without keys they are subject to the same check.

What a service starts in turn, a process per message among them, is forked from it on Linux (see
:mod:`fedsuite.flower.forks`), from before it was guarded: what an app serves is the app's affair.

With ``FEDSUITE_SUPERNODE_POLL_INTERVAL=0.5`` in its environment a SuperNode looks for messages
every half second, rather than every three seconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from typing import Any

import grpc
import uvicorn

from fedsuite.core.imports import collect_rarely
from fedsuite.core.peers import Address, is_own_peer
from fedsuite.core.settings import UserError, invalid
from fedsuite.flower.commands import SECOND_DOOR, exposure
from fedsuite.flower.compat import (
    KEYS_REQUIRED,
    SUPERNODE_POLLING,
    add_fleet_interceptor,
    poll_superlink,
    start_processes_with,
)
from fedsuite.flower.forks import ForkServer, can_fork, console_script

SUPERLINK = "flower-superlink"
SERVICES = (SUPERLINK, "flower-supernode")
LEAST_SECONDS, MOST_SECONDS = 0.01, 3.0
REFUSAL = "This service answers only processes of the user who started it."
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]


def main(command: Sequence[str]) -> Any:
    """Start a service of Flower with the guard, if this system can tell who connects."""
    if not command or command[0] not in SERVICES:
        raise UserError(f"Name a service of Flower to start: {' or '.join(SERVICES)}.")
    os.environ.pop(SECOND_DOOR, None)
    collect_rarely()  # its forks too, which import PyTorch
    service = console_script(command[0])
    if can_fork():  # first, since what follows is for the service and not for apps
        server = ForkServer()
        start_processes_with(server.popen, command[0])
        server.fork()
    if warning := exposure():
        print(f"fedsuite: {warning}", file=sys.stderr)
    else:
        guard_http()
        if command[0] == SUPERLINK and KEYS_REQUIRED not in command:
            add_fleet_interceptor(OwnNodes)
    if interval := os.environ.get(SUPERNODE_POLLING):
        poll_superlink(seconds_of(interval))
    sys.argv = list(command)
    return service()


def seconds_of(interval: str) -> float:
    """Read how often to look for messages; refuse what is no number of seconds."""
    try:
        seconds = float(interval)
    except ValueError:
        seconds = 0.0
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise invalid(
            SUPERNODE_POLLING,
            interval,
            f"it is a number of seconds from {LEAST_SECONDS} to {MOST_SECONDS}.",
        )
    return seconds


def guard_http() -> None:
    """Let every HTTP server of this process answer this user's processes alone."""
    load = uvicorn.Config.load

    def load_guarded(config: uvicorn.Config) -> None:
        load(config)
        config.loaded_app = own_user_only(config.loaded_app)

    setattr(uvicorn.Config, "load", load_guarded)  # noqa: B010 (mypy refuses an assignment)


def own_user_only(app: Asgi) -> Asgi:
    """Wrap an ASGI app so that other users are refused before it sees their request.

    It must be outermost: what a request says of its sender is not to be believed.
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or _is_own(scope.get("client"), scope.get("server")):
            await app(scope, receive, send)
        elif scope["type"] == "http":
            head = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 403, "headers": head})
            await send({"type": "http.response.body", "body": REFUSAL.encode()})
        else:
            await send({"type": "websocket.close"})

    return guarded


class OwnNodes(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses SuperNodes of other users at the port ``address``."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.server: Address = (host, int(port))

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Check whose process calls, then handle the call."""
        handler = continuation(details)
        if handler is None:
            return None
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._answer(handler.unary_unary, request, context),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _answer(self, answer: Any, request: Any, context: Any) -> Any:
        kind, _, client = context.peer().partition(":")
        host, _, port = client.rpartition(":")
        if kind != "ipv4" or not _is_own((host, int(port)), self.server):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, REFUSAL)
        return answer(request, context)


def _is_own(client: Any, server: Any) -> bool:
    return bool(client and server and is_own_peer(tuple(client), tuple(server)))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"fedsuite: {error}")
