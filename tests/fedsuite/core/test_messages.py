"""What is written is read back; what is malformed is refused without harm."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsuite.core.compression import Compression
from fedsuite.core.messages import (
    MAX_METRICS,
    Instruction,
    ProtocolError,
    Result,
    clients_in,
    pack,
    read_instructions,
    read_result,
    read_state_round,
    unpack,
    write_arrays,
    write_instructions,
    write_results,
)
from fedsuite.core.protocol import INT8
from fedsuite.core.settings import UserError
from fedsuite.core.vector import Vector


@given(hnp.arrays(np.float32, st.integers(0, 50), elements=st.floats(width=32)))
def test_a_vector_survives_the_wire_bit_for_bit(vector: Vector) -> None:
    assert unpack(pack(vector)).tobytes() == vector.tobytes()


def test_arrays_are_flowers_own() -> None:
    vector = np.arange(3, dtype=np.float32)
    assert np.array_equal(pack(vector).numpy(), vector)


def test_each_client_reads_the_shared_records_and_its_own() -> None:
    shared = write_arrays({"model": np.ones(2, np.float32)})
    own = Instruction({"cloud": np.zeros(2, np.float32)}, {"alpha": 0.5}, {"zeta": 0.09})
    content = write_instructions(shared, {"lr": 0.1}, [(3, own), (1, Instruction())])
    back = read_instructions(content)
    assert list(back) == [3, 1]
    assert set(back[3].arrays) == {"model", "cloud"}
    assert back[3].config == {"lr": 0.1, "alpha": 0.5} and back[3].params == {"zeta": 0.09}
    assert set(back[1].arrays) == {"model"}
    assert back[1].config == {"lr": 0.1} and back[1].params == {}


def test_a_scalar_of_one_client_does_not_replace_the_rounds() -> None:
    own = [(3, Instruction(config={"lr": 0.5}))]
    with pytest.raises(UserError, match="invalid instruction for client 3: 'lr'"):
        write_instructions(write_arrays({}), {"lr": 0.1}, own)


def test_results_and_errors_travel_side_by_side() -> None:
    good = Result(2, {"update": np.ones(3, np.float32)}, {"num-examples": 5, "loss": 0.25})
    content = write_results([good, Result(4, error="it broke")])
    back = read_result(content, 2)
    assert np.array_equal(back.arrays["update"], np.ones(3)) and back.metrics == good.metrics
    assert read_result(content, 4).error == "it broke"
    assert "no result" in read_result(content, 7).error
    assert clients_in(content) == {2, 4}


class Bomb:
    """Would run code if anybody unpickled it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("something received was unpickled",))


def npy(array: np.ndarray) -> bytes:
    return pack(array).data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        pickle.dumps(Bomb()),
        npy(np.zeros(4, np.float32))[:-3],
        npy(np.zeros(4, np.float32)) + b"more",
        npy(np.zeros(4, np.int64)),
        npy(np.zeros(4, np.complex64)),
        npy(np.array(["text"])),
        b"\x93NUMPY\x09\x00" + b"\x00" * 64,
    ],
)
def test_a_malformed_array_becomes_the_clients_error(data: bytes) -> None:
    record = ArrayRecord({"update": Array("float32", (4,), "numpy.ndarray", data)})
    content = RecordDict({"arrays.0": record, "metrics.0": MetricRecord({"num-examples": 1})})
    assert read_result(content, 0).error


def test_an_object_array_is_not_unpickled() -> None:
    header = npy(np.zeros(1, np.float32)).replace(b"'<f4'", b"'|O' ")
    array = Array("object", (1,), "numpy.ndarray", header[:128] + pickle.dumps(Bomb()))
    with pytest.raises(ProtocolError):
        unpack(array)


@pytest.mark.parametrize(
    ("metrics", "word"),
    [
        ({"loss": float("nan")}, "loss"),
        ({"loss": [1.0, 2.0]}, "loss"),
        ({f"m{i}": 1.0 for i in range(MAX_METRICS + 1)}, "metrics"),
    ],
)
def test_hostile_metrics_become_the_clients_error(metrics: dict[str, Any], word: str) -> None:
    content = RecordDict({"metrics.0": MetricRecord(metrics)})
    assert word in read_result(content, 0).error


def test_a_reply_with_foreign_records_is_read_calmly() -> None:
    content = RecordDict({"weird": ConfigRecord({"x": 1}), "a.b": ConfigRecord({"x": 1})})
    assert clients_in(content) == set()


def reply(metrics: dict[str, Any]) -> RecordDict:
    return RecordDict({"metrics.0": MetricRecord(metrics)})


def test_limits_are_the_last_that_pass() -> None:
    """256 metrics, names of 100 characters, the last 4000 characters of an error."""
    assert read_result(reply({f"m{i}": 1.0 for i in range(256)}), 0).error == ""
    assert "257 metrics" in read_result(reply({f"m{i}": 1.0 for i in range(257)}), 0).error
    assert read_result(reply({"n" * 100: 1.0}), 0).metrics == {"n" * 100: 1.0}
    assert "1 to 100 letters" in read_result(reply({"n" * 101: 1.0}), 0).error
    said = read_result(write_results([Result(0, error="x" + "y" * 3999 + "z")]), 0).error
    assert said == "y" * 3999 + "z"


@pytest.mark.parametrize("name", ["acc@5", "train/loss", "top-1(%)", "f1:macro", "a+b=c"])
def test_names_of_metrics_that_are_in_use(name: str) -> None:
    assert read_result(reply({name: 1.0}), 0).metrics == {name: 1.0}


@pytest.mark.parametrize("sign", [*" $\\[]<>&|'\"`{}\n\x1b", "é"])
def test_names_of_metrics_that_something_would_interpret(sign: str) -> None:
    assert "1 to 100 letters" in read_result(reply({f"a{sign}b": 1.0}), 0).error


@pytest.mark.parametrize(
    ("said", "heard"), [(0, 0), (7, 7), (8, None), (2**62, None), (-1, None), (True, None)]
)
def test_a_state_is_of_a_round_until_now(said: int, heard: int | None) -> None:
    content = RecordDict({"state.3": ConfigRecord({"round": said})})
    assert read_state_round(content, 3, 7) == heard
    assert read_state_round(content, 4, 7) is None


def test_an_error_without_words_is_an_error() -> None:
    content = RecordDict({"error.5": ConfigRecord({})})
    assert read_result(content, 5) == Result(5, error="unknown error")


def test_clients_are_told_by_whole_numbers_of_nine_digits() -> None:
    names = ["metrics.7", "arrays.7", "error.999999999", "error.1000000000", "a.-3", "a.1.5", "b"]
    content = RecordDict({name: ConfigRecord({"x": 1}) for name in names})
    assert clients_in(content) == {7, 999999999}


def test_a_result_without_vectors_has_only_its_numbers() -> None:
    content = write_results([Result(1, {}, {"loss": 0.5}), Result(2, error="it broke")])
    assert set(content) == {"metrics.1", "error.2"}
    assert read_result(content, 1) == Result(1, {}, {"loss": 0.5})


def test_a_message_has_records_only_for_what_differs() -> None:
    shared = write_arrays({"model": np.ones(2, np.float32)})
    content = write_instructions(shared, {"lr": 0.1}, [(3, Instruction(params={"zeta": 1.0}))])
    assert set(content) == {"shared", "config", "params.3"}


def test_a_clients_own_vector_replaces_the_shared_one() -> None:
    shared = write_arrays({"model": np.ones(2, np.float32)})
    own = Instruction({"model": np.array([3, 4], np.float32)})
    back = read_instructions(write_instructions(shared, {}, [(0, own), (1, Instruction())]))
    assert back[0].arrays["model"].tolist() == [3, 4]
    assert back[1].arrays["model"].tolist() == [1, 1]


def test_arrays_of_several_axes_are_read_in_c_order_alone() -> None:
    matrix = np.arange(6, dtype=np.float64).reshape(2, 3)
    assert np.array_equal(unpack(pack(matrix)), matrix)
    data = npy(matrix).replace(b"'fortran_order': False", b"'fortran_order': True ")
    with pytest.raises(ProtocolError, match="C order"):
        unpack(Array("float64", (2, 3), "numpy.ndarray", data))
    flat = npy(np.arange(3, dtype=np.float32)).replace(b"_order': False", b"_order': True ")
    assert unpack(Array("float32", (3,), "numpy.ndarray", flat)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("shape", [b"(-2, -3)", b"(-1, -6)"])
def test_a_negative_shape_is_refused(shape: bytes) -> None:
    data = npy(np.arange(6, dtype=np.float32).reshape(2, 3)).replace(b"(2, 3), }  ", shape + b", }")
    with pytest.raises(ProtocolError):
        unpack(Array("float32", (2, 3), "numpy.ndarray", data))


@pytest.mark.parametrize("value", [True, "1", float("inf"), -float("inf")])
def test_only_finite_numbers_are_metrics(value: Any) -> None:
    from fedsuite.core.messages import _number

    with pytest.raises(ProtocolError, match="metric 'loss' is"):
        _number("loss", value)
    assert _number("loss", 3) == 3


def test_a_compressed_vector_is_restored_if_it_was_expected() -> None:
    """With m = 254 a level is 2."""
    eight = Compression(INT8)
    sent = Result(3, {"update": np.array([-254, 3, 8], np.float32)}, {}, forms={"update": eight})
    content = write_results([sent])
    (array,) = content.array_records["arrays.3"].values()
    assert (array.stype, len(array.data)) == ("fedsuite.int8", 7)
    assert read_result(content, 3, lengths={"update": 3}).arrays["update"].tolist() == [-254, 4, 8]
    for lengths in ({}, {"update": 4}, {"model": 3}):
        said = read_result(content, 3, lengths=lengths).error
        assert said == "vector 'update' is compressed, of another length"


def test_no_memory_is_taken_for_what_a_compressed_vector_claims() -> None:
    huge = Array("float32", (10**12,), "fedsuite.top-k", bytes(8))
    lying = Array("float32", (3,), "fedsuite.top-k", bytes(7))
    for array, said in ((huge, "of another length"), (lying, "7 bytes are not 3 numbers")):
        content = write_results([Result(0)])
        content["arrays.0"] = ArrayRecord({"update": array})
        assert said in read_result(content, 0, lengths={"update": 3}).error


def test_a_vector_that_is_not_finite_is_sent_as_it_is() -> None:
    broken = np.array([1.0, np.nan], np.float32)
    content = write_results(
        [Result(0, {"update": broken}, {}, forms={"update": Compression(INT8)})]
    )
    assert read_result(content, 0).arrays["update"].tobytes() == broken.tobytes()
