"""``make fuzz``: random settings and odd data, a function of the seed.

Every case must be refused with a sentence, or work: no traceback, no hang, no setting that is
accepted and does nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from fedsuite.config import parse
from fuzz.draws import draw_case
from fuzz.runs import Job, effect_job, judge, preload, run_all, small_job
from fuzz.settings import Checked, check

MAX_SHOWN = 3000


def main(argv: Sequence[str] | None = None) -> int:
    """Check settings, runs and datasets; print each failure with what repeats it."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all cases (default: 0)")
    parser.add_argument("--count", type=int, default=500, help="of settings (default: 500)")
    parser.add_argument("--runs", type=int, default=40, help="of them that run (default: 40)")
    parser.add_argument("--datasets", type=int, default=100, help="odd ones (default: 100)")
    parser.add_argument("--case", type=int, help="only the settings of this number, and their run")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="side by side")
    given = parser.parse_args(argv)
    started, failures = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="fedsuite-fuzz-") as folder:
        os.environ["FEDSUITE_CACHE"] = str(Path(folder) / "cache")
        numbers = range(given.count) if given.case is None else [given.case]
        checked = [check(draw_case(given.seed, number)) for number in numbers]
        for failure in settings_failures(checked, given.seed):
            print(failure, flush=True)
            failures += 1
        jobs = sample_jobs(checked, given.runs)
        preload()
        for failure in judge(run_all(jobs, Path(folder) / "runs", given.workers)):
            print(f"FAILURE {failure[:MAX_SHOWN]}\n", flush=True)
            failures += 1
        datasets = given.datasets if given.case is None else 0
        for failure in dataset_failures(given.seed, datasets, Path(folder) / "data"):
            print(f"FAILURE {failure}\n", flush=True)
            failures += 1
    accepted = sum(one.config is not None for one in checked)
    minutes = (time.monotonic() - started) / 60
    print(
        f"Seed {given.seed}: {len(checked)} settings ({accepted} accepted), {len(jobs)} runs, "
        f"{datasets} datasets, {failures} failures, {minutes:.1f} minutes."
    )
    return int(failures > 0)


def settings_failures(checked: Sequence[Checked], seed: int) -> Iterator[str]:
    """Yield what is wrong with settings, with the command that repeats it."""
    for one in checked:
        if one.failure:
            again = f"python -m fuzz --seed {seed} --case {one.case.number}"
            values = repr(one.case.values)[:MAX_SHOWN]
            yield f"FAILURE {again}\n{values}\n{one.failure[:MAX_SHOWN]}\n"


def sample_jobs(checked: Sequence[Checked], count: int) -> list[Job]:
    """Return runs of the first cases that were accepted, each also without one of its settings."""
    small = (small_job(one.case) for one in checked if one.config is not None)
    chosen = list(islice((job for job in small if job is not None), count))
    without = [effect_job(job, parse(job.settings)) for job in chosen]
    return chosen + [job for job in without if job is not None]


def dataset_failures(seed: int, count: int, folder: Path) -> list[str]:
    """Return what is wrong with odd datasets."""
    if not count:
        return []
    from fuzz import own_datasets

    folder.mkdir()
    return own_datasets.check(seed, count, folder)


if __name__ == "__main__":
    sys.exit(main())
