"""One table of metrics."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedsuite.config import parse
from fedsuite.metrics import METRICS, SHORT_TITLES, SUMMARY_METRICS, TABLE, find_metric
from fedsuite.records.checks import PARTED
from fedsuite.records.summary import summarise
from fedsuite.terminal.format import measured


def test_every_metric_stands_once_and_says_what_is_better() -> None:
    assert len(METRICS) == len(TABLE)
    assert METRICS.keys() >= SHORT_TITLES.keys()
    assert all(metric.better in ("higher", "lower", "") for metric in TABLE)
    assert all(metric.unit in ("%", "points") for metric in TABLE if metric.share)


def test_the_summary_has_every_metric_of_the_table_that_is_said_to_be_there() -> None:
    summary = summarise(parse({}), [], [], "finished")
    assert {metric.name for metric in SUMMARY_METRICS} <= summary.keys()
    hidden = {m.name for m in TABLE if not m.in_summary} & summary.keys() - {*PARTED}
    assert not hidden, "in_summary=False, but summary.json has it"


def test_shares_are_shown_in_per_cent_and_recorded_as_fractions() -> None:
    accuracy = find_metric("final_accuracy")
    assert accuracy.heading == "final accuracy (%)"
    assert accuracy.in_unit(0.5) == 50.0 and accuracy.as_recorded(0.0) == "0.0000"
    rounds = find_metric("rounds_to_target")
    assert rounds.heading == "rounds to target" and rounds.in_unit(7) == 7.0


@pytest.mark.parametrize(
    ("name", "heading", "better"),
    [
        ("other_output_accuracy.z", "accuracy of the other output z (%)", "higher"),
        ("personal_global_accuracy", "personal global accuracy (%)", "higher"),
        ("prototype_loss", "prototype loss", "lower"),
        ("probe_seconds", "probe time (s)", "lower"),
        ("mean_alpha", "mean alpha", ""),
    ],
)
def test_what_a_method_records_itself_has_a_title(name: str, heading: str, better: str) -> None:
    metric = find_metric(name)
    assert (metric.name, metric.heading, metric.better) == (name, heading, better)


def test_the_table_is_quick_to_import() -> None:
    heavy = "{'torch', 'numpy', 'flwr', 'rich'}"
    code = f"import sys, fedsuite.metrics; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_values_with_their_units() -> None:
    assert METRICS["target_accuracy"].with_unit(0.85) == "85 %"
    assert METRICS["compute_seconds"].with_unit(2.5) == "2.5 s"
    assert METRICS["loss"].with_unit(0.25) == "0.25"
    assert measured(METRICS["accuracy"], 0.5) == "accuracy 0.5"
    assert measured(METRICS["wall_seconds"], 1234.56) == "wall-clock time 1,235 s"
    assert measured(METRICS["upload_bytes"], 2_000_000) == "upload 2 MB"
    assert measured(METRICS["rounds"], 3) == "rounds 3"
