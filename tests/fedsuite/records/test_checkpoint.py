"""A checkpoint is read whole or refused with a sentence that names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from fedsuite.cli.main import main
from fedsuite.core.settings import UserError
from fedsuite.records.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fedsuite.records.folder import RunFolder
from fedsuite.training.resume import restore
from strategies.base import RunInfo
from strategies.scaffold import Scaffold

NOTHING = np.zeros(0, np.float32)
VECTORS = {"model": np.ones(3, np.float32), "buffers": NOTHING}
STATE = {"round": 2, "strategy": {}, "client-states": {}}


def packed(state: Any = STATE, **vectors: np.ndarray) -> bytes:
    """A checkpoint as an earlier version wrote it, without a checksum."""
    return save(VECTORS | vectors, {"state": json.dumps(state)})


def flipped(content: bytes) -> bytes:
    """The last byte of the model changed; the file is as long as before."""
    return content[:-1] + bytes([content[-1] ^ 1])


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda content: content[:-2],
    "empty": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
    "text": lambda content: b'{"round": 2}',
    "a header too long": lambda content: (10**12).to_bytes(8, "little") + content[8:],
    "a bit changed": flipped,
    "no state": lambda content: save(VECTORS),
    "a state that is no JSON": lambda content: save(VECTORS, {"state": "{"}),
    "a list": lambda content: packed([1]),
    "no round": lambda content: packed({"strategy": {}}),
    "a round in words": lambda content: packed(STATE | {"round": "two"}),
    "a round that is a switch": lambda content: packed(STATE | {"round": True}),
    "a strategy that is a list": lambda content: packed(STATE | {"strategy": [1]}),
    "clients in a list": lambda content: packed(STATE | {"client-states": [1]}),
    "clients with names": lambda content: packed(STATE | {"client-states": {"a": 1}}),
    "no model": lambda content: save({"buffers": NOTHING}, {"state": json.dumps(STATE)}),
    "a model of doubles": lambda content: packed(model=np.ones(3)),
    "a model that is a matrix": lambda content: packed(model=np.ones((3, 1), np.float32)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_refused(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    save_checkpoint(tmp_path, Checkpoint(2, VECTORS["model"], NOTHING, {}))
    path = RunFolder(tmp_path).checkpoint_file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError) as refused:
        load_checkpoint(tmp_path)
    said = str(refused.value)
    assert said.startswith(f"The checkpoint {path} is damaged (") and "\n" not in said


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    RunFolder(tmp_path).checkpoint_file.mkdir(parents=True)
    with pytest.raises(UserError, match="is damaged"):
        load_checkpoint(tmp_path)


def test_one_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = RunFolder(tmp_path).checkpoint_file
    path.parent.mkdir()
    path.write_bytes(packed(STATE | {"client-states": {"7": 1}}))
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert (found.round, found.model.tolist(), found.client_states) == (2, [1, 1, 1], {7: 1})


def make() -> Scaffold:
    strategy = Scaffold(RunInfo(2, {0: 1, 1: 1}, seed=0), Scaffold.Params())
    strategy.model, strategy.buffers = VECTORS["model"], NOTHING
    return strategy


@pytest.mark.parametrize(
    ("checkpoint", "why"),
    [
        (
            Checkpoint(2, np.ones(4, np.float32), NOTHING, {}),
            "'model' has 4 numbers, and the run's",
        ),
        (Checkpoint(2, np.ones(3, np.float32), np.ones(1, np.float32), {}), "'buffers' has 1 num"),
        (Checkpoint(2, np.ones(3, np.float32), NOTHING, {}), "KeyError"),
        (Checkpoint(2, np.ones(3, np.float32), NOTHING, {"expelled": 3}), "TypeError"),
    ],
)
def test_one_of_another_model_or_method_is_refused(
    checkpoint: Checkpoint, why: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        restore(make(), checkpoint, RunFolder(tmp_path))
    assert f"latest.safetensors is damaged ({why}" in str(refused.value)


def test_the_command_says_so_and_changes_nothing(
    experiment: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder(experiment("fedavg"))
    run.summary_file.unlink()
    run.checkpoint_file.write_bytes(b"")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert main(["resume", str(run.path), "--engine", "inline"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fedsuite: The checkpoint ") and said.count("\n") == 1
    assert {path: path.read_bytes() for path in before} == before
