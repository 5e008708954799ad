"""Runs all variants of a workload side by side, one round of one variant at a time.

Every variant is started, one after the other, and stays alive; then they take turns. Other load on
the machine thus affects all variants alike, and a variant's round can be compared with the
reference's round next to it.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import gate, suite_runs
from benchmarks.measure import Watched, processor_share
from benchmarks.report import LABELS, RoundTime, Trial

START = ("a", "b", "e", "d", "c")
FIRST_TURN = ("c", "d", "b", "a", "e")
ENGINES = {"d": "ray", "e": "inline"}
BASELINES = {"a": "one-process", "b": "two-processes"}
TIMEOUT_SECONDS = 1800.0
SETTLE_SECONDS, IDLE_SECONDS = 2.0, 5.0
LOG_LINES = 120  # a chain of Flower's tracebacks begins with the cause


class Player:
    """One variant: a command that does one round at a time, on request."""

    def __init__(
        self,
        variant: str,
        settings: Mapping[str, str],
        job: Path,
        folder: Path,
        variables: Mapping[str, str],
    ) -> None:
        self.variant, self.rounds = variant, int(settings["num-rounds"])
        self.run, self.output, self.log = folder / "run", folder / "rounds.json", folder / "log"
        self.gate = folder / "gate"
        self.gate.mkdir(parents=True)
        self.error = ""
        command = self._command(settings, job)
        self.watched = Watched(command, self.log, {**variables, gate.VARIABLE: str(self.gate)})

    def wait_ready(self) -> None:
        """Wait until the first round could start."""
        self._wait_arrival(1)

    def play(self, number: int) -> None:
        """Do one round; after the last one, wait for the end of the process."""
        gate.open_gate(self.gate, number)
        if number < self.rounds:
            self._wait_arrival(number + 1)
        elif not self.watched.wait_end(TIMEOUT_SECONDS) or self.watched.status != 0:
            self._fail()

    def trial(self) -> Trial:
        """Return what was measured."""
        rows = [] if self.error else self._rows()
        if not self.error and len(rows) != self.rounds:
            self._fail()
        return Trial(
            started=self.watched.started,
            ready=gate.arrived(self.gate, 1) or 0.0,
            ended=self.watched.ended,
            peak_bytes=self.watched.peak_bytes,
            rounds=[self._round_time(row) for row in rows],
            training=self._training(),
            error=self.error,
            machine_bytes=self.watched.machine.peak,
            drift_bytes=self.watched.machine.drift,
        )

    def _command(self, settings: Mapping[str, str], job: Path) -> list[str]:
        if self.variant in ENGINES:
            return suite_runs.command(ENGINES[self.variant], settings, self.run)
        module = ["benchmarks.plain_flower"]
        if self.variant in BASELINES:
            module = ["benchmarks.baseline", BASELINES[self.variant]]
        return [sys.executable, "-m", *module, str(job), str(self.output)]

    def _wait_arrival(self, number: int) -> None:
        def there() -> bool:
            return gate.arrived(self.gate, number) is not None

        if not self.watched.wait_for(there, TIMEOUT_SECONDS):
            self._fail()

    def _round_time(self, row: Mapping[str, Any]) -> RoundTime:
        number = row["round"]
        went, back = gate.left(self.gate, number), gate.arrived(self.gate, number + 1)
        return RoundTime(**row, went=went or 0.0, back=back)

    def _rows(self) -> list[dict[str, Any]]:
        if self.variant in ENGINES:
            return suite_runs.rounds(self.run)
        return list(json.loads(self.output.read_text())) if self.output.exists() else []

    def _training(self) -> list[suite_runs.Training]:
        if self.variant not in ENGINES or self.error:
            return []
        return suite_runs.training(self.run, suite_runs.NODES[ENGINES[self.variant]])

    def _fail(self) -> None:
        status, lines = self.watched.status, self.log.read_text(errors="replace").splitlines()
        said = "has not ended" if status is None else f"ended with status {status}"
        self.error = "\n".join([f"It {said}; its last lines:", *lines[-LOG_LINES:]])


def take_turns(
    variants: str,
    settings: Mapping[str, str],
    job: Path,
    folder: Path,
    variables: Mapping[str, str],
    say: Callable[[str], None],
) -> tuple[dict[str, Trial], float]:
    """Let the variants do their rounds in turn; return what each one took, and idle, all took."""
    players: dict[str, Player] = {}
    try:
        for variant in START:
            if variant in variants:
                say(f"starting {LABELS[variant]}")
                own = folder / variant
                player = players[variant] = Player(variant, settings, job, own, variables)
                player.wait_ready()
        idle = _play_all(players, int(settings["num-rounds"]), say)
        return {key: players[key].trial() for key in LABELS if key in players}, idle
    finally:
        for player in players.values():
            player.watched.end()
        for variant in players:
            shutil.rmtree(folder / variant, ignore_errors=True)


def _play_all(players: Mapping[str, Player], rounds: int, say: Callable[[str], None]) -> float:
    """Play all rounds; return the share of a core that all take together while they wait."""
    idle = 0.0
    for number in range(1, rounds + 1):
        if number == 2:
            time.sleep(SETTLE_SECONDS)
            trees = [player.watched.tree for player in players.values()]
            idle = processor_share(trees, IDLE_SECONDS)
        say(f"round {number} of {rounds}")
        for variant in turn_order(number):
            if variant in players and not players[variant].error:
                players[variant].play(number)
    return idle


def turn_order(number: int) -> Sequence[str]:
    """Return who goes when: there and back, ours always next to the reference."""
    return FIRST_TURN if number % 2 else FIRST_TURN[::-1]
