"""Replies of somebody who means harm: refused, named, and without any effect on the others."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import UPDATES, one_round, result, run_info

from fedsuite.core.messages import ProtocolError, pack, read_instructions, unpack, write_results
from fedsuite.nodes.queries import Refused, read_answer
from strategies.fedadw import FedAdw
from strategies.fedavg import FedAvg
from strategies.fedbac import FedBac


def honest(vector: Array | None = None, /, **metrics: Any) -> RecordDict:
    """Client 1's reply as it should be, but for what is given."""
    update = vector or pack(np.zeros(2, np.float32))
    numbers = {"num-examples": 1} | {k.replace("_", "-"): v for k, v in metrics.items()}
    return RecordDict(
        {"metrics.1": MetricRecord(numbers), "arrays.1": ArrayRecord({"update": update})}
    )


class Bomb:
    """Goes off when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("something a client sent was unpickled",)


def raw(data: bytes) -> Array:
    return Array(dtype="float32", shape=(2,), stype="numpy.ndarray", data=data)


def npy(header: str, body: bytes) -> Array:
    """An array whose header says what a test wants."""
    text = header.encode().ljust(117) + b"\n"
    return raw(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body)


def header(dtype: str, shape: str, order: str = "False") -> str:
    return f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}"


FORGED = "x\nfedsuite: results are in /evil"
ZEROS = pack(np.zeros(2, np.float32))


def many_metrics() -> RecordDict:
    return honest(**{f"m{number}": 1.0 for number in range(10**5)})


HOSTILE: dict[str, Callable[[], RecordDict]] = {
    "a pickle": lambda: honest(raw(pickle.dumps(Bomb()))),
    "an array of objects": lambda: honest(npy(header("'|O'", "(2,)"), pickle.dumps(Bomb()))),
    "no array at all": lambda: honest(raw(b"")),
    "half a header": lambda: honest(raw(b"\x93NUMPY\x01\x00\xff")),
    "nested brackets": lambda: honest(npy("(" * 100, b"")),
    "a negative length": lambda: honest(npy(header("'<f4'", "(-2,)"), b"\0" * 8)),
    "a length beyond its bytes": lambda: honest(npy(header("'<f4'", "(10**18,)"), b"\0" * 8)),
    "two negative lengths": lambda: honest(npy(header("'<f4'", "(-1, -2)"), b"\0" * 8)),
    "forty axes": lambda: honest(npy(header("'<f4'", "(1,) * 40"), b"\0" * 4)),
    "an axis beyond all numbers": lambda: honest(npy(header("'<f4'", f"(0, {2**70})"), b"")),
    "a name without end": lambda: honest(**{"x" * 10**5: 1.0}),
    "more bytes than its length": lambda: honest(npy(header("'<f4'", "(2,)"), b"\0" * 4096)),
    "whole numbers": lambda: honest(pack(np.zeros(2, np.int64))),
    "double precision": lambda: honest(pack(np.zeros(2, np.float64))),
    "complex numbers": lambda: honest(pack(np.zeros(2, np.complex64))),
    "a matrix": lambda: honest(pack(np.zeros((1, 2), np.float32))),
    "ten million numbers": lambda: honest(pack(np.zeros(10**7, np.float32))),
    "NaN": lambda: honest(pack(np.array([0, np.nan], np.float32))),
    "absurdly many samples": lambda: honest(num_examples=2**62),
    "no samples": lambda: honest(num_examples=0),
    "fewer than no samples": lambda: honest(num_examples=-1),
    "samples that are no number": lambda: honest(num_examples=float("nan")),
    "a list of samples": lambda: honest(num_examples=[1, 2]),
    "a loss beyond all measure": lambda: honest(loss=6e307),
    "a name that is markup": lambda: honest(**{"[bold red]x[/]": 1.0}),
    "a vector whose name forges a line": lambda: RecordDict(
        dict(honest()) | {"arrays.1": ArrayRecord({n: ZEROS for n in ("update", FORGED)})}
    ),
    "a header that forges a line": lambda: honest(npy(f"{{'{FORGED}': \n\x1b[31m", b"")),
    "an error of nothing": lambda: RecordDict({"error.1": ConfigRecord({"reason": " \n "})}),
    "absurdly many steps": lambda: honest(steps=1e300),
    "steps backwards": lambda: honest(steps=-5),
    "a hundred thousand metrics": many_metrics,
    "metrics that are settings": lambda: RecordDict({"metrics.1": ConfigRecord({"a": "b"})}),
    "vectors that are metrics": lambda: RecordDict(
        {"metrics.1": MetricRecord({"num-examples": 1}), "arrays.1": MetricRecord({"update": 1.0})}
    ),
    "an endless error": lambda: RecordDict({"error.1": ConfigRecord({"reason": "x" * 10**7})}),
    "nothing": RecordDict,
}


def playing(content: RecordDict) -> Callable[[Message], Message]:
    """Everybody answers as in UPDATES, client 1 with what is given."""

    def answer(message: Message) -> Message:
        mine = read_instructions(message.content)
        if 1 in mine:
            return Message(content, reply_to=message)
        return Message(write_results([UPDATES[c] for c in mine]), reply_to=message)

    return answer


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_reply_changes_nothing_for_the_others(case: str) -> None:
    """Without client 1: (1/5)(1,0) + (4/5)(4,4) = (3.4, 3.2)."""
    strategy = FedAvg(run_info())
    model = one_round(strategy, playing(HOSTILE[case]()), [0, 0])
    left_out = [row for row in strategy.round_record.rows if row["status"] == "failed"]
    np.testing.assert_allclose(model, [3.4, 3.2], rtol=1e-6)
    assert [row["client"] for row in left_out] == [1]
    reason = left_out[0]["reason"]
    assert 0 < len(reason.strip()) < 5000
    assert reason.isprintable()


def test_an_endless_client_id_is_nobody() -> None:
    """Python refuses to turn 5000 digits into a number; that must not end the run."""
    content = RecordDict(dict(honest()) | {f"metrics.{'9' * 5000}": MetricRecord()})
    strategy = FedAvg(run_info())
    one_round(strategy, playing(content), [0, 0])
    assert all(row["status"] == "ok" for row in strategy.round_record.rows)


def test_who_speaks_for_a_thousand_others_is_named_a_few_times() -> None:
    crowd = {f"metrics.{client}": MetricRecord({"num-examples": 1}) for client in range(5, 1005)}
    strategy = FedAvg(run_info())
    one_round(strategy, playing(RecordDict(dict(honest()) | crowd)), [0, 0])
    assert len([row for row in strategy.round_record.rows if row["status"] == "failed"]) == 10


@pytest.mark.parametrize(
    ("strategy", "metric", "value"),
    [
        (FedBac, "consensus", 1e30),
        (FedBac, "reliability", -1.0),
        (FedAdw, "discrepancy", -1e6),
    ],
)
def test_numbers_that_weigh_a_client_must_be_possible(
    strategy: type[FedAvg], metric: str, value: float
) -> None:
    """A client cannot buy itself weight."""
    fair = {"consensus": 0.5, "reliability": 0.5, "accuracy": 0.5, "discrepancy": 0.5}
    replies = {c: result(c, [1, 1], 1, steps=1, **fair) for c in range(3)}
    replies[1] = result(1, [9, 9], 1, steps=1, **(fair | {metric: value}))

    def answer(message: Message) -> Message:
        mine = read_instructions(message.content)
        return Message(write_results([replies[c] for c in mine]), reply_to=message)

    server = strategy(run_info())
    np.testing.assert_allclose(one_round(server, answer, [0, 0]), [1, 1], rtol=1e-6)
    assert metric in server.round_record.rows[0]["reason"]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    for content in (data, b"\x93NUMPY\x01\x00" + data, b"\x93NUMPY\x02\x00" + data):
        try:
            assert unpack(raw(content)).dtype.kind == "f"
        except ProtocolError:
            pass


ANSWERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "an unknown kind": {"kind": "spy"},
    "a partition without a number": {"kind": "partition", "partition-id": "0", "num-partitions": 2},
    "a negative partition": {"kind": "partition", "partition-id": -1, "num-partitions": 2},
    "endless partitions": {"kind": "partition", "partition-id": 0, "num-partitions": 2**60},
    "a short secret": {"kind": "own", "identity": "a", "description": "{}"},
    "a secret of half characters": {"kind": "own", "identity": "\udcff" * 32, "description": "{}"},
    "an endless secret": {"kind": "own", "identity": "a" * 10**6, "description": "{}"},
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_node_that_introduces_itself_badly_is_refused(case: str) -> None:
    question = Message(RecordDict(), 7, "query")
    reply = Message(RecordDict({"node": ConfigRecord(ANSWERS[case])}), reply_to=question)
    with pytest.raises(Refused):
        read_answer(7, reply)
