"""Both engines as real processes: same bits, killed and resumed, failures reported."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import processes
import psutil
import pytest

from fedsuite.cli.main import main
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.processes import Child
from fedsuite.core.scratch import scratch_folder
from fedsuite.engines.ray import superlink
from fedsuite.records.folder import RunFolder, RunState

ROOT = Path(__file__).parents[3]

# Freeloaders keep state on disk and change the global model with it: a lost, stale or leaked
# client state, a wrong sample or a forgotten round all end in other bits.
ROUNDS = 40  # so many, and so long, that a run does not end before it is killed
SETTINGS = [
    "num-clients=8",
    f"num-rounds={ROUNDS}",
    "model=mlp",
    "fraction-train=0.5",
    "freeloaders=3",
    "momentum=0.9",
    "lr=0.02",
    "local-epochs=20",
    "checkpoint-every=2",
]


def model_of(folder: Path, name: str) -> bytes:
    return (folder / "runs" / name / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of an uninterrupted inline run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    words = ["run", "fedavg", *SETTINGS, f"results-dir={folder / 'runs'}", "--engine", "inline"]
    assert main([*words, "--name", "whole"]) == 0
    return model_of(folder, "whole")


def assert_whole(run: RunFolder, undisturbed: bytes) -> None:
    """Compare a run that was cut and resumed: its model, each round and each update once."""
    assert run.model_file.read_bytes() == undisturbed
    assert [row["round"] for row in read_lines(run.history_file)] == list(range(ROUNDS + 1))
    rows = read_lines(run.clients_file)
    assert len(rows) == len({(row["round"], row["client"]) for row in rows}) == ROUNDS * 4


@pytest.mark.slow
def test_killed_three_times_and_resumed_gives_the_same_bits(
    undisturbed: bytes, tmp_path: Path
) -> None:
    draw = random.Random()
    run = RunFolder(tmp_path / "runs" / "cut")
    first = ["run", "fedavg", *SETTINGS, "--engine", "inline", "--name", "cut"]
    kills = 0
    for earliest in (1, 4, 7):
        command = ["resume", "cut"] if run.exists else first
        wanted = earliest + draw.randint(0, 2)

        def far_enough(wanted: int = wanted) -> bool:
            return processes.lines_in(run.history_file) > wanted

        process = processes.start(command, tmp_path)
        kills += processes.kill_when(process, far_enough, draw.random() / 5)
    assert main(["resume", str(run.path)]) == 0
    assert kills >= 2
    assert_whole(run, undisturbed)


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_can_be_resumed(tmp_path: Path) -> None:
    config = tmp_path / "runs" / "early" / "config.json"
    command = ["run", "fedavg", "model=mlp", "num-rounds=2", "checkpoint-every=2"]
    process = processes.start([*command, "--engine", "inline", "--name", "early"], tmp_path)
    processes.kill_when(process, config.exists, 0.0)
    assert main(["resume", str(config.parent)]) == 0
    assert read_document(config.parent / "summary.json")["status"] == "finished"


@pytest.mark.slow
def test_ctrl_c_ends_an_inline_run_as_interrupted_and_it_can_be_resumed(
    undisturbed: bytes, tmp_path: Path
) -> None:
    """The thread of the run ends before the process does, which would abort inside PyTorch."""
    run = RunFolder(tmp_path / "runs" / "cut")
    words = ["run", "fedavg", *SETTINGS, "--engine", "inline", "--name", "cut"]
    process = processes.start(words, tmp_path)
    try:
        while process.poll() is None and processes.lines_in(run.history_file) < 4:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=60)[0].decode()
    finally:
        processes.kill_all(process)
    assert process.returncode == 130, out
    assert out.endswith("fedsuite: to resume it: `fedsuite resume cut`\nfedsuite: interrupted\n")
    assert run.state is RunState.INTERRUPTED
    assert run.reason == "interrupted; resume it with `fedsuite resume cut`"
    assert not run.is_being_written
    assert main(["resume", str(run.path)]) == 0
    assert_whole(run, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("numbers", "expected", "word"),
    [
        ([signal.SIGINT, signal.SIGINT, signal.SIGINT], 130, "interrupted"),
        ([signal.SIGTERM], 143, "terminated"),
        ([signal.SIGTERM, signal.SIGTERM], 143, "terminated"),
    ],
)
def test_signals_in_a_row_and_sigterm_end_a_run_as_ctrl_c_does(
    numbers: list[signal.Signals], expected: int, word: str, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "runs" / "my run")
    words = ["run", "fedavg", *SETTINGS, "num-rounds=500", "--engine", "inline"]
    process = processes.start([*words, "--name", "my run"], tmp_path)
    try:
        while process.poll() is None and processes.lines_in(run.history_file) < 3:
            time.sleep(0.01)
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.02)
        out = process.communicate(timeout=60)[0].decode()
    finally:
        processes.kill_all(process)
    assert process.returncode == expected, out
    assert "Traceback" not in out and out.endswith(f"fedsuite: {word}\n")
    assert out.count("fedsuite: to resume it: `fedsuite resume 'my run'`\n") == 1
    assert run.state is RunState.INTERRUPTED and not run.is_being_written


@pytest.mark.slow
@pytest.mark.parametrize("thread", ["main", "other"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_round_leaves_nothing_to_resume(
    number: signal.Signals, thread: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data and model are prepared twice: by the command, to refuse mistakes, and by the run."""
    monkeypatch.setenv("SLOW_DATA", thread)
    words = ["run", "slow_data:ALGORITHM", *SETTINGS, "--engine", "inline", "--name", "early"]
    process = processes.start(words, tmp_path)
    try:
        while process.poll() is None and not (tmp_path / "preparing").exists():
            time.sleep(0.01)
        process.send_signal(number)
        out = process.communicate(timeout=60)[0].decode()
    finally:
        processes.kill_all(process)
    assert process.returncode == 128 + number, out
    assert "Traceback" not in out and "resume" not in out
    assert not RunFolder(tmp_path / "runs" / "early").exists


@pytest.mark.ray
def test_on_ray_killed_alone_and_whole_terminated_and_resumed_gives_the_same_bits(
    undisturbed: bytes, tmp_path: Path
) -> None:
    """Each end leaves no process behind; the last rounds are computed inline."""
    run = RunFolder(tmp_path / "runs" / "cut")

    def start_a_while(*words: str) -> Child:
        """Start a command and wait until it has written three rounds."""
        before = processes.lines_in(run.history_file)
        process = processes.start([*words], tmp_path)
        deadline = time.monotonic() + 120
        while process.poll() is None and processes.lines_in(run.history_file) < before + 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return process

    process = start_a_while("run", "fedavg", *SETTINGS, "--engine", "ray", "--name", "cut")
    assert processes.kill_alone(process) == []

    process = start_a_while("resume", "cut")
    assert processes.kill_when(process, lambda: True, random.random() / 5)

    process = start_a_while("resume", "cut")
    family = process.identity.family()
    process.send_signal(signal.SIGTERM)
    try:
        out = process.communicate(timeout=120)[0].decode()
    finally:
        processes.kill_all(process)
    assert process.returncode == 143 and "Traceback" not in out, out
    assert "fedsuite: to resume it: `fedsuite resume cut`\n" in out
    assert out.endswith("fedsuite: terminated\n")
    _, left = psutil.wait_procs(family, timeout=30)
    assert not [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    assert main(["resume", str(run.path), "--engine", "inline"]) == 0
    assert_whole(run, undisturbed)


@pytest.mark.ray
def test_a_failed_run_on_ray_returns_the_clients_traceback(tmp_path: Path) -> None:
    command = ["run", "faulty:ALL", "num-clients=2", "num-rounds=1", "model=mlp"]
    status, out = processes.finish([*command, "--name", "bad", "--nodes", "1"], tmp_path)
    assert status == 1
    assert "nobody is home" in out and "Traceback" in out and "the run failed" in out


@pytest.mark.ray
def test_plain_flwr_run_gives_the_inline_bits_and_says_where_results_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experiment: Callable[..., Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = 'algo="fedavg" num-rounds=2 model="cnn2" num-clients=5 run-name="plain"'
    with scratch_folder() as home, superlink(home):
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "flwr"),
                "run",
                str(ROOT),
                "--stream",
                "--run-config",
                settings,
            ],
            env=os.environ | {"FLWR_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=200,
        )
    folder = tmp_path / "runs" / "plain"
    assert f"results in {folder}" in done.stdout + done.stderr
    assert read_document(folder / "summary.json")["status"] == "finished"
    inline = experiment(num_rounds=2, model="cnn2", num_clients=5)
    assert model_of(tmp_path, "plain") == (inline / "model.safetensors").read_bytes()
