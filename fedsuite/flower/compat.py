"""The parts of Flower 1.39 that are not public and that this project needs.

Nothing outside this room imports any of them. When Flower changes, this is the file to begin with.
What else to look at is in the modules beside it: a variable of Flower's environment and what its
commands answer (:mod:`fedsuite.flower.commands`), its servers on uvicorn and gRPC
(:mod:`fedsuite.flower.guard`), how it starts processes (:mod:`fedsuite.flower.forks`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import httpx
from flwr.app import Context, Message
from flwr.cli.constant import DEFAULT_FLOWER_CONFIG_TOML
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = [
    "CLIENT_APP_FAILED",
    "DEFAULT_FLOWER_CONFIG_TOML",
    "FAST_POLLING",
    "KEYS_REQUIRED",
    "KEY_IN_USE",
    "SUPERNODE_CONNECTED",
    "SUPERNODE_POLLING",
    "TRANSPORT_ERRORS",
    "UNREADABLE_REPLY",
    "Run",
    "add_fleet_interceptor",
    "count_machines",
    "is_simulated",
    "make_run",
    "option_parsers",
    "poll_superlink",
    "prompt_delivery",
    "replace_dead_workers",
    "set_message_id",
    "set_source",
    "start_processes_with",
]

SIMULATION, SERVERAPP = "flwr-simulation", "flwr-serverapp"
SERVER_ID = 1
# How often to look for room for a worker in a Ray cluster that has lost a machine.
ROOM_SECONDS = 0.2
TASK_ID = 1
UNREADABLE_REPLY = ErrorCode.UNKNOWN
CLIENT_APP_FAILED = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
# What a grid raises when the SuperLink cannot be reached, as opposed to a reply it cannot read.
TRANSPORT_ERRORS = (httpx.HTTPError,)
# How often a guarded SuperNode asks its SuperLink for messages: a variable of the environment.
SUPERNODE_POLLING = "FEDSUITE_SUPERNODE_POLL_INTERVAL"
# How often processes look for new work, in seconds; Flower's own intervals are one and three.
FAST_POLLING = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25", SUPERNODE_POLLING: "0.5"}
# The option with which a SuperLink rejects SuperNodes without a registered key.
KEYS_REQUIRED = "--enable-supernode-auth"
EVERY_ADDRESS, LOOPBACK = ("", "0.0.0.0", "::", "[::]"), "127.0.0.1"
# What a SuperLink answers if a key is registered already.
KEY_IN_USE = "already in use"
# Which modules start a service's SuperExec, and a SuperExec's tasks.
STARTS_SUPEREXEC = {
    "flower-superlink": "flwr.superlink.cli.flower_superlink",
    "flower-supernode": "flwr.supernode.start_client_internal",
}
STARTS_TASKS = "flwr.supercore.superexec.executor.subprocess_executor"
# Lets a task install an app's dependencies, which may be other versions than those here.
INSTALLS = "--allow-runtime-dependency-installation"
# What a SuperNode logs once the SuperLink has accepted it.
SUPERNODE_CONNECTED = b"SuperNode ID"


def is_simulated(grid: Grid) -> bool:
    """Return whether nodes are simulated workers rather than real SuperNodes."""
    return grid.run.primary_task_type == SIMULATION


def make_run(run_id: int, simulated: bool = True) -> Run:
    """Make a run for a grid of our own, and let messages made in this process belong to it."""
    run = Run.create_empty(run_id=run_id)
    run.primary_task_type = SIMULATION if simulated else SERVERAPP
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = TASK_ID, run_id, SERVER_ID
    return run


@cache
def replace_dead_workers() -> None:
    """Let Flower's simulation start a new Ray worker in place of one that has died.

    Flower puts a dead worker back among the idle ones, where it fails every message that it is
    given. If its whole machine has died, its replacement waits until another has room for it; the
    other workers go on. To be called in the process of the simulation, in which the ServerApp is a
    thread.
    """
    import ray
    from flwr.simulation.ray_transport.ray_actor import BasicActorPool, pool_size_from_resources
    from ray.exceptions import (
        ActorDiedError,
        ActorUnavailableError,
        NodeDiedError,
        OutOfMemoryError,
        WorkerCrashedError,
    )

    deaths = (ActorDiedError, NodeDiedError, OutOfMemoryError, WorkerCrashedError)
    fetch = BasicActorPool.fetch_result_and_return_actor_to_pool
    put_back, submit = BasicActorPool.add_actor_back_to_pool, BasicActorPool.submit
    lock = threading.Lock()

    def fetch_or_forget(pool: Any, future: Any) -> tuple[Message, Context]:
        try:
            return fetch(pool, future)
        except deaths:
            forget(pool, future)
            raise
        except ActorUnavailableError:
            if not comes_back(pool._future_to_actor[future]):
                forget(pool, future)
            raise

    def comes_back(actor: Any) -> bool:
        """Wait until a worker can be reached again, or Ray has noticed that its machine died."""
        while True:
            try:
                ray.get(actor.__ray_ready__.remote())
                return True
            except ActorUnavailableError:
                time.sleep(ROOM_SECONDS)
            except deaths:
                return False

    def forget(pool: Any, future: Any) -> None:
        """Let nothing be put back when Flower's handler puts the worker of this future back."""
        pool._future_to_actor[future] = None
        with lock:
            pool.num_actors -= 1

    def put_back_or_replace(pool: Any, future: Any) -> None:
        if pool._future_to_actor[future] is None:
            del pool._future_to_actor[future]
            replace(pool)
        else:
            put_back(pool, future)

    def replace(pool: Any) -> None:
        with lock:
            if pool.num_actors < room_for(pool.client_resources):
                pool.add_actors_to_pool(1)

    def room_for(resources: dict[str, int | float]) -> int:
        try:
            return pool_size_from_resources(resources)
        except ValueError:  # for none
            return 0

    def submit_when_idle(pool: Any, actor_fn: Any, job: Any) -> Any:
        while True:
            try:
                return submit(pool, actor_fn, job)
            except IndexError:  # Flower has a thread for each worker that there was at first
                time.sleep(ROOM_SECONDS)
                replace(pool)

    setattr(BasicActorPool, fetch.__name__, fetch_or_forget)
    setattr(BasicActorPool, put_back.__name__, put_back_or_replace)
    setattr(BasicActorPool, submit.__name__, submit_when_idle)


@contextmanager
def prompt_delivery(grid: Grid) -> Iterator[None]:
    """Let a simulation's messages and replies arrive when they are sent, during a block.

    Flower looks for either every 0.1 s. Its thread for messages asks for those of one node after
    the other, and passes on what it is given: here an iterator over all that are sent.
    """
    from flwr.superlink.grid import InMemoryGrid

    if not isinstance(grid, InMemoryGrid):
        yield
        return
    simulation: Any = grid
    state, interval, pull = simulation.state, simulation.pull_interval, simulation.pull_messages
    get, store, store_reply = (
        state.get_message_ins,
        state.store_message_ins,
        state.store_message_res,
    )
    addressees, replied = SimpleQueue[int | None](), threading.Event()

    def store_and_tell(message: Message) -> Any:
        number = store(message)
        addressees.put(message.metadata.dst_node_id)
        return number

    def get_as_sent(node_id: int, limit: int) -> Iterator[Message]:
        for addressee in iter(addressees.get, None):
            yield from get(addressee, limit)

    def store_reply_and_tell(message: Message) -> Any:
        number = store_reply(message)
        replied.set()
        return number

    def pull_when_replied(message_ids: Iterable[str]) -> Any:
        replied.wait(interval)
        replied.clear()
        return pull(message_ids)

    hooks: dict[tuple[Any, str], Any] = {
        (state, "store_message_ins"): store_and_tell,
        (state, "get_message_ins"): get_as_sent,
        (state, "store_message_res"): store_reply_and_tell,
        (simulation, "pull_messages"): pull_when_replied,
    }
    for (owner, name), hook in hooks.items():
        setattr(owner, name, hook)
    simulation.pull_interval = 0.0
    try:
        yield
    finally:
        for owner, name in hooks:
            delattr(owner, name)
        simulation.pull_interval = interval
        addressees.put(None)


def count_machines() -> int:
    """Return how many machines compute a simulation of this process; 1 if it is without Ray."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return 1
    return len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]})


def add_fleet_interceptor(make: Callable[[str], Any]) -> None:
    """Give the SuperLink of this process one more gRPC interceptor, made from its address.

    To be called before the SuperLink is started; it intercepts what SuperNodes call. One that would
    listen on every address listens on loopback.
    """
    service = import_module("flwr.superlink.cli.flower_superlink")
    create = service.generic_create_grpc_server

    def create_with_interceptor(*, server_address: str, **options: Any) -> Any:
        host, _, port = server_address.rpartition(":")
        server_address = f"{LOOPBACK}:{port}" if host in EVERY_ADDRESS else server_address
        interceptors = [make(server_address), *(options.pop("interceptors", None) or [])]
        return create(server_address=server_address, interceptors=interceptors, **options)

    setattr(service, create.__name__, create_with_interceptor)


def poll_superlink(seconds: float) -> None:
    """Let the SuperNode of this process wait no longer than this before it looks for work again.

    To be called before the SuperNode is started.
    """
    service = import_module("flwr.supernode.start_client_internal")
    clock = SimpleNamespace(**vars(time))
    clock.sleep = lambda asked: time.sleep(min(asked, seconds))
    setattr(service, time.__name__, clock)


def start_processes_with(popen: Callable[..., Any], service: str) -> None:
    """Let a service of Flower, and its SuperExec, start their processes with this ``Popen``.

    To be called before the service is started, in the same process.
    """
    for name in (STARTS_SUPEREXEC[service], STARTS_TASKS):
        replaced = SimpleNamespace(**vars(subprocess) | {"Popen": popen})
        setattr(import_module(name), subprocess.__name__, replaced)


def set_message_id(message: Message, number: str) -> None:
    """Give a message the id that a SuperLink would have given it."""
    message.metadata.__dict__["_message_id"] = number


def set_source(message: Message, node_id: int) -> None:
    """Set whom a reply is from: known from the message it answers, not taken from the reply."""
    message.metadata.__dict__["_src_node_id"] = node_id


def option_parsers() -> dict[str, Callable[[], argparse.ArgumentParser]]:
    """Return what makes the argument parsers of Flower's services, by their names."""
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    return {
        "flower-superlink": _parse_args_run_superlink,
        "flower-supernode": _parse_args_run_supernode,
    }
