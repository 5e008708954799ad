"""The ClientApp: works through a cohort, one algorithm's NumPyClient per client.

Data and model are opened once per process and kept; clients train together in stacks where model
and algorithm allow it. A client that fails is reported as such and does not take its cohort along.
"""

from __future__ import annotations

import dataclasses
import logging
import traceback
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedsuite import registry
from fedsuite.config import from_json
from fedsuite.core.files import read_document, write_problem
from fedsuite.core.messages import (
    Instruction,
    Result,
    clean_reason,
    read_instructions,
    refuse_reference,
    write_results,
    write_scores,
)
from fedsuite.core.protocol import SAVE_MODEL
from fedsuite.core.settings import UserError
from fedsuite.core.threads import threads
from fedsuite.core.transport import deliver
from fedsuite.core.vector_files import VectorFiles
from fedsuite.nodes.identity import describe_node, make_private, open_node_data, read_node_data
from fedsuite.nodes.privacy import local_privacy, read_privacy
from fedsuite.nodes.worker import Job, Worker
from fedsuite.records.folder import RunFolder
from fedsuite.records.provenance import RUN_ID
from tasks.task import open_task

app = ClientApp(mods=[local_privacy])
log = logging.getLogger("fedsuite.client_app")


@lru_cache(maxsize=2)
def worker_for(run: str) -> Worker:
    """Return this process's worker for a simulated run, by the run's settings as JSON."""
    config = from_json(run)
    return Worker(config, open_task(config.task))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train a cohort."""
    return _answer(message, context, "fit")


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score a cohort."""
    return _answer(message, context, "evaluate")


@app.query()
def query(message: Message, context: Context) -> Message:
    """Describe this node; open the run's data, so that a problem shows before training."""
    config = dict(message.content.config_records["config"])
    if "refusal" in config:
        log.error("The server says: %s.", config["refusal"])
        answer: dict[str, Any] = {}
    elif not _is_simulated(context, config):
        answer = _describe_node(context, str(config["run"]))
    else:
        with threads(1):
            worker = worker_for(str(config["run"]))
        answer = {
            "partition-id": int(context.node_config.get("partition-id", 0)),
            "num-partitions": int(context.node_config.get("num-partitions", 1)),
            "shares-disk": _sees_run(Path(str(config["run-dir"])), str(config["run-id"])),
            "shares-vectors": _shared_files(context, config) is not None,
            "stacks": worker.stack is not None,
        }
    return Message(RecordDict({"node": ConfigRecord(answer)}), reply_to=message)


def _describe_node(context: Context, run: str) -> dict[str, Any]:
    """Describe a deployed node, or return in a sentence why it cannot take part."""
    try:
        read_privacy(context.node_config)
        with threads(1):
            return describe_node(read_node_data(context.node_config), from_json(run))
    except UserError as error:
        log.error("This node cannot take part: %s", error)
        return {"refusal": str(error)}


def _answer(message: Message, context: Context, method: str) -> Message:
    files = _shared_files(context, message.content.config_records["config"])
    instructions = read_instructions(message.content, files.resolve if files else refuse_reference)
    results = [
        deliver(result, instructions[result.client].places, files)
        for result in _results(instructions, context, method)
    ]
    content = write_results(results)
    if method == "fit":
        content.update(write_scores(_scores(instructions, results, context)))
    return Message(content, reply_to=message)


def _scores(
    instructions: Mapping[int, Instruction], results: list[Result], context: Context
) -> Iterator[Result]:
    """Score deployed clients that have trained, if their score is due and theirs alone already.

    A message to a deployed node costs seconds, and so they need no second one.
    """
    scored = {
        result.client: dataclasses.replace(instructions[result.client], params={})
        for result in results
        if _scores_own(instructions[result.client].config, result)
    }
    yield from _results(scored, context, "evaluate")


def _scores_own(header: Mapping[str, Any], result: Result) -> bool:
    if result.error or result.state_round != header["round"]:
        return False
    config = from_json(str(header["run"]))
    due = header["round"] % config.eval_every == 0 or header["round"] == config.num_rounds
    return due and config.personal_eval == "on" and registry.find(config.algo).client.scores_own


def _results(
    instructions: Mapping[int, Instruction], context: Context, method: str
) -> Iterator[Result]:
    """Yield a cohort's results as they are ready; those of a stack are ready together."""
    stack: list[Job] = []
    for number, instruction in instructions.items():
        try:
            worker, files = _open_worker(context, instruction.config, number)
            if stack and worker is not stack[0].worker:
                yield from _fit_stack(stack, context)
                stack = []
            client = worker.client(number, instruction, files.client_states, len(stack))
            stackable = method == "fit" and worker.may_stack(client)
        except Exception as error:
            yield _failure(number, error, not _is_simulated(context, instruction.config))
            continue
        job = Job(worker, files, client, instruction)
        if stackable:
            stack.append(job)
            if worker.is_full(stack):
                yield from _fit_stack(stack, context)
                stack = []
        else:
            yield _work_alone(job, method, context)
    if stack:
        yield from _fit_stack(stack, context)


def _work_alone(job: Job, method: str, context: Context) -> Result:
    worker, client = job.worker, job.client
    found: Result | Exception
    try:
        with threads(worker.threads(client)):
            found = getattr(worker, method)(client, job.instruction)
            if SAVE_MODEL in job.instruction.config:
                worker.save(client, job.files)
    except Exception as error:
        found = error
    return _close(job, found, context)


def _fit_stack(stack: list[Job], context: Context) -> Iterator[Result]:
    """Train clients together."""
    with threads(1):
        found = list(stack[0].worker.fit_together(stack))
    for job, result in zip(stack, found, strict=True):
        yield _close(job, result, context)


def _close(job: Job, found: Result | Exception, context: Context) -> Result:
    """Return a client's result, from a deployed one with the round of its newest state."""
    is_deployed = not _is_simulated(context, job.instruction.config)
    if isinstance(found, Exception):
        found = _failure(job.client.context.client, found, is_deployed)
    state = job.client.context.state
    return dataclasses.replace(found, state_round=state.newest) if is_deployed else found


def _failure(number: int, error: Exception, is_deployed: bool) -> Result:
    said = str(error) if isinstance(error, UserError) else write_problem(error)
    reason = said or "".join(traceback.format_exception(error))
    if is_deployed:
        log.error("client %d: %s", number, reason)
    return Result(number, error=clean_reason(reason))


def _is_simulated(context: Context, header: Mapping[str, Any]) -> bool:
    """Return whether this node is a simulation's; one with data or state of its own never is."""
    return "run-dir" in header and not {"data-path", "state-dir"} & set(context.node_config)


def _shared_files(context: Context, header: Mapping[str, Any]) -> VectorFiles | None:
    """Return a simulation's files of vectors; a deployed node opens nothing that a server names."""
    return VectorFiles.of(header) if _is_simulated(context, header) else None


def _open_worker(
    context: Context, header: Mapping[str, Any], number: int
) -> tuple[Worker, RunFolder]:
    """Return the worker, and where clients' files are: in a simulation, the run's own folder."""
    if _is_simulated(context, header):
        return worker_for(str(header["run"])), RunFolder(Path(str(header["run-dir"])))
    node, config = read_node_data(context.node_config), from_json(str(header["run"]))
    run_id = str(header["run-id"])
    if not run_id.isalnum():
        raise UserError(f"invalid value '{run_id}' for run-id: it has letters and digits only.")
    state = node.state_dir / run_id
    for folder in (node.state_dir, state):
        make_private(folder)
    return Worker(config, open_node_data(node, config, header, number)), RunFolder(state)


def _sees_run(folder: Path, run_id: str) -> bool:
    """Return whether this node shares the run's folder with the server."""
    try:
        return bool(read_document(RunFolder(folder).config_file).get(RUN_ID) == run_id)
    except (OSError, UserError):
        return False
