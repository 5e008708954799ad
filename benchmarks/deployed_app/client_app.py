"""The plain app's ClientApp: a SuperNode trains on its rows and scores the model on others."""

from __future__ import annotations

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from benchmarks.job import Job, JobData, as_input, open_job
from benchmarks.quickstart.task import test as test_fn
from benchmarks.quickstart.task import train as train_fn

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the received model on this node's rows."""
    job, data, model = _open(message, context)
    x, y = data.client(int(context.node_config["partition-id"]))
    lr = float(message.content.config_records["config"]["lr"])  # type: ignore[arg-type]
    loss = train_fn(model, (as_input(x), y), job, lr)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score the received model on this node's share of the test rows."""
    _, data, model = _open(message, context)
    number, count = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    x, y = data.test()
    x, y = as_input(x)[number::count], y[number::count]
    accuracy, loss = test_fn(model, (x, y))
    scores = MetricRecord({"accuracy": accuracy, "loss": loss, "num-examples": len(y)})
    return Message(content=RecordDict({"metrics": scores}), reply_to=message)


def _open(message: Message, context: Context) -> tuple[Job, JobData, nn.Module]:
    torch.set_num_threads(1)
    job, data = open_job(Path(str(context.run_config["job"])))
    model = job.build_model()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return job, data, model
