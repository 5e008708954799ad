"""Runs from Python: the command's results, its sentences, its resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import lines_in
from run_folders import write_run
from sklearn.datasets import load_digits

import fedsuite
from fedsuite.api.start import spell_keywords
from fedsuite.cli.main import main
from fedsuite.engines import start
from fedsuite.engines.contract import EngineOptions
from fedsuite.engines.remote import Ended
from fedsuite.flower.connections import Connection
from fedsuite.records.folder import RunFolder, RunState
from fedsuite.terminal.progress import follow
from tasks.task import open_task

SMALL: dict[str, Any] = {"num_clients": 3, "num_rounds": 3, "model": "mlp", "engine": "inline"}


@pytest.fixture(autouse=True)
def current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "helpers"))


def model_of(run: fedsuite.Run) -> bytes:
    return (run.path / "model.safetensors").read_bytes()


def test_a_run_is_the_commands_with_its_record_as_tables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = fedsuite.run("taco", **SMALL, taco={"kappa": 0.7}, name="mine", progress=False)
    assert capsys.readouterr() == ("", "")
    words = ["run", "taco", "num-clients=3", "num-rounds=3", "model=mlp", "taco.kappa=0.7"]
    assert main([*words, "--engine", "inline", "--name", "theirs"]) == 0
    assert model_of(run) == model_of(fedsuite.load("theirs"))
    assert run.path == Path("runs/mine").absolute() and run.name == "mine"
    assert run.config["taco.kappa"] == 0.7 and run.state is RunState.FINISHED
    assert list(run.history["round"]) == [0, 1, 2, 3]
    assert run.summary["final_accuracy"] == run.history["accuracy"].iloc[-1]
    assert len(run.clients) == 9 and set(run.clients["client"]) == {0, 1, 2}
    assert repr(run).startswith("<Run mine: finished, round 3, final accuracy 0.")


def test_a_model_is_used_as_it_was_scored() -> None:
    """Raw pixels of the test split give the accuracy of the summary."""
    run = fedsuite.run("fedavg", **SMALL, progress=False)
    task = open_task(RunFolder(run.path).read_config().task)
    images = load_digits().images.astype(np.uint8)
    found = run.predict(images)
    rows = {x.tobytes(): row for row, x in enumerate(run.preprocess(images).numpy())}
    scored = [(rows[task.dataset.x[n].tobytes()], task.dataset.y[n]) for n in task.split.test]
    right = [found.names[row] == str(label) for row, label in scored]
    assert sum(right) / len(right) == run.summary["final_accuracy"]
    assert not run.model().training
    with torch.no_grad():
        logits = run.model()(run.preprocess(images[:2]))
    assert logits.softmax(1).numpy() == pytest.approx(found.probabilities[:2], abs=1e-6)


def test_a_client_has_a_model_of_its_own() -> None:
    run = fedsuite.run("local", **SMALL, progress=False)
    blank = np.zeros((8, 8), np.uint8)
    chances = [run.personal_model(client).predict(blank).probabilities for client in (0, 1)]
    assert chances[0].shape == (1, 10) and (chances[0] != chances[1]).any()
    with pytest.raises(fedsuite.UserError, match="client"):
        run.predict(blank)


def test_what_is_added_to_a_table_stays(tmp_path: Path) -> None:
    run = fedsuite.load(write_run(tmp_path / "runs", "mine", "fedavg", [0.25, 0.5]))
    run.history["percent"] = 100 * run.history["accuracy"]
    assert list(run.history["percent"]) == [25.0, 50.0]
    assert fedsuite.load(run).path == fedsuite.load("mine").path == run.path


@pytest.mark.parametrize(
    ("keywords", "spelt"),
    [
        ({"num_rounds": np.int64(3), "lr": np.float32(0.5)}, {"num-rounds": 3, "lr": 0.5}),
        ({"taco": {"gradient_units": "round"}}, {"taco.gradient-units": "round"}),
        ({"taco": {"lambda": 2}}, {"taco.lambda": 2}),
        ({"fedprox_tailored": {"zeta": 1}}, {"fedprox-tailored.zeta": 1}),
        ({"taco.kappa": 0.7, "results-dir": "x"}, {"taco.kappa": 0.7, "results-dir": "x"}),
    ],
)
def test_keywords_are_settings(keywords: dict[str, Any], spelt: dict[str, Any]) -> None:
    assert spell_keywords(keywords) == spelt


@pytest.mark.parametrize(
    ("algo", "keywords", "words"),
    [
        ("tacoo", {}, []),
        ("taco", {"num_round": 3}, ["num-round=3"]),
        ("taco", {"kappa": 0.7}, ["kappa=0.7"]),
        ("taco", {"taco": {"kapa": 0.7}}, ["taco.kapa=0.7"]),
        ("taco", {"settings": {"taco.kapa": 0.7}}, ["taco.kapa=0.7"]),
        ("taco", {"fedprox": {"zeta": 1}}, ["fedprox.zeta=1"]),
        ("fedavg", {"lr": "fast"}, ["lr=fast"]),
        ("fedavg", {"partition": "iid", "num_shards": 9}, ["partition=iid", "num-shards=9"]),
        ("fedavg", {"files": ["taco_adulte"]}, ["-f", "taco_adulte"]),
        ("fedavg", {"engine": "inline", "gpus": 0.5}, ["--engine", "inline", "--gpus", "0.5"]),
        ("fedavg", {"superlink": "hub", "nodes": 2}, ["--superlink", "hub", "--nodes", "2"]),
    ],
)
def test_errors_are_the_commands_sentences(
    algo: str, keywords: dict[str, Any], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(fedsuite.UserError) as refusal:
        fedsuite.run(algo, **keywords)
    assert main(["run", algo, *words]) == 2
    assert capsys.readouterr().err == f"fedsuite: {refusal.value}\n"
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "options", [{"nodes": -1}, {"nodes": 1001}, {"nodes": 1.5}, {"gpus": -1.0}, {"engine": "raay"}]
)
def test_options_that_no_command_line_accepts_are_refused(options: dict[str, Any]) -> None:
    ((key, value),) = options.items()
    with pytest.raises(fedsuite.UserError, match=f"invalid value '{value}' for --{key}"):
        fedsuite.run("fedavg", **options)


def test_a_run_that_fails_raises_with_its_folder_and_how_to_resume_it() -> None:
    with pytest.raises(fedsuite.RunFailed, match="nobody is home") as failure:
        fedsuite.run("faulty:ALL", **SMALL, name="bad")
    folder, how = failure.value.__notes__
    assert folder.endswith(str(Path("runs/bad").absolute()))
    assert how == "to resume it: `fedsuite resume bad`"


def test_a_run_that_lacks_something_warns() -> None:
    with pytest.warns(fedsuite.IncompleteRun, match="of the client updates are missing") as seen:
        run = fedsuite.run("faulty:SOME", **SMALL, name="lossy")
    assert seen[0].filename == __file__
    assert run.exit_status == 3 and run.summary["failed_replies"] > 0


@pytest.fixture
def interrupting(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the next run be interrupted after its first round, as Ctrl-C or a notebook does it."""

    def interrupt(folder: Path, rounds: int, alive: Callable[[float], bool], *_: Any) -> None:
        while lines_in(folder / "history.jsonl") < 2 and alive(0.01):
            pass
        raise KeyboardInterrupt

    def arm() -> None:
        calls: Iterator[Callable[..., None]] = iter([interrupt])
        monkeypatch.setattr(start, "follow", lambda *args: next(calls, follow)(*args))

    return arm


def test_an_interrupted_run_is_resumed_to_the_same_model(
    interrupting: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    small = SMALL | {"num_rounds": 40}
    whole = fedsuite.run("fedavg", **small, name="whole", progress=False)
    interrupting()
    with pytest.raises(KeyboardInterrupt):
        fedsuite.run("fedavg", **small, name="cut", progress=False)
    assert "to resume it: `fedsuite resume cut`" in capsys.readouterr().err
    assert fedsuite.load("cut").state is RunState.INTERRUPTED
    run = fedsuite.resume("cut", progress=False)
    assert model_of(run) == model_of(whole) and run.state is RunState.FINISHED
    assert fedsuite.resume(run).summary == run.summary
    assert (
        "The run 'cut' is done (finished): there is nothing to resume." in capsys.readouterr().out
    )


def test_of_a_run_on_another_machine_the_place_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Connection("hub", "hub.example:8000")
    ended = Ended(Path("/srv/runs/far"), "hub.example", lacks=True)
    monkeypatch.setattr("fedsuite.flower.connections.find_connection", lambda name: hub)
    monkeypatch.setattr("fedsuite.engines.remote.submit_run", lambda *_: ended)
    run = fedsuite.run("fedavg", superlink="hub")
    assert (run.path, run.machine, run.exit_status) == (ended.folder, "hub.example", 3)
    assert repr(run) == "<Run far: on hub.example>"
    with pytest.raises(fedsuite.UserError, match="in /srv/runs/far on hub.example. Copy that"):
        run.history  # noqa: B018


def test_the_settings_of_a_call_win_over_a_shipped_file(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def note(config: Any, engine: str, options: EngineOptions, console: Any) -> Path:
        seen.append((config, engine, options))
        raise fedsuite.RunFailed("noted")

    monkeypatch.setattr(start, "start_run", note)
    with pytest.raises(fedsuite.RunFailed):
        fedsuite.run("taco", files=["taco_adult"], lr=0.5, engine="inline", nodes=2)
    ((config, engine, options),) = seen
    assert (config.dataset, config.local_steps, config.lr) == ("adult", 100, 0.5)
    assert (engine, options.nodes, options.gpus) == ("inline", 2, 0.0)
