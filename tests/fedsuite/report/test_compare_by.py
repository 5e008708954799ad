"""Comparing the values of a setting, and what tests say of the differences."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_folders import write_run, write_suite

from fedsuite.api.compare import compare
from fedsuite.cli.main import main
from fedsuite.core.settings import UserError
from fedsuite.report.comparison_text import p_text, print_compared

SEEDS = (1, 2, 3)
# Gains of 11, 12, 13 points over three seeds: mean 12, deviation 1, t^2 = 432, two degrees.
P_T = 1 - math.sqrt(432 / 434)


def write(folder: Path, algo: str, gain: float, step: float, **settings: Any) -> None:
    """Record three seeds that gain ``gain + step * seed`` over 0.5 and a tenth per seed."""
    label = "-".join(f"{v}" for v in settings.values())
    for seed in SEEDS:
        last = 0.4 + 0.1 * seed + gain + step * seed
        write_run(folder, f"{algo}-{label}-{seed}", algo, [0.1, 0.3, last], seed=seed, **settings)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write(tmp_path, "fedavg", 0.0, 0.0, lr=0.1)
    write(tmp_path, "fedavg", 0.1, 0.01, lr=0.02)
    write(tmp_path, "fedavg", 0.0, 0.0, lr=0.3)
    return tmp_path


def text_of(compared: Any) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    print_compared(compared, console)
    return console.export_text()


def test_the_values_of_a_setting_are_compared(runs: Path) -> None:
    table = compare(runs, by="lr", against="0.1").table
    assert list(table["lr"]) == ["0.02", "0.1", "0.3"], "by size, whatever the folders' order"
    assert set(table["reference"]) == {"0.1"} and set(table["setting"]) == {"digits"}
    low, reference, same = (row for _, row in table.iterrows())
    assert low["difference"] == pytest.approx(12.0) and low["pairs"] == 3
    assert low["p_t"] == pytest.approx(P_T)
    assert low["p_t_holm"] == pytest.approx(P_T), "the other difference is zero and has no t"
    assert low["p_wilcoxon"] == 0.25 and low["p_wilcoxon_holm"] == 0.5
    assert low["cohens_d"] == pytest.approx(12.0)
    assert low["seeds_for_one_point"] == 10, "at a deviation of one point"
    assert math.isnan(reference["difference"]) and reference["verdict"] == "the reference"
    assert same["difference"] == 0.0 and same["p_wilcoxon"] == 1.0
    assert math.isnan(same["p_t"]) and same["verdict"] == "the same in all 3 common seeds"


def test_the_first_value_is_the_reference_and_the_text_names_the_key(runs: Path) -> None:
    text = text_of(compare(runs, by="lr"))
    assert "difference from lr=0.02" in text and "lr=0.3" in text and "-12.00" in text
    assert "With 3 seeds Wilcoxon's p cannot be less than 0.25." in text
    assert "seeds for 1 point" in text and "80 % power" in text


def test_other_settings_and_methods_make_groups(runs: Path) -> None:
    write(runs, "taco", 0.0, 0.0, lr=0.1)
    write(runs, "taco", 0.1, 0.01, lr=0.3)
    write(runs, "fedavg", 0.0, 0.0, lr=0.1, batch_size=8)
    write(runs, "fedavg", 0.0, 0.0, lr=0.3, batch_size=8)
    settings = {at.name: at for at in compare(runs, by="lr", against="lr=0.1").settings}
    names = ["fedavg, digits, batch-size 16", "fedavg, digits, batch-size 8"]
    assert list(settings) == [*names, "taco, digits, batch-size 16"]
    assert [row.method for row in settings[names[1]].rows] == ["lr=0.1", "lr=0.3"]
    ((_, taco),) = [at.rows for name, at in settings.items() if "taco" in name]
    assert taco.evidence is not None and taco.evidence.t_holm == pytest.approx(2 * P_T)


def test_settings_that_follow_the_algorithm_make_groups_within_one(runs: Path) -> None:
    write(runs, "fedavg", 0.0, 0.0, lr=0.1, client_test_fraction=0.5)
    names = [at.name for at in compare(runs, by="lr").settings]
    assert len(names) == 2 and all("client-test-fraction" in name for name in names)


def test_a_setting_of_one_algorithm(runs: Path) -> None:
    write(runs, "fedprox", 0.0, 0.0, **{"fedprox.zeta": 0.1})
    write(runs, "fedprox", 0.1, 0.01, **{"fedprox.zeta": 0.5})
    compared = compare(runs, by="fedprox.zeta")
    (at,) = compared.settings
    assert [row.method for row in at.rows] == ["fedprox.zeta=0.1", "fedprox.zeta=0.5"]
    assert "left out: fedavg-0.1-1, fedavg has no setting fedprox.zeta." in compared.notes


def test_a_suite_by_its_labels_and_by_settings(tmp_path: Path) -> None:
    suite = write_suite(tmp_path)
    same = compare(suite, by="algo")
    assert same.table["algo"].tolist() == compare(suite).table["method"].tolist()
    with pytest.raises(UserError, match="No two values of dataset ran in the same setting"):
        compare(suite, by="dataset")
    with pytest.raises(UserError, match="No two values of lr ran in the same setting"):
        compare(suite, by="lr")


def test_one_seed_has_no_p_value(tmp_path: Path) -> None:
    for algo, last in (("fedavg", 0.5), ("taco", 0.6)):
        write_run(tmp_path, algo, algo, [0.1, last])
    compared = compare(tmp_path)
    row = compared.rows[1]
    assert row["pairs"] == 1 and row["p_t"] is None and row["p_wilcoxon"] is None
    assert row["cohens_d"] is None and row["seeds_for_one_point"] is None
    text = text_of(compared)
    assert "Wilcoxon" not in text and "p (t)" not in text


def test_a_point_is_one_of_shares_alone(runs: Path) -> None:
    compared = compare(runs, by="lr", metric="final_loss")
    assert all(row["seeds_for_one_point"] is None for row in compared.rows)
    assert "p (t)" in text_of(compared) and "1 point" not in text_of(compared)


@pytest.mark.parametrize(
    ("by", "sentence"),
    [
        ("seed", "comparisons are paired over seeds"),
        ("lrr", "Did you mean 'lr'"),
        ("run-name", "invalid value 'run-name' for --by"),
        ("meta", "invalid value 'meta' for --by"),
    ],
)
def test_keys_that_cannot_be_compared_by(runs: Path, by: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        compare(runs, by=by)


def test_json_and_csv(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs), "--by", "lr", "--against", "0.1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["metric"], document["by"]) == ("final_accuracy", "lr")
    assert document["settings"] == [{"setting": "digits", "reference": "0.1", "notes": []}]
    first, second, _ = document["rows"]
    assert first["lr"] == "0.02" and first["difference"] == pytest.approx(12.0)
    assert first["p_t"] == pytest.approx(P_T) and second["p_t"] is None
    assert main(["compare", str(runs), "--by", "lr", "--against", "0.1", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["lr"] for row in rows] == ["0.02", "0.1", "0.3"]
    assert float(rows[0]["p_t"]) == pytest.approx(P_T) and rows[1]["p_t"] == ""
    assert main(["compare", str(runs), "--json", "--csv"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_small_p_values_are_not_written_as_zero() -> None:
    assert [p_text(p) for p in (None, 0.0004, 0.25)] == ["–", "< 0.001", "0.250"]
