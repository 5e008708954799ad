"""The time line of a run on Ray: which process is what, and how long each phase lasts."""

from __future__ import annotations

import pytest

from benchmarks.startup import PHASES, TimeLine, program_of, report


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/v/bin/python -P -m fedsuite.flower.guard flower-superlink --insecure", "SuperLink"),
        ("/v/bin/python /v/bin/flower-superexec --insecure", "SuperExec"),
        ("/v/bin/python /v/bin/flwr run /app fedsuite --run-config x", "flwr run"),
        ("/v/bin/python /v/bin/flwr-simulation --token 1", "simulation"),
        ("/ray/core/src/ray/gcs/gcs_server --log_dir=/x", "Ray's services"),
        ("/ray/raylet/raylet --python_worker_command=default_worker.py", "Ray's services"),
        ("/v/bin/python -u /ray/dashboard/agent.py --minimal", "Ray's services"),
        ("/v/bin/python /ray/_private/workers/default_worker.py --node-ip=1", "Ray's workers"),
        ("ray::ClientAppActor.run", "Ray's workers"),
        ("/v/bin/python -m fedsuite.cli run fedavg", ""),
        ("", ""),
    ],
)
def test_a_process_is_known_by_its_command(command: str, program: str) -> None:
    assert program_of(command.split()) == program


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("flower-superexe", "SuperExec"),
        ("flwr-simulation", "simulation"),
        ("fedsuite-forks", "forks' server"),
        ("python", "SuperLink"),
    ],
)
def test_a_fork_is_known_by_its_name(name: str, program: str) -> None:
    service = "/v/bin/python -P -m fedsuite.flower.guard flower-superlink --insecure"
    assert program_of(service.split(), name) == program


def test_a_phase_lasts_until_the_next_event_and_medians_are_reported() -> None:
    def line(scale: float) -> TimeLine:
        times = {event: (number + 1) * scale for number, event in enumerate(PHASES)}
        return TimeLine(times, {"SuperLink": scale})

    assert line(2.0).phases() == dict.fromkeys(PHASES, 2.0)
    rows = report({"before": [line(9.0)], "after": [line(1.0), line(5.0), line(2.0)]}).splitlines()
    total = f"{9.0 * len(PHASES):.1f}", f"{2.0 * len(PHASES):.1f}"
    assert any([c.strip() for c in row.split("|")][1:4] == ["total", *total] for row in rows)
    assert any(
        [c.strip() for c in row.split("|")][1:4] == ["SuperLink", "9.0", "2.0"] for row in rows
    )
