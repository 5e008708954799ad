"""What can be said of a classifier from counts per class: the scores that people report.

A class counts if it has samples, or for F1 also if samples were taken for it; one that has neither
has no score, and no part in a mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from fedsuite.core.vector import Doubles

CORRECT, LABELS, PREDICTED = "class-correct", "class-labels", "class-predicted"
COUNTS = (CORRECT, LABELS, PREDICTED)


@dataclass(frozen=True)
class ClassCounts:
    """The diagonal and the margins of a confusion matrix.

    Per class: samples that are of it, that were taken for it, and that were so rightly.
    """

    correct: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray

    @staticmethod
    def of(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> ClassCounts:
        """Count labels and predictions, given by the number of their class."""
        right = labels[labels == predicted]
        counted = (np.bincount(v, minlength=num_classes) for v in (right, labels, predicted))
        return ClassCounts(*counted)

    def __add__(self, other: ClassCounts) -> ClassCounts:
        """Return the counts of both together."""
        return ClassCounts(
            self.correct + other.correct,
            self.labels + other.labels,
            self.predicted + other.predicted,
        )

    @property
    def total(self) -> int:
        """Samples in all."""
        return int(self.labels.sum())

    @property
    def accuracy(self) -> float:
        """Share of all samples classified correctly."""
        return int(self.correct.sum()) / self.total

    @property
    def class_accuracy(self) -> dict[int, float]:
        """The accuracy (recall) of each class that has samples, by its number."""
        present = np.flatnonzero(self.labels)
        return {int(k): int(self.correct[k]) / int(self.labels[k]) for k in present}

    @property
    def balanced_accuracy(self) -> float:
        """The mean of the classes' accuracies.

        >>> ClassCounts(np.array([9, 1]), np.array([10, 2]), np.array([10, 2])).balanced_accuracy
        0.7
        """
        return float(np.mean([*self.class_accuracy.values()]))

    @property
    def macro_f1(self) -> float:
        """The mean of the classes' F1, the harmonic mean of precision and recall.

        >>> ClassCounts(np.array([9, 1]), np.array([10, 2]), np.array([10, 2])).macro_f1
        0.7
        """
        both = self.labels + self.predicted
        f1: Doubles = 2.0 * self.correct[both > 0] / both[both > 0]
        return float(f1.mean())

    def scores(self) -> dict[str, Any]:
        """Return what is recorded beside the accuracy, by the names of the metrics."""
        return {
            "macro_f1": self.macro_f1,
            "balanced_accuracy": self.balanced_accuracy,
            "class_accuracy": {str(k): share for k, share in self.class_accuracy.items()},
        }

    def to_lists(self) -> dict[str, list[int]]:
        """Return the counts as a client sends them."""
        vectors = (self.correct, self.labels, self.predicted)
        return {name: vector.tolist() for name, vector in zip(COUNTS, vectors, strict=True)}


def read_counts(lists: Mapping[str, list[int]]) -> ClassCounts | None:
    """Return the counts that a client sent; None if it did not."""
    if not all(name in lists for name in COUNTS):
        return None
    return ClassCounts(*(np.array(lists[name], dtype=np.int64) for name in COUNTS))


def check_counts(
    lists: Mapping[str, list[int]], num_examples: float, correct: float, num_classes: int
) -> str:
    """Return what is wrong with a client's counts; empty if nothing is, or it sent none."""
    if not lists:
        return ""
    if set(lists) != set(COUNTS):
        return f"counts per class must be {', '.join(COUNTS)}"
    if any(len(counts) != num_classes for counts in lists.values()):
        return f"there must be counts of {num_classes} classes"
    if any(count < 0 for counts in lists.values() for count in counts):
        return "a count per class is negative"
    sums = sum(lists[CORRECT]), sum(lists[LABELS]), sum(lists[PREDICTED])
    if sums != (correct, num_examples, num_examples):
        return "the counts per class do not sum to the samples, or to those classified correctly"
    pairs = zip(lists[CORRECT], lists[LABELS], lists[PREDICTED], strict=True)
    if any(right > min(of_it, taken) for right, of_it, taken in pairs):
        return "more of a class are correct than it has samples"
    return ""


def add_all(counts: Iterable[ClassCounts | None]) -> ClassCounts | None:
    """Return the counts of all together; None if some are missing, or there are none."""
    found = list(counts)
    known = [some for some in found if some is not None]
    return reduce(ClassCounts.__add__, known) if known and len(known) == len(found) else None


def auc(labels: np.ndarray, scores: np.ndarray) -> float | None:
    """Return the area under the ROC curve: how often a sample of class 1 outranks one of class 0.

    ``scores`` are larger the more a sample is taken for class 1; a tie counts half. None unless
    both classes have samples and all scores are finite.

    >>> auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.4, 0.8]))
    0.875
    """
    positive = int(np.count_nonzero(labels == 1))
    negative = len(labels) - positive
    if not positive or not negative or not np.isfinite(scores).all():
        return None
    _, place, ties = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(ties)
    ranks = last - (ties - 1) / 2.0
    above = float(ranks[place[labels == 1]].sum()) - positive * (positive + 1) / 2.0
    return above / (positive * negative)


def worst_tenth(accuracies: np.ndarray) -> float:
    """Return the mean accuracy of the tenth of clients, at least one, that score lowest.

    >>> worst_tenth(np.array([0.9, 0.2, 0.8, 0.4] * 5))  # the two lowest of twenty
    0.2
    """
    count = max(1, int(np.ceil(len(accuracies) / 10)))
    return float(np.sort(accuracies)[:count].mean())
