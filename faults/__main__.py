"""``make faults``: what goes wrong in a real federation, done on purpose to real processes.

Each fault has a federation of its own (SuperLink and SuperNodes over gRPC with TLS and keys), one
run on it, and a row in the table: how many rounds were completed, in how many of them the node in
question had no part, whether it was back in the last one, and the final accuracy beside that of a
run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import table
from fedsuite.core.files import read_document, read_lines
from fedsuite.deploy.certificates import make_certificates
from fedsuite.deploy.federation import (
    LOOPBACK,
    SUPERLINK,
    Federation,
    Node,
    await_nodes,
    plan,
    restart_supernode,
    start_superlink,
    start_supernode,
)
from fedsuite.deploy.keys import make_key, public_half, register
from fedsuite.deploy.processes import kill, stop
from fedsuite.flower.commands import environment, executable
from fedsuite.records.folder import RunFolder

ALGORITHM = "scaffold"
NODES = 3
ROUNDS = 6
VICTIM = NODES - 1
CUT_SECONDS = 20.0
TIME_LIMIT = 180.0
PATIENCE_SECONDS = 900.0
NAMESPACE, OUTSIDE, INSIDE = "fedsuite-node", "fedsuite-out", "fedsuite-in"
HOST_ADDRESS, NODE_ADDRESS = "10.213.7.1", "10.213.7.2"


@dataclass(frozen=True)
class Result:
    """What a disturbed run came to."""

    fault: str
    rounds: int
    missed: list[int]
    back: bool
    accuracy: float | None
    seconds: float
    said: str


class Stage:
    """A federation with a run on it, and hands to disturb both."""

    def __init__(self, federation: Federation, namespace: str = "") -> None:
        self.federation, self.namespace = federation, namespace
        self.run_folder = federation.folder / "runs" / "run"
        self.commands: list[subprocess.Popen[bytes]] = []

    def start_node(self, node: Node) -> None:
        """Start a SuperNode, the victim in its namespace if there is one."""
        inside = self.namespace and node.number == VICTIM
        within = ["ip", "netns", "exec", self.namespace] if inside else []
        start_supernode(self.federation, node, within=within)

    @property
    def victim(self) -> Node:
        """The node that is disturbed."""
        return self.federation.nodes[VICTIM]

    def submit(self, *words: str) -> None:
        """Start ``fedsuite run`` or ``resume``; it goes on beside us."""
        where = ["--superlink", self.federation.connection]
        with (self.federation.folder / "run.log").open("ab") as log:
            command = subprocess.Popen(
                [*executable("fedsuite"), *words, *where],
                cwd=self.federation.folder,
                env=environment(self.federation.home),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.commands.append(command)

    def rounds(self) -> list[dict[str, Any]]:
        """Return the rounds recorded so far, without the one before training."""
        return [row for row in read_lines(RunFolder(self.run_folder).history_file) if row["round"]]

    def await_round(self, number: int) -> None:
        """Wait until a round is recorded."""
        self._await(lambda: len(self.rounds()) >= number, f"round {number}")

    def await_training(self, number: int) -> None:
        """Wait until the victim has received its order for a round."""
        log = self.federation.log(self.victim.name)
        self._await(lambda: f"ROUND {number}]" in log.read_text(errors="replace"), "its training")

    def await_end(self) -> None:
        """Wait until the last command has ended."""
        self._await(lambda: self.commands[-1].poll() is not None, "the run's end")

    def kill_node(self) -> None:
        """End the victim as a power cut would."""
        process = self.federation.process(self.victim.name)
        assert process is not None
        kill(process)

    def pause_node(self, go_on: bool = False) -> None:
        """Stop the victim where it stands, or let it go on."""
        process = self.federation.process(self.victim.name)
        assert process is not None
        for member in process.family():
            member.send_signal(signal.SIGCONT if go_on else signal.SIGSTOP)

    def restart_superlink(self) -> None:
        """End the SuperLink as a power cut would, and start it with its database."""
        process = self.federation.process(SUPERLINK)
        assert process is not None
        kill(process)
        start_superlink(self.federation)
        await_nodes(self.federation, NODES)

    def close(self) -> None:
        """End all of it."""
        for command in self.commands:
            if command.poll() is None:
                command.kill()
                command.wait()
        with contextlib.suppress(Exception):
            self.pause_node(go_on=True)
        stop(*self.federation.processes())

    def _await(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            ended = self.commands and self.commands[-1].poll() is not None
            if (ended and what != "the run's end") or time.monotonic() > deadline:
                said = (self.federation.folder / "run.log").read_text(errors="replace")
                raise RuntimeError(f"waited in vain for {what}. The run said:\n{said[-3000:]}")
            time.sleep(0.2)


def undisturbed(stage: Stage) -> None:
    """Let it run."""


def killed(stage: Stage) -> None:
    """Kill a node while it trains; it never returns."""
    stage.await_training(2)
    stage.kill_node()


def late(stage: Stage) -> None:
    """Start a node when others have trained for two rounds."""
    stage.await_round(2)
    stage.start_node(stage.victim)


def slow(stage: Stage) -> None:
    """Hold a node until its round has gone on without it."""
    stage.await_training(2)
    stage.pause_node()
    stage.await_round(2)
    stage.pause_node(go_on=True)


def superlink(stage: Stage) -> None:
    """Kill the SuperLink; start it with its database, and go on with the run."""
    stage.await_round(2)
    stage.restart_superlink()
    stage.await_end()
    stage.submit("resume", "run")


def restarted(stage: Stage) -> None:
    """Kill a node while it trains and start it again until the SuperLink takes it back."""
    stage.await_training(2)
    stage.kill_node()
    restart_supernode(stage.federation, stage.victim)


def cut(stage: Stage) -> None:
    """Cut the network between a node and the SuperLink for 20 s."""
    stage.await_training(2)
    if stage.namespace:
        _ip("link", "set", OUTSIDE, "down")
    else:
        stage.pause_node()
    time.sleep(CUT_SECONDS)
    if stage.namespace:
        _ip("link", "set", OUTSIDE, "up")
    else:
        stage.pause_node(go_on=True)


FAULTS: dict[str, tuple[str, Callable[[Stage], None]]] = {
    "none": ("nothing", undisturbed),
    "killed": ("a SuperNode killed while it trains", killed),
    "late": ("a SuperNode joins after two rounds", late),
    "slow": ("a SuperNode slower than the round's time limit", slow),
    "superlink": ("the SuperLink killed and restarted with its database, resumed", superlink),
    "restarted": ("a SuperNode killed while it trains and restarted", restarted),
    "cut": ("the network to a SuperNode cut for 20 s", cut),
}


@contextlib.contextmanager
def stage_for(fault: str, folder: Path) -> Iterator[Stage]:
    """Set up a federation; the victim is not started yet if it is to be late."""
    with contextlib.ExitStack() as stack:
        namespace = stack.enter_context(network()) if fault == "cut" else ""
        host = HOST_ADDRESS if namespace else LOOPBACK
        federation = plan(folder, NODES, auth=True, fleet_host=host, workdir=folder)
        make_certificates(federation.certificates.folder, [host])
        stage = Stage(federation, namespace)
        stack.callback(stage.close)
        start_superlink(federation)
        for node in federation.nodes:
            make_key(federation.key(node.number))
            public = public_half(federation.key(node.number))
            register(public, federation.connection, federation.home)
        first = federation.nodes[:VICTIM] if fault == "late" else federation.nodes
        for node in first:
            stage.start_node(node)
        await_nodes(federation, len(first))
        yield stage


@contextlib.contextmanager
def network() -> Iterator[str]:
    """Give the victim a network of its own, tied to this machine by one cable; "" if that fails."""
    try:
        _ip("netns", "add", NAMESPACE)
    except (OSError, subprocess.CalledProcessError):
        print("network namespaces are not possible here; the node is held instead", flush=True)
        yield ""
        return
    try:
        _ip("link", "add", OUTSIDE, "type", "veth", "peer", "name", INSIDE, "netns", NAMESPACE)
        _ip("addr", "add", f"{HOST_ADDRESS}/30", "dev", OUTSIDE)
        _ip("link", "set", OUTSIDE, "up")
        for words in (
            ("addr", "add", f"{NODE_ADDRESS}/30", "dev", INSIDE),
            ("link", "set", INSIDE, "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", NAMESPACE, *words)
        yield NAMESPACE
    finally:
        _ip("netns", "del", NAMESPACE)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def disturb(fault: str, folder: Path, time_limit: float) -> Result:
    """Run one experiment and do one thing to it."""
    title, act = FAULTS[fault]
    started = time.monotonic()
    with stage_for(fault, folder) as stage:
        settings = [f"num-rounds={ROUNDS}", f"round-timeout={time_limit:.0f}", "seed=1"]
        stage.submit("run", ALGORITHM, *settings, "--name", "run")
        act(stage)
        stage.await_end()
        summary = read_document(RunFolder(stage.run_folder).summary_file)
        part = {
            row["round"]
            for row in read_lines(RunFolder(stage.run_folder).clients_file)
            if (row["phase"], row["client"], row["status"]) == ("train", VICTIM, "ok")
        }
        notes = [row["note"] for row in stage.rounds() if row.get("note")]
    return Result(
        title,
        int(summary.get("rounds", 0)),
        sorted(set(range(1, ROUNDS + 1)) - part),
        ROUNDS in part,
        summary.get("final_accuracy"),
        time.monotonic() - started,
        "; ".join(notes),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the faults and print the table."""
    parser = argparse.ArgumentParser(prog="python -m faults.__main__", description=__doc__)
    parser.add_argument("faults", nargs="*", help=f"some of {', '.join(FAULTS)} (default: all)")
    parser.add_argument("--time-limit", type=float, default=0.0, help="slow: seconds of a round")
    arguments = parser.parse_args(argv)
    chosen, limit = arguments.faults or list(FAULTS), arguments.time_limit
    if unknown := set(chosen) - set(FAULTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    results: list[Result] = []
    for fault in ["none", *(f for f in chosen if f != "none")]:
        with tempfile.TemporaryDirectory(prefix="fedsuite-faults-") as place:
            usual = results[0].seconds / ROUNDS if results else 0.0
            seconds = (limit or max(40.0, 2 * usual)) if fault == "slow" else TIME_LIMIT
            results.append(disturb(fault, Path(place), seconds))
        print(f"{results[-1]}", file=sys.stderr, flush=True)
    print(report(results))
    return 0


def report(results: Sequence[Result]) -> str:
    """Lay the results out as a table."""
    usual = results[0].accuracy
    rows = []
    for result in results:
        known = result.accuracy is not None and usual is not None
        gap = f"{100 * (result.accuracy - usual):+.1f}" if known else "-"  # type: ignore[operator]
        rows.append(
            [
                result.fault,
                f"{result.rounds} of {ROUNDS}",
                ", ".join(map(str, result.missed)) or "none",
                "yes" if result.back else "no",
                "-" if result.accuracy is None else f"{100 * result.accuracy:.1f}",
                gap,
                f"{result.seconds:.0f}",
            ]
        )
    heads = ("fault", "rounds", "rounds without it", "there in the last", "accuracy %", "points")
    return table((*heads, "seconds"), rows)


if __name__ == "__main__":
    sys.exit(main())
