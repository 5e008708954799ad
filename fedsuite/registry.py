"""The algorithms: one entry each.

An algorithm is a strategy class and a client class. Both are named, not imported, so that listing
algorithms and checking their settings stays quick. One from outside this package is an
:class:`Algorithm` and goes by ``MODULE:ATTRIBUTE`` or by the name that its package registers, see
:mod:`fedsuite.core.plugins`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from fedsuite.core import plugins
from fedsuite.core.params_from_source import Unreadable, read_params
from fedsuite.core.settings import UserError, build, defaults, invalid, kebab, suggest

if TYPE_CHECKING:
    from clients.base import Client
    from strategies.base import BaseStrategy

Foreign = Literal["refuse", "default", "ignore"]


@dataclass(frozen=True)
class Algorithm:
    """A strategy and the client that speaks with it."""

    strategy: type[BaseStrategy]
    client: type[Client]


@dataclass(frozen=True)
class Entry:
    """Where an algorithm's two classes are, and what it is in a line."""

    strategy: str
    client: str
    summary: str


ALGORITHMS: dict[str, Entry] = {
    "apple": Entry(
        "strategies.apple:Apple",
        "clients.apple:AppleClient",
        "personal models as learnt mixtures of all clients' cores",
    ),
    "avg": Entry(
        "strategies.avg:Avg", "clients.fedavg:FedAvgClient", "plain mean of client models"
    ),
    "ditto": Entry(
        "strategies.ditto:Ditto",
        "clients.ditto:DittoClient",
        "personal models, each pulled to the global one",
    ),
    "feda4": Entry(
        "strategies.feda4:FedA4",
        "clients.feda4:FedA4Client",
        "probe-entropy weights and trajectory adaptation",
    ),
    "fedacg": Entry(
        "strategies.fedacg:FedAcg",
        "clients.fedacg:FedAcgClient",
        "clients start where the server's momentum leads",
    ),
    "fedadagrad": Entry(
        "strategies.fedopt:FedAdagrad",
        "clients.fedavg:FedAvgClient",
        "adaptive server steps that become smaller",
    ),
    "fedadam": Entry(
        "strategies.fedopt:FedAdam",
        "clients.fedavg:FedAvgClient",
        "adaptive server steps, by a fading mean square",
    ),
    "fedadw": Entry(
        "strategies.fedadw:FedAdw",
        "clients.fedadw:FedAdwClient",
        "adaptive local aggregation and discrepancy weights",
    ),
    "fedala": Entry(
        "strategies.fedala:FedAla",
        "clients.fedala:FedAlaClient",
        "clients start from a learnt mixture of the global model and their own",
    ),
    "fedamp": Entry(
        "strategies.fedamp:FedAmp",
        "clients.fedamp:FedAmpClient",
        "personal models, each pulled to an attentive mean of similar ones",
    ),
    "fedavg": Entry(
        "strategies.fedavg:FedAvg",
        "clients.fedavg:FedAvgClient",
        "average of client models, weighted by samples",
    ),
    "fedavg-ft": Entry(
        "strategies.fedavg_ft:FedAvgFt",
        "clients.fedavg_ft:FedAvgFtClient",
        "FedAvg, scored after fine-tuning on the own samples",
    ),
    "fedavgm": Entry(
        "strategies.fedavgm:FedAvgM",
        "clients.fedavg:FedAvgClient",
        "FedAvg with momentum at the server",
    ),
    "fedbac": Entry(
        "strategies.fedbac:FedBac",
        "clients.fedbac:FedBacClient",
        "weights by agreement with the momentum and its stability",
    ),
    "fedbn": Entry(
        "strategies.fedbn:FedBn",
        "clients.fedbn:FedBnClient",
        "clients keep their batch-norm layers",
    ),
    "feddual": Entry(
        "strategies.feddual:FedDual",
        "clients.feddual:FedDualClient",
        "our reading: loss mixed with a divergence, barycentre for the last layer",
    ),
    "feddyn": Entry(
        "strategies.feddyn:FedDyn",
        "clients.feddyn:FedDynClient",
        "dynamic regulariser against client drift",
    ),
    "fedfomo": Entry(
        "strategies.fedfomo:FedFomo",
        "clients.fedfomo:FedFomoClient",
        "each client mixes the models that lower its own loss",
    ),
    "fednova": Entry(
        "strategies.fednova:FedNova",
        "clients.fedavg:FedAvgClient",
        "updates per local step, whoever took more",
    ),
    "fedper": Entry(
        "strategies.fedper:FedPer",
        "clients.fedper:FedPerClient",
        "clients share the body and keep their head",
    ),
    "fedproto": Entry(
        "strategies.fedproto:FedProto",
        "clients.fedproto:FedProtoClient",
        "clients share mean class prototypes",
    ),
    "fedprox": Entry(
        "strategies.fedprox:FedProx",
        "clients.fedprox:FedProxClient",
        "FedAvg with a pull of clients towards the global model",
    ),
    "fedprox-tailored": Entry(
        "strategies.fedprox_tailored:FedProxTailored",
        "clients.fedprox:FedProxClient",
        "FedProx with TACO's coefficient per client",
    ),
    "fedrep": Entry(
        "strategies.fedrep:FedRep",
        "clients.fedrep:FedRepClient",
        "clients train their own head, then the shared body",
    ),
    "fedtgp": Entry(
        "strategies.fedtgp:FedTgp",
        "clients.fedtgp:FedTgpClient",
        "clients share class prototypes that the server trains",
    ),
    "fedyogi": Entry(
        "strategies.fedopt:FedYogi",
        "clients.fedavg:FedAvgClient",
        "adaptive server steps, by a mean square that follows slowly",
    ),
    "foolsgold": Entry(
        "strategies.foolsgold:FoolsGold",
        "clients.fedavg:FedAvgClient",
        "weights by the direction of updates",
    ),
    "geometric-median": Entry(
        "strategies.geometric_median:GeometricMedian",
        "clients.fedavg:FedAvgClient",
        "robust: geometric median of updates",
    ),
    "krum": Entry(
        "strategies.krum:Krum",
        "clients.fedavg:FedAvgClient",
        "robust: the update nearest to its neighbours",
    ),
    "local": Entry(
        "strategies.local:Local",
        "clients.local:LocalClient",
        "clients train alone, nothing is shared",
    ),
    "median": Entry(
        "strategies.median:Median",
        "clients.fedavg:FedAvgClient",
        "robust: median of each coordinate",
    ),
    "moon": Entry(
        "strategies.moon:Moon",
        "clients.moon:MoonClient",
        "features near the global model's, unlike the own last ones",
    ),
    "multi-krum": Entry(
        "strategies.krum:MultiKrum",
        "clients.fedavg:FedAvgClient",
        "robust: mean of the updates nearest to their neighbours",
    ),
    "pfedme": Entry(
        "strategies.pfedme:PFedMe",
        "clients.pfedme:PFedMeClient",
        "personal models by Moreau envelopes around a global one",
    ),
    "scaffold": Entry(
        "strategies.scaffold:Scaffold",
        "clients.scaffold:ScaffoldClient",
        "control variates against client drift",
    ),
    "scaffold-tailored": Entry(
        "strategies.scaffold_tailored:ScaffoldTailored",
        "clients.scaffold:ScaffoldClient",
        "SCAFFOLD with TACO's coefficient per client",
    ),
    "stem": Entry(
        "strategies.stem:Stem",
        "clients.stem:StemClient",
        "variance-reduced momentum of clients and server",
    ),
    "taco": Entry(
        "strategies.taco:Taco",
        "clients.taco:TacoClient",
        "tailored correction and aggregation, ejects freeloaders",
    ),
    "trimmed-mean": Entry(
        "strategies.median:TrimmedMean",
        "clients.fedavg:FedAvgClient",
        "robust: mean of each coordinate without its extremes",
    ),
}


def find(name: str) -> Algorithm:
    """Return an algorithm by its name here, or by that of one from outside."""
    if name in ALGORITHMS:
        entry = ALGORITHMS[name]
        strategy, client = (plugins.load("algo", side) for side in (entry.strategy, entry.client))
        return Algorithm(strategy, client)
    found = plugins.find("algo", name, ALGORITHMS)
    if not isinstance(found, Algorithm):
        raise invalid("algo", name, "it is not a fedsuite Algorithm.")
    return found


def params(name: str) -> type[Any]:
    """Return the dataclass of an algorithm's own settings, importing as little as possible."""
    if name in ALGORITHMS:
        with suppress(Unreadable):
            return read_params(ALGORITHMS[name].strategy)
    return find(name).strategy.Params


def namespace(name: str) -> str:
    """Return the prefix of an algorithm's own keys: its name, or its module's last part."""
    return plugins.short_name(name) if ":" in name else name


def suggest_key(key: str, names: Iterable[str], values: Mapping[str, Any]) -> str:
    """Suggest a key for an unknown shared one; the algorithm's own keys count too."""
    algo = str(values.get("algo", "fedavg"))
    own = defaults(params(algo)) if algo in ALGORITHMS else {}
    if key in own:
        return f"It is a setting of {algo}: write {algo}.{key}."
    spelt = {name: name for name in names} | {name: f"{algo}.{name}" for name in own}
    near = difflib.get_close_matches(key, spelt, n=1, cutoff=0.5)
    return (f"Did you mean '{spelt[near[0]]}'? " if near else "") + "`fedsuite settings` lists all."


def own_values(
    algorithm: str, values: Mapping[str, Any], foreign: Foreign, outside: str = ""
) -> dict[str, Any]:
    """Pick the keys under one algorithm's name; check those of other algorithms.

    ``foreign`` says what becomes of these: ``refuse`` them, accept them with their ``default`` or
    ``ignore`` them. ``outside`` has more of the algorithm's own, as JSON.
    """
    own = outside_values(outside)
    for key, value in values.items():
        if "." not in key:
            continue
        owner, name = key.split(".", 1)
        if owner == algorithm:
            own[name] = value
        elif owner not in ALGORITHMS and owner not in plugins.registered("algo"):
            known = {*ALGORITHMS, algorithm}
            raise UserError(f"Unknown key '{key}': no algorithm '{owner}'. {suggest(owner, known)}")
        else:
            kind = params(owner)
            usual = build(kind, {name: value}, f"{owner}.") == kind()
            if foreign == "refuse" or (foreign == "default" and not usual):
                raise UserError(
                    f"'{key}' is a setting of {owner} and has no effect on {algorithm}. Remove it, "
                    f"or run {owner}."
                )
    return own


def own_settings(name: str) -> dict[str, Field[Any]]:
    """Return the field of each of an algorithm's own keys."""
    prefix = namespace(name)
    return {f"{prefix}.{kebab(field.name)}": field for field in fields(params(name))}


def outside_values(text: str) -> dict[str, Any]:
    """Read the own keys of an algorithm that Flower's run-config cannot know by name."""
    try:
        return dict(json.loads(text or "{}"))
    except (ValueError, TypeError):
        reason = "it takes a JSON object such as '{\"zeta\": 0.1}'."
        raise invalid("algo-settings", text, reason) from None
