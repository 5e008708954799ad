"""Attackers: clients of any algorithm that want the global model to be wrong.

``label-flip`` trains on labels in reverse order. The others train honestly and change the vector
that matters, the first one they send: ``sign-flip`` sends its negative, ``scaled`` a multiple of
it, ``gaussian`` noise in place of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch

from clients.base import Client, Received, Reply
from clients.freeloader import noise_beside
from fedsuite.core.protocol import GAUSSIAN, LABEL_FLIP, SCALED, SIGN_FLIP
from fedsuite.core.vector import Vector

USUAL_STRENGTH = {SIGN_FLIP: 1.0, GAUSSIAN: 1.0, SCALED: 10.0, LABEL_FLIP: 1.0}


def attacking(cls: type[Client], attack: str, strength: float = 0.0) -> type[Client]:
    """Return the algorithm's client with an attack; a strength of 0 is the usual one."""
    fields = {"attack": attack, "strength": strength or USUAL_STRENGTH[attack]}
    return type(f"Attacking{cls.__name__}", (Attacker, cls), fields)


def attacked(vector: Vector, attack: str, strength: float, draw: np.random.Generator) -> Vector:
    """Return what is sent in place of an honest vector.

    Noise has ``strength`` times its length.
    """
    if attack == SIGN_FLIP:
        return vector * np.float32(-strength)
    if attack == SCALED:
        return vector * np.float32(strength)
    if attack == GAUSSIAN:
        return noise_beside(vector, strength, draw).astype(np.float32)
    return vector


class Attacker(Client):
    """Mixed in before an algorithm's client."""

    attack: ClassVar[str]
    strength: ClassVar[float]

    def train_round(self, received: Received) -> Reply:
        """Train, then change the vector that matters."""
        reply = super().train_round(received)
        for name in self.outgoing()[:1]:
            draw = self.context.draw("attack")
            reply.vectors[name] = attacked(reply.vectors[name], self.attack, self.strength, draw)
        return reply

    def batches(self, plan: list[np.ndarray]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield planned batches, with class ``C - 1 - y`` in place of ``y`` to flip labels."""
        last = self.context.task.shape.num_classes - 1
        for x, y in super().batches(plan):
            yield x, last - y if self.attack == LABEL_FLIP else y
