"""One run, start to end, over any Grid: rounds, evaluation, record, checkpoints.

Every engine calls :func:`run`; they differ only in the Grid they hand over.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Message
from flwr.serverapp import Grid
from safetensors.numpy import save
from torch import nn

from clients.state import list_states
from fedsuite import registry
from fedsuite.config import RunConfig, params_of
from fedsuite.core import seeds
from fedsuite.core.compression import Compression
from fedsuite.core.files import CANNOT_WRITE, write_atomically, write_problem
from fedsuite.core.flat_model import FlatModel, best_device
from fedsuite.core.protocol import RESULTS_ARE_IN, SAVE_MODEL
from fedsuite.core.settings import RunFailed, UserError
from fedsuite.core.vector import layers
from fedsuite.inference.description import ModelDescription
from fedsuite.nodes.contract import IDENTITIES, STATE_ROUNDS
from fedsuite.nodes.setup import RunSetup, set_up
from fedsuite.records.checkpoint import Checkpoint, save_checkpoint
from fedsuite.records.folder import DIVERGED, RunFolder, RunState, default_name
from fedsuite.records.history import describe_round
from fedsuite.records.provenance import provenance
from fedsuite.records.summary import rounds_to_target, smoothness, summarise
from fedsuite.records.writer import RunRecord
from fedsuite.training.resume import check_split, find_checkpoint, restore, resumed_config
from fedsuite.training.server_evaluation import ServerEvaluation
from fedsuite.training.tracking import Trackers, check_trackers
from strategies.base import RoundRecord, RunInfo
from strategies.replies import is_divergence
from strategies.round import POOLED, sample_size
from tasks.models import build_model
from tasks.task import Task, open_task

log = logging.getLogger("fedsuite")
MAX_EMPTY_ROUNDS = 3


def run(config: RunConfig, grid: Grid, engine: str) -> Path:
    """Train, record everything and return the run's folder."""
    if not config.run_name:
        config = dataclasses.replace(config, run_name=default_name(config))
    folder = RunFolder.of(config)
    held: RunRecord | None = None
    try:
        held = RunRecord.hold(folder.path) if config.resume else None
        config = resumed_config(config) if held else config
        checkpoint = find_checkpoint(held, config) if held else None
        setup = set_up(config, grid, folder.path, checkpoint)
        module = _build(setup.config, setup.task)
        record = _open_record(setup, engine, held, checkpoint)
    except BaseException as error:
        if held:
            held.close()
        if problem := write_problem(error):
            raise RunFailed(f"{problem}.") from error
        raise
    log.info("%s%s", RESULTS_ARE_IN, folder.path)
    loop: TrainingLoop | None = None
    try:
        loop = TrainingLoop(setup, module, record, grid, checkpoint)
        with setup.nodes.sharing_vectors(record.folder):
            status = loop.train()
        summary = summarise(loop.config, record.history(), loop.strategy.expelled, status)
        others = loop.other_output_accuracy()
        models = {"saved_models": loop.saved_models, "unsaved_models": loop.unsaved_models}
        summary |= {"other_output_accuracy": others} | models
        loop.trackers.finish(summary)
        record.finish(summary)
    except BaseException as error:
        status, reason = _ending(error, folder)
        expelled = loop.strategy.expelled if loop else set()
        config = loop.config if loop else setup.config
        summary = summarise(config, record.history(), expelled, status, reason)
        _finish(record, summary)
        if loop:
            loop.trackers.finish(summary)
        if write_problem(error):
            raise RunFailed(reason) from error
        raise
    return folder.path


def _ending(error: BaseException, folder: RunFolder) -> tuple[RunState, str]:
    """Return how a run ended that an error has ended, and why."""
    if not isinstance(error, Exception):
        return RunState.INTERRUPTED, f"interrupted; resume it with `{folder.resume_command}`"
    if unwritten := write_problem(error):
        return RunState.FAILED, f"{unwritten}, then resume the run."
    known = isinstance(error, RunFailed | UserError)
    return RunState.FAILED, str(error) if known else traceback.format_exc()


def _finish(record: RunRecord, summary: Mapping[str, Any]) -> None:
    """Write the summary of a run that did not end well, unless there is no space for it either."""
    if record.files.state.done:  # interrupted as it ended
        return record.close()
    try:
        record.finish(summary)
    except OSError as error:
        log.error("%s", write_problem(error) or error)
        record.close()


def check_feasible(config: RunConfig) -> tuple[Task, nn.Module]:
    """Open the data, divide it and build the model, to refuse what cannot work before a start."""
    task = open_task(config.task)
    return task, _build(config, task)


def _build(config: RunConfig, task: Task) -> nn.Module:
    check_trackers(config)
    if config.target_metric.endswith("auc") and task.shape.num_classes != 2:
        raise UserError(
            f"target-metric={config.target_metric} needs two classes; '{config.dataset}' has "
            f"{task.shape.num_classes}. macro-f1 and balanced-accuracy are for any number."
        )
    module = build_model(config.model, task.shape, seeds.integer(config.seed, "model"))
    has_statistics = any(buffer.is_floating_point() for buffer in module.buffers())
    strategy, params = registry.find(config.algo).strategy, params_of(config)
    sampled = sample_size(config.num_clients, config.fraction_train, config.min_train_clients)
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    problem = strategy.misfit(params, has_statistics, config.plain_steps)
    problem = problem or strategy.shortage(params, sampled, len(layers(shapes)))
    if problem:
        raise UserError(problem)
    return module


def _open_record(
    setup: RunSetup, engine: str, held: RunRecord | None, checkpoint: Checkpoint | None
) -> RunRecord:
    config, split = setup.config, setup.task.split.fingerprint
    if held is None:
        record = RunRecord.create(config, provenance(config, engine, split))
    else:
        record = held
        check_split(record.files, split)
        record.rewind(checkpoint.round if checkpoint is not None else -1)
    try:
        setup.nodes.save(record.folder)
    except BaseException:
        record.close()
        raise
    return record


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
        self.config, self.nodes = setup.config, setup.nodes
        self.dataset = setup.task.dataset
        self.num_classes = setup.task.shape.num_classes
        self.record, self.grid = record, grid
        self.nodes.open_run(self.config, record.run_id, record.folder)
        config = self.config
        self.model = FlatModel(module, "cpu" if config.device == "cpu" else best_device())
        self.evaluation = ServerEvaluation(self.model, setup.task, config)
        self.algorithm = registry.find(config.algo)
        self.strategy = self.algorithm.strategy(self._info(), params_of(config))
        self.strategy.hosts = self.nodes
        self.strategy.model = self.model.vector()
        self.strategy.buffers = self.model.buffer_vector()
        self.round = 0
        self.empty_rounds = 0
        self.saved_models: int | None = None
        self.unsaved_models: int | None = None
        self.accuracies = [r["accuracy"] for r in record.history() if "accuracy" in r]
        self.is_new = checkpoint is None
        if checkpoint is not None:
            restore(self.strategy, checkpoint, record.files)
            self.round = checkpoint.round
        self.trackers = Trackers(config, record, -1 if self.is_new else self.round)

    def train(self) -> RunState:
        """Run the rounds that are left; return how it ended."""
        self.strategy.summary()
        started = time.perf_counter()
        self.nodes.meet(self.grid)
        if self.is_new:
            self._close_round(RoundRecord(), started)
        status = RunState.FINISHED
        while self.round < self.config.num_rounds:
            if self._target_reached():
                status = RunState.TARGET_REACHED
                break
            self.round += 1
            self._one_round()
        ModelDescription.of(self.config, self.dataset).write(self.record.files)
        if self.strategy.shares_model:
            self.model.load(self.strategy.result(), self.strategy.buffers)
            self.record.save_model(self.model.named_tensors())
        for name, arrays in self.strategy.kept_files().items():
            write_atomically(self.record.folder / f"{name}.safetensors", save(arrays))
        if self.algorithm.client.personal:
            self._save_client_models()
        return status

    def other_output_accuracy(self) -> dict[str, float] | None:
        """Return the accuracy of each model that the method could have saved and did not."""
        if not self.evaluation.has_test_rows:
            return None
        outputs = self.strategy.other_outputs()
        return self.evaluation.accuracies(outputs, self.strategy.buffers) or None

    def _one_round(self) -> None:
        started = time.perf_counter()
        strategy = self.strategy
        self._meet_new_clients()
        instructions = strategy.configure_train(
            self.round, strategy.arrays(), ConfigRecord(), self.grid
        )
        strategy.aggregate_train(self.round, self._exchange(instructions))
        self._fail_if_unwritten()
        self._fail_after_empty_rounds()
        questions = list(
            strategy.configure_evaluate(self.round, strategy.arrays(), ConfigRecord(), self.grid)
        )
        if questions:
            strategy.aggregate_evaluate(self.round, self._exchange(questions))
            self._fail_if_unwritten()
        self._close_round(strategy.round_record, started)

    def _save_client_models(self) -> None:
        """Ask every client that is here to save the model it is scored with."""
        strategy, request = self.strategy, ConfigRecord({SAVE_MODEL: True})
        questions = strategy.configure_evaluate(self.round, strategy.arrays(), request, self.grid)
        asked, known = len(strategy.present()), len(strategy.round_record.rows)
        self.saved_models = len(strategy.collect_saved(self._exchange(questions)))
        self.unsaved_models = asked - self.saved_models
        self._fail_if_unwritten()
        self.record.add_client_rows(self.round, strategy.round_record.rows[known:])

    def _meet_new_clients(self) -> None:
        """Wait until enough nodes are there; take in clients that came later."""
        count = self.nodes.prepare_round(self.grid, self.config, self.strategy.expelled)
        if count > self.config.num_clients:
            self.config = dataclasses.replace(self.config, num_clients=count)
            self.record.save_config(self.config)
            self.nodes.open_run(self.config, self.record.run_id, self.record.folder)
            self.strategy.grow(self._info())

    def _exchange(self, messages: Iterable[Message]) -> Iterable[Message]:
        return self.nodes.exchange(self.grid, list(messages), self.config.round_timeout)

    def _fail_if_unwritten(self) -> None:
        """End a simulation on whose disk a client could not write: a resume repeats the round.

        A deployed node's disk is its own; its client is left out like any other that fails.
        """
        reasons = (str(row.get("reason", "")) for row in self.strategy.round_record.rows)
        unwritten = next((r for r in reasons if r.startswith(CANNOT_WRITE)), "")
        if unwritten and self.nodes.share_disk:
            raise RunFailed(f"{unwritten}, then resume the run.")

    def _fail_after_empty_rounds(self) -> None:
        """End a run whose model does not change, in the last round or in three in a row.

        It ends with a client's reason. No checkpoint is of such a round: a resume repeats it. A
        round is as it should be if clients are lacking only since they dropped out.
        """
        record = self.strategy.round_record
        counts = record.scalars
        as_drawn = counts.get("dropped_out") and not counts.get("failed")
        too_few = self.strategy.too_few(counts.get("clients", 0))
        enough = (not too_few or as_drawn) and not record.is_void
        self.empty_rounds = 0 if enough else self.empty_rounds + 1
        is_last = self.round == self.config.num_rounds
        if self.empty_rounds >= MAX_EMPTY_ROUNDS or (self.empty_rounds and is_last):
            rounds = "round" if self.empty_rounds == 1 else f"{self.empty_rounds} rounds"
            raise RunFailed(self._why_empty(f"in the last {rounds}"))

    def _why_empty(self, when: str) -> str:
        least, count = self.config.min_train_clients, self.config.num_clients
        if len(self.strategy.expelled) >= count:
            return f"all {count} clients are expelled; nobody was left to train {when}"
        if self.strategy.round_record.is_void:
            return (
                f"{DIVERGED}the aggregate was not finite {when}, so the model did not "
                f"change. Lower the learning rate (lr = {self.config.lr:g}), or server-lr, in a "
                "new run; resuming would only repeat this"
            )
        replies = self.strategy.round_record.scalars.get("clients", 0)
        if replies >= least:
            short = self.strategy.too_few(replies)
            return f"{short} The model did not change {when}; a resume repeats what is missing"
        reasons = [row["reason"] for row in self.strategy.round_record.rows if "reason" in row]
        if reasons and all(map(is_divergence, reasons)):
            return (
                f"{DIVERGED}the loss or update of clients was not finite {when}, so the "
                f"model did not change. Lower the learning rate (lr = {self.config.lr:g}) in a new "
                "run; resuming would only repeat this"
            )
        who = "no client" if least == 1 else f"fewer than min-train-clients = {least} clients"
        first = reasons[0].rstrip() if reasons else "nobody replied"
        gave = f"{who} gave a valid update {when} ({first.splitlines()[-1].strip()})"
        return f"{first}\n{gave}; a resume repeats what is missing"

    def _close_round(self, trained: RoundRecord, started: float) -> None:
        """Score the global model, record the round, write a checkpoint if one is due."""
        row = {"round": self.round, **self._global_score(), **trained.scalars}
        if self._clients_score_the_model() and "personal_accuracy" in row:
            row |= {name: row[f"personal_{name}"] for name in POOLED if f"personal_{name}" in row}
        if "accuracy" in row:
            self.accuracies.append(row["accuracy"])
            row["smoothness"] = smoothness(self.accuracies)
        row["wall_seconds"] = time.perf_counter() - started
        self.record.add_round(row, trained.rows)
        self.trackers.add_round(row)
        every = self.config.checkpoint_every
        due = every and (self.round % every == 0 or self.round == self.config.num_rounds)
        if due and not self.empty_rounds:
            self._save_checkpoint()
            self.strategy.checkpoint_round = self.round
        elif not every:
            self.strategy.checkpoint_round = self.round
        line = "  ".join(describe_round(row))
        log.info("round %d/%d  %s", self.round, self.config.num_rounds, line)

    def _global_score(self) -> dict[str, Any]:
        """Return the result's scores, in the rounds in which they are due."""
        due = self.round % self.config.eval_every == 0 or self.round == self.config.num_rounds
        if not due or not self.strategy.shares_model or not self.evaluation.has_test_rows:
            return {}
        return self.evaluation.score(self.strategy.result(), self.strategy.buffers)

    def _clients_score_the_model(self) -> bool:
        """Return whether only clients can score the global model, and their scores are of it."""
        is_global = self.strategy.shares_model and not self.algorithm.client.personal
        return is_global and not self.evaluation.has_test_rows

    def _save_checkpoint(self) -> None:
        """Write all that a resumed run needs; the record of earlier rounds is on disk before."""
        self.record.sync()
        known = self.nodes.identities.items()
        owners = {owner: client for owner, client in known if client < self.config.num_clients}
        states = {str(client): number for client, number in self.nodes.state_rounds.items()}
        state = self.strategy.state() | {IDENTITIES: owners, STATE_ROUNDS: states}
        save_checkpoint(
            self.record.folder,
            Checkpoint(
                self.round,
                self.strategy.model,
                self.strategy.buffers,
                state,
                list_states(self.record.files.client_states, self.round),
            ),
        )

    def _target_reached(self) -> bool:
        if not self.config.stop_at_target:
            return False
        return rounds_to_target(self.record.history(), self.config) is not None

    def _info(self) -> RunInfo:
        """Return what the strategy needs to know of the run, as it is now."""
        config = self.config
        return RunInfo(
            num_clients=config.num_clients,
            client_sizes=self.nodes.client_sizes(),
            seed=config.seed,
            num_classes=self.num_classes,
            num_rounds=config.num_rounds,
            local_epochs=1 if config.local_steps else config.local_epochs,
            fraction_train=config.fraction_train,
            dropout=config.dropout,
            compression=Compression(config.compression, config.compression_share),
            min_train_clients=config.min_train_clients,
            server_lr=config.server_lr,
            learning_rate=config.learning_rate,
            eval_every=config.eval_every,
            personal_eval=config.personal_eval == "on",
            momentum=config.momentum if config.optimizer == "sgd" else 0.0,
            plain_sgd=config.optimizer == "sgd" and not config.momentum,
            probe=self.evaluation.probe if config.probe_per_class else None,
            shapes=self.model.shapes,
        )
