"""FedProx with TACO's tailored coefficients: Liu et al., "TACO", Fig. 6; FedProx is Li et al.,
"Federated Optimization in Heterogeneous Networks", MLSys 2020.

FedProx's client adds ``zeta_i (w_local - w)`` with its own ``zeta_i = zeta (1 - alpha_i)``.
"""

from __future__ import annotations

from fedsuite.core.messages import Instruction
from strategies.fedprox import FedProx
from strategies.tailored import Tailored


class FedProxTailored(Tailored, FedProx):
    """FedProx whose ``zeta`` differs by client."""

    def instruction(self, client: int) -> Instruction:
        """Replace the common ``zeta`` by the client's own."""
        return Instruction(params={"zeta": self.tailor(self.params.zeta, client)})
