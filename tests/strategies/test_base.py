"""A round by hand, and every way a reply can be bad."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message
from scripted import UPDATES, ScriptedGrid, hosted, one_round, reply_with, result, run_info

from fedsuite.core.messages import (
    Instruction,
    Result,
    read_instructions,
    write_arrays,
    write_results,
)
from fedsuite.core.settings import UserError
from fedsuite.core.vector import Vector
from strategies.avg import Avg
from strategies.base import Round
from strategies.fedavg import FedAvg, FedAvgParams
from strategies.fedprox_tailored import FedProxTailored
from strategies.taco import Taco


def test_fedavg_by_hand() -> None:
    """(1/8)(1,0) + (3/8)(0,2) + (4/8)(4,4) = (2.125, 2.75), added to w = (10, 20)."""
    model = one_round(FedAvg(run_info()), reply_with(UPDATES), [10, 20])
    assert np.array_equal(model, [12.125, 22.75])


def test_avg_by_hand_and_fedavg_uniform_is_the_same() -> None:
    """Mean of updates: (5/3, 2)."""
    model = one_round(Avg(run_info()), reply_with(UPDATES), [0, 0])
    np.testing.assert_allclose(model, [5 / 3, 2], rtol=1e-6)
    uniform = FedAvg(run_info(), FedAvgParams("uniform"))
    assert np.array_equal(one_round(uniform, reply_with(UPDATES), [0, 0]), model)


def test_the_servers_step_scales_the_move() -> None:
    """Half of (2.125, 2.75)."""
    model = one_round(FedAvg(run_info(server_lr=0.5)), reply_with(UPDATES), [0, 0])
    assert np.array_equal(model, [1.0625, 1.375])


def test_settings_that_differ_by_client_travel_to_it() -> None:
    """TACO's alpha is 0.1 for all before the first round: zeta = 0.1 (1 - 0.1)."""
    seen = {}

    def answer(message: Message) -> Message:
        instructions = read_instructions(message.content)
        seen.update({client: one.params for client, one in instructions.items()})
        return reply_with(UPDATES)(message)

    one_round(FedProxTailored(run_info()), answer, [0, 0])
    assert seen == {client: {"zeta": pytest.approx(0.09)} for client in range(3)}


class OwnRates(FedAvg):
    """Gives clients a learning rate that the server does not know of."""

    def instruction(self, client: int) -> Instruction:
        return Instruction(config={"lr": 0.5})


def test_a_learning_rate_for_one_client_is_refused() -> None:
    with pytest.raises(UserError, match="invalid instruction for client 0: 'lr' must be the same"):
        one_round(OwnRates(run_info()), reply_with(UPDATES), [0, 0])


def test_the_round_knows_the_learning_rate_that_was_sent() -> None:
    strategy = hosted(FedAvg(run_info(learning_rate=lambda number: 0.25 / number)))
    grid, sent = ScriptedGrid(reply_with(UPDATES)), []
    arrays = write_arrays({"model": np.zeros(2, np.float32)})
    configs: dict[int, dict[str, Any]] = {2: {}, 3: {"lr": 0.5}}
    for number, config in configs.items():
        messages = list(strategy.configure_train(number, arrays, ConfigRecord(config), grid))
        sent += [message.content.config_records["config"]["lr"] for message in messages]
        strategy.aggregate_train(number, grid.send_and_receive(messages))
        assert strategy.round_record.scalars["lr"] == sent[-1]
    assert set(sent[:2]) == {0.125} and set(sent[2:]) == {0.5}


BAD = {
    "NaN": result(1, [float("nan"), 0]),
    "infinite": result(1, [float("inf"), 0]),
    "expected float32[2]": result(1, [1, 2, 3]),
    "num-examples": result(1, [1, 2], 0),
    "invalid value 1.5 for num-examples": result(1, [1, 2], 1.5),
    "invalid value -3 for num-examples": result(1, [1, 2], -3),
    "invalid value": result(1, [1, 2], 10**12),
    "'loss' is nan": result(1, [1, 2], 1, loss=float("nan")),
    "is missing": Result(1, {}, {"num-examples": 1}),
    "was not asked for": Result(
        1, {"update": np.zeros(2, np.float32), "x": np.zeros(2, np.float32)}, {"num-examples": 1}
    ),
    "float64[2]": Result(1, {"update": np.zeros(2)}, {"num-examples": 1}),
    "it broke": Result(1, error="Traceback ...\nValueError: it broke"),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_reply_is_left_out_and_named(reason: str) -> None:
    """Without client 1: (1/5)(1,0) + (4/5)(4,4) = (3.4, 3.2)."""
    strategy = FedAvg(run_info())
    model = one_round(strategy, reply_with(UPDATES | {1: BAD[reason]}), [0, 0])
    np.testing.assert_allclose(model, [3.4, 3.2], rtol=1e-6)
    failed = [row for row in strategy.round_record.rows if row["status"] == "failed"]
    assert [row["client"] for row in failed] == [1]
    assert reason in failed[0]["reason"]
    assert strategy.round_record.scalars["failed"] == 1
    assert strategy.round_record.scalars["clients"] == 2


def test_a_node_that_fails_takes_only_its_own_clients() -> None:
    """Node 1 hosts client 1 alone (1 mod 2)."""

    def answer(message: Message) -> Message:
        if 1 in read_instructions(message.content):
            return Message(Error(1, "node on fire"), reply_to=message)
        return reply_with(UPDATES)(message)

    strategy = FedAvg(run_info())
    model = one_round(strategy, answer, [0, 0])
    np.testing.assert_allclose(model, [3.4, 3.2], rtol=1e-6)
    assert "node on fire" in strategy.round_record.rows[0]["reason"]


def test_a_node_cannot_answer_for_anothers_client() -> None:
    def answer(message: Message) -> Message:
        mine = [UPDATES[c] for c in read_instructions(message.content)]
        forged = [] if any(r.client == 1 for r in mine) else [result(1, [99, 99], 1000)]
        return Message(write_results(mine + forged), reply_to=message)

    strategy = FedAvg(run_info())
    assert np.array_equal(one_round(strategy, answer, [0, 0]), [2.125, 2.75])
    failed = [row for row in strategy.round_record.rows if row["status"] == "failed"]
    assert [(row["client"], "not asked" in row["reason"]) for row in failed] == [(1, True)]


def test_a_client_with_an_unknown_number_is_named_and_ignored() -> None:
    def answer(message: Message) -> Message:
        mine = [UPDATES[c] for c in read_instructions(message.content)]
        return Message(write_results([*mine, result(77, [9, 9])]), reply_to=message)

    strategy = FedAvg(run_info())
    assert np.array_equal(one_round(strategy, answer, [0, 0]), [2.125, 2.75])
    assert {row["client"] for row in strategy.round_record.rows if row["status"] == "failed"} == {
        77
    }


def test_no_valid_reply_keeps_the_model_and_says_so() -> None:
    broken = {c: Result(c, error="no") for c in range(3)}
    strategy = FedAvg(run_info())
    assert np.array_equal(one_round(strategy, reply_with(broken), [7, 8]), [7, 8])
    assert "does not change" in strategy.round_record.scalars["note"]


def test_too_few_valid_replies_keep_the_model() -> None:
    broken = UPDATES | {0: Result(0, error="no"), 1: Result(1, error="no")}
    strategy = FedAvg(run_info(min_train_clients=2))
    assert np.array_equal(one_round(strategy, reply_with(broken), [7, 8]), [7, 8])


@pytest.mark.parametrize(
    ("valid", "moved"), [([0, 1, 2], [10.125, 10.75]), ([1, 2], [8 + 16 / 7, 8 + 22 / 7])]
)
def test_exactly_min_train_clients_are_enough(valid: list[int], moved: list[float]) -> None:
    """Updates [1 0], [0 2], [4 4] of 1, 3, 4 rows: [1 0] + 3 [0 2] + 4 [4 4] = [17 22], over 8.

    Without client 0: [16 22] over 7. One valid reply fewer than the minimum moves nothing.
    """
    replies = {c: UPDATES[c] if c in valid else Result(c, error="no") for c in range(3)}
    start = [8.0, 8.0]
    enough = FedAvg(run_info(min_train_clients=len(valid)))
    assert np.allclose(one_round(enough, reply_with(replies), start), moved)
    assert "note" not in enough.round_record.scalars
    assert enough.round_record.scalars["clients"] == len(valid)
    too_few = FedAvg(run_info(min_train_clients=len(valid) + 1))
    assert np.array_equal(one_round(too_few, reply_with(replies), start), start)
    said = f"{len(valid)} valid replies, fewer than min-train-clients = {len(valid) + 1}"
    assert said in too_few.round_record.scalars["note"]


@pytest.mark.parametrize(
    ("fraction", "least", "count"), [(0.1, 1, 1), (0.1, 4, 4), (0.5, 4, 5), (0.1, 10, 10)]
)
def test_at_least_min_train_clients_are_sampled(fraction: float, least: int, count: int) -> None:
    sizes = dict.fromkeys(range(10), 1)
    info = run_info(
        num_clients=10, client_sizes=sizes, fraction_train=fraction, min_train_clients=least
    )
    drawn = hosted(FedAvg(info)).sample(1)
    assert len(drawn) == len(set(drawn)) == count


def test_an_overflowing_aggregate_keeps_the_model() -> None:
    huge = {c: result(c, [3e38, 3e38]) for c in range(3)}
    strategy = FedAvg(run_info(server_lr=100.0))
    assert np.array_equal(one_round(strategy, reply_with(huge), [7, 8]), [7, 8])
    assert "not finite" in strategy.round_record.scalars["note"]


def test_a_reply_that_never_comes_counts_as_failed() -> None:
    grid = ScriptedGrid(reply_with(UPDATES))
    strategy = hosted(FedAvg(run_info()))
    arrays = write_arrays({"model": np.zeros(2, np.float32)})
    messages = list(strategy.configure_train(1, arrays, ConfigRecord(), grid))
    strategy.aggregate_train(1, list(grid.send_and_receive(messages))[:1])
    reasons = [row["reason"] for row in strategy.round_record.rows if row["status"] == "failed"]
    assert reasons == ["no reply in time"]


def test_sampling_is_fixed_by_seed_and_round() -> None:
    def drawn(seed: int, number: int) -> list[int]:
        sizes = dict.fromkeys(range(100), 1)
        wide = run_info(num_clients=100, client_sizes=sizes, seed=seed, fraction_train=0.1)
        return hosted(FedAvg(wide)).sample(number)

    assert drawn(1, 1) == drawn(1, 1)
    assert len(set(drawn(1, 1))) == 10
    assert drawn(1, 1) != drawn(1, 2) and drawn(1, 1) != drawn(2, 1)


def test_an_expelled_client_is_never_sampled_again_also_after_restart() -> None:
    strategy, again = hosted(FedAvg(run_info())), hosted(FedAvg(run_info()))
    strategy.expelled = {1}
    again.load_state(strategy.state())
    assert again.sample(1) == strategy.sample(1) == [0, 2]


def test_buffers_are_averaged_by_samples() -> None:
    """(1*8 + 3*0 + 4*0)/8 = 1."""
    answers = {
        c: Result(
            c,
            {**r.arrays, "buffers": np.array([8.0 if c == 0 else 0.0], np.float32)},
            r.metrics,
        )
        for c, r in UPDATES.items()
    }
    strategy = hosted(FedAvg(run_info()))
    grid = ScriptedGrid(reply_with(answers))
    vectors = {"model": np.zeros(2, np.float32), "buffers": np.zeros(1, np.float32)}
    messages = strategy.configure_train(1, write_arrays(vectors), ConfigRecord(), grid)
    arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert isinstance(arrays, ArrayRecord)
    assert np.array_equal(strategy.buffers, [1.0])


def test_bytes_are_counted_per_client() -> None:
    """Two float32 each way for each of three clients: 24 bytes."""
    strategy = FedAvg(run_info())
    one_round(strategy, reply_with(UPDATES), [0, 0])
    assert strategy.round_record.scalars["upload_bytes"] == 24
    assert strategy.round_record.scalars["download_bytes"] == 24


def test_a_reply_without_buffers_is_left_out() -> None:
    strategy = hosted(FedAvg(run_info()))
    grid = ScriptedGrid(reply_with(UPDATES))
    vectors = {"model": np.zeros(2, np.float32), "buffers": np.zeros(1, np.float32)}
    messages = strategy.configure_train(1, write_arrays(vectors), ConfigRecord(), grid)
    strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert {row["reason"] for row in strategy.round_record.rows} == {"'buffers' is missing"}


def test_a_rejected_round_leaves_no_trace_in_the_strategy() -> None:
    """Updates of 3e38 overflow TACO's global gradient; the round after is as if it never was."""
    huge = {c: result(c, [3e38, 3e38], 1, steps=1) for c in range(3)}
    strategy = Taco(run_info(learning_rate=lambda number: 0.01))
    assert np.array_equal(one_round(strategy, reply_with(huge), [7, 8]), [7, 8])
    assert "not finite" in strategy.round_record.scalars["note"]
    assert strategy.gradient.size == 0 and (strategy.alpha == 0.1).all()


def test_one_number_of_the_aggregate_that_is_not_finite_is_enough() -> None:
    huge = {c: result(c, [3e38, 0]) for c in range(3)}
    strategy = FedAvg(run_info(server_lr=100.0))
    assert np.array_equal(one_round(strategy, reply_with(huge), [7, 8]), [7, 8])
    assert strategy.round_record.is_void
    one_round(strategy, reply_with(UPDATES), [7, 8])
    assert not strategy.round_record.is_void


@pytest.mark.parametrize("rate", [1.0, 2.0, 3.0])
def test_any_rate_of_the_server_scales_the_move(rate: float) -> None:
    model = one_round(FedAvg(run_info(server_lr=rate)), reply_with(UPDATES), [0, 0])
    assert np.array_equal(model, [2.125 * rate, 2.75 * rate])


def test_processor_time_is_summed_if_everybody_sent_it() -> None:
    seconds = {"cpu-seconds": 1.5}
    all_sent = {c: result(c, [1, 1], **seconds) for c in range(3)}
    for answers, expected in ((all_sent, 4.5), (all_sent | {1: result(1, [1, 1])}, None)):
        strategy = FedAvg(run_info())
        one_round(strategy, reply_with(answers), [0, 0])
        assert strategy.round_record.scalars["client_cpu_seconds"] == expected


class Overflowing(FedAvg):
    """Computes infinite numbers, and what is no number from them."""

    def aggregate(self, this_round: Round) -> Vector:
        infinite = this_round.updates[0] * np.float32(1e38)
        return infinite - infinite


def test_numbers_that_overflow_are_noted_and_not_warned_of() -> None:
    huge = {c: result(c, [1e38, 1]) for c in range(3)}
    strategy = Overflowing(run_info())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(one_round(strategy, reply_with(huge), [7, 8]), [7, 8])
    assert "not finite" in strategy.round_record.scalars["note"]
