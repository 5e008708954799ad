"""Follow docs/deployment.md to the letter on loopback: each machine a folder and a Flower home."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from fedsuite.core.files import read_document, read_lines
from fedsuite.flower.commands import environment, free_ports, is_healthy, online_nodes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "deployment.md"
BLOCKS = re.findall(r'```sh title="([^"]+)"\n(.*?)```', PAGE.read_text(), re.DOTALL)
MACHINES = ("hub", "clinic-a", "clinic-b", "laptop")
SERVICES = ("flower-superlink", "flower-supernode")
SCP = """#!/bin/sh
# HOST:PATH is the folder of that machine; "-r" is the only option anybody gives.
place() {{ case "$1" in *:*) echo "{machines}/${{1%%.*}}/${{1#*:}}" ;; *) echo "$1" ;; esac; }}
[ "$1" = -r ] && shift
cp -r "$(place "$1")" "$(place "$2")"
"""


def commands(text: str) -> list[str]:
    """Split a block into commands; a backslash joins lines."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


class Machines:
    """Stand-ins for the guide's machines: a home each, commands with this machine's ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fleet, self.control, *self.runtime = free_ports(4)
        self.services: list[tuple[str, subprocess.Popen[bytes]]] = []
        tools = folder / "tools"
        tools.mkdir()
        (tools / "scp").write_text(SCP.format(machines=folder))
        (tools / "scp").chmod(0o755)
        for number, name in enumerate(MACHINES):
            (folder / name / "fedsuite").mkdir(parents=True)
            if name.startswith("clinic"):
                write_table(folder / name / "data" / "clinic.csv", number)

    def environment(self, name: str) -> dict[str, str]:
        home = self.folder / name
        usual = environment(home / ".flwr", HOME=str(home))
        return usual | {"PATH": f"{self.folder / 'tools'}{os.pathsep}{usual['PATH']}"}

    def translate(self, name: str, command: str) -> str:
        """Put this machine's names, ports and folders in place of the guide's."""
        home = self.folder / name
        if not command.startswith("scp"):
            command = command.replace("hub.example.org", "127.0.0.1")
        for theirs, mine in (
            (":9092", f":{self.fleet}"),
            ("0.0.0.0", "127.0.0.1"),
            (":8000", f":{self.control}"),
            ("--port 8000", f"--port {self.control}"),
            ('"/data/', f'"{home}/data/'),
            ("/var/lib/fedsuite", f"{home}/state"),
            ("num-rounds=20", "num-rounds=1"),
        ):
            command = command.replace(theirs, mine)
        if command.startswith("flower-supernode"):
            command += f" --port {self.runtime[MACHINES.index(name) - 1]}"
        return command

    def run(self, name: str, command: str) -> str:
        """Run one command of the guide to its end, or leave a service running."""
        command = self.translate(name, command)
        where: dict[str, Any] = {
            "cwd": self.folder / name / "fedsuite",
            "env": self.environment(name),
        }
        if command.startswith(SERVICES):
            self.serve(name, command, where)
            return ""
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=600, **where
        )
        assert done.returncode == 0, f"{name}: {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def serve(self, name: str, command: str, where: dict[str, Any]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                shlex.split(command), stdout=log, stderr=log, start_new_session=True, **where
            )
        self.services.append((name, process))
        ready = self.is_up if name == "hub" else lambda: "SuperNode ID" in self.log(name)
        deadline = time.monotonic() + 180
        while not ready():
            assert process.poll() is None and time.monotonic() < deadline, self.log(name)
            time.sleep(0.2)

    def is_up(self) -> bool:
        ca = self.folder / "hub" / "fedsuite" / "certs" / "ca.crt"
        return is_healthy(self.control, ca)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def interrupt(self) -> list[int | None]:
        """Press Ctrl-C in each terminal, the clinics' first; return how each service ended."""
        codes: list[int | None] = []
        for _, process in sorted(self.services, key=lambda service: service[0]):
            process.send_signal(signal.SIGINT)
            try:
                codes.append(process.wait(60))
            except subprocess.TimeoutExpired:
                codes.append(None)
        return codes

    def clean_up(self) -> None:
        for _, process in self.services:
            if process.poll() is None:
                for member in psutil.Process(process.pid).children(recursive=True):
                    member.kill()
                process.kill()
                process.wait()


def write_table(path: Path, seed: int) -> None:
    """Write a clinic's table: two numbers, a word, and a label that depends on them."""
    draw = np.random.default_rng(seed)
    ages, doses = draw.normal(50, 10, 80), draw.normal(2, 1, 80)
    lines = [
        f"{age:.2f},{dose:.3f},{'north' if age > 50 else 'south'},{'ill' if dose > 2 else 'well'}"
        for age, dose in zip(ages, doses, strict=True)
    ]
    path.parent.mkdir()
    path.write_text("\n".join(["age,dose,region,label", *lines, ""]))


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    made = Machines(tmp_path_factory.mktemp("machines"))
    yield made
    made.clean_up()


def test_every_machine_is_installed_by_make() -> None:
    (install,) = [commands(text) for name, text in BLOCKS if name == "every machine"]
    for command in install:
        if command.startswith("make"):
            command = f"{command} --dry-run PYTHON={sys.executable}"
        elif command == ". .venv/bin/activate":
            command = f". {Path(sys.executable).parent / 'activate'} && command -v fedsuite"
        done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.deploy
def test_the_guide_works_from_zero_to_results(machines: Machines) -> None:
    said: dict[str, str] = {}
    for name, text in BLOCKS:
        if name in MACHINES:
            for command in commands(text):
                said[command.split(" --")[0]] = machines.run(name, command)
    listed = said["flwr supernode list hub"]
    assert listed.count("online") == 2
    assert online_nodes("hub", machines.folder / "hub" / ".flwr")
    assert "round 1/1" in said[next(c for c in said if c.startswith("fedsuite run"))]
    results = machines.folder / "laptop" / "fedsuite" / "runs" / "first"
    summary = read_document(results / "summary.json")
    assert summary["status"] == "finished" and summary["num_clients"] == 2
    assert {row["client"] for row in read_lines(results / "clients.jsonl")} == {0, 1}
    assert "ill" in (results / "schema.json").read_text()
    assert machines.interrupt() == [0, 0, 0]


def test_every_block_of_commands_is_followed() -> None:
    known = {*MACHINES, "every machine"}
    assert PAGE.read_text().count("```sh") == len(BLOCKS)
    assert {name for name, _ in BLOCKS} == known
