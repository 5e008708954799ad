"""Robust aggregation by hand: what a few clients may send without steering the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rounds import play, strategy_of
from scripted import one_round, reply_with, result, run_info

from fedsuite.config import parse
from fedsuite.core import vector
from fedsuite.core.settings import RunFailed, UserError
from fedsuite.core.vector import squared_distances
from fedsuite.training.loop import check_feasible
from strategies.base import BaseStrategy
from strategies.geometric_median import GeometricMedian, weiszfeld
from strategies.krum import Krum, MultiKrum, krum_scores
from strategies.median import Median, TrimmedMean

Experiment = Callable[..., Path]
LINE = [[0, 0], [1, 0], [2, 0], [4, 0], [100, 0]]
ROBUST = ("median", "trimmed-mean", "krum", "multi-krum", "geometric-median")


def test_the_median_by_hand() -> None:
    strategy = strategy_of(Median, clients=4)
    play(strategy, [[1, 9], [-100, 2], [3, 4]], examples=[1, 100, 1])
    assert strategy.model.tolist() == [1, 4]
    play(strategy, [[1, 1], [2, 1], [4, 1], [100, 1]], number=2)
    assert strategy.model.tolist() == [1 + 3, 4 + 1], "of four, the mean of the middle two"


def test_the_trimmed_mean_by_hand() -> None:
    """Of five numbers a fifth, one, goes at either end: (1 + 2 + 4)/3."""
    strategy = strategy_of(TrimmedMean, clients=5)
    play(strategy, LINE, examples=[1, 1, 1, 1, 9])
    assert strategy.model.tolist() == pytest.approx([7 / 3, 0])


def test_columns_are_trimmed_each_by_itself() -> None:
    """Of three one goes at either end: the medians 2 and 5, of two clients."""
    strategy = strategy_of(TrimmedMean, clients=3, trim=0.4)
    play(strategy, [[1, 5], [2, 9], [3, 4]])
    assert strategy.model.tolist() == [2, 5]


@pytest.mark.parametrize(("cls", "statistics"), [(Median, [2.0]), (TrimmedMean, [7 / 3])])
def test_statistics_are_as_robust_as_the_model(
    cls: type[BaseStrategy], statistics: list[float]
) -> None:
    strategy = strategy_of(cls, clients=5)
    this_round = play(strategy, LINE)
    this_round.buffers = np.array(LINE, np.float32)[:, :1]
    assert strategy.aggregate_buffers(this_round).tolist() == pytest.approx(statistics)


def test_krum_by_hand() -> None:
    """Of five one may attack, so two neighbours count: 1 + 4, 1 + 1, 1 + 4, 4 + 9, 96^2 + 98^2."""
    scores = krum_scores(np.array(LINE, np.float32), 1)
    assert scores.tolist() == pytest.approx([5, 2, 5, 13, 96**2 + 98**2])
    strategy = strategy_of(Krum, clients=5)
    this_round = play(strategy, LINE, examples=[9, 1, 1, 1, 1])
    assert strategy.model.tolist() == [1, 0]
    assert this_round.per_client["weight"].tolist() == [0, 1, 0, 0, 0]


def test_multi_krum_by_hand() -> None:
    """All but the one attacker: (0 + 1 + 2 + 4)/4."""
    strategy = strategy_of(MultiKrum, clients=5)
    this_round = play(strategy, LINE)
    assert strategy.model.tolist() == [1.75, 0]
    assert this_round.per_client["krum"].tolist() == pytest.approx([5, 2, 5, 13, 18820])


def test_weiszfelds_steps_by_hand() -> None:
    """Points 0, 0 and 3. From the mean 1, at distances 1, 1, 2: weights 1 : 1 : 1/2, so 3/5; then
    4 : 4 : 1, so 1/3; then 8 : 8 : 1, so 3/17.
    """
    points, shares = np.array([[0, 0], [0, 0], [3, 0]], np.float32), np.full(3, 1 / 3)
    for steps, expected in enumerate([1, 3 / 5, 1 / 3, 3 / 17]):
        weights = weiszfeld(points, shares, steps, 1e-6)
        assert weights @ points[:, 0] == pytest.approx(expected, rel=1e-5)
    strategy = strategy_of(GeometricMedian, clients=3)
    play(strategy, points.tolist())
    assert strategy.model.tolist() == pytest.approx([3 / 17, 0], rel=1e-5)


def test_samples_weigh_in_the_geometric_median_and_its_distance_has_a_least() -> None:
    """Points 0 and 4 of 3 and 1 samples: mean 1, weights 3/1 : 1/3, so 4/10; with a least distance
    of 3 both count as they did.
    """
    points, shares = np.array([[0], [4]], np.float32), np.array([0.75, 0.25])
    assert weiszfeld(points, shares, 1, 1e-6) @ points[:, 0] == pytest.approx(0.4)
    assert weiszfeld(points, shares, 1, 3.0) @ points[:, 0] == pytest.approx(1.0)


@given(
    st.lists(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), min_size=2, max_size=5)
)
def test_squared_distances(rows: list[list[float]]) -> None:
    """Far from the origin too, where the squares of lengths would drown the gaps."""
    points = np.array(rows, np.float32) + np.float32(1000)
    gaps = points.astype(np.float64)[:, None] - points
    np.testing.assert_allclose(squared_distances(points), (gaps**2).sum(2), atol=1e-7)


@pytest.mark.parametrize("size", [1e6, 1e9, 1e12, 1e30])
def test_huge_updates_do_not_hide_how_far_apart_others_are(size: float) -> None:
    """Two of nine are out of all bounds; distances among the rest are those without them."""
    draw = np.random.default_rng(0)
    rows = draw.standard_normal((9, 100)).astype(np.float32)
    rows[[2, 5]] = size * draw.standard_normal((2, 100))
    rest = [0, 1, 3, 4, 6, 7, 8]
    gaps = rows[rest].astype(np.float64)[:, None] - rows[rest]
    found = squared_distances(rows)[np.ix_(rest, rest)]
    np.testing.assert_allclose(found, (gaps**2).sum(2), rtol=1e-12, atol=1e-12)


def test_blocks_of_columns_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).standard_normal((4, 101)).astype(np.float32)
    median = strategy_of(Median)
    whole = median._by_column(rows)
    apart = squared_distances(rows)
    monkeypatch.setattr(vector, "MOST_COPIED", 40)
    assert [b.stop - b.start for b in vector.column_blocks(rows)] == [10] * 11
    assert np.array_equal(median._by_column(rows), whole)
    np.testing.assert_allclose(squared_distances(rows), apart, rtol=1e-12)


@pytest.mark.parametrize(
    ("algo", "off", "plain"),
    [
        ("trimmed-mean", {"trimmed-mean.trim": 0}, "avg"),
        ("multi-krum", {"multi-krum.tolerated": 0}, "avg"),
        ("geometric-median", {"geometric-median.iterations": 0}, "fedavg"),
    ],
)
@pytest.mark.usefixtures("small_resnet")
def test_switched_off_it_is_a_mean(
    algo: str, off: dict[str, Any], plain: str, experiment: Experiment
) -> None:
    """Statistics of batch normalisation are averaged then too."""
    settings = {"local_steps": 1, "num_rounds": 1, "partition": "sizes", "model": "resnet18"}
    one, other = experiment(algo, **settings, **off), experiment(plain, **settings)
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


# Krum's bound


@pytest.mark.parametrize(
    ("clients", "tolerated", "least"), [(2, 0.0, 3), (4, 0.25, 5), (10, 0.4, 11), (100, 0.49, 101)]
)
def test_too_few_clients_for_krum(clients: int, tolerated: float, least: int) -> None:
    short = Krum.shortage(Krum.Params(tolerated=tolerated), clients)
    assert f"{clients} clients in a round" in short and f"needs {least}:" in short
    assert Krum.shortage(Krum.Params(tolerated=0.0), 3) == ""
    assert Krum.shortage(Krum.Params(tolerated=0.2), 5) == ""


@pytest.mark.parametrize("algo", ["krum", "multi-krum"])
def test_it_is_said_before_the_run_starts(algo: str, tmp_path: Path) -> None:
    """Of 10 clients 4 take part, of whom 1 may attack: 5 are needed."""
    given = {"algo": algo, "num-clients": 10, "fraction-train": 0.4, f"{algo}.tolerated": 0.25}
    with pytest.raises(
        UserError, match="4 clients in a round, of whom up to 1 may attack, .* needs 5"
    ):
        check_feasible(parse(given | {"results-dir": str(tmp_path)}))
    assert not list(tmp_path.iterdir())


def test_a_round_that_loses_clients_keeps_the_model() -> None:
    """Three may do; with one that sends NaN there are two, and nothing moves."""
    good = {c: result(c, [c + 1.0, 0.0]) for c in range(3)}
    assert one_round(Krum(run_info()), reply_with(good), [7, 7]).tolist() != [7, 7]
    short, bad = Krum(run_info()), good | {1: result(1, [np.nan, 0.0])}
    assert one_round(short, reply_with(bad), [7, 7]).tolist() == [7, 7]
    assert "2 clients in a round" in short.round_record.scalars["note"]
    assert short.round_record.scalars["note"].endswith("; the model does not change")


def test_a_run_that_ends_with_too_few_clients_fails_with_the_reason(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "helpers"))
    with pytest.raises(RunFailed, match="2 clients in a round, .* The model did not change"):
        experiment("troubled:krum", num_rounds=1, local_steps=1)


# Under attack


@pytest.mark.parametrize(
    "cls", [Median, TrimmedMean, Krum, MultiKrum, GeometricMedian], ids=lambda cls: cls.__name__
)
def test_one_of_ten_cannot_steer_the_model(cls: type[BaseStrategy]) -> None:
    """Nine honest updates near (1, 1); whatever the tenth sends, the model stays near them."""
    honest = 1 + 0.1 * np.random.default_rng(0).standard_normal((9, 2))
    for attack in ([1e6, 1e6], [-1e6, 0], [0, 0]):
        params: dict[str, Any] = {"iterations": 50} if cls is GeometricMedian else {}
        strategy = strategy_of(cls, clients=10, **params)
        play(strategy, [*honest.tolist(), attack])
        np.testing.assert_allclose(strategy.model, [1, 1], atol=0.3)


@pytest.mark.parametrize("algo", ROBUST)
def test_it_differs_from_fedavg(algo: str, experiment: Experiment) -> None:
    settings = {"local_steps": 1, "num_rounds": 1, "num_clients": 5}
    one, plain = (experiment(name, **settings) for name in (algo, "fedavg"))
    assert (one / "model.safetensors").read_bytes() != (plain / "model.safetensors").read_bytes()
