"""Suite files: what they expand to, what is refused, what a run's name and key depend on."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsuite.core.settings import UserError
from fedsuite.suites.code_version import code_version
from fedsuite.suites.definition import Suite, read_suite, select
from fedsuite.suites.jobs import manifest, plan_jobs, run_key, run_name

TEXT = """
title = "A table"
metric = "final_accuracy"
rows = "algo"
columns = ["data"]
runs = 8
runs-small = 2

[base]
num-clients = 4
num-rounds = 9
fedprox.zeta = 0.5

[axes]
seed = [1, 2]

[axes.algo]
fedavg = {}
"fedprox weak" = { algo = "fedprox", fedprox.zeta = 0.01 }

[axes.data]
even = { partition = "iid", local-steps = 7 }
skewed = { dirichlet-alpha = 0.1, local-steps = 8 }

[small]
num-rounds = 2
local-steps = 3

[small.axes]
seed = [1]

[small.axes.data]
skewed = { batch-size = 4, local-steps = 5 }
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def save(text: str = TEXT) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return path

    return save


def settings(suite: Suite, **labels: object) -> dict[str, object]:
    (plan,) = [plan for plan in suite.plans if plan.labels == labels]
    return plan.settings


OVERRIDES = """
[[override]]
when = { data = "skewed" }
local-steps = 20
lr = 0.2

[[override]]
when = { algo = ["fedavg", "fedprox weak"], data = "skewed", seed = 2 }
lr = 0.3
fedprox.zeta = 0.9

[[small.override]]
when = { algo = "fedavg", data = "skewed" }
local-steps = 30
"""


def test_overrides_are_for_the_runs_they_name_and_later_ones_win(write: Write) -> None:
    suite = read_suite(write(TEXT + OVERRIDES))
    assert "lr" not in settings(suite, seed=2, algo="fedavg", data="even")
    first = settings(suite, seed=1, algo="fedprox weak", data="skewed")
    assert (first["local-steps"], first["lr"], first["fedprox.zeta"]) == (20, 0.2, 0.01)
    second = settings(suite, seed=2, algo="fedprox weak", data="skewed")
    assert (second["local-steps"], second["lr"], second["fedprox.zeta"]) == (20, 0.3, 0.9)


def test_at_small_scale_the_small_settings_win_over_overrides_but_not_over_its_own(
    write: Write,
) -> None:
    suite = read_suite(write(TEXT + OVERRIDES), "small")
    plain = settings(suite, seed=1, algo="fedavg", data="skewed")
    assert (plain["lr"], plain["local-steps"], plain["batch-size"]) == (0.2, 30, 4)
    other = settings(suite, seed=1, algo="fedprox weak", data="skewed")
    assert (other["lr"], other["local-steps"]) == (0.2, 5)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("[[override]]\nlr = 1", "it must have settings and a 'when'"),
        ("[[override]]\nwhen = {}\nlr = 1", "it must have settings and a 'when'"),
        ("[[override]]\nwhen = { seed = 1 }", "it must have settings and a 'when'"),
        ("[[override]]\nwhen = { alg = 1 }\nlr = 1", "'alg' in override is not an axis. Did you"),
        ("[[override]]\nwhen = { seed = 7 }\nlr = 1", "override has no label '7' of seed. Choices"),
        ("[[override]]\nwhen = { seed = 1 }\nlrr = 1", "unknown key 'override (seed=1).lrr'"),
        ("[[override]]\nwhen = { seed = 1 }\nresume = true", "is set by the command"),
        ("[small.override]\nlr = 1", "small.override must be tables written as"),
        (
            "[[small.override]]\nwhen = { data = 'even' }\nlr = 1",
            "small.override has no label 'even' of data",
        ),
    ],
)
def test_an_override_that_cannot_be_meant_is_refused(write: Write, table: str, reason: str) -> None:
    with pytest.raises(UserError, match=re.escape(reason)):
        read_suite(write(f"{TEXT}\n{table}\n"), "small")


def test_runs_are_all_combinations_and_later_settings_win(write: Write) -> None:
    suite = read_suite(write())
    assert suite.name == "mine" and len(suite.plans) == 2 * 2 * 2
    assert settings(suite, seed=2, algo="fedprox weak", data="skewed") == {
        "num-clients": 4,
        "num-rounds": 9,
        "seed": 2,
        "algo": "fedprox",
        "fedprox.zeta": 0.01,
        "dirichlet-alpha": 0.1,
        "local-steps": 8,
    }


def test_the_small_scale_overrides_and_picks(write: Write) -> None:
    suite = read_suite(write(), "small")
    assert suite.name == "mine-small"
    assert [plan.labels["algo"] for plan in suite.plans] == ["fedavg", "fedprox weak"]
    assert settings(suite, seed=1, algo="fedavg", data="skewed") == {
        "num-clients": 4,
        "num-rounds": 2,
        "fedprox.zeta": 0.5,
        "seed": 1,
        "algo": "fedavg",
        "dirichlet-alpha": 0.1,
        "local-steps": 5,
        "batch-size": 4,
    }


def test_combinations_can_be_left_out(write: Write) -> None:
    text = TEXT.replace("runs = 8", 'runs = 6\nskip = [{ algo = "fedavg", data = "even" }]')
    suite = read_suite(write(text))
    assert not [
        p for p in suite.plans if p.labels["algo"] == "fedavg" and p.labels["data"] == "even"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("runs = 8", "runs = 9", "runs = 9, but it expands to 8 runs"),
        ("metric =", "metrik =", "Did you mean 'metric'"),
        ('"final_accuracy"', '"final_acuracy"', "Did you mean 'final_accuracy'"),
        ('rows = "algo"', "rows = 3", "invalid value 3 for rows: it must be text"),
        ('rows = "algo"', 'rows = "method"', "'method' in rows is not an axis"),
        ('title = "A table"', "", "the key 'title' is missing"),
        ("num-clients = 4", "num-client = 4", "unknown key 'base.num-client'"),
        ("batch-size = 4", "batchsize = 4", "unknown key 'small.axes.data.skewed.batchsize'"),
        ("seed = [1]", "seed = [3]", "small.axes.seed has no label '3'"),
        ("seed = [1]", "sead = [1]", "small.axes.sead is not an axis"),
        ("seed = [1, 2]", "seed = []", "axes.seed must be a list"),
        ("seed = [1, 2]", "seed = [[1], [2]]", "axes.seed must be a list"),
        ("num-clients = 4", 'data-root = "x"', "set by the command"),
        ("even = {", "even = 3 # {", "invalid value 3 for axes.data.even"),
        (
            "runs = 8",
            'runs = 8\npaper = ["TACO, Table IX"]',
            "no paper numbers of 'TACO, Table IX'",
        ),
        ("runs = 8", "runs = 8\nskip = [3]", "invalid value 3 for skip"),
        ("[axes]", "[axes", "not valid TOML"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(
    write: Write, old: str, new: str, expected: str
) -> None:
    assert old in TEXT
    path = write(TEXT.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        read_suite(path, "small" if old in TEXT.split("[small]")[1] else "paper")
    assert expected in str(caught.value) and str(path) in str(caught.value)


def test_a_wrong_value_names_the_run(write: Write) -> None:
    suite = read_suite(write(TEXT.replace("fedavg = {}", "fedavgg = {}")))
    with pytest.raises(UserError, match=r"mine.toml, run seed=1, algo=fedavgg.*'fedavg'"):
        suite.resolve(suite.plans[0])


def test_a_suite_without_a_small_variant_says_so(write: Write) -> None:
    with pytest.raises(UserError, match=r"no \[small\] table"):
        read_suite(write(TEXT.split("[small]")[0]), "small")
    with pytest.raises(UserError, match="no suite file"):
        read_suite(Path("nowhere.toml"))


def test_only_picks_runs_by_label(write: Write) -> None:
    suite = read_suite(write())
    assert len(select(suite, [])) == 8
    assert len(select(suite, ["algo=fedprox*", "seed=2"])) == 2
    assert len(select(suite, ["data=even", "data=skewed", "algo=fedavg"])) == 4
    with pytest.raises(UserError, match="LABEL=VALUE; labels: seed, algo, data"):
        select(suite, ["colour=red"])
    with pytest.raises(UserError, match="Did you mean 'fedavg'"):
        select(suite, ["algo=fedavgg"])


def test_a_key_depends_on_settings_but_not_on_place(write: Write) -> None:
    suite = read_suite(write())
    config = suite.resolve(suite.plans[0])
    key = run_key(config)
    elsewhere = dataclasses.replace(
        config, data_root="/data", results_dir="/out", run_name="x", resume=True
    )
    assert run_key(elsewhere) == key
    assert run_key(dataclasses.replace(config, lr=0.2)) != key
    other = suite.resolve(suite.plans[0], {"fedprox.zeta": 0.7})
    assert run_key(other) == key, "another algorithm's key decides nothing"


def test_a_key_depends_on_the_code_of_its_own_algorithm(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = read_suite(write())
    configs = [suite.resolve(plan) for plan in (suite.plans[0], suite.plans[2])]
    before = [run_key(config) for config in configs]
    versions = {configs[0].algo: code_version(configs[0].algo), configs[1].algo: "changed"}
    monkeypatch.setattr("fedsuite.suites.jobs.code_version", versions.__getitem__)
    after = [run_key(config) for config in configs]
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)


def test_names_can_be_read_and_end_in_the_key() -> None:
    labels: dict[str, str | int] = {
        "algo": "taco (step units)",
        "data": "adult Dir(0.5)",
        "seed": 3,
    }
    assert run_name(labels, "1a2b3c4d5e") == "taco-step-units-adult-dir-0.5-s3-1a2b3c4d"


def test_the_manifest_tells_a_report_what_it_needs(write: Write, tmp_path: Path) -> None:
    suite = read_suite(write(), "small")
    mine, listed = plan_jobs(suite, select(suite, ["algo=fedavg"]), tmp_path, "")
    assert mine == listed and len(mine) == 1
    document = json.loads(json.dumps(manifest(suite, listed, "../data")))
    (run,) = document.pop("runs")
    assert run["labels"] == {"algo": "fedavg", "data": "skewed", "seed": 1}
    assert run["name"] == f"fedavg-skewed-s1-{run['key'][:8]}" and len(run["key"]) == 64
    assert run["code"] == code_version("fedavg")[:16]
    assert document == {
        "name": "mine",
        "title": "A table",
        "note": "",
        "scale": "small",
        "metric": "final_accuracy",
        "better": "higher",
        "unit": "%",
        "also": [],
        "rows": "algo",
        "columns": ["data"],
        "command": f"fedsuite suite {suite.path} --scale small --data-root ../data",
        "paper": [],
        "paper_also": [],
        "planned": 2,
    }


def test_printed_numbers_stand_beside_their_runs(tmp_path: Path) -> None:
    suite = read_suite(Path(__file__).parents[3] / "sim_configs/suites/taco_table6.toml", "small")
    document = manifest(suite, [], "")
    labels = {"parts": "correction + aggregation", "data": "adult Dir(0.1)"}
    cell = {"labels": labels, "value": 83.64, "std": None, "source": "TACO, Table VI"}
    cell["target"] = None
    assert cell in document["paper"] and len(document["paper"]) == 8


def test_runs_this_version_cannot_run_matter_only_when_chosen(write: Write, tmp_path: Path) -> None:
    suite = read_suite(write(TEXT.replace("fedavg = {}", "unheard-of = {}")))
    mine, _ = plan_jobs(suite, select(suite, ["algo=fedprox weak"]), tmp_path, "")
    assert len(mine) == 4
    with pytest.raises(UserError, match="unheard-of"):
        plan_jobs(suite, suite.plans, tmp_path, "")


def test_an_axis_must_show_in_the_table(write: Write) -> None:
    """Two values of data in one cell would pass for two seeds; one value hides nothing."""
    hidden = TEXT.replace('columns = ["data"]', "columns = []")
    with pytest.raises(UserError, match="axis 'data' is in neither rows nor columns"):
        read_suite(write(hidden))
    assert len(read_suite(write(hidden), "small").plans) == 2


def test_two_labels_for_one_run_are_refused(write: Write, tmp_path: Path) -> None:
    twins = TEXT.replace("fedavg = {}", 'fedavg = {}\n"FedAvg!" = { algo = "fedavg" }')
    suite = read_suite(write(twins.replace("runs = 8", "runs = 12")))
    with pytest.raises(UserError, match="algo=fedavg, data=even.*algo=FedAvg!.* the same run"):
        plan_jobs(suite, suite.plans, tmp_path, "")


def test_keys_that_the_command_gives_are_not_proposed(write: Write) -> None:
    with pytest.raises(UserError, match="unknown key 'base.num-client'") as refused:
        read_suite(write(TEXT.replace("num-clients", "num-client")))
    assert "'num-clients'" in str(refused.value)
    assert "results-dir" not in str(refused.value) and "params" not in str(refused.value)
