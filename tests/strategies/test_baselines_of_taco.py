"""The baselines of TACO's Algorithm 1 as whole runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedsuite.config import parse
from fedsuite.core.files import read_document, read_lines
from fedsuite.core.settings import UserError
from fedsuite.engines.inline import InlineGrid
from fedsuite.training.loop import check_feasible

pytestmark = pytest.mark.slow
Experiment = Callable[..., Path]
BASELINES = ("fedacg", "fedprox-tailored", "foolsgold", "scaffold", "scaffold-tailored", "stem")
FOOLSGOLD = {"foolsgold.variant": "original"}


def model(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("algo", BASELINES)
def test_differs_from_averaging_by_default(experiment: Experiment, algo: str) -> None:
    plain = [model(experiment(name, local_epochs=2)) for name in ("fedavg", "avg")]
    assert model(experiment(algo, local_epochs=2)) not in plain


OFF = [
    ("fedacg", {"fedacg.lam": 0, "fedacg.beta": 0}, "avg"),
    ("fedprox-tailored", {"fedprox-tailored.zeta": 0}, "fedavg"),
    ("foolsgold", FOOLSGOLD | {"foolsgold.kappa": 0}, "avg"),
    ("scaffold", {"scaffold.coefficient": 0}, "avg"),
    ("scaffold-tailored", {"scaffold-tailored.coefficient": 0}, "avg"),
    ("stem", {"stem.a": 1}, "avg"),
]


@pytest.mark.parametrize(("algo", "off", "plain"), OFF, ids=[row[0] for row in OFF])
@pytest.mark.parametrize(
    "how",
    [{}, {"num_clients": 5, "fraction_train": 0.6, "server_lr": 0.7, "partition": "sizes"}],
    ids=["all", "some"],
)
def test_with_its_idea_off_it_is_plain_averaging(
    experiment: Experiment, algo: str, off: dict[str, Any], plain: str, how: dict[str, Any]
) -> None:
    settings = {"local_epochs": 2, "num_rounds": 3} | how
    assert model(experiment(algo, **settings, **off)) == model(experiment(plain, **settings))


@pytest.mark.parametrize(
    "how",
    [{"momentum": 0.9}, {"weight_decay": 0.1}, {"optimizer": "adam"}],
    ids=lambda how: next(iter(how)),
)
def test_stem_refuses_steps_that_the_server_cannot_take(
    experiment: Experiment, how: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match="stem.form=paper needs plain local steps"):
        experiment("stem", run_name="refused", **how)
    values = {"algo": "stem", **{name.replace("_", "-"): value for name, value in how.items()}}
    with pytest.raises(UserError, match="or stem.form=taco"):
        check_feasible(parse(values))
    check_feasible(parse(values | {"stem.form": "taco"}))
    check_feasible(parse(values | {"stem.a": 1}))


def test_stem_without_memory_is_plain_averaging_with_any_optimiser(experiment: Experiment) -> None:
    settings = {"optimizer": "adam", "lr": 0.001, "weight_decay": 0.1}
    ours, plain = experiment("stem", **settings, **{"stem.a": 1}), experiment("avg", **settings)
    assert model(ours) == model(plain)


@pytest.mark.usefixtures("small_resnet")
@pytest.mark.parametrize("algo", BASELINES)
def test_batch_norm_models_train(experiment: Experiment, algo: str) -> None:
    settings = {"num_clients": 40, "fraction_train": 0.05, "eval_rows": 8}
    folder = experiment(algo, model="resnet18", **settings)
    saved = load_file(folder / "model.safetensors")
    assert np.abs(saved["bn1.running_mean"]).sum() > 0
    assert all(np.isfinite(tensor).all() for tensor in saved.values())


@pytest.mark.parametrize("algo", BASELINES)
def test_clients_who_all_freeload_but_one(experiment: Experiment, algo: str) -> None:
    folder = experiment(algo, freeloaders="3", num_rounds=3)
    summary = read_document(folder / "summary.json")
    assert (summary["failed_replies"], summary["expelled"]) == (0, [])


@pytest.mark.parametrize("algo", BASELINES)
@pytest.mark.parametrize("how", [{"optimizer": "adam", "lr": 0.001}, {"momentum": 0.9, "lr": 0.01}])
def test_other_optimisers_train_too(experiment: Experiment, algo: str, how: dict[str, Any]) -> None:
    own = {"stem.form": "taco"} if algo == "stem" else {}
    folder = experiment(algo, num_rounds=4, eval_every=2, **how, **own)
    rows = read_lines(folder / "history.jsonl")
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert read_document(folder / "summary.json")["failed_replies"] == 0


@pytest.mark.parametrize("algo", BASELINES)
def test_nodes_do_not_matter(experiment: Experiment, algo: str) -> None:
    settings = {"num_clients": 5, "fraction_train": 0.6, "num_rounds": 3}
    one, three = (model(experiment(algo, InlineGrid(n), **settings)) for n in (1, 3))
    assert one == three


@pytest.mark.parametrize("algo", BASELINES)
def test_it_learns_the_digits(experiment: Experiment, algo: str) -> None:
    """Plain averaging has 0.78 here, and 0.64 to 0.86 over seeds; guessing has 0.1.

    STEM needs a lower rate: at 0.1 it oscillates.
    """
    own = {"lr": 0.03} if algo == "stem" else {}
    folder = experiment(algo, num_rounds=12, **own)
    assert read_document(folder / "summary.json")["final_accuracy"] > 0.5
