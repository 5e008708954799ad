"""Clients of a run, and runs of a suite, on a Ray cluster that is there already."""

from __future__ import annotations

import dataclasses
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import processes
import pytest

from faults.cluster import Cluster, ray_cluster
from fedsuite.cli.main import main
from fedsuite.config import parse
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.installation import ROOT
from fedsuite.core.settings import UserError
from fedsuite.engines import cluster as clusters
from fedsuite.engines.cluster import (
    Machine,
    code_digest,
    count_slots,
    describe_cluster,
    refuse_other_code,
    refuse_unshared,
    versions,
)
from fedsuite.engines.inline import run_inline
from fedsuite.records.folder import RunFolder
from fedsuite.suites.cluster_group import ClusterGroup, pack, unpack

HERE = Machine("a", "10.0.0.1", 4.0, 1.0, code_digest(ROOT), versions(), True)
SETTINGS = {"num_clients": 6, "num_rounds": 100, "model": "mlp", "lr": 0.02}
WORDS = [f"{key.replace('_', '-')}={value}" for key, value in SETTINGS.items()]


def test_workers_are_counted_machine_by_machine() -> None:
    """4 cores and 1 GPU: 4 workers, 2 of half a GPU, 1 of three cores; 2 cores more: 6 in all."""
    assert [HERE.slots(0.0), HERE.slots(0.5), HERE.slots(0.0, cores=3)] == [4, 2, 1]
    small = dataclasses.replace(HERE, cpus=2.0, gpus=0.0)
    assert count_slots([HERE, small], 0.0) == 6
    assert count_slots([HERE, small], 0.5) == 2
    assert describe_cluster([HERE, small], 6) == "on a Ray cluster of 2 machines, 6 workers"
    with pytest.raises(UserError, match=r"No machine .* has 3 cores and 0\.5 GPUs"):
        count_slots([small], 0.5, cores=3)


def test_a_machine_with_other_code_or_libraries_is_refused() -> None:
    refuse_other_code([HERE])
    with pytest.raises(UserError, match=r"10\.0\.0\.1 .* has other code of fedsuite"):
        refuse_other_code([HERE, dataclasses.replace(HERE, code="other")])
    with pytest.raises(UserError, match=r"has torch 0; this one has Python 3"):
        refuse_other_code([dataclasses.replace(HERE, versions="torch 0")])


def test_the_code_is_known_by_names_and_content(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "a.py").write_text("x = 1\n")
    first = code_digest(tmp_path)
    (tmp_path / "tasks" / "notes.txt").write_text("of no effect")
    assert code_digest(tmp_path) == first
    (tmp_path / "tasks" / "a.py").write_text("x = 2\n")
    assert code_digest(tmp_path) != first


def test_a_machine_that_does_not_see_the_results_is_refused(tmp_path: Path) -> None:
    refuse_unshared([HERE], tmp_path)
    with pytest.raises(UserError, match="Set results-dir to a folder that all machines share"):
        refuse_unshared([dataclasses.replace(HERE, sees_folder=False)], tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "fedavg", "--engine", "inline"], "has no effect on the engine inline"),
        (["run", "fedavg", "--superlink", "hub"], "leave --engine, --nodes, --gpus and --ray-add"),
        (["suite", "x.toml", "--engine", "ray"], "Leave --engine out"),
    ],
)
def test_options_that_do_not_go_with_a_cluster_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--ray-address", "10.0.0.1:6379"]) == 2
    assert said in capsys.readouterr().err


def test_gpus_of_a_suite_need_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite", "x.toml", "--gpus", "0.5"]) == 2
    assert "--gpus has no effect without --ray-address" in capsys.readouterr().err


def test_a_suite_has_as_many_runs_at_a_time_as_fit_or_are_asked_for() -> None:
    assert ClusterGroup([HERE], 0, 1, 0.0).width == 4
    assert ClusterGroup([HERE], 3, 1, 0.0).width == 3
    assert ClusterGroup([HERE], 9, 2, 0.0).width == 2


def test_a_run_is_fetched_whole(tmp_path: Path) -> None:
    (tmp_path / "there" / "clients").mkdir(parents=True)
    (tmp_path / "there" / "clients" / "0").write_bytes(b"state")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "stale").write_text("of an earlier try")
    unpack(pack(tmp_path / "there"), tmp_path / "here")
    assert [p.name for p in (tmp_path / "here").iterdir()] == ["clients"]
    assert (tmp_path / "here" / "clients" / "0").read_bytes() == b"state"
    assert stat.S_IMODE((tmp_path / "here").stat().st_mode) == 0o700


def test_where_no_cluster_is_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: object) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setitem(__import__("sys").modules, "ray", SimpleNamespace(init=init))
    with (
        pytest.raises(UserError, match=r"no Ray cluster can be joined there \(nobody there\)"),
        clusters.connected("10.0.0.1:6379"),
    ):
        pass


def test_a_machine_that_turns_out_to_be_gone_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray lists it for some seconds more; one that is there and fails is refused."""
    import ray
    from ray.exceptions import TaskUnschedulableError

    def node(name: str) -> dict[str, Any]:
        return {"NodeID": name, "NodeManagerAddress": name, "Resources": {"CPU": 1.0}}

    def get(name: str, timeout: float) -> dict[str, Any]:
        if name == "lost":
            raise TaskUnschedulableError("doesn't exist any more")
        return clusters.describe_machine(str(marked[0]), "other")

    marked: list[str] = []

    def on_machine(function: Any, name: str) -> Any:
        def remote(mark: str, token: str) -> str:
            marked.append(mark)
            return name

        return SimpleNamespace(remote=remote)

    listed = [[node("near"), node("lost")], [node("near")]]
    monkeypatch.setattr(clusters, "_alive", lambda: listed.pop(0))
    monkeypatch.setattr(clusters, "on_machine", on_machine)
    monkeypatch.setattr(ray, "get", get)
    assert [machine.address for machine in clusters.survey(tmp_path)] == ["near"]
    listed += [[node("near"), node("lost")]] * 2
    with pytest.raises(UserError, match="The machine lost of the Ray cluster cannot run fedsuite"):
        clusters.survey(tmp_path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of two raylets."""
    with ray_cluster() as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.variables.items():
            patch.setenv(name, value)
        yield made


def models(folder: Path) -> dict[str, bytes]:
    """The models that a run has saved, the global one or the clients'."""
    found = [*folder.glob("model.safetensors"), *(folder / "models").glob("*")]
    return {path.name: path.read_bytes() for path in found}


@pytest.mark.ray
def test_a_suites_runs_on_a_cluster_give_the_bits_of_this_machine(
    cluster: Cluster, tmp_path: Path
) -> None:
    lines = ['title = "T"', 'metric = "final_accuracy"', 'rows = "algo"', 'columns = ["dataset"]']
    lines += ["runs = 2", "[base]", 'model = "mlp"', "num-clients = 3", "num-rounds = 2", "[axes]"]
    lines += ['algo = ["taco", "fedamp"]', 'dataset = ["digits"]', "seed = [1]"]
    (tmp_path / "mine.toml").write_text("\n".join(lines))
    words = ["suite", "mine.toml", "--results-dir", "far", "--ray-address", cluster.address]
    status, out = processes.finish(words, tmp_path)
    assert status == 0, out
    runs = [RunFolder(file.parent) for file in sorted(tmp_path.rglob("far/*/*/config.json"))]
    assert len(runs) == 2
    for run in runs:
        config = read_document(run.config_file)
        values = {key: value for key, value in config.items() if key not in ("meta", "run-id")}
        alone = run_inline(parse(values | {"results-dir": str(tmp_path / "near")}))
        assert models(run.path) == models(alone) != {}


@pytest.mark.ray
def test_a_lost_machine_costs_its_clients_a_retry(
    cluster: Cluster, tmp_path: Path, experiment: Callable[..., Path]
) -> None:
    """SCAFFOLD's clients keep states, which the machine that takes over must find.

    The last test of this cluster, which has one machine left.
    """
    run = RunFolder(tmp_path / "runs" / "hurt")
    words = ["run", "scaffold", *WORDS, "--ray-address", cluster.address, "--name", "hurt"]
    process = processes.start(words, tmp_path)
    try:
        while process.poll() is None and processes.lines_in(run.history_file) < 3:
            time.sleep(0.05)
        cluster.lose()
        out = process.communicate(timeout=400)[0].decode()
    finally:
        processes.kill_all(process)
    assert process.returncode == 0, out
    assert "on a Ray cluster of 2 machines, 2 workers" in out
    notes = [row["note"] for row in read_lines(run.history_file) if "note" in row]
    assert notes and "its clients are sent again" in notes[0]
    assert read_document(run.summary_file)["missing_updates"] == 0.0
    undisturbed = experiment("scaffold", **SETTINGS)
    assert run.model_file.read_bytes() == (undisturbed / "model.safetensors").read_bytes()
    assert os.listdir(run.path / "clients")
