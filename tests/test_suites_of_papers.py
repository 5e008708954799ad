"""Every suite file expands to what it says and could be run; every printed number has its place."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fedsuite import registry
from fedsuite.records.collection import PaperNumber, open_collection
from fedsuite.records.summary import summarise
from fedsuite.report.cells import cells
from fedsuite.suites.definition import SCALES, SUITE_METRICS, Suite, read_suite
from fedsuite.suites.jobs import manifest, plan_jobs
from fedsuite.suites.paper_numbers import paper_numbers, sources

FOLDER = Path(__file__).parents[1] / "sim_configs" / "suites"
FILES = sorted(FOLDER.glob("*.toml"))
BASELINES = {
    *("foolsgold", "scaffold", "stem", "fedacg", "pfedme", "fedfomo", "apple", "fedamp"),
    *("fedtgp", "feddual", "fedprox-tailored", "scaffold-tailored"),
}
PAPERS = {
    "feda4": {"table1", "table2", "table3", "fig5"},
    "taco": {f"table{n}" for n in (1, 2, 3, 5, 6, 7, 8)} | {f"fig{n}" for n in (2, 4, 5, 6, 7)},
    "fedbac": {"accuracy", "ablation", "coupling"},
    "fedadw": {"table2", "fig3", "fig4", "fig5"},
}


@cache
def at_paper_scale() -> tuple[Suite, ...]:
    return tuple(read_suite(file) for file in FILES)


def test_every_table_and_figure_has_its_suite() -> None:
    wanted = {f"{paper}_{part}" for paper, parts in PAPERS.items() for part in parts}
    assert {file.stem for file in FILES} == wanted | {"demo", "baselines_personal"}


@pytest.mark.parametrize(
    ("file", "scale"), product(FILES, SCALES), ids=lambda value: getattr(value, "stem", value)
)
def test_a_suite_expands_to_runs_that_the_schema_takes(file: Path, scale: str) -> None:
    suite = read_suite(file, scale)
    for plan in suite.plans:
        if plan.settings["algo"] in registry.ALGORITHMS:
            suite.resolve(plan)
        else:
            assert plan.settings["algo"] in BASELINES


def test_metrics_are_fields_of_the_summary() -> None:
    suite = read_suite(FOLDER / "demo.toml")
    config = suite.resolve(suite.plans[0])
    assert SUITE_METRICS <= summarise(config, [], [], "finished").keys()


@pytest.mark.parametrize("source", sources())
def test_a_suite_stands_beside_each_number(source: str) -> None:
    printed = [number for number in paper_numbers() if number.source == source]
    beside = [suite for suite in at_paper_scale() if source in suite.paper]
    shown = {suite.name: suite.numbers() for suite in beside}
    assert any(all(number in numbers for number in printed) for numbers in shown.values())
    for suite in beside:
        assert any(n.metric in (suite.metric, *suite.also, "alpha") for n in shown[suite.name])


@pytest.mark.parametrize(
    ("file", "scale"), product(FILES, SCALES), ids=lambda value: getattr(value, "stem", value)
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
