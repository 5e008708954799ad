"""``make mutants``: change the code in one place at a time, and count the changes tests notice.

The settings are in ``[tool.mutants]`` of ``pyproject.toml``.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tempfile
import time
import tomllib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants.forks import Forks, Job
from mutants.operators import Mutant
from mutants.sample import all_mutants, sample
from mutants.trace import TestMap, trace

HEADER = ("package", "mutants", "killed", "by time-out", "survived", "never executed", "killed %")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, and the test that decided it."""

    mutant: Mutant
    outcome: str  # killed, timeout, survived, not executed
    test: str = ""

    @property
    def is_killed(self) -> bool:
        """A test noticed: it failed, or did not end."""
        return self.outcome in ("killed", "timeout")


def main(argv: Sequence[str] | None = None) -> int:
    """Draw mutants, run their tests, print verdicts and the shares."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("paths", nargs="*", help="only modules whose path starts like this")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--count", type=int, default=200, help="of mutants (default: 200)")
    parser.add_argument("--threshold", type=float, default=85.0, help="in percent (default: 85)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="side by side")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="of the project")
    arguments = parser.parse_args(argv)
    root, started = arguments.root.resolve(), time.monotonic()
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mutants"]
    population = all_mutants(root, settings["packages"], arguments.paths)
    drawn = sample(population, arguments.count, arguments.seed)
    if not drawn:
        where = ", ".join(arguments.paths or settings["packages"])
        parser.error(f"there is nothing to change in {where}: give paths of modules as from {root}")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        forks = Forks(root, Path(folder), arguments.workers, settings["preload"])
        forks.refuse_imported(settings["packages"])
        places = (settings["packages"], settings["tests"], settings.get("readers", ()))
        tests = trace(root, forks, *places)
        traced = time.monotonic()
        verdicts = []
        for verdict in judge(root, forks, drawn, tests):
            print(describe(verdict, root), flush=True)
            verdicts.append(verdict)
    for test in tests.failed:
        print(f"fails without any mutant, and is left out: {test}")
    share = percent(verdicts)
    print("\nSurvivors:\n")
    for verdict in sorted(verdicts, key=lambda v: (v.mutant.path, v.mutant.line)):
        if not verdict.is_killed:
            print(describe(verdict, root))
    print(f"\nSeed {arguments.seed}: {len(drawn)} of {len(population)} mutants.\n")
    print(summary(verdicts, settings["packages"]))
    minutes = (traced - started) / 60, (time.monotonic() - traced) / 60
    print(f"\n{minutes[0]:.1f} minutes to map the tests, {minutes[1]:.1f} for the mutants.")
    print(f"{share:.1f} % killed, {arguments.threshold:g} % wanted.")
    return int(share < arguments.threshold)


def judge(root: Path, forks: Forks, drawn: Sequence[Mutant], tests: TestMap) -> Iterator[Verdict]:
    """Yield a verdict on each mutant, as they come.

    Tests run in another order here than by themselves, and some may not stand that. So a test that
    fails is run after the same others without the mutant; if it fails then too, it is forgotten,
    and the mutant is judged again.
    """
    jobs, passing = deque[Job](), set[tuple[str, ...]]()

    def ask(mutant: Mutant) -> Iterator[Verdict]:
        if chosen := tests.tests_for(mutant):
            jobs.append(mutation(root, mutant, chosen, tests))
        else:
            yield Verdict(mutant, "not executed")

    for mutant in drawn:
        yield from ask(mutant)
    for job, report in forks.run(jobs):
        match job.subject:
            case Verdict() as verdict if verdict.test in report["failed"]:
                tests.forget(verdict.test)
                yield from ask(verdict.mutant)
            case Verdict() as verdict:
                passing.add(tuple(job.tests))
                yield verdict
            case mutant:
                verdict, run = decide(mutant, report), tuple(report["seconds"])
                same = run[: run.index(verdict.test) + 1] if verdict.test in run else ()
                if verdict.outcome == "killed" and same and same not in passing:
                    jobs.appendleft(Job(verdict, same, tests.seconds))
                else:
                    yield verdict


def decide(mutant: Mutant, report: dict[str, Any]) -> Verdict:
    """Return the verdict that a fork's report gives."""
    if report.get("timeout"):
        return Verdict(mutant, "timeout", report["current"])
    if report["failed"]:
        return Verdict(mutant, "killed", report["failed"][0])
    return Verdict(mutant, "survived", f"{len(report['seconds'])} tests pass")


def mutation(root: Path, mutant: Mutant, chosen: Sequence[str], tests: TestMap) -> Job:
    """Return the job that writes a mutant, runs its tests and restores the module."""
    path = root / mutant.path
    source, status = path.read_text(encoding="utf-8"), path.stat()

    def prepare(tree: Path) -> None:
        (tree / mutant.path).write_text(mutant.apply(source), encoding="utf-8")

    def restore(tree: Path) -> None:
        (tree / mutant.path).write_text(source, encoding="utf-8")
        os.utime(tree / mutant.path, ns=(status.st_atime_ns, status.st_mtime_ns))

    return Job(mutant, chosen, tests.seconds, prepare, restore)


def describe(verdict: Verdict, root: Path) -> str:
    """Return a verdict with the mutant's changed lines."""
    mutant = verdict.mutant
    source = (root / mutant.path).read_text(encoding="utf-8")
    lines = difflib.unified_diff(source.splitlines(), mutant.apply(source).splitlines(), n=0)
    changed = [f"  {line}" for line in lines if line[:2] not in ("--", "++", "@@")]
    title = f"{verdict.outcome:12} {mutant.path}:{mutant.line} ({mutant.kind}) {verdict.test}"
    return "\n".join([title.rstrip(), *changed])


def percent(verdicts: Sequence[Verdict]) -> float:
    """Return the share of mutants that tests noticed; a package may have none in the sample."""
    killed = sum(verdict.is_killed for verdict in verdicts)
    return 100.0 * killed / len(verdicts) if verdicts else 100.0


def summary(verdicts: Sequence[Verdict], packages: Sequence[str]) -> str:
    """Return the counts per package as a Markdown table."""
    rows = []
    for name in (*packages, ""):
        own = [v for v in verdicts if v.mutant.path.startswith(name)]
        count = Counter(verdict.outcome for verdict in own)
        outcomes = ("killed", "timeout", "survived", "not executed")
        numbers = [str(count[outcome]) for outcome in outcomes]
        rows.append([name or "all", str(len(own)), *numbers, f"{percent(own):.1f}"])
    rule = ["---", *["---:"] * (len(HEADER) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(HEADER), rule, *rows])


if __name__ == "__main__":
    sys.exit(main())
