"""What a model says of rows, and how much of it is right."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from tasks.evaluation import BATCH, Score, ScoredBatch, score_batches


@dataclass(frozen=True)
class Predictions:
    """The logits of rows, a column per class."""

    classes: tuple[str, ...]
    logits: torch.Tensor

    @cached_property
    def numbers(self) -> np.ndarray:
        """The number of each row's most probable class."""
        return self.logits.argmax(1).numpy()

    @property
    def names(self) -> list[str]:
        """The name of each row's most probable class."""
        return [self.classes[number] for number in self.numbers]

    @cached_property
    def probabilities(self) -> np.ndarray:
        """The probability of each class, a row per row."""
        return self.logits.softmax(1).float().numpy()

    def score(self, labels: np.ndarray) -> Score:
        """Compare with the class numbers of all rows, in the batches in which runs are scored."""
        truth = torch.from_numpy(labels)
        pairs = zip(self.logits.split(BATCH), truth.split(BATCH), strict=True)
        return score_batches((ScoredBatch.of(*pair) for pair in pairs), len(self.classes))

    def to_csv(
        self,
        labels: Sequence[str] | None = None,
        files: Sequence[str] | None = None,
        top: int = 0,
    ) -> str:
        """Return a line per row: its number and class, then all classes' probabilities.

        ``top`` gives so many classes instead of all, the most probable first.
        """
        head = [
            "row",
            *["file"] * bool(files),
            "predicted",
            "probability",
            *["label"] * bool(labels),
        ]
        if top:
            count = min(top, len(self.classes))
            ranks = range(1, count + 1)
            head += [name for rank in ranks for name in (f"class_{rank}", f"probability_{rank}")]
            order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :count]
        else:
            head += [f"p({name})" for name in self.classes]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(head)
        for row, (number, shares) in enumerate(zip(self.numbers, self.probabilities, strict=True)):
            cells = [row, *([files[row]] if files else []), self.classes[number], shares[number]]
            cells += [labels[row]] if labels else []
            if top:
                cells += [cell for n in order[row] for cell in (self.classes[n], shares[n])]
            else:
                cells += [*shares]
            writer.writerow(cells)
        return text.getvalue()
