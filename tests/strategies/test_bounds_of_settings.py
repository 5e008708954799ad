"""What numbers mean decides which of them a setting takes: the bound itself, and none beyond it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from fedsuite import registry
from fedsuite.core.settings import UserError, build, kebab

STRENGTHS = """
    apple.mu apple.p-lr feda4.beta feda4.eta feda4.tau-conc fedacg.beta fedadw.x fedadw.y fedamp.lam
    fedbac.alpha fedbac.lam fedprox.zeta fedprox-tailored.zeta fedtgp.lam fedtgp.margin-cap
    ditto.lam feddyn.alpha fedproto.lam moon.mu foolsgold.kappa scaffold.coefficient
    scaffold-tailored.coefficient taco.gamma
"""  # at 0 the term is switched off
SHARES = "apple.fade feda4.theta fedfomo.epsilon fedfomo.decay stem.a"
MOMENTA = """
    fedacg.lam fedbac.beta fedavgm.beta fedadagrad.beta1 fedadam.beta1 fedadam.beta2 fedyogi.beta1
    fedyogi.beta2
"""
COSINES = "feda4.tau-sim taco.replay"
DIVISORS = """
    fedadw.ala-lr fedadw.ala-tolerance fedamp.sigma fedamp.alpha fedbac.gamma fedtgp.prototype-lr
    pfedme.lam pfedme.personal-lr pfedme.beta taco.kappa fedadagrad.eta fedadagrad.tau fedadam.eta
    fedadam.tau fedyogi.eta fedyogi.tau moon.temperature geometric-median.nu fedala.ala-lr
    fedala.ala-tolerance
"""  # 0 would divide by zero, or never move
COUNTS = """
    fedadw.ala-max-epochs fedala.ala-max-epochs fedbac.history fedtgp.prototype-epochs
    fedtgp.prototype-batch fedper.head-layers fedrep.head-layers
"""
OPTIONAL_COUNTS = """
    fedadw.ala-layers fedala.ala-layers fedfomo.models fedtgp.hidden pfedme.inner-steps taco.lambda
    fedavg-ft.epochs fedrep.head-epochs geometric-median.iterations
"""
TOLERATED = "trimmed-mean.trim krum.tolerated multi-krum.tolerated"
CASES: dict[str, tuple[list[Any], list[Any]]] = {
    **{key: ([0, 1e-12, 1e6], [-1e-12]) for key in STRENGTHS.split()},
    **{key: ([0, 1], [-1e-12, 1 + 1e-9]) for key in SHARES.split()},
    **{key: ([0, 0.9999], [-1e-12, 0.99991, 1]) for key in MOMENTA.split()},
    **{key: ([-1, 0, 1], [-1 - 1e-9, 1 + 1e-9]) for key in COSINES.split()},
    **{key: ([1e-12, 1e6], [0, -1]) for key in DIVISORS.split()},
    **{key: ([1, 2], [0]) for key in COUNTS.split()},
    **{key: ([0, 1], [-1]) for key in OPTIONAL_COUNTS.split()},
    **{key: ([0, 0.499], [-1e-12, 0.5]) for key in TOLERATED.split()},
    "fedadw.ala-percent": ([1, 100], [0, 101]),
    "fedala.ala-percent": ([1, 100], [0, 101]),
    "fedfomo.validation": ([0, 0.9], [-1e-12, 0.91]),
}


@pytest.mark.parametrize("key", CASES)
def test_a_setting_takes_its_bounds_and_nothing_beyond(key: str) -> None:
    algorithm, _, name = key.partition(".")
    params = registry.params(algorithm)
    fine, wrong = CASES[key]
    for value in fine:
        assert build(params, {name: value}, f"{algorithm}.") is not None
    for value in [*wrong, math.nan, math.inf]:
        with pytest.raises(UserError, match=f"for {key}: "):
            build(params, {name: value}, f"{algorithm}.")


@pytest.mark.parametrize("algo", sorted(registry.ALGORITHMS))
def test_a_text_is_one_of_the_words_that_the_setting_names(algo: str) -> None:
    texts = [f for f in dataclasses.fields(registry.params(algo)) if f.type in ("str", str)]
    for field in texts:
        with pytest.raises(UserError, match="no-such-word"):
            build(registry.params(algo), {kebab(field.name): "no-such-word"}, f"{algo}.")
