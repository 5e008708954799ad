"""``mu``, the field's name of FedProx's weight, is accepted; the record says ``zeta``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedsuite.cli.run import read_settings
from fedsuite.config import parse
from fedsuite.core.files import read_document
from fedsuite.core.settings import UserError
from fedsuite.suites.definition import read_suite


@pytest.mark.parametrize("algo", ["fedprox", "fedprox-tailored"])
def test_mu_is_another_name_of_zeta(experiment: Callable[..., Path], algo: str) -> None:
    one = experiment(algo, **{f"{algo}.mu": 0.7}, num_rounds=1)
    two = experiment(algo, **{f"{algo}.zeta": 0.7}, num_rounds=1)
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    recorded = read_document(one / "config.json")
    assert recorded[f"{algo}.zeta"] == 0.7 and f"{algo}.mu" not in recorded


def test_mu_and_zeta_with_two_values_are_refused() -> None:
    both = {"algo": "fedprox", "fedprox.zeta": 0.1, "fedprox.mu": "0.1"}
    assert dict(parse(both).params) == {"zeta": 0.1}
    with pytest.raises(UserError, match="fedprox.zeta and fedprox.mu are two names"):
        parse(both | {"fedprox.mu": 0.2})


FORMS = {"table": "[fedprox]\nmu = 0.7\n", "dotted": "fedprox.mu = 0.7\n"}


@pytest.mark.parametrize("form", FORMS)
def test_mu_in_a_file_and_on_the_command_line(tmp_path: Path, form: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(FORMS[form])
    for values in (read_settings([str(file)], []), read_settings([], ["fedprox.mu=0.7"])):
        assert dict(parse({"algo": "fedprox"} | values).params) == {"zeta": 0.7}
    with pytest.raises(UserError, match="given as 0.7 and 0.2. Give one of them"):
        parse({"algo": "fedprox"} | read_settings([str(file)], ["fedprox.zeta=0.2"]))


SUITE = """
title = "Mine"
metric = "final_accuracy"
rows = "algo"
columns = ["data"]
runs = 2
[base]
fedprox.mu = 0.7
[axes]
seed = [1]
algo = ["fedprox", "fedavg"]
[axes.data]
even = { partition = "iid" }
"""


def test_mu_in_a_suite(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(SUITE)
    suite = read_suite(file)
    prox, plain = (suite.resolve(plan) for plan in suite.plans)
    assert dict(prox.params) == {"zeta": 0.7} and "zeta" not in dict(plain.params)
