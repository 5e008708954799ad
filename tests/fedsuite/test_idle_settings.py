"""No setting that a user gives is accepted to do nothing; what was accepted once still is."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest

from fedsuite import registry
from fedsuite.config import (
    RunConfig,
    all_defaults,
    from_json,
    parse,
    read_toml,
    setting_groups,
)
from fedsuite.core.needs import holds
from fedsuite.core.settings import UserError, kebab, spell
from fedsuite.nodes.setup import changed
from tasks.partitions import PARTITIONS

ROOT = Path(__file__).parents[2]
# One case per need: the settings, and the key that has no effect with them.
IDLE: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9, "optimizer": "adam"},
    "lr-decay": {"lr-decay": 0.5},
    "label-column": {"label-column": "y"},
    "dirichlet-alpha": {"dirichlet-alpha": 0.1, "partition": "iid"},
    "num-shards": {"num-shards": 40},
    "shards-per-client": {"shards-per-client": 3, "partition": "groups"},
    "classes-per-client": {"classes-per-client": 3},
    "natural-rows": {"natural-rows": 100},
    "size-ratio": {"size-ratio": 4, "partition": "natural"},
    "local-epochs": {"local-epochs": 3, "local-steps": 5},
    "freeloader-noise": {"freeloader-noise": 0.1},
    "server-lr": {"server-lr": 0.5, "algo": "local"},
    "eval-rows": {"eval-rows": 10, "algo": "fedtgp"},
    "apple.mu": {"apple.mu": 1, "apple.p-lr": 0},
    "apple.fade": {"apple.fade": 0.5, "apple.mu": 0},
    "feda4.eta": {"feda4.eta": 0.1, "feda4.adaptation": False},
    "feda4.beta": {"feda4.beta": 2, "feda4.eta": 0},
    "feda4.theta": {"feda4.theta": 0.5, "feda4.adaptation": False},
    "feda4.tau-conc": {"feda4.tau-conc": 0.5, "feda4.eta": 0},
    "feda4.tau-sim": {"feda4.tau-sim": 0.5, "feda4.adaptation": False},
    "feda4.direction": {"feda4.direction": "printed", "feda4.eta": 0},
    "fedadw.x": {"fedadw.x": 1, "fedadw.weights": "samples"},
    "fedadw.y": {"fedadw.y": 1, "fedadw.weights": "samples"},
    "fedadw.normalise-discrepancy": {"fedadw.normalise-discrepancy": False, "fedadw.x": 0},
    "fedadw.discrepancy-sign": {"fedadw.discrepancy-sign": "reward", "fedadw.x": 0},
    "fedadw.ala-layers": {"fedadw.ala-layers": 1, "fedadw.adaptive": False},
    "fedadw.ala-percent": {"fedadw.ala-percent": 10, "fedadw.adaptive": False},
    "fedadw.ala-lr": {"fedadw.ala-lr": 0.1, "fedadw.adaptive": False},
    "fedadw.ala-tolerance": {"fedadw.ala-tolerance": 1, "fedadw.adaptive": False},
    "fedadw.ala-max-epochs": {"fedadw.ala-max-epochs": 9, "fedadw.adaptive": False},
    "fedadw.send-weights": {"fedadw.send-weights": True, "fedadw.adaptive": False},
    "fedamp.sigma": {"fedamp.sigma": 2, "fedamp.heuristic": True},
    "fedamp.alpha": {"fedamp.alpha": 2, "fedamp.lam": 0},
    "fedamp.heuristic": {"fedamp.heuristic": True, "fedamp.lam": 0},
    "fedamp.sharpness": {"fedamp.sharpness": 5},
    "fedamp.self-weight": {"fedamp.self-weight": 0.5},
    "fedbac.lam": {"fedbac.lam": 0.1, "fedbac.regularizer": "none"},
    "fedbac.regularizer": {"fedbac.regularizer": "gradient", "fedbac.lam": 0},
    "fedbac.printed-sign": {"fedbac.printed-sign": True},
    "fedbac.history": {"fedbac.history": 9, "fedbac.alpha": 0},
    "fedbac.window": {"fedbac.window": "rounds", "fedbac.alpha": 0},
    "fedbac.momentum-by": {"fedbac.momentum-by": "samples", "fedbac.reference": "current"},
    "fedfomo.epsilon": {"fedfomo.epsilon": 0.5, "fedfomo.models": 0},
    "fedfomo.decay": {"fedfomo.decay": 0.5, "fedfomo.epsilon": 0},
    "fedtgp.margin": {"fedtgp.margin": "nearest", "fedtgp.margin-cap": 0},
    "foolsgold.kappa": {"foolsgold.kappa": 2, "foolsgold.variant": "taco"},
    "pfedme.lam": {"pfedme.lam": 1, "pfedme.inner-steps": 0},
    "pfedme.personal-lr": {"pfedme.personal-lr": 1, "pfedme.inner-steps": 0},
    "pfedme.scored": {"pfedme.scored": "w", "pfedme.inner-steps": 0},
    "scaffold.control": {"scaffold.control": "gradient", "scaffold.coefficient": 0},
    "scaffold-tailored.control": {
        "scaffold-tailored.control": "gradient",
        "scaffold-tailored.coefficient": 0,
    },
    "taco.gamma": {"taco.gamma": 0.1, "taco.correction": False},
    "taco.gradient-units": {"taco.gradient-units": "step", "taco.correction": False},
    "taco.output": {"taco.output": "z", "taco.correction": False},
    "taco.replay": {"taco.replay": 0.5, "taco.detector": "printed"},
    "taco.kappa": {"taco.kappa": 0.7, "taco.correction": False, "taco.aggregation": False},
    "taco.lambda": {"taco.lambda": 3, "taco.correction": False, "taco.aggregation": False},
    "taco.detector": {
        "taco.detector": "printed",
        "taco.correction": False,
        "taco.aggregation": False,
    },
}


def case(key: str) -> dict[str, Any]:
    algo, dot, _ = key.partition(".")
    return ({"algo": algo} if dot else {}) | IDLE[key]


@pytest.mark.parametrize("key", IDLE)
def test_a_setting_without_effect_is_refused(key: str) -> None:
    with pytest.raises(UserError, match=rf"^{key}=\S+ has no effect (with|without|on) "):
        parse(case(key), idle="refuse")


@pytest.mark.parametrize("key", IDLE)
def test_in_a_suite_it_is_reset(key: str) -> None:
    settled = parse(case(key), idle="reset").flat()
    assert settled[key] == all_defaults()[key]
    assert parse(settled, idle="refuse").flat() == settled


@pytest.mark.parametrize("key", IDLE)
def test_what_was_recorded_is_accepted(key: str) -> None:
    """Nodes, resumed runs and changes at the start of a run read what was accepted before."""
    config = parse(case(key))
    assert spell(config.flat()[key]) == spell(type(config.flat()[key])(case(key)[key]))
    assert from_json(config.to_json()) == config == changed(config)
    resumed = config.flat() | {"resume": True, "run-name": "mine"}
    assert parse(resumed, idle="refuse").flat() == resumed


@pytest.mark.parametrize("algo", ["local", "fedamp", "fedfomo", "apple", "fedtgp"])
@pytest.mark.parametrize("key", ["server-lr", "eval-rows", "freeloader-noise"])
def test_without_a_shared_model_there_is_none_to_move_score_or_replay(algo: str, key: str) -> None:
    given = {"algo": algo, "freeloaders": "1", key: 2}
    with pytest.raises(UserError, match=f"^{key}=.* has no effect on {algo}: remove it"):
        parse(given, idle="refuse")
    assert parse(given | {"algo": "fedavg"}, idle="refuse").flat()[key] == 2


def test_every_need_has_its_case() -> None:
    declared = {
        key
        for group in setting_groups().values()
        for key, field in group.items()
        if field.metadata["needs"]
    }
    assert declared | {"server-lr", "eval-rows"} == set(IDLE)


def test_needs_name_settings_of_their_group_and_values_that_these_take() -> None:
    for name, group in setting_groups().items():
        kind = registry.params(name) if name else RunConfig
        usual = {kebab(f.name): spell(f.default) for f in dataclasses.fields(kind)}
        fields = {key.removeprefix(f"{name}."): field for key, field in group.items()}
        for field in fields.values():
            for need in field.metadata["needs"]:
                for condition in need.split(" or "):
                    key, _, value = condition.partition("=")
                    choices = fields[key].metadata["choices"]
                    assert choices is None or value in choices, condition
                holds(need, usual)


def test_a_partitions_settings_need_that_partition() -> None:
    shared = setting_groups()[""]
    for name, scheme in PARTITIONS.items():
        for own in scheme.settings:
            assert shared[kebab(own)].metadata["needs"] == (f"partition={name}",)


def test_all_defaults_pass_for_every_algorithm() -> None:
    for algo in registry.ALGORITHMS:
        given = all_defaults() | {"algo": algo}
        config = parse(given, foreign="default", idle="refuse")
        assert config == parse({"algo": algo}, idle="refuse")
        assert parse(config.flat(), idle="refuse") == config


@pytest.mark.parametrize(
    "file", sorted((ROOT / "sim_configs").glob("*.toml")), ids=lambda f: f.stem
)
def test_an_experiment_file_has_no_setting_without_effect(file: Path) -> None:
    config = parse(read_toml(file), idle="refuse")
    words = shlex.split(config.command())
    pairs = dict(word.split("=", 1) for word in words[3:])
    assert parse({"algo": words[2], **pairs}, idle="refuse") == config
