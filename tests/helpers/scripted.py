"""Nodes that answer with what a test wrote down, and a round with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict

from fedsuite.core.messages import Result, read_instructions, write_arrays, write_results
from fedsuite.core.vector import Vector
from fedsuite.engines.inline import InlineGrid
from fedsuite.nodes.simulated import SimulatedNodes
from strategies.base import BaseStrategy, RunInfo

Vec = list[float]
Strategy = TypeVar("Strategy", bound=BaseStrategy)


class ScriptedGrid(InlineGrid):
    """Nodes that answer with what a test wrote down."""

    def __init__(self, answer: Callable[[Message], Message], num_nodes: int = 2) -> None:
        super().__init__(num_nodes)
        self.answer = answer

    def _handle(self, message: Message) -> Message:
        if message.metadata.message_type == "query":
            place = message.metadata.dst_node_id - 1000
            node: dict[str, Any] = {"partition-id": place, "num-partitions": len(self._contexts)}
            node |= {"shares-disk": False}
            return Message(RecordDict({"node": ConfigRecord(node)}), reply_to=message)
        return self.answer(message)


def run_info(**changes: Any) -> RunInfo:
    settings: dict[str, Any] = {"num_clients": 3, "client_sizes": {0: 1, 1: 1, 2: 1}, "seed": 0}
    return RunInfo(**(settings | changes))


def result(client: int, update: Vec | np.ndarray, count: float = 1, **metrics: Any) -> Result:
    vector = np.asarray(update, dtype=np.float32)
    return Result(client, {"update": vector}, {"num-examples": count, **metrics})


def reply_with(results: dict[int, Result]) -> Callable[[Message], Message]:
    def answer(message: Message) -> Message:
        clients = read_instructions(message.content)
        return Message(write_results([results[c] for c in clients]), reply_to=message)

    return answer


def hosted(strategy: Strategy) -> Strategy:
    """Give a strategy simulated nodes, as the training loop does."""
    strategy.hosts = SimulatedNodes()
    return strategy


def one_round(
    strategy: BaseStrategy, answer: Callable[[Message], Message], model: Vec, number: int = 1
) -> Vector:
    grid = ScriptedGrid(answer)
    if not hasattr(strategy, "hosts"):
        hosted(strategy)
    arrays = write_arrays({"model": np.array(model, np.float32)})
    messages = strategy.configure_train(number, arrays, ConfigRecord(), grid)
    strategy.aggregate_train(number, grid.send_and_receive(messages))
    return strategy.model


UPDATES = {0: result(0, [1, 0], 1), 1: result(1, [0, 2], 3), 2: result(2, [4, 4], 4)}


def sent(
    strategy: BaseStrategy, phase: str = "train", buffers: int = 0, number: int = 4, **config: Any
) -> list[Message]:
    vectors = {"model": np.array([7, 8], np.float32)}
    if buffers:
        vectors["buffers"] = np.full(buffers, 5, np.float32)
    configure = {"train": strategy.configure_train, "evaluate": strategy.configure_evaluate}[phase]
    grid = ScriptedGrid(reply_with(UPDATES))
    return list(configure(number, write_arrays(vectors), ConfigRecord(config), grid))
