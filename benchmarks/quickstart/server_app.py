"""The quickstart's ServerApp: Flower's own FedAvg with central evaluation."""

from __future__ import annotations

import time
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from benchmarks.job import RoundLog, open_job

from .task import test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds; a round lasts from one evaluation's end to the next one's."""
    job, data = open_job(Path(str(context.run_config["job"])))
    log = RoundLog(Path(str(context.run_config["output"])))
    rows, clients = data.test(), len(data.parts)
    ended = time.perf_counter()

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        nonlocal ended
        model = job.build_model()
        model.load_state_dict(arrays.to_torch_state_dict())
        accuracy = test(model, rows)
        before, ended = ended, time.perf_counter()
        if number:
            log.add(number, ended - before, accuracy)
        return MetricRecord({"accuracy": accuracy})

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(job.build_model().state_dict()),
        num_rounds=job.rounds,
        train_config=ConfigRecord({"lr": job.lr}),
        evaluate_fn=evaluate,
    )
    log.write()
