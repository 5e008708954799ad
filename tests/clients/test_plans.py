"""Which rows a client trains on, and when: a function of seed, round and client."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bowl import fit, place
from torch import nn

from clients import base
from clients.base import Client, ClientContext, Training, epoch_plan, step_plan
from clients.fedavg import FedAvgClient
from clients.state import ClientState
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.seeds import generator

ROWS = np.arange(100, 150)


def plan(seed: int, size: int = 7, steps: int = 0) -> list[list[int]]:
    draw = generator(seed, "batches", 1, 2)
    batches = step_plan(ROWS, size, steps, draw) if steps else epoch_plan(ROWS, size, draw)
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("steps", [0, 11])
def test_the_same_seed_gives_the_same_plan_and_another_another(steps: int) -> None:
    assert plan(0, steps=steps) == plan(0, steps=steps)
    assert len({str(plan(seed, steps=steps)) for seed in range(20)}) == 20


@pytest.mark.parametrize("steps", [0, 7])
def test_rows_are_shuffled_so_that_each_comes_first_equally_often(steps: int) -> None:
    """Over 2000 seeds each of 50 rows is first 40 times, within five deviations of 6.3."""
    first = np.bincount([plan(seed, steps=steps)[0][0] - 100 for seed in range(2000)], minlength=50)
    assert first.min() > 40 - 32 and first.max() < 40 + 32


def test_an_epoch_is_a_permutation_cut_into_batches() -> None:
    """50 rows by 7: seven of 7 and one row, which joins the seventh."""
    order = generator(3, "batches", 1, 2).permutation(50)
    assert [len(batch) for batch in plan(3)] == [7] * 6 + [8]
    assert [row for batch in plan(3) for row in batch] == ROWS[order].tolist()


@pytest.mark.parametrize(
    ("rows", "size", "lengths"),
    [(6, 3, [3, 3]), (7, 3, [3, 4]), (8, 3, [3, 3, 2]), (1, 3, [1]), (2, 1, [2]), (3, 1, [1, 2])],
)
def test_only_a_last_batch_of_one_row_joins_the_one_before(
    rows: int, size: int, lengths: list[int]
) -> None:
    assert [len(b) for b in epoch_plan(np.arange(rows), size, generator(0, "a"))] == lengths


def test_steps_go_through_whole_passes_each_shuffled_anew() -> None:
    """5 steps of 4 rows from 10: two passes of 10 each, end to end."""
    draw = generator(0, "steps")
    rows = np.concatenate(step_plan(np.arange(10), 4, 5, draw)).tolist()
    again = generator(0, "steps")
    assert rows == [*again.permutation(10), *again.permutation(10)]
    assert rows[:10] != rows[10:]


def test_no_more_passes_are_drawn_than_needed() -> None:
    """5 steps of 2 rows from 10 are one pass, so the next draw is the generator's second."""
    draw, again = generator(0, "steps"), generator(0, "steps")
    step_plan(np.arange(10), 2, 5, draw)
    again.permutation(10)
    assert draw.random() == again.random()


def context(client: int = 1, server_round: int = 3, seed: int = 9, **how: Any) -> ClientContext:
    """A context of three clients with 5, 4 and 3 rows, and 1, 2, 3 rows of their own test."""
    parts = [np.arange(0, 5), np.arange(5, 9), np.arange(9, 12)]
    tests = [np.arange(20, 21), np.arange(21, 23), np.arange(23, 26)]
    task: Any = SimpleNamespace(
        rows=lambda rows: (torch.tensor(rows)[:, None].float(), torch.tensor(rows) % 2),
        split=SimpleNamespace(train=parts, own_test=tests),
        shape=SimpleNamespace(num_classes=2),
    )
    model = FlatModel(nn.Linear(1, 2))
    start, state = model.vector(), ClientState(Path("unused"), client, server_round, 0)
    training = Training(**how)
    return ClientContext(client, server_round, seed, task, model, start, start[:0], state, training)


def scheduled(**changes: Any) -> list[list[list[int]]]:
    how = {"local_epochs": 2, "batch_size": 2}
    client = FedAvgClient(context(**(how | changes)))
    return [[batch.tolist() for batch in epoch] for epoch in client.schedule]


def test_a_schedule_is_drawn_for_batches_of_this_round_and_client() -> None:
    draw = generator(9, "batches", 3, 1)
    orders = [np.arange(5, 9)[draw.permutation(4)].tolist() for _ in range(2)]
    assert scheduled() == [[order[:2], order[2:]] for order in orders]


@pytest.mark.parametrize("change", [{"seed": 10}, {"server_round": 4}, {"client": 0}])
def test_seed_round_and_client_change_the_schedule(change: dict[str, int]) -> None:
    assert scheduled(**change) != scheduled()


def test_steps_are_one_epoch_and_go_before_epochs() -> None:
    (only,) = scheduled(local_steps=5)
    assert [len(batch) for batch in only] == [2] * 5


def test_a_client_counts_its_own_rows_and_steps() -> None:
    client = FedAvgClient(context(local_epochs=3, batch_size=3))
    assert (client.num_examples, client.num_steps) == (4, 3)  # 3 + 1 rows: one batch of 4
    assert client.rows.tolist() == [5, 6, 7, 8]
    assert client.context.test_rows.tolist() == [21, 22]
    assert FedAvgClient(context(client=0, local_steps=7)).num_steps == 7


def test_a_generator_of_one_purpose_is_of_this_round_or_another() -> None:
    here = context()
    assert here.draw("x").random() == generator(9, "x", 3, 1).random()
    assert here.draw_for("x", 5).random() == generator(9, "x", 5, 1).random()


@pytest.mark.parametrize("limit", [4, 5, 100])
def test_batches_are_the_planned_rows_however_they_are_gathered(
    limit: int,
) -> None:
    client = FedAvgClient(dataclasses.replace(context(), chunk_rows=limit))
    planned = [np.array([3, 1]), np.array([2, 0]), np.array([4]), np.array([7, 5, 6])]
    given = [(x[:, 0].tolist(), y.tolist()) for x, y in client.batches(planned)]
    assert given == [([3, 1], [1, 1]), ([2, 0], [0, 0]), ([4], [0]), ([7, 5, 6], [1, 1, 0])]


@pytest.mark.parametrize(
    ("limit", "chunks"), [(4, [[2, 2], [1, 3]]), (5, [[2, 2, 1], [3]]), (1, [[2], [2], [1], [3]])]
)
def test_a_chunk_holds_as_many_batches_as_fit(limit: int, chunks: list[list[int]]) -> None:
    planned = [np.zeros(n, int) for n in (2, 2, 1, 3)]
    assert [[len(batch) for batch in chunk] for chunk in base._chunks(planned, limit)] == chunks
    assert list(base._chunks([], limit)) == []


class Watching(FedAvgClient):
    """Notes in which mode, and in which order, things happen."""

    def gradients(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.seen: list[Any] = getattr(self, "seen", [])
        self.seen.append(("batch", len(x), self.model.module.training))
        return super().gradients(x, y)

    def correct_gradient(self) -> None:
        self.seen.append("correct")

    def end_epoch(self) -> None:
        self.seen.append("end")


def test_training_is_in_train_mode_and_corrects_each_step_and_ends_each_epoch() -> None:
    client = Watching(context(local_epochs=2, batch_size=2))
    client.model.module.eval()
    client.train(0.1)
    batch = [("batch", 2, True), "correct"]
    assert client.seen == [*batch, *batch, "end"] * 2


def test_the_loss_of_a_round_is_the_mean_over_its_steps() -> None:
    """Weights zero and rate zero: every batch has the loss ln 2, whatever its rows."""
    client = FedAvgClient(context(local_epochs=2, batch_size=2))
    client.model.load(np.zeros(4, np.float32))
    assert client.train(0.0) == {"steps": 4, "loss": pytest.approx(np.log(2))}


def test_settings_of_the_optimiser_reach_it(tmp_path: Path) -> None:
    """Momentum 1/2 from w = 0, x = (1, 3), rate 1/2: steps 1/2 x, then velocity x/2 + x/2 = x."""
    how = Training(local_steps=2, batch_size=1, momentum=0.5)
    (update,), _, _ = fit(FedAvgClient, place(tmp_path, how), [0.0, 0.0])
    assert update.tolist() == [1.0, 3.0]
    how = Training(local_steps=1, batch_size=1, weight_decay=0.5)  # g = w - x + w/2 = (2, 0)
    (update,), _, _ = fit(FedAvgClient, place(tmp_path, how), [2.0, 2.0])
    assert update.tolist() == [-1.0, 0.0]
    how = Training(local_steps=1, batch_size=1, optimizer="adam")  # its first step is the rate
    (update,), _, _ = fit(FedAvgClient, place(tmp_path, how), [0.0, 5.0])
    assert update.tolist() == pytest.approx([0.5, -0.5])


def test_what_a_client_does_by_default() -> None:
    client = Client(context())
    received = client.receive(client.receives, [np.zeros(4, np.float32)], {"lr": 1.0})
    assert client.inspect(received) == {} and client.outgoing() == ("update",)
    assert client.length("anything") == 4
    copied = client.tensor(received["model"])
    copied += 1
    assert received["model"].tolist() == [0] * 4


def test_a_client_scores_the_received_model_on_its_own_test_rows() -> None:
    """Logits (0, 100): all rows are class 1, which row 21 is and row 22 is not."""
    client = FedAvgClient(context())
    loss, count, metrics = client.evaluate([np.array([0, 0, 0, 100], np.float32)], {})
    assert (loss, count) == (pytest.approx(50.0), 2)
    assert metrics == {
        "correct": 1,
        "class-correct": [0, 1],
        "class-labels": [1, 1],
        "class-predicted": [0, 2],
        "auc": 0.5,
    }


def test_the_defaults_of_local_training() -> None:
    realism = (0.0, 0.0, ("none", 1.0))
    assert dataclasses.astuple(Training()) == (1, 0, 32, "sgd", 0.0, 0.0, *realism)


def test_a_client_without_test_rows_has_no_score() -> None:
    here = context()
    here.task.split.own_test[1] = np.arange(0)
    scored = FedAvgClient(here).evaluate([np.zeros(4, np.float32)], {})
    assert scored == (0.0, 0, {"correct": 0})
