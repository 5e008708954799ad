"""What clients have in common that share a part of their model and keep the rest on their disk."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from clients.base import Client, Evaluation, Received, Reply
from fedsuite.core.vector import Vector


class SharedPartClient(Client):
    """Starts from the part that is shared and its own rest; sends the change of the part."""

    receives: ClassVar[tuple[str, ...]] = ("part",)
    scores_with: ClassVar[tuple[str, ...]] = ("part",)
    sends: ClassVar[tuple[str, ...]] = ("part",)
    personal: ClassVar[bool] = True

    @abstractmethod
    def shared(self) -> np.ndarray:
        """Return which of the parameters and statistics, end to end, are shared."""

    def train_round(self, received: Received) -> Reply:
        """Train the whole model; keep it, and send what has changed of the part."""
        shared = self._assemble(received["part"])
        metrics = self.train(received.lr)
        model = self._whole()
        if np.isfinite(model).all():
            self.context.state.save({"model": model})
        return Reply({"part": model[shared] - received["part"]}, metrics)

    def evaluate_round(self, received: Received) -> Evaluation:
        """Score the shared part with the own rest."""
        self._assemble(received["part"], after_round=True)
        return self.score()

    def length(self, name: str) -> int:
        """The change of the part is as long as it is."""
        return int(self.shared().sum())

    def _assemble(self, part: Vector, after_round: bool = False) -> np.ndarray:
        """Load the part and the own rest, at first that of the initial model."""
        here, shared = self.context, self.shared()
        own = here.state.load(after_round=after_round).get("model")
        model = np.concatenate([here.initial, here.initial_buffers]) if own is None else own.copy()
        model[shared] = part
        self.model.load(model[: self.model.size], model[self.model.size :])
        return shared

    def _whole(self) -> Vector:
        return np.concatenate([self.model.vector(), self.model.buffer_vector()])
