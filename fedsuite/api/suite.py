"""Run suites; ``fedsuite suite`` calls this."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedsuite.api.run import IncompleteRun
from fedsuite.core.files import absolute_path
from fedsuite.core.installation import SUITES, find_file
from fedsuite.core.processes import interrupted_once
from fedsuite.core.settings import UserError, invalid, suggest
from fedsuite.engines.table import DEFAULT_IN_SUITES, ENGINES
from fedsuite.records.folder import DEFAULT_RESULTS

if TYPE_CHECKING:
    from pandas import DataFrame


class SuiteRuns:
    """The runs of a suite, in the suite's folder."""

    def __init__(self, path: Path, exit_status: int) -> None:
        self.path = path
        """The suite's folder; ``fedsuite.compare`` takes it."""
        self.exit_status = exit_status
        """0 if all runs are done, 1 if one failed, 3 if one lacks something of its clients."""

    @cached_property
    def runs(self) -> DataFrame:
        """A row per run: its name, its labels in the suite's table, its state, its summary."""
        from pandas import DataFrame

        from fedsuite.records.collection import open_collection

        runs = open_collection(str(self.path)).runs
        first = [{"name": run.name, **run.labels, "state": str(run.state)} for run in runs]
        pairs = zip(first, runs, strict=True)
        return DataFrame([{**own, **run.summary, **own} for own, run in pairs])

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"<SuiteRuns of {self.path}>"


def suite(
    name: str | os.PathLike[str],
    *,
    scale: str = "paper",
    jobs: int = 0,
    only: Sequence[str] = (),
    results_dir: str | os.PathLike[str] = DEFAULT_RESULTS,
    data_root: str | os.PathLike[str] = "",
    engine: str = DEFAULT_IN_SUITES,
    ray_address: str = "",
    gpus: float = 0.0,
    progress: bool = True,
) -> SuiteRuns:
    """Run all experiments of a table or figure that are not done, and return them.

    ``name`` is a suite file, or one of ``fedsuite list suites``; the other arguments are options of
    ``fedsuite suite``, ``only`` as there ``LABEL=VALUE`` pairs. A mistake raises ``UserError``; if
    a run fails, or lacks something of its clients, this warns.
    """
    from fedsuite.suites.definition import SCALES, read_suite
    from fedsuite.suites.runner import Where, run_suite
    from fedsuite.terminal.console import make_console

    if scale not in SCALES:
        raise invalid("--scale", scale, suggest(scale, SCALES))
    if engine not in ENGINES:
        raise invalid("--engine", engine, suggest(engine, ENGINES))
    if not isinstance(jobs, int) or jobs < 0:
        raise invalid("--jobs", jobs, "it takes a whole number of at least 1.")
    if ray_address and engine != DEFAULT_IN_SUITES:
        raise UserError(
            f"--ray-address computes each run on one worker, with the engine {DEFAULT_IN_SUITES}. "
            "Leave --engine out."
        )
    if gpus and not ray_address:
        raise UserError("--gpus has no effect without --ray-address. Leave it out.")
    definition = read_suite(find_file(os.fspath(name), SUITES, "suite"), scale)
    results = absolute_path(os.fspath(results_dir))
    with interrupted_once():
        status = run_suite(
            definition,
            where=Where(jobs, engine, ray_address, gpus),
            only=only,
            results=results,
            data_root=os.fspath(data_root),
            console=make_console(quiet=not progress),
        )
    runs = SuiteRuns(results / definition.name, status)
    if status:
        message = f"Runs of the suite in {runs.path} failed or are incomplete: see its `runs`."
        warnings.warn(message, IncompleteRun, stacklevel=2)
    return runs
