"""MOON's client (Li et al., CVPR 2021): features near the global model's, unlike its own last ones.

``CE + mu l`` with ``l = -log e^(s(z, z_glob)/T) / (e^(s(z, z_glob)/T) + e^(s(z, z_prev)/T))``,
where ``z`` are a batch's features, ``s`` is the cosine and ``prev`` the model this client ended its
last round with, at first the initial one.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clients.base import Client, Received, Reply
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.vector import Vector
from tasks.architectures import with_features

if TYPE_CHECKING:
    from strategies.moon import MoonParams


class MoonClient(Client):
    """Sends the update; keeps the model it ended with."""

    params: MoonParams

    def train_round(self, received: Received) -> Reply:
        """Train beside the received model and the own last one, neither of which changes."""
        if not self.params.mu:
            return super().train_round(received)
        here, own = self.context, self.context.state.load()
        buffers = self.model.buffer_vector()
        self.shared = self._frozen(received["model"], buffers)
        self.last = self._frozen(
            own.get("model", here.initial), own.get("buffers", here.initial_buffers)
        )
        reply = super().train_round(received)
        kept = {"model": self.model.vector(), "buffers": self.model.buffer_vector()}
        if np.isfinite(kept["model"]).all():
            here.state.save(kept)
        return reply

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the contrastive loss of the batch's features."""
        if not self.params.mu:
            return super().loss(x, y)
        logits, features = with_features(self.model.module, x)
        with torch.no_grad():
            near, far = (with_features(module, x)[1] for module in (self.shared, self.last))
        contrast = contrastive(features, near, far, self.params.temperature)
        return F.cross_entropy(logits, y) + self.params.mu * contrast

    @property
    def stackable(self) -> bool:
        """Without the contrastive loss it is FedAvg's client."""
        return not self.params.mu

    def _frozen(self, weights: Vector, buffers: Vector) -> nn.Module:
        """Return another module of the same architecture, in evaluation mode."""
        model = FlatModel(copy.deepcopy(self.model.module), self.model.device)
        model.load(weights, buffers)
        return model.module.eval()


def contrastive(features: Tensor, near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """Return the mean of ``-log softmax`` of the two cosines at that of ``near``."""
    cosines = [F.cosine_similarity(features.flatten(1), other.flatten(1)) for other in (near, far)]
    pairs = torch.stack(cosines, dim=1) / temperature
    return F.cross_entropy(pairs, torch.zeros(len(pairs), dtype=torch.long, device=pairs.device))
