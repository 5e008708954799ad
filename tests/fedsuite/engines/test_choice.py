"""The engine of a run that names none: by its length, and in one line why."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsuite.cli.main import main
from fedsuite.config import RunConfig, parse
from fedsuite.core.files import read_document
from fedsuite.engines.choice import Cost, choose_engine, estimate_seconds, measure_cost
from fedsuite.training.loop import check_feasible

NO_GPU = "fedsuite.engines.choice.best_device"


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NO_GPU, lambda: "cpu")


def config_of(**settings: object) -> RunConfig:
    return parse({key.replace("_", "-"): value for key, value in settings.items()})


def chosen(config: RunConfig) -> tuple[str, str]:
    return choose_engine(config, *check_feasible(config))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # 10 rounds of (10 clients x 1437 / 10 samples x 1 ms + 360 test samples x 0.1 ms)
        ({}, 14.73),
        ({"local_epochs": 3}, 43.47),
        # 4 of 10 clients
        ({"fraction_train": 0.4}, 6.108),
        ({"fraction_train": 0.1, "min_train_clients": 4}, 6.108),
        # 10 clients x 5 steps of 16 samples instead
        ({"local_steps": 5}, 8.36),
        # test samples in every second round, and 100 of them
        ({"eval_every": 2}, 14.55),
        ({"eval_rows": 100}, 14.47),
    ],
)
def test_an_estimate_worked_by_hand(settings: dict[str, object], expected: float) -> None:
    config = config_of(num_clients=10, num_rounds=10, batch_size=16, **settings)
    split = check_feasible(config)[0].split
    assert sum(map(len, split.train)) == 1437 and len(split.test) == 360
    assert estimate_seconds(config, split, Cost(0.001, 0.0001)) == pytest.approx(expected)


def test_clients_that_score_themselves_are_counted() -> None:
    config = config_of(num_clients=10, num_rounds=1, personal_eval="on")
    split = check_feasible(config)[0].split
    train, own = (sum(map(len, rows)) for rows in (split.train, split.own_test))
    assert own > 0
    expected = train * 0.002 + (360 + own) * 0.001
    assert estimate_seconds(config, split, Cost(0.002, 0.001)) == pytest.approx(expected)


def test_a_short_run_stays_in_this_process_and_a_long_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedsuite.engines.choice.measure_cost", lambda *_: Cost(0.001, 0.0))
    short = config_of(num_clients=10, num_rounds=20)  # 20 x 1.437 s
    assert chosen(short) == (
        "inline",
        "engine inline: about 29 s of training on one core (--engine ray uses all cores)",
    )
    long = config_of(num_clients=10, num_rounds=21)
    assert chosen(long) == (
        "ray",
        "engine ray: about 30 s of training on one core (--engine inline uses this process)",
    )


def test_digits_are_short_and_a_thousand_times_as_many_rounds_long() -> None:
    """As measured here and now; the defaults are seconds, far from the limit on any machine."""
    assert chosen(config_of())[0] == "inline"
    assert chosen(config_of(num_rounds=20_000))[0] == "ray"


def test_a_gpu_means_ray_unless_the_device_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NO_GPU, lambda: "cuda")
    assert chosen(config_of()) == ("ray", "engine ray: there is a GPU")
    assert chosen(config_of(device="cpu"))[0] == "inline"


@pytest.mark.parametrize("model", ["mlp", "resnet18"])
def test_a_cost_is_measured_without_changing_statistics_or_drawing_numbers(
    model: str, small_resnet: None
) -> None:
    import torch

    config = config_of(model=model, batch_size=1)
    task, module = check_feasible(config)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    drawn, threads = torch.random.get_rng_state(), torch.get_num_threads()
    cost = measure_cost(module, task, config.batch_size)
    assert cost.train > 0 and cost.score > 0
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), drawn) and torch.get_num_threads() == threads


def test_a_run_says_in_a_line_what_was_chosen_and_records_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["num-rounds=1", "num-clients=2", "model=mlp"]
    assert main(["run", "fedavg", *settings, "--name", "short"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("engine inline: about ")
    assert read_document(Path("runs/short/config.json"))["meta"]["engine"] == "inline"
    assert main(["run", "fedavg", *settings, "--name", "named", "--engine", "inline"]) == 0
    assert "engine inline" not in capsys.readouterr().out
