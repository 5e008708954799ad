"""Suites of all methods and of attacks: rates are chosen fairly, and work is the same for all."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tuned import TUNED

from fedsuite import registry
from fedsuite.config import params_of
from fedsuite.core.files import read_toml
from fedsuite.core.protocol import ATTACKS
from fedsuite.suites.definition import SCALES, Plan, read_suite
from tasks.models import build_model
from tasks.shapes import DataShape

FOLDER = Path(__file__).parents[1] / "sim_configs" / "suites"
# What a tuning where nobody attacks leaves at its default: the attack, and what defenders are told.
OF_ATTACKS = {
    *("attack", "attackers", "freeloaders"),
    *("krum.tolerated", "multi-krum.tolerated", "trimmed-mean.trim"),
}
# Other rates that are tried together with lr.
SECOND_RATES = {"pfedme.personal-lr", "fedadam.eta", "fedyogi.eta", "fedadagrad.eta"}
# Not in the table of all methods: what they are there, its note says.
LEFT_OUT = {"fedbn", "fednova"}
GRID = {0.01, 0.03, 0.1, 0.3}


@pytest.mark.parametrize("table", TUNED)
@pytest.mark.parametrize("scale", SCALES)
def test_learning_rates_are_chosen_fairly(table: str, scale: str) -> None:
    """Tuning and table have the same methods and columns and differ in nothing but the rates, the
    seeds and how often they score; every method has the same grid, on seeds the table lacks. The
    attacks' are tuned once for all columns, where nobody attacks.
    """
    tuning = read_suite(FOLDER / f"{TUNED[table]}.toml", scale)
    final = read_suite(FOLDER / f"{table}.toml", scale)
    assert not {p.labels["seed"] for p in tuning.plans} & {p.labels["seed"] for p in final.plans}
    place = column_of_rates(table)

    def place_of(plan: Plan) -> tuple[Any, Any]:
        return plan.settings["algo"], plan.labels[place] if place else None

    tried: dict[tuple[Any, Any], set[Any]] = {}
    for plan in tuning.plans:
        tried.setdefault(place_of(plan), set()).add(plan.labels["lr"])
    assert {*tried} == {place_of(plan) for plan in final.plans}
    for (algo, _), rates in tried.items():
        assert rates == GRID - ({0.3} if algo == "pfedme" else set())
    free = {"lr", "seed", "eval-every", "target-accuracy", *SECOND_RATES}
    if place is None:
        assert all(OF_ATTACKS.isdisjoint(plan.settings) for plan in tuning.plans)
        free |= OF_ATTACKS

    def fixed(settings: Any) -> dict[str, Any]:
        return {key: value for key, value in settings.items() if key not in free}

    ran = [fixed(tuning.resolve(plan).flat()) for plan in tuning.plans]
    for plan in final.plans:
        if plan.labels["algo"] == plan.settings["algo"]:
            assert fixed(final.resolve(plan).flat()) in ran


def column_of_rates(table: str) -> str | None:
    """Return the column for each value of which rates are chosen; None if once for all."""
    columns = read_suite(FOLDER / f"{TUNED[table]}.toml").columns
    return next((name for name in columns if name != "lr"), None)


@pytest.mark.parametrize("table", TUNED)
def test_a_note_says_that_rates_were_chosen_if_every_method_has_one(table: str) -> None:
    document = read_toml(FOLDER / f"{table}.toml", "suite file")
    every = [*document.get("override", []), *document["small"].get("override", [])]
    chosen = [override for override in every if "lr" in override]
    said = f"the learning rate that {TUNED[table]} found best for it" in document["note"]
    assert said == bool(chosen), "python -m benchmarks.best_lr chooses; the note tells"
    if not chosen:
        return
    suite = read_suite(FOLDER / f"{table}.toml", "small")
    where = column_of_rates(table)
    places = {label for one in chosen if where for label in _as_list(one["when"][where])}
    for plan in suite.plans:
        if where and plan.labels[where] not in places:
            assert f"for {plan.labels[where]} it has not been asked yet" in document["note"]
            continue
        mine = [
            override
            for override in chosen
            if all(
                plan.labels[name] in _as_list(labels) for name, labels in override["when"].items()
            )
        ]
        assert len(mine) == 1 and mine[0]["lr"] in GRID


def _as_list(labels: Any) -> list[Any]:
    return labels if isinstance(labels, list) else [labels]


def test_every_algorithm_is_in_the_table_of_methods_or_left_out_for_a_reason() -> None:
    suite = read_suite(FOLDER / "methods.toml")
    listed = {plan.settings["algo"] for plan in suite.plans}
    assert listed | LEFT_OUT == {*registry.ALGORITHMS} and not listed & LEFT_OUT
    left_out = suite.note.partition("Left out:")[2]
    assert all(f"{name}, which is FedAvg" in left_out for name in LEFT_OUT)
    assert "methods_apart has them where they differ" in left_out
    configs = [suite.resolve(plan) for plan in suite.plans]
    assert all(config.local_steps for config in configs), "else fednova differs from fedavg"
    for data, model in {(config.dataset, config.model) for config in configs}:
        shape = {"adult": DataShape("tabular", (105,), 2)}.get(
            data, DataShape("image", (1, 28, 28), 10)
        )
        assert not [*build_model(model, shape, 0).buffers()], "else fedbn differs from fedavg"


@pytest.mark.parametrize("name", ["methods_apart", "methods_apart_lr"])
@pytest.mark.parametrize("scale", SCALES)
def test_what_the_table_of_methods_leaves_out_is_where_it_differs(name: str, scale: str) -> None:
    """FedNova with unequal steps, FedBN with batch norm, each beside FedAvg and nothing else."""
    suite = read_suite(FOLDER / f"{name}.toml", scale)
    beside: dict[Any, set[str]] = {}
    for plan in suite.plans:
        config = suite.resolve(plan)
        beside.setdefault(plan.labels["data"], set()).add(config.algo)
        if config.algo == "fednova":
            assert not config.local_steps and config.partition == "dirichlet"
        if config.algo == "fedbn":
            model = build_model(config.model, DataShape("image", (1, 8, 8), 10), 0)
            assert [*model.buffers()]
    assert sorted(map(sorted, beside.values())) == [["fedavg", left] for left in sorted(LEFT_OUT)]


@pytest.mark.parametrize("name", ["methods", "methods_lr", "methods_apart", "methods_apart_lr"])
def test_all_methods_have_the_same_samples_rounds_and_steps(name: str) -> None:
    suite = read_suite(FOLDER / f"{name}.toml")
    alike: dict[tuple[Any, Any], set[Any]] = {}
    for plan in suite.plans:
        config = suite.resolve(plan)
        work = (config.num_rounds, config.local_steps, config.batch_size, config.optimizer)
        place = (plan.labels["data"], plan.labels["seed"])
        alike.setdefault(place, set()).add((config.task, work, config.personal_eval))
    assert all(len(kinds) == 1 for kinds in alike.values())
    assert {kind[2] for kinds in alike.values() for kind in kinds} == {"on"}


@pytest.mark.parametrize("scale", SCALES)
def test_attacks_are_by_nobody_a_fifth_and_two_fifths_which_defenders_tolerate(scale: str) -> None:
    suite = read_suite(FOLDER / "attacks.toml", scale)
    seen = set()
    for plan in suite.plans:
        config = suite.resolve(plan)
        bad = len(config.freeloader_ids) + len(config.attacker_ids)
        kind = config.attack if config.attacker_ids else "freeloaders" if bad else "none"
        assert plan.labels["attack"] == (f"{kind} {5 * bad} %" if bad else "none")
        seen.add((config.algo, kind, bad))
        own = dict(config.params)
        told = own.get("tolerated", own.get("trim"))
        assert told is None or told == (0.4 if bad == 8 else 0.2)
        shortage = registry.find(config.algo).strategy.shortage
        assert not shortage(params_of(config), config.num_clients)
    kinds = {("none", 0)} | set(product(("freeloaders", *ATTACKS), (4, 8)))
    robust = ("median", "trimmed-mean", "krum", "multi-krum", "geometric-median")
    assert seen == {(a, *k) for a in ("fedavg", "taco", "foolsgold", *robust) for k in kinds}
