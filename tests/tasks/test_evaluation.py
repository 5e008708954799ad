"""Evaluation by hand: over several batches, in evaluation mode, without gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsuite.core.flat_model import FlatModel
from fedsuite.core.threads import threads
from tasks.evaluation import BATCH, ScoredBatch, evaluate, mean_probabilities, score_batches
from tasks.task import Task

SHORT = 44  # rows of the last batch
SURE = [math.log(3.0), 0.0]  # probabilities 3/4 and 1/4


class Given(nn.Module):
    """Gives its input as logits, reversed while training; remembers how it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.seen: list[tuple[int, bool, bool]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = x * self.scale * (-1.0 if self.training else 1.0)
        self.seen.append((len(x), self.training, logits.requires_grad))
        return logits


def given(last_label: int = 0) -> tuple[FlatModel, Task, np.ndarray]:
    """A full batch that knows nothing, all of class 1, then 44 rows that are sure of class 0."""
    x = torch.tensor([[0.0, 0.0]] * BATCH + [SURE] * SHORT)
    y = torch.tensor([1] * BATCH + [last_label] * SHORT)
    task: Any = SimpleNamespace(
        rows=lambda indices: (x[indices], y[indices]), shape=SimpleNamespace(num_classes=2)
    )
    return FlatModel(Given()), task, np.arange(BATCH + SHORT)


def test_the_loss_is_the_mean_over_rows_also_with_a_shorter_last_batch() -> None:
    """256 rows cost log 2 and 44 cost log 4/3; of equal logits the first class is predicted."""
    score = evaluate(*given())
    worked = (256 * math.log(2) + 44 * math.log(4 / 3)) / 300
    assert score.loss == pytest.approx(worked, rel=1e-6)
    assert (score.correct, score.total) == (44, 300)
    assert score.accuracy == pytest.approx(44 / 300)


def test_all_scores_come_from_one_pass() -> None:
    """256 rows of class 1, all taken for 0, and 44 of class 0, all right: recall 1 and 0, F1 of
    class 0 88/344. The 44 are surer of class 0 than all others: the ranking is perfect.
    """
    model, task, rows = given()
    score = evaluate(model, task, rows)
    assert score.record() == {
        "accuracy": pytest.approx(44 / 300),
        "loss": score.loss,
        "macro_f1": pytest.approx(44 / 344),
        "balanced_accuracy": 0.5,
        "class_accuracy": {"0": 1.0, "1": 0.0},
        "auc": 1.0,
    }
    assert score.to_send() == {
        "correct": 44,
        "class-correct": [44, 0],
        "class-labels": [44, 256],
        "class-predicted": [300, 0],
        "auc": 1.0,
    }
    module: Any = model.module
    assert sorted(size for size, _, _ in module.seen) == [SHORT, BATCH]


def test_more_than_two_classes_have_no_auc() -> None:
    batch = ScoredBatch.of(torch.eye(3), torch.tensor([0, 1, 2]))
    score = score_batches([batch], 3)
    assert score.auc is None and "auc" not in score.record() and "auc" not in score.to_send()


def test_what_ranks_decides_and_the_logits_give_the_loss() -> None:
    logits, y = torch.tensor([[5.0, 0.0], [5.0, 0.0]]), torch.tensor([0, 1])
    score = score_batches([ScoredBatch.of(logits, y, -logits)], 2)
    assert score.counts.predicted.tolist() == [0, 2]
    assert score.loss == pytest.approx(2.5 + math.log1p(math.exp(-5)), rel=1e-6)


def test_some_rows_alone_can_be_scored() -> None:
    """Three rows of the last batch with the wrong class cost log 4 each."""
    model, task, rows = given(last_label=1)
    score = evaluate(model, task, rows[-3:])
    assert score.loss == pytest.approx(math.log(4), rel=1e-6)
    assert (score.correct, score.total) == (0, 3)


def test_a_probe_set_may_be_larger_than_a_batch() -> None:
    """Means over 256 rows of (1/2, 1/2) and 44 of (3/4, 1/4)."""
    probabilities, accuracy = mean_probabilities(*given())
    worked = (256 * 0.5 + 44 * 0.75) / 300
    np.testing.assert_allclose(probabilities, [worked, 1 - worked], rtol=1e-6)
    assert accuracy == pytest.approx(44 / 300)


@pytest.mark.parametrize("function", [evaluate, mean_probabilities])
@pytest.mark.parametrize("training", [True, False])
def test_models_are_scored_in_evaluation_mode_which_is_then_undone(
    function: Callable[..., object], training: bool
) -> None:
    model, task, rows = given()
    model.module.train(training)
    function(model, task, rows)
    assert isinstance(model.module, Given)
    assert sorted(model.module.seen) == [(SHORT, False, False), (BATCH, False, False)]
    assert model.module.training is training


def test_a_failing_model_gets_its_mode_back() -> None:
    model, task, rows = given()
    model.module.train()
    with pytest.raises(IndexError):
        evaluate(model, task, rows + 1)
    assert model.module.training


def test_batch_norm_keeps_its_statistics() -> None:
    """Scoring neither moves them nor uses those of the batch: mean 0 and variance 1 stay."""
    norm = nn.BatchNorm1d(2, eps=0.0)
    model, (_, task, rows) = FlatModel(norm), given()
    model.module.train()
    assert evaluate(model, task, rows).loss == pytest.approx(evaluate(*given()).loss, rel=1e-6)
    assert model.buffer_vector().tolist() == [0.0, 0.0, 1.0, 1.0]


def test_the_bits_of_a_score_do_not_depend_on_the_number_of_threads() -> None:
    """Five batches, the last one shorter, of a convolution and a linear layer."""
    draw = torch.Generator().manual_seed(5)
    x, y = torch.randn(1100, 1, 12, 12, generator=draw), torch.arange(1100) % 10
    task: Any = SimpleNamespace(
        rows=lambda indices: (x[indices], y[indices]), shape=SimpleNamespace(num_classes=10)
    )
    torch.manual_seed(6)
    layers = nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))
    model, scores, means = FlatModel(layers), [], []
    for count in (1, 2, 3):
        with threads(count):
            scores.append(evaluate(model, task, np.arange(1100)).record())
            means.append(mean_probabilities(model, task, np.arange(1100))[0].tobytes())
    assert scores[0] == scores[1] == scores[2] and means[0] == means[1] == means[2]


def test_nothing_to_score_is_refused() -> None:
    model, task, rows = given()
    with pytest.raises(ValueError, match="no rows"):
        evaluate(model, task, rows[:0])
