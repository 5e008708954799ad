"""What travels between server and nodes.

One message per node per round carries a *cohort*: the sampled clients that live there. Vectors
that all of them receive travel once. The reply carries one result, or one error, per client.

=====================  ==============================================================
record                 content
=====================  ==============================================================
``shared``             vectors for every client of the cohort (``model``, ``buffers``)
``config``             scalars for every client, the run's settings, ``clients``
``arrays.<client>``    vectors for, or from, one client
``places.<client>``    references to where the vectors of one client's result go
``config.<client>``    scalars for one client
``params.<client>``    settings of the algorithm that differ for one client
``metrics.<client>``   numbers from one client
``error.<client>``     the error of one client
``state.<client>``     the round of the newest state that a deployed client has on its disk
``score.<client>``     numbers of one client's score, beside the result of its training
=====================  ==============================================================

Arrays are plain ``.npy`` bytes, as Flower's own; nothing received is ever unpickled. Those of
clients may be compressed (:mod:`fedsuite.core.compression`), and are restored when read. In a
simulation on one machine they are references to files (:mod:`fedsuite.core.vector_files`), which
only a reader with a ``resolve`` follows; for all others a reference breaks the protocol.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedsuite.core.compression import Compression
from fedsuite.core.protocol import INT8, TOP_K
from fedsuite.core.settings import UserError
from fedsuite.core.text import clean_line, clean_lines
from fedsuite.core.vector import Vector
from fedsuite.core.vector_files import Reference

MAX_METRICS = 256
MAX_COUNTS = 100_000
MAX_REASON = 4000
MAX_DIGITS = 9
NAME_SIGNS = "._-/@:+=%#~^*(),!"  # none that figures, HTML or terminals interpret
METRIC_NAME = re.compile(rf"[A-Za-z0-9{re.escape(NAME_SIGNS)}]{{1,100}}")
REFERENCE = "fedsuite.reference"  # the serialisation type of an array that is a reference
LONGEST_REFERENCE = 1000
COMPRESSED = {f"fedsuite.{kind}": Compression(kind) for kind in (INT8, TOP_K)}


class ProtocolError(ValueError):
    """A received record does not follow the protocol."""


Resolve = Callable[[str, Reference], np.ndarray]  # a vector's name and its place -> the vector


@dataclass(frozen=True)
class Instruction:
    """What the server sends one client: vectors and scalars by name.

    ``params`` are settings of the algorithm that differ for this client, by field name. ``places``
    are where the vectors of its result go; one without a place goes into the reply.
    """

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Reference] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What one client answers: vectors and numbers by name, or an error.

    ``stored`` are vectors that were written to their place, ``forms`` how others are compressed.
    ``counts`` are lists of whole numbers, such as samples per class.
    ``state_round`` is the round of the newest state on a deployed client's disk, 0 if it has none.
    """

    client: int
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    error: str = ""
    state_round: int | None = None
    stored: dict[str, Reference] = field(default_factory=dict)
    forms: dict[str, Compression] = field(default_factory=dict)
    counts: dict[str, list[int]] = field(default_factory=dict)


def pack(vector: np.ndarray) -> Array:
    """Make a Flower array."""
    return Array(np.ascontiguousarray(vector))


def pack_reference(place: Reference) -> Array:
    """Make a Flower array that refers to a vector in a file."""
    data = json.dumps([place.file, place.offset]).encode()
    return Array("float32", place.shape, REFERENCE, data)


def pack_compressed(vector: Vector, form: Compression) -> Array:
    """Make a Flower array in a smaller form; of a vector that is not finite, as it is."""
    if not np.isfinite(vector).all():
        return pack(vector)
    return Array("float32", vector.shape, f"fedsuite.{form.kind}", form.compress(vector))


def unpack(array: Array) -> np.ndarray:
    """View a Flower array's bytes as a float vector, without a copy and without pickle."""
    stream = BytesIO(array.data[:1024])
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(stream)
    except Exception as error:  # whatever hostile bytes do to numpy's reader
        raise ProtocolError(f"not a numpy array: {error}") from None
    if dtype.kind != "f" or (fortran and len(shape) > 1):
        raise ProtocolError(f"expected floating-point numbers in C order, got dtype {dtype}")
    start = stream.tell()
    size = math.prod(shape) * dtype.itemsize
    if any(length < 0 for length in shape) or len(array.data) - start != size:
        raise ProtocolError(f"{len(array.data) - start} bytes do not hold shape {shape} of {dtype}")
    try:
        return np.frombuffer(array.data, dtype=dtype, offset=start).reshape(shape)
    except (ValueError, OverflowError) as error:
        raise ProtocolError(f"invalid shape {shape}: {error}") from None


def write_arrays(arrays: Mapping[str, np.ndarray]) -> ArrayRecord:
    """Pack named vectors into a record."""
    return ArrayRecord({name: pack(value) for name, value in arrays.items()})


def write_references(places: Mapping[str, Reference]) -> ArrayRecord:
    """Put references into a record, in place of the vectors."""
    return ArrayRecord({name: pack_reference(place) for name, place in places.items()})


def refuse_reference(name: str, place: Reference) -> Vector:
    """Refuse a reference: only nodes of a simulation share files with the server."""
    raise ProtocolError(f"vector '{clean_line(name, 50)}' is a reference to a file")


def read_arrays(
    record: ArrayRecord,
    resolve: Resolve = refuse_reference,
    lengths: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """Unpack a record into named vectors; ``resolve`` finds those that are references.

    ``lengths`` are those of vectors that may be compressed: no other is restored, whatever size
    it claims.
    """
    vectors = {}
    for name, value in record.items():
        if value.stype == REFERENCE:
            vectors[name] = resolve(name, _unpack_reference(value))
        elif value.stype in COMPRESSED:
            vectors[name] = _restore(name, value, lengths or {})
        else:
            vectors[name] = unpack(value)
    return vectors


def write_instructions(
    shared: ArrayRecord,
    config: Mapping[str, Any],
    instructions: Iterable[tuple[int, Instruction]],
    write: Callable[[Mapping[str, np.ndarray]], ArrayRecord] = write_arrays,
) -> RecordDict:
    """Put a cohort's instructions into a message's content; ``shared`` is packed once per round.

    They are taken one by one, so that vectors that ``write`` puts elsewhere need not all be there
    at once.
    """
    content, clients = RecordDict({"shared": shared}), []
    for client, instruction in instructions:
        clients.append(client)
        _refuse_overrides(client, instruction, config)
        if instruction.arrays:
            content[f"arrays.{client}"] = write(instruction.arrays)
        if instruction.places:
            content[f"places.{client}"] = write_references(instruction.places)
        for name, scalars in (("config", instruction.config), ("params", instruction.params)):
            if scalars:
                content[f"{name}.{client}"] = ConfigRecord(dict(scalars))
    content["config"] = ConfigRecord({**config, "clients": clients})
    return content


def read_instructions(
    content: RecordDict, resolve: Resolve = refuse_reference
) -> dict[int, Instruction]:
    """Read a cohort's instructions; each client sees the shared records and its own."""
    shared = read_arrays(content.array_records["shared"], resolve)
    config = dict(content.config_records["config"])
    instructions = {}
    numbers = cast(list[int], config.pop("clients"))
    for client in numbers:
        arrays, places = (content.get(f"{name}.{client}") for name in ("arrays", "places"))
        instructions[client] = Instruction(
            shared | (read_arrays(arrays, resolve) if isinstance(arrays, ArrayRecord) else {}),
            config | _scalars(content, f"config.{client}"),
            _scalars(content, f"params.{client}"),
            _references(places) if isinstance(places, ArrayRecord) else {},
        )
    return instructions


def write_results(results: list[Result]) -> RecordDict:
    """Put a cohort's results into a reply's content."""
    content = RecordDict()
    for result in results:
        if result.state_round is not None:
            content[f"state.{result.client}"] = ConfigRecord({"round": result.state_round})
        if result.error:
            content[f"error.{result.client}"] = ConfigRecord({"reason": result.error})
            continue
        content[f"metrics.{result.client}"] = _write_numbers(result)
        forms = result.forms
        compressed = {
            n: pack_compressed(v, forms[n]) for n, v in result.arrays.items() if n in forms
        }
        vectors = {**write_arrays(result.arrays), **compressed, **write_references(result.stored)}
        if vectors:
            content[f"arrays.{result.client}"] = ArrayRecord(vectors)
    return content


def read_result(
    content: RecordDict,
    client: int,
    resolve: Resolve = refuse_reference,
    lengths: Mapping[str, int] | None = None,
) -> Result:
    """Read one client's result; anything malformed becomes its error.

    Records are looked up one by one: Flower's typed views of a content are rebuilt per access.
    """
    error = content.get(f"error.{client}")
    if isinstance(error, ConfigRecord):
        return Result(client, error=clean_reason(str(error.get("reason", ""))))
    metrics, vectors = content.get(f"metrics.{client}"), content.get(f"arrays.{client}")
    if not isinstance(metrics, MetricRecord):
        return Result(client, error="the node's reply has no result for this client")
    if len(metrics) > MAX_METRICS:
        return Result(client, error=f"{len(metrics)} metrics, more than {MAX_METRICS}")
    for name in metrics:
        if not METRIC_NAME.fullmatch(name):
            rule = f"it must have 1 to 100 letters, digits or signs of {NAME_SIGNS}"
            return Result(client, error=f"invalid metric name '{clean_line(name, 50)}': {rule}")
    try:
        record = vectors if isinstance(vectors, ArrayRecord) else ArrayRecord()
        arrays = read_arrays(record, resolve, lengths)
        lists = {n: _whole_numbers(n, v) for n, v in metrics.items() if isinstance(v, list)}
        numbers = {n: _number(n, v) for n, v in metrics.items() if n not in lists}
        return Result(client, arrays, numbers, counts=lists)
    except ProtocolError as problem:
        return Result(client, error=clean_line(str(problem)))


def write_scores(results: Iterable[Result]) -> dict[str, MetricRecord]:
    """Return the records of clients' scores that travel with the results of their training."""
    return {f"score.{r.client}": _write_numbers(r) for r in results if not r.error}


def read_score(content: RecordDict, client: int) -> RecordDict | None:
    """Return the score in a reply to training as the content of a reply to evaluation, if any."""
    score = content.get(f"score.{client}")
    return RecordDict({f"metrics.{client}": score}) if isinstance(score, MetricRecord) else None


def read_state_round(content: RecordDict, client: int, server_round: int) -> int | None:
    """Return the round of the newest state that a client says it has, up to the present round.

    None if it does not say.
    """
    found = _scalars(content, f"state.{client}").get("round")
    return found if type(found) is int and 0 <= found <= server_round else None


def read_round(content: RecordDict) -> int:
    """Return the round that a message to clients is of; 0 if it does not say."""
    return int(_scalars(content, "config").get("round", 0))


def clean_reason(text: str) -> str:
    """Return why a node or its client failed, in its own words; the end of many is kept."""
    return clean_lines(text, MAX_REASON) or "unknown error"


def clients_in(content: RecordDict) -> set[int]:
    """Return the client ids a reply has records of."""
    numbers = {name.split(".", 1)[1] for name in content if "." in name}
    return {int(n) for n in numbers if n.isdecimal() and len(n) <= MAX_DIGITS}


def _refuse_overrides(client: int, instruction: Instruction, config: Mapping[str, Any]) -> None:
    """Refuse a client's scalars that replace the round's, which the server itself still uses."""
    for name in instruction.config:
        if name in config:
            raise UserError(
                f"invalid instruction for client {client}: '{name}' must be the same for all "
                "clients. Send a scalar of another name, or a setting of the algorithm in params."
            )


def _restore(name: str, array: Array, lengths: Mapping[str, int]) -> Vector:
    if tuple(array.shape) != (lengths.get(name),):
        raise ProtocolError(f"vector '{clean_line(name, 50)}' is compressed, of another length")
    try:
        return COMPRESSED[array.stype].restore(array.data, lengths[name])
    except ValueError as problem:
        raise ProtocolError(f"vector '{clean_line(name, 50)}': {problem}") from None


def _unpack_reference(array: Array) -> Reference:
    try:
        if len(array.data) > LONGEST_REFERENCE:
            raise ValueError("a reference that is too long")
        file, offset = json.loads(array.data)
        return Reference(file, offset, tuple(array.shape))
    except (ValueError, TypeError, RecursionError) as problem:
        raise ProtocolError(f"not a reference: {clean_line(str(problem), 100)}") from None


def _references(record: ArrayRecord) -> dict[str, Reference]:
    return {name: _unpack_reference(value) for name, value in record.items()}


def _scalars(content: RecordDict, name: str) -> dict[str, Any]:
    record = content.get(name)
    return dict(record) if isinstance(record, ConfigRecord) else {}


def _write_numbers(result: Result) -> MetricRecord:
    return MetricRecord({**result.metrics, **result.counts})


def _whole_numbers(name: str, values: list[Any]) -> list[int]:
    if len(values) > MAX_COUNTS or not all(type(value) is int for value in values):
        raise ProtocolError(f"metric '{name}' is not a number, nor up to {MAX_COUNTS} whole ones")
    return values


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError(f"metric '{name}' is not a number")
    if not math.isfinite(value):
        raise ProtocolError(f"metric '{name}' is {value}")
    return value
