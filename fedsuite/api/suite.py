"""Run suites and sweeps; ``fedsuite suite`` and ``fedsuite run`` with several values call these."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsuite.api.run import IncompleteRun
from fedsuite.api.start import merge_settings, spell_keywords
from fedsuite.core.files import absolute_path, read_document
from fedsuite.core.installation import SUITES, find_file
from fedsuite.core.processes import interrupted_once
from fedsuite.core.settings import UserError, flatten, invalid, suggest
from fedsuite.core.value_lists import write_pair
from fedsuite.engines.table import DEFAULT_IN_SUITES, ENGINES
from fedsuite.records.folder import DEFAULT_RESULTS, RunFolder, SuiteFolder

if TYPE_CHECKING:
    from pandas import DataFrame

    from fedsuite.records.collection import Collection
    from fedsuite.suites.definition import Suite
    from fedsuite.suites.runner import Confirm, Where


class SuiteRuns:
    """The runs of a suite or a sweep, in its folder."""

    def __init__(self, path: Path, exit_status: int) -> None:
        self.path = path
        """The suite's folder; ``fedsuite.compare`` takes it."""
        self.exit_status = exit_status
        """0 if all runs are done, 1 if one failed, 3 if one lacks something of its clients."""

    @cached_property
    def runs(self) -> DataFrame:
        """A row per run: its name, its labels in the suite's table, its state, its summary."""
        from pandas import DataFrame

        runs = self._collection.runs
        first = [{"name": run.name, **run.labels, "state": str(run.state)} for run in runs]
        pairs = zip(first, runs, strict=True)
        return DataFrame([{**own, **run.summary, **own} for own, run in pairs])

    @cached_property
    def table(self) -> DataFrame:
        """A row per cell of the suite's table: mean and deviation over seeds, the paper's number.

        Shares are in per cent.
        """
        from pandas import DataFrame

        return DataFrame(list(self._cells()))

    def document(self) -> Any:
        """Return all of that as one JSON object, as ``fedsuite suite --json`` prints it."""
        runs = [
            {
                "name": run.name,
                "labels": dict(run.labels),
                "state": str(run.state),
                "note": run.note,
                "metrics": dict(run.summary),
            }
            for run in self._collection.runs
        ]
        about = {"name": self._collection.name, "command": self._collection.command}
        folder = {"folder": str(self.path), "exit_status": self.exit_status}
        return _finite({**about, **folder, "runs": runs, "table": list(self._cells())})

    @cached_property
    def _collection(self) -> Collection:
        from fedsuite.records.collection import open_collection

        return open_collection(str(self.path))

    def _cells(self) -> Iterator[dict[str, Any]]:
        from fedsuite.report.cells import cells
        from fedsuite.report.statistics import deviation

        collection = self._collection
        for metric in dict.fromkeys((collection.metric, *collection.also)):
            for cell in cells(collection, metric):
                yield {
                    **{collection.rows: cell.row, **cell.labels},
                    "metric": metric,
                    "seeds": len(cell.values),
                    "mean": cell.mean,
                    "std": deviation(cell.values) if cell.values else None,
                    "paper": cell.paper.value if cell.paper else None,
                    "paper_std": cell.paper.std if cell.paper else None,
                    "difference": cell.difference,
                }

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
    dry_run: bool = False,
    confirm: Confirm | None = None,
) -> SuiteRuns:
    """Run all experiments of a table or figure that are not done, and return them.

    ``name`` is a suite file, or one of ``fedsuite list suites``; the other arguments are options of
    ``fedsuite suite``, ``only`` as there ``LABEL=VALUE`` pairs. With ``dry_run`` the runs are only
    listed. ``confirm`` is called with the seconds that they are estimated to take, and that in
    words, and may raise. A mistake raises ``UserError``; if a run fails, or lacks something of its
    clients, this warns.
    """
    from fedsuite.suites.definition import SCALES, read_suite

    if scale not in SCALES:
        raise invalid("--scale", scale, suggest(scale, SCALES))
    _refuse_place(jobs, engine, ray_address, gpus)
    definition = read_suite(find_file(os.fspath(name), SUITES, "suite"), scale)
    where = _where(jobs, engine, ray_address, gpus)
    results = absolute_path(os.fspath(results_dir))
    options = {"where": where, "only": only, "results": results, "data_root": os.fspath(data_root)}
    return _execute(definition, options, progress, dry_run, confirm)


def sweep(
    algo: str | Sequence[str],
    *,
    settings: Mapping[str, Any] | None = None,
    files: Sequence[str | os.PathLike[str]] = (),
    name: str = "",
    jobs: int = 0,
    engine: str = DEFAULT_IN_SUITES,
    ray_address: str = "",
    gpus: float = 0.0,
    progress: bool = True,
    dry_run: bool = False,
    confirm: Confirm | None = None,
    **keywords: Any,
) -> SuiteRuns:
    """Run all combinations of the values given as lists that are not done, and return them.

    ``algo`` and settings are as in :func:`run`, each one value or a list of them; the runs are a
    suite's, in a folder called ``name`` or after the keys. Rows of its table are the algorithms, or
    else the values of the first key; columns those of the other keys but the seed. The other
    arguments are those of :func:`suite`, which this raises and warns as.
    """
    from fedsuite.suites.sweep import make_sweep

    _refuse_place(jobs, engine, ray_address, gpus)
    given = {"algo": algo, **flatten(settings or {}), **spell_keywords(keywords)} | {"algo": algo}
    given = {key: list(v) if isinstance(v, list | tuple | range) else v for key, v in given.items()}
    swept = {key: value for key, value in given.items() if isinstance(value, list)}
    fixed = merge_settings(files, {k: v for k, v in given.items() if k not in swept})
    for key in ("resume", "superlink"):
        if fixed.get(key):
            raise UserError(f"'{key}' has no effect on a sweep: leave it out.")
    name = name or str(fixed.get("run-name", ""))
    pairs = [write_pair(key, value) for key, value in given.items() if key != "algo"]
    words = ["run", write_pair("algo", given["algo"]).partition("=")[2], *pairs]
    words += [word for file in files for word in ("-f", os.fspath(file))]
    words += ["--name", name] if name else []
    definition = make_sweep(swept, fixed, [key for key in given if key != "algo"], name, words)
    results = absolute_path(str(fixed.get("results-dir", DEFAULT_RESULTS)))
    _refuse_other_folder(results / definition.name)
    data_root = str(fixed.get("data-root", ""))
    where = _where(jobs, engine, ray_address, gpus)
    options = {"where": where, "only": (), "results": results, "data_root": data_root}
    return _execute(definition, options, progress, dry_run, confirm)


def _refuse_place(jobs: int, engine: str, ray_address: str, gpus: float) -> None:
    """Refuse options that do not go together."""
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


def _where(jobs: int, engine: str, ray_address: str, gpus: float) -> Where:
    """Say where runs are to run; imports PyTorch, so after all that may be refused."""
    from fedsuite.suites.runner import Where

    return Where(jobs, engine, ray_address, gpus)


def _finite(value: Any) -> Any:
    """Replace numbers that JSON does not have by null."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refuse_other_folder(folder: Path) -> None:
    """Refuse the name of a run, or of a suite that has a file; a damaged manifest is rewritten."""
    command = ""
    with suppress(UserError):
        command = str(read_document(SuiteFolder(folder).manifest_file).get("command"))
    if RunFolder(folder).exists or command.startswith("fedsuite suite "):
        what = "a run" if RunFolder(folder).exists else "a suite"
        raise UserError(f"{folder} is the folder of {what}. Choose another --name for the sweep.")


def _execute(
    definition: Suite,
    options: dict[str, Any],
    progress: bool,
    dry_run: bool,
    confirm: Confirm | None,
) -> SuiteRuns:
    from fedsuite.records.collection import open_collection
    from fedsuite.suites import runner
    from fedsuite.terminal.console import make_console

    console = make_console(quiet=not progress)
    folder: Path = options["results"] / definition.name

    def show_results(folder: Path) -> None:
        from fedsuite.report.printed import print_results

        print_results(open_collection(str(folder)), console)

    with interrupted_once():
        if dry_run:
            runner.dry_run(definition, **options, console=console)
            return SuiteRuns(folder, 0)
        status = runner.run_suite(
            definition,
            **options,
            console=console,
            confirm=confirm,
            show_results=show_results if progress else None,
        )
    if status:
        message = f"Runs of the suite in {folder} failed or are incomplete: see its `runs`."
        warnings.warn(message, IncompleteRun, stacklevel=3)
    return SuiteRuns(folder, status)
