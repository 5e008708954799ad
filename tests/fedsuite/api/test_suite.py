"""Suites and comparisons from Python."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

import fedsuite
from fedsuite.core.installation import SUITES
from fedsuite.suites.definition import Suite
from fedsuite.suites.jobs import suite_command


def test_methods_are_compared_in_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Differences of 20 and 30 per cent: mean 25, half the interval t(1) * 5 with t(1) = 12.706."""
    finals = {"fedavg": (0.5, 0.6), "taco": (0.7, 0.9)}
    runs = [
        fedsuite.load(write_run(tmp_path, f"{algo}{seed}", algo, [0.1, final], seed=seed))
        for algo, pair in finals.items()
        for seed, final in enumerate(pair)
    ]
    compared = fedsuite.compare(*runs)
    table = compared.table.set_index("method")
    assert list(table["mean"]) == pytest.approx([55.0, 80.0])
    assert table["std"]["taco"] == pytest.approx(math.sqrt(200))
    ends = [table[name]["taco"] for name in ("difference", "low", "high")]
    assert ends == pytest.approx([25.0, 25 - 5 * 12.706205, 25 + 5 * 12.706205])
    assert table["verdict"]["fedavg"] == "the reference"
    assert "<table" in compared._repr_html_() and "taco" in repr(compared)
    compared.show()
    assert "may be noise: the interval includes zero" in capsys.readouterr().out


def test_a_suites_runs_are_a_table_that_begins_with_their_labels(suite: Path) -> None:
    runs = fedsuite.SuiteRuns(suite, 0)
    first, *others = runs.runs.columns
    assert first == "name" and others.index("seed") < others.index("state")
    assert others.index("state") < others.index("final_accuracy")
    assert {(suite / name).is_dir() for name in runs.runs["name"]} == {True}
    assert not fedsuite.compare(runs).table.empty


@pytest.mark.parametrize("status", [0, 1, 3])
def test_a_shipped_suite_is_run_by_its_name(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    seen: list[Any] = []

    def run_suite(suite: Suite, **options: Any) -> int:
        seen.append((suite, options))
        return status

    monkeypatch.setattr("fedsuite.suites.runner.run_suite", run_suite)
    monkeypatch.chdir(tmp_path)
    Path("taco_table5").mkdir()
    runs = fedsuite.suite("taco_table5", scale="small", only=["algo=taco"], jobs=2)
    ((suite, options),) = seen
    assert suite.path == SUITES / "taco_table5.toml" and suite.small
    assert options["where"].jobs == 2 and options["only"] == ["algo=taco"]
    assert runs.path == tmp_path / "runs" / "taco_table5-small"
    assert runs.exit_status == status and len(recwarn) == bool(status)
    assert suite_command(suite, "") == "fedsuite suite taco_table5 --scale small"


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("taco_tabel5", {}, "There is no suite 'taco_tabel5'. Did you mean 'taco_table5'?"),
        ("mine.toml", {}, "There is no suite file 'mine.toml'."),
        ("demo", {"scale": "smal"}, "invalid value 'smal' for --scale: Did you mean 'small'?"),
        ("demo", {"engine": "auto"}, "invalid value 'auto' for --engine: Choices: inline, ray."),
        ("demo", {"jobs": -1}, "invalid value '-1' for --jobs: it takes a whole number"),
        ("demo", {"gpus": 1.0}, "--gpus has no effect without --ray-address"),
    ],
)
def test_mistakes_are_refused_with_the_commands_sentences(
    name: str,
    options: dict[str, Any],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fedsuite.UserError) as refusal:
        fedsuite.suite(name, **options)
    assert expected in str(refusal.value)
