"""Which tests execute which line: from one run of each test file with coverage's contexts."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from mutants.forks import Forks, Job
from mutants.operators import Mutant

BUDGET_SECONDS = 20.0  # what the tests of one mutant usually take together, at most
COLLECTION_SECONDS = 0.3  # to import a test file, about
CACHE = ".mutants"


@dataclass
class TestMap:
    """What is known about the tests: their seconds, and the lines each executes."""

    __test__ = False

    seconds: dict[str, float] = field(default_factory=dict)
    by_line: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    by_module: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    importers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    readers: set[str] = field(default_factory=set)  # of sources, which they do not import
    failed: list[str] = field(default_factory=list)

    def add(self, report: dict[str, Any]) -> None:
        """Add what a test file did; tests that fail or are skipped as things are do not count."""
        self.failed += report["failed"]
        out = {*report["failed"], *report["skipped"]}
        passed = {test: s for test, s in report["seconds"].items() if test not in out}
        self.seconds |= passed
        for module, lines in report["lines"].items():
            self.importers[module] |= set(passed)
            for line, tests in lines.items():
                own = {test for test in tests if test in passed}
                self.by_line[module, int(line)] |= own
                self.by_module[module] |= own

    def forget(self, test: str) -> None:
        """Leave a test out from now on."""
        self.failed.append(test)
        sets = (*self.by_line.values(), *self.by_module.values(), *self.importers.values())
        for tests in (*sets, self.readers):
            tests.discard(test)

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Return the tests that may notice a mutant, in the order to try them, within the budget.

        A line of a function has the tests that execute it, or else its statement; then those of the
        module's own test file, which may do so in a process of their own. What is executed when a
        module is imported has all tests that use, read or import the module. First come the
        module's own test file and tests that use nothing else, then the quick ones; of a
        parametrised test a single case before the others.
        """
        tests = set(self.by_line.get((mutant.path, mutant.line), ()))
        if not tests:
            first, last = mutant.lines
            for line in range(first, last + 1):
                tests |= self.by_line.get((mutant.path, line), set())
        later: set[str] = set()
        if mutant.at_import:
            tests |= self.by_module.get(mutant.path, set()) | self.readers
            later = self.importers.get(mutant.path, set()) - tests
        else:
            others = self.importers.get(mutant.path, set()) - tests
            later = {test for test in others if _is_own(test, mutant.path)}
        return self._within_budget([*self._order(tests, mutant), *self._order(later, mutant)])

    def _order(self, tests: Iterable[str], mutant: Mutant) -> list[str]:
        cases: dict[str, int] = defaultdict(int)
        order = []
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            function = test.partition("[")[0]
            own = _is_own(test, mutant.path)
            order.append((cases[function] > 0, not own, self.seconds[test], test))
            cases[function] += 1
        return [test for *_, test in sorted(order)]

    def _within_budget(self, tests: Sequence[str]) -> list[str]:
        chosen, files, left = list[str](), set[str](), BUDGET_SECONDS
        for test in tests:
            file = test.partition("::")[0]
            cost = self.seconds[test] + (COLLECTION_SECONDS if file not in files else 0.0)
            if cost <= left or not chosen:
                left -= cost
                files.add(file)
                chosen.append(test)
        return chosen


def _is_own(test: str, path: str) -> bool:
    """Return whether a test is in a file named after the module, or after its algorithm."""
    name = PurePosixPath(test.partition("::")[0]).stem.removeprefix("test_")
    return name == PurePosixPath(path).stem


def trace(
    root: Path,
    forks: Forks,
    packages: Sequence[str],
    tests: Sequence[str],
    readers: Sequence[str] = (),
) -> TestMap:
    """Run the tests once, or those whose files or code changed since the last time."""
    files = sorted({path for pattern in tests for path in root.glob(pattern)})
    common = _digest(root, [root / "pyproject.toml", *_sources(root)])
    cache = root / CACHE
    cache.mkdir(exist_ok=True)
    keys = {
        file.relative_to(root).as_posix(): _digest(root, [file], common) + ".json" for file in files
    }
    for stale in cache.glob("*.json"):
        if stale.name not in keys.values():
            stale.unlink()
    jobs = deque(
        Job(name, [name], {}, cover=packages)
        for name, key in keys.items()
        if not (cache / key).exists()
    )
    for job, report in forks.run(jobs):
        report.setdefault("lines", {})
        (cache / keys[job.subject]).write_text(json.dumps(report))
    known = TestMap()
    for key in keys.values():
        known.add(json.loads((cache / key).read_text()))
    known.readers = {test for test in known.seconds if test.partition("::")[0] in readers}
    return known


def _sources(root: Path) -> list[Path]:
    """Return all sources but this tool's, and the test files, which count one by one."""
    own = Path(__file__).parent.name
    folders = (
        f for f in sorted(root.iterdir()) if f.is_dir() and f.name[0] != "." and f.name != own
    )
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [path for path in paths if not path.name.startswith("test_")]


def _digest(root: Path, paths: Iterable[Path], start: str = "") -> str:
    digest = hashlib.sha256(start.encode())
    for path in paths:
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:32]
