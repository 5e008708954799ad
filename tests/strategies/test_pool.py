"""A server without a model of its own: what it keeps of whom, and for which round it instructs."""

from __future__ import annotations

import numpy as np
from flwr.app import ConfigRecord
from scripted import ScriptedGrid, hosted, reply_with, result, run_info

from fedsuite.core.messages import write_arrays
from strategies.pool import PoolStrategy


def test_a_round_keeps_rows_and_changes_neither_model_nor_statistics() -> None:
    """Client 1 fails: it stays unknown, and its row the run's first model."""
    strategy = hosted(PoolStrategy(run_info()))
    answers = {0: result(0, [1, 2]), 1: result(1, [np.nan, 0]), 2: result(2, [3, 4])}
    grid = ScriptedGrid(reply_with(answers))
    vectors = {"model": np.array([7, 8], np.float32), "buffers": np.array([5], np.float32)}
    messages = list(strategy.configure_train(6, write_arrays(vectors), ConfigRecord(), grid))
    assert strategy.training_round == 6
    strategy.aggregate_train(6, grid.send_and_receive(messages))
    assert strategy.model.tolist() == [7, 8] and strategy.buffers.tolist() == [5]
    assert strategy.rows().tolist() == [[1, 2], [0, 0], [3, 4]]
    assert strategy.known.tolist() == [True, False, True]
    assert strategy.rows().dtype == np.float32 and strategy.known.dtype == bool
    assert strategy.round_record.scalars["clients"] == 2
    assert strategy.round_record.scalars["download_bytes"] == 0, "the model does not travel"


def test_rows_of_those_who_stay_away_survive_rounds_and_restarts() -> None:
    strategy, again = PoolStrategy(run_info()), PoolStrategy(run_info())
    for one in (strategy, again):
        one.model = np.zeros(2, np.float32)
    strategy.rows()[1] = [5, 6]
    strategy.known[1] = True
    again.load_state(strategy.state())
    strategy.rows()[1], strategy.known[1] = 0, False
    assert again.rows().tolist() == [[0, 0], [5, 6], [0, 0]]
    assert again.known.tolist() == [False, True, False], "a copy"
