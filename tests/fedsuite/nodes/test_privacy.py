"""Privacy is a node's own: what it asks for, what it changes, and what it leaves alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict

from fedsuite.core.compression import Compression
from fedsuite.core.messages import Result, read_result, write_results
from fedsuite.core.protocol import INT8
from fedsuite.core.settings import UserError
from fedsuite.flower.compat import make_run
from fedsuite.nodes.privacy import local_privacy, read_privacy

PRIVATE = {"dp-clipping-norm": 0.5, "dp-epsilon": 1e9, "dp-delta": 1e-5}
UPDATE = np.array([3.0, 4.0], np.float32)


@pytest.fixture(autouse=True)
def run() -> None:
    """Let messages belong to some run."""
    make_run(1)


def exchange(
    results: list[Result], kind: str = "train", node_config: dict[str, Any] = PRIVATE
) -> Message:
    """Pass a reply with some results through the mod."""
    context = Context(1, 2, dict(node_config), RecordDict(), {})
    message = Message(RecordDict(), dst_node_id=2, message_type=kind)

    def answer(asked: Message, _: Context) -> Message:
        assert asked is message
        return Message(write_results(results), reply_to=asked)

    return local_privacy(message, context, answer)


def sent(reply: Message, client: int = 6) -> list[float]:
    return read_result(reply.content, client).arrays["update"].tolist()


def test_a_training_reply_is_clipped_and_keeps_its_numbers() -> None:
    """(3, 4) has length 5; clipped to 0.5 it is (0.3, 0.4), and the noise is 5e-9."""
    reply = exchange([Result(6, {"update": UPDATE}, {"num-examples": 9, "loss": 0.25})])
    assert sent(reply) == pytest.approx([0.3, 0.4], abs=1e-6)
    assert read_result(reply.content, 6).metrics == {"num-examples": 9, "loss": 0.25}


def test_a_short_update_is_not_stretched() -> None:
    short = np.array([0.03, 0.04], np.float32)
    assert sent(exchange([Result(6, {"update": short}, {})])) == pytest.approx(
        [0.03, 0.04], abs=1e-6
    )


@pytest.mark.parametrize("kind", ["evaluate", "query", "train.other"])
def test_other_messages_are_not_touched(kind: str) -> None:
    """What an evaluation or a query sends is no update: not clipped, noised or refused."""
    reply = exchange([Result(6, {"update": UPDATE}, {"loss": 1.0})], kind)
    assert sent(reply) == [3.0, 4.0]
    two = {"update": UPDATE, "counts": UPDATE}
    assert read_result(exchange([Result(6, two, {})], kind).content, 6).error == ""


def test_a_node_that_asks_for_none_sends_its_update_as_it_is() -> None:
    assert sent(exchange([Result(6, {"update": UPDATE}, {})], node_config={"other": 1})) == [3, 4]


def test_a_reply_without_vectors_passes() -> None:
    reply = exchange([Result(6, error="it broke")])
    assert read_result(reply.content, 6).error == "it broke"
    reply = exchange([Result(6, {}, {"loss": 1.0})])
    assert read_result(reply.content, 6) == Result(6, {}, {"loss": 1.0})


def test_a_failed_reply_passes() -> None:
    context = Context(1, 2, dict(PRIVATE), RecordDict(), {})
    message = Message(RecordDict(), dst_node_id=2, message_type="train")
    failed = Message(Error(7, "gone"), reply_to=message)
    assert local_privacy(message, context, lambda *_: failed) is failed


@pytest.mark.parametrize(
    "results",
    [
        [Result(6, {"update": UPDATE, "control": UPDATE}, {"loss": 1.0})],
        [Result(6, {"model": UPDATE}, {"loss": 1.0})],
        [Result(6, {"update": UPDATE}), Result(7, {"update": UPDATE})],
    ],
    ids=["two vectors", "another vector", "two clients"],
)
def test_more_than_an_update_does_not_leave_the_node(results: list[Result]) -> None:
    reply = exchange(results)
    assert not reply.content.array_records and "metrics.6" not in reply.content
    assert read_result(reply.content, 6).error == (
        "This node asks for privacy (dp-epsilon = 1e+09), but the algorithm sends more than an "
        "update of the model. Use another algorithm, or no privacy."
    )


def test_a_compressed_update_does_not_leave_the_node() -> None:
    reply = exchange([Result(6, {"update": UPDATE}, {}, forms={"update": Compression(INT8)})])
    assert not reply.content.array_records
    assert read_result(reply.content, 6).error == (
        "This node asks for privacy (dp-epsilon = 1e+09), but the run compresses updates. Use "
        "compression=none, or no privacy."
    )


def test_the_sensitivity_is_twice_the_norm_and_the_noise_follows() -> None:
    """The noise's std is sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon = 2 * 4.845 / 2."""
    guard = read_privacy({"dp-clipping-norm": 1.0, "dp-epsilon": 2.0, "dp-delta": 1e-5})
    assert guard is not None
    assert (guard.clipping_norm, guard.sensitivity) == (1.0, 2.0)
    assert (guard.epsilon, guard.delta) == (2.0, 1e-5)
    many = np.full(20_000, 1e-4, np.float32)
    noisy = {"dp-clipping-norm": 1.0, "dp-epsilon": 2.0, "dp-delta": 1e-5}
    noise = np.array(sent(exchange([Result(6, {"update": many}, {})], node_config=noisy)))
    expected = 2.0 * math.sqrt(2 * math.log(1.25 / 1e-5)) / 2.0
    assert noise.std() == pytest.approx(expected, rel=0.05) and abs(noise.mean()) < 0.2


def test_an_update_of_zeros_gets_its_noise_too() -> None:
    """A freeloader's first one: it must not be told apart, nor fail, for lack of a length."""
    noisy = PRIVATE | {"dp-epsilon": 1.0}
    zeros = np.zeros(3, np.float32)
    drawn = sent(exchange([Result(6, {"update": zeros}, {"steps": 1})], node_config=noisy))
    assert all(drawn)
    quiet = sent(exchange([Result(6, {"update": zeros}, {"steps": 1})]))
    assert quiet == pytest.approx([0, 0, 0], abs=1e-6)


def test_noise_is_drawn_anew_each_time_whatever_numpys_seed() -> None:
    noisy = PRIVATE | {"dp-epsilon": 1.0}
    draws = []
    for _ in range(2):
        draws.append(sent(exchange([Result(6, {"update": UPDATE}, {})], node_config=noisy)))
    assert draws[0] != draws[1]


def test_no_key_is_no_privacy() -> None:
    assert read_privacy({}) is None and read_privacy({"partition-id": 3}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"dp-epsilon": None},
        {"dp-epsilon": 0},
        {"dp-epsilon": -1.0},
        {"dp-epsilon": math.inf},
        {"dp-clipping-norm": 0.0},
        {"dp-clipping-norm": True},
        {"dp-clipping-norm": "0.5"},
        {"dp-delta": 1.0},
        {"dp-delta": math.nan},
    ],
    ids=str,
)
def test_privacy_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="privacy needs all three, positive, and dp-delta below 1"):
        read_privacy(PRIVATE | change)


@pytest.mark.parametrize("left_out", sorted(PRIVATE))
def test_all_three_are_needed(left_out: str) -> None:
    with pytest.raises(UserError, match=f"{left_out}=None"):
        read_privacy({key: value for key, value in PRIVATE.items() if key != left_out})


def test_whole_numbers_will_do() -> None:
    assert read_privacy({"dp-clipping-norm": 1, "dp-epsilon": 5, "dp-delta": 0.5}) is not None


def test_the_updates_exact_length_does_not_leave_the_node() -> None:
    """TACO's clients send it beside the update; without privacy it passes."""
    result = Result(6, {"update": UPDATE}, {"num-examples": 9, "norm": 5.0})
    assert read_result(exchange([result]).content, 6).metrics == {"num-examples": 9}
    freely = exchange([result], node_config={})
    assert read_result(freely.content, 6).metrics == {"num-examples": 9, "norm": 5.0}
