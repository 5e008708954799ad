"""Whether a gain is noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_folders import write_run

from fedsuite.cli.main import main
from fedsuite.core.settings import UserError
from fedsuite.records.reader import read_run
from fedsuite.report.compare import compare, compare_column, gather, verdict
from fedsuite.report.comparison_text import print_compared
from fedsuite.report.statistics import deviation, paired_difference
from fedsuite.terminal.braille import plot_curves
from fedsuite.terminal.show import show


def test_an_interval_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t(0.975, 2) = 4.3027, half 4.3027/sqrt(3)."""
    found = paired_difference([1.0, 2.0, 3.0])
    assert found.mean == 2.0 and found.pairs == 3
    assert found.low == pytest.approx(2 - 2.4841, abs=1e-4)
    assert found.high == pytest.approx(2 + 2.4841, abs=1e-4)
    assert not found.clear and paired_difference([2.0, 2.1, 2.2]).clear
    assert deviation([1.0]) is None and deviation([1.0, 3.0]) == pytest.approx(2**0.5)


def test_words() -> None:
    assert "nothing to pair" in verdict(None)
    assert "run more seeds" in verdict(paired_difference([1.0]))
    assert "may be noise" in verdict(paired_difference([1.0, -1.0]))
    assert "may be noise" in verdict(paired_difference([1.0, 2.0, 3.0])), "2 ± 2.48"
    alike = "the same difference in all 2 seeds: too few to tell"
    assert verdict(paired_difference([0.28, 0.28])) == verdict(paired_difference([-1, -1])) == alike
    assert verdict(paired_difference([2.0, 2.1]), "") == "higher: the interval excludes zero"
    assert verdict(paired_difference([0.0, 0.0])) == "the same in all 2 common seeds"
    assert verdict(paired_difference([2.0, 2.1, 2.2])) == "better: the interval excludes zero"
    assert (
        verdict(paired_difference([2.0, 2.1, 2.2]), "lower") == "worse: the interval excludes zero"
    )


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in (1, 2, 3):
        write_run(tmp_path, f"fedavg{seed}", "fedavg", [0.1, 0.3, 0.5 + 0.1 * seed], seed=seed)
        gain = 0.1 + 0.01 * seed
        write_run(tmp_path, f"taco{seed}", "taco", [0.1, 0.4, 0.5 + gain + 0.1 * seed], seed=seed)
    write_run(tmp_path, "other", "fedprox", [0.1, 0.3, 0.7], seed=9)
    write_run(tmp_path, "bad", "fedprox", [0.1, 0.3], seed=1, status="failed")
    return tmp_path


def test_methods_are_paired_by_seed(runs: Path) -> None:
    """Seeds differ by 10 points and more, the gains 11, 12, 13 do not."""
    collection, left_out = gather([str(runs)], "runs")
    assert [run.name for run in left_out] == ["bad"]
    by_method = {
        row.method: row for row in compare_column(collection, "digits", "fedavg", "final_accuracy")
    }
    gap = by_method["taco"].difference
    assert gap is not None and gap.mean == pytest.approx(12.0) and gap.clear
    assert gap.low == pytest.approx(12 - 2.4841, abs=1e-3)
    assert by_method["fedavg"].verdict == "the reference"
    assert "nothing to pair" in by_method["fedprox"].verdict


def test_the_command(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["compare", str(runs)]) == 0
    out = capsys.readouterr().out
    assert (
        "better: the interval excludes zero" in out and "+12.00" in out and "left out: bad" in out
    )
    assert "accuracy (%) by round" in out


def test_less_is_better_for_losses(runs: Path) -> None:
    console = Console(width=140, record=True, file=Path("/dev/null").open("w"))
    print_compared(compare([str(runs)], "runs", metric="final_loss", against="taco"), console)
    text = console.export_text()
    assert "difference from taco" in text and "worse: the interval excludes zero" in text


def test_what_differs_by_algorithm_is_said(tmp_path: Path) -> None:
    write_run(tmp_path, "a", "fedavg", [0.1, 0.5])
    write_run(tmp_path, "b", "fedadw", [0.1, 0.6])
    console = Console(width=140, record=True, file=Path("/dev/null").open("w"))
    print_compared(compare([str(tmp_path / "a"), str(tmp_path / "b")], "runs"), console)
    assert "client-test-fraction=0.25" in console.export_text()


def test_methods_without_the_metric_are_named(tmp_path: Path) -> None:
    for name, algo in (("a", "fedavg"), ("b", "fedprox"), ("c", "local")):
        folder = write_run(tmp_path, name, algo, [0.1, 0.5])
        if algo == "local":
            summary = json.loads((folder / "summary.json").read_text()) | {"final_accuracy": None}
            (folder / "summary.json").write_text(json.dumps(summary))
    console = Console(width=140, record=True, file=Path("/dev/null").open("w"))
    print_compared(compare([str(tmp_path)], "runs"), console)
    said = "Without final accuracy: local. --metric personal_accuracy compares them."
    assert said in console.export_text()
    print_compared(compare([str(tmp_path)], "runs", metric="personal_accuracy"), console)
    assert "Without" not in console.export_text()


def test_every_setting_has_a_reference_of_its_own(runs: Path) -> None:
    write_run(runs, "wide1", "fedprox", [0.1, 0.3, 0.6], lr=0.2)
    write_run(runs, "wide2", "taco", [0.1, 0.3, 0.7], lr=0.2)
    console = Console(width=140, record=True, file=Path("/dev/null").open("w"))
    print_compared(compare([str(runs)], "runs"), console)
    text = console.export_text(clear=False)
    assert (
        "difference from fedavg" in text and "difference from fedprox" in text and "+10.00" in text
    )
    print_compared(compare([str(runs)], "runs", against="fedavg"), console)
    assert "No finished run has fedavg here." in console.export_text()


def test_mistakes_are_sentences(runs: Path) -> None:
    with pytest.raises(UserError, match="two finished runs"):
        gather([str(runs / "taco1")], "runs")
    with pytest.raises(UserError, match="invalid value 'scaffold' for --against"):
        compare([str(runs)], "runs", against="scaffold")
    with pytest.raises(UserError, match=r"metric 'final_loss2'.*mean 'final_loss'"):
        compare([str(runs)], "runs", metric="final_loss2")


def test_methods_that_share_no_setting_cannot_be_compared(tmp_path: Path) -> None:
    write_run(tmp_path, "a", "fedavg", [0.1, 0.5])
    write_run(tmp_path, "b", "taco", [0.1, 0.5], lr=0.2)
    with pytest.raises(UserError, match="No two methods ran in the same setting"):
        compare([str(tmp_path)], "runs")
    write_run(tmp_path, "c", "fedprox", [0.1, 0.5])
    console = Console(width=140, record=True, file=Path("/dev/null").open("w"))
    print_compared(compare([str(tmp_path)], "runs"), console)
    assert "Only taco ran here" in console.export_text()


def test_a_suite_keeps_its_labels_and_its_metric(tmp_path: Path) -> None:
    """Smoothness, less is better: 3 against 5 points in both seeds."""
    entries = []
    for name, points in (("plain", 5), ("fedbac (gradient)", 3)):
        for seed in (1, 2):
            run = f"{name[:5]}{seed}"
            folder = write_run(tmp_path, run, "fedbac", [0.1, 0.5], seed=seed)
            summary = json.loads((folder / "summary.json").read_text())
            summary["smoothness"] = (points + 0.001 * points * seed) / 100
            (folder / "summary.json").write_text(json.dumps(summary))
            labels = {"variant": name, "dataset": "MNIST", "seed": seed}
            entries.append({"name": run, "labels": labels, "key": run})
    manifest: dict[str, Any] = {"name": "mine", "metric": "smoothness", "better": "lower"}
    manifest |= {"rows": "variant", "columns": ["dataset"], "runs": entries}
    (tmp_path / "suite.json").write_text(json.dumps(manifest))
    console = Console(width=140, record=True, file=Path("/dev/null").open("w"))
    print_compared(compare([str(tmp_path)], "runs"), console)
    text = console.export_text()
    assert (
        "fedbac (gradient)" in text
        and "difference from plain" in text
        and "smoothness (points)" in text
    )
    assert "better: the interval excludes zero" in text and "-2.00" in text


def test_seeds_in_common_are_counted(tmp_path: Path) -> None:
    for seed, algo in ((1, "fedavg"), (2, "fedavg"), (3, "fedavg"), (2, "taco"), (3, "taco")):
        write_run(tmp_path, f"{algo}{seed}", algo, [0.1, 0.5 + 0.1 * seed], seed=seed)
    console = Console(width=140, record=True, file=Path("/dev/null").open("w"))
    print_compared(compare([str(tmp_path)], "runs"), console)
    assert "+0.00 (2 in common)" in console.export_text()


def test_names_and_reasons_are_no_markup(tmp_path: Path) -> None:
    for name, algo in (("a", "fedavg"), ("b [bold]", "taco")):
        write_run(tmp_path, name, algo, [0.1, 0.5])
    folder = write_run(tmp_path, "c", "taco", [0.1, 0.5], status="failed")
    summary = json.loads((folder / "summary.json").read_text()) | {"reason": "E: [/tmp/x] gone"}
    (folder / "summary.json").write_text(json.dumps(summary))
    console = Console(width=140, record=True, file=Path("/dev/null").open("w"))
    print_compared(compare([str(tmp_path)], "runs"), console)
    show(read_run(tmp_path / "b [bold]"), console)
    text = console.export_text()
    assert "E: [/tmp/x] gone" in text and "b [bold]  finished" in text


def test_long_names_leave_room_for_the_curves() -> None:
    series = {"a" * 60: ([0, 1], [0.0, 8.0])}
    lines = plot_curves(series, width=40, height=4, x_label="accuracy (%) by round")
    assert max(map(len, lines.plain.splitlines())) <= 80
    assert "aaa…" in lines.plain and " accuracy (%) by round " in lines.plain


def test_curves_are_named_at_their_ends() -> None:
    series = {"up": ([0, 1], [0.0, 8.0]), "down": ([0, 1], [8.0, 0.0]), "low": ([0, 1], [1.0, 0.0])}
    lines = plot_curves(series, width=20, height=4, x_label="x").plain.splitlines()
    assert lines[0].startswith("   8.00 ┤") and lines[0].endswith("up")
    assert lines[3].startswith("   0.00 ┤") and lines[3].endswith("down")
    assert lines[2].endswith("low")
    close = {"below": ([0, 1], [0.0, 98.0]), "above": ([0, 1], [0.0, 100.0])}
    named = plot_curves(close, width=20, height=4, x_label="x").plain.splitlines()
    assert named[0].endswith("above") and named[1].endswith("below")
    assert len(lines) == 6 and lines[-1].split() == ["0", "x", "1"]
