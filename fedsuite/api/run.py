"""A run as an object: its record as pandas tables, and what the commands show of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsuite.core.settings import UserError
from fedsuite.records.bundle import unpacked_run
from fedsuite.records.folder import DEFAULT_RESULTS, RunState, find_run
from fedsuite.records.reader import INCOMPLETE, read_run
from fedsuite.records.reader import Run as Record

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor, nn

    from fedsuite.inference.model import TrainedModel
    from fedsuite.inference.predictions import Predictions


class IncompleteRun(UserWarning):
    """A run is done, but lacks updates, scores or models of clients."""


class Run:
    """A run by its record, which is read once: :func:`load` reads it anew.

    It is what :func:`run`, :func:`resume` and :func:`load` return, whatever state the run is in.
    """

    def __init__(self, path: Path, machine: str = "", lacks: bool = False) -> None:
        self.path = path
        """The run's folder."""
        self.machine = machine
        """The machine that the folder is on if that is not this one, for runs at a SuperLink."""
        self.was_done = False
        """Whether it was done before it was to be resumed."""
        self._lacks = lacks

    @cached_property
    def record(self) -> Record:
        """The run's files as the commands read them."""
        if self.machine:
            raise UserError(
                f"The results are in {self.path} on {self.machine}. Copy that folder here, and "
                "open it with fedsuite.load."
            )
        return read_run(self.path)

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def state(self) -> RunState:
        """The state it was in when it was read: ``finished``, ``failed``, ``running`` ..."""
        return self.record.state

    @property
    def config(self) -> Mapping[str, Any]:
        """Its resolved settings, spelt as on the command line, with provenance under ``meta``."""
        return self.record.config

    @property
    def summary(self) -> Mapping[str, Any]:
        """The content of ``summary.json``; empty before the run has ended."""
        return self.record.summary

    @property
    def missing(self) -> str:
        """Which updates, scores and models of clients a run that is done lacks; "" if none."""
        return self.record.missing

    @cached_property
    def history(self) -> DataFrame:
        """A row per round, with the columns of ``history.jsonl``; round 0 is the initial model."""
        from pandas import DataFrame

        return DataFrame(self.record.history)

    @cached_property
    def clients(self) -> DataFrame:
        """A row per client and round, with the columns of ``clients.jsonl``."""
        from pandas import DataFrame

        return DataFrame(self.record.clients())

    @property
    def exit_status(self) -> int:
        """The status that a command ends with that ran it: 0 done, 1 failed, 3 incomplete."""
        if self.machine:
            return INCOMPLETE if self._lacks else 0
        return self.record.exit_status

    def model(self) -> nn.Module:
        """Return the global model in evaluation mode; :meth:`preprocess` makes what it takes."""
        return self._trained.module

    def preprocess(self, inputs: Any, resize: bool = False) -> Tensor:
        """Return raw inputs as the global model takes them, exactly as in training.

        They are images (paths, bytes, PIL images, arrays of uint8), rows of a table (mappings, a
        mapping of columns, a DataFrame) or texts; one or several. Images of another size are
        refused unless ``resize`` is set.
        """
        return self._trained.preprocess(inputs, resize)

    def predict(self, inputs: Any, resize: bool = False) -> Predictions:
        """Return the class ``names`` of raw inputs and the classes' ``probabilities``."""
        return self._trained.predict(inputs, resize)

    def personal_model(self, client: int) -> TrainedModel:
        """Return a client's own model: its ``module``, ``preprocess``, ``predict``, ``classes``."""
        from fedsuite.inference.model import load_model

        return load_model(self.record.folder, client)

    @cached_property
    def _trained(self) -> TrainedModel:
        from fedsuite.inference.model import load_model

        return load_model(self.record.folder)

    def show(self) -> None:
        """Print its curve, its numbers and the command that repeats it, as ``fedsuite show``."""
        from fedsuite.terminal.console import make_console
        from fedsuite.terminal.show import show

        show(self.record, make_console())

    def document(self) -> dict[str, Any]:
        """Return its state, settings and summary as ``fedsuite show --json`` prints them."""
        record = self.record
        head = {"name": self.name, "folder": str(self.path), "state": str(self.state)}
        rest = {"note": record.note, "damage": record.damage(), "round": record.last_round}
        return {**head, **rest, "config": self.config, "summary": self.summary}

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        what = f"on {self.machine}" if self.machine else self.record.description
        return f"<Run {self.name}: {what}>"


def load(
    name: str | os.PathLike[str], *, results_dir: str | os.PathLike[str] = DEFAULT_RESULTS
) -> Run:
    """Open a run by its folder, by its name inside the results folder, or from a bundle.

    Enough of its name to tell it from others will do; ``latest`` is the run that began last;
    ``suite.tar.zst/RUN`` is a run of a bundle that holds several.
    """
    return Run(find_run(unpacked_run(os.fspath(name)), os.fspath(results_dir)))
