"""Odd datasets of a node's own: each must be learned from, or be refused in a sentence.

:func:`check` makes them by a seed and does with each what a node and the server do: describe it,
agree on a schema, make arrays, train for two steps.
"""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn
from unittest import mock

import numpy as np

from clients.base import ClientContext, Training
from clients.fedavg import FedAvgClient
from clients.state import ClientState
from fedsuite.core.flat_model import FlatModel
from fedsuite.core.settings import UserError
from fuzz.odd_datasets import LABEL, Odd, make
from tasks.models import build_model
from tasks.own_schema import Description, agree, read_description
from tasks.own_task import describe_path, own_task

TIME_LIMIT_SECONDS = 20


def check(seed: int, count: int, folder: Path) -> list[str]:
    """Make ``count`` odd datasets in ``folder`` and return a line per failure."""
    failures = []
    with mock.patch.dict(os.environ, {"FEDSUITE_CACHE": str(folder / "cache")}):
        for number in range(count):
            odd = make(np.random.default_rng([seed, number]), folder / f"dataset {number}")
            if failure := _failure(odd, folder / "state"):
                failures.append(f"dataset {number} of seed {seed} ({odd.story}): {failure}")
    return failures


def _failure(odd: Odd, state: Path) -> str:
    """Return what went wrong with a dataset; empty if it was learned from or refused."""
    try:
        with _time_limit(TIME_LIMIT_SECONDS):
            return _learn(odd, state)
    except UserError as error:
        return "" if str(error).strip() else "refused without a sentence"
    except Exception as error:  # what this program looks for
        return f"{type(error).__name__}: {error}"


def _learn(odd: Odd, state: Path) -> str:
    """Do what a node and the server do; return what is wrong with the arrays or the update."""
    told = describe_path(odd.path, "own", LABEL)
    heard = read_description(told.to_json())
    if heard != told:
        return "the server hears another description than the node's"
    alone, other = _agreed(heard), _agreed(heard, ("one more", "two more"))
    schema = alone or other
    assert schema is not None  # two classes more are enough for any rows
    own_task.cache_clear()
    task = own_task(odd.path, schema, 0, 2, 0, 0.2)
    x, y = task.dataset.x, task.dataset.y
    if odd.rows is not None and len(y) != odd.rows:
        return f"{len(y)} rows instead of {odd.rows}"
    if not np.isfinite(x).all():
        return "inputs that are not finite"
    model = FlatModel(build_model("mlp", task.shape, 0))
    start, buffers = model.vector(), model.buffer_vector()
    context = ClientContext(
        client=0,
        round=1,
        seed=0,
        task=task,
        model=model,
        initial=start,
        initial_buffers=buffers,
        state=ClientState(state, 0, 1, 0),
        training=Training(local_steps=2, batch_size=4),
    )
    (update,), _, _ = FedAvgClient(context).fit([start], {"lr": 0.01})
    return "" if np.isfinite(update).all() else "an update that is not finite"


def _agreed(description: Description, more: tuple[str, ...] = ()) -> str | None:
    """Return the schema of two nodes, one with further classes; None if that is refused."""
    second = dataclasses.replace(description, classes=(*description.classes, *more))
    try:
        return agree("own", LABEL, {"first": description, "second": second}).to_json()
    except UserError:
        if more:
            raise
        return None


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"it takes over {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
