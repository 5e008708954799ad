"""How a round's vectors travel through files: rows, gaps, reuse, places that were not given."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict

from fedsuite.core import transport, vector_files
from fedsuite.core.messages import Result, read_arrays, read_result, write_results
from fedsuite.core.transport import ByMessage, ByReference, deliver, memory_room
from fedsuite.core.vector_files import DISK, MEMORY, Reference, VectorFiles

Row = list[float]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VectorFiles]:
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(vector_files, "SHARED_MEMORY", tmp_path / "memory")
    with vector_files.vector_files(tmp_path / "run") as found:
        yield found


def answer(server: ByReference, files: VectorFiles, client: int, row: Row) -> RecordDict:
    """Write a client's update to its place; return the reply."""
    result = Result(client, {"update": np.array(row, np.float32)}, {"num-examples": 1})
    return write_results([deliver(result, server.places(client), files)])


def collect(server: ByReference, files: VectorFiles, sent: Mapping[int, Row]) -> np.ndarray:
    """Exchange two-vectors with clients and return the matrix."""
    server.begin({"update": 2}, list(sent))
    replies = {client: answer(server, files, client, row) for client, row in sent.items()}
    results = [server.read(reply, client) for client, reply in sorted(replies.items())]
    assert not any(result.error for result in results)
    return server.matrices(results)["update"]


def names(files: VectorFiles) -> set[str]:
    paths = [path for folder in files.folders.values() for path in folder.iterdir()]
    return {path.name for path in paths} - {".lock"}


def test_rows_are_in_client_order_whoever_answers_first(files: VectorFiles) -> None:
    found = collect(ByReference(files), files, {7: [7, 0], 2: [2, 0], 4: [4, 1]})
    assert found.tolist() == [[2, 0], [4, 1], [7, 0]] and found.dtype == np.float32


def test_a_reply_carries_numbers_and_no_vector(files: VectorFiles) -> None:
    server = ByReference(files)
    server.begin({"update": 100_000}, [0])
    reply = answer(server, files, 0, [1.0] * 100_000)
    assert sum(len(array.data) for array in reply["arrays.0"].values()) < 100  # type: ignore
    assert read_result(reply, 0).error == "vector 'update' is a reference to a file"


def test_later_rows_move_up_where_results_are_missing(files: VectorFiles) -> None:
    """Client 1 fails and client 3 is invalid, of 0 to 4; client 4's vector came in the reply."""
    server = ByReference(files)
    server.begin({"update": 2}, range(5))
    replies = {c: answer(server, files, c, [c, c]) for c in (0, 2, 3)}
    sent = Result(4, {"update": np.array([9, 9], np.float32)}, {"num-examples": 1})
    replies[4] = write_results([sent])
    results = [server.read(replies[c], c) for c in (0, 2, 4)]
    assert server.matrices(results)["update"].tolist() == [[0, 0], [2, 2], [9, 9]]


def test_a_result_that_is_sent_again_takes_the_same_row(files: VectorFiles) -> None:
    server = ByReference(files)
    server.begin({"update": 2}, [0, 1])
    answer(server, files, 1, [5, 5])
    replies = [answer(server, files, c, [c, 1]) for c in (0, 1)]
    results = [server.read(reply, c) for c, reply in enumerate(replies)]
    assert server.matrices(results)["update"].tolist() == [[0, 1], [1, 1]]


def test_files_are_used_again(files: VectorFiles) -> None:
    server = ByReference(files)
    collect(server, files, {0: [1, 1], 1: [2, 2]})
    first = files.path(f"{MEMORY}1-0").stat().st_ino
    collect(server, files, {0: [3, 3]})
    assert names(files) == {f"{MEMORY}2-0"}
    assert stat.S_IMODE(files.path(f"{MEMORY}2-0").stat().st_mode) == 0o600
    assert files.path(f"{MEMORY}2-0").stat().st_ino == first


def test_a_matrix_that_somebody_holds_is_not_overwritten(files: VectorFiles) -> None:
    server = ByReference(files)
    row = collect(server, files, {0: [1, 1], 1: [2, 2]})[1]
    assert collect(server, files, {0: [3, 3], 1: [4, 4]}).tolist() == [[3, 3], [4, 4]]
    assert row.tolist() == [2, 2] and len(names(files)) == 1


def test_what_is_written_to_a_matrix_stays_in_this_process(files: VectorFiles) -> None:
    found = collect(ByReference(files), files, {0: [1, 1]})
    found[0, 0] = 9
    assert files.read(Reference(f"{MEMORY}1-0", 0, (2,))).tolist() == [1, 1]


def test_a_node_whose_reply_was_lost_cannot_write_into_a_later_round(files: VectorFiles) -> None:
    server = ByReference(files)
    server.begin({"update": 2}, [0, 1])
    late = server.places(1)
    server.read(answer(server, files, 0, [1, 1]), 0)
    server.begin({"update": 2}, [0, 1])
    result = Result(1, {"update": np.array([6, 6], np.float32)}, {})
    assert "No such file" in deliver(result, late, files).error
    assert not server.read(write_results([Result(1, {}, {}, stored=late)]), 1).arrays


@pytest.mark.parametrize(
    "other",
    [
        Reference(f"{MEMORY}1-0", 0, (2,)),  # the row of client 0
        Reference(f"{MEMORY}1-0", 8, (4,)),
        Reference(f"{DISK}1-0", 8, (2,)),
    ],
)
def test_a_reference_to_another_place_is_refused(files: VectorFiles, other: Reference) -> None:
    server = ByReference(files)
    server.begin({"update": 2}, [0, 1])
    forged = write_results([Result(1, {}, {"num-examples": 1}, stored={"update": other})])
    assert server.read(forged, 1).error == "a reference to another place than was asked for"


def test_deployed_results_are_never_references() -> None:
    place = {"update": Reference(f"{DISK}1-0", 0, (2,))}
    reply = write_results([Result(1, {}, {"num-examples": 1}, stored=place)])
    vectors = ByMessage()
    vectors.begin({"update": 2}, [1])
    assert vectors.places(1) == {}
    assert vectors.read(reply, 1).error == "vector 'update' is a reference to a file"


def test_a_vector_that_does_not_fit_its_row_travels_in_the_reply(files: VectorFiles) -> None:
    """The server judges it as it does every reply's."""
    server = ByReference(files)
    server.begin({"update": 2}, [0])
    vectors = {"update": np.zeros(3, np.float32), "other": np.zeros(1, np.float32)}
    kept = deliver(Result(0, vectors, {"num-examples": 1}), server.places(0), files)
    assert set(kept.arrays) == {"update", "other"} and not kept.stored
    assert deliver(kept, server.places(0), None) is kept
    doubles = Result(0, {"update": np.zeros(2)}, {"num-examples": 1})
    assert server.read(write_results([deliver(doubles, server.places(0), files)]), 0).arrays[
        "update"
    ].dtype == np.dtype(np.float64)


def test_what_is_sent_is_written_once_and_read_as_it_was(files: VectorFiles) -> None:
    server = ByReference(files)
    server.begin({}, [0])
    given = {
        "model": np.arange(3, dtype=np.float32),
        "peers": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "empty": np.zeros(0, np.float32),
        "doubles": np.array([0.1]),
    }
    back = read_arrays(server.pack(given), files.resolve)
    for name, vector in given.items():
        assert np.array_equal(back[name], vector) and back[name].dtype == vector.dtype
    assert names(files) == {f"{MEMORY}1-sent"}


def test_what_is_too_large_for_shared_memory_goes_to_the_disk(
    files: VectorFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for 100 bytes: a matrix of 64 is in memory, and so is a vector of 32 beside it."""
    monkeypatch.setattr(transport, "memory_room", lambda files: 100)
    server = ByReference(files)
    server.begin({"update": 8, "other": 8}, [0, 1])
    vectors = {name: np.full(8, 3, np.float32) for name in ("a", "b")}
    assert [place.file for place in server.places(0).values()] == ["m1-0", "d1-1"]
    back = read_arrays(server.pack(vectors), files.resolve)
    assert names(files) == {"m1-0", "d1-1", "m1-sent", "d1-sent"}
    assert all(vector.tolist() == [3.0] * 8 for vector in back.values())


def test_room_in_shared_memory_is_a_share_of_what_is_free(
    files: VectorFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An eighth of the memory that is available, half of what is free where it is shared."""

    class Available:
        available = 800

    class Usage:
        free = 1000

    monkeypatch.setattr("psutil.virtual_memory", Available)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: Usage)
    assert memory_room(files) == 100
    Usage.free = 120
    assert memory_room(files) == 60
    assert memory_room(VectorFiles({DISK: files.folders[DISK]})) == 0


def test_a_large_matrix_is_in_a_file_without_a_name(files: VectorFiles) -> None:
    server = ByReference(files)
    found = server.zeros((3, transport.SMALL))
    assert not found.any() and names(files) == set()
    found[1] += 2
    assert found.sum(axis=1, dtype=np.float64).tolist() == [0, 2 * transport.SMALL, 0]


def test_a_full_disk_is_the_clients_error(
    files: VectorFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ByReference(files)
    server.begin({"update": 2}, [0])

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", fail)
    said = server.read(answer(server, files, 0, [1, 1]), 0).error
    place = files.path(f"{MEMORY}1-0")
    assert said == f"cannot write '{place}': No space left on device. Free some space there"
    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(OSError, match="No space left"):
        server.zeros((2, transport.SMALL))
    assert names(files) == {f"{MEMORY}1-0"}


def test_a_matrix_on_the_disk_has_its_blocks_before_it_is_written(
    files: VectorFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "memory_room", lambda _: 0)
    server = ByReference(files)
    server.begin({"update": 5000}, [0, 1, 2])
    status = files.path(f"{DISK}1-0").stat()
    assert status.st_size == 60_000 and status.st_blocks * 512 >= 60_000
