"""One run, start to end, over any Grid: rounds, evaluation, record, checkpoints.

Every engine calls :func:`run`; they differ only in the Grid they hand over.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message
from flwr.serverapp import Grid
from torch import nn

from fedsuite import registry
from fedsuite.config import RUNTIME_KEYS, RunConfig, params_of
from fedsuite.core import seeds
from fedsuite.core.flat_model import FlatModel, best_device, to_numpy
from fedsuite.core.protocol import RESULTS_ARE_IN
from fedsuite.core.settings import UserError
from fedsuite.core.vector import Vector
from fedsuite.nodes.setup import RunSetup, set_up
from fedsuite.records.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fedsuite.records.folder import RunFolder, RunState, default_name
from fedsuite.records.provenance import provenance
from fedsuite.records.summary import rounds_to_target, smoothness, summarise
from fedsuite.records.writer import RunRecord
from fedsuite.training.tracking import check_tracking, open_tracker
from strategies.base import RoundRecord, RunInfo
from tasks.evaluation import evaluate, mean_probabilities
from tasks.models import build_model
from tasks.task import Task, open_task

log = logging.getLogger("fedsuite")
MAX_EMPTY_ROUNDS = 3


class RunFailed(Exception):
    """The run cannot continue; the message carries the client's traceback if there is one."""


def run(config: RunConfig, grid: Grid, engine: str) -> Path:
    """Train, record everything and return the run's folder."""
    if not config.run_name:
        config = dataclasses.replace(config, run_name=default_name(config))
    if config.resume:
        config = resumed_config(config)
    folder = RunFolder.of(config).path
    checkpoint = load_checkpoint(folder) if config.resume else None
    setup = set_up(config, grid, folder, checkpoint)
    config = setup.config
    module = _build(config, setup.task)
    record = _open_record(setup, engine, checkpoint)
    log.info("%s%s", RESULTS_ARE_IN, record.folder)
    try:
        loop = TrainingLoop(setup, module, record, grid, checkpoint)
        status = loop.train()
    except BaseException as error:
        status = RunState.FAILED if isinstance(error, Exception) else RunState.INTERRUPTED
        record.finish(summarise(config, record.history(), [], status, traceback.format_exc()))
        raise
    summary = summarise(loop.config, record.history(), loop.strategy.expelled, status)
    record.finish(summary | {"output_accuracy": loop.output_scores()})
    return record.folder


def check_feasible(config: RunConfig) -> tuple[Task, nn.Module]:
    """Open the data, divide it and build the model: what can be refused is refused here."""
    task = open_task(config.task)
    return task, _build(config, task)


def _build(config: RunConfig, task: Task) -> nn.Module:
    check_tracking(config.tracking)
    return build_model(config.model, task.shape, seeds.integer(config.seed, "model"))


def resumed_config(config: RunConfig) -> RunConfig:
    """Return the recorded settings of the run to resume; only where it runs may change."""
    folder = RunFolder.of(config)
    if not folder.exists:
        raise UserError(
            f"There is nothing to resume in {folder.path}: the run had not written its settings. "
            "Start it again without resume."
        )
    kept = {name: getattr(config, name) for name in RUNTIME_KEYS}
    return dataclasses.replace(folder.read_config(), **kept)


class TrainingLoop:
    """The state of a run in progress."""

    def __init__(
        self,
        setup: RunSetup,
        module: nn.Module,
        record: RunRecord,
        grid: Grid,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.config, self.task, self.nodes = setup.config, setup.task, setup.nodes
        self.record, self.grid = record, grid
        self.nodes.open_run(self.config, record.run_id, record.folder)
        config, task = self.config, self.task
        self.model = FlatModel(module, "cpu" if config.device == "cpu" else best_device())
        self.strategy = registry.find(config.algo).strategy(self._info(), params_of(config))
        self.strategy.hosts = self.nodes
        self.strategy.model = self.model.vector()
        self.strategy.buffers = self.model.buffer_vector()
        self.test_rows = _test_rows(config, task)
        self.round = 0
        self.empty_rounds = 0
        self.accuracies = [r["accuracy"] for r in record.history() if "accuracy" in r]
        self.fresh = checkpoint is None
        if checkpoint is not None:
            self.strategy.model, self.strategy.buffers = checkpoint.model, checkpoint.buffers
            self.strategy.load_state(checkpoint.strategy)
            self.strategy.checkpoint_round = self.round = checkpoint.round
        self.tracker = open_tracker(
            config.tracking, record.folder, -1 if self.fresh else self.round
        )

    def train(self) -> RunState:
        """Run the rounds that are left; return how it ended."""
        self.strategy.summary()
        started = time.perf_counter()
        self.nodes.meet(self.grid)
        if self.fresh:
            self._close_round(RoundRecord(), started)
        status = RunState.FINISHED
        while self.round < self.config.num_rounds:
            if self._target_reached():
                status = RunState.TARGET_REACHED
                break
            self.round += 1
            self._one_round()
        trained = [row for row in self.record.history() if row["round"] > 0]
        if trained and not any(row["clients"] for row in trained):
            raise RunFailed(f"no client gave a valid update in any round.\n{self._last_reason()}")
        if self.strategy.shares_model:
            self.record.save_model(self._named_tensors())
        return status

    def _info(self) -> RunInfo:
        """Tell the strategy of the run, as it is now."""
        config = self.config
        return RunInfo(
            num_clients=config.num_clients,
            client_sizes=self.nodes.client_sizes(),
            seed=config.seed,
            num_rounds=config.num_rounds,
            local_epochs=1 if config.local_steps else config.local_epochs,
            fraction_train=config.fraction_train,
            min_train_clients=config.min_train_clients,
            server_lr=config.server_lr,
            learning_rate=config.learning_rate,
            eval_every=config.eval_every,
            personal_eval=config.personal_eval == "on",
            plain_sgd=config.optimizer == "sgd" and not config.momentum,
            probe=self._probe if config.probe_per_class else None,
            shapes=self.model.shapes,
        )

    def _one_round(self) -> None:
        started = time.perf_counter()
        strategy = self.strategy
        self._welcome()
        instructions = strategy.configure_train(
            self.round, strategy.arrays(), ConfigRecord(), self.grid
        )
        strategy.aggregate_train(self.round, self._exchange(instructions))
        self._stop_if_hopeless()
        questions = list(
            strategy.configure_evaluate(self.round, strategy.arrays(), ConfigRecord(), self.grid)
        )
        if questions:
            strategy.aggregate_evaluate(self.round, self._exchange(questions))
        self._close_round(strategy.round_record, started)

    def _exchange(self, messages: Iterable[Message]) -> Iterable[Message]:
        return self.nodes.exchange(self.grid, list(messages), self.config.round_timeout)

    def _close_round(self, outcome: RoundRecord, started: float) -> None:
        """Evaluate, record, checkpoint."""
        row: dict[str, Any] = {"round": self.round, **self._global_score(), **outcome.scalars}
        if not len(self.test_rows) and self._clients_score_the_model():
            row |= {"accuracy": row["personal_accuracy"]} if "personal_accuracy" in row else {}
        if "accuracy" in row:
            self.accuracies.append(row["accuracy"])
            row["smoothness"] = smoothness(self.accuracies)
        row["wall_seconds"] = time.perf_counter() - started
        self.record.add_round(row, outcome.rows)
        self.tracker.add_round(row)
        every = self.config.checkpoint_every
        if every and (self.round % every == 0 or self.round == self.config.num_rounds):
            self.record.sync()
            save_checkpoint(
                self.record.folder,
                Checkpoint(
                    self.round,
                    self.strategy.model,
                    self.strategy.buffers,
                    self.strategy.state() | {"members": self._members()},
                ),
            )
            self.strategy.checkpoint_round = self.round
        elif not every:
            self.strategy.checkpoint_round = self.round
        log.info("%s", _describe(row, self.config.num_rounds))

    def _members(self) -> dict[str, int]:
        """Return the clients known by a name that have taken part."""
        known = self.nodes.identities.items()
        return {name: client for name, client in known if client < self.config.num_clients}

    def _global_score(self) -> dict[str, float]:
        due = self.round % self.config.eval_every == 0 or self.round == self.config.num_rounds
        if not due or not self.strategy.shares_model or not len(self.test_rows):
            return {}
        self.model.load(self.strategy.model, self.strategy.buffers)
        score = evaluate(self.model, self.task, self.test_rows)
        return {"accuracy": score.accuracy, "loss": score.loss}

    def _clients_score_the_model(self) -> bool:
        """Say whether clients' scores of themselves are scores of the one global model."""
        return self.strategy.shares_model and not registry.find(self.config.algo).client.personal

    def _welcome(self) -> None:
        """Wait until enough nodes are there; take in clients that came later."""
        count = self.nodes.prepare_round(self.grid, self.config, self.strategy.expelled)
        if count > self.config.num_clients:
            self.config = dataclasses.replace(self.config, num_clients=count)
            self.record.save_config(self.config)
            self.nodes.open_run(self.config, self.record.run_id, self.record.folder)
            self.strategy.grow(self._info())

    def _probe(self, weights: Vector, buffers: Vector) -> tuple[np.ndarray, float]:
        """Return a model's mean class probabilities and accuracy on the probe set."""
        self.model.load(weights, buffers)
        return mean_probabilities(self.model, self.task, self.task.split.probe)

    def output_scores(self) -> dict[str, float] | None:
        """Return the accuracy of each model the method may give as its result."""
        scores: dict[str, float] = {}
        if not len(self.test_rows):
            return None
        for name, vector in self.strategy.outputs().items():
            self.model.load(vector, self.strategy.buffers)
            scores[name] = evaluate(self.model, self.task, self.test_rows).accuracy
        return scores or None

    def _target_reached(self) -> bool:
        if not self.config.stop_at_target:
            return False
        return rounds_to_target(self.record.history(), self.config.target_accuracy) is not None

    def _stop_if_hopeless(self) -> None:
        """End a run in which too few clients answer round after round, with what they said."""
        least = self.config.min_train_clients
        enough = self.strategy.round_record.scalars.get("clients", 0) >= least
        self.empty_rounds = 0 if enough else self.empty_rounds + 1
        if self.empty_rounds >= MAX_EMPTY_ROUNDS:
            who = "no client" if least == 1 else f"fewer than min-train-clients = {least} clients"
            raise RunFailed(
                f"{who} gave a valid update in {MAX_EMPTY_ROUNDS} rounds in a row.\n"
                f"{self._last_reason()}"
            )

    def _last_reason(self) -> str:
        reasons = [row["reason"] for row in self.strategy.round_record.rows if "reason" in row]
        return f"The first of them said:\n{reasons[0]}" if reasons else ""

    def _named_tensors(self) -> dict[str, Any]:
        self.model.load(self.strategy.result(), self.strategy.buffers)
        return {name: to_numpy(t) for name, t in self.model.module.state_dict().items()}


def _open_record(setup: RunSetup, engine: str, checkpoint: Checkpoint | None) -> RunRecord:
    config, split = setup.config, setup.task.split.fingerprint
    if not config.resume:
        record = RunRecord.create(config, provenance(config, engine, split))
        setup.nodes.save(record.folder)
        return record
    folder = RunFolder.of(config)
    recorded = folder.read_provenance()["split-fingerprint"]
    if recorded != split:
        raise UserError(
            f"The run in {folder.path} has the split {recorded}, but the data here gives the "
            f"split {split}: the data or a library has changed. Start a new run."
        )
    return RunRecord.reopen(folder.path, checkpoint.round if checkpoint is not None else -1)


def _test_rows(config: RunConfig, task: Task) -> np.ndarray:
    rows = task.split.test
    if not config.eval_rows or config.eval_rows >= len(rows):
        return rows
    draw = seeds.generator(config.seed, "evaluation")
    return np.sort(draw.choice(rows, config.eval_rows, replace=False))


def _describe(row: dict[str, Any], rounds: int) -> str:
    parts = [f"round {row['round']}/{rounds}"]
    if row.get("accuracy") is not None:
        parts.append(f"accuracy {row['accuracy']:.4f}")
    if row.get("personal_accuracy") is not None:
        parts.append(f"personal accuracy {row['personal_accuracy']:.4f}")
    if "clients" in row:
        parts.append(
            f"{row['clients']} clients" + (f", {row['failed']} failed" * (row["failed"] > 0))
        )
    parts.append(f"{row['wall_seconds']:.2f} s")
    return "  ".join(parts)
