"""What a round sends, asks, checks and records, number by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from scripted import UPDATES, ScriptedGrid, hosted, one_round, reply_with, result, run_info, sent

from fedsuite.core.messages import (
    Instruction,
    Result,
    read_instructions,
    write_arrays,
)
from fedsuite.core.seeds import generator
from fedsuite.core.vector import Vector
from strategies.avg import Avg
from strategies.base import Round
from strategies.fedavg import FedAvg
from strategies.local import Local
from strategies.round import RunInfo, grow_client_axes, round_half_up

TIMED = {
    0: result(0, [1, 0], 1, loss=8.0, seconds=2.0, steps=5),
    1: result(1, [0, 2], 3, loss=0.0, seconds=3.0, steps=6),
    2: result(2, [4, 4], 4, loss=1.0, seconds=0.5, steps=7),
}


def test_the_record_of_a_round_by_hand() -> None:
    """Loss (1*8 + 3*0 + 4*1)/8 = 1.5; the slowest client took 3 s, all of them 5.5 s."""
    strategy = FedAvg(run_info(learning_rate=lambda number: 0.25))
    strategy.expelled = {9}
    one_round(strategy, reply_with(TIMED), [0, 0])
    expected = {
        "clients": 3,
        "failed": 0,
        "train_loss": 1.5,
        "compute_seconds": 3.0,
        "client_compute_seconds": 5.5,
        "upload_bytes": 24,
        "download_bytes": 24,
        "lr": 0.25,
        "expelled": 1,
    }
    assert expected.items() <= strategy.round_record.scalars.items()
    assert "note" not in strategy.round_record.scalars
    assert strategy.round_record.rows[1] == {
        "phase": "train",
        "client": 1,
        "status": "ok",
        "num_examples": 3,
        "loss": 0.0,
        "seconds": 3.0,
        "steps": 6,
        "upload_bytes": 8,
        "weight": 0.375,
    }


def test_a_record_is_of_its_round_alone() -> None:
    strategy = FedAvg(run_info())
    one_round(strategy, reply_with(UPDATES | {1: Result(1, error="no")}), [0, 0])
    one_round(strategy, reply_with(UPDATES), [0, 0], number=2)
    assert [row["client"] for row in strategy.round_record.rows] == [0, 1, 2]
    assert strategy.round_record.scalars["failed"] == 0


def test_a_client_cannot_write_the_servers_columns() -> None:
    """A metric named like one of the record's own does not replace it."""
    forged = {"phase": 5, "client": 6, "status": 7, "round": 8, "upload-bytes": 9, "my-own": 0.5}
    answers = UPDATES | {0: Result(0, UPDATES[0].arrays, {"num-examples": 1, **forged})}
    strategy = FedAvg(run_info())
    one_round(strategy, reply_with(answers), [0, 0])
    row = strategy.round_record.rows[0]
    assert (row["phase"], row["client"], row["status"]) == ("train", 0, "ok")
    assert "round" not in row and row["upload_bytes"] == 8 and row["my_own"] == 0.5


def test_what_a_round_hands_to_the_algorithm() -> None:
    seen: list[Round] = []

    class Watching(FedAvg):
        def aggregate(self, this_round: Round) -> Vector:
            seen.append(this_round)
            return super().aggregate(this_round)

    one_round(Watching(run_info(learning_rate=lambda n: 0.5 / n)), reply_with(TIMED), [7, 8], 2)
    (this_round,) = seen
    assert (this_round.number, this_round.lr, this_round.clients) == (2, 0.25, [0, 1, 2])
    assert this_round.model.tolist() == [7, 8]
    assert this_round.updates.tolist() == [[1, 0], [0, 2], [4, 4]]
    assert this_round.num_examples.tolist() == [1, 3, 4]
    assert this_round.num_steps.tolist() == [5, 6, 7]
    assert this_round.buffers.shape == (3, 0)
    assert this_round.metric("loss").tolist() == [8, 0, 1]


def test_steps_loss_and_seconds_may_be_missing() -> None:
    strategy = FedAvg(run_info())
    one_round(strategy, reply_with(UPDATES), [0, 0])
    numbers = strategy.round_record.scalars
    assert (numbers["train_loss"], numbers["compute_seconds"]) == (0.0, 0.0)


class Talkative(FedAvg):
    """Sends vectors and scalars of its own."""

    def broadcast(self) -> dict[str, Vector]:
        return {"extra": np.zeros(3, np.float32)}

    def training_start(self) -> Vector:
        return self.model + 1

    def instruction(self, client: int) -> Instruction:
        own = {"cloud": np.zeros(client, np.float32)}
        return Instruction(own, {"alpha": float(client)})


def test_messages_carry_the_start_the_round_and_what_is_each_clients_own() -> None:
    strategy = hosted(Talkative(run_info(learning_rate=lambda number: 0.1 * number)))
    strategy.checkpoint_round = 2
    messages = sent(strategy, buffers=1)
    assert [sorted(read_instructions(m.content)) for m in messages] == [[0, 2], [1]]
    read = read_instructions(messages[0].content)
    assert read[2].arrays["model"].tolist() == [8, 9]
    assert {name: len(vector) for name, vector in read[2].arrays.items()} == {
        "model": 2, "buffers": 1, "extra": 3, "cloud": 2,
    }  # fmt: skip
    config = read[2].config
    assert (config["round"], config["checkpoint-round"], config["alpha"]) == (4, 2, 2.0)
    assert config["lr"] == pytest.approx(0.4)
    assert {m.metadata.message_type for m in messages} == {"train"}
    assert {m.metadata.group_id for m in messages} == {"4"}


def test_bytes_down_are_the_shared_vectors_and_each_clients_own() -> None:
    """Shared 2 + 3 numbers, own 0, 1 and 2: (15 + 3) * 4 bytes."""
    strategy = Talkative(run_info())
    one_round(strategy, reply_with(UPDATES), [0, 0])
    assert strategy.round_record.scalars["download_bytes"] == 72


def test_clients_score_the_model_itself_and_not_where_training_starts() -> None:
    strategy = hosted(Talkative(run_info(personal_eval=True)))
    (first, *_) = sent(strategy, "evaluate")
    assert read_instructions(first.content)[0].arrays["model"].tolist() == [7, 8]
    assert first.metadata.message_type == "evaluate"


def test_a_method_without_a_shared_model_sends_none() -> None:
    strategy = hosted(Local(run_info()))
    (first, *_) = sent(strategy, buffers=1)
    assert read_instructions(first.content)[0].arrays == {}


@pytest.mark.parametrize(
    ("number", "changes", "asks"),
    [
        (4, {"eval_every": 2}, True),
        (3, {"eval_every": 2}, False),
        (9, {"eval_every": 2}, True),  # the last round
        (4, {"eval_every": 2, "personal_eval": False}, False),
        (9, {"eval_every": 2, "personal_eval": False}, False),
    ],
)
def test_clients_are_asked_for_scores_when_due(
    number: int, changes: dict[str, Any], asks: bool
) -> None:
    strategy = hosted(FedAvg(run_info(**{"num_rounds": 9, "personal_eval": True} | changes)))
    assert bool(sent(strategy, "evaluate", number=number)) == asks
    if not asks:
        assert strategy.aggregate_evaluate(number, []) is None


def test_notes_of_a_round_are_joined() -> None:
    strategy = FedAvg(run_info())
    strategy._note("one")
    strategy._note("two")
    assert strategy.round_record.scalars["note"] == "one; two"


@pytest.mark.parametrize(
    ("fraction", "least", "expelled", "count"),
    [
        (0.25, 1, 0, 3),  # 2.5 is rounded up
        (0.24, 1, 0, 2),
        (0.01, 1, 0, 1),
        (0.1, 4, 0, 4),
        (0.5, 1, 7, 3),
        (1.0, 1, 0, 10),
    ],
)
def test_how_many_clients_are_drawn(fraction: float, least: int, expelled: int, count: int) -> None:
    sizes = dict.fromkeys(range(10), 1)
    info = run_info(
        num_clients=10, client_sizes=sizes, fraction_train=fraction, min_train_clients=least
    )
    strategy = hosted(FedAvg(info))
    strategy.expelled = set(range(expelled))
    drawn = strategy.sample(1)
    assert len(drawn) == len(set(drawn)) == count and drawn == sorted(drawn)
    assert not set(drawn) & strategy.expelled


def test_clients_are_drawn_by_the_seeds_generator() -> None:
    sizes = dict.fromkeys(range(10), 1)
    info = run_info(num_clients=10, client_sizes=sizes, fraction_train=0.3, seed=5)
    wanted = generator(5, "sample", 7).choice(range(10), 3, replace=False)
    assert hosted(FedAvg(info)).sample(7) == sorted(wanted.tolist())


@pytest.mark.parametrize(("value", "rounded"), [(2.5, 3), (2.49, 2), (0.5, 1), (0.0, 0), (3.0, 3)])
def test_halves_are_rounded_up(value: float, rounded: int) -> None:
    assert round_half_up(value) == rounded


def test_axes_of_clients_grow_and_others_stay() -> None:
    """From 2 to 3 clients; a (2, 2) relation becomes (3, 3) with the fresh one's last row."""
    old = np.array([[1.0, 2.0], [3.0, 4.0]])
    fresh = np.arange(9.0).reshape(3, 3) * 10
    grown = grow_client_axes(old, fresh, 2, 3)
    assert grown.tolist() == [[1, 2, 20], [3, 4, 50], [60, 70, 80]]
    # A (2, 4) history whose second axis is not of clients, and is longer than a fresh one's.
    old, fresh = np.ones((2, 4), np.float32), np.full((3, 1), 7.0)
    grown = grow_client_axes(old, fresh, 2, 3)
    assert grown.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [7, 0, 0, 0]]
    assert grown.dtype == np.float32
    same = grow_client_axes(np.ones(4), np.zeros(4), 2, 3)
    assert same.tolist() == [1, 1, 1, 1]


class Remembering(Avg):
    """Keeps a number per client, starting at the number of clients, and a note."""

    def __init__(self, info: RunInfo, params: Any = None) -> None:
        super().__init__(info, params)
        self.numbers = np.full(info.num_clients, float(info.num_clients))
        self.word = "old"

    def state(self) -> dict[str, Any]:
        return super().state() | {"numbers": self.numbers, "word": self.word}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.numbers, self.word = state["numbers"], state["word"]


def test_clients_that_join_start_afresh_and_the_others_keep_theirs() -> None:
    strategy = Remembering(run_info())
    strategy.numbers[:] = [5, 6, 7]
    strategy.word, strategy.expelled = "new", {2}
    strategy.grow(run_info(num_clients=4))
    assert strategy.numbers.tolist() == [5, 6, 7, 4]
    assert (strategy.word, strategy.expelled, strategy.info.num_clients) == ("new", {2}, 4)


def test_a_number_that_is_not_finite_takes_the_whole_state_back() -> None:
    class Overflowing(Remembering):
        def aggregate(self, this_round: Round) -> Vector:
            self.numbers = self.numbers * np.inf
            self.expelled.add(1)
            return this_round.model + 1

    strategy = Overflowing(run_info())
    assert one_round(strategy, reply_with(UPDATES), [7, 8]).tolist() == [7, 8]
    assert strategy.numbers.tolist() == [3, 3, 3] and strategy.expelled == set()
    assert strategy.round_record.scalars["note"] == (
        "round 1: the aggregate is not finite; the model does not change"
    )


def test_too_few_replies_are_counted_and_the_least_will_do() -> None:
    two = UPDATES | {0: Result(0, error="no")}
    strategy = FedAvg(run_info(min_train_clients=2))
    one_round(strategy, reply_with(two), [0, 0])
    assert "note" not in strategy.round_record.scalars
    strategy = FedAvg(run_info(min_train_clients=3))
    one_round(strategy, reply_with(two), [0, 0])
    assert strategy.round_record.scalars == {
        "clients": 2,
        "failed": 1,
        "note": "round 1: 2 valid replies, fewer than min-train-clients = 3; the model does not "
        "change",
    }


def test_what_flower_is_told_of_a_round() -> None:
    strategy = hosted(FedAvg(run_info()))
    grid = ScriptedGrid(reply_with(TIMED))
    arrays = write_arrays({"model": np.zeros(2, np.float32), "buffers": np.zeros(0, np.float32)})
    messages = strategy.configure_train(1, arrays, ConfigRecord(), grid)
    told, metrics = strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert dict(metrics or {}) == {"clients": 3, "train-loss": 1.5}
    assert told is not None and list(told) == ["model"]
    strategy.buffers = np.ones(1, np.float32)
    assert list(strategy.arrays()) == ["model", "buffers"]
