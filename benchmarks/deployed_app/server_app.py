"""The plain app's ServerApp: Flower's own FedAvg."""

from __future__ import annotations

import json
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from benchmarks.job import open_job

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds and write how accurate the model was after each."""
    job, data = open_job(Path(str(context.run_config["job"])))
    clients = len(data.parts)
    result = FedAvg(min_train_nodes=clients, min_available_nodes=clients).start(
        grid=grid,
        initial_arrays=ArrayRecord(job.build_model().state_dict()),
        num_rounds=job.rounds,
        train_config=ConfigRecord({"lr": job.lr}),
    )
    scores = [result.evaluate_metrics_clientapp[n + 1]["accuracy"] for n in range(job.rounds)]
    Path(str(context.run_config["output"])).write_text(json.dumps(scores))
