"""What a strategy asks of its nodes and clients beside training, and what it notes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import ConfigRecord
from flwr.serverapp import Grid
from scripted import UPDATES, ScriptedGrid, hosted, one_round, reply_with, run_info

from fedsuite.core.messages import Instruction, Result, read_instructions, write_arrays
from fedsuite.core.protocol import SAVE_MODEL
from fedsuite.nodes.simulated import SimulatedNodes
from strategies.fedavg import FedAvg


class NewsyNodes(SimulatedNodes):
    """Nodes with news whenever they are looked for, a limit of time, and owners."""

    time_limit = 7.5  # type: ignore[assignment]

    def refresh(self, grid: Grid) -> None:
        super().refresh(grid)
        self._news.append("node 4 joined")

    def client_header(self, client: int) -> dict[str, str]:
        return {"owner": f"owner {client}"}


def newsy(**changes: Any) -> tuple[FedAvg, NewsyNodes, ScriptedGrid]:
    strategy, nodes = FedAvg(run_info(**changes)), NewsyNodes()
    strategy.hosts = nodes
    return strategy, nodes, ScriptedGrid(reply_with(UPDATES))


MODEL = write_arrays({"model": np.zeros(2, np.float32)})


def test_news_of_nodes_are_noted_in_their_round() -> None:
    """What is known before the messages go out, and what came up while they were out."""
    strategy, nodes, grid = newsy(personal_eval=True)
    messages = list(strategy.configure_train(1, MODEL, ConfigRecord(), grid))
    assert strategy.round_record.scalars["note"] == "node 4 joined"
    nodes._news.append("node 5 left")
    strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert strategy.round_record.scalars["note"] == "node 4 joined; node 5 left"
    list(strategy.configure_evaluate(1, MODEL, ConfigRecord(), grid))
    assert strategy.round_record.scalars["note"] == "node 4 joined; node 5 left; node 4 joined"


def test_a_message_says_how_long_it_is_valid_and_whose_client_it_is_for() -> None:
    strategy, _, grid = newsy()
    messages = list(strategy.configure_train(1, MODEL, ConfigRecord(), grid))
    assert {message.metadata.ttl for message in messages} == {7.5}
    sent = {c: one for m in messages for c, one in read_instructions(m.content).items()}
    assert {c: one.config["owner"] for c, one in sent.items()} == {
        client: f"owner {client}" for client in range(3)
    }
    assert {one.config["checkpoint-round"] for one in sent.values()} == {0}


class Scoring(FedAvg):
    """Sends for scores what it does not send for training."""

    def evaluation_broadcast(self) -> dict[str, np.ndarray]:
        return {"extra": np.ones(3, np.float32)}

    def evaluation_instruction(self, client: int) -> Instruction:
        return Instruction(config={"beta": client})


def test_what_clients_score_with_is_sent_for_that_alone() -> None:
    strategy, grid = hosted(Scoring(run_info(personal_eval=True))), ScriptedGrid(reply_with({}))
    vectors = {"model": np.zeros(2, np.float32), "buffers": np.full(1, 5, np.float32)}
    arrays, config = write_arrays(vectors), ConfigRecord()
    training = list(strategy.configure_train(1, arrays, config, grid))
    scoring = list(strategy.configure_evaluate(1, arrays, config, grid))
    for messages, names in ((training, set()), (scoring, {"extra"})):
        for message in messages:
            for client, one in read_instructions(message.content).items():
                assert set(one.arrays) == {"model", "buffers"} | names
                assert one.config.get("beta") == (client if names else None)


def test_clients_are_asked_to_save_their_models_whether_or_not_scores_are_due() -> None:
    saved = {c: Result(c, {}, {"num-examples": 1.0}) for c in (0, 2)} | {1: Result(1, error="no")}
    strategy, grid = hosted(FedAvg(run_info())), ScriptedGrid(reply_with(saved))
    assert list(strategy.configure_evaluate(3, MODEL, ConfigRecord(), grid)) == []
    request = ConfigRecord({SAVE_MODEL: True})
    messages = list(strategy.configure_evaluate(3, MODEL, request, grid))
    assert strategy.collect_saved(grid.send_and_receive(messages)) == [0, 2]
    failed = {"phase": "save", "client": 1, "status": "failed", "reason": "no"}
    assert strategy.round_record.rows == [failed]


def test_a_round_without_scores_asks_nobody_after_training() -> None:
    """Those asked to train are not missing among those who score, since nobody was asked."""
    strategy = FedAvg(run_info(personal_eval=True, num_rounds=9, eval_every=2))
    one_round(strategy, reply_with(UPDATES), [0, 0], number=3)
    grid = ScriptedGrid(reply_with(UPDATES))
    assert list(strategy.configure_evaluate(3, MODEL, ConfigRecord(), grid)) == []
    assert strategy.aggregate_evaluate(3, []) is None
    assert not {"note", "unscored"} & set(strategy.round_record.scalars)


def test_who_did_not_score_itself_is_counted_and_noted() -> None:
    for failing, note in (([], None), ([1], "round 1: 1 of 3 clients unscored")):
        right = {c: Result(c, {}, {"num-examples": 4.0, "correct": 3.0}) for c in range(3)}
        answers = right | {c: Result(c, error="no") for c in failing}
        strategy = hosted(FedAvg(run_info(personal_eval=True)))
        grid = ScriptedGrid(reply_with(answers))
        messages = list(strategy.configure_evaluate(1, MODEL, ConfigRecord(), grid))
        metrics = strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
        assert metrics is not None and metrics["personal-mean"] == 0.75
        assert strategy.round_record.scalars.get("note") == note
        assert strategy.round_record.scalars.get("unscored") == (len(failing) or None)
