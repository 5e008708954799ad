"""``mu``, the field's name of FedProx's weight, is accepted; the record says ``zeta``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedsuite.config import parse
from fedsuite.core.files import read_document
from fedsuite.core.settings import UserError


@pytest.mark.parametrize("algo", ["fedprox", "fedprox-tailored"])
def test_mu_is_another_name_of_zeta(experiment: Callable[..., Path], algo: str) -> None:
    one = experiment(algo, **{f"{algo}.mu": 0.7}, num_rounds=1)
    two = experiment(algo, **{f"{algo}.zeta": 0.7}, num_rounds=1)
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    recorded = read_document(one / "config.json")
    assert recorded[f"{algo}.zeta"] == 0.7 and f"{algo}.mu" not in recorded


def test_mu_and_zeta_with_two_values_are_refused() -> None:
    both = {"algo": "fedprox", "fedprox.zeta": 0.1, "fedprox.mu": "0.1"}
    assert dict(parse(both).params) == {"zeta": 0.1}
    with pytest.raises(UserError, match="fedprox.zeta and fedprox.mu are two names"):
        parse(both | {"fedprox.mu": 0.2})
