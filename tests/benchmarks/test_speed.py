from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from benchmarks import baseline, gate, report, suite_runs
from benchmarks.job import open_job
from benchmarks.measure import MachineMemory, Watched
from benchmarks.report import RoundTime, StepCost, Trial, WorkloadReport
from benchmarks.suite_runs import Training
from benchmarks.turns import START, turn_order
from benchmarks.workloads import W1, W2, export, provide
from tasks.task import open_task


def trial(seconds: list[float], error: str = "", training: Sequence[Training] = ()) -> Trial:
    """A run: ready 2 s after its start, 0.5 s between rounds, ended 3 s after the last one."""
    clock, rows = 102.0, []
    for number, length in enumerate(seconds, start=1):
        back = clock + length + 0.5 if number < len(seconds) else None
        rows.append(RoundTime(number, length, number / 10, 1 / number, went=clock, back=back))
        clock += length + (0.5 if back else 3.0)
    return Trial(100.0, 102.0, clock, 5_000_000, rows, training, error, 7_000_000)


def workload(**trials: Trial) -> WorkloadReport:
    return WorkloadReport("W9", "title", "Some data.", trials=trials)


def test_startup_teardown_and_between_are_what_lies_outside_the_rounds() -> None:
    one = trial([9.0, 1.0, 2.0])
    assert one.startup == pytest.approx(2.0)
    assert one.teardown == pytest.approx(3.0)
    assert one.steady == [1.0, 2.0]
    assert one.between == pytest.approx([0.5])


def test_quartiles_by_hand() -> None:
    assert report.quartiles([5.0, 1.0, 2.0, 3.0, 4.0]) == (2.0, 4.0)
    assert report.quartiles([7.0]) == (7.0, 7.0)


def test_ratios_are_those_of_the_same_turn() -> None:
    trials = {"d": trial([9, 1, 3]), "b": trial([9, 2, 4]), "c": trial([9, 2, 4], error="died")}
    assert report.ratios(trials, "d", "b") == [0.5, 0.75]
    assert report.ratios(trials, "d", "c") == report.ratios(trials, "d", "a") == []


def test_table_says_medians_and_names_a_failed_variant() -> None:
    page = workload(a=trial([9, 1], error="died"), b=trial([8, 2, 4]))
    lines = report.rounds_table(page).splitlines()
    assert lines[2].split(" | ")[1] == "failed"
    own = "| 3.000 | 2.500-3.500 | 1.00 | 2.0 | 8.0 | 3.0 | 5 | 7 | 0 | 0.3000 | 0.3333 |"
    assert lines[3] == f"| {report.LABELS['b']} {own}"
    costs = [StepCost("x", 0.0015, 1.25, (1.2, 1.3)), StepCost("y", error="no | way")]
    steps = report.steps_table(costs)
    assert steps.splitlines()[2:] == [
        "| x | 1.500 | 1.25 | 1.20-1.30 |",
        "| y | failed | no / way |  |",
    ]
    sections = report.workload_sections(page)
    sections += report.steps_sections(dataclasses.replace(page, steps=[StepCost("x")]))
    assert "died" in "".join(sections) and "## Local step cost, W9's model" in sections


def test_breakdown_takes_the_busiest_node_off_each_round() -> None:
    parts = [Training(7.0, 9.0), Training(1.0, 2.0), Training(1.5, 2.5), Training(3.0, 6.0)]
    found = report.breakdown(trial([9, 2, 2, 4], training=parts))
    assert found == pytest.approx([2.0, 1.5, 1.0, 2.5, 0.5])
    assert report.beside_training(trial([9, 2, 2, 4], training=parts)) == pytest.approx(1.5)


def test_ours_always_goes_next_to_the_reference() -> None:
    for number in (1, 2):
        order = turn_order(number)
        assert sorted(order) == sorted(report.LABELS) == sorted(START)
        assert abs(order.index("b") - order.index("d")) == 1


def test_clients_are_assigned_largest_first_to_the_least_loaded() -> None:
    assert baseline.assign([1, 7, 5, 4, 3], 2) == [[1, 4], [2, 3, 0]]


def test_baselines_get_images_in_the_suites_own_memory_layout(tmp_path: Path) -> None:
    small = dataclasses.replace(W1, num_clients=2, train_rows=200, test_rows=50)
    root, _ = provide(small, tmp_path / "nowhere", tmp_path / "data", False)
    export(small, root, 2, tmp_path / "job")
    job, data = open_job(tmp_path / "job")
    task = open_task(small.config(root, 2).task)
    ours, _ = task.rows(task.split.train[0][:8])
    theirs, _ = next(iter(baseline.batches(data.client(0), job)))
    assert theirs[:8].shape == ours.shape and theirs[:8].stride() == ours.stride()


def test_average_weighs_by_samples() -> None:
    states = [{"w": torch.tensor([0.0, 4.0])}, {"w": torch.tensor([4.0, 8.0])}]
    assert baseline.average(states, [3, 1])["w"].tolist() == [1.0, 5.0]


def test_the_suites_rounds_are_read_without_their_wait_for_the_turn(tmp_path: Path) -> None:
    history = [
        {"round": 0, "wall_seconds": 30.0, "accuracy": 0.1, "loss": 2.0},
        {"round": 1, "wall_seconds": 9.0, "gate_seconds": 7.0, "accuracy": 0.2, "loss": 1.5},
    ]
    history[1]["clients"] = 3
    clients = [
        {"round": 1, "phase": "train", "client": c, "num_examples": n, "seconds": s}
        for c, n, s in [(0, 30, 3.0), (1, 20, 2.5), (2, 20, 1.0)]
    ]
    for name, rows in (("history", history), ("clients", clients)):
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    expected = {"round": 1, "seconds": 2.0, "accuracy": 0.2, "loss": 1.5, "clients": 3}
    assert suite_runs.rounds(tmp_path) == [expected]
    assert suite_runs.training(tmp_path, 2) == [Training(3.5, 6.5)]
    assert suite_runs.training(tmp_path, 1) == [Training(6.5, 6.5)]


def test_a_gate_holds_a_round_until_it_is_opened(tmp_path: Path) -> None:
    waited: list[float] = []
    thread = threading.Thread(target=lambda: waited.append(gate.Gate(tmp_path).wait(4)))
    thread.start()
    while gate.arrived(tmp_path, 4) is None:
        time.sleep(0.01)
    assert gate.arrived(tmp_path, 5) is None and gate.left(tmp_path, 4) is None and not waited
    gate.open_gate(tmp_path, 4)
    thread.join()
    assert gate.left(tmp_path, 4) is not None
    assert waited[0] > 0 and gate.Gate(None).wait(4) == 0.0


def test_gated_fedavg_is_fedavg_and_records_its_wait(experiment: Callable[..., Path]) -> None:
    plain, gated = experiment("fedavg"), experiment(suite_runs.ALGORITHM)
    assert (plain / "model.safetensors").read_bytes() == (gated / "model.safetensors").read_bytes()
    assert [row["round"] for row in suite_runs.rounds(gated)] == [1, 2]


def test_memory_of_the_machine_is_counted_while_it_is_watched_alone() -> None:
    """Down 3 and back to 1 held; others take 4 of it; then down 5 more: 6 in all."""
    memory = MachineMemory()
    memory.begin(20, others=30)
    memory.sample(17)
    memory.end(19, others=28)
    assert (memory.peak, memory.drift) == (3, 2)
    memory.begin(15, others=32)
    memory.sample(10)
    memory.end(14, others=33)
    assert (memory.peak, memory.drift) == (6, 2)


def test_a_watched_command_counts_its_children_and_ends_them(tmp_path: Path) -> None:
    child = "import time; block = bytearray(30_000_000); time.sleep(60)"
    parent = (
        "import subprocess, sys, time; "
        f"print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid); time.sleep(1)"
    )
    watched = Watched([sys.executable, "-c", parent], tmp_path / "log", {})
    assert watched.wait_end(30) and watched.status == 0
    watched.end()
    assert watched.peak_bytes > 30_000_000 and watched.ended > watched.started
    pid = int((tmp_path / "log").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads on a busy machine wait for each other more than they compute."""
    before = torch.get_num_threads()
    monkeypatch.setattr(baseline, "THREADS", 1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_both_baselines_learn_from_the_suites_own_split(tmp_path: Path) -> None:
    small = dataclasses.replace(
        W2, num_clients=4, local_steps=50, train_rows=800, test_rows=200, lr=0.3
    )
    root, source = provide(small, tmp_path / "nowhere", tmp_path / "data", False)
    assert source.startswith("synthetic")
    folder = tmp_path / "job"
    assert "105 inputs" in export(small, root, 4, folder)
    job, data = open_job(folder)
    assert sorted(np.concatenate(data.parts)) == list(range(800)) and len(data.test()[1]) == 200
    sizes = [len(y) for _, y in baseline.batches(data.client(0), job)]
    assert sizes == [64] * 50
    larger_class = float(data.test()[1].bincount().max()) / 200
    for variant in baseline.VARIANTS:
        baseline.run(variant, folder, tmp_path / "rounds.json")
        rounds = json.loads((tmp_path / "rounds.json").read_text())
        assert [row["round"] for row in rounds] == [1, 2, 3, 4]
        assert rounds[-1]["accuracy"] > larger_class + 0.05, variant
