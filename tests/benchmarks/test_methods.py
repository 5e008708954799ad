"""Who is ahead follows from paired differences worked out by hand, and the page from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from figures import assert_same_figures

from benchmarks.claims.rows import read
from benchmarks.methods.__main__ import IMAGES, PAGE, draw_figures, page
from benchmarks.methods.figures import draw_attacks, draw_methods
from benchmarks.methods.page import (
    APART,
    ATTACKS,
    METHODS,
    RATES,
    RATES_APART,
    RATES_ATTACKED,
    Page,
    against_fedavg,
    attacks_table,
    expelled_table,
    methods_table,
    missing_columns,
    when,
)
from benchmarks.methods.rates import at_other_rates, chosen_rates, columns, rate, rates_table
from benchmarks.methods.rules import scores, sides, standing
from fedsuite.config import parse
from fedsuite.suites.definition import read_suite

SUITES = Path(__file__).parents[2] / "sim_configs" / "suites"
COLUMNS = {METHODS: "data", APART: "data", ATTACKS: "attack"}
# Paired differences to "best": 1, 2, 3 points, from -0.5 to 4.5, so level; and 10, 10, 13 points,
# from 6.7 to 15.3, so behind. Those of "near" to FedAvg: 9, 8, 10 points, from 6.5 to 11.5.
ACCURACIES = {"best": [0.61, 0.63, 0.65], "near": [0.60, 0.61, 0.62], "fedavg": [0.51, 0.53, 0.52]}


def rows(
    accuracies: Mapping[str, Sequence[float]], labels: Mapping[str, str], **more: str
) -> list[dict[str, str]]:
    costs = {"client_compute_seconds": "10", "cpu_share": "0.5", "rounds": "5"}
    costs |= {"upload_bytes": "100", "download_bytes": "100", "command": "fedsuite run x lr=0.1"}
    origin = {"state": "finished", "engine": "e", "machine": "m", "versions": "v"}
    return [
        {
            **{"algo": algo, "seed": str(seed), **labels, **costs, **origin},
            **{"final_accuracy": str(value), "personal_accuracy": str(value), **more},
        }
        for algo, values in accuracies.items()
        for seed, value in enumerate(values)
    ]


def test_the_best_and_who_cannot_be_told_from_it() -> None:
    found = scores(rows(ACCURACIES, {"data": "d"}), {"data": "d"}, "final_accuracy")
    place = standing(found)
    assert (place.best, place.level, place.first) == ("best", ("near",), ("best", "near"))
    both = sides(found, "fedavg")
    assert both.ahead == ("best", "near") and both.behind == ()
    assert sides(found, "best").behind == ("fedavg",)


def test_a_method_without_some_seeds_is_not_judged_by_those_it_has() -> None:
    some = rows({**ACCURACIES, "lucky": [0.99]}, {"data": "d"})
    assert "lucky" not in scores(some, {"data": "d"}, "final_accuracy")


def test_the_sentences_say_who_is_ahead_and_what_it_costs() -> None:
    made = rows(ACCURACIES, {"data": "d"})
    for row in made:
        row["upload_bytes"] = "50" if row["algo"] == "near" else row["upload_bytes"]
    first, second = when(made, []).splitlines()
    assert first == (
        "- **d, one model for all.** best has the highest mean, 63.0 %; level with it: near 61.0 %."
        " Of these near sends the fewest bytes. Clearly ahead of fedavg: best, near; clearly"
        " behind: none."
    )
    assert second.startswith("- **d, a model for each client.** best") and "fedavg" not in second


def test_the_sentence_of_an_attack_says_what_fedavg_loses_to_it() -> None:
    calm = rows(ACCURACIES, {"attack": "none"})
    hit = rows({"best": [0.6, 0.62, 0.64], "fedavg": [0.1, 0.1, 0.1]}, {"attack": "flip 20 %"})
    line = when([], calm + hit).splitlines()[1]
    assert line == (
        "- **flip 20 %.** best has the highest mean, 62.0 %, alone. Clearly ahead of fedavg: best;"
        " clearly behind: none. FedAvg loses 42.0 points to it."
    )


def test_tables_have_costs_as_multiples_and_mark_the_best() -> None:
    made = rows(ACCURACIES, {"data": "d"})
    for row in made:
        if row["algo"] == "near":
            row |= {"client_compute_seconds": "40", "upload_bytes": "500", "rounds": "10"}
    lines = methods_table(made, "d").splitlines()
    assert lines[2] == "| best | 0.1 | 63.0 ± 2.0 | 63.0 ± 2.0 | – | 1.00 | 1.00 |"
    assert lines[3] == "| near | 0.1 | 61.0 ± 1.0 | 61.0 ± 1.0 | – | 2.00 | 1.50 |"
    apart = methods_table([*made, *rows({"krum": [0.1] * 3}, {"data": "d"})], "d").splitlines()
    assert apart[-1] == "| krum | 0.1 | 10.0 ± 0.0 | 10.0 ± 0.0 | – | – | 1.00 |"
    attacked = rows(ACCURACIES, {"attack": "none"})
    attacked[0] |= {"command": "fedsuite run best lr=0.3"}
    attacked[3] |= {"command": "fedsuite run near"}
    assert attacks_table(attacked).splitlines()[2:] == [
        "| best | 0.3, 0.1 | **63.0 ± 2.0** |",
        "| near | 0.1 | 61.0 ± 1.0 |",
        "| fedavg | 0.1 | 52.0 ± 1.0 |",
    ]
    expelled = rows({"taco": [0.5, 0.5]}, {"attack": "a"}, attacker_tpr="0.25", freeloader_fpr="0")
    assert expelled_table(expelled).splitlines()[2] == "| a | – | 25.0 ± 0.0 | 0.0 ± 0.0 |"


def test_the_best_rate_is_chosen_by_what_a_method_is_for() -> None:
    """FedAvg by its one model, the smaller of two equal rates; FedRep by those of its clients."""
    tried = {
        ("fedavg", "0.1"): (0.5, 0.9),
        ("fedavg", "0.03"): (0.5, 0.1),
        ("fedrep", "0.03"): (0.9, 0.6),
        ("fedrep", "0.1"): (0.1, 0.7),
        ("fedrep, epochs 5", "0.1"): (0.1, 0.8),
    }
    made = [
        {**row, "algo": algo, "lr": lr, "final_accuracy": str(one), "personal_accuracy": str(own)}
        for (algo, lr), (one, own) in tried.items()
        for row in rows({algo: [0.0]}, {"data": "d"})
    ]
    made += [{**made[0], "lr": "0.3", "state": "failed"}]
    assert chosen_rates(made) == {
        "fedavg": ("fedavg", "0.03"),
        "fedrep": ("fedrep, epochs 5", "0.1"),
    }
    assert rates_table(made).splitlines()[0] == "| method | 0.03 | 0.1 | 0.3 |"
    assert rates_table(made).splitlines()[2:] == [
        "| fedavg | **50.0** | 50.0 | failed |",
        "| fedrep | 60.0 | 70.0 | – |",
        "| fedrep, epochs 5 | – | **80.0** | – |",
    ]


@pytest.mark.parametrize(
    ("suite", "tuning"), [(METHODS, RATES), (APART, RATES_APART), (ATTACKS, RATES_ATTACKED)]
)
def test_every_method_was_run_with_the_rate_that_was_chosen_for_it(suite: str, tuning: str) -> None:
    made, tried = read(suite), read(tuning)
    if not tried:
        pytest.skip(f"the suite {tuning} was not run yet, and the page has none of it")
    assert not [row["run"] for row in at_other_rates(made, tried, COLUMNS[suite])]


def test_runs_at_other_rates_than_the_chosen_are_found() -> None:
    """FedAvg's is 0.3 for one dataset and 0.1 for the other; nobody tried any for FedProx."""
    tried = []
    for data, lr, reached in (("a", "0.1", 0.5), ("a", "0.3", 0.6), ("b", "0.1", 0.5)):
        tried += rows({"fedavg": [reached]}, {"data": data, "lr": lr})
    commands = {"wrong": "fedsuite run x lr=0.1", "right": "fedsuite run x lr=0.3"}
    made = [
        {**row, "run": name, "command": command}
        for name, command in commands.items()
        for row in rows({"fedavg": [0.9]}, {"data": "a", "attack": "none"})
    ]
    made += [{**row, "run": "b"} for row in rows({"fedavg": [0.9]}, {"data": "b"})]
    assert [row["run"] for row in at_other_rates(made, tried, "data")] == ["wrong"]
    untried = [{**row, "run": "untried"} for row in rows({"fedprox": [0.9]}, {"data": "b"})]
    assert [row["run"] for row in at_other_rates(untried, tried, "data")] == ["untried"]
    for_all = [{name: v for name, v in row.items() if name != "data"} for row in tried[:2]]
    assert [row["run"] for row in at_other_rates(made[:2], for_all, "attack")] == ["wrong"]


def test_fednova_and_fedbn_are_held_against_fedavg_by_what_both_have() -> None:
    """FedNova by both accuracies; FedBN, which has no global model, by that of its clients."""
    nova = rows({"fednova": ACCURACIES["best"], "fedavg": ACCURACIES["fedavg"]}, {"data": "a"})
    assert against_fedavg(nova, "a").splitlines() == [
        f"- **{title}.** fednova has the highest mean, 63.0 %, alone. Clearly ahead of fedavg:"
        " fednova; clearly behind: none."
        for title in ("One model for all", "A model for each client")
    ]
    bn = rows({"fedavg": ACCURACIES["best"]}, {"data": "b"})
    bn += rows({"fedbn": ACCURACIES["near"]}, {"data": "b"}, final_accuracy="")
    assert against_fedavg(bn, "b") == (
        "- **A model for each client.** fedavg has the highest mean, 63.0 %; level with it: fedbn"
        " 61.0 %. Of these fedavg sends the fewest bytes. Clearly ahead of fedavg: none; clearly"
        " behind: none."
    )


def test_methods_apart_have_a_section_where_they_were_run() -> None:
    (one, other) = page().document["data-apart"]
    made = rows({"fednova": [0.6, 0.6, 0.6], "fedavg": [0.5, 0.5, 0.5]}, {"data": one})
    given: dict[str, list[dict[str, str]]] = {
        METHODS: rows(ACCURACIES, {"data": "d"}),
        APART: made,
        RATES_APART: [{**row, "lr": "0.03"} for row in made if row["seed"] == "0"],
    }
    text = Page(page().document, lambda name: given.get(name, [])).text()
    title = "## FedNova and FedBN where they are not FedAvg"
    section = text.partition(title)[2].partition("\n## ")[0]
    assert f"### {one}\n\n{page().document['data-apart'][one]}\n\n- **One model" in section
    assert "| fednova | 0.1 | 60.0 ± 0.0 | 60.0 ± 0.0 | – | 1.00 | 1.00 |" in section
    assert f"Not run yet: {other}." in section
    assert f"### {one}: rates\n\n| method | 0.03 |" in text and "Attacks: rates" not in text
    assert "[methods_apart.csv](runs/methods_apart.csv)" in text
    del given[APART], given[RATES_APART]
    without = Page(page().document, lambda name: given.get(name, [])).text()
    assert title not in without and "## Learning rates" not in without


def test_the_rates_of_attacks_are_one_table() -> None:
    tried = [
        {**row, "lr": lr}
        for lr, reached in (("0.1", 0.5), ("0.03", 0.7))
        for row in rows({"median": [reached]}, {})
    ]
    given = {ATTACKS: rows(ACCURACIES, {"attack": "none"}), RATES_ATTACKED: tried}
    text = Page(page().document, lambda name: given.get(name, [])).text()
    table = text.partition("### Attacks: rates\n\n")[2].splitlines()[:3]
    assert table[0] == "| method | 0.03 | 0.1 |" and table[2] == "| median | **70.0** | 50.0 |"


def test_methods_without_a_global_model_follow_by_personal_accuracy() -> None:
    made = rows({"fedavg": [0.5] * 3, "weak": [0.6] * 3, "strong": [0.9] * 3}, {"data": "d"})
    for row in made:
        row["final_accuracy"] = row["final_accuracy"] if row["algo"] == "fedavg" else ""
    names = [line.split(" | ")[0].strip("| ") for line in methods_table(made, "d").splitlines()[2:]]
    assert names == ["fedavg", "strong", "weak"]


@pytest.mark.parametrize("suite", COLUMNS)
def test_the_rows_are_all_of_the_suites_runs(suite: str) -> None:
    """Each run of the suite as it is now, with its learning rate, and none besides.

    A column may be missing, as the page then says, but only as a whole.
    """
    column = COLUMNS[suite]
    there = columns(read(suite), column)
    plans = [p for p in read_suite(SUITES / f"{suite}.toml").plans if p.labels[column] in there]
    if not plans:
        pytest.skip(f"the suite {suite} was not run yet, and the page has none of it")
    names = list(plans[0].labels)
    usual = parse({}).lr
    rates = [str(plan.settings.get("lr", usual)) for plan in plans]
    planned = [(*map(str, plan.labels.values()), lr) for plan, lr in zip(plans, rates, strict=True)]
    found = [(*(row[name] for name in names), rate(row)) for row in read(suite)]
    assert sorted(found) == sorted(planned)


def test_the_page_is_what_the_rows_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == page().text()


def test_the_figures_are_what_the_rows_give(tmp_path: Path) -> None:
    draw_figures(tmp_path)
    assert_same_figures(tmp_path, IMAGES)


def test_a_suite_that_was_not_run_is_left_out() -> None:
    given: dict[str, list[dict[str, str]]] = {METHODS: [], ATTACKS: []}
    given[ATTACKS] = rows(ACCURACIES, {"attack": "none"})
    half = Page(page().document, lambda name: given.get(name, [])).text()
    assert (
        "## Attacks" in half and "## All methods" not in half and page().document["not-run"] in half
    )


def test_data_without_runs_are_named_where_others_have_some() -> None:
    made = rows(ACCURACIES, {"data": "there"})
    assert missing_columns(made, ["there", "away", "far"]) == "Not run yet: away, far."
    assert missing_columns(made, ["there"]) == missing_columns([], ["there"]) == ""


def test_a_page_of_other_rows_is_another(tmp_path: Path) -> None:
    given = {
        METHODS: rows(ACCURACIES, {"data": "d"}),
        ATTACKS: rows(ACCURACIES, {"attack": "none"}),
    }
    other = Page(page().document, lambda name: given.get(name, [])).text()
    assert "best has the highest mean, 63.0 %" in other and "| 9 | 0 | 0, 1, 2 |" in other
    for draw, name in ((draw_methods, METHODS), (draw_attacks, ATTACKS)):
        draw(given[name], tmp_path / "one.svg")
        draw(given[name], tmp_path / "two.svg")
        assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
        assert b"near" in (tmp_path / "one.svg").read_bytes()
