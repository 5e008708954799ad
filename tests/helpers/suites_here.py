"""Runs of suites and sweeps without processes of their own, and the table at their end."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

from fedsuite.cli.main import main
from fedsuite.suites import process_group
from fedsuite.suites.jobs import Job


def run_here(group: process_group.ProcessGroup, job: Job, output: object) -> SimpleNamespace:
    """Execute a run of a suite by the command that its process would have, without the process."""
    options = ["--engine", group.engine, "--nodes", str(group.nodes)]
    words = [*process_group.run_words(job), *options]
    with job.files.console_file.open("a") as file, redirect_stdout(file), redirect_stderr(file):
        status = main(words)
    return SimpleNamespace(poll=lambda: status)


def final_table(out: str) -> list[str]:
    """Return the lines of the results table that a suite printed."""
    lines = out.splitlines()
    start = lines.index("") + 1
    return lines[start : next(n for n, line in enumerate(lines[start:], start) if "done," in line)]
