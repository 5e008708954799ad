"""Client state is what the round before left, also after a crash and a step back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from clients.state import ClientState, check_states, checksum, list_states, read_state
from fedsuite.core.settings import UserError


def write(folder: Path, server_round: int, value: float, checkpoint: int = 0) -> None:
    state = ClientState(folder, 3, server_round, checkpoint)
    state.save({"x": np.array([value], np.float32)})


def read(folder: Path, server_round: int, after_round: bool = False) -> float | None:
    found = ClientState(folder, 3, server_round, 0).load(after_round=after_round)
    return float(found["x"][0]) if found else None


def test_a_round_reads_what_was_written_before_it(tmp_path: Path) -> None:
    assert read(tmp_path, 1) is None
    write(tmp_path, 1, 10.0)
    assert read(tmp_path, 1) is None
    assert read(tmp_path, 1, after_round=True) == 10.0
    assert read(tmp_path, 4) == 10.0


def test_a_resumed_round_does_not_see_the_future(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write(tmp_path, number, float(number))
    assert read(tmp_path, 2) == 1.0
    write(tmp_path, 2, 22.0)
    assert read(tmp_path, 3) == 22.0


def test_only_what_a_resume_can_need_is_kept(tmp_path: Path) -> None:
    for number in (1, 2, 3, 4):
        write(tmp_path, number, float(number))
    write(tmp_path, 5, 5.0, checkpoint=3)
    kept = sorted(int(p.stem) for p in (tmp_path / "000003").glob("*.safetensors"))
    assert kept == [3, 4, 5]


def test_a_file_left_half_written_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, 1, 1.0)
    (tmp_path / "000003" / "tmpabc.tmp").write_bytes(b"half")
    assert read(tmp_path, 2) == 1.0


def test_clients_do_not_share_state(tmp_path: Path) -> None:
    write(tmp_path, 1, 1.0)
    assert ClientState(tmp_path, 4, 2, 0).load() == {}


def test_only_its_owner_may_read_a_state(tmp_path: Path) -> None:
    write(tmp_path, 1, 1.0)
    (path,) = (tmp_path / "000003").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_states_of_a_round_are_the_newest_up_to_it(tmp_path: Path) -> None:
    for number in (1, 2, 4):
        write(tmp_path, number, float(number))
    ClientState(tmp_path, 7, 3, 0).save({"x": np.zeros(2, np.float32)})
    assert list_states(tmp_path, 3) == {3: 2, 7: 3}
    assert list_states(tmp_path, 1) == {3: 1}
    assert list_states(tmp_path / "nowhere", 1) == {}


def test_a_state_that_is_missing_is_named(tmp_path: Path) -> None:
    write(tmp_path, 2, 2.0)
    check_states(tmp_path, {3: 2})
    with pytest.raises(UserError, match="state of client 3 after round 1.*000001.* is missing"):
        check_states(tmp_path, {3: 1})


@pytest.mark.parametrize("damage", ["cut", "empty", "one bit"])
def test_a_damaged_state_is_refused(tmp_path: Path, damage: str) -> None:
    write(tmp_path, 1, 1.0)
    (path,) = (tmp_path / "000003").iterdir()
    content = path.read_bytes()
    changed = {"cut": content[:-1], "empty": b"", "one bit": content[:-1] + b"\x3e"}
    path.write_bytes(changed[damage])
    with pytest.raises(UserError, match="000001.safetensors is damaged"):
        check_states(tmp_path, {3: 1})
    with pytest.raises(UserError, match="is damaged"):
        read(tmp_path, 2)


def test_a_state_of_an_earlier_version_has_no_checksum(tmp_path: Path) -> None:
    (tmp_path / "000003").mkdir()
    save_file({"x": np.array([5.0], np.float32)}, tmp_path / "000003" / "000001.safetensors")
    assert read(tmp_path, 2) == 5.0


def test_an_update_keeps_the_other_entries_of_the_round(tmp_path: Path) -> None:
    """Entries of the round before stay too, unless this round replaced them."""
    ClientState(tmp_path, 3, 1, 0).save({"x": np.ones(1), "y": np.zeros(2)})
    now = ClientState(tmp_path, 3, 2, 0)
    now.update({"x": np.full(1, 5.0)})
    now.update({"z": np.full(1, 6.0)})
    after = {name: array.tolist() for name, array in now.load(after_round=True).items()}
    assert after == {"x": [5.0], "y": [0.0, 0.0], "z": [6.0]}
    assert set(now.load()) == {"x", "y"}


def test_the_newest_durable_state_stays_whatever_the_checkpoint(tmp_path: Path) -> None:
    """With the checkpoint at 4, a resume reads the newest up to 4: 2. Round 1 can go."""
    for number in (1, 2):
        write(tmp_path, number, float(number))
    write(tmp_path, 6, 6.0, checkpoint=4)
    assert sorted(int(p.stem) for p in (tmp_path / "000003").iterdir()) == [2, 6]
    write(tmp_path, 6, 6.5, checkpoint=6)
    assert sorted(int(p.stem) for p in (tmp_path / "000003").iterdir()) == [2, 6]
    assert read(tmp_path, 6) == 2.0 and read(tmp_path, 7) == 6.5


def test_views_and_transposed_arrays_are_kept_as_they_look(tmp_path: Path) -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3).T
    ClientState(tmp_path, 0, 1, 0).save({"m": matrix})
    assert ClientState(tmp_path, 0, 2, 0).load()["m"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert [p.name for p in (tmp_path / "000000").iterdir()] == ["000001.safetensors"]


def test_a_state_that_the_server_knows_of_cannot_be_missing(tmp_path: Path) -> None:
    """Written in rounds 2 and 5: before round 6 the newest is 5, before round 5 it is 2."""
    for number in (2, 5):
        write(tmp_path, number, float(number))
    assert ClientState(tmp_path, 3, 6, 0, known_round=5).load()["x"] == [5.0]
    assert ClientState(tmp_path, 3, 5, 0, known_round=2).load()["x"] == [2.0]
    assert ClientState(tmp_path, 3, 5, 0).newest == 5 and ClientState(tmp_path, 3, 4, 0).newest == 2
    with pytest.raises(UserError, match="state after round 3 is missing.*Restore the node's"):
        ClientState(tmp_path, 3, 5, 0, known_round=3).load()
    with pytest.raises(UserError, match="state after round 1 is missing"):
        ClientState(tmp_path / "empty", 3, 2, 0, known_round=1).load()
    assert ClientState(tmp_path / "empty", 3, 2, 0).newest == 0


def test_the_first_client_whose_state_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="state of client 2 after round 7"):
        check_states(tmp_path, {9: 1, 2: 7})


def test_the_checksum_does_not_depend_on_the_order_of_entries(tmp_path: Path) -> None:
    """The file has an order of its own; names belong to the sum, and so does what they name."""
    one, two = np.ones(1, np.float32), np.arange(2.0)
    assert checksum({"z": one, "a": two}) == checksum({"a": two, "z": one})
    assert checksum({}) == "00000000"
    assert checksum({"z": one}) != checksum({"y": one}) != checksum({"y": 2 * one})
    ClientState(tmp_path, 3, 1, 0).save({"z": one, "m": two, "a": one})
    assert set(ClientState(tmp_path, 3, 2, 0).load()) == {"a", "m", "z"}


def test_a_state_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "000001.safetensors"
    folder.mkdir()
    with pytest.raises(UserError, match="000001.* cannot be read: Is a directory") as refused:
        read_state(folder)
    assert "damaged" not in str(refused.value)
