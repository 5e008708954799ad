"""Read runs, whatever state they are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsuite.core.client_ids import parse_clients
from fedsuite.core.files import LineReader, read_document
from fedsuite.core.protocol import LINE_MARK
from fedsuite.core.settings import UserError
from fedsuite.core.text import clean_line, counted
from fedsuite.metrics import FINAL_SCORES, LEAST_CPU_SHARE, Metric, find_metric
from fedsuite.records.checks import check_config, check_summary, is_client_row, is_number
from fedsuite.records.folder import RunFolder, RunState, all_runs
from fedsuite.records.history import LiveHistory, curve, last_round, score_curve
from fedsuite.records.provenance import META
from fedsuite.records.summary import missing_sentence

# The exit statuses of a run, beside 0: it failed; it is done, but lacks something of its clients.
FAILED, INCOMPLETE = 1, 3
DAMAGE = (UserError, OSError, ValueError, TypeError, LookupError)


@dataclass(frozen=True)
class Run:
    """One run's files, read once; ``clients`` is read when asked for, since it is large.

    ``note`` says more about the state; ``labels`` are what a table calls the run by; ``code`` is
    the fingerprint of the code that made it, which a suite's manifest has; ``damaged_rounds`` names
    the lines of the history that cannot be read.
    """

    folder: Path
    state: RunState
    note: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    damaged_rounds: str = ""
    _client_damage: list[str] = field(default_factory=list, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Its folder's name."""
        return self.folder.name

    @property
    def files(self) -> RunFolder:
        """Its folder, by its files."""
        return RunFolder(self.folder)

    @property
    def done(self) -> bool:
        """Whether it has ended without failing."""
        return self.state.done

    @property
    def meta(self) -> Mapping[str, Any]:
        """Command, engine, versions, machine and split."""
        return self.config.get(META, {})

    @property
    def seed(self) -> Any:
        """Its seed."""
        return self.labels.get("seed", self.config.get("seed"))

    @property
    def last_round(self) -> int:
        """The number of the last recorded round."""
        return last_round(self.history)

    @property
    def score(self) -> tuple[Metric, float] | None:
        """The final accuracy (of the global model, else the clients' own), or the last so far."""
        for metric in FINAL_SCORES:
            if is_number(self.summary.get(metric.name)):
                return metric, self.summary[metric.name]
        so_far = score_curve(self.history)
        return (so_far[0], so_far[1][-1][1]) if so_far else None

    @property
    def cpu_share(self) -> float | None:
        """Which share of a core clients had while they computed, if recorded."""
        share: Any = self.summary.get("cpu_share")
        return float(share) if is_number(share) else None

    @property
    def busy(self) -> bool:
        """Whether other work competed with its clients for the cores."""
        return self.cpu_share is not None and self.cpu_share < LEAST_CPU_SHARE

    @property
    def description(self) -> str:
        """State, rounds and score in a few words; of a damaged run, what is wrong with it."""
        if self.state is RunState.BROKEN:
            return f"{self.state}: {self.note}"
        parts = [str(self.state), f"round {self.last_round}"]
        if self.score is not None:
            metric, value = self.score
            parts.append(f"{metric.title} {metric.as_recorded(value)}")
        return ", ".join(filter(None, [*parts, self.missing]))

    @property
    def missing(self) -> str:
        """Which updates, scores and models of clients a run that is done lacks; "" if none."""
        return missing_sentence(self.summary) if self.done else ""

    @property
    def exit_status(self) -> int:
        """The status with which a command ends that ran this run, or waited for it."""
        if not self.done:
            return FAILED
        return INCOMPLETE if self.missing else 0

    @property
    def expulsions(self) -> str:
        """Who was expelled, and how many of them were set to be freeloaders; "" if nobody was."""
        expelled = [int(client) for client in self.summary.get("expelled") or ()]
        if not expelled:
            return ""
        total = int(self.config["num-clients"])
        told, honest = [], set(range(total))
        for key in ("freeloaders", "attackers"):
            bad = set(parse_clients(key, str(self.config.get(key, "")), total))
            honest -= bad
            told += [f"{len(bad & set(expelled))} of {len(bad)} {key}"] if bad else []
        told.append(f"{len(honest & set(expelled))} of {len(honest)} honest clients")
        return f"{', '.join(told)}: {', '.join(map(str, expelled))}"

    @property
    def class_names(self) -> list[str]:
        """The names of its classes, in the order of their numbers; empty if not recorded."""
        try:
            found = read_document(self.files.model_description_file)["labels"]["classes"]
            return [str(name) for name in found]
        except DAMAGE:
            return []

    def clients(self) -> list[dict[str, Any]]:
        """Read a line per client and round."""
        reader = LineReader(self.files.clients_file, is_client_row)
        try:
            rows = reader.new_lines()
        except UserError:
            self._client_damage[:] = [f"{reader.path.name} cannot be read"]
            return []
        self._client_damage[:] = [reader.damage]
        return rows

    def damage(self) -> str:
        """Say which lines of the record are damaged, and so left out; empty if none is."""
        if not self._client_damage:
            self.clients()
        found = filter(None, [self.damaged_rounds, *self._client_damage])
        return "; ".join(f"{lines} and left out" for lines in found)

    def curve(self, field: str) -> list[tuple[int, float]]:
        """Return a field of the history by round, where it was measured."""
        return curve(self.history, field)

    def value(self, metric: str) -> float | None:
        """Return a field of the summary in its metric's unit; ``a.b`` is the part b of a."""
        found: Any = self.summary
        for part in metric.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return find_metric(metric).in_unit(found) if is_number(found) else None


def read_run(folder: Path) -> Run:
    """Read one run's folder; the note of a damaged one says what is wrong with it."""
    return RunReader(folder).read()


def read_summary(files: RunFolder) -> dict[str, Any]:
    """Read a run's summary; empty if there is none, an error of ``DAMAGE`` if it is damaged."""
    summary = read_document(files.summary_file)
    check_summary(summary, files.summary_file.name)
    return summary


def list_runs(results: Path) -> dict[str, Run]:
    """Read the runs of a folder and of folders below, by name."""
    return {name: read_run(folder.path) for name, folder in all_runs(results).items()}


class RunReader:
    """Reads a run repeatedly; of its history, only what was appended since."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, RunFolder(folder)
        self._history = LiveHistory(self.files.history_file)

    def read(self) -> Run:
        """Return the run as it is now."""
        files = self.files
        try:
            if not files.exists:
                return self._without_config()
            config = read_document(files.config_file)
            check_config(config, files.config_file.name)
            summary = read_summary(files)
            history = self._rounds()
            state = files.state_with(summary)
        except DAMAGE as error:
            return self._broken(str(error))
        note = _note(files, state, config, summary, history)
        damaged = self._history.damage
        return Run(self.folder, state, note, config, summary, history, damaged_rounds=damaged)

    def _rounds(self) -> list[dict[str, Any]]:
        self._history.update()
        return list(self._history.rows)

    def _broken(self, note: str) -> Run:
        return Run(self.folder, RunState.BROKEN, note)

    def _without_config(self) -> Run:
        path, console = self.folder, self.files.console_file
        if not path.is_dir():
            return Run(path, RunState.NOT_STARTED, "its folder does not exist yet")
        if not any(path.iterdir()):
            return Run(path, RunState.EMPTY, "the folder is empty")
        if not console.exists():
            return self._broken(f"the folder has no {self.files.config_file.name}: it is no run")
        return self._refused_or_starting(console.read_text(errors="replace"))

    def _refused_or_starting(self, output: str) -> Run:
        """Distinguish a run that was refused before it wrote its settings from one that starts."""
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        failed = lines and (lines[-1].startswith(LINE_MARK) or "Traceback (most rec" in output)
        if failed:
            reason = clean_line(lines[-1].removeprefix(LINE_MARK))
            return Run(self.folder, RunState.FAILED, reason)
        return Run(self.folder, RunState.NOT_STARTED, "it has not written its settings yet")


def _note(
    files: RunFolder,
    state: RunState,
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
) -> str:
    if state.done:
        return missing_sentence(summary)
    progress = f"{last_round(history)} of {counted(config['num-rounds'], 'round')}"
    if state is RunState.RUNNING:
        return progress
    if state is RunState.NOT_FINISHED:
        return f"{progress}, no process is writing it; resume it with `{files.resume_command}`"
    reason = [line for line in str(summary.get("reason", "")).splitlines() if line.strip()]
    return f"{progress}; {clean_line(reason[-1]) if reason else 'no reason recorded'}"
