"""A run on a federation of real processes, and the means to disturb it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from faults.network import HOST_ADDRESS, namespace
from faults.watched import CLIENTS, WatchedRun
from fedsuite.core.processes import Process, kill, stop
from fedsuite.deploy.certificates import make_certificates
from fedsuite.deploy.federation import (
    LOOPBACK,
    SUPERLINK,
    Federation,
    SuperNode,
    await_nodes,
    plan,
    start_superlink,
    start_supernode,
)
from fedsuite.deploy.keys import make_key, public_half, register

NODES = CLIENTS
TARGET = NODES - 1
Planner = Callable[..., Federation]


class DisturbedRun(WatchedRun):
    """A federation with a run on it. The node of number ``TARGET`` is the one disturbed.

    ``namespace`` is the network namespace of that node; "" if it has none. ``within`` are commands
    to start nodes by.
    """

    def __init__(
        self,
        federation: Federation,
        namespace: str = "",
        within: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        options = ["--superlink", federation.connection]
        super().__init__(federation.folder, options, federation.home)
        self.federation, self.namespace = federation, namespace
        self.within = dict(within or {})
        if namespace:
            self.within[TARGET] = ["ip", "netns", "exec", namespace]

    @property
    def target(self) -> SuperNode:
        """The node that is disturbed."""
        return self.federation.nodes[TARGET]

    def start_node(self, node: SuperNode) -> None:
        """Start a SuperNode, the target in its namespace if it has one."""
        start_supernode(self.federation, node, within=self.within.get(node.number, ()))

    def await_training(self, number: int) -> None:
        """Wait until the target has received its message for a round."""
        log = self.federation.log(self.target.name)
        received = f"ROUND {number}]"
        self.wait_until(lambda: received in log.read_text(errors="replace"), f"training {number}")

    def await_refusal(self, sentence: str) -> None:
        """Wait for the first round; fail unless it notes that a node was refused, and why."""
        self.await_round(1)
        note = str(self.rounds()[0].get("note", ""))
        if sentence not in note:
            raise RuntimeError(f"no node was refused because {sentence}: {note}")

    def kill_node(self) -> None:
        """End the target as a power cut would."""
        kill(self._process(self.target.name))

    def pause_node(self) -> None:
        """Pause all processes of the target."""
        self._signal_node(signal.SIGSTOP)

    def resume_node(self) -> None:
        """Let the paused target continue."""
        self._signal_node(signal.SIGCONT)

    def restart_superlink(self) -> None:
        """End the SuperLink as a power cut would, and start it with its database."""
        kill(self._process(SUPERLINK))
        start_superlink(self.federation)
        await_nodes(self.federation, NODES)

    def close(self) -> None:
        """End all processes."""
        super().close()
        with contextlib.suppress(LookupError):
            self.resume_node()
        stop(*self.federation.processes())

    def _process(self, name: str) -> Process:
        process = self.federation.process(name)
        if process is None:
            raise LookupError(f"{name} was never started")
        return process

    def _signal_node(self, number: signal.Signals) -> None:
        for member in self._process(self.target.name).family():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                member.send_signal(number)


def plain_federation(folder: Path, seed: int, **options: Any) -> Federation:
    """Plan a federation with a partition per node."""
    return plan(folder, NODES, **options)


@contextlib.contextmanager
def disturbed_run(
    folder: Path,
    seed: int,
    *,
    waiting: Collection[int] = (),
    own_network: bool = False,
    planner: Planner = plain_federation,
    within: Mapping[int, Sequence[str]] | None = None,
) -> Iterator[DisturbedRun]:
    """Set up a federation, some nodes not started yet, its target in a network of its own."""
    with contextlib.ExitStack() as stack:
        inside = stack.enter_context(namespace()) if own_network else ""
        host = HOST_ADDRESS if inside else LOOPBACK
        federation = planner(folder, seed, auth=True, fleet_host=host, workdir=folder)
        make_certificates(federation.certificates.folder, [host])
        run = DisturbedRun(federation, inside, within)
        stack.callback(run.close)
        start_superlink(federation)
        for node in federation.nodes:
            make_key(federation.key(node.number))
            public = public_half(federation.key(node.number))
            register(public, federation.connection, federation.home)
        nodes = [node for node in federation.nodes if node.number not in waiting]
        for node in nodes:
            run.start_node(node)
        await_nodes(federation, len(nodes), federation.processes())
        yield run
