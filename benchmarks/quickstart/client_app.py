"""The quickstart's ClientApp: one SuperNode is one client, its model travels as a state_dict."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.job import Rows, as_input, open_job

from .task import train as train_fn

app = ClientApp()


@cache
def load_rows(folder: str, client: int) -> Rows:
    """Return a client's tensors, kept by the process."""
    x, y = open_job(Path(folder))[1].client(client)
    return as_input(x), y


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the received model on this node's rows."""
    folder = str(context.run_config["job"])
    job = open_job(Path(folder))[0]
    rows = load_rows(folder, int(context.node_config["partition-id"]))
    model = job.build_model()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    lr = float(message.content.config_records["config"]["lr"])  # type: ignore[arg-type]
    loss = train_fn(model, rows, job, lr)
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"train_loss": loss, "num-examples": len(rows[1])}),
        }
    )
    return Message(content=content, reply_to=message)
