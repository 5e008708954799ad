"""The baselines' defaults are their papers', or those that docs/fidelity.md gives a reason for."""

from __future__ import annotations

from typing import Any

import pytest

from fedsuite import registry
from fedsuite.core.settings import defaults

PUBLISHED: dict[str, dict[str, Any]] = {
    "fedprox": {"zeta": 0.1},
    "scaffold": {"coefficient": 1.0},
    "fedacg": {"lam": 0.85, "beta": 0.001},
    "pfedme": {"lam": 15.0, "inner-steps": 5, "beta": 1.0, "personal-lr": 0.01, "scored": "theta"},
    "fedfomo": {"models": 5, "epsilon": 0.3, "decay": 0.05, "validation": 0.2},
    "apple": {"mu": 0.1, "fade": 0.1, "p-lr": 0.01, "start": "shares"},
    "fedamp": {"sigma": 1.0, "alpha": 1.0, "lam": 0.1, "heuristic": False},
    "fedtgp": {"lam": 10.0, "margin-cap": 100.0, "prototype-epochs": 100},
    "fedavgm": {"beta": 0.9},
    "fedadam": {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "bias-correction": False},
    "fedyogi": {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3},
    "fedadagrad": {"beta1": 0.0, "tau": 1e-3},
    "feddyn": {"alpha": 0.01},
    "moon": {"mu": 1.0, "temperature": 0.5},
    "fedper": {"head-layers": 1},
    "fedrep": {"head-layers": 1, "head-epochs": 10},
    "ditto": {"lam": 0.1},
    "fedala": {"ala-layers": 1, "ala-percent": 80, "ala-lr": 1.0},
    "fedproto": {"lam": 1.0},
    "geometric-median": {"iterations": 3, "nu": 1e-6},
}


@pytest.mark.parametrize("algo", PUBLISHED)
def test_defaults(algo: str) -> None:
    assert PUBLISHED[algo].items() <= defaults(registry.params(algo)).items()
