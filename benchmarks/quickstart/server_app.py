"""The quickstart's ServerApp: Flower's own FedAvg with central evaluation."""

from __future__ import annotations

import time
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from benchmarks.gate import own_gate
from benchmarks.job import RoundLog, as_input, open_job

from .task import test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds; a round lasts from its turn to the end of its evaluation."""
    job, data = open_job(Path(str(context.run_config["job"])))
    log = RoundLog(Path(str(context.run_config["output"])))
    (x, y), clients = data.test(), len(data.parts)
    gate, started = own_gate(), time.perf_counter()

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        nonlocal started
        model = job.build_model()
        model.load_state_dict(arrays.to_torch_state_dict())
        accuracy, loss = test(model, (as_input(x), y))
        if number:
            log.add(number, time.perf_counter() - started, accuracy, loss)
        if number < job.rounds:
            gate.wait(number + 1)
        started = time.perf_counter()
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
