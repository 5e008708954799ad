"""No setting that a user gives is accepted to do nothing; what was accepted once still is."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
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
from fedsuite.core.files import read_lines
from fedsuite.core.needs import OFF, holds
from fedsuite.core.settings import UserError, kebab, spell
from fedsuite.nodes.setup import changed
from tasks.partitions import PARTITIONS

ROOT = Path(__file__).parents[2]
# Settings, and the key that has no effect with them.
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
    "attack": {"attack": "scaled"},
    "attackers": {"attackers": "1"},
    "attack-strength": {"attack-strength": 2, "attack": "label-flip", "attackers": "1"},
    "straggler-min": {"straggler-min": 0.5},
    "compression-share": {"compression-share": 0.5, "compression": "int8"},
    "compression": {"compression": "int8", "algo": "local"},
    "server-lr": {"server-lr": 0.5, "algo": "local"},
    "eval-rows": {"eval-rows": 10, "algo": "fedtgp"},
    "apple.mu": {"apple.mu": 1, "apple.p-lr": 0},
    "apple.fade": {"apple.fade": 0.5, "apple.mu": 0},
    "feda4.eta": {"feda4.eta": 0.1, "feda4.adaptation": False},
    "feda4.beta": {"feda4.beta": 2, "feda4.adaptation": False},
    "feda4.theta": {"feda4.theta": 0.5, "feda4.adaptation": False},
    "feda4.tau-conc": {"feda4.tau-conc": 0.5, "feda4.adaptation": False},
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
    "fedala.ala-layers": {"fedala.ala-layers": 3, "fedala.adaptive": False},
    "moon.temperature": {"moon.temperature": 1, "moon.mu": 0},
    "fedamp.sigma": {"fedamp.sigma": 2, "fedamp.heuristic": True},
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


@pytest.mark.parametrize("algo", ["local", "fedamp", "fedfomo", "apple", "fedtgp", "fedper"])
@pytest.mark.parametrize("key", ["server-lr", "eval-rows", "freeloader-noise"])
def test_without_a_shared_model_there_is_none_to_move_score_or_replay(algo: str, key: str) -> None:
    given = {"algo": algo, "freeloaders": "1", key: 2}
    with pytest.raises(UserError, match=f"^{key}=.* has no effect on {algo}: remove it"):
        parse(given, idle="refuse")
    assert parse(given | {"algo": "fedavg"}, idle="refuse").flat()[key] == 2


def unlike(field: dataclasses.Field[Any], values: Sequence[object]) -> Any:
    """Return an allowed value that is none of these; None if there is none."""
    default: Any = field.default
    limits, choices = field.metadata["limits"], field.metadata["choices"]
    if choices is not None or isinstance(default, bool | str):
        candidates = choices or ((True, False) if isinstance(default, bool) else ("1", ""))
    else:
        low, high = limits["low"], limits["high"]
        near = [default * 2, default + 1, *(x for x in (low, high) if x is not None)]
        fitting = [x for x in near if high is None or x <= high]
        candidates = tuple(type(default)(x) for x in fitting)
    avoided = {spell(value) for value in values}
    return next((value for value in candidates if spell(value) not in avoided), None)


def conditions(need: str) -> list[tuple[str, str]]:
    """Return the keys of a need and the values it wants, empty for any but none."""
    return [(c.partition("=")[0], c.partition("=")[2]) for c in need.split(" or ")]


def unmet_needs() -> list[tuple[str, dict[str, Any]]]:
    """Return every key once per need, with settings that do not meet it.

    A key whose only other value switches off what needs it is never refused.
    """
    cases = []
    for name, group in setting_groups().items():
        prefix = f"{name}." if name else ""
        needs = {need for field in group.values() for need in field.metadata["needs"]}
        switches = {prefix + key for need in needs for key, _ in conditions(need)}
        for key, field in group.items():
            value = unlike(field, [field.default, *(OFF if key in switches else ())])
            for need in field.metadata["needs"] if value is not None else ():
                given = {"algo": name or "fedavg", key: value}
                wanted = [value for _, value in conditions(need)]
                for other, one in conditions(need):
                    switch: Any = group[prefix + other]
                    none = type(switch.default)()
                    given[prefix + other] = unlike(switch, wanted) if one else none
                cases.append((key, given))
    return cases


@pytest.mark.parametrize(("key", "given"), unmet_needs())
def test_what_is_declared_to_need_another_setting_is_refused_without_it(
    key: str, given: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=rf"^{key}=\S+ has no effect (with|without) "):
        parse(given, idle="refuse")


def test_the_cases_above_are_declared() -> None:
    declared = {key for key, _ in unmet_needs()}
    assert set(IDLE) - {"server-lr", "eval-rows", "compression"} <= declared


@pytest.mark.parametrize(
    ("algo", "given"),
    [
        ("feda4", {"eta": 0, "beta": 2, "tau-conc": 0.5, "tau-sim": 0.5}),
        ("fedamp", {"lam": 0, "sigma": 2, "alpha": 2}),
        ("fedamp", {"lam": 0, "heuristic": True, "sharpness": 5, "self-weight": 0.5}),
        ("fedadw", {"adaptive": False, "send-weights": True, "ala-layers": 1}),
        ("scaffold", {"coefficient": 0, "control": "gradient"}),
        ("scaffold-tailored", {"coefficient": 0, "control": "gradient"}),
    ],
)
def test_a_setting_that_changes_the_record_alone_is_accepted(
    algo: str, given: dict[str, Any]
) -> None:
    """They change penalty and biased, self_attention, the mixing weights, or upload_bytes."""
    own = {f"{algo}.{key}": value for key, value in given.items()}
    settled = parse({"algo": algo} | own, idle="refuse")
    assert parse({"algo": algo} | own, idle="reset") == settled
    assert {key: settled.flat()[key] for key in own} == own


@pytest.mark.parametrize("key", ["feda4.beta", "feda4.tau-conc", "fedamp.alpha"])
def test_it_does_change_the_record(key: str, experiment: Callable[..., Path]) -> None:
    algo = key.partition(".")[0]
    off = {"feda4": "feda4.eta", "fedamp": "fedamp.lam"}[algo]
    column = {"feda4.beta": "penalty", "feda4.tau-conc": "biased"}.get(key, "self_attention")
    columns = []
    for value in (0.01, 1.0):
        folder = experiment(algo, **{off: 0.0, key: value})
        columns.append([row.get(column) for row in read_lines(folder / "clients.jsonl")])
    assert columns[0] != columns[1]


def test_two_ways_to_say_off_are_accepted() -> None:
    off = {"algo": "fedbac", "fedbac.regularizer": "none", "fedbac.lam": 0}
    config = parse(off, idle="refuse")
    assert (config.flat()["fedbac.regularizer"], config.flat()["fedbac.lam"]) == ("none", 0)
    assert parse(off, idle="reset") == config


def test_a_value_is_quoted_as_it_was_given() -> None:
    given = {"algo": "fedbac", "fedbac.regularizer": "gradient", "fedbac.lam": "0"}
    with pytest.raises(UserError) as caught:
        parse(given, idle="refuse")
    assert str(caught.value) == (
        "fedbac.regularizer=gradient has no effect with fedbac.lam=0: remove it (the default is "
        "update), or set fedbac.lam to another value."
    )
    with pytest.raises(UserError, match="^server-lr=2 has no effect on local"):
        parse({"algo": "local", "server-lr": "2"}, idle="refuse")


def test_needs_name_settings_of_their_group_and_values_that_these_take() -> None:
    for name, group in setting_groups().items():
        kind = registry.params(name) if name else RunConfig
        usual = {kebab(f.name): spell(f.default) for f in dataclasses.fields(kind)}
        fields = {key.removeprefix(f"{name}."): field for key, field in group.items()}
        for field in fields.values():
            for need in field.metadata["needs"]:
                for condition in need.split(" or "):
                    key, _, value = condition.partition("=")
                    choices, others = (fields[key].metadata[n] for n in ("choices", "others"))
                    assert choices is None or value in choices or others, condition
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
