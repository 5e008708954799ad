"""SCAFFOLD with TACO's tailored coefficients: Liu et al., "TACO", Fig. 6; SCAFFOLD is Karimireddy
et al., ICML 2020.

SCAFFOLD's client adds ``a_i (c - c_i)`` with its own ``a_i = coefficient (1 - alpha_i)``.
"""

from __future__ import annotations

import dataclasses

from fedsuite.core.messages import Instruction
from strategies.scaffold import Scaffold
from strategies.tailored import Tailored


class ScaffoldTailored(Tailored, Scaffold):
    """SCAFFOLD whose coefficient differs by client."""

    def control_follows_from_update(self) -> bool:
        """Return whether there is no correction: tailored coefficients are never 1."""
        return self.info.plain_sgd and self.params.coefficient == 0.0

    def instruction(self, client: int) -> Instruction:
        """Replace the common coefficient by the client's own."""
        own = {"coefficient": self.tailor(self.params.coefficient, client)}
        common = super().instruction(client)
        return dataclasses.replace(common, params=common.params | own)
