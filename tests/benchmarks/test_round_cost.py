"""The model of a round's cost, by hand."""

from __future__ import annotations

import pytest

from benchmarks.report import RoundTime, Trial
from benchmarks.round_cost import (
    Measured,
    Overhead,
    Size,
    amount,
    fit,
    measured_round,
    report,
    round_seconds,
)
from benchmarks.suite_runs import Training

OVERHEAD = Overhead(per_round=0.5, per_client=0.01, per_model_byte=0.001, per_update_byte=0.002)


def test_one_machine_by_hand() -> None:
    """40 bytes down and 280 up; 4 clients one after the other; 0.5 + 0.07 + 0.04 + 0.56."""
    size = Size(parameters=10, clients=7, workers=2)
    assert (size.bytes_down, size.bytes_up) == (40, 280)
    assert OVERHEAD.seconds(size) == pytest.approx(1.17)
    assert round_seconds(size, OVERHEAD, client_seconds=3.0) == pytest.approx(13.17)


def test_a_cluster_sends_the_model_to_each_worker() -> None:
    """Two vectors of 40 bytes to 8 workers, three from 16 clients; 100 bytes per second."""
    size = Size(10, 16, workers=8, machines=2, broadcasts=2, uploads=3)
    assert (size.bytes_down, size.bytes_up) == (640, 1920)
    expected = 2 * 3.0 + (0.5 + 0.16 + 0.08 + 3.84) + 25.6
    assert round_seconds(size, OVERHEAD, 3.0, link=100.0) == pytest.approx(expected)


def run(size: Size) -> Measured:
    return Measured(size, round_seconds(size, OVERHEAD, 3.0), OVERHEAD.seconds(size), 3.0)


def test_a_fit_finds_the_constants_and_the_report_shows_no_error() -> None:
    sizes = [Size(p, n, 2) for p, n in ((10, 100), (10, 1000), (9000, 10), (9000, 30))]
    small = {"mlp": [run(size) for size in sizes[:2]], "resnet": [run(size) for size in sizes[2:]]}
    found = fit([*small["mlp"], *small["resnet"]])
    assert found.per_round == pytest.approx(0.5) and found.per_client == pytest.approx(0.01)
    assert found.per_model_byte == pytest.approx(1e-3)
    assert found.per_update_byte == pytest.approx(2e-3)
    page = report(small, {"resnet": [run(Size(9000, 100, 2))]})
    assert page.count("+0%") + page.count("-0%") == 5 and "| resnet | predicted | 100 |" in page


def test_a_round_is_taken_from_the_medians_of_a_run() -> None:
    """2 s, 0.5 s after it, 1.5 s of training on the busiest node, 2.8 s on all."""
    rows = [RoundTime(n, 2.0, 0.5, 1.0, went=0.0, back=2.5) for n in (1, 2, 3)]
    trial = Trial(0.0, 1.0, 9.0, 1, rows, [Training(1.5, 2.8)] * 3)
    found = measured_round(trial, Size(10, 7, 2))
    assert (found.seconds, found.beside_training) == pytest.approx((2.5, 1.0))
    assert found.client_seconds == pytest.approx(0.4)


def test_amounts_of_bytes() -> None:
    assert [amount(n) for n in (163e6, 4.48e9, 16_300)] == ["163.0 MB", "4.5 GB", "16.3 kB"]
