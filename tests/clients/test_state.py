"""Client state is what the round before left, also after a crash and a step back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clients.state import ClientState


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
