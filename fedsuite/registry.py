"""Which algorithms there are: one line each.

An algorithm is a strategy class and a client class. Both are named, not imported, so that
listing algorithms stays quick. Something outside this package takes part by its own name:
``algo="my_package.my_module:ALGORITHM"``, where ``ALGORITHM`` is an :class:`Algorithm`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedsuite.core.settings import UserError, suggest

if TYPE_CHECKING:
    from clients.base import Client
    from strategies.base import BaseStrategy


@dataclass(frozen=True)
class Algorithm:
    """A strategy and the client that speaks with it."""

    strategy: type[BaseStrategy]
    client: type[Client]


ALGORITHMS: dict[str, tuple[str, str]] = {
    "apple": ("strategies.apple:Apple", "clients.apple:AppleClient"),
    "avg": ("strategies.avg:Avg", "clients.fedavg:FedAvgClient"),
    "feda4": ("strategies.feda4:FedA4", "clients.feda4:FedA4Client"),
    "fedacg": ("strategies.fedacg:FedAcg", "clients.fedacg:FedAcgClient"),
    "fedadw": ("strategies.fedadw:FedAdw", "clients.fedadw:FedAdwClient"),
    "fedamp": ("strategies.fedamp:FedAmp", "clients.fedamp:FedAmpClient"),
    "fedavg": ("strategies.fedavg:FedAvg", "clients.fedavg:FedAvgClient"),
    "fedbac": ("strategies.fedbac:FedBac", "clients.fedbac:FedBacClient"),
    "feddual": ("strategies.feddual:FedDual", "clients.feddual:FedDualClient"),
    "fedfomo": ("strategies.fedfomo:FedFomo", "clients.fedfomo:FedFomoClient"),
    "fedprox": ("strategies.fedprox:FedProx", "clients.fedprox:FedProxClient"),
    "fedprox-tailored": (
        "strategies.fedprox_tailored:FedProxTailored",
        "clients.fedprox:FedProxClient",
    ),
    "fedtgp": ("strategies.fedtgp:FedTgp", "clients.fedtgp:FedTgpClient"),
    "foolsgold": ("strategies.foolsgold:FoolsGold", "clients.fedavg:FedAvgClient"),
    "local": ("strategies.local:Local", "clients.local:LocalClient"),
    "pfedme": ("strategies.pfedme:PFedMe", "clients.pfedme:PFedMeClient"),
    "scaffold": ("strategies.scaffold:Scaffold", "clients.scaffold:ScaffoldClient"),
    "scaffold-tailored": (
        "strategies.scaffold_tailored:ScaffoldTailored",
        "clients.scaffold:ScaffoldClient",
    ),
    "stem": ("strategies.stem:Stem", "clients.stem:StemClient"),
    "taco": ("strategies.taco:Taco", "clients.taco:TacoClient"),
}


def find(name: str) -> Algorithm:
    """Return an algorithm by its name here, or by ``MODULE:ATTRIBUTE`` elsewhere."""
    if name in ALGORITHMS:
        strategy, client = (_load(reference) for reference in ALGORITHMS[name])
        return Algorithm(strategy, client)
    if ":" not in name:
        raise UserError(f"algo = '{name}' is not possible. {suggest(name, ALGORITHMS)}")
    found = _load(name)
    if not isinstance(found, Algorithm):
        raise UserError(f"algo = '{name}' is not possible: it is not a fedsuite Algorithm.")
    return found


def namespace(name: str) -> str:
    """Return the prefix of an algorithm's own keys: its name, or its module's last part."""
    return name if ":" not in name else name.split(":")[0].rsplit(".", 1)[-1].replace("_", "-")


def _load(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name and module.startswith(error.name):
            raise UserError(
                f"algo = '{reference}' is not possible: there is no module '{module}' on the "
                "Python path. Install it, or put its folder into PYTHONPATH."
            ) from None
        raise
    except AttributeError:
        raise UserError(
            f"algo = '{reference}' is not possible: module '{module}' has no '{attribute}'."
        ) from None
