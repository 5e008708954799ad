"""Do accepted settings run, and does each of them do anything?

A run is made small and is a process of its own, forked from this one, with a time limit. Each way a
run may end is a sentence: no traceback, no hang. Then it is run again without one of its settings,
and its models, or its record of the clients, must differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import shlex
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsuite.cli.main import main
from fedsuite.config import RunConfig, all_defaults, parse, setting_groups
from fedsuite.core.needs import holds
from fedsuite.core.settings import UserError, spell
from fedsuite.core.value_lists import write_pair
from fuzz.draws import Case

SECONDS = 120.0
CRASHED = 1
ENDINGS = (0, CRASHED, 2, 3)
SMALL: dict[str, Any] = {"num-clients": 4, "num-rounds": 2, "model": "mlp", "local-steps": 2}
# Where a run is, which data it has, or a device that may not be here.
FIXED = ("dataset", "data-root", "server-data", "results-dir", "run-name", "resume", "device")
LARGEST = {
    "num-clients": 6,
    "num-rounds": 2,
    "local-epochs": 2,
    "local-steps": 4,
}
LARGEST_OWN = 4  # of an algorithm's own whole numbers, which may count epochs
# These do not change a model: they say what is measured, kept, sent or waited for.
MEASURING = frozenset(
    "algo algo-settings client-threads round-timeout checkpoint-every tracking eval-every "
    "eval-rows personal-eval target-accuracy target-metric stop-at-target min-train-clients "
    "fedbac.score-clients fedadw.send-weights feda4.trajectory".split()
)
# These change a model only if a number crosses a threshold, or a draw falls so, which in a run this
# small it may not; or they have a word for what the default means here.
MAY_NOT_MATTER = frozenset(
    "dropout stragglers straggler-min "
    "model fraction-train batch-size client-test-fraction freeloaders num-shards apple.fade "
    "feda4.tau-conc feda4.tau-sim fedadw.ala-tolerance fedadw.ala-max-epochs fedadw.ala-percent "
    "fedadw.ala-layers fedbac.alpha fedbac.floor fedbac.history fedbac.window fedbac.momentum-by "
    "fedfomo.models fedfomo.epsilon fedfomo.decay fedtgp.margin-cap foolsgold.kappa "
    "scaffold.control scaffold-tailored.control taco.detector taco.kappa taco.lambda "
    "taco.replay".split()
)
# Whose own settings are sorted so; those of other algorithms run, but need not change a model.
SORTED = frozenset(
    "apple fedacg fedadw fedamp feda4 fedavg fedbac feddual fedfomo fedprox fedprox-tailored "
    "fedtgp foolsgold pfedme scaffold scaffold-tailored stem taco".split()
)


@dataclass(frozen=True)
class Ending:
    """How a run ended: its exit status, what it printed, and a hash of its results."""

    status: int | None  # None: it did not end in time, or was killed
    output: str
    results: str = ""

    @property
    def failure(self) -> str:
        """What is wrong with it; empty if it ended well or with a sentence."""
        if self.status not in ENDINGS:
            return f"no end within {SECONDS:.0f} s, or killed: {self.output[-2000:]}"
        if "Traceback" in self.output or (self.status != 0 and "fedsuite: " not in self.output):
            return f"exit status {self.status} without a sentence: {self.output[-4000:]}"
        return ""


@dataclass(frozen=True)
class Job:
    """A small run of a case; ``without`` is the setting that is left out, if any."""

    case: Case
    settings: Mapping[str, Any]
    without: str = ""

    @property
    def words(self) -> list[str]:
        """The command line, after ``fedsuite``."""
        given = {k: v for k, v in self.settings.items() if k not in ("algo", self.without)}
        pairs = [write_pair(key, value) for key, value in given.items()]
        return ["run", str(self.settings["algo"]), *pairs, "--engine", "inline", "--name", "fuzz"]


def small_job(case: Case) -> Job | None:
    """Return a run of a case's settings that takes a second or two; None if there is none."""
    given = {key: value for key, value in case.values.items() if key not in FIXED}
    given = {key: _shrunk(key, value) for key, value in given.items()}
    small = {k: v for k, v in SMALL.items() if k not in given}
    if "local-epochs" in given:
        small.pop("local-steps", None)
    try:
        parse(small | given, idle="refuse")
    except UserError:
        return None
    return Job(case, small | given)


def effect_job(job: Job, config: RunConfig) -> Job | None:
    """Return the same run without one of its settings, which must matter; None if none must."""
    usual, flat = all_defaults(), config.flat()
    keys = [
        key
        for key in sorted(job.case.ordinary & job.settings.keys())
        if _must_matter(key, config) and flat[key] != usual[key] and _runs_without(key, job)
    ]
    if not keys:
        return None
    return Job(job.case, job.settings, random.Random(job.case.number).choice(keys))


def run_all(jobs: Sequence[Job], folder: Path, workers: int) -> Iterator[tuple[Job, Ending]]:
    """Run jobs, each in a process and a folder of its own; yield how they ended, as they do."""
    context = multiprocessing.get_context("fork")
    waiting = list(enumerate(jobs))
    running: dict[Any, tuple[Job, Path, float]] = {}
    while waiting or running:
        while waiting and len(running) < workers:
            number, job = waiting.pop(0)
            place = folder / f"{job.case.number}-{job.without or 'all'}-{number}"
            place.mkdir(parents=True)
            process = context.Process(target=_work, args=(job.words, place))
            process.start()
            running[process] = (job, place, time.monotonic() + SECONDS)
        for process, (job, place, deadline) in list(running.items()):
            if process.is_alive() and time.monotonic() < deadline:
                continue
            status = None if process.is_alive() else process.exitcode
            process.kill()
            process.join()
            del running[process]
            yield job, Ending(status, _read(place / "output"), _hash(place / "runs"))
        time.sleep(0.05)


def judge(pairs: Iterable[tuple[Job, Ending]]) -> Iterator[str]:
    """Yield a failure for every run that ends badly, and for every setting that does nothing."""
    whole: dict[int, Ending] = {}
    parts: list[tuple[Job, Ending]] = []
    for job, ending in pairs:
        if ending.failure:
            yield f"{command(job)}\n{ending.failure}"
        if job.without:
            parts.append((job, ending))
        else:
            whole[job.case.number] = ending
    for job, ending in parts:
        full = whole.get(job.case.number)
        if full and full.results and (full.status, full.results) == (ending.status, ending.results):
            value = spell(job.settings[job.without])
            yield f"{command(job)}\n{job.without}={value} changes nothing beside these settings"


def command(job: Job) -> str:
    """Return the command that repeats a run."""
    return shlex.join(["fedsuite", *job.words])


def preload() -> None:
    """Import what runs need, so that processes forked from this one need not."""
    import fedsuite.engines.inline
    import fedsuite.engines.start  # noqa: F401
    from tasks.task import open_task

    open_task(parse({"num-clients": 2}).task)


def _shrunk(key: str, value: Any) -> Any:
    largest = LARGEST_OWN if "." in key else LARGEST.get(key)
    shrinks = largest and isinstance(value, int) and not isinstance(value, bool)
    return min(value, largest) if shrinks else value


def _must_matter(key: str, config: RunConfig) -> bool:
    """Return whether a setting is one that changes models, and is not switched off twice."""
    owner = key.partition(".")[0] if "." in key else ""
    if key in MEASURING | MAY_NOT_MATTER or (owner and owner not in SORTED):
        return False
    group, prefix, flat = setting_groups()[owner], f"{owner}." if owner else "", config.flat()
    values = {name.removeprefix(prefix): spell(flat[name]) for name in group}
    return all(holds(need, values) for need in group[key].metadata["needs"])


def _runs_without(key: str, job: Job) -> bool:
    """Return whether the other settings are accepted, none of them needing this one."""
    try:
        parse({k: v for k, v in job.settings.items() if k != key}, idle="refuse")
    except UserError:
        return False
    return True


def _work(words: list[str], place: Path) -> None:
    """Run a command in a folder, as a process of its own."""
    os.chdir(place)
    with open("output", "w", errors="replace") as output:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                status = main(words)
            except Exception:
                traceback.print_exc()
                status = CRASHED
    sys.exit(status)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _hash(results: Path) -> str:
    """Return a hash of a run's models and its clients' rows but for times; empty without models."""
    files = sorted(results.glob("fuzz/model.safetensors")) + sorted(results.glob("fuzz/models/*"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    for line in _read(results / "fuzz" / "clients.jsonl").splitlines():
        row = {key: value for key, value in json.loads(line).items() if "seconds" not in key}
        digest.update(json.dumps(row).encode())
    return digest.hexdigest() if files else ""
