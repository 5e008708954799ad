"""The faults: what each does to a run, before it starts or while it trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faults import network
from faults.run import TARGET, DisturbedRun, Planner, plain_federation
from faults.strangers import HOSTILE, STRANGER, with_hostile, with_misconfigured
from faults.watched import CLIENTS, SimulatedRun
from fedsuite.deploy.federation import restart_supernode

CUT_SECONDS = 20.0
AHEAD_SECONDS = 2.0


def undisturbed(run: DisturbedRun) -> None:
    """Do nothing."""


def killed(run: DisturbedRun) -> None:
    """Kill a node while it trains; it never returns."""
    run.await_training(2)
    run.kill_node()


def late(run: DisturbedRun) -> None:
    """Start a node when the others have trained for two rounds."""
    run.await_round(2)
    run.start_node(run.target)


def slow(run: DisturbedRun) -> None:
    """Pause a node until its round has ended without it."""
    run.await_training(2)
    run.pause_node()
    run.await_round(2)
    run.resume_node()


def superlink(run: DisturbedRun) -> None:
    """Kill the SuperLink, restart it with its database, and resume the run."""
    run.await_round(2)
    run.restart_superlink()
    run.await_end()
    run.submit("resume", "run")


def restarted(run: DisturbedRun) -> None:
    """Kill a node while it trains, and restart it until the SuperLink accepts it."""
    run.await_training(2)
    run.kill_node()
    restart_supernode(run.federation, run.target)


def cut(run: DisturbedRun) -> None:
    """Cut the network between a node and the SuperLink for 20 s."""
    run.await_training(2)
    network.cut() if run.namespace else run.pause_node()
    time.sleep(CUT_SECONDS)
    network.mend() if run.namespace else run.resume_node()


def misconfigured(run: DisturbedRun) -> None:
    """Start the nodes some seconds after one that says it is the only one has answered."""
    run.await_line("1 node here, 0 more answering")
    time.sleep(AHEAD_SECONDS)
    for node in run.federation.nodes[:CLIENTS]:
        run.start_node(node)
    run.await_refusal("it has num-partitions = 1, the other nodes have num-partitions = 3")


def hostile(run: DisturbedRun) -> None:
    """Let a node describe 100,000 classes, the first of a name that no terminal should show."""
    run.await_refusal("it has 100,000 classes or categories ('[bold red]\ufffd\ufffd[31m\ufffd[/]'")


def worker(run: SimulatedRun) -> None:
    """Kill a Ray worker of a simulation, as the kernel does when memory runs out."""
    victim = run.find_workers()[0]
    run.await_round(1)
    victim.kill()


def beside(run: SimulatedRun) -> None:
    """Resume a simulation from another terminal while it trains."""
    workers = run.find_workers()
    run.await_round(1)
    for process in workers:
        process.suspend()
    run.resume_beside()
    for process in workers:
        process.resume()


@dataclass(frozen=True)
class Fault:
    """A fault: its row in the table, what it does, and what it needs.

    A ``simulated`` one is done to a run of Flower's simulation, the others to the federation that
    ``planner`` plans. Nodes of the numbers ``waiting`` are not started ahead of the run; ``within``
    has commands to start a node by.
    """

    title: str
    inject: Callable[[Any], None]
    waiting: Collection[int] = ()
    own_network: bool = False
    simulated: bool = False
    planner: Planner = plain_federation
    within: Mapping[int, Sequence[str]] = field(default_factory=dict)


FAULTS = {
    "none": Fault("nothing", undisturbed),
    "killed": Fault("a SuperNode killed while it trains", killed),
    "late": Fault("a SuperNode joins after two rounds", late, waiting=[TARGET]),
    "slow": Fault("a SuperNode slower than the round's time limit", slow),
    "superlink": Fault("the SuperLink killed and restarted with its database, resumed", superlink),
    "restarted": Fault("a SuperNode killed while it trains and restarted", restarted),
    "cut": Fault("the network to a SuperNode cut for 20 s", cut, own_network=True),
    "misconfigured": Fault(
        "one more SuperNode, first and alone, says it has the only partition",
        misconfigured,
        waiting=range(CLIENTS),
        planner=with_misconfigured,
    ),
    "hostile": Fault(
        "one more SuperNode describes 100,000 classes with hostile names",
        hostile,
        planner=with_hostile,
        within={STRANGER: HOSTILE},
    ),
    "worker": Fault("simulation: a Ray worker killed", worker, simulated=True),
    "beside": Fault("simulation: a resume beside the live run", beside, simulated=True),
}
