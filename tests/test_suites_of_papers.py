"""Every suite file expands to what it says and could be run; every printed number has its place."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tuned import TUNED

from fedsuite import registry
from fedsuite.config import params_of
from fedsuite.records.collection import PaperNumber, open_collection
from fedsuite.records.summary import summarise
from fedsuite.report.cells import cells
from fedsuite.suites.definition import SCALES, SUITE_METRICS, Suite, read_suite
from fedsuite.suites.jobs import manifest, plan_jobs
from fedsuite.suites.paper_numbers import paper_numbers, sources
from strategies.taco import TacoParams

FOLDER = Path(__file__).parents[1] / "sim_configs" / "suites"
FILES = sorted(FOLDER.glob("*.toml"))
BASELINES = {
    *("foolsgold", "scaffold", "stem", "fedacg", "pfedme", "fedfomo", "apple", "fedamp"),
    *("fedtgp", "feddual", "fedprox-tailored", "scaffold-tailored"),
}
PAPERS = {
    "feda4": {"table1", "table2", "table3", "fig5", "eta"},
    "taco": {f"table{n}" for n in (1, 2, 3, 5, 6, 7, 8)}
    | {f"fig{n}" for n in (2, 4, 5, 6, 7)}
    | {"detector"},
    "fedbac": {"accuracy", "ablation", "coupling"},
    "fedadw": {"table2", "fig3", "fig4", "fig5"},
}


@cache
def at_paper_scale() -> tuple[Suite, ...]:
    return tuple(read_suite(file) for file in FILES)


def test_every_table_and_figure_has_its_suite() -> None:
    wanted = {f"{paper}_{part}" for paper, parts in PAPERS.items() for part in parts}
    ours = {"demo", *TUNED, *TUNED.values()}
    assert {file.stem for file in FILES} == wanted | ours


@pytest.mark.parametrize(
    ("file", "scale"), [*product(FILES, SCALES)], ids=lambda value: getattr(value, "stem", value)
)
def test_a_suite_expands_to_runs_that_the_schema_takes(file: Path, scale: str) -> None:
    """And TACO's have its own forms of FoolsGold and STEM."""
    suite = read_suite(file, scale)
    forms = {"foolsgold": ("variant", "taco"), "stem": ("form", "taco")}
    for plan in suite.plans:
        if plan.settings["algo"] not in registry.ALGORITHMS:
            assert plan.settings["algo"] in BASELINES
            continue
        config = suite.resolve(plan)
        if file.stem.startswith("taco_") and config.algo in forms:
            assert forms[config.algo] in config.params


def test_coefficients_and_the_detector_are_measured_in_both_units() -> None:
    for name in ("taco_table2", "taco_table8"):
        for scale in SCALES:
            suite = read_suite(FOLDER / f"{name}.toml", scale)
            units = [dict(suite.resolve(plan).params)["gradient-units"] for plan in suite.plans]
            assert units.count("round") == units.count("step") == len(units) / 2


def test_the_detector_is_measured_with_and_without_freeloaders_and_noise() -> None:
    suite = read_suite(FOLDER / "taco_detector.toml", "small")
    configs = [suite.resolve(plan) for plan in suite.plans]
    seen = {(c.dataset, len(c.freeloader_ids), c.freeloader_noise) for c in configs}
    kinds = {(0, 0.0), (4, 0.0), (4, 0.1), (8, 0.0), (8, 0.1)}
    assert seen == {(d, *kind) for d in ("adult", "fashion-mnist") for kind in kinds}
    assert {c.num_clients for c in configs} == {20} and {c.seed for c in configs} == {1, 2, 3}
    usual = TacoParams()
    assert all(params_of(c) == usual for c in configs), "at its defaults"


def test_metrics_are_fields_of_the_summary() -> None:
    suite = read_suite(FOLDER / "demo.toml")
    config = suite.resolve(suite.plans[0])
    assert SUITE_METRICS <= summarise(config, [], [], "finished").keys()


def settings_of(name: str, key: str) -> set[Any]:
    """Return the values of a key that a suite's runs set, at the paper's scale."""
    plans = read_suite(FOLDER / f"{name}.toml").plans
    return {plan.settings[key] for plan in plans if key in plan.settings}


def test_readings_that_papers_leave_open_are_in_their_suites() -> None:
    etas = product((0.01, 0.1, 0.3, 1.0, 3.0, 10.0), ("intent", "printed"))
    plans = read_suite(FOLDER / "feda4_eta.toml").plans
    swept = {(p.settings["feda4.eta"], p.settings["feda4.direction"]) for p in plans}
    assert swept == set(etas)
    assert max(settings_of("fedadw_fig5", "fedadw.x")) == 5.0
    assert settings_of("fedadw_fig4", "fedadw.discrepancy-sign") == {"reward"}
    for name in ("fedbac_accuracy", "fedbac_ablation", "fedbac_coupling"):
        assert settings_of(name, "fedbac.floor") == {0.0}
        assert settings_of(name, "fedbac.reference") == {"current"}
        assert "none" in settings_of(name, "fedbac.regularizer")
    assert settings_of("fedbac_accuracy", "num-shards") == {200, 300}


def test_tacos_suites_have_the_rows_of_its_table_iv() -> None:
    """FEMNIST's digits (10 classes) and 448,340 rows of Shakespeare."""
    for name in ("taco_table6", "taco_table7"):
        data = settings_of(name, "dataset")
        assert "femnist-digits" in data and "femnist" not in data
    for name in ("taco_table5", "taco_fig4", "taco_fig5"):
        assert settings_of(name, "natural-rows") == {448_340}


@pytest.mark.parametrize("source", sources())
def test_a_suite_stands_beside_each_number(source: str) -> None:
    printed = [number for number in paper_numbers() if number.source == source]
    beside = [suite for suite in at_paper_scale() if source in suite.paper]
    shown = {suite.name: suite.numbers() for suite in beside}
    assert any(all(number in numbers for number in printed) for numbers in shown.values())
    for suite in beside:
        assert any(n.metric in (suite.metric, *suite.also, "alpha") for n in shown[suite.name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "scale"), [*product(FILES, SCALES)], ids=lambda value: getattr(value, "stem", value)
)
def test_a_report_shows_every_number_that_a_suite_has(
    file: Path, scale: str, tmp_path: Path
) -> None:
    """Each stands in a cell of its metric; coefficients in the table of groups."""
    suite = read_suite(file, scale)
    jobs, _ = plan_jobs(suite, suite.plans, tmp_path, "")
    (tmp_path / "suite.json").write_text(json.dumps(manifest(suite, jobs, "")))
    collection = open_collection(str(tmp_path))
    shown = [cell.paper for m in (suite.metric, *suite.also) for cell in cells(collection, m)]
    places = collection.column_labels().values()
    groups = ("A", "B", "C", "freeloaders")
    shown += [collection.paper_number("alpha", {**p, "group": g}) for p in places for g in groups]
    seen = {(p.metric, p.source, *sorted(p.labels.items())) for p in shown if p is not None}
    wanted = [n for n in suite.numbers() if n.metric in (suite.metric, *suite.also, "alpha")]
    assert {(n.metric, n.source, *sorted(n.labels.items())) for n in wanted} == seen


def test_there_are_as_many_numbers_as_the_tables_have_cells() -> None:
    count = {source: sum(n.source == source for n in paper_numbers()) for source in sources()}
    assert count == {
        "FedA4, Table 1": 4 * 4 * 5,
        "FedA4, Table 2": 4 * 4 * 3,
        "FedA4, Table 3": 4 * 2,
        "TACO, Table I": 6 * 2,
        "TACO, Table II": 4 * 4,
        "TACO, Table III": 7,
        "TACO, Table V": 7 * 6 + 7 * 6 - 10,  # accuracies, and rounds but where not reached
        "TACO, Table VI": 4 * 4,
        "TACO, Table VII": 7 * 3,
        "TACO, Table VIII": 2 * 7 * 3,
        "FedBaC, Section 5.1": 3,
        "FedADW, Table 2": 9 * 8,
    }


def value(source: str, metric: str = "", **labels: object) -> float:
    """Look one number up; ``alpha`` and ``clients`` are short for the labels' own names."""
    short = {"alpha": "dirichlet-alpha", "clients": "num-clients"}
    wanted = {short.get(name, name): label for name, label in labels.items()}

    def fits(number: PaperNumber) -> bool:
        same = number.source == source and metric in ("", number.metric)
        return same and number.labels == wanted

    (found,) = filter(fits, paper_numbers())
    return found.value


# The last column of FedA4's Table 1: the mean of the five before it.
AVERAGES = {
    "CIFAR-10": {"avg": 82.38, "fedavg": 82.52, "fedprox": 80.96, "feda4": 83.41},
    "CIFAR-100": {"avg": 53.02, "fedavg": 52.91, "fedprox": 56.26, "feda4": 60.87},
    "Fashion-MNIST": {"avg": 92.60, "fedavg": 92.62, "fedprox": 92.59, "feda4": 93.00},
    "STL-10": {"avg": 56.93, "fedavg": 58.30, "fedprox": 58.70, "feda4": 61.29},
}


@pytest.mark.parametrize("dataset", AVERAGES)
def test_feda4s_averages_are_those_of_the_cells(dataset: str) -> None:
    for algo, average in AVERAGES[dataset].items():
        cells = [
            value("FedA4, Table 1", algo=algo, dataset=dataset, alpha=alpha)
            for alpha in (0.1, 0.3, 0.5, 0.7, 1.0)
        ]
        assert sum(cells) / 5 == pytest.approx(average, abs=0.00501)


def test_feda4s_tables_agree_where_they_print_the_same_run() -> None:
    for algo, alpha in product(("avg", "fedavg", "fedprox", "feda4"), (0.1, 0.3, 0.7, 1.0)):
        first = value("FedA4, Table 1", algo=algo, dataset="CIFAR-10", alpha=alpha)
        assert value("FedA4, Table 2", algo=algo, clients=10, alpha=alpha) == first
    for parts, algo in (("neither", "fedavg"), ("weights + trajectory", "feda4")):
        for alpha in (0.1, 1.0):
            first = value("FedA4, Table 1", algo=algo, dataset="CIFAR-10", alpha=alpha)
            assert value("FedA4, Table 3", parts=parts, alpha=alpha) == first


def test_feda4s_gains_are_those_it_prints() -> None:
    gains = {
        5: (1.06, 0.35, 0.56, 0.27),
        10: (2.79, 0.5, -0.1, 0.12),
        20: (0.07, -0.75, 0.07, 0.27),
    }
    for clients, printed in gains.items():
        for alpha, gain in zip((0.1, 0.3, 0.7, 1.0), printed, strict=True):
            cell: dict[str, Any] = {"clients": clients, "alpha": alpha}
            others = (value("FedA4, Table 2", algo=a, **cell) for a in ("avg", "fedavg", "fedprox"))
            ours = value("FedA4, Table 2", algo="feda4", **cell)
            assert ours - max(others) == pytest.approx(gain, abs=0.0101)


def test_tacos_overheads_are_those_it_prints() -> None:
    more = {"fedprox": (23.52, 15.87), "scaffold": (7.73, 4.76), "stem": (40.86, 23.13)}
    for algo, percents in (more | {"fedacg": (24.15, 16.33)}).items():
        for dataset, percent in zip(("FMNIST", "SVHN"), percents, strict=True):
            ours = value("TACO, Table I", algo=algo, dataset=dataset)
            base = value("TACO, Table I", algo="fedavg", dataset=dataset)
            assert 100 * (ours / base - 1) == pytest.approx(percent, abs=0.02)


def test_tacos_ablation_ends_where_its_main_table_does() -> None:
    for parts, algo in (("neither", "fedavg"), ("correction + aggregation", "taco")):
        main = value("TACO, Table V", "final_accuracy", algo=algo, dataset="adult")
        assert value("TACO, Table VI", parts=parts, data="adult Dir(0.5)") == main


def test_numbers_and_deviations_are_read_as_printed() -> None:
    numbers = {(n.source, *n.labels.values()): n for n in paper_numbers() if n.std is not None}
    taco = numbers["TACO, Table V", "taco", "adult"]
    assert (taco.value, taco.std, taco.metric) == (83.80, 0.06, "final_accuracy")
    assert numbers["FedADW, Table 2", "fedadw", "TINY*", "Dir(0.1)"].std == 0.05
    assert numbers["TACO, Table II", "freeloaders", "CIFAR-10"].value == 0.88


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_guide_has_every_suite_with_its_runs(file: Path) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "reproducing.md").read_text()
    (row,) = [line for line in guide.splitlines() if line.startswith(f"| `{file.stem}` |")]
    cells_of_row = [cell.strip() for cell in row.strip("|").split("|")]
    counts = [str(len(read_suite(file, scale).plans)) for scale in SCALES]
    assert [cells_of_row[2], cells_of_row[4]] == counts
