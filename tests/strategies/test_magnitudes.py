"""Every pure function of a method stays finite, whatever the size of finite numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clients.fedadw import discrepancy
from clients.fedbac import cosine_gradient
from clients.fedproto import class_means, nearness, pull
from clients.moon import contrastive
from fedsuite.core.consensus import consensus, reliability
from fedsuite.core.vector import (
    Doubles,
    Matrix,
    cosines,
    mean_row,
    norms,
    sample_weights,
    weighted_sum,
)
from strategies.feda4 import (
    align,
    anti_bias_weights,
    bias_penalty,
    concentration,
    direction,
    path_statistics,
)
from strategies.fedadw import discrepancy_weights
from strategies.fedbac import consensus_weights, couplings, spearman
from strategies.feddyn import drifted
from strategies.fednova import gradients_in, normalised
from strategies.fedopt import adaptive_step, decayed
from strategies.geometric_median import weiszfeld
from strategies.krum import krum_scores, lowest
from strategies.median import trimmed_mean
from strategies.prototypes import class_means as means_of_holders
from strategies.taco import correction_coefficients, extrapolate, tailored_aggregate

SCALES = (0.0, 1e-18, 1e-9, 1.0, 1e9, 1e18)


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Rows of one to five clients, each with a magnitude of its own."""
    count, size = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    numbers = st.lists(st.floats(-1, 1, width=32), min_size=size, max_size=size)
    rows = [
        np.array(draw(numbers), np.float32) * np.float32(draw(st.sampled_from(SCALES)))
        for _ in range(count)
    ]
    return np.stack(rows)


def unit(values: np.ndarray) -> Doubles:
    """Squeeze any numbers into [0, 1]."""
    largest = float(np.abs(values).max()) or 1.0
    return np.abs(values.astype(np.float64)) / largest


def shares(rows: Matrix) -> Doubles:
    """Make each row a distribution."""
    squeezed = unit(rows) + 1e-300
    return squeezed / squeezed.sum(axis=1, keepdims=True)


OF_MATRIX: dict[str, Callable[[Matrix], object]] = {
    "norms": norms,
    "mean_row": mean_row,
    "cosines": lambda m: cosines(m, m[0]),
    "weighted_sum": lambda m: weighted_sum(np.full(len(m), 1.0 / len(m)), m),
    "correction_coefficients": correction_coefficients,
    "tailored_aggregate": lambda m: tailored_aggregate(m, correction_coefficients(m), 100, 0.01),
    "extrapolate": lambda m: extrapolate(m[0], m[-1], 0.9),
    "align": lambda m: align(m, m.mean(axis=0), 0.9),
    "path_statistics": lambda m: np.concatenate(path_statistics(np.stack([m, m[::-1]]))),
    "concentration": lambda m: concentration(shares(np.hstack([m, m]))),
    "anti_bias_weights": lambda m: anti_bias_weights(unit(m[:, 0])),
    "bias_penalty": lambda m: bias_penalty(m[:, 0].astype(np.float64), 1.0),
    "direction": lambda m: direction(m[:, 0] > 0),
    "consensus": lambda m: consensus(cosines(m, m[0]), 3.0),
    "reliability": lambda m: reliability(cosines(m, m[0]), 1e6),
    "consensus_weights": lambda m: consensus_weights(unit(m[:, 0]), unit(m[:, -1]), norms(m) + 1),
    "spearman": lambda m: spearman(m[:, 0], m[:, -1]),
    "couplings": lambda m: list(couplings(unit(m[:, 0]), m[:, 0], m[:, -1]).values()),
    "discrepancy": lambda m: discrepancy(np.abs(m[0].astype(np.float64)) + 1e-18),
    "discrepancy_weights": lambda m: discrepancy_weights(norms(m) + 1e-18, unit(m[:, 0]), 0.5, 0.1),
    "sample_weights": lambda m: sample_weights(norms(m) + 1e-18),
    "krum_scores": lambda m: krum_scores(m, max((len(m) - 3) // 2, 0)),
    "lowest": lambda m: lowest(krum_scores(m, 0), max(len(m) - 1, 1)),
    "weiszfeld": lambda m: weiszfeld(m, sample_weights(norms(m) + 1e-18), 3, 1e-6),
    "trimmed_mean": lambda m: trimmed_mean(m, (len(m) - 1) // 2),
    "decayed": lambda m: decayed(m[0], m[-1] * m[-1], 0.99),
    "adaptive_step": lambda m: adaptive_step(m[0], m[-1] * m[-1], 0.1, 0.001),
    "gradients_in": lambda m: gradients_in(norms(m), 0.9),
    "normalised": lambda m: normalised(
        sample_weights(norms(m[::-1]) + 1e-18), gradients_in(norms(m), 0.0)
    ),
    "drifted": lambda m: drifted(drifted(m[0][:0], m[0], 1.0), m[-1], 0.3),
    "contrastive": lambda m: contrastive(
        torch.tensor(m), torch.tensor(m[::-1].copy()), torch.tensor(-m), 0.5
    ),
    "pull": lambda m: pull(torch.tensor(m), torch.tensor(m[::-1].copy()), torch.ones(len(m)) > 0),
    "nearness": lambda m: nearness(torch.tensor(m), torch.tensor(m), torch.ones(len(m)) > 0),
    "class_means of a client": lambda m: class_means(m, np.arange(len(m)) // 2, 3)[0],
    "class_means of clients": lambda m: means_of_holders(np.stack([m, -m]), np.ones((2, len(m))))[
        0
    ],
    "cosine_gradient": lambda m: cosine_gradient(
        torch.tensor(m[0]), torch.nn.functional.normalize(torch.ones(m.shape[1]), dim=0)
    ).numpy(),
}


@pytest.mark.parametrize("name", OF_MATRIX)
@given(matrix=matrices())
def test_finite_in_finite_out(name: str, matrix: Matrix) -> None:
    assert np.isfinite(np.asarray(OF_MATRIX[name](matrix))).all()


WEIGHTS = (
    *("anti_bias_weights", "consensus_weights", "discrepancy_weights", "sample_weights"),
    *("lowest", "weiszfeld"),
)


@pytest.mark.parametrize("name", WEIGHTS)
@given(matrix=matrices())
def test_weights_are_shares_at_any_magnitude(name: str, matrix: Matrix) -> None:
    weights = np.asarray(OF_MATRIX[name](matrix))
    assert (weights >= 0).all() and weights.sum() == pytest.approx(1.0)


# Of equal scores ``lowest`` takes the earlier; ``weiszfeld`` sums rows in float32, in their order.
BY_CLIENT = (
    *(name for name in WEIGHTS if name not in ("lowest", "weiszfeld")),
    *("norms", "correction_coefficients", "bias_penalty", "direction"),
    *("krum_scores", "gradients_in", "normalised"),
)


@pytest.mark.parametrize("name", BY_CLIENT)
@given(matrix=matrices())
def test_permuting_clients_permutes_results(name: str, matrix: Matrix) -> None:
    forward, backward = (np.asarray(OF_MATRIX[name](m)) for m in (matrix, matrix[::-1].copy()))
    np.testing.assert_allclose(backward[::-1], forward, rtol=1e-6, atol=1e-9)
