"""FedRep's client (Collins et al., ICML 2021): trains the head on a fixed body, then the body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from clients.fedper import FedPerClient

if TYPE_CHECKING:
    from strategies.fedrep import FedRepParams


class FedRepClient(FedPerClient):
    """Trains the head for epochs of its own, then the body for the usual epochs or steps."""

    params: FedRepParams

    def train(self, lr: float) -> dict[str, float]:
        """Train one part after the other, while the other's parameters stay as they are."""
        head = int(self.shared()[: self.model.size].sum())
        losses = self.train_on(self.plan("head", self.params.head_epochs), lr, slice(head, None))
        losses += self.train_on(self.schedule, lr, slice(0, head))
        return {"steps": len(losses), "loss": torch.stack(losses).mean().item()}
