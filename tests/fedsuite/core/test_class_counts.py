"""Scores from counts per class, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedsuite.core.class_counts import (
    ClassCounts,
    add_all,
    auc,
    check_counts,
    read_counts,
    worst_tenth,
)

# Of class 0 three samples, two right and one taken for 1; of 1 one, right; of 2 two, taken for 0;
# class 3 has none, and none is taken for it.
COUNTS = ClassCounts.of(np.array([0, 0, 0, 1, 2, 2]), np.array([0, 0, 1, 1, 0, 0]), 4)


def test_counts_are_the_diagonal_and_the_margins_of_the_confusion_matrix() -> None:
    assert COUNTS.correct.tolist() == [2, 1, 0, 0]
    assert COUNTS.labels.tolist() == [3, 1, 2, 0]
    assert COUNTS.predicted.tolist() == [4, 2, 0, 0]
    assert (COUNTS.total, COUNTS.accuracy) == (6, 0.5)


def test_scores_by_hand() -> None:
    """Recall 2/3, 1 and 0; F1 4/7, 2/3 and 0: a class that does not occur is in no mean."""
    assert COUNTS.class_accuracy == {0: pytest.approx(2 / 3), 1: 1.0, 2: 0.0}
    assert COUNTS.balanced_accuracy == pytest.approx((2 / 3 + 1) / 3)
    assert COUNTS.macro_f1 == pytest.approx((4 / 7 + 2 / 3) / 3)
    assert COUNTS.scores()["class_accuracy"]["1"] == 1.0


def test_a_class_that_is_only_predicted_lowers_f1_and_not_the_balanced_accuracy() -> None:
    """F1 of class 0 is 2/3, of class 1, which nothing is, 0."""
    counts = ClassCounts.of(np.array([0, 0]), np.array([0, 1]), 2)
    assert counts.balanced_accuracy == 0.5
    assert counts.macro_f1 == pytest.approx((2 / 3 + 0) / 2)


def test_counts_of_several_clients_add_up() -> None:
    other = ClassCounts.of(np.array([2, 3]), np.array([2, 3]), 4)
    together = add_all([COUNTS, other])
    assert together is not None
    assert together.class_accuracy == {
        0: pytest.approx(2 / 3),
        1: 1.0,
        2: pytest.approx(1 / 3),
        3: 1.0,
    }
    assert add_all([COUNTS, None]) is None and add_all([]) is None


def test_counts_travel_as_lists() -> None:
    again = read_counts(COUNTS.to_lists())
    assert again is not None and again.scores() == COUNTS.scores()
    assert read_counts({}) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"class-labels": [3, 1, 1, 0]}, "do not sum"),
        ({"class-predicted": [4, 1, 0, 0]}, "do not sum"),
        ({"class-correct": [1, 1, 0, 0]}, "do not sum"),
        ({"class-correct": [0, 1, 2, 0]}, "more of a class are correct"),
        ({"class-labels": [3, 1, 3, -1]}, "negative"),
        ({"class-labels": [3, 1, 2]}, "counts of 4 classes"),
        ({"others": [1]}, "must be class-correct"),
    ],
)
def test_counts_that_cannot_be_are_refused(change: dict[str, list[int]], problem: str) -> None:
    assert check_counts(COUNTS.to_lists(), 6, 3, 4) == ""
    assert problem in check_counts(COUNTS.to_lists() | change, 6, 3, 4)


def test_who_sends_no_counts_is_not_refused() -> None:
    assert check_counts({}, 6, 3, 4) == ""


def test_auc_by_hand() -> None:
    """Of the four pairs one is the wrong way round; of the three with a tie that is half a pair."""
    assert auc(np.array([0, 1, 0, 1]), np.array([0.1, 0.3, 0.5, 0.9])) == 0.75
    assert auc(np.array([1, 0, 0, 0]), np.array([2.0, 2.0, 1.0, 3.0])) == pytest.approx(1.5 / 3)
    assert auc(np.array([0, 1]), np.array([1.0, 0.0])) == 0.0


def test_auc_is_the_share_of_pairs_in_order() -> None:
    draw = np.random.default_rng(3)
    labels, scores = draw.integers(0, 2, 60), draw.integers(0, 9, 60).astype(float)
    ones, zeros = scores[labels == 1][:, None], scores[labels == 0]
    worked = np.mean((ones > zeros) + 0.5 * (ones == zeros))
    assert auc(labels, scores) == pytest.approx(worked)


@pytest.mark.parametrize(
    ("labels", "scores"), [([1, 1], [0.0, 1.0]), ([0, 0], [0.0, 1.0]), ([0, 1], [0.0, np.nan])]
)
def test_without_both_classes_or_with_nan_there_is_no_auc(
    labels: list[int], scores: list[float]
) -> None:
    assert auc(np.array(labels), np.array(scores)) is None


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_the_worst_tenth_is_rounded_up(clients: int, worst: int) -> None:
    """Accuracies 0, 1/n, ...: the mean of the first k is (k - 1) / 2n."""
    accuracies = np.arange(clients)[::-1] / clients
    assert worst_tenth(accuracies) == pytest.approx((worst - 1) / (2 * clients))
