"""A report compares what is comparable: the same target, beyond noise, on an idle machine."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from run_folders import write_run

from fedsuite.core.files import read_document, read_lines
from fedsuite.metrics import METRICS, TO_TARGET
from fedsuite.nodes import worker
from fedsuite.records.collection import Collection, open_collection
from fedsuite.records.reader import read_run
from fedsuite.report import html, markdown
from fedsuite.report.best import explain, marks
from fedsuite.report.build import build
from fedsuite.report.cells import Cell, Target, busy_note, cells
from fedsuite.report.compare import compare, print_compared
from fedsuite.report.costs import to_target
from fedsuite.report.document import Document, Picture, ReportTable, Section
from fedsuite.report.results import results_csv, results_table
from fedsuite.report.statistics import difference_of_means, unpaired_difference
from fedsuite.suites.definition import read_suite
from fedsuite.suites.paper_numbers import paper_numbers
from fedsuite.terminal.show import show

Make = Callable[..., Collection]
SUITE = Path(__file__).parents[3] / "sim_configs" / "suites" / "taco_table5.toml"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Record runs of two methods, each as (seed, accuracies, settings), and their manifest."""

    def write(
        metric: str,
        runs: dict[str, Sequence[tuple[int, list[float], dict[str, Any]]]],
        paper: dict[str, Any] | None = None,
    ) -> Collection:
        entries = []
        for algo, seeds in runs.items():
            for seed, accuracies, settings in seeds:
                name = f"{algo}-s{seed}"
                write_run(tmp_path / "mine", name, algo, accuracies, seed=seed, **settings)
                labels = {"algo": algo, "dataset": "digits", "seed": seed}
                entries.append({"name": name, "labels": labels, "key": name})
        manifest: dict[str, Any] = {"name": "mine", "metric": metric, "runs": entries}
        manifest |= {"better": METRICS[metric].better, "rows": "algo", "columns": ["dataset"]}
        if paper:
            place = {"algo": "taco", "dataset": "digits"}
            manifest["paper"] = [{"labels": place, "source": "Table V", **paper}]
        (tmp_path / "mine" / "suite.json").write_text(json.dumps(manifest))
        return open_collection(str(tmp_path / "mine"))

    return write


def table_of(collection: Collection) -> ReportTable:
    table = results_table(collection, collection.metric, collection.better)
    assert isinstance(table, ReportTable)
    return table


def in_all_forms(table: ReportTable) -> list[str]:
    page = html.render(Document("t", "", [Section("s", [table])]), {})
    return [markdown.table(table), page]


def csv_rows(collection: Collection) -> dict[str, dict[str, str]]:
    return {row["algo"]: row for row in csv.DictReader(results_csv(collection).splitlines())}


# Targets

AT_60, AT_50 = {"target_accuracy": 0.6}, {"target_accuracy": 0.5}
SLOW, FAST = [0.1, 0.4, 0.65], [0.1, 0.65, 0.7]


def test_a_paper_number_to_another_target_has_no_difference(make: Make) -> None:
    runs = {"taco": [(1, SLOW, AT_60), (2, SLOW, AT_60)]}
    collection = make("rounds_to_target", runs, {"value": 3.5, "target": 0.7})
    table = table_of(collection)
    assert list(table.headings) == ["algo", "digits, target 60 %", "paper", "difference"]
    assert list(table.rows[0]) == ["taco", "2.0 ± 0.0", "3.5 (target 70 %)", "–"]
    assert "No difference is given where the paper's target is not ours." in table.caption
    for text in in_all_forms(table):
        assert "target 60 %" in text and "3.5 (target 70 %)" in text and "-1.5" not in text
    row = csv_rows(collection)["taco"]
    assert (row["target"], row["paper_target"], row["difference"]) == ("60", "70", "")


def test_to_the_same_target_there_is_one(make: Make) -> None:
    runs = {"taco": [(1, SLOW, AT_60), (2, SLOW, AT_60)]}
    collection = make("rounds_to_target", runs, {"value": 3.5, "target": 0.6})
    assert list(table_of(collection).rows[0]) == ["taco", "2.0 ± 0.0", "3.5", "-1.5"]
    row = csv_rows(collection)["taco"]
    assert (row["paper_target"], row["difference"]) == ("60", "-1.5000")


def test_a_paper_number_of_an_older_manifest_has_no_known_target(make: Make) -> None:
    collection = make("rounds_to_target", {"taco": [(1, SLOW, AT_60)]}, {"value": 3.5})
    row = list(table_of(collection).rows[0])
    assert row == ["taco", "2.0", "3.5 (target not recorded)", "–"]


def test_a_metric_without_a_target_is_compared_whatever_the_target(make: Make) -> None:
    collection = make("final_accuracy", {"taco": [(1, SLOW, AT_60)]}, {"value": 60.0})
    assert list(table_of(collection).headings)[1] == "digits"
    assert list(table_of(collection).rows[0])[-1] == "+5.00"
    assert csv_rows(collection)["taco"]["target"] == ""


def test_methods_with_different_targets_say_so(make: Make) -> None:
    """TACO reaches 60 % in round 2, FedAvg 50 % in round 1: neither is better."""
    runs = {
        "fedavg": [(1, FAST, AT_50), (2, FAST, AT_50)],
        "taco": [(1, SLOW, AT_60), (2, SLOW, AT_60)],
    }
    collection = make("rounds_to_target", runs)
    table = table_of(collection)
    assert table.headings[1] == "digits, targets 50 %, 60 %"
    assert [row[1] for row in table.rows] == ["1.0 ± 0.0", "2.0 ± 0.0"], "no mark"
    assert "Targets differ: numbers to different targets are not comparable." in table.caption
    costs, *pictures = to_target(collection)
    assert isinstance(costs, ReportTable)
    assert [row[2] for row in costs.rows] == ["50 %", "60 %"]
    assert "Rows with different targets are not comparable." in costs.caption
    drawn = [p.alt.split(": ")[1:] for p in pictures if isinstance(p, Picture)]
    assert drawn == [["rounds to 50 %", "fedavg 1.0."], ["rounds to 60 %", "taco 2.0."]]
    console = Console(width=160, record=True, file=Path("/dev/null").open("w"))
    folder = str(collection.runs[0].folder.parent)
    print_compared(compare([folder], "runs", metric="rounds_to_target"), console)
    text = console.export_text()
    assert "not comparable: another target" in text and "Target: 50 %, 60 %." in text


def test_seeds_with_different_targets_have_no_mean(make: Make) -> None:
    collection = make("rounds_to_target", {"taco": [(1, SLOW, AT_60), (2, FAST, AT_50)]})
    (cell,) = cells(collection)
    assert cell.mean is None and list(cell.targets) == [Target(0.5), Target(0.6)]
    costs = to_target(collection)[0]
    assert isinstance(costs, ReportTable)
    assert list(costs.rows[0][2:]) == ["50 %, 60 %", "–", "targets differ", "targets differ"]


def test_who_missed_the_target_with_a_seed_is_not_compared(make: Make) -> None:
    """FedAvg: rounds 1, 1 and never; TACO: 2, 2, 2. FedAvg's mean is of those that did."""
    never = [0.1, 0.2, 0.3]
    runs = {
        "fedavg": [(1, FAST, AT_60), (2, FAST, AT_60), (3, never, AT_60)],
        "taco": [(seed, SLOW, AT_60) for seed in (1, 2, 3)],
    }
    collection = make("rounds_to_target", runs)
    table = table_of(collection)
    assert [row[1] for row in table.rows] == ["1.0 ± 0.0 (2 of 3)", "2.0 ± 0.0"]
    assert "missed the target with a seed is not compared" in table.caption
    console = Console(width=160, record=True, file=Path("/dev/null").open("w"))
    folder = str(collection.runs[0].folder.parent)
    print_compared(compare([folder], "runs", metric="rounds_to_target"), console)
    text = console.export_text()
    assert "fedavg reached its target in 2 of 3 runs" in text
    assert "not comparable: a seed missed the target" in text and "excludes zero" not in text


def test_nor_with_the_paper(make: Make) -> None:
    runs = {"taco": [(1, FAST, AT_60), (2, [0.1, 0.2, 0.3], AT_60)]}
    collection = make("rounds_to_target", runs, {"value": 5.0, "target": 0.6})
    assert [row[1:] for row in table_of(collection).rows] == [["1.0 (1 of 2)", "5.0", "–"]]
    assert csv_rows(collection)["taco"]["difference"] == ""


def test_a_seed_run_twice_is_one_seed(tmp_path: Path) -> None:
    for name, score in (("one", 0.5), ("two", 0.6)):
        write_run(tmp_path, name, "fedavg", [0.1, score], seed=7, cpu_share=None)
    collection = open_collection(str(tmp_path))
    assert "deviation over 2 runs of one seed;" in table_of(collection).caption
    assert busy_note(collection.runs).endswith("was not recorded for 2 runs.")
    assert busy_note(collection.runs[:1]).endswith("was not recorded for 1 run.")


def test_printed_rounds_carry_the_targets_of_their_table() -> None:
    """Table V, second line of its head: 78, 70, 70, 50, 54 and 50 %."""
    printed = [n for n in paper_numbers() if METRICS.get(n.metric) in TO_TARGET]
    heads = {str(n.labels["dataset"]): n.target for n in printed}
    assert heads == {
        "adult": 0.78,
        "FMNIST": 0.7,
        "SVHN": 0.7,
        "CIFAR-10": 0.5,
        "CIFAR-100": 0.54,
        "Shakespeare": 0.5,
    }
    assert all(n.target is None for n in paper_numbers() if METRICS.get(n.metric) not in TO_TARGET)
    at_scale = {
        scale: {p.labels["dataset"]: p.settings["target-accuracy"] for p in suite.plans}
        for scale in ("paper", "small")
        if (suite := read_suite(SUITE, scale))
    }
    assert at_scale["paper"] == heads and at_scale["small"]["FMNIST"] == 0.5


# Best beyond noise


def cell(row: str, by_seed: dict[int, float], **changes: Any) -> Cell:
    values: dict[str, Any] = {"row": row, "column": "c", "values": list(by_seed.values())}
    values |= {"by_seed": by_seed, "runs": [SimpleNamespace(busy=False)] * len(by_seed)}
    values |= {"targets": [], "labels": {}, "paper": None, "metric": METRICS["final_accuracy"]}
    return Cell(**values | changes)


def test_differences_that_share_seeds_are_paired() -> None:
    """Gains 2, 2.1 and 2.2 on seeds 10 points apart: 2.1 ± 4.3027 * 0.1 / sqrt(3)."""
    ones, others = {1: 52.0, 2: 62.1, 3: 72.2}, {1: 50.0, 2: 60.0, 3: 70.0}
    found = difference_of_means(ones, others)
    assert found.pairs == 3 and found.mean == pytest.approx(2.1)
    assert found.low == pytest.approx(2.1 - 0.2484, abs=1e-4) and found.clear
    assert not difference_of_means(ones, {4: 50.0, 5: 60.0, 6: 70.0}).clear, "unpaired: noise"


def test_an_unpaired_interval_by_hand() -> None:
    """Means 5 and 2, variances 4 and 4 over 2 each: error 2, freedom (2+2)^2/(4/1+4/1) = 2.

    t(0.975, 2) = 4.3027, so 3 ± 8.6053.
    """
    root = 2**0.5
    found = unpaired_difference([5 - root, 5 + root], [2 - root, 2 + root])
    assert found.mean == pytest.approx(3) and found.pairs == 0
    assert found.high == pytest.approx(3 + 8.6053, abs=1e-3) and not found.clear
    assert unpaired_difference([1.0], [2.0, 3.0]).low is None
    alike = unpaired_difference([3.0, 3.0], [4.0, 4.0])
    assert (alike.mean, alike.low, alike.clear) == (-1.0, None, False), "no spread, no interval"
    tie = unpaired_difference([3.0, 3.0], [3.0, 3.0])
    assert (tie.mean, tie.low, tie.high) == (0.0, 0.0, 0.0)


def test_two_seeds_that_agree_are_no_certainty() -> None:
    """28 points in both seeds, once but for rounding: no interval, nothing bold."""
    for others in ({1: 10.0, 2: 20.0}, {1: 0.1, 2: 0.2}):
        ones = {seed: value + 0.28 for seed, value in others.items()}
        found = difference_of_means(ones, others)
        assert found.mean == pytest.approx(0.28) and found.low is None and not found.clear
        assert marks([cell("a", ones), cell("b", others)], "higher") == {"a": "tie", "b": "tie"}


def test_the_best_is_marked_only_if_apart_from_every_other() -> None:
    a = cell("a", {1: 52.0, 2: 62.1, 3: 72.2})
    b = cell("b", {1: 50.0, 2: 60.0, 3: 70.0})
    near = cell("near", {1: 51.0, 2: 62.0, 3: 73.0})  # a - near: 1, 0.1, -0.8
    assert marks([b, a], "higher") == {"a": "best"}
    assert marks([b, a], "lower") == {"b": "best"}
    assert marks([b, a, near], "higher") == {"a": "tie", "near": "tie"}
    assert marks([a, cell("same", dict(a.by_seed))], "higher") == {"a": "tie", "same": "tie"}
    assert marks([a, b], "") == {} and marks([a], "higher") == {}


def test_one_seed_marks_nothing() -> None:
    assert marks([cell("a", {1: 90.0}), cell("b", {1: 10.0})], "higher") == {}
    several, better = {1: 10.0, 2: 11.0, 3: 12.0}, {1: 20.0, 2: 21.1, 3: 22.2}
    alone, pair = cell("a", {1: 90.0}), [cell("b", several), cell("c", better)]
    assert marks([alone, pair[0]], "higher") == {}
    assert marks([alone, *pair], "higher") == {"c": "best"}, "however far the one seed is"
    assert "A method with one seed is not compared." in explain([{"c": "best"}], [1, 3, 3])
    assert "one seed cannot tell a difference from noise" in explain([{}], [1, 1])
    assert explain([{}], [3, 2]) == ""


def test_the_larger_mean_over_more_seeds_is_no_gain_over_the_common_ones() -> None:
    """Seed 3 alone lifts a; on seeds 1 and 2 it is behind by 1 and 1.01."""
    a, b = cell("a", {1: 50.0, 2: 60.0, 3: 99.0}), cell("b", {1: 51.0, 2: 61.01})
    assert marks([a, b], "higher") == {"a": "tie", "b": "tie"}


def test_a_tie_is_marked_in_every_form(make: Make) -> None:
    """Differences of 2 and -1 points."""
    runs: dict[str, Any] = {
        "fedavg": [(1, [0.1, 0.5], {}), (2, [0.1, 0.6], {})],
        "taco": [(1, [0.1, 0.52], {}), (2, [0.1, 0.59], {})],
    }
    collection = make("final_accuracy", runs)
    table = table_of(collection)
    assert [row[1] for row in table.rows] == ["55.00 ± 7.07 ≈", "55.50 ± 4.95 ≈"]
    for text in in_all_forms(table):
        assert "≈: the best, or not apart from it." in text and "paired where two" in text
        assert "<strong>" not in text and "**55" not in text
    assert {row["mark"] for row in csv_rows(collection).values()} == {"tie"}


def test_one_seed_says_why_nothing_is_bold(make: Make) -> None:
    collection = make("final_accuracy", {a: [(1, [0.1, 0.5], {})] for a in ("fedavg", "taco")})
    assert "one seed cannot tell a difference from noise" in table_of(collection).caption
    assert [row[1] for row in table_of(collection).rows] == ["50.00", "50.00"]


# Busy machines


def busy_runs(share: float | None) -> dict[str, Any]:
    settings: dict[str, Any] = {**AT_60, "cpu_share": share}
    runs = [(seed, SLOW, settings) for seed in (1, 2)]
    return {"fedavg": [(seed, SLOW, AT_60) for seed in (1, 2)], "taco": runs}


def test_seconds_of_a_busy_machine_are_marked(make: Make) -> None:
    """0.25 s in each round; TACO's clients had 55 % of a core."""
    collection = make("compute_seconds_to_target", busy_runs(0.55))
    table = table_of(collection)
    assert [row[1] for row in table.rows] == ["0.50 ± 0.00", "0.50 ± 0.00 †"], "nor is one best"
    for text in in_all_forms(table):
        assert "†: measured while other work competed for the cores; clients had 55 % of" in text
    rows = csv_rows(collection)
    assert (rows["fedavg"]["cpu_share"], rows["taco"]["cpu_share"]) == ("100.0000", "55.0000")
    costs = to_target(collection)[0]
    assert isinstance(costs, ReportTable) and "clients had 55 %" in costs.caption
    assert [row[-1] for row in costs.rows] == ["0.50 ± 0.00", "0.50 ± 0.00 †"]
    assert [row[-2] for row in costs.rows] == ["2.0 ± 0.0", "2.0 ± 0.0"], "rounds are rounds"
    whole = markdown.render(build(collection))
    assert "2 of 4 runs: measured while other work" in whole
    assert "busy machine: clients had 55 % of a core" in whole
    console = Console(width=160, record=True, file=Path("/dev/null").open("w"))
    show(read_run(collection.runs[-1].folder), console)
    print_compared(compare([str(collection.runs[0].folder.parent)], "runs"), console)
    text = console.export_text()
    assert "clients had 55 % of a core" in text and "Some of these times: measured" in text
    assert "not comparable: measured on a busy machine" in text


def test_accuracies_of_a_busy_machine_are_as_good_as_any(make: Make) -> None:
    collection = make("final_accuracy", busy_runs(0.55))
    assert "†" not in markdown.table(table_of(collection))


def test_an_idle_machine_and_one_that_was_not_watched(make: Make) -> None:
    idle = table_of(make("compute_seconds_to_target", busy_runs(0.97)))
    assert "†" not in markdown.table(idle) and "busy" not in idle.caption


def test_a_run_without_a_record_of_load_says_so(make: Make) -> None:
    unknown = table_of(make("compute_seconds_to_target", busy_runs(None)))
    assert "†" not in markdown.table(unknown)
    assert "Whether the machine was busy was not recorded for 2 runs." in unknown.caption


def test_a_run_records_how_much_of_a_core_its_clients_had(
    experiment: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock by which 2 s pass per reading, 1 of them on a core: 6 s for a stack of three clients,
    who take equally many steps and so 2 s each.
    """
    now = {"wall": 0.0, "cpu": 0.0}

    def clock(name: str, step: float) -> Callable[[], float]:
        def read() -> float:
            now[name] += step
            return now[name]

        return read

    fake = SimpleNamespace(perf_counter=clock("wall", 2.0), thread_time=clock("cpu", 1.0))
    monkeypatch.setattr(worker, "time", fake)
    folder = experiment("fedavg", num_clients=3, local_steps=2, device="cpu")
    rows = [r for r in read_lines(folder / "clients.jsonl") if r["phase"] == "train"]
    assert [(r["seconds"], r["cpu_seconds"]) for r in rows] == [(2.0, 1.0)] * 6
    rounds = read_lines(folder / "history.jsonl")[1:]
    assert [r["client_cpu_seconds"] for r in rounds] == [3.0, 3.0]
    assert read_document(folder / "summary.json")["cpu_share"] == 0.5
    assert read_run(folder).busy


def test_the_clock_itself_is_the_threads(experiment: Callable[..., Path]) -> None:
    share = read_document(experiment("fedavg", device="cpu") / "summary.json")["cpu_share"]
    assert 0 < share <= 1
