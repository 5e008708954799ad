"""Dead Ray workers are replaced as far as there is room, and messages arrive when they are sent."""

from __future__ import annotations

import threading
from importlib import import_module
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Message, MessageType, RecordDict
from flwr.server.superlink.fleet.vce.vce_api import add_messages_to_queue
from flwr.simulation.ray_transport import ray_actor
from flwr.simulation.ray_transport.ray_actor import BasicActorPool
from flwr.superlink.grid import InMemoryGrid
from ray import exceptions

from fedsuite.engines.inline import InlineGrid
from fedsuite.flower.compat import (
    add_fleet_interceptor,
    make_run,
    prompt_delivery,
    replace_dead_workers,
)

DEATHS = ("ActorDiedError", "OutOfMemoryError", "NodeDiedError", "WorkerCrashedError")


REPLACED = ("fetch_result_and_return_actor_to_pool", "add_actor_back_to_pool", "submit")
# Taken before any test runs: a simulated run replaces them for the rest of its process.
FLOWERS_OWN = {name: getattr(BasicActorPool, name) for name in REPLACED}


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Flower's pool of two workers: ``old`` computes ``f``, ``other`` is idle."""
    for name, method in FLOWERS_OWN.items():
        monkeypatch.setattr(BasicActorPool, name, method)
    monkeypatch.setattr("fedsuite.flower.compat.ROOM_SECONDS", 0.0)
    made: Any = BasicActorPool.__new__(BasicActorPool)
    made.pool, made.num_actors, made._future_to_actor = ["other"], 2, {"f": "old"}
    made.client_resources, made.create_actor_fn = {"num_cpus": 1}, lambda: "new"
    return made


def lose(
    pool: Any, raised: BaseException, room: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the worker of ``f`` fail, in a cluster with room for so many workers, time after time."""

    def fetch_result_and_return_actor_to_pool(pool: Any, future: Any) -> None:
        raise raised

    def size(resources: dict[str, int]) -> int:
        if not room[0]:
            raise ValueError("ActorPool is empty")
        return room.pop(0)

    name = fetch_result_and_return_actor_to_pool.__name__
    monkeypatch.setattr(BasicActorPool, name, fetch_result_and_return_actor_to_pool)
    monkeypatch.setattr(ray_actor, "pool_size_from_resources", size)
    replace_dead_workers.__wrapped__()
    with pytest.raises(type(raised)):
        pool.fetch_result_and_return_actor_to_pool("f")
    pool.add_actor_back_to_pool("f")  # as Flower's handler does
    assert pool._future_to_actor == {}


@pytest.mark.parametrize("death", [*DEATHS, "RayTaskError", ""])
def test_a_dead_worker_is_replaced_and_a_living_one_stays(
    death: str, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    error: Any = getattr(exceptions, death, ValueError)
    lose(pool, error.__new__(error), [2], monkeypatch)
    assert pool.pool == ["other", "new" if death in DEATHS else "old"]
    assert pool.num_actors == 2


@pytest.mark.parametrize("room", [0, 1])
def test_without_room_a_dead_worker_is_not_replaced(
    room: int, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that Ray cannot place would keep the message that it is given for ever."""
    error: Any = exceptions.NodeDiedError
    lose(pool, error.__new__(error), [room], monkeypatch)
    assert pool.pool == ["other"] and pool.num_actors == 1


def test_a_message_waits_for_a_worker_until_there_is_room(
    pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    error: Any = exceptions.NodeDiedError
    room = [1, 1, 1, 2]
    lose(pool, error.__new__(error), room, monkeypatch)
    job = ("app", "message", "0", "context")
    assert pool.submit(lambda actor, *job: actor, job) == "other"
    assert pool.submit(lambda actor, *job: actor, job) == "new"
    assert room == [] and pool.num_actors == 2


@pytest.mark.parametrize("death", ["", "ActorDiedError"])
def test_an_unreachable_worker_is_waited_for_until_it_answers_or_is_dead(
    death: str, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray notices only after a while that a machine has died."""
    unreachable: Any = exceptions.ActorUnavailableError
    error: Any = getattr(exceptions, death, None)
    answers = [unreachable, unreachable, error]

    def get(question: object) -> None:
        if answer := answers.pop(0):
            raise answer.__new__(answer)

    monkeypatch.setattr("ray.get", get)
    worker = SimpleNamespace(__ray_ready__=SimpleNamespace(remote=lambda: "ready?"))
    pool._future_to_actor["f"] = worker
    lose(pool, unreachable.__new__(unreachable), [2], monkeypatch)
    assert answers == []
    assert pool.pool == ["other", "new" if death else worker]


class Store:
    """As much of Flower's store of messages as delivery needs."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.replies: list[Message] = []

    def store_message_ins(self, message: Message) -> str:
        self.messages.append(message)
        return message.metadata.message_id

    def get_message_ins(self, node_id: int, limit: int) -> list[Message]:
        found = [m for m in self.messages if m.metadata.dst_node_id == node_id][:limit]
        self.messages = [m for m in self.messages if m not in found]
        return found

    def store_message_res(self, message: Message) -> None:
        self.replies.append(message)

    def get_message_res(self, message_ids: set[str], run_id: int) -> list[Message]:
        found, self.replies = self.replies, []
        return found

    def delete_messages(self, message_ins_ids: set[str]) -> None:
        pass


def test_messages_and_replies_are_delivered_as_they_are_sent() -> None:
    """Flower's own threads would look for them now and then; here they would wait for a minute."""
    store: Any = Store()
    grid = InMemoryGrid(SimpleNamespace(state=lambda: store), 60.0)  # type: ignore[arg-type]
    grid._run = make_run(1)
    stop, queue = threading.Event(), Queue[Message]()
    looked, wait = threading.Event(), stop.wait

    def wait_long(timeout: float | None = None) -> bool:
        looked.set()
        return wait(60)

    stop.wait = wait_long  # type: ignore[method-assign]
    thread = threading.Thread(
        target=add_messages_to_queue, args=(store, queue, {7: 0, 8: 1}, stop), daemon=True
    )

    def work() -> None:
        for _ in range(4):
            reply = Message(RecordDict(), reply_to=queue.get(timeout=30))
            store.store_message_res(reply)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    with prompt_delivery(grid):
        thread.start()
        for nodes in ([8, 7, 8], [7]):
            messages = [Message(RecordDict(), node, MessageType.TRAIN) for node in nodes]
            replies = grid.send_and_receive(messages, timeout=30)
            assert [reply.metadata.src_node_id for reply in replies] == nodes
        assert not looked.is_set()
    assert looked.wait(30)
    assert grid.pull_interval == 60.0
    assert "pull_messages" not in vars(grid) and set(vars(store)) == {"messages", "replies"}
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_another_grid_delivers_as_it_does() -> None:
    grid = InlineGrid()
    with prompt_delivery(grid):
        assert not vars(grid).keys() & {"pull_messages", "pull_interval"}


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("0.0.0.0:9092", "127.0.0.1:9092"),
        ("[::]:9092", "127.0.0.1:9092"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("192.0.2.7:9092", "192.0.2.7:9092"),
    ],
)
def test_a_guarded_superlink_listens_at_one_address(
    monkeypatch: pytest.MonkeyPatch, asked: str, given: str
) -> None:
    """Who has a connection to "any address" cannot be told."""
    service: Any = import_module("flwr.superlink.cli.flower_superlink")
    made: list[Any] = []

    def create(**options: Any) -> None:
        made.append(options)

    create.__name__ = "generic_create_grpc_server"
    monkeypatch.setattr(service, "generic_create_grpc_server", create)
    add_fleet_interceptor(lambda address: f"guard of {address}")
    service.generic_create_grpc_server(server_address=asked, interceptors=["Flower's"])
    assert made == [{"server_address": given, "interceptors": [f"guard of {given}", "Flower's"]}]
