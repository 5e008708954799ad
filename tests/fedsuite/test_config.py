"""The schema, pyproject.toml and the command line agree."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedsuite.config import all_defaults, from_json, parse, read_toml
from fedsuite.core.settings import UserError

ROOT = Path(__file__).parents[2]


def test_pyproject_holds_every_key_with_the_schemas_default() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    config = document["tool"]["flwr"]["app"]["config"]
    flat = {k: v for k, v in config.items() if not isinstance(v, dict)}
    for name, group in config.items():
        if isinstance(group, dict):
            flat |= {f"{name}.{key}": value for key, value in group.items()}
    assert flat == all_defaults()


def test_json_brings_the_same_settings_back() -> None:
    config = parse({"algo": "fedprox", "fedprox.zeta": 0.5, "dataset": "mnist", "num-clients": 7})
    assert from_json(config.to_json()) == config
    assert dict(config.params) == {"zeta": 0.5}


def test_auto_is_resolved() -> None:
    config = parse({"dataset": "adult"})
    assert (config.model, config.personal_eval, config.client_test_fraction) == ("mlp", "off", 0.0)
    personal = parse({"algo": "local"})
    assert (personal.personal_eval, personal.client_test_fraction) == ("on", 0.25)
    asked = parse({"personal-eval": "on", "client-test-fraction": 0.1})
    assert (asked.personal_eval, asked.client_test_fraction) == ("on", 0.1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"algo": "fedavgg"},
            ["invalid value 'fedavgg' for algo", "Did you mean 'fedavg'?", "local"],
        ),
        ({"dataset": "minst"}, ["invalid value 'minst' for dataset", "Did you mean 'mnist'?"]),
        ({"model": "renset18"}, ["invalid value 'renset18' for model", "Did you mean 'resnet18'?"]),
        ({"partition": "dirichelt"}, ["partition", "Did you mean 'dirichlet'?"]),
        ({"num-cleints": 3}, ["Unknown key 'num-cleints'", "Did you mean 'num-clients'?"]),
        ({"params": 3}, ["Unknown key 'params'"]),
        ({"fedprox.zita": 1}, ["Unknown key 'fedprox.zita'", "zeta"]),
        ({"fedprox.zeta": -1}, ["invalid value '-1' for fedprox.zeta", "at least 0"]),
        ({"fedporx.zeta": 1}, ["fedporx", "Did you mean 'fedprox'?"]),
        ({"fraction-train": 1.5}, ["invalid value '1.5' for fraction-train", "at most 1"]),
        (
            {"min-train-clients": 5, "num-clients": 4},
            ["invalid value '5' for min-train-clients", "at most 4"],
        ),
        ({"stop-at-target": True}, ["target-accuracy"]),
        ({"target-metric": "f1"}, ["invalid value 'f1' for target-metric", "macro-f1"]),
        (
            {"target-accuracy": 0.5, "target-metric": "personal-mean", "personal-eval": "off"},
            ["target-metric=personal-mean needs personal-eval=on"],
        ),
        ({"resume": True}, ["run-name"]),
        ({"run-name": "a/b"}, ["invalid value 'a/b' for run-name"]),
        ({"freeloaders": "x"}, ["invalid value 'x' for freeloaders", "3,7,"]),
        ({"freeloaders": "4", "num-clients": 4}, ["freeloaders", "at least one"]),
        ({"algo": "no_such_module:THING"}, ["no module 'no_such_module'", "PYTHONPATH"]),
        ({"algo": "fedsuite.core.seeds:THING"}, ["has no 'THING'"]),
        ({"algo": "fedsuite.core.seeds:integer"}, ["not a fedsuite Algorithm"]),
        ({"algo-settings": "{"}, ["algo-settings", "JSON"]),
    ],
)
def test_a_mistake_is_refused_with_a_sentence(values: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parse(values)
    for word in words:
        assert word in str(caught.value)


def test_learning_rate_decays_by_round() -> None:
    """0.1 * 0.5^(t-1): 0.1, 0.05, 0.025."""
    config = parse({"lr": 0.1, "lr-schedule": "exponential", "lr-decay": 0.5})
    assert [config.learning_rate(t) for t in (1, 2, 3)] == pytest.approx([0.1, 0.05, 0.025])
    assert parse({"lr": 0.1}).learning_rate(9) == 0.1


def test_the_command_repeats_the_run() -> None:
    config = parse(
        {
            "algo": "fedprox",
            "fedprox.zeta": 0.5,
            "dataset": "mnist",
            "stop-at-target": True,
            "target-accuracy": 0.9,
            "personal-eval": "on",
        }
    )
    words = config.command().split()
    assert words[:3] == ["fedsuite", "run", "fedprox"]
    pairs = dict(word.split("=", 1) for word in words[3:])
    assert parse({"algo": "fedprox", **pairs}) == config
    assert "model" not in pairs
    assert parse({}).command() == "fedsuite run fedavg"


def test_toml_files_hold_tables_or_dotted_keys(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('algo = "fedprox"\n[fedprox]\nzeta = 0.3\n')
    assert read_toml(file) == {"algo": "fedprox", "fedprox.zeta": 0.3}
    with pytest.raises(UserError, match="no file"):
        read_toml(tmp_path / "missing.toml")
    file.write_text("= nonsense")
    with pytest.raises(UserError, match="not valid TOML"):
        read_toml(file)


def test_another_methods_key_is_refused_whatever_its_value() -> None:
    for value in (0.1, 1):
        with pytest.raises(UserError, match=r"'fedprox.zeta' is a setting of fedprox .* on taco"):
            parse({"algo": "taco", "fedprox.zeta": value})
    with pytest.raises(UserError, match=r"'taco.kappa' is a setting of taco"):
        parse({"taco.kappa": 0.6})


def test_flower_passes_every_methods_defaults() -> None:
    given = all_defaults() | {"algo": "taco", "taco.kappa": 0.7}
    assert dict(parse(given, foreign="default").params)["kappa"] == 0.7
    with pytest.raises(UserError, match=r"'fedprox.zeta' is a setting of fedprox"):
        parse(given | {"fedprox.zeta": 0.2}, foreign="default")


def test_flower_apps_refuse_what_a_user_set_for_another_method(tmp_path: Path) -> None:
    from flwr.app import Context, RecordDict

    from fedsuite.engines.inline import InlineGrid
    from fedsuite.server_app import main

    given = all_defaults() | {"algo": "avg", "results-dir": str(tmp_path), "run-name": "x"}
    given |= {"num-clients": 2, "num-rounds": 1, "model": "mlp"}
    for zeta, refused in ((0.2, True), (0.1, False)):
        context = Context(0, 0, {}, RecordDict(), given | {"fedprox.zeta": zeta})
        if refused:
            with pytest.raises(UserError, match="is a setting of fedprox and has no effect on avg"):
                main(InlineGrid(1), context)
        else:
            main(InlineGrid(1), context)
    assert (tmp_path / "x" / "summary.json").exists()


def test_keys_of_other_methods_may_be_ignored_but_never_wrong() -> None:
    assert parse({"algo": "taco", "fedprox.zeta": 1}, foreign="ignore") == parse({"algo": "taco"})
    with pytest.raises(UserError, match="for fedprox.zeta: it must be at least 0"):
        parse({"algo": "taco", "fedprox.zeta": -1}, foreign="ignore")
    with pytest.raises(UserError, match="Unknown key 'fedprox.zita'"):
        parse({"algo": "taco", "fedprox.zita": 1}, foreign="ignore")
