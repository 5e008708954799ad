"""pFedMe's client with a strength that is not one, on a bowl with its bottom at (1, 3)."""

from __future__ import annotations

from pathlib import Path

from bowl import fit, place

from clients.base import Training
from clients.pfedme import PFedMeClient
from clients.state import ClientState
from strategies.pfedme import PFedMeParams


def test_the_strength_scales_the_pull_and_the_step_of_the_anchor(tmp_path: Path) -> None:
    """Lam 2, personal rate 1/2, rate 1/4, so that w_i goes 1/4 * 2 = 1/2 of the way to theta.

    Batch 1: theta = (1/2, 3/2), w_i = (1/4, 3/4). Batch 2: g = (-1/2, -3/2), and the pull is
    2 (theta - w_i) = (1/2, 3/2): theta stays, and w_i = (3/8, 9/8).
    """
    params = PFedMeParams(lam=2.0, inner_steps=1, personal_lr=0.5)
    context = place(tmp_path, Training(local_steps=2, batch_size=1))
    (update,), _, _ = fit(PFedMeClient, context, [0, 0], params=params, lr=0.25)
    assert update.tolist() == [0.375, 1.125]
    assert ClientState(tmp_path, 0, 2, 0).load()["theta"].tolist() == [0.5, 1.5]
