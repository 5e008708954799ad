"""How long runs will take, and how much memory: by finished runs, else by a step of the model.

An estimate says what it is based on. Of finished runs in the results folder, those with the same
settings but the seed come first, then those of the same algorithm, dataset and model, scaled by
their rounds, clients and local steps. Otherwise a step is measured, and what an algorithm computes
beside FedAvg's gradients is not counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import psutil
import torch
from torch import nn

from fedsuite import registry
from fedsuite.config import RUNTIME_KEYS, RunConfig
from fedsuite.core.files import read_document
from fedsuite.core.settings import kebab
from fedsuite.core.text import clean_line, counted
from fedsuite.core.transport import MEMORY_SHARE
from fedsuite.engines.choice import Cost, estimate_seconds, measure_cost
from fedsuite.engines.table import ENGINES
from fedsuite.records.folder import RunState, run_folders, subfolders
from fedsuite.records.provenance import META, RUN_ID
from fedsuite.records.reader import DAMAGE
from tasks.dataset_cache import is_local
from tasks.models import build_model
from tasks.task import Task, open_task

START_SECONDS, PARALLEL_START_SECONDS = 4.0, 12.0  # of a process, and of the nodes it starts
SAME_WORK = ("algo", "dataset", "model", "batch-size", "personal-eval")
# Of the model's size: the model, its gradient, the server's copies, the optimiser's memory.
VECTORS = 6
ACTIVATION_ROWS = 2


@dataclass(frozen=True)
class Estimate:
    """What a run takes, None where nothing is known, and what that is based on."""

    seconds: float | None
    basis: str
    memory: int | None = None

    def scaled(self, share: float) -> Estimate:
        """Return the estimate of a part of the run."""
        seconds = None if self.seconds is None else self.seconds * share
        return dataclasses.replace(self, seconds=seconds)


@dataclass(frozen=True)
class FinishedRun:
    """The settings of a run that is done, its work, and the seconds that its rounds took."""

    settings: Mapping[str, Any]
    work: tuple[str, float]
    seconds: float


class Estimator:
    """Estimates runs on an engine, by what is in a results folder; each model is measured once."""

    def __init__(self, results: Path, engine: str, nodes: int = 1) -> None:
        self._nodes = nodes
        self._finished = list(finished_runs(results, engine))
        self._start = PARALLEL_START_SECONDS if ENGINES[engine].parallel else START_SECONDS
        self._process = psutil.Process().memory_info().rss
        self._opened: dict[Any, tuple[Task, nn.Module] | str] = {}
        self._costs: dict[Any, Cost] = {}

    def estimate(self, config: RunConfig, memory: bool = False) -> Estimate:
        """Estimate a run; its memory if asked for, since that takes the model."""
        seconds, basis = self._by_finished_runs(config)
        if seconds is None:
            seconds, basis = self._by_a_step(config)
        seconds = None if seconds is None else seconds + self._start
        return Estimate(seconds, basis, self._memory(config) if memory else None)

    def _by_finished_runs(self, config: RunConfig) -> tuple[float | None, str]:
        settings = deciding(config.flat())
        twins = [run.seconds for run in self._finished if run.settings == settings]
        if twins:
            return mean(twins), f"{counted(len(twins), 'finished run')} of the same settings"
        unit, work = work_of(settings)
        alike = [
            run.seconds * work / run.work[1]
            for run in self._finished
            if run.work[0] == unit
            and all(run.settings.get(key) == settings[key] for key in SAME_WORK)
        ]
        if alike:
            what = f"{config.algo} on {config.dataset} with {config.model}"
            return mean(alike), f"{counted(len(alike), 'finished run')} of {what}, scaled"
        return None, ""

    def _by_a_step(self, config: RunConfig) -> tuple[float | None, str]:
        opened = self._open(config)
        if isinstance(opened, str):
            return None, opened
        task, module = opened
        data = (config.task.dataset, config.task.data_root, config.task.columns)
        key = (*data, config.model, config.batch_size)
        try:
            if key not in self._costs:
                self._costs[key] = measure_cost(module, task, config.batch_size)
        except Exception as error:
            return None, f"its model cannot be measured: {clean_line(str(error))}"
        seconds = estimate_seconds(config, task.split, self._costs[key])
        return seconds / self._nodes, "a measured step of the model"

    def _open(self, config: RunConfig) -> tuple[Task, nn.Module] | str:
        """Open a run's data and model, once for all seeds; or say why it cannot."""
        task = config.task
        key = (dataclasses.replace(task, seed=0), config.model)
        if key not in self._opened:
            try:
                here = is_local(task.dataset, task.data_root, task.columns)
                self._opened[key] = _build(config) if here else "its data are not here yet"
            except Exception as error:  # also whatever data and models from outside raise
                self._opened[key] = clean_line(str(error))
        return self._opened[key]

    def _memory(self, config: RunConfig) -> int | None:
        """Add up the process, the data, the vectors of a round and a batch's activations."""
        opened = self._open(config)
        if isinstance(opened, str):
            return None
        task, module = opened
        sampled = max(round(config.fraction_train * config.num_clients), config.min_train_clients)
        model = sum(p.numel() * p.element_size() for p in module.parameters())
        sent = sampled * len(registry.find(config.algo).client.sends) * model
        sent = min(sent, int(MEMORY_SHARE * psutil.virtual_memory().available))  # else on disk
        try:
            batch = activation_bytes(module, task) * config.batch_size
        except Exception:
            return None
        data = task.dataset.x.nbytes + task.dataset.y.nbytes
        return self._process + data + VECTORS * model + sent + batch


def finished_runs(results: Path, engine: str) -> Iterator[FinishedRun]:
    """Yield the runs that are done on an engine, in a folder and in the suites inside it."""
    for folder in (results, *subfolders(results)):
        for run in run_folders(folder):
            try:
                summary, config = read_document(run.summary_file), read_document(run.config_file)
                if summary["status"] == RunState.FINISHED and config[META]["engine"] == engine:
                    seconds = float(summary["wall_seconds"])
                    yield FinishedRun(deciding(config), work_of(config), seconds)
            except DAMAGE:
                continue


def deciding(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide how long a run takes."""
    others = {*map(kebab, RUNTIME_KEYS), "seed", META, RUN_ID}
    return {key: value for key, value in settings.items() if key not in others}


def _build(config: RunConfig) -> tuple[Task, nn.Module]:
    task = open_task(config.task)
    return task, build_model(config.model, task.shape, config.seed)


def work_of(settings: Mapping[str, Any]) -> tuple[str, float]:
    """Return in which unit a run's work is counted, and how much it is."""
    clients = settings["num-clients"]
    sampled = max(round(settings["fraction-train"] * clients), settings["min-train-clients"])
    rounds = settings["num-rounds"]
    if settings["local-steps"]:
        return "steps", rounds * sampled * settings["local-steps"]
    return "epochs", rounds * sampled / clients * settings["local-epochs"]


def activation_bytes(module: nn.Module, task: Task) -> int:
    """Return what a model keeps of a sample between its forward and its backward pass."""
    x, _ = task.rows(task.split.train[0][:ACTIVATION_ROWS])
    kept: dict[int, int] = {}
    own = {parameter.data_ptr() for parameter in module.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module.eval()(x)
    return sum(kept.values()) // max(len(x), 1)


def total_seconds(seconds: Iterable[float], width: int) -> float:
    """Return how long runs take, ``width`` at a time."""
    each = list(seconds)
    return max(sum(each) / width, max(each, default=0.0))


def total_memory(sizes: Iterable[int], width: int) -> int:
    """Return what the largest runs that may run at a time need together."""
    return sum(sorted(sizes, reverse=True)[:width])
